"""Changes that CONTRIBUTING.md describes, really made: edits of the text of `src/toolgate`, as data.

A file of `changes` has the edits of one change: each replaces a piece of text (`was`), which must be there once, in a
file; one without it is a new file. `test_changes.py` makes a copy of `src` with them and has a conversation with that.
"""

from __future__ import annotations

import ast
import difflib
import shutil
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from architecture.imports import SOURCE

CHANGES = Path(__file__).with_name("changes")


class File(NamedTuple):
    before: str
    after: str

    @property
    def has_to_know(self) -> bool:
        """Whether its code is another one. A line of a docstring is not code: nothing goes by it."""
        return _code(self.before) != _code(self.after)

    @property
    def lines(self) -> tuple[int, int]:
        """How many are new, and how many are gone."""
        told = list(difflib.ndiff(self.before.splitlines(), self.after.splitlines()))
        return sum(line.startswith("+ ") for line in told), sum(line.startswith("- ") for line in told)


@cache
def edited(change: str) -> Mapping[str, File]:
    """The files that a change touches, by their paths below `src/toolgate`."""
    found: dict[str, File] = {}
    for edit in tomllib.loads((CHANGES / f"{change}.toml").read_text())["edit"]:
        path, was, now = SOURCE / edit["file"], edit.get("was", ""), edit["now"]
        before = path.read_text() if path.exists() else ""
        text = found[edit["file"]].after if edit["file"] in found else before
        assert text.count(was) == 1 if was else not text, f"{change}.toml: not once in {edit['file']}: {was!r}"
        found[edit["file"]] = File(before, text.replace(was, now) if was else now)
    return found


def files_that_have_to_know(change: str) -> list[str]:
    return [path for path, file in edited(change).items() if file.has_to_know]


def copy(change: str, folder: Path) -> Path:
    """A copy of `src` with the change. Returns the folder to import from."""
    package = folder / "src" / "toolgate"
    shutil.copytree(SOURCE, package)  # with what is compiled of it
    for path, file in edited(change).items():
        (package / path).write_text(file.after)
    return package.parent


def _code(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value.value = ""
    return ast.dump(tree)
