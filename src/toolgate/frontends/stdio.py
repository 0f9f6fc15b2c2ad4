"""The stdio frontend: one client, one message a line (spec: basic/transports/stdio). A thin carrier of a
`Conversation`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from toolgate.auth.access import THE_OPERATOR
from toolgate.core import counting
from toolgate.core.lines import Lines
from toolgate.core.model import Principal
from toolgate.frontends import ways
from toolgate.frontends.active_requests import Known
from toolgate.frontends.deps import FrontendDeps
from toolgate.frontends.duplex import Conversation
from toolgate.frontends.guards import SHORT
from toolgate.frontends.sessions import new_session


class StdioFrontend(asyncio.Protocol):
    """Reads a pipe as its protocol; `write` gets each message that goes out, with its newline, and `backlog` tells how
    many bytes the client has not taken yet. `principal` is who started the gateway, or whom it is to act as."""

    def __init__(
        self,
        deps: FrontendDeps,
        path: str,
        write: Callable[[bytes], None],
        backlog: Callable[[], int],
        principal: Principal | None = None,
    ) -> None:
        def write_line(message: bytes) -> None:
            write(message + b"\n")

        self.closed = asyncio.Event()
        self._limit = deps.config.http.body_limit
        session = new_session(deps, path, principal or THE_OPERATOR)
        self._conversation = Conversation(deps, session, ways.STDIO, write_line, backlog)
        self._lines = Lines()

    def data_received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if not line.strip():
                continue
            if len(line) > SHORT and counting.has_more_values(line, most := self._conversation.most_values):
                self._conversation.refuse_as_too_many(line, most)
            else:
                self._conversation.received(line)
        if self._lines.pending > self._limit:
            self._conversation.refuse_as_too_large(self._lines.drop())

    def eof_received(self) -> None:
        if self._lines.pending:
            self.data_received(b"\n")  # the last line may lack its end
        self.closed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.eof_received()

    def under_way(self) -> list[asyncio.Task[Any]]:
        """The work for what the client has asked."""
        return self._conversation.under_way()

    def expel_unknown(self, is_known: Known) -> None:
        """End what is under way where its client would not be let in any more."""
        if not is_known(self._conversation.principal):
            self._conversation.expel()

    async def finished(self) -> None:
        """Until the client has closed its end, and what it asked before is answered or has had its time."""
        await self.closed.wait()
        await self._conversation.finished()

    async def close(self) -> None:
        await self._conversation.close()
