"""`toolgate list`: what there is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Annotated

import msgspec
import typer
from msgspec import Raw
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from toolgate.catalog.poisoning import visible
from toolgate.cli import common, gateways, printing
from toolgate.config import Config
from toolgate.core import jsonrpc, names

app = typer.Typer(add_completion=False)

PIPED = 400  # columns where no person reads along: each tool has a line of its own


@app.command(help="List the servers and their tools.")
def listing(
    config: common.ConfigPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tools as JSON, as a client gets them.")] = False,
) -> None:
    found = common.require_servers(common.load_config(config))
    raise typer.Exit(common.run(_list(found, lambda: common.load_whole(config, is_told=True), as_json)))


async def _list(config: Config, whole: Callable[[], Config], as_json: bool) -> int:
    async with gateways.reached(config, whole) as gateway:
        path = "/mcp" if as_json else "/mcp/aggregate"  # a surface may show other tools than those of the servers
        status, said = await gateway.ask("POST", "/list", {"path": path, "anew": not gateway.is_running})
        if status >= 400:
            printing.fail(gateways.explained(said))
        found = msgspec.json.decode(said, type=_Found)
        if as_json:
            printing.say(bytes(found.listing).decode())
        else:
            _print(found)
        return 0 if found.is_whole else 1


class _Server(msgspec.Struct):
    id: str
    name: str
    state: str = ""
    revision: str = ""
    error: str = ""
    box: str = ""
    listed: tuple[Raw, ...] = ()


class _Found(msgspec.Struct):
    listing: Raw
    servers: tuple[_Server, ...]
    is_whole: bool


def _print(found: _Found) -> None:
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else PIPED)
    for server in found.servers:
        if server.state == "starting":
            console.print(f"[bold]{escape(visible(server.name))}[/] has not answered yet; see toolgate doctor")
            continue
        error = f"[red]{escape(visible(server.error))}[/]" if server.error else ""
        console.print(
            " ".join(filter(None, (f"[bold]{escape(visible(server.name))}[/]", server.state, server.revision, error)))
        )
        if server.box:
            console.print(f"  [dim]in a box, {escape(visible(server.box))}[/]")
        if server.listed:
            console.print(_table(server.id, server.listed))


def _table(server: str, tools: Iterable[Raw]) -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=False)
    for raw in tools:
        tool = jsonrpc.value(raw)
        name = names.join_name(server, tool["name"])
        table.add_row(f"  {escape(visible(name))}", escape(visible(_brief(tool.get("description", "")))))
    return table


def _brief(text: str) -> str:
    """The first sentence, at most 100 characters."""
    sentence = text.strip().split("\n")[0].split(". ")[0]
    return sentence if len(sentence) <= 100 else sentence[:99] + "…"
