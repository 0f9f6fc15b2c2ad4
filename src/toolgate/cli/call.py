"""`toolgate call SERVER TOOL [JSON]`: one call, through the same gateway that clients use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import msgspec
import typer
from msgspec import Raw

from toolgate.cli import common, gateways, printing
from toolgate.config import Config
from toolgate.core import jsonrpc, names

app = typer.Typer(add_completion=False)


@app.command(help="Call one tool and print its result. Exits with 1 if the tool or the call fails.")
def call(
    server: Annotated[str, typer.Argument(help="The server, or the tool's name as clients see it: SERVER__TOOL.")],
    tool: Annotated[str | None, typer.Argument(help="The tool's own name, or its name in `toolgate list`.")] = None,
    arguments: Annotated[
        str | None, typer.Argument(metavar="[JSON]", help="The tool's arguments as JSON; - reads standard input.")
    ] = None,
    config: common.ConfigPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
) -> None:
    settings = common.require_servers(common.load_config(config))
    name, given = _target(settings, server, tool, arguments)
    text = sys.stdin.buffer.read() if given == "-" else given.encode(errors="surrogateescape")
    raw = read_arguments(text)
    raise typer.Exit(common.run(_call(settings, lambda: common.load_whole(config, is_told=True), name, raw, as_json)))


def _target(config: Config, first: str, second: str | None, third: str | None) -> tuple[str, str]:
    """The tool as clients name it, and its arguments, of what was written: SERVER TOOL [JSON], or SERVER__TOOL [JSON].
    A server that is not known, or disabled, is the end of the command."""
    ids = {spelling: server.id for server in config.servers for spelling in names.spellings(server.name)}
    split = names.split_name(first, ids)
    if split and third is None and (second is None or second == "-" or second.lstrip().startswith("{")):
        found, tool, given = common.find_server(config, split[0]), split[1], second
    elif second is None:
        known = common.find_server(config, first)
        printing.fail(f"Give a tool of {known.name}: toolgate call {known.id} TOOL. Its tools: toolgate list", 2)
    else:
        found, given = common.find_server(config, first), third
        own = names.split_name(second, names.spellings(found.name))
        tool = own[1] if own else second
    if not found.enabled:
        printing.fail(f"{found.name} is disabled: set its `enabled` to true")
    return names.join_name(found.id, tool), "{}" if given is None else given


_EXAMPLE = """'{"path": "/tmp"}'"""


def read_arguments(text: bytes) -> Raw:
    try:
        if not isinstance(jsonrpc.value(text), dict):
            printing.fail(f"The arguments must be a JSON object, such as {_EXAMPLE}", 2)
    except (UnicodeDecodeError, *jsonrpc.UNREADABLE) as error:
        printing.fail(f"The arguments are not valid JSON ({error}). Example: {_EXAMPLE}", 2)
    return Raw(text)


async def _call(config: Config, whole: Callable[[], Config], tool: str, arguments: Raw, as_json: bool) -> int:
    async with gateways.reached(config, whole) as gateway:
        answer = await gateways.called(gateway, tool, arguments)
    if answer.asks:
        printing.fail(
            f"{tool} asks its user for {answer.asks[0]}, which this command cannot answer: use an MCP client that can"
        )
    is_error, text = said(answer.result)
    if as_json:
        printing.say_json(bytes(answer.result).decode())
    else:
        printing.say(text)
    return 1 if is_error else 0


def said(body: Raw | bytes) -> tuple[bool, str]:
    """Whether a result is an error, and its text."""
    result = _read_result(body)
    return (result.isError, _shown(result)) if result else (False, bytes(body).decode())


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
