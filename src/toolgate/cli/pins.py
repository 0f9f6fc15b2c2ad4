"""`toolgate pins`: which tools are not what they were when they were trusted, how they differ, and approving of them.

The rules this file keeps: what servers say is shown so that nothing of it is hidden from who decides, nor acts on the
terminal; and nothing is approved but what was shown. It asks no server: a gateway that runs keeps in the store what it
was listed.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from toolgate import state as stores
from toolgate.catalog import pin_review
from toolgate.catalog.pins import Pending, Pin, StoredPins, Unreadable, mark
from toolgate.catalog.poisoning import visible
from toolgate.cli import common, printing
from toolgate.config import Config, Server, state_folder
from toolgate.core.clock import SystemClock
from toolgate.state import audit

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Review and approve tools that have changed since they were trusted.",
)

MOST_LINES = 200  # of one tool, in `diff`; `approve` shows all of it

ServerName = Annotated[str | None, typer.Argument(metavar="[SERVER]", help="Only this server.")]
ToolName = Annotated[str | None, typer.Argument(metavar="[TOOL]", help="Only this tool, by the server's own name.")]


@app.command("list", help="List each server's pinned and pending tools.")
def listing(server: ServerName = None, config: common.ConfigPath = None) -> None:
    found = common.require_servers(common.load_config(config))
    common.run(_list(found, _named(found, server)))


@app.command(help="Show how pending tools differ from what was trusted. Exits with 1 if any are pending.")
def diff(server: ServerName = None, tool: ToolName = None, config: common.ConfigPath = None) -> None:
    found = common.require_servers(common.load_config(config))
    raise typer.Exit(common.run(_diff(found, _named(found, server), tool)))


@app.command(
    help="Show the tools as they are now, ask, and trust them. A running gateway shows them to clients at once."
)
def approve(
    server: ServerName = None,
    tool: ToolName = None,
    seen: Annotated[
        str,
        typer.Option(help="Approve without asking what `diff` showed, if it is unchanged. `diff` prints the value."),
    ] = "",
    config: common.ConfigPath = None,
) -> None:
    found = common.require_servers(common.load_config(config))
    if seen and server is None:
        printing.fail("--seen needs a server", 2)
    raise typer.Exit(common.run(_approve(found, _named(found, server), tool, seen)))


def _named(config: Config, server: str | None) -> tuple[Server, ...]:
    return config.servers if server is None else (common.find_server(config, server),)


@asynccontextmanager
async def _opened(config: Config) -> AsyncGenerator[StoredPins]:
    async with stores.opened(state_folder(config, os.environ)) as store:
        try:
            yield StoredPins(store, config.source)
        except Unreadable as why:
            printing.fail(f"What is pinned cannot be read: {why}. Look at it with `toolgate state check`")


async def _list(config: Config, servers: tuple[Server, ...]) -> None:
    async with _opened(config) as server_lists:
        for server in servers:
            pins, pending = server_lists.pins(server.id), server_lists.pending(server.id)
            mode = server.pinning or config.guard.pinning
            known = "not seen yet" if pins is None else f"{len(pins)} pinned"
            typer.echo(f"{visible(server.name)}: {known}, pinning {mode}")
            for name, each in pending.items():
                typer.echo(f"  {_headline(name, each)}")


async def _diff(config: Config, servers: tuple[Server, ...], tool: str | None) -> int:
    count = 0
    async with _opened(config) as server_lists:
        for server in servers:
            pending, pins = server_lists.pending(server.id), server_lists.pins(server.id) or {}
            shown = {name: each for name, each in pending.items() if tool in (None, name)}
            is_whole = _show(server, shown, pins, MOST_LINES)
            if shown:
                one = f" {visible(tool)}" if tool else ""
                seen = f" --seen {mark(pending)}" if is_whole else ""
                typer.echo(f"\nTo trust this: toolgate pins approve {server.id}{one}{seen}\n")
            count += len(shown)
    if not count:
        typer.echo("Nothing is pending: all listed tools are as they were when trusted.")
    return 1 if count else 0


def _show(server: Server, pending: Mapping[str, Pending], pins: Mapping[str, Pin], most: int | None) -> bool:
    """Whether all of it was shown."""
    is_whole = True
    for name, each in pending.items():
        typer.echo(f"{visible(server.name)}: {_headline(name, each)}")
        found = pin_review.shown(pins, name, each, most)
        for line in found.lines:
            typer.echo(f"  {line}")
        if found.more:
            typer.echo(f"  ... {found.more} more lines: `toolgate pins approve` shows them")
        is_whole = is_whole and found.is_whole
    return is_whole


def _seen_now(records: StoredPins, servers: Sequence[Server], tool: str | None) -> dict[str, str]:
    """Show what is pending, and ask: the marks of what was seen, by server. Ends the command where that is refused."""
    seen: dict[str, str] = {}
    count, is_whole = 0, True
    for server in servers:
        pending = records.pending(server.id)
        seen[server.id] = mark(pending)
        shown = {name: each for name, each in pending.items() if tool in (None, name)}
        is_whole = _show(server, shown, pin_review.known(records, server.id), None) and is_whole
        count += len(shown)
    if count:
        how = "as shown" if is_whole else "although not all that is said is shown"
        typer.confirm(f"Trust {'this tool' if count == 1 else f'these {count} tools'} {how}?", abort=True, err=True)
    return seen


async def _approve(config: Config, servers: tuple[Server, ...], tool: str | None, seen: str) -> int:
    approved: list[str] = []
    async with (
        _opened(config) as server_lists,
        audit.opened(config, os.environ, SystemClock(), server_lists.store) as trail,
    ):
        for server in servers:
            if tool is not None and tool not in server_lists.pending(server.id):
                what = visible(f"{server.name}: {tool}")
                printing.fail(f"{what} is not pending. See: toolgate pins diff {server.id}")
        pending = server_lists.pending(servers[0].id) if seen else {}
        if cut := next((name for name, each in pending.items() if each.is_cut and tool in (None, name)), ""):
            printing.fail(f"{visible(cut)} cannot be shown in full: approve it without --seen")
        marks = {servers[0].id: seen} if seen else _seen_now(server_lists, servers, tool)
        for server in servers:
            tools = (tool,) if tool is not None else ()
            about = (marks[server.id], time.time(), audit.operator())
            done = await pin_review.approve(server_lists, trail, server.id, tools, *about)
            if done is None:
                printing.fail(f"{server.name} has changed since you looked. See: toolgate pins diff {server.id}")
            approved += [visible(f"{server.name}: {name}") for name in done]
    if trail.problem:
        typer.echo(f"warning: {trail.problem}", err=True)
    for line in approved:
        typer.echo(f"approved {line}")
    if not approved:
        typer.echo("Nothing is pending.")
    return 0


def _headline(name: str, pending: Pending) -> str:
    return f"{visible(name)}: {pending}{' (in quarantine)' if pending.is_held else ''}"
