"""`toolgate test`: one server started, its tools listed, one of them called; what came of each, in a line.

Where a gateway runs with this configuration, its server is used, and nothing is started a second time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Raw

from toolgate.catalog.poisoning import visible
from toolgate.cli import call, checked, common, gateways, measuring, printing
from toolgate.cli.gateways import Reached
from toolgate.config import Config, Server
from toolgate.core import items, names

app = typer.Typer(add_completion=False)

MOST_NAMED = 40  # tools


class Step(msgspec.Struct):
    """What was done, whether it worked, and what is to be said of it."""

    step: str
    ok: bool
    says: str
    fix: str = ""


@app.command(
    help="Start one server, list its tools, and call one of them if you name it. Exits with 1 where something fails."
)
def test(
    name: Annotated[str, typer.Argument(help="The server.")],
    tool: Annotated[str | None, typer.Argument(help="A tool to call.")] = None,
    arguments: Annotated[str, typer.Argument(metavar="[JSON]", help="Its arguments as JSON.")] = "{}",
    config: common.ConfigPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the steps as JSON.")] = False,
) -> None:
    found = common.require_servers(common.load_config(config))
    server = common.find_server(found, name)
    given = call.read_arguments(arguments.encode(errors="surrogateescape"))

    def alone() -> Config:
        """The server by itself, so that no other one is started."""
        whole = common.load_whole(config, is_told=True)
        return msgspec.structs.replace(whole, servers=(common.find_server(whole, name),))

    steps = common.run(_steps(found, alone, server, tool, given))
    if as_json:
        typer.echo(json.dumps([msgspec.to_builtins(step) for step in steps], indent=2))
    else:
        for step in steps:
            printing.say(f"{'✓' if step.ok else '✗'} {step.step}: {visible(step.says)}")
            if step.fix:
                printing.say(f"    fix: {visible(step.fix)}")
    raise typer.Exit(0 if all(step.ok for step in steps) else 1)


async def _steps(
    config: Config, alone: Callable[[], Config], server: Server, tool: str | None, given: Raw
) -> list[Step]:
    if not server.enabled:
        return [Step("start", False, f"{server.name} is disabled", "set its `enabled` to true")]
    async with gateways.reached(config, alone) as gateway:
        status, said = await gateway.ask("POST", f"/servers/{server.id}/check")
        if status >= 400:
            return [Step("start", False, gateways.explained(said))]
        found = msgspec.json.decode(said, type=checked.Checked)
        if found.fault:
            return [Step("start", False, found.error or found.fault.error, checked.fix_in_a_line(server, found))]
        size, known = measuring.of(found.tools), [items.read(raw).name for raw in found.tools]
        listed = ", ".join(known[:MOST_NAMED]) + (f" and {len(known) - MOST_NAMED} more" * (len(known) > MOST_NAMED))
        steps = [
            Step("start", True, f"{server.type}, revision {found.revision}" if found.revision else server.type),
            Step("list", True, f"{size.tools} tools, {size.tokens:,} tokens: {listed}"),
        ]
        return [*steps, await _called(gateway, server, tool, given)] if tool else steps


async def _called(gateway: Reached, server: Server, tool: str, given: Raw) -> Step:
    body = {"tool": names.join_name(server.id, tool), "arguments": given}
    status, said = await gateway.ask("POST", "/call", body)
    if status >= 400:
        return Step(f"call {visible(tool)}", False, gateways.explained(said))
    answer: Any = msgspec.json.decode(said, type=gateways.Called)
    if answer.asks:
        return Step(f"call {visible(tool)}", False, f"it asks its user for {answer.asks[0]}, which needs an MCP client")
    is_error, text = call.said(answer.result)
    return Step(f"call {visible(tool)}", not is_error, text)
