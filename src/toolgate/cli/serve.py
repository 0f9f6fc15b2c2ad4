"""`toolgate serve`: the configured servers over HTTP, until Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec
import typer

from toolgate import state as stores
from toolgate.app import App, running
from toolgate.auth.cross_checks import problems
from toolgate.auth.safe_net import LOOPBACK
from toolgate.cli import common, log_lines, printing, summary
from toolgate.cli.service_manager import ServiceManager
from toolgate.config import Config, ConfigError, Problem, state_folder, tls_files
from toolgate.core.clock import SystemClock
from toolgate.frontends import operator
from toolgate.frontends.server import bind, serving
from toolgate.frontends.tls import Certificate, Unusable
from toolgate.state import audit
from toolgate.state.settings import Settings
from toolgate.workspace.hooks import SPOOL

app = typer.Typer(add_completion=False)
log = logging.getLogger(__name__)


@app.command(help="Serve the configured servers over HTTP until Ctrl-C.")
def serve(
    config: common.ConfigPath = None,
    children_config: common.ChildrenConfig = None,
    surface: common.SurfaceName = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on. Default: http.host.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port; 0 lets the system choose. Default: http.port.")
    ] = None,
    open_to_network: Annotated[
        bool,
        typer.Option(
            "--open-to-network",
            help="Listen beyond loopback without `clients`: anyone who reaches it can call every tool.",
        ),
    ] = False,
) -> None:
    def change(written: Config) -> Config:
        """Each time that the configuration is read: one that would open the gateway is not served either."""
        found = with_address(written, host, port)
        unsound = list(problems(found))
        if not open_to_network and (problem := unguarded(found)):
            unsound.append(Problem(found.source, "clients", problem))
        if unsound:
            raise ConfigError(tuple(unsound))
        return found

    found, settings = common.open_settings(config, children_config, surface, change)
    common.require_servers(found, may_be_empty=True)
    log_lines.log_to_stderr(found.log, "%(asctime)s %(levelname)s %(message)s")
    certificate = certificate_of(found)
    for warning in (*remarks(found), *(certificate.remarks() if certificate else ())):
        if found.log.format == "json":
            log.warning("%s", warning)
        else:
            typer.echo(f"warning: {warning}", err=True)
    common.run(_serve(found, settings, certificate))


def unguarded(config: Config) -> str:
    """Why it must not be listened as this configuration says; empty where it may."""
    if config.http.host in LOOPBACK or not config.is_open:
        return ""
    return (
        f"Refused to listen on {config.http.host}: no clients are configured, so anyone who reaches it could "
        "call every tool. Listen on 127.0.0.1, configure `clients` or `auth`, or give --open-to-network."
    )


def remarks(config: Config) -> Iterator[str]:
    """What the operator is to know before anybody comes in."""
    if config.http.host not in LOOPBACK and not config.is_open and not config.http.tls:
        yield "keys and tokens arrive unencrypted: set http.tls, or put a TLS proxy in front"
    if config.is_open and config.add_servers == "allow":
        yield 'add_servers = "allow" without `clients`: any local user can run programs as you'
    if config.is_open and config.codex.enabled and config.codex.calls == "allow":
        yield 'codex.calls = "allow" without `clients`: any local user can have Codex run commands as you'
    if config.is_open or config.auth.issuer:
        return
    if not any(client.enabled for client in config.clients):
        yield "all clients are disabled: every request will be refused"


def with_address(config: Config, host: str | None, port: int | None) -> Config:
    http = msgspec.structs.replace(
        config.http, host=host or config.http.host, port=config.http.port if port is None else port
    )
    return msgspec.structs.replace(config, http=http)


def listen(config: Config) -> socket.socket:
    try:
        return bind(config.http.host, config.http.port)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        printing.fail(f"Cannot listen on {config.http.host}:{config.http.port}: {why}. Choose another --port.")


def url_of(listener: socket.socket, config: Config) -> str:
    return config.http.url(*listener.getsockname()[:2]) + "/mcp"


def certificate_of(config: Config) -> Certificate | None:
    """What the listener shows, or the end of the command."""
    if not config.http.tls:
        return None
    try:
        return Certificate(*tls_files(config, os.environ))
    except Unusable as error:
        printing.fail(f"http.tls: {error}", 2)


async def _serve(config: Config, settings: Settings, certificate: Certificate | None) -> None:
    listener = listen(config)
    where = state_folder(config, os.environ)
    manager = ServiceManager(os.environ)
    async with (
        manager.alive(),
        stores.opened(where) as store,
        audit.opened(config, os.environ, SystemClock(), store) as trail,
        running(config, store=store, settings=settings, audit=trail, spool=where / SPOOL) as gateway,
        serving(gateway.http, listener, certificate),
        common.watch_descriptors(),
        operator.listening(gateway.http, operator.place(config, os.environ), gateway.clock),
    ):
        gateway.port = listener.getsockname()[1]
        ending = common.Ending()  # before anybody is told that it serves
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, gateway.reload_soon)
        if config.log.format == "json":
            log.info("listening on %s", url_of(listener, config))
        else:
            typer.echo(f"toolgate is listening on {url_of(listener, config)}", err=True)
            typer.echo("\n".join(summary.lines(gateway, url_of(listener, config))) + "\n", err=True)
        common.log_start(sum(server.enabled for server in config.servers))
        manager.ready(f"serving at {url_of(listener, config)}")
        await until_stopped(gateway, ending, manager.stopping)


async def until_stopped(gateway: App, ending: common.Ending, stopping: Callable[[], None] = lambda: None) -> None:
    """Until it is told to end, and until calls have ended or have had their time; the second signal ends that. Then
    requests and streams end, so that the server can."""

    async def drain(hurry: asyncio.Event) -> None:
        stopping()
        await gateway.drain(hurry)

    await ending.told(drain)
    gateway.http.close()
    await gateway.sessions.close()
