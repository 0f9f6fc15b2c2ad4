"""`toolgate stdio`: the configured servers for one client, over standard input and output."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO

import typer

from toolgate import audit
from toolgate import store as stores
from toolgate.app import running
from toolgate.cli import common
from toolgate.config import Config, state_folder
from toolgate.frontends.stdio import StdioDoor
from toolgate.ports import SystemClock
from toolgate.settings import Settings

app = typer.Typer(add_completion=False)

CHUNK = 64 * 1024
FLUSHING = 3.0  # seconds that a client may take to read the last answers


@app.command(help="Serve the configured servers to one client, over standard input and output.")
def stdio(
    config: common.ConfigPath = None,
    children_config: common.ChildrenConfig = None,
    surface: common.SurfaceName = None,
) -> None:
    found, settings = common.open_settings(config, children_config, surface)
    common.require_servers(found)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    common.run(_stdio(found, settings))


async def _stdio(config: Config, settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not spoil the protocol
    where = state_folder(config, os.environ)
    async with (
        stores.opened(where) as store,
        audit.opened(config, os.environ, SystemClock(), store) as trail,
        running(config, store=store, settings=settings, audit=trail) as gateway,
    ):
        writing = await Writing.to(output)
        door = gateway.stdio(writing.write, backlog=writing.backlog)
        finished = asyncio.ensure_future(door.finished())
        writing.on_lost = finished.cancel
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, finished.cancel)
        stop_reading = await read(sys.stdin.buffer, door)
        await asyncio.wait([finished])
        await door.close()
        stop_reading()
        await writing.close()


async def read(source: BinaryIO, door: StdioDoor) -> Callable[[], object]:
    """Feed the door. Pipes are the event loop's business; what it cannot wait for, a file or a terminal, a thread's."""
    loop = asyncio.get_running_loop()
    if is_pipe(source):
        transport, _ = await loop.connect_read_pipe(lambda: door, source)
        return transport.close

    def feed() -> None:
        try:
            while data := os.read(source.fileno(), CHUNK):
                loop.call_soon_threadsafe(door.data_received, data)
            loop.call_soon_threadsafe(door.eof_received)
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
