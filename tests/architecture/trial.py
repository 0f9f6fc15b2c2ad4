"""Changes that are really made: a patch is applied to a copy of the source, and a conversation is held with that.

`changes/NAME.patch` is what somebody has written who followed CONTRIBUTING.md, as `git diff -U1` tells it, and
`changes/NAME.py` a program that talks through the changed copy, and fails where the change does not do what it is for.
The rules this file keeps: nothing but the patch makes the difference; and where a patch fits no more, since the source
is another, that is an error: the change is made anew, and counted anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
CHANGES = Path(__file__).with_name("changes")
NAMES = tuple(sorted(path.stem for path in CHANGES.glob("*.patch")))
PATIENCE = 60.0  # seconds that a conversation may take

_file = re.compile(r"^--- (?:a/)?(\S+)\n\+\+\+ (?:b/)?(\S+)\n", re.M)
_hunk = re.compile(r"^@@ .*\n((?:[ +\-\\].*\n|\n)+)", re.M)


class FileChange(NamedTuple):
    """What a patch does to a file: texts that are replaced, with their new ones; a new file has one, in place of
    nothing."""

    path: str
    is_new: bool
    texts: Sequence[tuple[str, str]]
    added: int
    removed: int


@cache
def change(name: str) -> Sequence[FileChange]:
    """What the patch of this name does, file by file."""
    return tuple(_files((CHANGES / f"{name}.patch").read_text()))


def _files(patch: str) -> Iterator[FileChange]:
    found = list(_file.finditer(patch))
    ends = [*(each.start() for each in found[1:]), len(patch)]
    for each, end in zip(found, ends, strict=True):
        hunks = [hunk[1].splitlines(keepends=True) for hunk in _hunk.finditer(patch, each.end(), end)]
        lines = [line for hunk in hunks for line in hunk]
        texts = tuple((_side(hunk, "-"), _side(hunk, "+")) for hunk in hunks)
        added, removed = (sum(line[0] == sign for line in lines) for sign in "+-")
        yield FileChange(each[2], each[1] == "/dev/null", texts, added, removed)


def _side(hunk: Sequence[str], sign: str) -> str:
    return "".join(line[1:] or "\n" for line in hunk if line[0] in (" ", "\n", sign))


def files(name: str, *, are_new: bool) -> int:
    """How many files of the source a change has made, or changed."""
    return sum(each.is_new == are_new and each.path.startswith("src/") for each in change(name))


def changed_copy(name: str, place: Path) -> Path:
    """A copy of the source in this folder, with the change in it."""
    shutil.copytree(ROOT / "src", place / "src", copy_function=shutil.copy2)
    for each in change(name):
        file = place / each.path
        if each.is_new:
            file.parent.mkdir(parents=True, exist_ok=True)
        text = "" if each.is_new else file.read_text()
        for old, new in each.texts:
            assert each.is_new or text.count(old) == 1, f"{name}.patch fits {each.path} no more; there is no\n{old}"
            text = text.replace(old, new) if old else new
        file.write_text(text)
    return place / "src"


def why_not(name: str, source: Path) -> str:
    """Why a conversation with this source has failed, as it has printed it; empty where it has not."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), str(TESTS)))}
    command = [sys.executable, str(CHANGES / f"{name}.py"), str(source)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE)
    return f"it ended with {done.returncode}\n{done.stdout}{done.stderr}" if done.returncode else ""


if __name__ == "__main__":
    for name in NAMES:
        print(name)
        for each in change(name):
            print(f"  {'new    ' if each.is_new else 'changed'} {each.path} +{each.added} -{each.removed}")
