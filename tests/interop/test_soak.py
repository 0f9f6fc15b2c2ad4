"""Two minutes of the soak (`make soak`): everything at once, and what is left of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.interop
@pytest.mark.timeout(400)
def test_two_minutes_of_everything_at_once_leave_nothing_behind() -> None:
    environ = os.environ | {"SOAK_SECONDS": "120", "PYTHONPATH": str(TESTS)}
    run = subprocess.run(
        [sys.executable, str(TESTS / "soak" / "soak.py")], env=environ, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
