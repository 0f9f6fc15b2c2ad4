"""`toolgate traffic`: calls of the running gateway as they end."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
import typer

from toolgate.catalog.poisoning import visible
from toolgate.cli import common, gateways, printing
from toolgate.config import Config
from toolgate.telemetry.traffic import Portion, Seen, Wanted

app = typer.Typer(add_completion=False)

HELP = """Show calls of the running gateway as they end, until Ctrl-C.

Results are not shown, and arguments only where `audit.arguments` is `full`. Secrets are taken out."""


@app.command(help=HELP)
def traffic(
    config: common.ConfigPath = None,
    client: Annotated[str, typer.Option(help="Only those of clients with this in their names.")] = "",
    server: Annotated[str, typer.Option(help="Only those of this server, by its id.")] = "",
    tool: Annotated[str, typer.Option(help="Only those of tools with this in their names.")] = "",
    kind: Annotated[str, typer.Option(help="Only those of tools, resources or prompts.")] = "",
    only: Annotated[str, typer.Option(help="Only those that have failed, or were denied.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print each as a line of JSON.")] = False,
) -> None:
    table = {"client": client, "server": server, "tool": tool, "kind": kind, "only": only}
    try:
        wanted = msgspec.convert(table, Wanted)
    except msgspec.ValidationError as error:
        printing.fail(f"There is no such filter: {error}", 2)
    common.run(_traffic(gateways.config_to_look(config), wanted, as_json))


async def _traffic(config: Config, wanted: Wanted, as_json: bool) -> None:
    gateway = gateways.find(config)
    if not gateway:
        printing.fail(f"No gateway of {config.source or 'this configuration'} is running. Start one: toolgate serve")
    try:
        async for event in gateway.events("/traffic", wanted):
            portion = msgspec.json.decode(event, type=Portion)
            for seen in portion.calls:
                printing.say(msgspec.json.encode(seen).decode() if as_json else line(seen))
            if portion.lost:
                printing.say(f"{portion.lost} more are not shown: they came too fast", err=True)
    except OSError as error:
        printing.fail(f"The running gateway does not answer: {error}")
    printing.fail("The gateway tells nothing more")


def line(seen: Seen) -> str:
    """One call for people."""
    at = time.strftime("%H:%M:%S", time.localtime(seen.time))
    what = seen.target if seen.method == "tools/call" else f"{seen.method} {seen.target}"
    ended = " ".join(filter(None, (seen.decision, seen.outcome, seen.code)))
    by = f" by {seen.via}" if seen.via else ""
    said = f"{at} {seen.who} {seen.server} {what}{by}: {ended}, {seen.ms:.1f} ms {seen.arguments}"
    return visible(said.rstrip())
