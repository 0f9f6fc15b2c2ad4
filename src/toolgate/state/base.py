"""What every store promises."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeVar

Subject = Literal["keys", "pins", "tasks", "sign-ins", "scripts"]
"""What other processes may change in the store, and listeners hear of (`changes`)."""

NEWS = "news"  # the space in which each subject has another value since it was changed

UNREAD: Mapping[str, bytes] = MappingProxyType({})
"""What a space has that could not be read: nothing, which is not the same as that nothing is in it."""

Result = TypeVar("Result")


class NotKept(Exception):
    """The store could not write, or its tables cannot be used: the disk is full, nothing may be written there, or the
    file is damaged. `str()` says why, and how to fix it; `held_by` who keeps it from being written. That is for the
    operator: clients are not told which programs run here."""

    def __init__(self, why: str, held_by: str = "") -> None:
        super().__init__(why)
        self.held_by = held_by

    @property
    def whole(self) -> str:
        """All of it, for the operator."""
        return f"{self}; {self.held_by}" if self.held_by else str(self)


class Rows(Protocol):
    """What a query finds, each row as a tuple."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """What works on the tables: SQL that SQLite and PostgreSQL both understand, with `?` for each value."""

    def execute(self, sql: str, values: Sequence[object] = (), /) -> Rows: ...

    def executemany(self, sql: str, values: Sequence[Sequence[object]], /) -> Rows: ...


Work = Callable[[Connection], Result]


class Store(Protocol):
    """Durable keys and values, by space. Several gateways may share one: of two writes the last wins.

    Reads are points, and answer at once; they see what has been awaited. Writes are in the order in which they were
    asked for, and on their way when the method returns: await them only where it matters that they are kept. Then they
    raise `NotKept`. A value with a `ttl` (in seconds) is gone when that is over, for every reader. Those who listen
    hear of what a write `tells`, in the same moment or not at all.
    """

    @property
    def problem(self) -> str:
        """Why what is not found may have been there all the same, or be lost at the end; empty where all is well."""
        ...

    def get(self, space: str, key: str) -> bytes | None: ...

    def items(self, space: str) -> Mapping[str, bytes]:
        """All of a space, by key in order; `UNREAD` itself where that failed."""
        ...

    def put(self, space: str, key: str, value: bytes, ttl: float | None = None) -> Awaitable[None]: ...

    def delete(self, space: str, key: str, tells: Sequence[Subject] = ()) -> Awaitable[None]: ...

    def compare_and_set(
        self,
        space: str,
        key: str,
        old: bytes | None,
        new: bytes | None,
        ttl: float | None = None,
        tells: Sequence[Subject] = (),
    ) -> Awaitable[bool]:
        """Put `new` only where `old` stands (None: nothing), and say whether. One of several wins, in all processes."""
        ...

    async def query(self, work: Work[Result]) -> Result:
        """What this reads of the tables of `migrations`: all of it as it was at one time, and what has been awaited.
        It waits for no write, and may run in a thread. What it raises is raised; and `NotKept`."""
        ...

    async def transact(self, work: Work[Result], *tells: Subject) -> Result:
        """Do this to the tables, as a whole or not at all, one after another in all processes; it is kept when this
        returns, and those who listen hear of what it `tells`. It may be done twice, if the first is undone. What it
        raises is raised, and undoes it; and `NotKept`."""
        ...

    async def close(self) -> None:
        """When all that was asked for is written. What comes later is not kept."""
        ...
