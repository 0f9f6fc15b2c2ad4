"""The protocols that rooms share without knowing each other. Implementations are injected by `app`.

`Clock` is the only source of time, so that tests neither sleep nor wait. `Upstream` is what every kind of server is
to the gateway; `View` is what a surface may know of what they offer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Raw

from toolgate.config import Server, showing
from toolgate.model import Call, Client, Fault, Hints, Made, Outcome, Principal, Words
from toolgate.search import Hit


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time, in seconds."""

    def now(self) -> float:
        """Seconds that only grow; for measuring."""
        ...

    def wall(self) -> float:
        """Seconds since 1970; for what is shown, stored or sealed."""
        ...

    def call_later(self, seconds: float, then: Callable[[], object]) -> Timer: ...

    async def sleep(self, seconds: float) -> None: ...

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Like `asyncio.timeout`, by this clock: raises `TimeoutError` at the end of its block."""
        ...


class SystemClock:
    """The clock of the running event loop."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def call_later(self, seconds: float, then: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, then)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        return asyncio.timeout(seconds)


class Items(msgspec.Struct, frozen=True):
    """One whole list of one server. `ttl` in seconds is the server's own word on how long it holds, None where it gave
    none; `is_public`: it says that the list is the same for everybody (spec: server/utilities/caching)."""

    raw: tuple[Raw, ...] = ()
    ttl: float | None = None
    is_public: bool = False


class About(msgspec.Struct, frozen=True):
    """What a server says of itself when it is first talked with."""

    capabilities: Mapping[str, Any] = {}
    instructions: str = ""


State: TypeAlias = Literal["configured", "starting", "ready", "busy", "failed", "stopped"]
StoppedBy: TypeAlias = Literal["", "idle", "pool", "close", "ephemeral"]


class Status(msgspec.Struct, frozen=True):
    """How a server is, for people. `busy` is ready with calls under way. `hint` is what to do about the error, `stderr`
    the last 64 KiB of it, and `words` what of that belongs to the error and the hint. `revision` is the protocol
    revision that it was found to speak. `stopped_by` is why it is stopped: nobody called, others needed its seat in the
    pool, somebody said so, or it is up for each call only."""

    state: State = "configured"
    error: str = ""
    hint: str = ""
    pid: int | None = None
    started: float | None = None  # seconds since 1970
    stderr: str = ""
    revision: str = ""
    calls: int = 0  # under way or parked
    stopped_by: StoppedBy = ""
    words: Words | None = None

    def told(self, to_others: bool = False) -> Status:
        """As it is shown to who may read the server's stderr, or to others."""
        if to_others:
            return msgspec.structs.replace(self, stderr="", words=None)
        if not self.words:
            return self
        error, hint = self.words.added(self.error, self.hint)
        return msgspec.structs.replace(self, error=error, hint=hint, words=None)


class Upstream(Protocol):
    """One configured thing that has tools. It starts by itself when it is first needed."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    def scope(self, client: Client) -> str:
        """Whose connection serves this client; clients with the same answer see the same lists."""
        ...

    def status(self) -> Status:
        """How it is now. Starts nothing, and never waits."""
        ...

    def is_up(self, client: Client) -> bool:
        """Whether the connection that serves this client is there now. Starts nothing."""
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
        """One leg of a call whose target is this server's own name for it. Raises `Fault`."""
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

    async def leave(self, client: Client) -> None:
        """This client is gone: end what was held for it alone."""
        ...

    @property
    def calls(self) -> int:
        """How many requests of clients are under way or parked on this server now."""
        ...

    async def stop(self) -> None:
        """End what runs, and return when it is gone. Its state is `stopped`; the next use starts it again. A call under
        way fails with SERVER_FAILED, and is not sent again."""
        ...

    async def drain(self, seconds: float) -> None:
        """It is configured no more: what is under way may end within `seconds`, then it is closed for good. Calls that
        still come, by an old snapshot, are served until then."""
        ...

    async def close(self) -> None:
        """End everything that it has started, for good."""
        ...


class Refusal(msgspec.Struct, frozen=True):
    """How a server refused a request for what it was shown: the HTTP status, its `WWW-Authenticate`, and the value of
    `Authorization` that it had been shown, empty for none."""

    status: int
    challenge: str = ""
    shown: str = ""


