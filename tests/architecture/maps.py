"""The map of a package: the docstring of its `__init__`, which has a line for each of its files and packages, but for
those that stand in a table of the package: their lines are in the docstring of the table's file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TABLES = ("kinds.py", "chain.py")  # of the kinds of servers, and of the policies
_line = re.compile(r"^(?:    )?(\w+)  ", re.M)


def map_of(package: Path) -> str:
    return _docstring(package / "__init__.py")


def named(package: Path) -> list[str]:
    """What has a line, but for the `__init__` itself, which may."""
    maps = (map_of(package), *(_docstring(package / table) for table in TABLES if (package / table).exists()))
    return [name for each in maps for name in _line.findall(each) if name != "__init__"]


def inside(package: Path) -> set[str]:
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    return modules | {path.parent.name for path in package.glob("*/__init__.py")}


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""
