"""Every command with its arguments and options, as values: what the page, the man page and completion are made of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import typer

from toolgate.cli import COMMANDS, agents, app
from toolgate.config import SURFACES

_FILES = frozenset(["CHILDREN_CONFIG", "CONFIG", "FILE", "FILES", "FOLDER", "OUTPUT", "PATH", "TO"])
_WORDS: Mapping[str, Sequence[str]] = {
    "PROGRAM": tuple(agents.AGENTS),
    "PROGRAMS": tuple(agents.AGENTS),
    "SHELL": ("bash", "zsh", "fish"),
    "SURFACE": tuple(SURFACES),
}


class Value(msgspec.Struct, frozen=True):
    """What stands for an argument, or behind an option: one of these `words`, a file, or anything else."""

    words: Sequence[str] = ()
    is_file: bool = False


class Argument(msgspec.Struct, frozen=True):
    """`label` is as a usage line has it."""

    label: str
    help: str

    @property
    def expects(self) -> Value:
        return _expected(self.label)


class Option(msgspec.Struct, frozen=True):
    """`value` is what stands behind it; empty for a flag."""

    names: tuple[str, ...]
    value: str
    help: str

    @property
    def expects(self) -> Value:
        return _expected(self.value)

    @property
    def label(self) -> str:
        return " ".join([", ".join(self.names), *([self.value] if self.value else [])])


class Command(msgspec.Struct, frozen=True):
    """`name` is all words behind `toolgate`; one with commands `below` it has nothing else. `line` is its help in the
    list of commands."""

    name: str
    line: str
    help: str
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    below: tuple[Command, ...] = ()

    @property
    def usage(self) -> str:
        labels = (each.label for each in self.arguments)
        return " ".join(["toolgate", self.name, *labels, *(["[OPTIONS]"] if self.options else [])])


def _expected(label: str) -> Value:
    word = "".join(re.findall(r"[A-Z_]+", label)[:1])
    return Value(_WORDS.get(word, ()), word in _FILES)


def no_file(command: Command) -> bool:
    """Whether none of its arguments is one."""
    return not any(each.expects.is_file for each in command.arguments)


def commands() -> tuple[Command, ...]:
    root: Any = typer.main.get_command(app)
    return tuple(_command(name, line, root.get_command(None, name)) for name, (_, line) in COMMANDS.items())


def runnable(found: tuple[Command, ...]) -> Iterator[Command]:
    """Those that run: of a command with others below it, these."""
    for each in found:
        yield from each.below or (each,)


def _command(name: str, line: str, found: Any) -> Command:
    help = (found.help or "").strip()
    if below := getattr(found, "commands", {}):
        each_below = (
            _command(f"{name} {each.name}", (each.help or "").split("\n")[0], each) for each in below.values()
        )
        return Command(name, line, help, below=tuple(each_below))
    shown = [each for each in found.params if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if not each.opts[0].startswith("-")]
    options = [each for each in shown if each not in arguments]
    return Command(name, line, help, tuple(map(_argument, arguments)), tuple(map(_option, options)))


def _argument(found: Any) -> Argument:
    name = found.metavar or found.name.upper()
    more = "..." if found.nargs == -1 and "..." not in name else ""
    label = f"{name}{more}" if found.required or name.startswith("[") else f"[{name}{more}]"
    return Argument(label, found.help or "")


def _option(found: Any) -> Option:
    value = "" if found.is_flag else found.metavar or found.name.upper()
    return Option((*found.opts, *found.secondary_opts), value, found.help or "")