class Badge(Protocol):
    """What one server is shown on one connection."""

    async def shown(self) -> str:
        """The value of `Authorization`; empty where nothing is known yet. Raises `Fault`."""
        ...

    async def refused(self, refusal: Refusal) -> str:
        """Another value to try. Raises `Fault`: SIGN_IN_REQUIRED where a person has to do something about it."""
        ...


class Credentials(Protocol):
    """How the gateway shows servers who it is, where their configuration has `auth`."""

    def badge(self, server: Server, principal: str) -> Badge:
        """For connections to a server that serve one principal."""
        ...

    async def settled(self, server: str, principal: str, seconds: float) -> None:
        """Return when a principal has signed in at a server where it was asked to, or after so many seconds."""
        ...


class Offered(msgspec.Struct, frozen=True):
    """A sign-in as its page shows it: at which server, whose host and authorization server these are, for which
    principal. `confirm` is what comes back with the page's form."""

    server: str
    host: str
    authority: str
    client: str
    scopes: tuple[str, ...]
    confirm: str


class Begun(msgspec.Struct, frozen=True):
    """Where a browser goes to sign in, and what it must hold when it is back."""

    url: str
    cookie: str


class SignIns(Protocol):
    """The sign-ins that are under way, as the pages for them need it."""

    def find(self, id: str, /) -> Offered | None:
        """One that is not begun yet, by the id of its link."""
        ...

    async def begin(self, id: str, confirm: str, /) -> Begun | None:
        """Begin it, once. None where there is none, or the form was not that of its page."""
        ...

    async def finish(self, answer: Mapping[str, str], cookie: str, path: str, /) -> str:
        """What the authorization server's answer comes to: the server's name. `path` is where it came. Raises
        `Fault`."""
        ...

    def document(self) -> bytes | None:
        """Who the gateway is to authorization servers that fetch it; None where they could not."""
        ...

    @property
    def is_secure(self) -> bool:
        """Whether browsers come by https."""
        ...


class Change(msgspec.Struct, frozen=True):
    """How a tool that an operator has changed leads back to its server's own. `renamed` are the server's names of
    parameters by those that callers know; `refused` is what no caller may give; `defaults` and `fixed` are arguments
    by the server's names."""

    own: str
    renamed: Mapping[str, str] = {}
    refused: frozenset[str] = frozenset()
    defaults: Mapping[str, Raw] = {}
    fixed: Mapping[str, Raw] = {}

    @property
    def touches_arguments(self) -> bool:
        return bool(self.renamed or self.refused or self.defaults or self.fixed)


class Shelf(msgspec.Struct):
    """One list of one server: its items by the names (or URIs) that they are shown under, raw. `until` is the time (of
    `Clock.now`) to which the server itself lets it be kept, None where it said nothing. `memo` keeps what is derived
    of it. Where overlays change a server's tools, `listed` is what it lists itself, `changes` lead back to that, by
    shown names, and `warnings` say what of the overlays is in vain. `held` are tools in quarantine, by the server's own
    names, and why; `whole` is the shelf as it would be shown with them, for calls that are to be refused for that."""

    items: Mapping[str, Raw]
    fetched: float = 0.0
    until: float | None = None
    is_public: bool = False
    memo: dict[str, Any] = {}
    listed: Mapping[str, Raw] | None = None
    changes: Mapping[str, Change] = {}
    warnings: tuple[str, ...] = ()
    held: Mapping[str, str] = {}
    whole: Shelf | None = None

    @property
    def is_overlaid(self) -> bool:
        return self.listed is not None

    @property
    def own(self) -> Mapping[str, Raw]:
        """The items as their server lists them, by its own names."""
        return self.items if self.listed is None else self.listed


class View(Protocol):
    """What one client may see: the servers that its route permits, and what is known of them now."""

    @property
    def servers(self) -> Mapping[str, str]:
        """Their configured names by id, in the order of the configuration."""
        ...

    @property
    def activated(self) -> Collection[str]:
        """The tools, in the surface's names, that the client has found and wants to see."""
        ...

    def shelf(self, server: str, kind: str, /) -> Shelf | None:
        """One list of one server; None where it is not known."""
        ...

    @property
    def pending(self) -> Collection[tuple[str, str]]:
        """The (server, kind) that did not come in time, and are still being fetched."""
        ...

    def fault(self, server: str, kind: str, /) -> Fault | None:
        """Why it is not, where fetching it has failed."""
        ...

    def permits(self, kind: str, name: str, hints: Hints, /) -> bool:
        """Whether the client may use this of the gateway's own."""
        ...


