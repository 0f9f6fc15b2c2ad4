"""The HTTP door on a socket: uvicorn with uvloop and httptools, ended by an event of ours instead of its signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import uvicorn

from toolgate.frontends.http import HttpDoor

KEEP_ALIVE = 75  # seconds
LAST_WORDS = 3  # seconds for responses under way when the server ends


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are the command's business."""
        yield


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 lets the system choose. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


@asynccontextmanager
async def serving(door: HttpDoor, listener: socket.socket) -> AsyncGenerator[None]:
    """Serve inside the block; requests under way get a moment to end."""
    config = uvicorn.Config(
        door,
        http="httptools",
        loop="none",
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=LAST_WORDS,
    )
    server = _Server(config)
    task = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]), name="http")
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.001)
        yield
    finally:
        server.should_exit = True
        await task
