"""`toolgate pins`: which tools are not what they were when they were trusted, how they differ, and approving of them.

The rule this file keeps: what servers say is shown so that nothing of it is hidden from who decides, nor acts on the
terminal. It asks no server: a gateway that runs keeps in the store what it was listed.
"""

from __future__ import annotations

import difflib
import json
import os
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from toolgate import audit, news
from toolgate import store as stores
from toolgate.cli import common
from toolgate.config import Config, Server, state_folder
from toolgate.pins import Pending, PinRecords, mark
from toolgate.ports import SystemClock
from toolgate.suspicions import visible

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Tools that are not what they were when they were trusted: look, and approve.",
)

LONGEST_LINE = 400  # characters
MOST_LINES = 200  # of one tool

ServerName = Annotated[str | None, typer.Argument(metavar="[SERVER]", help="Only this server.")]
ToolName = Annotated[str | None, typer.Argument(metavar="[TOOL]", help="Only this tool, by the server's own name.")]


@app.command("list", help="Each server with what is pinned of it, and what is pending.")
def listing(server: ServerName = None, config: common.ConfigPath = None) -> None:
    found = common.require_servers(common.load_config(config))
    common.run(_list(found, _named(found, server)))


@app.command(help="How the tools that are pending differ from what was trusted. Ends with 1 where some are.")
def diff(server: ServerName = None, tool: ToolName = None, config: common.ConfigPath = None) -> None:
    found = common.require_servers(common.load_config(config))
    raise typer.Exit(common.run(_diff(found, _named(found, server), tool)))


@app.command(help="Trust tools as they are now. A gateway that runs shows them at once.")
def approve(
    server: ServerName = None,
    tool: ToolName = None,
    seen: Annotated[
        str, typer.Option(help="Only if what is pending is still what `diff` has shown: it prints this.")
    ] = "",
    config: common.ConfigPath = None,
) -> None:
    found = common.require_servers(common.load_config(config))
    if seen and server is None:
        common.fail("--seen is of one server: name it", 2)
    raise typer.Exit(common.run(_approve(found, _named(found, server), tool, seen)))


def _named(config: Config, server: str | None) -> tuple[Server, ...]:
    return config.servers if server is None else (common.find_server(config, server),)


@asynccontextmanager
async def _opened(config: Config) -> AsyncGenerator[PinRecords]:
    async with stores.opened(state_folder(config, os.environ)) as store:
        yield PinRecords(store, config.source)


async def _list(config: Config, servers: tuple[Server, ...]) -> None:
    async with _opened(config) as shelves:
        for server in servers:
            pins, pending = shelves.pins(server.id), shelves.pending(server.id)
            mode = server.pinning or config.guard.pinning
            known = "not seen yet" if pins is None else f"{len(pins)} pinned"
            typer.echo(f"{visible(server.name)}: {known}, pinning {mode}")
            for name, each in pending.items():
                typer.echo(f"  {_headline(name, each)}")


async def _diff(config: Config, servers: tuple[Server, ...], tool: str | None) -> int:
    count = 0
    async with _opened(config) as shelves:
        for server in servers:
            pending, pins = shelves.pending(server.id), shelves.pins(server.id) or {}
            shown = {name: each for name, each in pending.items() if tool in (None, name)}
            for name, each in shown.items():
                typer.echo(f"{visible(server.name)}: {_headline(name, each)}")
                pin = pins.get(each.was or name)
                for line in _lines(pin.text if pin else "", each):
                    typer.echo(f"  {line}")
            if shown:
                one = f" {visible(tool)}" if tool else ""
                typer.echo(f"\nTo trust this: toolgate pins approve {server.id}{one} --seen {mark(pending)}\n")
            count += len(shown)
    if not count:
        typer.echo("Nothing is pending: all tools that were listed are as they were trusted.")
    return 1 if count else 0


async def _approve(config: Config, servers: tuple[Server, ...], tool: str | None, seen: str) -> int:
    approved: list[str] = []
    async with (
        _opened(config) as shelves,
        audit.opened(config, os.environ, SystemClock(), shelves.store) as trail,
    ):
        for server in servers:
            pending = shelves.pending(server.id)
            if tool is not None and tool not in pending:
                what = visible(f"{server.name}: {tool}")
                common.fail(f"{what} is not pending. See: toolgate pins diff {server.id}")
            done = await shelves.approve(server.id, (tool,) if tool is not None else (), seen, time.time())
            if done is None:
                common.fail(f"{server.name} has changed since you looked. See: toolgate pins diff {server.id}")
            approved += [visible(f"{server.name}: {name}") for name in done]
            for name in done:
                about = {"sha256": pending[name].digest, "reason": str(pending[name])} if name in pending else {}
                trail.note("pins.approve", audit.operator(), server=server.id, target=name, **about)
        if approved:
            await news.tell(shelves.store, "pins")
    if trail.problem:
        typer.echo(f"warning: {trail.problem}", err=True)
    for line in approved:
        typer.echo(f"approved {line}")
    if not approved:
        typer.echo("Nothing was pending.")
    return 0


def _headline(name: str, pending: Pending) -> str:
    return f"{visible(name)}: {pending}{' (in quarantine)' if pending.is_held else ''}"


def _lines(before: str, pending: Pending) -> Iterator[str]:
    """What was, and what is; and all that is suspicious, with its words."""
    for suspicion in pending.found:
        yield f"! {suspicion}"
    if not pending.what:
        return
    lines = list(difflib.unified_diff(_pretty(before), _pretty(pending.text), "trusted", "now", lineterm="", n=1))
    for line in lines[2 : MOST_LINES + 2]:
        yield visible(line)[:LONGEST_LINE]
    if len(lines) > MOST_LINES + 2:
        yield f"... {len(lines) - MOST_LINES - 2} more lines"


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
