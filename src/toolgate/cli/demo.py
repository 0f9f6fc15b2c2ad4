"""`toolgate demo`: bundled servers of both eras and an in-process one, visited by an old and a new client over HTTP."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from toolgate import demo as bundled
from toolgate.app import running
from toolgate.cli import common, summary
from toolgate.cli.serve import until_stopped, url_of
from toolgate.cli.tour import NewClient, OldClient, text_of
from toolgate.config import Config, Server
from toolgate.frontends.server import bind, serving

app = typer.Typer(add_completion=False)


@app.command(help="A short tour with bundled servers; it then keeps serving until Ctrl-C.")
def demo(
    once: Annotated[bool, typer.Option("--once", help="End after the tour.")] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port. If it is in use, another one is chosen.")
    ] = 8765,
) -> None:
    common.run(_demo(once, port))


def demo_config() -> Config:
    """The bundled servers: `clock` speaks the handshake revisions, `notes` only 2026-07-28, `greeter` lives inside."""
    children = [
        Server(id=name, name=name, type="stdio", command=sys.executable, args=("-I", "-S", str(script)))
        for name, script in bundled.SERVERS.items()
    ]
    return Config(servers=(*children, Server(id="greeter", name="greeter", type="registry")))


async def _demo(once: bool, port: int) -> None:
    console = Console(highlight=False)
    config = demo_config()
    try:
        listener = bind(config.http.host, port)
    except OSError:
        listener = bind(config.http.host, 0)
    url = url_of(listener, config)
    async with running(config) as gateway, serving(gateway.http, listener):
        console.print(f"[bold]toolgate[/] serves {len(config.servers)} servers at {url}\n")
        await asyncio.to_thread(_tour, console, url)
        for server, upstream in gateway.gateway.snapshot.upstreams.items():
            console.print(f"  [dim]{server} speaks {upstream.status().revision}[/]")
        console.print("\n[bold]Connect a client[/]")
        for line in summary.connecting(config, url):
            console.print(escape(line), soft_wrap=True)
        if once:
            return
        ending = common.Ending()
        console.print("\nServing until Ctrl-C.")
        await until_stopped(gateway, ending)


def _tour(console: Console, url: str) -> None:
    old, new = OldClient(url), NewClient(url)
    console.print(f"[bold]1.[/] Both clients list the tools of all servers: {len(old.list())} and {len(new.list())}\n")
    stops: list[tuple[str, Any, str, dict[str, Any], dict[str, Any]]] = [
        ("An old client calls an old server", old, "clock__now", {}, {}),
        ("An old client calls a new server, which asks before it deletes", old, "notes__delete_note", {"id": 1}, {}),
        ("A new client calls an old server, which asks in mid-call", new, "clock__set_alarm", {"time": "07:30"}, {}),
        ("A new client calls a server inside the gateway, which asks too", new, "greeter__greet", {}, {}),
        ("Progress reaches the client", old, "clock__countdown", {"steps": 3}, {"progressToken": "tour"}),
    ]
    for number, (title, client, tool, arguments, meta) in enumerate(stops, 2):
        client.notes.clear()
        result = client.call(tool, arguments, **meta)
        console.print(f"[bold]{number}.[/] {title}")
        console.print(f"   [cyan]{client.revision}[/] → {tool}")
        for note in client.notes:
            console.print(f"   [dim]{escape(note)}[/]")
        console.print(f"   [green]{escape(text_of(result))}[/]\n")
