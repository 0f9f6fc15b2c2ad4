"""Shims: what managers of versions (mise, asdf, volta, proto, pyenv) put into PATH in place of `node` or `python3`.
Which program is run they look up in the folder that they start in, and all above it: a file may name one beside it.

The rule this file keeps: a shim counts as one wherever it is named: as the command, in its arguments, in the first line
of a script; and a script of a shell may start any.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence

from toolgate.upstreams.process import folders, programs

_SHIMS = "shims"  # the folder of most
_OF_MANAGERS = frozenset(["mise", "rtx", "asdf", "volta-shim", "proto-shim", "aqua-proxy"])  # what others lead to
_DEEPEST = 4  # interpreters of interpreters
_MOST_WORDS = 256  # of a command line that are looked up
_PYTHONS = ("python3", "python")  # which uv looks for
_SHELL = re.compile(r"(?:ba|da|z|k|fi|a)?sh")
_LINE = re.compile(r"-[a-z]*c")  # before a line for a shell, whose words are looked up themselves


def named(command: str, args: Sequence[str], path: str) -> list[str]:
    """The names in a command line by which a shim may be started. `path` is the PATH of its program. Looks at files."""
    looks = _Looks(path, not any(map(_LINE.fullmatch, args)))
    words = [command, *(each for each in folders.words_of(args) if each[0] not in "-.")][:_MOST_WORDS]
    return [os.path.basename(each) for each in words if looks.leads(each, _DEEPEST)]


class _Looks:
    """`has_script`: a shell that the command line names is given a script."""

    def __init__(self, path: str, has_script: bool) -> None:
        self._path = path
        self._has_script = has_script
        self._has_shims = any(_holds_shims(folder) for folder in path.split(os.pathsep) if folder)

    def leads(self, name: str, left: int) -> bool:
        """Whether what has this name in PATH, or stands at this path, is a shim, or starts one."""
        program = shutil.which(name, path=self._path)
        if not program or not left:
            return False
        if _is_shim(program):
            return True
        if self._has_shims and _SHELL.fullmatch(os.path.basename(program)):
            return self._has_script or left < _DEEPEST
        return any(self.leads(each, left - 1) for each in self._started_by(program))

    def _started_by(self, program: str) -> Iterator[str]:
        if os.path.basename(program) in ("uv", "uvx"):
            yield from _PYTHONS
        yield from (each for each in programs.interpreter_of(program)[:3] if not each.startswith("-"))


def _holds_shims(folder: str) -> bool:
    if os.path.basename(os.path.normpath(folder)) == _SHIMS:
        return True
    return any(_is_shim(os.path.join(folder, name)) for name in ("node", *_PYTHONS))


def _is_shim(program: str) -> bool:
    """By where it lies, on the way to what it links to, too."""
    for _ in range(_DEEPEST):
        folder, name = os.path.split(os.path.abspath(program))
        if os.path.basename(folder) == _SHIMS or name in _OF_MANAGERS:
            return True
        if not os.path.islink(program):
            return False
        program = os.path.join(folder, os.readlink(program))
    return False
