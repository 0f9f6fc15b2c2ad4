"""`toolgate top`: what the running gateway does now, by server, and by tool where calls are counted."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
import typer

from toolgate.catalog.poisoning import visible
from toolgate.cli import common, gateways, printing, screen
from toolgate.cli.gateways import Running
from toolgate.config import Config

MOST = 20  # tools that are shown

app = typer.Typer(add_completion=False)

HELP = """Show what the running gateway does, again and again until Ctrl-C.

Servers with the most calls in progress come first. Tools are shown with `telemetry.usage = true`."""


@app.command(help=HELP)
def top(
    config: common.ConfigPath = None,
    seconds: Annotated[float, typer.Option("--interval", "-d", min=0.2, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once.")] = False,
) -> None:
    common.run(_top(gateways.config_to_look(config), seconds, once))


async def _top(config: Config, seconds: float, once: bool) -> None:
    gateway = gateways.find(config)
    if not gateway:
        printing.fail(f"No gateway of {config.source or 'this configuration'} is running. Start one: toolgate serve")
    before = Counts()

    async def show() -> str:
        nonlocal before
        try:
            about = await gateways.value(gateway, "GET", "/status")
            now = await _counted(gateway)
        except OSError as error:
            printing.fail(f"The running gateway does not answer: {error}")
        shown, before = "\n".join([*_of_servers(about), *_of_tools(before, now)]), now
        return shown

    if once:
        typer.echo(await show())
    else:
        await screen.repeat(show, seconds)


def _of_servers(about: Any) -> Iterator[str]:
    yield f"toolgate {about['version']}: {gateways.described(about)}, up {printing.duration(about['uptime'])}\n"
    servers = sorted(about["servers"], key=lambda each: (-each.get("calls", 0), each["name"]))
    rows = [(visible(each["name"]), each["state"], str(each.get("calls", 0))) for each in servers]
    yield from printing.aligned((("server", "state", "calls now"), *rows))


# Calls that have ended, as /metrics counts them.


class Counts(msgspec.Struct, frozen=True):
    """By server and tool, at a time: calls, those that failed or were refused, and seconds that they have taken."""

    at: float = 0.0
    calls: Mapping[tuple[str, str], float] = {}
    failed: Mapping[tuple[str, str], float] = {}
    seconds: Mapping[tuple[str, str], float] = {}


async def _counted(gateway: Running) -> Counts:
    status, text = await gateway.fetch("GET", "/metrics")
    if status != 200:
        return Counts(time.monotonic())
    return counts(text.decode(), time.monotonic())


_sample = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} ([0-9.e+-]+)')
_label = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def counts(text: str, at: float) -> Counts:
    calls: dict[tuple[str, str], float] = {}
    failed: dict[tuple[str, str], float] = {}
    seconds: dict[tuple[str, str], float] = {}
    by = {
        "toolgate_calls_total": calls,
        "toolgate_call_errors_total": failed,
        "toolgate_call_refusals_total": failed,
        "mcp_server_operation_duration_seconds_sum": seconds,
    }
    for name, written, value in _sample.findall(text):
        if name in by:
            labels = dict(_label.findall(written))
            if labels.get("method", labels.get("mcp_method_name")) == "tools/call":
                tool = labels["server"], labels.get("tool", labels.get("gen_ai_tool_name", ""))
                by[name][tool] = by[name].get(tool, 0.0) + float(value)
    return Counts(at, calls, failed, seconds)


def _of_tools(before: Counts, now: Counts) -> Iterator[str]:
    if not now.calls:
        return
    passed = now.at - before.at if before.at else 0.0

    def lately(tool: tuple[str, str]) -> float:
        return max(0.0, now.calls[tool] - before.calls.get(tool, 0.0)) / passed if passed else 0.0

    busiest = sorted(now.calls, key=lambda tool: (-lately(tool), -now.calls[tool], tool))[:MOST]
    head = ("tool", "calls/s", "calls", "failed", "mean ms")
    rows = [
        (
            visible(f"{tool[0]} {tool[1]}".strip()),
            f"{lately(tool):.1f}" if passed else "-",
            f"{now.calls[tool]:.0f}",
            f"{now.failed.get(tool, 0.0):.0f}",
            f"{1000 * now.seconds.get(tool, 0.0) / now.calls[tool]:.1f}" if now.calls[tool] else "-",
        )
        for tool in busiest
    ]
    yield ""
    yield from printing.aligned((head, *rows))
