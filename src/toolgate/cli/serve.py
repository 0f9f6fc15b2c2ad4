"""`toolgate serve`: the configured servers over HTTP, until Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Annotated

import msgspec
import typer

from toolgate import state as stores
from toolgate.app import App, running
from toolgate.auth.cross_checks import problems
from toolgate.auth.safe_net import LOOPBACK
from toolgate.cli import common, log_lines, printing, summary, workers
from toolgate.cli.service_manager import ServiceManager
from toolgate.config import Config, ConfigError, Problem, state_folder, tls_files
from toolgate.core.clock import SystemClock
from toolgate.frontends import operator
from toolgate.frontends.server import bind, serving
from toolgate.frontends.tls import Certificate, Unusable
from toolgate.frontends.workers.channel import of_file
from toolgate.frontends.workers.learning import Learner
from toolgate.frontends.workers.local import LocalGateway, for_worker, role_of_worker
from toolgate.frontends.workers.owning import accepting
from toolgate.frontends.workers.role import ALONE, Role
from toolgate.frontends.workers.taking import FILES, TakingProtocol, Worker
from toolgate.policy.shared_meters import SharedMeters
from toolgate.state import audit
from toolgate.state.read_only import ReadOnly
from toolgate.state.settings import Settings
from toolgate.workspace.hooks import SPOOL

app = typer.Typer(add_completion=False)
log = logging.getLogger(__name__)


@app.command(help="Serve the configured servers over HTTP until Ctrl-C.")
def serve(
    config: common.ConfigPath = None,
    children_config: common.ChildrenConfig = None,
    trusted: common.TrustedConfig = None,
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
    worker_count: Annotated[
        int,
        typer.Option(
            "--workers",
            min=1,
            max=workers.MOST,
            envvar="TOOLGATE_WORKERS",
            help="Processes that take connections. From 2 on one more owns sessions and servers. Linux.",
        ),
    ] = 1,
) -> None:
    place = workers.place_of(os.environ)

    def change(written: Config) -> Config:
        """Each time that the configuration is read: one that would open the gateway is not served either."""
        found = with_address(written, host, port)
        unsound = list(problems(found))
        if not open_to_network and (problem := unguarded(found)):
            unsound.append(Problem(found.source, "clients", problem))
        if unsound:
            raise ConfigError(tuple(unsound))
        return found

    if worker_count > 1 and not workers.are_possible():
        printing.fail("--workers needs Linux: no other system has all that its processes share", 2)
    if place:
        handed = place.handed()
        settings = Settings(lambda: for_worker(handed.read()), os.environ)
        found = settings.read()
        log_lines.log_to_stderr(found.log, f"%(asctime)s %(levelname)s worker {place.own}: %(message)s")
        common.run(_work(found, settings, certificate_of(found), place))
        return
    found, settings = common.open_settings(config, children_config, surface, change, trusted=trusted)
    common.require_servers(found, may_be_empty=True)
    log_lines.log_to_stderr(found.log, "%(asctime)s %(levelname)s %(message)s")
    certificate = certificate_of(found)
    for warning in (*remarks(found), *(certificate.remarks() if certificate else ())):
        if found.log.format == "json":
            log.warning("%s", warning)
        else:
            typer.echo(f"warning: {warning}", err=True)
    common.run(_serve(found, settings, certificate, worker_count))


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


async def _serve(config: Config, settings: Settings, certificate: Certificate | None, count: int) -> None:
    where = state_folder(config, os.environ)
    manager = ServiceManager(os.environ)
    shared = workers.Shared(count + 1) if count > 1 else None
    listener = listen(config)
    role = ALONE
    if shared:
        role = Role(make_meters=partial(SharedMeters, shared.table), serves=shared.serves, problem=shared.problem)
    async with (
        manager.alive(),
        stores.opened(where) as store,
        audit.opened(config, os.environ, SystemClock(), store) as trail,
        running(config, store=store, settings=settings, audit=trail, spool=where / SPOOL, role=role) as gateway,
        _open(gateway, listener, certificate, shared) as kept,
        common.watch_process(),
        operator.listening(gateway.http, operator.place(config, os.environ), gateway.clock),
    ):
        url = url_of(listener, config)
        ending = common.Ending()  # before anybody is told that it serves
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _on_hangup(gateway.reload_soon, ending.tell))
        if config.log.format == "json":
            log.info("listening on %s", url)
        else:
            typer.echo(f"toolgate is listening on {url}", err=True)
            here = config.http.url_here(*listener.getsockname()[:2]) + "/mcp"
            typer.echo("\n".join(summary.lines(gateway, here)) + "\n", err=True)
        common.log_start(sum(server.enabled for server in config.servers))
        manager.ready(f"serving at {url}")

        def stops() -> None:
            manager.stopping()
            if kept:
                kept.end()

        await until_stopped(gateway, ending, stops)
        if kept:
            await kept.ended(gateway.gateway.snapshot.config.drain, ending.hurry)


def _on_hangup(reload: Callable[[], None], end: Callable[[], None]) -> Callable[[], None]:
    """SIGHUP has two meanings: somebody asks for a reload, or the terminal that the gateway was started in is closed,
    and it with that, unless it was told to ignore this (`nohup`)."""
    ends_with_it = _has_terminal() and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    return lambda: end() if ends_with_it and not _has_terminal() else reload()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


@asynccontextmanager
async def _open(
    gateway: App, listener: socket.socket, certificate: Certificate | None, shared: workers.Shared | None
) -> AsyncGenerator[workers.Workers | None]:
    """Serve inside the block, by workers where there is what several share."""
    gateway.port = listener.getsockname()[1]
    if not shared:
        async with serving(gateway.http, listener, certificate):
            yield None
        return
    async with (
        accepting(gateway.http) as accept,
        workers.kept(listener, accept, gateway.events, gateway.recorder, shared) as kept,
    ):
        try:
            await kept.started()
        except TimeoutError:
            printing.fail("The workers have not started: the log says why")
        yield kept


async def _work(config: Config, settings: Settings, certificate: Certificate | None, place: workers.Place) -> None:
    """What a worker does."""
    os.environ.pop(workers.VARIABLE, None)
    listener, owner = of_file(place.listener), workers.Owner(of_file(place.channel))
    where, table = state_folder(config, os.environ), place.table()
    role = role_of_worker(partial(SharedMeters, table))
    async with (
        stores.opened(where, is_told=True) as store,
        audit.opened(config, os.environ, SystemClock(), store, of_calls=True) as trail,
        running(config, store=ReadOnly(store), settings=settings, audit=trail, role=role) as gateway,
        AsyncExitStack() as last_first,
        common.watch_process(),
    ):
        assert isinstance(gateway.gateway, LocalGateway)
        is_apart = gateway.gateway.is_apart = bool(store.problem)
        learner = Learner(gateway.http.guards, gateway.modern, gateway.gateway, gateway.clock)
        last_first.push_async_callback(learner.close)
        worker = owner.worker = Worker(owner.channel, learner.learn_soon)
        gateway.http.connections.files_of_each = FILES
        protocol = partial(TakingProtocol, worker=worker)

        def gives_way() -> bool:
            return table.has_more(gateway.http.connections.count)

        await last_first.enter_async_context(serving(gateway.http, listener, certificate, protocol, gives_way))
        gateway.port, owner.gateway, owner.ending = listener.getsockname()[1], gateway.gateway, common.Ending()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, owner.look)
        following = loop.create_task(owner.follow(gateway.reload, is_apart), name="follow the configuration")
        reporting = loop.create_task(owner.report(gateway.recorder.usage), name="report")
        owner.channel.send("ready")
        await owner.ending.told(gateway.drain)
        while worker.passes_on and not owner.is_gone:
            await asyncio.sleep(workers.LOOK)  # the owner ends these, and this process if they do not end
        reporting.cancel()
        following.cancel()
        await asyncio.gather(reporting, following, return_exceptions=True)
        gateway.http.close()


async def until_stopped(gateway: App, ending: common.Ending, stopping: Callable[[], None] = lambda: None) -> None:
    """Until it is told to end, and until calls have ended or have had their time; the second signal ends that. Then
    requests and streams end, so that the server can."""

    async def drain(hurry: asyncio.Event) -> None:
        stopping()
        await gateway.drain(hurry)

    await ending.told(drain)
    gateway.http.close()
    await gateway.sessions.close()
