"""Asking a process that has long said nothing whether it lives, and having it replaced where it does not.

A process may be stopped, or hang, with its pipes open. The rule this file keeps: only silence ends a server. Whatever
it writes, an error or a line on stderr too, shows that it lives; one that waits for an answer of ours, and may read
nothing else meanwhile, is not silent; one question at a time is asked, and the first of them only when nothing has come
for as long as a call may take.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from toolgate.config import Server
from toolgate.core.exchange import TIMED_OUT
from toolgate.core.fault import Fault
from toolgate.upstreams.mcp.attribution import OpenRequest
from toolgate.upstreams.mcp.requests import Requests

PATIENCE = 10.0  # seconds that the answer to a question may take, or anything else that shows life


class Watchdog:
    """Of a process. While it is opened, `opening` sees to it that it answers. `is_asking`: it has questions open."""

    def __init__(self, requests: Requests, server: Server, is_asking: Callable[[], bool]) -> None:
        self._requests = requests
        self._server = server
        self._is_asking = is_asking
        self._looking: asyncio.Task[None] | None = None
        self._seen = 0  # signs of life before that
        self._due = 0.0  # when it asks
        requests.on_given_up.append(self._given_up)

    def _given_up(self, request: OpenRequest, why: str) -> None:
        """Somebody has waited for so long, or gave up before that. Others may wait, as long as the server has."""
        if request.seen is None or not self._requests.dialect.revision or not self._is_silent(request.seen):
            return
        waited = request.exchange.budget or 0.0 if why == TIMED_OUT else 0.0
        due = self._requests.clock.now() + max(0.0, self._server.timeout - waited)
        if self._looking and not self._looking.done():
            if self._seen == request.seen and self._due <= due:
                return
            self._looking.cancel()
        self._seen, self._due = request.seen, due
        self._looking = self._requests.spawn(self._look(request.seen, due))

    async def _look(self, seen: int, due: float) -> None:
        """Have the server replaced if it says nothing any more. `seen` are its signs of life until now; it is left
        alone until it is `due` first, and until it has had its time behind our last answer."""
        clock = self._requests.clock
        while (rest := max(due, self._requests.answered + self._server.timeout) - clock.now()) > 0 or self._is_asking():
            await clock.sleep(rest if rest > 0 else PATIENCE)
            if not self._is_silent(seen):
                return
        until = clock.now() + PATIENCE
        with contextlib.suppress(Fault):
            await self._requests.ask(*self._requests.dialect.ping(), PATIENCE)
        if self._is_silent(seen):
            await clock.sleep(max(0.0, until - clock.now()))
        if self._is_silent(seen) and self._requests.link:
            silence = self._server.timeout + PATIENCE
            self._requests.link.replace(f"did not respond for {silence:g} s, not even to a ping, and was stopped")

    def _is_silent(self, seen: int) -> bool:
        link = self._requests.link
        return link is not None and link.signs_of_life == seen
