"""What is wrong with a configuration, in the lines that people are told."""

from __future__ import annotations

import json
import re
from typing import TypeAlias

import msgspec

KeyPath: TypeAlias = tuple[str | int, ...]

_simple_key = re.compile(r"[A-Za-z0-9_-]{1,80}")


class Problem(msgspec.Struct, frozen=True):
    """`file` has line and column behind it where they are known; `path` is that of the key, empty for the file."""

    file: str
    path: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (_visible(self.file), self.path, self.message, self.fix) if part)


def _visible(file: str) -> str:
    """The name of a folder is whoever made it's: it must not act on a terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in file)


class ConfigError(Exception):
    """All that is wrong with a file. `str()` has one line for each."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def refused(file: str, message: str, fix: str = "") -> ConfigError:
    """Of the file as a whole."""
    return ConfigError((Problem(file, "", message, fix),))


def dotted(path: KeyPath) -> str:
    """`mcpServers."My Server".args[0]`, on one line whatever the keys hold."""
    shown = (f"[{key}]" if isinstance(key, int) else f".{_quoted(key)}" for key in path)
    return "".join(shown).removeprefix(".")


def _quoted(key: str) -> str:
    return key if _simple_key.fullmatch(key) else json.dumps(key[:80])
