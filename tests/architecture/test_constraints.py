"""What the tests are installed with, by `constraints.txt`."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]


def test_what_the_tests_are_installed_with_runs_on_the_oldest_python_that_is_promised() -> None:
    promised = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = f"{promised.removeprefix('>=')}.0"
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    names = [Requirement(line).name for line in lines if line and not line.startswith("#")]
    needed = {name: _needed(name) for name in names}
    assert not {name: needs for name, needs in needed.items() if not SpecifierSet(needs).contains(oldest)}


def _needed(name: str) -> str:
    try:
        return metadata.metadata(name)["Requires-Python"] or ""
    except (metadata.PackageNotFoundError, KeyError):
        return ""  # of an extra that these tests are run without
