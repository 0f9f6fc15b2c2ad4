"""`toolgate status`: the gateway that runs with this configuration, and how its servers are."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from toolgate.auth.credential_states import SOON
from toolgate.catalog.poisoning import visible
from toolgate.cli import common, gateways, printing, screen
from toolgate.cli.printing import aligned, duration
from toolgate.config import Config

AGAIN = 2.0  # seconds until it is shown again

app = typer.Typer(add_completion=False)


@app.command(help="Show the running gateway and its servers. Exits with 1 if none is running.")
def status(
    config: common.ConfigPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it every two seconds, until Ctrl-C.")] = False,
) -> None:
    loaded = gateways.config_to_look(config)

    async def show() -> str:
        return await _status(loaded, as_json)

    common.run(screen.repeat(show, AGAIN) if watch else _once(show))


async def _once(show: Callable[[], Awaitable[str]]) -> None:
    typer.echo(await show())


async def _status(config: Config, as_json: bool) -> str:
    gateway = gateways.find(config)
    if not gateway:
        printing.fail(f"No gateway of {config.source or 'this configuration'} is running. Start one: toolgate serve")
    try:
        about = await gateways.value(gateway, "GET", "/status")
    except OSError as error:
        printing.fail(f"The running gateway does not answer: {error}")
    return json.dumps(about, indent=2) if as_json else "\n".join(_lines(about))


def _lines(about: Any) -> list[str]:
    up = f"up {duration(about['uptime'])}"
    lines = [f"toolgate {about['version']}: {gateways.described(about)}, {up}"]
    if source := about.get("configuration"):
        lines.append(f"configuration: {source}")
    if problem := about.get("problem"):
        lines.append(f"problem: {visible(problem)}")
    lines += [f"code in {language}: {visible(says)}" for language, says in about.get("code", {}).items()]
    lines += _of_tokens(about.get("tokens", {}))
    lines += of_credentials(about.get("credentials", ()), about["started"] + about["uptime"])
    rows = [_row(server, about["started"] + about["uptime"]) for server in about["servers"]]
    return [*lines, *aligned((("server", "state", "pid", "up", "tools", "calls"), *rows)), *_below(about["servers"])]


def of_credentials(states: Any, now: float) -> list[str]:
    """Those that fail, have ended, or end soon and are not renewed by themselves."""
    lines: list[str] = []
    for state in states:
        whose = " of ".join(visible(state[key]) for key in ("credential", "principal") if state.get(key))
        named = f"credential {whose}" + (f" for {visible(state['server'])}" if state.get("server") else "")
        left = state["expires"] - now if state.get("expires") is not None and not state.get("renews") else None
        if since := state.get("failing_since"):
            lines.append(f"{named}: failing for {duration(now - since)}: {visible(state['problem'])}")
        elif left is not None and left < SOON:
            lines.append(f"{named}: " + (f"expires in {duration(left)}" if left > 0 else "has expired"))
    return lines


def _of_tokens(told: Any) -> list[str]:
    if not told.get("clients"):
        return []
    loaded, would, saved = told["loaded"], told["would_have_loaded"], told["saved_percent"]
    said = f"tokens of tools: {loaded:,} loaded by {told['clients']} clients, {would:,} if each loaded all"
    return [f"{said} ({saved} % saved; {told['tokenizer']})"]


def _row(server: Any, now: float) -> tuple[str, ...]:
    state = server["state"]
    up = duration(now - server["started"]) if state in ("ready", "busy", "starting") and "started" in server else "-"
    stopped = f" ({server['stopped_by']})" if server.get("stopped_by") and state == "stopped" else ""
    shown = (server.get("pid", "-"), up, server.get("tools", "-"), server.get("calls", 0))
    return visible(server["name"]), state + stopped, *(str(each) for each in shown)


def _below(servers: Any) -> list[str]:
    """What takes a line: boxes, then errors."""
    boxes = [f"{visible(each['name'])}: in a box, {visible(each['box'])}" for each in servers if each.get("box")]
    return [*boxes, *(f"{visible(each['name'])}: {visible(each['error'])}" for each in servers if each.get("error"))]
