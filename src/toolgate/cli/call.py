"""`toolgate call SERVER TOOL [JSON]`: one call, through the same gateway that clients use."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from msgspec import Raw

from toolgate.app import App, running
from toolgate.cli import common
from toolgate.config import Config
from toolgate.model import Call, Client, Done, Fault, NeedInput
from toolgate.snapshot import Route
from toolgate.wire import jsonrpc, names

app = typer.Typer()


@app.command(help="Call one tool and print what it says. Ends with 1 where the tool, or the call, failed.")
def call(
    server: Annotated[str, typer.Argument(help="The server's name.")],
    tool: Annotated[str, typer.Argument(help="The tool's own name.")],
    arguments: Annotated[
        str, typer.Argument(metavar="[JSON]", help="Its arguments; - reads them from standard input.")
    ] = "{}",
    config: common.ConfigPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
) -> None:
    raw = _read_arguments(sys.stdin.read() if arguments == "-" else arguments)
    raise typer.Exit(common.run(_call(common.require_servers(common.load_config(config)), server, tool, raw, as_json)))


def _read_arguments(text: str) -> Raw:
    try:
        if not isinstance(jsonrpc.value(text.encode()), dict):
            common.fail('The arguments must be a JSON object, such as \'{"path": "/tmp"}\'', 2)
    except jsonrpc.UNREADABLE as error:
        common.fail(f"The arguments are no JSON: {error}", 2)
    return Raw(text.encode())


async def _call(config: Config, server: str, tool: str, arguments: Raw, as_json: bool) -> int:
    async with running(config) as gateway:
        route = _route(gateway, config, server)
        try:
            outcome = await gateway.gateway.handle(Call("tools/call", tool, Client(), arguments), route)
        except Fault as fault:
            common.fail(common.show(fault))
        if isinstance(outcome, NeedInput):
            outcome.resume.cancel()
            common.fail(f"{tool} asks its user for {outcome.asks[0].method}, which this command cannot answer")
        assert isinstance(outcome, Done)
        result = jsonrpc.value(outcome.body)
        typer.echo(bytes(outcome.body).decode() if as_json else _shown(result))
        return 1 if result.get("isError") else 0


def _route(gateway: App, config: Config, server: str) -> Route:
    for found in config.servers:
        if server in names.spellings(found.name):
            return gateway.gateway.snapshot.routes[f"/mcp/servers/{found.id}"]
    common.fail(f"Server not found: {server}. There are {', '.join(found.name for found in config.servers)}")


def _shown(result: dict[str, Any]) -> str:
    """The text of a result; other content by its kind."""
    blocks: list[dict[str, Any]] = result.get("content") or []
    return "\n".join(block["text"] if block.get("type") == "text" else f"[{block.get('type')}]" for block in blocks)
