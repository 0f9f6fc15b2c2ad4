"""What a service manager is told of the gateway that it has started: that it serves, that it ends, that it is alive
(sd_notify(3), for systemd and what does the same). Without one nobody is told anything."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

log = logging.getLogger(__name__)


class ServiceManager:
    """`environ` says where it listens, and how soon it takes a gateway that says nothing for dead."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._place = environ.get("NOTIFY_SOCKET", "")
        self._every = _every(environ)
        self._next: asyncio.TimerHandle | None = None

    def ready(self, status: str) -> None:
        self._tell(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        self._tell("STOPPING=1\nSTATUS=calls in progress have time to end")

    @asynccontextmanager
    async def alive(self) -> AsyncGenerator[None]:
        """Inside the block it hears that the event loop runs."""
        if self._place and self._every:
            self._is_alive()
        try:
            yield
        finally:
            if self._next:
                self._next.cancel()

    def _is_alive(self) -> None:
        self._tell("WATCHDOG=1")
        self._next = asyncio.get_running_loop().call_later(self._every, self._is_alive)

    def _tell(self, state: str) -> None:
        if not self._place.startswith(("/", "@")):
            return
        place = f"\0{self._place[1:]}" if self._place.startswith("@") else self._place
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as teller:
            teller.setblocking(False)
            try:
                teller.sendto(state.encode(), place)
            except OSError as error:
                log.warning("the service manager cannot be told %s: %s", state.partition("\n")[0], error.strerror)


def _every(environ: Mapping[str, str]) -> float:
    """Seconds, half of what it waits; 0 where it does not wait for us."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    with contextlib.suppress(ValueError):
        return max(0.0, int(environ.get("WATCHDOG_USEC", "")) / 2_000_000)
    return 0.0
