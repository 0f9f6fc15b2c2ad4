"""`toolgate search WORDS`: tools of the servers, and servers that could be added."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from toolgate.catalog.poisoning import visible
from toolgate.cli import common, gateways, progress
from toolgate.cli.gateways import Reached
from toolgate.core import names

app = typer.Typer(add_completion=False)

_BEFORE = {"tools": "Tools of your servers:", "servers": "Servers that could be added (toolgate provision):"}


@app.command(help="Find tools of your servers, and MCP servers that could be added. Exits with 1 if nothing fits.")
def search(
    words: common.Words,
    config: common.ConfigPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    found = common.run(_found(" ".join(words), config))
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo("\n".join(_lines(found)))
        for note in found["notes"]:
            typer.echo(visible(note), err=True)
    raise typer.Exit(0 if found["tools"] or found["servers"] else 1)


async def _found(words: str, path: str | None) -> dict[str, Any]:
    config = common.load_config(path)
    async with gateways.reached(config, lambda: common.load_whole(path, is_told=True)) as gateway:
        with progress.waiting("looking among the tools of your servers"):
            here: dict[str, Any] = await _provision(gateway, words, "local") if config.servers else {}
        with progress.waiting("looking for servers in registries"):
            elsewhere: dict[str, Any] = await _provision(gateway, words, "registry")
    servers = elsewhere.get("matches", [])
    return {"tools": here.get("tools", []), "servers": servers, "notes": elsewhere.get("notes", [])}


async def _provision(gateway: Reached, words: str, source: str) -> Any:
    return await gateways.told(gateway, "mcp_provision", intent=words, source=source)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    tools = [
        (names.join_name(names.slug(each["server"]), each["tool"]), each["confidence"], each["description"])
        for each in found["tools"]
    ]
    servers = [(each["name"], each["confidence"], each["installCommand"]) for each in found["servers"]]
    for what, rows in (("tools", tools), ("servers", servers)):
        if rows:
            yield _BEFORE[what]
            width = max(len(visible(name)) for name, _, _ in rows)
            yield from (f"  {visible(name):<{width}}  {sure:.2f}  {visible(said)}" for name, sure, said in rows)
    if not tools and not servers:
        yield "Nothing fits. Say what you need in other words."
