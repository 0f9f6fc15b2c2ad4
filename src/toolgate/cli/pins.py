"""`toolgate pins`: which tools are not what they were when they were trusted, how they differ, and approving of them.

The rules this file keeps: what servers say is shown so that nothing of it is hidden from who decides, nor acts on the
terminal; and nothing is approved but what was shown. It asks no server: a gateway that runs keeps in the store what it
was listed.
"""

from __future__ import annotations

import difflib
import json
import os
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from toolgate import state as stores
from toolgate.catalog.pins import LONGEST_TEXT, Pending, Pin, StoredPins, Unreadable, mark
from toolgate.catalog.poisoning import visible
from toolgate.cli import common, printing
from toolgate.config import Config, Server, state_folder
from toolgate.core.clock import SystemClock
from toolgate.state import audit, changes

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Review and approve tools that have changed since they were trusted.",
)

LONGEST_LINE = 400  # characters; a longer one goes on in the next
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
        yield StoredPins(store, config.source)


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
            _show(server, shown, pins, MOST_LINES)
            if shown:
                one = f" {visible(tool)}" if tool else ""
                typer.echo(f"\nTo trust this: toolgate pins approve {server.id}{one} --seen {mark(pending)}\n")
            count += len(shown)
    if not count:
        typer.echo("Nothing is pending: all listed tools are as they were when trusted.")
    return 1 if count else 0


def _show(server: Server, pending: Mapping[str, Pending], pins: Mapping[str, Pin], most: int | None) -> None:
    for name, each in pending.items():
        typer.echo(f"{visible(server.name)}: {_headline(name, each)}")
        pin = pins.get(each.was or name)
        for line in _lines(pin.text if pin else "", each, most):
            typer.echo(f"  {line}")


def _seen_now(records: StoredPins, servers: Sequence[Server], tool: str | None) -> dict[str, str]:
    """Show what is pending, and ask: the marks of what was seen, by server. Ends the command where that is refused."""
    seen: dict[str, str] = {}
    count = 0
    for server in servers:
        pending = records.pending(server.id)
        seen[server.id] = mark(pending)
        shown = {name: each for name, each in pending.items() if tool in (None, name)}
        _show(server, shown, _known(records, server), None)
        count += len(shown)
    if count:
        typer.confirm(f"Trust {'this tool' if count == 1 else f'these {count} tools'} as shown?", abort=True, err=True)
    return seen


def _known(records: StoredPins, server: Server) -> Mapping[str, Pin]:
    try:
        return records.pins(server.id) or {}
    except Unreadable:
        return {}


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
        marks = {servers[0].id: seen} if seen else _seen_now(server_lists, servers, tool)
        for server in servers:
            pending = server_lists.pending(server.id)
            done = await server_lists.approve(
                server.id, (tool,) if tool is not None else (), marks[server.id], time.time()
            )
            if done is None:
                printing.fail(f"{server.name} has changed since you looked. See: toolgate pins diff {server.id}")
            approved += [visible(f"{server.name}: {name}") for name in done]
            for name in done:
                about = {"sha256": pending[name].digest, "reason": str(pending[name])} if name in pending else {}
                trail.note("pins.approve", audit.operator(), server=server.id, target=name, **about)
        if approved:
            await changes.tell(server_lists.store, "pins")
    if trail.problem:
        typer.echo(f"warning: {trail.problem}", err=True)
    for line in approved:
        typer.echo(f"approved {line}")
    if not approved:
        typer.echo("Nothing is pending.")
    return 0


def _headline(name: str, pending: Pending) -> str:
    return f"{visible(name)}: {pending}{' (in quarantine)' if pending.is_held else ''}"


def _lines(before: str, pending: Pending, most: int | None) -> Iterator[str]:
    """What was, and what is; and all that is suspicious, with its words. `most` lines of it, None: all."""
    if len(pending.text) in (0, LONGEST_TEXT):
        yield f"! longer than the {LONGEST_TEXT:,} characters stored for a tool: it is not shown in full"
    for poisoning_sign in pending.found:
        yield f"! {poisoning_sign}"
    if not pending.what:
        return
    lines = list(difflib.unified_diff(_pretty(before), _pretty(pending.text), "trusted", "now", lineterm="", n=1))
    whole = [part for line in lines[2:] for part in _parts(visible(line))]
    yield from whole[:most]
    if most is not None and len(whole) > most:
        yield f"... {len(whole) - most} more lines: `toolgate pins approve` shows them"


def _parts(line: str) -> Iterator[str]:
    """A long line in several, each with the sign of the first."""
    yield line[:LONGEST_LINE]
    for at in range(LONGEST_LINE, len(line), LONGEST_LINE):
        yield f"{line[0]}    ... {line[at : at + LONGEST_LINE]}"


def _pretty(text: str) -> list[str]:
    """A tool with a line for each line of its texts. What was cut is shown as it is."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text.splitlines()
    return [line for key, each in found.items() for line in _member(key, each)]


def _member(key: str, value: Any) -> list[str]:
    if isinstance(value, str):
        return [f"{key}: {line}" for line in value.split("\n")]
    if not isinstance(value, dict):
        return [f"{key}: {json.dumps(value, ensure_ascii=False)}"]
    return [f"{key}: {line}" for line in json.dumps(value, ensure_ascii=False, indent=1).split("\n")]
