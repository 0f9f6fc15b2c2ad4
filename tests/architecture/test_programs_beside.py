"""Programs that `make test` does not run still name what is there."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted([*(ROOT / "bench").glob("*.py"), *(ROOT / "tests" / "soak").glob("*.py")])


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_what_a_program_takes_from_the_house_is_there(program: Path) -> None:
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "toolgate":
            module = importlib.import_module(node.module or "")
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")


TAKERS = [each for each in PROGRAMS if "sys.path" in each.read_text()]


@pytest.mark.parametrize("program", TAKERS, ids=lambda path: path.stem)
def test_a_program_that_takes_from_elsewhere_starts_from_where_it_lies(program: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(program), "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout
