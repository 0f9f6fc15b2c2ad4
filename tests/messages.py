"""Prints every text that the command line or the server can show, as `FILE:LINE: TEXT`, so that it can be read.

A text is a string of two words or more. Left out are docstrings, annotations, patterns, SQL, names of background
tasks, and what only a debugger shows (`__repr__`). A placeholder is shown as its expression in braces.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "toolgate"
NOT_SHOWN = {"cast", "compile", "create_task", "execute", "executescript", "start", "Thread", "Struct", "defstruct"}
NO_TEXT = re.compile(r"\\[sbw]|\(\?:|^(SELECT|INSERT|DELETE|PRAGMA|BEGIN|CREATE)\b|^[\w.]+\[.*\]$|\w+ \| \w+")
TWO_WORDS = re.compile(r"[A-Za-z`}]{2,}[,;:)]* [({`\"'A-Za-z]")


def texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts in `node`, those of an f-string as one."""
    if isinstance(node, ast.FunctionDef) and node.name == "__repr__":
        return
    if isinstance(node, ast.Call) and name_of(node.func) in NOT_SHOWN:
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.JoinedStr):
        yield node.lineno, "".join(piece(value) for value in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
        return
    for field, child in ast.iter_fields(node):
        if field in ("annotation", "returns") or (isinstance(node, ast.JoinedStr) and field != "values"):
            continue
        for each in child if isinstance(child, list) else [child]:
            if isinstance(each, ast.AST) and not (isinstance(node, ast.JoinedStr) and isinstance(each, ast.Constant)):
                yield from texts(each)


def piece(value: ast.expr) -> str:
    if isinstance(value, ast.FormattedValue):
        return "{" + ast.unparse(value.value) + "}"
    return str(value.value) if isinstance(value, ast.Constant) else ""


def name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def messages(path: Path) -> Iterator[tuple[int, str]]:
    for line, text in texts(ast.parse(path.read_text())):
        if TWO_WORDS.search(text) and not NO_TEXT.search(text):
            yield line, text


if __name__ == "__main__":
    for path in sorted(SOURCE.rglob("*.py")):
        if "demo" not in path.relative_to(SOURCE).parts and any(map(str(path).count, sys.argv[1:] or [""])):
            for line, text in messages(path):
                print(f"{path.relative_to(SOURCE.parents[1])}:{line}: {text!r}")
