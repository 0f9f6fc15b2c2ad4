"""The steps of CONTRIBUTING.md are all of them: a copy of `src` with such a change, and nothing else, does what the
others of its kind do. `measure.py` counts its files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from architecture import edits

ROOT = Path(__file__).parents[2]
ENDS = 100  # seconds


@pytest.mark.parametrize("change", ["method", "policy"])
def test_a_change_is_all_that_it_takes(change: str, tmp_path: Path) -> None:
    source = edits.copy(change, tmp_path)
    talks = edits.CHANGES / f"{change}_talks.py"
    paths = f"pythonpath={source} {ROOT / 'tests'}"
    pytest_of_copy = [
        sys.executable,
        "-m",
        "pytest",
        str(talks),
        "-o",
        paths,
        "-n",
        "0",
        f"--basetemp={tmp_path / 't'}",
    ]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV"))}
    done = subprocess.run(
        pytest_of_copy, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=ENDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
