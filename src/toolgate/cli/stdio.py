"""`toolgate stdio`: the configured servers for one client, over standard input and output."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import typer

from toolgate.app import running
from toolgate.cli import common
from toolgate.config import Config

app = typer.Typer()


@app.command(help="Serve the configured servers to one client, over standard input and output.")
def stdio(config: common.ConfigPath = None) -> None:
    settings = common.require_servers(common.load_config(config))
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    common.run(_stdio(settings))


async def _stdio(config: Config) -> None:
    loop = asyncio.get_running_loop()
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not spoil the protocol
    async with running(config) as gateway:
        writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, output)
        door = gateway.stdio(writer.write)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, door.closed.set)
        reader, _ = await loop.connect_read_pipe(lambda: door, sys.stdin)
        await door.closed.wait()
        await door.close()
        reader.close()
        writer.close()
