"""`toolgate doctor`: every server started and listed, each fault with its mend."""

from __future__ import annotations

import platform
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from toolgate import __version__
from toolgate.app import App, running
from toolgate.cli import common
from toolgate.config import Config, Server
from toolgate.model import Client, Fault
from toolgate.ports import Status

app = typer.Typer()

# What is often on the stderr of a server that did not start → what to do about it.
KNOWN_CAUSES = (
    ("No module named", "install what it needs, or run it with `uvx`, which does"),
    ("Cannot find module", "install what it needs, or run it with `npx -y`, which does"),
    ("cannot import name", "it was made for an older library; for Python servers try `uvx --with 'mcp<2' NAME`"),
    ("EACCES", "it may not read or write what it wants to: check the permissions"),
    ("EADDRINUSE", "a port that it wants is taken"),
    ("404 Not Found", "the package's name or version does not exist: check its spelling"),
)


@app.command(
    help="Look at the configuration and every server; name each fault with its mend. Ends with 1 where one is found."
)
def doctor(
    config: common.ConfigPath = None,
    server: Annotated[str | None, typer.Option(help="Only this server, with the end of its stderr.")] = None,
) -> None:
    settings = common.require_servers(common.load_config(config))
    only = common.find_server(settings, server) if server is not None else None
    raise typer.Exit(common.run(_doctor(settings, only)))


async def _doctor(config: Config, only: Server | None) -> int:
    console = Console(highlight=False)
    console.print(f"toolgate {__version__}, Python {platform.python_version()}, {sys.platform}")
    if not sys.platform.startswith("linux"):
        console.print(
            "  Linux only: grandchildren that leave their process group are not found when the gateway is killed"
        )
    console.print(f"configuration: {config.source or 'none'}")
    ills = 0
    async with running(config) as gateway:
        for found in config.servers:
            if only in (None, found):
                ills += await _examine(gateway, found.id, found.enabled, console, verbose=only is not None)
    return 1 if ills else 0


async def _examine(gateway: App, server: str, enabled: bool, console: Console, verbose: bool) -> int:
    if not enabled:
        console.print(f"– {server}: disabled")
        return 0
    upstream = gateway.gateway.snapshot.upstreams[server]
    try:
        tools = await upstream.list("tools", Client())
    except Fault as fault:
        status = upstream.status()
        console.print(f"[red]✗[/] {escape(upstream.name)}: {escape(fault.message)}")
        console.print(f"    mend: {escape(mend(fault, status))}")
        _print_stderr(console, status, 30 if verbose else 5)
        return 1
    status = upstream.status()
    console.print(f"[green]✓[/] {escape(upstream.name)}: {len(tools)} tools, revision {status.revision}")
    if verbose:
        _print_stderr(console, status, 30)
    return 0


def mend(fault: Fault, status: Status) -> str:
    """What to do about a server that failed."""
    if fault.hint and "stderr" not in fault.hint:
        return fault.hint
    for sign, cure in KNOWN_CAUSES:
        if sign in status.stderr:
            return cure
    return status.hint or "run its command by hand and look at what it says"


def _print_stderr(console: Console, status: Status, lines: int) -> None:
    for line in status.stderr.rstrip().splitlines()[-lines:]:
        console.print(f"    [dim]stderr:[/] {escape(line)}")
