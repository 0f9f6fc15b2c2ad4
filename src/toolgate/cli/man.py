"""`toolgate man`: the manual page, made from the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

import typer

from toolgate import __version__
from toolgate.cli import tree
from toolgate.cli.tree import Command

app = typer.Typer(add_completion=False)

HELP = """Print the manual page.

Read it with `toolgate man | man -l -`, or keep it:

toolgate man > ~/.local/share/man/man1/toolgate.1"""

_HEAD = """\
.ad l
.nh
.SH NAME
toolgate \\- one MCP endpoint in front of every MCP server
.SH SYNOPSIS
.B toolgate
.I COMMAND
.RI [ OPTIONS ]
.SH DESCRIPTION
toolgate is a gateway for servers of the Model Context Protocol. Clients connect to it once, and reach all servers that
its configuration file names.
.PP
The option
.B \\-\\-config
names that file. Without it, commands use the one that
.B TOOLGATE_CONFIG
names, toolgate.toml, toolgate.yaml, toolgate.yml or toolgate.json in this folder, if it is trusted, or the same in
~/.config/toolgate.
.SH COMMANDS"""

_TAIL = """\
.SH EXIT STATUS
.TP
.B 0
It worked.
.TP
.B 1
It did not: a call failed, something was not found, or a check found a problem.
.TP
.B 2
The command line is wrong, or the configuration is missing, invalid or not trusted.
.SH ENVIRONMENT
.TP
.B TOOLGATE_CONFIG
The configuration file, where \\-\\-config is not given.
.TP
.B XDG_CONFIG_HOME
Its folder toolgate is searched for a file instead of ~/.config/toolgate.
.TP
.B XDG_STATE_HOME
Its folder toolgate holds the state instead of ~/.local/state/toolgate.
.TP
.BI TOOLGATE_SECRET_ NAME
The value of ${secret:NAME}.
.SH FILES
.TP
.I ~/.config/toolgate/toolgate.toml
The configuration.
.TP
.I ~/.local/state/toolgate
What gateways keep; see
.BR "toolgate state" ."""


@app.command(help=HELP)
def man() -> None:
    typer.echo("\n".join(page(tree.commands())))


def page(commands: tuple[Command, ...]) -> Iterator[str]:
    yield f'.TH TOOLGATE 1 "" "toolgate {__version__}" "User Commands"'
    yield _HEAD
    for command in commands:
        yield from _section(command)
        for each in command.below:
            yield from _section(each)
    yield _TAIL


def _section(command: Command) -> Iterator[str]:
    yield f".SS {_words(command.usage if not command.below else f'toolgate {command.name} COMMAND')}"
    yield "\n.PP\n".join(_text(part) for part in re.split(r"\n\s*\n", command.help))
    for each in (*command.arguments, *command.options):
        yield f".TP\n.B {_words(each.label)}\n{_text(each.help)}"


def _words(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")


def _text(text: str) -> str:
    """No line of it is taken for a request."""
    lines = (_words(line.strip()) for line in text.split("\n"))
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines if line)
