"""Asking a process that has long said nothing whether it lives, and having it replaced where it does not.

A process may be stopped, or hang, with its pipes open. The rule this file keeps: only silence ends a server. Whatever
it writes, an error or a line on stderr too, shows that it lives; one question at a time is asked, and the first of them
only when a request has waited for its whole time and nothing came.
"""

from __future__ import annotations

import contextlib
from typing import Protocol

from msgspec import Raw

from toolgate.config import Server
from toolgate.core import jsonrpc, mcp
from toolgate.core.clock import Clock
from toolgate.core.jsonrpc import Members
from toolgate.core.model import Client, Fault
from toolgate.eras import headers, modern
from toolgate.upstreams.links.base import Headers, Link
from toolgate.upstreams.mcp.dialects import INFO, Dialect

PATIENCE = 10.0  # seconds that the answer to a question may take, or anything else that shows life


class Asked(Protocol):
    """What is watched: a `Connection`."""

    link: Link | None
    dialect: Dialect

    async def ask_server(
        self, method: str, params: Members | bytes, headers: Headers, timeout: float | None = None
    ) -> Raw: ...


class Watchdog:
    def __init__(self, connection: Asked, server: Server, clock: Clock) -> None:
        self._connection = connection
        self._server = server
        self._clock = clock
        self._is_checking = False

    async def look(self, seen: int, pause: float) -> None:
        """Have the server replaced if it says nothing any more. `seen` are its signs of life until now; it is left
        alone for a `pause` in seconds first."""
        if self._is_checking:
            return
        self._is_checking = True
        try:
            await self._clock.sleep(pause)
            if not self._is_silent(seen):
                return
            until = self._clock.now() + PATIENCE
            with contextlib.suppress(Fault):
                await self._ask()
            if self._is_silent(seen):
                await self._clock.sleep(max(0.0, until - self._clock.now()))
            if self._is_silent(seen) and self._connection.link:
                self._connection.link.replace(f"did not answer for {self._silence:g} s, even a ping, and was stopped")
        finally:
            self._is_checking = False

    @property
    def _silence(self) -> float:
        return self._server.timeout + PATIENCE

    def _is_silent(self, seen: int) -> bool:
        link = self._connection.link
        return link is not None and link.signs_of_life == seen

    async def _ask(self) -> None:
        """By a request that the server knows: of its opening, where its era has no `ping`."""
        dialect = self._connection.dialect
        if dialect.revision and dialect.revision.era == "modern":
            params = jsonrpc.encode({"_meta": modern.envelope_meta(dialect.revision, Client(), INFO)})
            told = headers.for_request(dialect.revision, mcp.DISCOVER, None)
            await self._connection.ask_server(mcp.DISCOVER, params, told, PATIENCE)
        else:
            await self._connection.ask_server("ping", b"{}", dialect.other(), PATIENCE)
