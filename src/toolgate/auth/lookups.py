"""Names looked up, by who asks: whoever names hosts that resolve slowly waits for itself alone.

The rules this file keeps: nobody's lookup waits for those of another; one asker has two under way at most, however long
each takes, and also when nobody waits for them any more; the same name is looked up once for all who want it now.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from toolgate.core.own_threads import OwnThreads

AT_ONCE = 2  # of one asker
MOST = 32  # of all, beyond the first of each: that many threads, and one for each asker

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]


class Lookups:
    """`lookup` finds the addresses of a host; it may raise `OSError` and `UnicodeError`."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._under_way: dict[str, dict[tuple[str, int], asyncio.Task[Sequence[str]]]] = {}

    async def find(self, asker: str, host: str, port: int) -> Sequence[str]:
        """Raises `OSError`. As long as the asker has lookups under way that do not end, it waits: bound it in time."""
        while not (task := self._under_way.get(asker, {}).get((host, port))):
            if self._may_begin(asker):
                task = self._begin(asker, host, port)
                break
            await asyncio.wait(self._under_way[asker].values(), return_when=asyncio.FIRST_COMPLETED)
        try:
            return await asyncio.shield(task)
        except UnicodeError:
            raise OSError(f"{host} is not a host name") from None

    def _may_begin(self, asker: str) -> bool:
        own = len(self._under_way.get(asker, ()))
        return not own or (own < AT_ONCE and sum(map(len, self._under_way.values())) < MOST)

    def _begin(self, asker: str, host: str, port: int) -> asyncio.Task[Sequence[str]]:
        async def work() -> Sequence[str]:
            return await self._lookup(host, port)

        def done(task: asyncio.Task[Sequence[str]]) -> None:
            del self._under_way[asker][host, port]
            if not self._under_way[asker]:
                del self._under_way[asker]
            if not task.cancelled():
                task.exception()  # seen, also where nobody waits any more

        task = asyncio.get_running_loop().create_task(work(), name=f"look up {host}")
        self._under_way.setdefault(asker, {})[host, port] = task
        task.add_done_callback(done)
        return task


_threads = OwnThreads()


async def in_thread(host: str, port: int) -> Sequence[str]:
    """The system's answer, from a thread of its own: names may take long."""
    look = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        told = await asyncio.get_running_loop().run_in_executor(_threads, look)
    except RuntimeError as error:
        raise OSError(f"{host} cannot be looked up: {error}") from None
    return list(dict.fromkeys(str(each[4][0]) for each in told))
