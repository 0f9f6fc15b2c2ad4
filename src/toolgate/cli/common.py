"""What several commands need: the configuration, or the end with its faults; and the event loop."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec
import typer
import uvloop

from toolgate import config as configs
from toolgate.config import Config, ConfigError, Server, Surface
from toolgate.model import Fault
from toolgate.wire import names

Result = TypeVar("Result")

ConfigPath = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        "--children-config",
        help="The configuration file. Default: toolgate.toml here, then in the user's folder.",
    ),
]
SurfaceName = Annotated[
    Surface | None, typer.Option("--surface", help="What /mcp shows. Default: surface in the configuration.")
]


def load_config(path: str | None, surface: Surface | None = None) -> Config:
    """The configuration, with this surface instead of its own if one is given, or the end of the command with all that
    is wrong with it."""
    try:
        found = configs.find(path, Path.cwd(), os.environ)
        config = configs.load(found, os.environ) if found else Config()
    except ConfigError as error:
        fail(str(error), 2)
    for warning in config.warnings:
        typer.echo(f"warning: {warning}", err=True)
    return msgspec.structs.replace(config, surface=surface) if surface else config


_EXAMPLE = '{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}'


def require_servers(config: Config) -> Config:
    if config.servers:
        return config
    if config.source:
        fail(f"{config.source} has no servers. Add one:\n  {_EXAMPLE}", 2)
    others = [name for name in (".mcp.json", ".cursor/mcp.json") if Path(name).exists()]
    if others:
        fail(f"No toolgate.json here. There is a {others[0]}: name it with --config {others[0]}", 2)
    fail(f"No configuration found here or in the user's folder. Write toolgate.json:\n  {_EXAMPLE}", 2)


def find_server(config: Config, wanted: str) -> Server:
    """The server by any spelling of its name, or the end of the command with those that there are."""
    for server in config.servers:
        if wanted in names.spellings(server.name):
            return server
    fail(f"Server not found: {wanted}. There are {', '.join(server.name for server in config.servers)}")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end. What commands print themselves is not logged a second time; those that serve set more up."""
    logging.getLogger("toolgate").addHandler(logging.NullHandler())
    return uvloop.run(work)


def fail(message: str, status: int = 1) -> NoReturn:
    typer.echo(message, err=True)
    sys.exit(status)


def show(fault: Fault) -> str:
    """A fault as one line for people."""
    return f"{fault.code}: {fault.message}" + (
        f" ({fault.hint})" if fault.hint and fault.hint not in fault.message else ""
    )
