"""What several commands need: the configuration, or the end with its faults; and the event loop."""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
import uvloop

from toolgate import config as configs
from toolgate.config import Config, ConfigError, Server
from toolgate.model import Fault
from toolgate.wire import names

Result = TypeVar("Result")

ConfigPath = Annotated[
    str | None,
    typer.Option(
        "--config", "-c", help="The configuration file. Default: toolgate.toml here, then in the user's folder."
    ),
]


def load_config(path: str | None) -> Config:
    """The configuration, or the end of the command with all that is wrong with it."""
    try:
        found = configs.find(path, Path.cwd(), os.environ)
        config = configs.load(found, os.environ) if found else Config()
    except ConfigError as error:
        fail(str(error), 2)
    for warning in config.warnings:
        typer.echo(f"warning: {warning}", err=True)
    return config


def require_servers(config: Config) -> Config:
    if config.servers:
        return config
    where = (
        f"{config.source} has no mcpServers" if config.source else "No configuration found here or in the user's folder"
    )
    fail(
        f"{where}. Write toolgate.json:\n"
        '  {"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}',
        2,
    )


def find_server(config: Config, wanted: str) -> Server:
    """The server by any spelling of its name, or the end of the command with those that there are."""
    for server in config.servers:
        if wanted in names.spellings(server.name):
            return server
    fail(f"Server not found: {wanted}. There are {', '.join(server.name for server in config.servers)}")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    return uvloop.run(work)


def fail(message: str, status: int = 1) -> NoReturn:
    typer.echo(message, err=True)
    sys.exit(status)


def show(fault: Fault) -> str:
    """A fault as one line for people."""
    return f"{fault.code}: {fault.message}" + (
        f" ({fault.hint})" if fault.hint and fault.hint not in fault.message else ""
    )
