"""The store as a worker has it: it reads what others have written, and keeps nothing itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from toolgate.state.base import NotKept, Result, Store, Subject, Work


class ReadOnly:
    """A `Store` as it is, in which nothing is written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.get = store.get
        self.items = store.items
        self.query = store.query

    @property
    def problem(self) -> str:
        return self._store.problem

    def put(self, space: str, key: str, value: bytes, ttl: float | None = None) -> Awaitable[None]:
        return _done(None)

    def delete(self, space: str, key: str, tells: Sequence[Subject] = ()) -> Awaitable[None]:
        return _done(None)

    def compare_and_set(
        self,
        space: str,
        key: str,
        old: bytes | None,
        new: bytes | None,
        ttl: float | None = None,
        tells: Sequence[Subject] = (),
    ) -> Awaitable[bool]:
        return _done(self._store.get(space, key) == old)

    async def transact(self, work: Work[Result], *tells: Subject) -> Result:
        raise NotKept("a worker writes nothing into the store")

    async def close(self) -> None:
        """It is its opener's to close."""


def _done(result: Any) -> Awaitable[Any]:
    done = asyncio.get_running_loop().create_future()
    done.set_result(result)
    return done
