"""What every upstream is, and what is known of one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Raw

from toolgate.config import Server
from toolgate.core import jsonrpc
from toolgate.core.exchange import Exchange
from toolgate.core.fault import Words
from toolgate.core.model import Call, Client, Made, Outcome

SHORT = 4096  # bytes of what a server says of itself, which is looked through at once, and kept for each session


class Items(msgspec.Struct, frozen=True):
    """One whole list of one server. `ttl` in seconds is the server's own word on how long it holds, None where it gave
    none; `is_public`: it says that the list is the same for everybody (spec: server/utilities/caching). `size`: the
    bytes that were read for it, where that may be more than its items have. `ignored` says what of it is left out, or
    cannot be used, and why, for people."""

    raw: tuple[Raw, ...] = ()
    ttl: float | None = None
    is_public: bool = False
    size: int = 0
    ignored: tuple[str, ...] = ()


class About(msgspec.Struct, frozen=True):
    """What a server says of itself when it is first talked with."""

    capabilities: Mapping[str, Any] = {}
    instructions: str = ""

    @property
    def is_short(self) -> bool:
        return len(self.instructions) + len(jsonrpc.encode(self.capabilities)) <= SHORT


State: TypeAlias = Literal["configured", "starting", "ready", "busy", "failed", "stopped"]


StoppedBy: TypeAlias = Literal["", "idle", "pool", "close", "ephemeral"]


class Status(msgspec.Struct, frozen=True):
    """How a server is, for people. `busy` is ready with calls under way. `hint` is what to do about the error, `says`
    gives its `stderr`, and `words` is what of that belongs to the error and the hint. `revision` is the protocol
    revision that it was found to speak. `stopped_by` is why it is stopped: nobody called, others needed its slot in the
    pool, somebody said so, or it is up for each call only. `parts` is what its box shows of its program."""

    state: State = "configured"
    error: str = ""
    hint: str = ""
    pid: int | None = None
    started: float | None = None  # seconds since 1970
    says: Callable[[], str] | None = None
    revision: str = ""
    calls: int = 0  # under way or parked
    stopped_by: StoppedBy = ""
    words: Words | None = None
    parts: str = ""

    @property
    def stderr(self) -> str:
        """The last 64 KiB of it, in which secrets are looked for only where it is shown."""
        return self.says() if self.says else ""

    def told(self, to_others: bool = False) -> Status:
        """As it is shown to who may read the server's stderr, or to others."""
        if to_others:
            return msgspec.structs.replace(self, says=None, words=None, parts="")
        if not self.words:
            return self
        error, hint = self.words.added(self.error, self.hint)
        return msgspec.structs.replace(self, error=error, hint=hint, words=None)


async def rechecked(call: Call) -> Call:
    """A call that has waited (for its turn, or its server), as it may be sent now. Raises `Fault`, not sent."""
    return await call.reached.recheck(call) if call.reached and call.reached.recheck else call


class Line:
    """The way to a server of calls that differ in nothing but their arguments, for as long as that `is_up`."""

    def is_up(self) -> bool:
        raise NotImplementedError

    def begin(self, call: Call) -> Begun | None:
        """See `Upstream.begin`."""
        raise NotImplementedError


class Begun(msgspec.Struct, eq=False):
    """A round of a call that has been begun: `exchange` is what it waits for, once it `is_sent`. Either `outcome` is
    awaited, which raises `Fault` and sends what is not sent; or `over` is told when the exchange has ended well."""

    exchange: Exchange
    is_sent: bool

    async def outcome(self) -> Outcome:
        raise NotImplementedError

    def over(self, error: BaseException | None) -> None:
        raise NotImplementedError

    def line(self) -> Line | None:
        """That of other calls like this one, where there is one."""
        return None


class Upstream(Protocol):
    """One configured thing that has tools. It starts by itself when it is first needed."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def print(self) -> str:
        """A hash of what program or address it is: an upstream of the same id and another print is another server."""
        ...

    def scope(self, client: Client) -> str:
        """Whose connection serves this client; clients with the same answer see the same lists."""
        ...

    def status(self, whose: Client | None = None) -> Status:
        """How it is now. Starts nothing, and never waits. `whose`: of what serves this client alone, where clients have
        connections of their own."""
        ...

    def live_scope(self, client: Client) -> str | None:
        """The scope of the connection that serves this client, where that is there now. Starts nothing."""
        ...

    async def open(self) -> None:
        """Start before anybody asks. Failure is kept in the status, not raised."""
        ...

    async def about(self, client: Client) -> About:
        """What it says of itself; it is started for that where it must be. Raises `Fault`."""
        ...

    async def list(self, kind: str, client: Client) -> Items:
        """All pages of one list, raw. A server that does not know the list has an empty one. Raises `Fault`."""
        ...

    async def invoke(self, call: Call) -> Outcome:
        """One round of a call whose target is this server's own name for it; `call.reached` is told when any of it is
        sent. Raises `Fault`."""
        ...

    def begin(self, call: Call) -> Begun | None:
        """The same as far as nothing has to be waited for; None where something has, and nothing is done. Raises
        `Fault`."""
        ...

    async def tasks(self, client: Client) -> Mapping[str, tuple[Raw, Made]]:
        """The tasks of 2025-11-25 that this principal has made, as they are now, by their own ids. Raises `Fault`."""
        ...

    async def watch(self, uri: str, client: Client, kind: str = "resources") -> None:
        """Have the server tell when this resource (or task, by its id) changes, until it is `unwatch`ed as often.
        Raises `Fault`."""
        ...

    def unwatch(self, uri: str, client: Client, kind: str = "resources") -> None:
        """One client wants that no more. Nobody waits for the server to hear of it."""
        ...

    async def set_level(self, level: str, client: Client) -> None:
        """A client wants logs of this level: the server is told where it can be, and is not to be quieter."""
        ...

    async def roots_changed(self, client: Client) -> None:
        """Pass that on to a server that is this client's own."""
        ...

    def leave(self, client: Client) -> Awaitable[None] | None:
        """This client is gone: end what was held for it alone. None where nothing has to be waited for."""
        ...

    @property
    def calls(self) -> int:
        """How many requests of clients are under way or parked on this server now."""
        ...

    def works_for_others(self, whose: Client) -> bool:
        """Whether `stop` for this client may end what is under way for others: a call, or a task."""
        ...

    async def stop(self, whose: Client | None = None) -> None:
        """End what runs, and return when it is gone. Its state is `stopped`; the next use starts it again. A call under
        way fails with SERVER_FAILED, and is not sent again. `whose`: as for `status`."""
        ...

    def use(self, server: Server) -> None:
        """It is configured so from now on, which `runs_as` before."""
        ...

    def succeed(self, ends: Iterable[asyncio.Event]) -> None:
        """It takes the place of others of its id, which drain: no program of it starts before these are set, which is
        when all of them is gone."""
        ...

    async def drain(self, seconds: float, successor: Callable[[], Upstream | None] = lambda: None) -> None:
        """It is configured no more: what is under way, tasks too, may end within `seconds`, then it is closed for good.
        Calls that still come, by an old snapshot, are served until then. `successor` is what is configured by its id
        now: a call that is made anew with answers goes there, where that is by the same print."""
        ...

    async def close(self) -> None:
        """End everything that it has started, for good."""
        ...
