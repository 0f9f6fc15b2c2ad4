"""`toolgate stdio`: the configured servers for one client, over standard input and output."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
import threading
from collections.abc import Callable
from typing import Annotated, BinaryIO

import msgspec
import typer

from toolgate import state as stores
from toolgate.app import running
from toolgate.cli import common, log_lines, printing
from toolgate.config import Config, ConfigError, KnownClient, Problem, state_folder
from toolgate.core.clock import SystemClock
from toolgate.core.model import Principal
from toolgate.frontends import operator
from toolgate.frontends.guards import ENDPOINT
from toolgate.frontends.stdio import StdioFrontend
from toolgate.state import audit
from toolgate.state.settings import Settings
from toolgate.workspace.hooks import SPOOL

app = typer.Typer(add_completion=False)
log = logging.getLogger(__name__)

CHUNK = 64 * 1024
FLUSHING = 3.0  # seconds that a client may take to read the last answers


HELP = """Serve the configured servers to one client, over standard input and output.

Without --client, the caller is the operator and may do everything, even if `clients` are configured."""


@app.command(help=HELP)
def stdio(
    config: common.ConfigPath = None,
    children_config: common.ChildrenConfig = None,
    trusted: common.TrustedConfig = None,
    surface: common.SurfaceName = None,
    client: Annotated[
        str | None,
        typer.Option(
            "--client",
            metavar="ID",
            help="Act as this configured client, with its permissions, approvals, limits and surface.",
        ),
    ] = None,
) -> None:
    is_served = False

    def change(written: Config) -> Config:
        """Each time that the configuration is read. A client that is removed from it while it is served has no rights
        any more; without it the configuration would be open, or nobody's."""
        if client is None or _named(written, client):
            return written
        if not is_served:
            raise ConfigError((Problem(written.source, "clients", *_missing(written, client)),))
        what = _missing(written, client)[0]
        log.warning("%s %s: its requests are refused as soon as that is served", written.source, what)
        gone = KnownClient(id=client, name=client, enabled=False)
        return msgspec.structs.replace(written, clients=(*written.clients, gone))

    found, settings = common.open_settings(config, children_config, surface, change, trusted=trusted)
    is_served = True
    common.require_servers(found, may_be_empty=True)
    known = _named(found, client)
    if known and not known.enabled:
        printing.fail(f"The client {known.id} is disabled in {found.source}", 2)
    log_lines.log_to_stderr(found.log, "%(levelname)s toolgate: %(message)s")
    path = f"{ENDPOINT}/{known.surface}" if known and known.surface and not surface else ENDPOINT
    common.run(_stdio(found, settings, path, _principal(known)))


def _named(config: Config, client: str | None) -> KnownClient | None:
    return next((each for each in config.clients if each.id == client), None)


def _missing(config: Config, client: str) -> tuple[str, str]:
    there = ", ".join(each.id for each in config.clients)
    return f"has no client {client}, given by --client", f"there are {there}" if there else "add it to `clients`"


def _principal(client: KnownClient | None) -> Principal | None:
    """Who the one at the other end is; None: the operator."""
    return Principal(f"client:{client.id}", is_admin=client.admin, is_here=True, client=client.id) if client else None


async def _stdio(config: Config, settings: Settings, path: str, principal: Principal | None) -> None:
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not spoil the protocol
    where = state_folder(config, os.environ)
    async with (
        stores.opened(where) as store,
        audit.opened(config, os.environ, SystemClock(), store) as trail,
        running(config, store=store, settings=settings, audit=trail, spool=where / SPOOL) as gateway,
        common.watch_process(),
        operator.listening(gateway.http, operator.place(config, os.environ), gateway.clock),
    ):
        ending = common.Ending()
        common.log_start(sum(server.enabled for server in config.servers))
        writing = await Writing.to(output)
        frontend = gateway.stdio(writing.write, path, writing.backlog, principal)
        finished = asyncio.ensure_future(frontend.finished())
        writing.on_lost = finished.cancel
        told = asyncio.ensure_future(ending.told(gateway.drain))
        stop_reading = await read(sys.stdin.buffer, frontend)
        await asyncio.wait((finished, told), return_when=asyncio.FIRST_COMPLETED)
        finished.cancel()
        told.cancel()
        await frontend.close()
        stop_reading()
        await writing.close()


async def read(source: BinaryIO, frontend: StdioFrontend) -> Callable[[], object]:
    """Feed the door. Pipes are the event loop's business; what it cannot wait for, a file or a terminal, a thread's."""
    loop = asyncio.get_running_loop()
    if is_pipe(source):
        transport, _ = await loop.connect_read_pipe(lambda: frontend, source)
        return transport.close

    def feed() -> None:
        try:
            while data := os.read(source.fileno(), CHUNK):
                loop.call_soon_threadsafe(frontend.data_received, data)
            loop.call_soon_threadsafe(frontend.eof_received)
        except RuntimeError:
            return  # the loop is closed: nobody listens any more

    threading.Thread(target=feed, name="stdin", daemon=True).start()
    return lambda: None


class Writing(asyncio.BaseProtocol):
    """Standard output: a pipe that is written as its reader reads, or a file or terminal that is written at once."""

    def __init__(self) -> None:
        self.write: Callable[[bytes], None] = lambda _data: None
        self.on_lost: Callable[[], object] = lambda: None
        self._transport: asyncio.WriteTransport | None = None
        self._lost = asyncio.Event()

    @classmethod
    async def to(cls, output: BinaryIO) -> Writing:
        def write_at_once(data: bytes) -> None:
            while data:
                data = data[output.write(data) :]

        writing = cls()
        if is_pipe(output):
            writing._transport, _ = await asyncio.get_running_loop().connect_write_pipe(lambda: writing, output)
            writing.write = writing._transport.write
        else:
            writing.write = write_at_once
        return writing

    def backlog(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport else 0

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        self.on_lost()

    async def close(self) -> None:
        """When all is out, or the client has long stopped reading."""
        if not self._transport:
            return
        self._transport.close()
        try:
            async with asyncio.timeout(FLUSHING):
                await self._lost.wait()
        except TimeoutError:
            self._transport.abort()


def is_pipe(file: BinaryIO) -> bool:
    mode = os.fstat(file.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
