"""`toolgate config`: what a configuration file says and may say, and what is wrong with it. Nothing is started."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, cast

import tomlkit
import typer

from toolgate import config as configs
from toolgate.auth.cross_checks import problems
from toolgate.catalog.poisoning import visible
from toolgate.cli import common, printing
from toolgate.config import Config, ConfigError, Server, dialects, masking, render, trust
from toolgate.config.access import KnownClient

app = typer.Typer(add_completion=False, help="Check a configuration file: its dialect, servers and problems.")

ConfigPath = Annotated[str | None, typer.Argument(help=f"The file. {common.WHERE}")]
Words = Annotated[
    str, typer.Option("--dialect", help="Read the file as this dialect instead of detecting it.", hidden=True)
]


@app.command(help="Show the file's dialect, its servers, and each problem with its fix. Exits with 1 if there is one.")
def check(path: ConfigPath = None, dialect: Words = "") -> None:
    found = _find(path, dialect)
    try:
        name = dialect or configs.recognised(found, os.environ).name
        printing.say(f"{found}: {dialects.named(name).title}")
        config = configs.load(found, os.environ, name, looks_up=False, accept=_noting(found, path))
    except ConfigError as error:
        printing.fail(str(error))
    for server in config.servers:
        printing.say(f"  {_line(server)}")
        if confines := server.confines:
            printing.say(f"    in a box, {without_secrets(confines.words(), config)}")
    for client in config.clients:
        printing.say(f"  client {_of_client(client, config)}")
    if not config.servers:
        printing.say("  no servers")
    for told in (*(f"warning: {warning}" for warning in config.warnings), *problems(config)):
        printing.say(str(told), err=True)
    raise typer.Exit(bool(problems(config)) or any(server.problem for server in config.servers if server.enabled))


@app.command(help="Print the effective configuration with defaults, in toolgate's format. Possible secrets are masked.")
def show(
    path: ConfigPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of TOML.")] = False,
    dialect: Words = "",
) -> None:
    found = _find(path, dialect)
    config = _load(found, path, dialect)
    table = render.config(config)
    printing.say(json.dumps(table, indent=2, ensure_ascii=False) if as_json else _toml(table).rstrip())
    for warning in config.warnings:
        printing.say(f"warning: {warning}", err=True)


@app.command(help="Print the JSON Schema of toolgate's own configuration files, for editors.")
def schema() -> None:
    typer.echo(json.dumps(render.schema(), indent=2, ensure_ascii=False))


def without_secrets(text: str, config: Config) -> str:
    for value in configs.secrets_of(config):
        text = text.replace(value, masking.MASK)
    return visible(text)


def _noting(path: Path, named: str | None) -> Callable[[bytes], None] | None:
    """A file that is not trusted is looked at nevertheless: nothing is started, and no secret is looked up."""

    def note(data: bytes) -> None:
        try:
            trust.check(path, data, os.environ)
        except trust.NotTrusted as error:
            printing.say(f"note: {error}", err=True)

    return note if configs.is_strangers(path, named, os.environ) else None


def _find(path: str | None, dialect: str) -> Path:
    known = sorted({each.name for each in dialects.DIALECTS})
    if dialect and dialect not in known:
        printing.fail(f"unknown dialect {dialect}. Available: {', '.join(known)}", 2)
    found = configs.find(path, Path.cwd(), os.environ)
    if not found:
        printing.fail("No configuration found here or in the user's folder: give a file.", 2)
    return found


def _load(path: Path, named: str | None, dialect: str) -> Config:
    try:
        return configs.load(path, os.environ, dialect, looks_up=False, accept=_noting(path, named))
    except ConfigError as error:
        printing.fail(str(error))


def _line(server: Server) -> str:
    """One server as it stands in the file: what it is, and what keeps it from working."""
    reached = masking.url(server.url) if server.url else server.command
    state = "" if server.enabled else ", disabled"
    if server.problem:
        state += f"\n    {'needs configuration' if server.missing else 'problem'}: {server.problem}"
    return f"{server.name}: {server.type} {reached}{state}"


def _of_client(client: KnownClient, config: Config) -> str:
    """One client: what it may reach, and how it shows who it is."""
    servers = client.servers
    named = {"all": "all servers", "none": "no servers", None: "servers that its permissions allow"}
    reached = (", ".join(servers) or named["none"]) if isinstance(servers, tuple) else named[servers]
    reached += ", as an administrator" if client.admin else ""
    ways = ["the key in this file"] if client.key else []
    ways += ["tokens with its claims"] if client.claims else []
    if client.id == config.auth.client:
        has_others = any(each.claims for each in config.clients)
        ways.append("any token of the issuer" + (" with no client's claims" if has_others else ""))
    state = "" if client.enabled else ", disabled"
    return f"{client.id}: {reached}, by {' or '.join([*ways, 'keys of `toolgate keys`'])}{state}"


def _toml(table: dict[str, Any]) -> str:
    return tomlkit.dumps(_without_null(table))


def _without_null(value: Any) -> Any:
    """TOML has none: what is null in an overlay is left out."""
    if isinstance(value, dict):
        return {key: _without_null(each) for key, each in cast("dict[str, Any]", value).items() if each is not None}
    if isinstance(value, list):
        return [_without_null(each) for each in cast("list[Any]", value) if each is not None]
    return value
