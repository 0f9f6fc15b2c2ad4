"""Every text that the gateway or a command may print or answer, for somebody to read them as they are read at night.

    python tests/architecture/messages.py [WORD]

A text is a string of more than one word that is no docstring and not made up of code: of what is raised, logged,
printed, said as help, or built for one of these. A value that is put in shows as its expression in braces.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from architecture import imports

A_SENTENCE = re.compile(r"[A-Za-z{}`]['`\w}:,.-]*,? [A-Za-z{`]")
LINE = 100_000  # characters: what is printed has one line each


class Message(NamedTuple):
    module: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.text}"


def collected() -> Iterator[Message]:
    for module, tree in imports.modules().items():
        if imports.room_of(module) != "demo":
            yield from (Message(module, node.lineno, text) for node, text in texts_of(tree))


def texts_of(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """With the node that each is, in the order of the source."""
    silent = {id(each) for each in ast.walk(tree) if isinstance(each, ast.Expr)}  # docstrings, and those of variables
    inside: set[int] = set()
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            is_part = isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)
            is_type = isinstance(node, ast.Call) and ast.unparse(node.func) == "cast" and child is node.args[0]
            if id(node) in silent or is_part or is_type:
                inside.add(id(child))
    found = [(node, written(node)) for node in ast.walk(tree) if id(node) not in inside and _is_text(node)]
    for node, text in sorted(found, key=lambda each: (each[0].lineno, each[0].col_offset)):
        if A_SENTENCE.search(text):
            yield node, text


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def written(node: ast.AST) -> str:
    match node:
        case ast.JoinedStr(values=parts):
            return "".join(map(written, parts))
        case ast.FormattedValue(value=value):
            return "{" + ast.unparse(value) + "}"
        case ast.Constant(value=str(text)):
            return text
        case _:
            return ""


if __name__ == "__main__":
    wanted = sys.argv[1].lower() if len(sys.argv) > 1 else ""
    for message in collected():
        if wanted in message.text.lower():
            print(f"{message.module}:{message.line}: {' '.join(message.text.split())[:LINE]}")
