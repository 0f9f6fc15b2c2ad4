"""`toolgate doctor`: every server started and listed, each fault with its mend."""

from __future__ import annotations

import asyncio
import platform
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from toolgate import __version__
from toolgate.app import App
from toolgate.cli import common, gateways
from toolgate.config import Config, Server
from toolgate.model import Client, Fault
from toolgate.ports import Status
from toolgate.upstreams import causes
from toolgate.upstreams.links.stdio import LOOK

app = typer.Typer(add_completion=False)


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
    async with gateways.opened(config) as gateway:
        examined = [found for found in config.servers if only in (None, found)]
        findings = await asyncio.gather(*(_examine(gateway, found) for found in examined))
        for server, (tools, fault) in zip(examined, findings, strict=True):
            _print(console, gateway, server, tools, fault, lines=30 if only else 5)
    return 1 if any(fault for _, fault in findings) else 0


async def _examine(gateway: App, server: Server) -> tuple[int, Fault | None]:
    """How many tools it has, or why it has none."""
    if not server.enabled:
        return 0, None
    try:
        return len((await gateway.gateway.snapshot.upstreams[server.id].list("tools", Client())).raw), None
    except Fault as fault:
        return 0, fault


def _print(console: Console, gateway: App, server: Server, tools: int, fault: Fault | None, lines: int) -> None:
    if not server.enabled:
        console.print(f"– {escape(server.name)}: disabled")
        return
    status = gateway.gateway.snapshot.upstreams[server.id].status()
    if not fault:
        console.print(f"[green]✓[/] {escape(server.name)}: {what_it_has(tools, status.revision)}")
    else:
        console.print(f"[red]✗[/] {escape(server.name)}: {escape(status.error or fault.message)}", soft_wrap=True)
        if cure := mend(server, fault, status):
            console.print(f"    mend: {escape(cure)}", soft_wrap=True)
    if fault or lines > 5:
        for line in status.stderr.rstrip().splitlines()[-lines:]:
            console.print(f"    [dim]stderr:[/] {escape(line)}", soft_wrap=True)


def what_it_has(tools: int, revision: str) -> str:
    """A component speaks no revision."""
    return f"{tools} {'tool' if tools == 1 else 'tools'}" + (f", revision {revision}" if revision else "")


def mend(server: Server, fault: Fault, status: Status) -> str:
    """What to do about a server that failed; empty where its error says it already."""
    if server.problem:
        return ""
    for found in (status.hint, causes.mend(status.error or fault.message, status.stderr), fault.hint):
        if found and not found.startswith(LOOK):
            return found
    if server.url:
        return "check that its url is that of an MCP endpoint (its path is often /mcp), and that it is up"
    return "its last words are below" if status.stderr.strip() else f"it said nothing: run it by hand: {server.command}"
