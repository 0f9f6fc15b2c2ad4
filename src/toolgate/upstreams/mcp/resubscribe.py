"""What the clients of one scope watch at a server: counted, asked for once, and asked for anew when it was lost.

What is wanted is kept here and outlives connections; how a server is asked is `subscriptions`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from toolgate.core.clock import Clock
from toolgate.core.model import Client, Fault
from toolgate.upstreams.mcp.connection import Connection
from toolgate.upstreams.mcp.subscriptions import UpstreamSubscriptions, Wanted, Watched

log = logging.getLogger(__name__)


class SubscribingScope(Protocol):
    """What the resubscriber needs of a scope's session."""

    @property
    def live(self) -> Connection | None: ...

    async def use(self, client: Client, work: Callable[[Connection], Awaitable[None]]) -> None:
        """Do something with the connection, which is opened for it where it must be. Raises `Fault`."""
        ...

    def rest(self) -> None:
        """Maybe nobody needs the connection any more."""
        ...


class Resubscriber:
    """What one scope watches. `name` is the server's, for people."""

    def __init__(self, name: str, line: SubscribingScope, clock: Clock) -> None:
        self.wanted = Wanted()
        self.work: set[asyncio.Task[None]] = set()
        self._leaving: set[Watched] = set()  # what the server is to be told to stop telling of, unless it is wanted
        self._name = name
        self._line = line
        self._clock = clock

    async def begin(self, what: Watched, client: Client) -> None:
        """Have the server tell of this. Raises `Fault`."""
        wanted = self.wanted

        async def watch(connection: Connection) -> None:
            began = self._clock.now()
            async with wanted.turn:
                if not wanted.watched[what] and connection.subscriptions:
                    if wanted.fell_silent > began:  # those who wait in line do not each find that out for themselves
                        message = f"{self._name} does not answer subscription requests"
                        raise Fault("TIMEOUT", message, reach="not_sent")
                    await self._ask(connection.subscriptions, what)
                wanted.watched[what] += 1
                wanted.client = client

        await self._line.use(client, watch)

    async def _ask(self, subscriptions: UpstreamSubscriptions, what: Watched) -> None:
        try:
            await subscriptions.watch(what)
        except Fault as fault:
            if fault.code == "TIMEOUT":
                self.wanted.fell_silent = self._clock.now()
            raise
        except asyncio.CancelledError:
            self._leave(what)  # the server may have heard that much
            raise

    def end(self, what: Watched) -> None:
        """One client wants that no more."""
        self.wanted.watched[what] -= 1
        if self.wanted.watched[what] <= 0:
            del self.wanted.watched[what]
            self._leave(what)

    def _leave(self, what: Watched) -> None:
        if what not in self._leaving:
            self._leaving.add(what)
            self._spawn(self._tell_to_stop(what))

    async def _tell_to_stop(self, what: Watched) -> None:
        async with self.wanted.turn:
            self._leaving.discard(what)
            live = self._line.live
            if what in self.wanted.watched or not live or not live.subscriptions:
                return
            try:
                await live.subscriptions.unwatch(what)
            except Fault as fault:
                log.info("could not unsubscribe at %s from %s: %s", self._name, what[1], fault.message)
        self._line.rest()

    def lost(self) -> None:
        """Whoever watches what this server has may never call it: it is started again for them."""
        if self.wanted.watched:
            self._spawn(self._open_again(), f"hear {self._name} again")

    async def _open_again(self) -> None:
        wanted = self.wanted
        while True:
            await self._clock.sleep(wanted.pauses.after_loss(self._clock.now()))
            if self._line.live or not wanted.watched or not wanted.client:
                return
            try:
                await self._line.use(wanted.client, _nothing)
                return
            except Fault as fault:
                log.info("cannot reconnect to %s: %s", self._name, fault.message)

    async def close(self) -> None:
        """Nobody is told of anything any more."""
        for task in (work := list(self.work)):
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.work.add(task)
        task.add_done_callback(self.work.discard)


async def _nothing(_connection: Connection) -> None:
    """That it is open is all that is wanted."""
