"""`toolgate secrets`: the file that `${secret:NAME}` is looked up in, and where each secret of a configuration is.

The rule this file keeps: a value is never an argument, where other users see it, and never printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.markup import escape

from toolgate import config as configs
from toolgate.cli import common, printing
from toolgate.config import Config, edits, secrets
from toolgate.config.private import SHORTEST
from toolgate.config.secrets import Broken
from toolgate.config.variables import Lacking, is_secret_name
from toolgate.core.redaction import can_be_guessed

app = typer.Typer(add_completion=False, help="Store secrets for ${secret:NAME}; show where each one is found.")

Name = Annotated[str, typer.Argument(help="The name, as in ${secret:NAME}.")]


@app.command("set", help="Store a secret in the file. The value is prompted for, or read from standard input.")
def set_(name: Name, config: common.ConfigPath = None) -> None:
    if not is_secret_name(name):
        printing.fail("A name has letters, digits and `_ . - /`, and may end in `#FIELD`", 2)
    value = _read()
    if not value:
        printing.fail("Nothing was stored: the value is empty", 2)
    path = _path(common.load_written(config))

    def with_it(known: dict[str, str]) -> dict[str, str]:
        return {**known, name: value}

    _edit(path, with_it)
    typer.echo(f"{name} was stored in {path}", err=True)
    if len(value) < SHORTEST:
        short = f"it is shorter than {SHORTEST} characters, so it is not redacted from output"
        typer.echo(f"warning: {short}", err=True)
    elif can_be_guessed(value):
        weak = "it can be guessed: clients can try values by having a server repeat them, and see which one is redacted"
        typer.echo(f"warning: {weak}. Fix: use 16 or more random letters and digits", err=True)


@app.command("remove", help="Remove a secret from the file.")
def remove(name: Name, config: common.ConfigPath = None) -> None:
    path = _path(common.load_written(config))

    def without(known: dict[str, str]) -> dict[str, str]:
        if name not in known:
            printing.fail(f"{name} is not in {path}")
        return {other: value for other, value in known.items() if other != name}

    _edit(path, without)
    typer.echo(f"{name} was removed from {path}", err=True)


@app.command("list", help="List the secrets that are stored or used by the configuration, and their sources.")
def list_(config: common.ConfigPath = None) -> None:
    found = common.load_written(config)
    path, sources = _path(found), configs.sources(found, os.environ)
    users = dict[str, list[str]]()
    for name, server in _used(found, config):
        users.setdefault(name, []).append(server)
    console, lacks = Console(highlight=False, soft_wrap=True), False
    for name in sorted({*_known(path), *users}):
        try:
            where = sources.origin(name)
        except Lacking as error:
            where, lacks = f"[red]{escape(str(error))}[/]", True
        used = f"used by {', '.join(dict.fromkeys(users[name]))}" if name in users else "not used"
        console.print(f"{escape(name)}: {where}, {escape(used)}")
    if not users and not _known(path):
        typer.echo("No secrets are stored or used. Store one: toolgate secrets set NAME", err=True)
    raise typer.Exit(lacks)


def _read() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Value", hide_input=True, err=True))
    return sys.stdin.read(secrets.LONGEST_SECRET).removesuffix("\n")


def _path(config: Config) -> Path:
    return secrets.file_of(config.secrets, config.state, config.source, os.environ)


def _known(path: Path) -> dict[str, str]:
    try:
        return dict(secrets.read_file(path))
    except Broken as error:
        printing.fail(str(error))


def _edit(path: Path, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    try:
        edits.edit_table(path, lambda: change(_known(path)))
    except OSError as error:
        printing.fail(f"{path} cannot be written ({os.strerror(error.errno or 0)})")


def _used(config: Config, path: str | None) -> Iterator[tuple[str, str]]:
    """The secrets that servers and clients' keys name, with who names them. Of a file of another tool too."""
    for client in config.clients:
        yield from ((name, f"the key of {client.id}") for name in secrets.named_in(client.key))
    source = configs.find(path, Path.cwd(), os.environ)
    written = configs.tables(source, os.environ) if source else {}
    for server, table in {**written, **edits.read_own(edits.own_file(config, os.environ))}.items():
        for text in _texts(table):
            yield from ((name, server) for name in secrets.named_in(text))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        inner = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
        for each in inner:
            yield from _texts(each)
