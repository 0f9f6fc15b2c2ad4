"""`toolgate call SERVER TOOL [JSON]`: one call, through the same gateway that clients use."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer
from msgspec import Raw

from toolgate.cli import common, gateways
from toolgate.config import Config
from toolgate.model import Call, Done, Fault, NeedInput
from toolgate.wire import jsonrpc, names

app = typer.Typer(add_completion=False)


@app.command(help="Call one tool and print what it says. Ends with 1 where the tool, or the call, failed.")
def call(
    server: Annotated[str, typer.Argument(help="The server's name.")],
    tool: Annotated[str, typer.Argument(help="The tool's name, as it is or as `toolgate list` shows it.")],
    arguments: Annotated[
        str, typer.Argument(metavar="[JSON]", help="Its arguments; - reads them from standard input.")
    ] = "{}",
    config: common.ConfigPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
) -> None:
    text = sys.stdin.buffer.read() if arguments == "-" else arguments.encode(errors="surrogateescape")
    raw = _read_arguments(text)
    raise typer.Exit(common.run(_call(common.require_servers(common.load_config(config)), server, tool, raw, as_json)))


_EXAMPLE = """'{"path": "/tmp"}'"""


def _read_arguments(text: bytes) -> Raw:
    try:
        if not isinstance(jsonrpc.value(text), dict):
            common.fail(f"The arguments must be a JSON object, such as {_EXAMPLE}", 2)
    except (UnicodeDecodeError, *jsonrpc.UNREADABLE) as error:
        common.fail(f"The arguments are no JSON ({error}). Write them like {_EXAMPLE}", 2)
    return Raw(text)


async def _call(config: Config, server: str, tool: str, arguments: Raw, as_json: bool) -> int:
    async with gateways.opened(config) as gateway:
        found = common.find_server(config, server)
        if not found.enabled:
            common.fail(f"{found.name} is disabled: set its `enabled` to true")
        name = tool if tool.startswith(found.id + names.SEPARATOR) else names.join_name(found.id, tool)
        route = gateway.gateway.snapshot.routes["/mcp"]
        try:
            outcome = await gateway.gateway.handle(Call("tools/call", name, gateways.WHO, arguments), route)
        except Fault as fault:
            common.fail(common.show(fault))
        if isinstance(outcome, NeedInput):
            outcome.resume.cancel()
            common.fail(f"{tool} asks its user for {outcome.asks[0].method}, which this command cannot answer")
        assert isinstance(outcome, Done)
        result = _read_result(outcome.body)
        typer.echo(_shown(result) if result and not as_json else bytes(outcome.body).decode())
        return 1 if result and result.isError else 0


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Result(msgspec.Struct):
    content: tuple[_Block, ...] = ()
    isError: bool = False


def _read_result(body: Raw | bytes) -> _Result | None:
    """None for what is out of shape."""
    try:
        return msgspec.json.decode(body, type=_Result)
    except jsonrpc.UNREADABLE:
        return None


def _shown(result: _Result) -> str:
    """The text of a result; other content by its kind."""
    return "\n".join(block.text if block.type == "text" else f"[{block.type}]" for block in result.content)
