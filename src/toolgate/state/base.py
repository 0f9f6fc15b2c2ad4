"""What every store promises."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Protocol


class NotKept(Exception):
    """The store could not write: the disk is full, or nothing may be written there. `str()` says why."""


class Store(Protocol):
    """Durable keys and values, by space. Several gateways may share one: of two writes the last wins.

    Reads are points, and answer at once; they see what has been awaited. Writes are in the order in which they were
    asked for, and on their way when the method returns: await them only where it matters that they are kept. Then they
    raise `NotKept`. A value with a `ttl` (in seconds) is gone when that is over, whoever reads it.
    """

    @property
    def problem(self) -> str:
        """Why what is not found may have been there all the same, or be lost at the end; empty where all is well."""
        ...

    def get(self, space: str, key: str) -> bytes | None: ...

    def items(self, space: str) -> Mapping[str, bytes]:
        """All of a space, by key in order."""
        ...

    def put(self, space: str, key: str, value: bytes, ttl: float | None = None) -> Awaitable[None]: ...

    def delete(self, space: str, key: str) -> Awaitable[None]: ...

    def compare_and_set(
        self, space: str, key: str, old: bytes | None, new: bytes | None, ttl: float | None = None
    ) -> Awaitable[bool]:
        """Put `new` only where `old` stands (None: nothing), and say whether. One of several wins, in all processes."""
        ...

    async def close(self) -> None:
        """When all that was asked for is written. What comes later is not kept."""
        ...
