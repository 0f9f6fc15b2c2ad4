"""`toolgate logs`: what servers have written to their stderr."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from toolgate.cli import common, gateways, printing
from toolgate.cli.gateways import Reached
from toolgate.config import Config

LOOK = 0.5  # seconds between looks

app = typer.Typer(add_completion=False)

HELP = """Show what servers of the running gateway have written to their stderr.

The gateway keeps the last 64 KiB of each. Its own log is on its own stderr, or where the service manager keeps it."""


@app.command(help=HELP)
def logs(
    servers: Annotated[list[str] | None, typer.Argument(help="The servers. Default: all.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what they write, until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many lines of each are shown first.")] = 20,
    config: common.ConfigPath = None,
) -> None:
    common.run(_logs(gateways.config_to_look(config), tuple(servers or ()), follow, lines))


async def _logs(config: Config, names: tuple[str, ...], follow: bool, lines: int) -> None:
    async with gateways.reached(config) as gateway:
        if not names:
            names = tuple(server["name"] for server in (await gateways.value(gateway, "GET", "/status"))["servers"])
        reading = [Reading(name) for name in names]
        width = max(map(len, names), default=0) if len(names) > 1 else 0
        for each in reading:
            _print(each.name, each.more(await _asked(gateway, each.name))[-lines:] if lines else [], width)
        if lines and not follow and not any(each.last for each in reading):
            typer.echo("No server has written to its stderr since it was started.", err=True)
        while follow:
            await asyncio.sleep(LOOK)
            for each in reading:
                _print(each.name, each.more(await _asked(gateway, each.name)), width)


async def _asked(gateway: Reached, name: str) -> Any:
    return await gateways.value(gateway, "GET", f"/servers/{quote(name, safe='')}")


def _print(name: str, lines: list[str], width: int) -> None:
    for line in lines:
        printing.say(f"{name:<{width}} | {line}" if width else line)


class Reading(msgspec.Struct):
    """What was read of one server's stderr: `last` is what was kept of it when it was looked at last, and `program`
    which program that was."""

    name: str
    last: str = ""
    program: object = None

    def more(self, shown: Any) -> list[str]:
        """The lines that have come since. One that has no end yet is left for the next time."""
        kept, program = shown.get("stderr", ""), shown.get("started")
        kept = kept[: kept.rfind("\n") + 1]
        before = self.last if program == self.program else ""
        self.last, self.program = kept, program
        return kept[_overlap(before, kept) :].splitlines()


def _overlap(before: str, now: str) -> int:
    """How much of the beginning of `now` is the end of `before`."""
    begin = now.partition("\n")[0] + "\n"
    at = before.find(begin)
    while at >= 0:
        if now.startswith(before[at:]):
            return len(before) - at
        at = before.find(begin, at + 1)
    return 0
