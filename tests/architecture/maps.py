"""The map of a package: the docstring of its `__init__`, which has a line for each of its files and packages."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_line = re.compile(r"^(?:    )?(\w+)  ", re.M)


def map_of(package: Path) -> str:
    return _docstring(package / "__init__.py")


def named(package: Path) -> list[str]:
    """What has a line, but for the `__init__` itself, which may. That of a kind of server stands at the table of
    kinds."""
    maps = (map_of(package), *map(_docstring, package.glob("kinds.py")))
    return [name for each in maps for name in _line.findall(each) if name != "__init__"]


def inside(package: Path) -> set[str]:
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    return modules | {path.parent.name for path in package.glob("*/__init__.py")}


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""