class Card(msgspec.Struct, frozen=True):
    """What clients may know of a server's configuration. `told` is what of it may be shown to people, without
    secrets."""

    id: str
    name: str
    type: str
    description: str
    criticality: str
    told: Mapping[str, Any] = {}


def card(server: Server) -> Card:
    """`__rich_repr__` is what of a server's configuration may be shown."""
    told = {name: value for name, value in server.__rich_repr__() if name}
    if "args" in told:
        told["args"] = showing.arguments(server.args, server.private_args)
    return Card(server.id, server.name, server.type, server.description, server.criticality, told)


class House(msgspec.Struct, frozen=True):
    """The gateway as a whole. `wall` and `started` in seconds since 1970; `port` is None where it does not listen;
    `problem` is what is wrong with the configuration as it stands now, where an older one is served; `source` is its
    file; `project` the id of the project that it was started in, if any."""

    wall: Callable[[], float]
    started: float
    version: str
    pid: int
    port: Callable[[], int | None]
    problem: Callable[[], str]
    source: str = ""
    project: str | None = None


class Editor(Protocol):
    """Changes the configuration: what is added this way is kept apart from what people write."""

    async def add(self, name: str, table: Mapping[str, Any], by: Principal, /) -> str:
        """Add a server, in the words of the configuration; its id. Raises `Fault`."""
        ...

    async def remove(self, name: str, by: Principal, /) -> None:
        """Raises `Fault`."""
        ...

    async def read_again(self) -> None:
        """Serve the configuration as it stands in its files now. Raises `Fault`."""
        ...


class Realm(Protocol):
    """What one client may see of the gateway on its route, and do there: what control tools work by."""

    @property
    def client(self) -> Client: ...

    @property
    def house(self) -> House: ...

    @property
    def servers(self) -> Mapping[str, Card]:
        """Those that the client may use, by id, in the order of the configuration."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether the client may see everything."""
        ...

    @property
    def names(self) -> Mapping[str, str]:
        """Their configured names by id."""
        ...

    @property
    def disabled(self) -> Mapping[str, str]:
        """Names, by id, of servers that are configured and never started, as far as the client may see them."""
        ...

    def status(self, server: str, /) -> Status: ...

    def known(self, server: str, kind: str, /) -> Shelf | None:
        """A list as it is known now. Starts nothing."""
        ...

    async def lists(self, wanted: Sequence[tuple[str, str]], /) -> View:
        """A view in which these (server, kind) are there, failed, or pending after the list timeout."""
        ...

    @property
    def search_mode(self) -> str:
        """How `search_tools` searches where its caller does not say."""
        ...

    async def search(
        self,
        query: str,
        *,
        servers: Sequence[str],
        kinds: Sequence[str] = ("tools",),
        limit: int = 10,
        mode: str = "bm25",
    ) -> Sequence[Hit]:
        """The best hits among what is known. Raises `Fault` where the mode or the query cannot be served."""
        ...

    def kept(self, uri: str, /) -> Mapping[str, Any]:
        """What was cut of a result, as `resources/read` answers it. Raises `Fault`."""
        ...

    def named(self, server: str, kind: str, name: str, /) -> str:
        """A server's own name or URI as the client's surface has it."""
        ...

    def activate(self, tools: Sequence[str], /) -> None:
        """Have these (in the surface's names) shown in the lists of the client's session, if it has one."""
        ...

    async def stop(self, server: str, /) -> None:
        """End what runs of it; its next use starts it again."""
        ...

    async def add(self, name: str, table: Mapping[str, Any], /) -> str:
        """Configure another server; its id. Raises `Fault` where it must not be, or cannot."""
        ...

    async def remove(self, name: str, /) -> None:
        """Take a server that was added out of the configuration. Raises `Fault`."""
        ...


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
