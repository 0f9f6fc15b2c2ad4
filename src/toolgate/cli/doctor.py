"""`toolgate doctor`: every server started and listed, each fault with its mend."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated

import typer
from msgspec import Raw
from rich.console import Console
from rich.markup import escape

from toolgate import __version__, audit, pins, suspicions
from toolgate import store as stores
from toolgate.app import App
from toolgate.auth.soundness import problems
from toolgate.cli import common, gateways
from toolgate.config import Config, Server, state_folder, written
from toolgate.model import Fault
from toolgate.pins import PinRecords
from toolgate.policy import scrub
from toolgate.ports import Status
from toolgate.store.sqlite import FILE
from toolgate.suspicions import visible
from toolgate.upstreams import causes
from toolgate.upstreams.links.stdio import LOOK
from toolgate.wire import items

app = typer.Typer(add_completion=False)

MOST_LOOKS = 5  # suspicious texts of one server


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
    unsound = problems(config)
    for problem in unsound:
        console.print(f"[red]✗[/] {escape(str(problem))}", soft_wrap=True)
    is_audited = _look_at_audit(console, config)
    is_pinned = await _look_at_pins(console, config)
    async with gateways.opened(config) as gateway:
        examined = [found for found in config.servers if only in (None, found)]
        findings = await asyncio.gather(*(_examine(gateway, found) for found in examined))
        pending = await _pending(config)
        for server, (tools, fault) in zip(examined, findings, strict=True):
            _print(console, gateway, server, len(tools), fault, lines=30 if only else 5)
            unmet = written.unmet(config.clients, server.id, [items.read(raw).name for raw in tools]) if tools else ()
            for line in (*_to_be_looked_at(server, tools, pending.get(server.id, ())), *unmet):
                console.print(f"    [yellow]look:[/] {escape(line)}", soft_wrap=True)
    return 1 if unsound or not is_audited or not is_pinned or any(fault for _, fault in findings) else 0


def _look_at_audit(console: Console, config: Config) -> bool:
    """Whether it can be written, where it is to be."""
    if not audit.is_on(config):
        return True
    file = audit.place(config, os.environ)
    if why := audit.trouble(file):
        console.print(f"[red]✗[/] audit: {escape(why)}", soft_wrap=True)
        console.print("    mend: let this user write there, or say another place as `audit.path`", soft_wrap=True)
        return False
    console.print(f"[green]✓[/] audit: {escape(str(file))}", soft_wrap=True)
    return True


async def _look_at_pins(console: Console, config: Config) -> bool:
    """Whether it is known which tools were trusted, where others are in quarantine."""
    where = state_folder(config, os.environ)
    if not where.exists():
        return True
    async with stores.opened(where) as store:
        why = await pins.trouble(config, store)
    if why:
        console.print(f"[red]✗[/] quarantine: tools that are not pinned are held back: {escape(why)}", soft_wrap=True)
        console.print("    mend: mend the store, or approve of them: toolgate pins diff", soft_wrap=True)
    return not why


async def _examine(gateway: App, server: Server) -> tuple[Sequence[Raw], Fault | None]:
    """Its tools, or why it has none."""
    if not server.enabled:
        return (), None
    try:
        return (await gateway.gateway.snapshot.upstreams[server.id].list("tools", gateways.WHO)).raw, None
    except Fault as fault:
        return (), scrub.fault(fault, gateway.redactor)


async def _pending(config: Config) -> Mapping[str, Collection[str]]:
    """Tools that are not as they were pinned, by server, as gateways that ran have seen them."""
    where = state_folder(config, os.environ)
    if not (where / FILE).is_file():
        return {}
    async with stores.opened(where) as store:
        shelves = PinRecords(store, config.source)
        return {server.id: shelves.pending(server.id) for server in config.servers}


def _to_be_looked_at(server: Server, tools: Sequence[Raw], pending: Collection[str]) -> Iterator[str]:
    if pending:
        yield f"{len(pending)} of its tools are to be approved: toolgate pins diff {server.id}"
    found = [(items.read(raw).name, each) for raw in tools for each in suspicions.of(raw)]
    for name, each in found[:MOST_LOOKS]:
        yield f"{visible(name)[:100]}: {each}"
    if len(found) > MOST_LOOKS:
        yield f"and {len(found) - MOST_LOOKS} more"


def _print(console: Console, gateway: App, server: Server, tools: int, fault: Fault | None, lines: int) -> None:
    if not server.enabled:
        console.print(f"– {escape(visible(server.name))}: disabled")
        return
    status = scrub.status(gateway.gateway.snapshot.upstreams[server.id].status(), gateway.redactor)
    if not fault:
        console.print(f"[green]✓[/] {escape(visible(server.name))}: {what_it_has(tools, status.revision)}")
    else:
        console.print(
            f"[red]✗[/] {escape(visible(server.name))}: {escape(visible(status.error or fault.message))}",
            soft_wrap=True,
        )
        if cure := mend(server, fault, status):
            console.print(f"    mend: {escape(visible(cure))}", soft_wrap=True)
    if fault or lines > 5:
        for line in status.stderr.rstrip().splitlines()[-lines:]:
            console.print(f"    [dim]stderr:[/] {escape(visible(line))}", soft_wrap=True)


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
