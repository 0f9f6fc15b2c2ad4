"""`toolgate list`: what there is."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

import typer
from msgspec import Raw
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from toolgate.app import App
from toolgate.cli import common, gateways
from toolgate.config import Config
from toolgate.model import Fault
from toolgate.policy import scrub
from toolgate.suspicions import visible
from toolgate.wire import jsonrpc, names

app = typer.Typer(add_completion=False)

PIPED = 400  # columns where no person reads along: each tool has a line of its own


@app.command(help="List the servers and their tools.")
def listing(
    config: common.ConfigPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tools as JSON, as a client gets them.")] = False,
) -> None:
    raise typer.Exit(common.run(_list(common.require_servers(common.load_config(config)), as_json)))


async def _list(config: Config, as_json: bool) -> int:
    async with gateways.opened(config) as gateway:
        path = "/mcp" if as_json else "/mcp/aggregate"  # a surface may show other tools than those of the servers
        try:
            found = await gateway.gateway.list("tools", gateway.gateway.snapshot.routes[path], gateways.WHO)
        except Fault as fault:
            common.fail(common.show(fault))
        if as_json:
            typer.echo(jsonrpc.encode(found.members()).decode())
        else:
            await _print(gateway)
        return 1 if found.failures or found.pending else 0


async def _print(gateway: App) -> None:
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else PIPED)
    for server, upstream in gateway.gateway.snapshot.upstreams.items():
        status = scrub.status(upstream.status(), gateway.redactor)
        shelf = gateway.gateway.snapshot.catalog.known(server, "tools", gateways.WHO)
        if status.state == "starting":
            console.print(f"[bold]{escape(visible(upstream.name))}[/] has not answered yet; toolgate doctor says more")
            continue
        error = f"[red]{escape(visible(status.error))}[/]" if status.error else ""
        console.print(
            " ".join(filter(None, (f"[bold]{escape(visible(upstream.name))}[/]", status.state, status.revision, error)))
        )
        if shelf and shelf.items:
            console.print(_table(server, shelf.items.values()))


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
