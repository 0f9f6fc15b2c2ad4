"""`toolgate connect`: signing in at a server from the command line, as one of the gateway's clients.

The pages are those of the gateway: where one listens already, its own; else this command serves them until it is done.
Of several such commands at once one serves all their pages, and when it has ended another does.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import urllib.error
import urllib.request
import webbrowser
from contextlib import AsyncExitStack
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
import typer

from toolgate.app import App
from toolgate.cli import common, gateways, printing, progress
from toolgate.cli.serve import certificate_of
from toolgate.config import Config, Server, state_folder
from toolgate.core.clock import SystemClock
from toolgate.core.fault import Fault
from toolgate.core.model import Client, Principal
from toolgate.frontends.server import bind, serving
from toolgate.state import audit, opened

PATIENCE = 600.0  # seconds for a person to sign in
AGAIN = 0.5  # seconds until it is looked again whether the port is free
LOCAL = "local"  # who everybody is at an open gateway

app = typer.Typer(add_completion=False)


@app.command(help="Sign in to a server that requires OAuth, in the browser; or remove a sign-in.")
def connect(
    server: Annotated[str, typer.Argument(help="The server's name.")],
    config: common.ConfigPath = None,
    client: Annotated[
        str | None, typer.Option("--client", help="Sign in as this configured client. Default: the only client.")
    ] = None,
    principal: Annotated[
        str | None, typer.Option("--principal", help="Sign in as another principal, by its id in the audit log.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser; otherwise only print its URL.")] = True,
    forget: Annotated[bool, typer.Option("--forget", help="Remove the existing sign-in.")] = False,
) -> None:
    found = common.require_servers(common.load_whole(config))
    wanted = common.find_server(found, server)
    if not wanted.auth:
        printing.fail(f'{wanted.name} has no `auth`: write `"auth": "oauth"` into its configuration', 2)
    who = _who(found, wanted, client, principal)
    alone = msgspec.structs.replace(found, servers=(msgspec.structs.replace(wanted, start="lazy"),))
    common.run(_forget(alone, wanted, who) if forget else _connect(alone, wanted, who, browser))


def _who(config: Config, server: Server, client: str | None, principal: str | None) -> str:
    """The id of the principal that signs in."""
    is_ours = server.auth and (server.auth.shared or server.auth.grant == "client_credentials")
    if is_ours or principal:
        return principal or LOCAL
    known = [each.id for each in config.clients]
    if client and client not in known:
        printing.fail(f"Client not found: {client}. Available: {', '.join(known) or 'none'}", 2)
    if not client and not config.is_open:
        printing.fail(f"Choose a client: --client {' or '.join(known) or 'ID'}", 2)
    return f"client:{client}" if client else LOCAL


async def _forget(config: Config, server: Server, who: str) -> None:
    async with gateways.opened(config) as gateway:
        was_there = await gateway.sign_ins.forget(server, who)
    if was_there:
        async with (
            opened(state_folder(config, os.environ)) as store,
            audit.opened(config, os.environ, SystemClock(), store) as trail,
        ):
            trail.note_change("sign_ins.forget", audit.operator(), server=server.id, principal=who)
        if trail.problem:
            typer.echo(f"warning: {trail.problem}", err=True)
    typer.echo(f"{server.name}: {'signed out' if was_there else 'was not signed in'}")


async def _connect(config: Config, server: Server, who: str, browser: bool) -> None:
    async with AsyncExitStack() as stack:
        port = await _port_of_running(config)
        gateway = await stack.enter_async_context(gateways.opened(config))
        serves = False
        gateway.port = port or config.http.port
        if not port:
            try:
                listener = bind(config.http.host, config.http.port)
            except OSError:  # another such command, it is to be hoped
                later = asyncio.get_running_loop().create_task(_serve_when_free(gateway, config))
                stack.push_async_callback(_ended, later)
            else:
                serves, gateway.port = True, listener.getsockname()[1]
                await stack.enter_async_context(serving(gateway.http, listener, certificate_of(config)))
        tools = await _tools(gateway, server, who)
        if tools is None:
            await _sign_in(gateway, server, who, browser, serves)
            tools = await _tools(gateway, server, who)
        if tools is None:
            printing.fail(f"{server.name}: sign-in not completed")
        typer.echo(f"{server.name}: signed in, {tools} {'tool' if tools == 1 else 'tools'}")


async def _port_of_running(config: Config) -> int | None:
    """That of the gateway that runs with this configuration, where it has one."""
    running = gateways.find(config)
    if not running:
        return None
    url: str = (await gateways.value(running, "GET", "/status")).get("url") or ""
    return urlsplit(url).port


async def _serve_when_free(gateway: App, config: Config) -> None:
    """Until cancelled, from when nobody else serves the pages."""
    while True:
        await asyncio.sleep(AGAIN)
        try:
            listener = bind(config.http.host, config.http.port)
        except OSError:
            continue
        async with serving(gateway.http, listener, certificate_of(config)):
            await asyncio.Event().wait()


async def _ended(work: asyncio.Task[None]) -> None:
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def _tools(gateway: App, server: Server, who: str) -> int | None:
    """How many tools this principal finds there; None where it must sign in first."""
    try:
        with progress.waiting("waiting for the server"):
            found = await gateway.gateway.snapshot.upstreams[server.id].list("tools", Client(Principal(who)))
    except Fault as fault:
        if fault.code == "SIGN_IN_REQUIRED":
            return None
        printing.fail(printing.show(fault))
    return len(found.raw)


async def _sign_in(gateway: App, server: Server, who: str, browser: bool, serves: bool) -> None:
    page = gateway.sign_ins.link(server.id, who)
    if not serves and not await asyncio.to_thread(_is_shown, page):
        printing.fail(f"{page} cannot be opened: another program uses this port. Stop it, or set another http.port")
    typer.echo(f"Sign in at {page}", err=True)
    if browser and sys.stderr.isatty():
        webbrowser.open(page)
    with progress.waiting("waiting for the sign-in"):
        await gateway.sign_ins.settled(server.id, who, PATIENCE)


def _is_shown(page: str) -> bool:
    """Whether the gateway that listens there knows the page: it is of the same store. What certificate it has, the
    browser will judge."""
    unjudged = ssl.create_default_context()
    unjudged.check_hostname, unjudged.verify_mode = False, ssl.CERT_NONE
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unjudged))
    try:
        with direct.open(page, timeout=10) as shown:
            return shown.status == 200
    except (urllib.error.URLError, OSError):
        return False
