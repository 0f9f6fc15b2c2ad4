"""A link to a server in this process: for tests, and for whatever embeds the gateway beside a server of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from toolgate.core.fault import Fault
from toolgate.upstreams.links.base import Headers, PipeLink, Receiver


class MemoryServer(Protocol):
    def connected(self, say: Callable[[bytes], None], hang_up: Callable[[str], None]) -> None:
        """A client is there: `say` sends it a message, `hang_up` ends the connection as a crash would."""
        ...

    def received(self, message: bytes) -> None: ...

    def disconnected(self) -> None: ...


class MemoryLink(PipeLink):
    """Messages arrive in a later turn of the event loop, as over any other link."""

    signs_of_life: int | None = None
    discovers = True

    def __init__(self, name: str, server: MemoryServer, receiver: Receiver) -> None:
        self._name = name
        self._server = server
        self._receiver = receiver
        self._closed = False
        server.connected(self._say, self._hang_up)

    def send_now(self, data: bytes, headers: Headers, origin: int, whose: str) -> bool:
        if self._closed:
            raise Fault("SESSION_ERROR", f"{self._name} is closed", reach="not_sent")
        asyncio.get_running_loop().call_soon(self._server.received, data)
        return True

    async def send(self, data: bytes, headers: Headers = (), origin: int | None = None) -> None:
        self.send_now(data, headers, origin or 0, "")

    def describe(self) -> dict[str, object]:
        return {}

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._server.disconnected()

    def _say(self, message: bytes) -> None:
        if not self._closed:
            asyncio.get_running_loop().call_soon(self._receiver.received, message, None)

    def _hang_up(self, reason: str) -> None:
        if not self._closed:
            self._closed = True
            fault = Fault("SERVER_FAILED", reason, reach="sent_unknown")
            asyncio.get_running_loop().call_soon(self._receiver.closed, fault)
