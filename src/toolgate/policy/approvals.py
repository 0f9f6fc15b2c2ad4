"""What people have decided, or are still to decide, on calls that ask first: records in the store.

A `StoredRequest` waits for an operator; once decided it is good for one call, and gone. A `Grant` lets a tool be called
without asking, for a while. A `ApprovalPass` is how a call was let go on that its server asks something of, so that its
next round is the same call. The rules this file keeps: what is decided is decided for one principal, one server as it
is configured, one tool and, save for grants, for these very arguments; of two who use a decision up, one does."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from toolgate.auth.unasked import ASKS_FIRST, CHANGES_SERVERS, RUNS_CODEX
from toolgate.core import jsonrpc, names, surrogates
from toolgate.core.background import whole
from toolgate.core.clock import Clock
from toolgate.state.base import Store

Lasts: TypeAlias = Literal["once", "session", "hour", "always"]
LASTS: tuple[Lasts, ...] = ("once", "session", "hour", "always")
Who: TypeAlias = Literal["client", "operator"]

HOUR = 3600.0
LONGEST_SESSION = 7 * 24 * 3600.0  # seconds; the id of a session comes never again
MOST_UNDECIDED = 32  # requests of one principal
MOST_REQUESTS = 512  # of all
LOOKED = 1.0  # seconds after which all requests are read again: other processes make and decide some, too
MOST_CALLS = 128  # of one principal that wait for what an operator decides, on few requests or on many
TOO_MANY = "too many calls are already waiting for an operator"
MOST_GRANTS = 4096
MOST_GRANTS_OF_ONE = 256  # principal
MOST_PASSAGES = 4096

_REQUESTS, _GRANTS, _PASSAGES = "approvals", "grants", "passages"


class Place(msgspec.Struct, frozen=True):
    """Whose call it is, and of what. `print` is a hash of how the server is reached, and of what it says of
    the tool: another server or tool by the same name has been approved by nobody."""

    principal: str
    server: str
    print: str
    kind: str
    target: str


def is_change(place: Place) -> bool:
    """Whether it changes which servers there are: then what is decided is decided for one call."""
    return place.server == names.OWN and place.kind == "tools" and place.target in CHANGES_SERVERS


def asks_first(place: Place) -> bool:
    """Whether it is a control tool that asks by default: where nobody has to show who they are, an operator decides."""
    return place.server == names.OWN and place.kind == "tools" and place.target in ASKS_FIRST


def runs_codex(place: Place) -> bool:
    return place.server == names.OWN and place.kind == "tools" and place.target in RUNS_CODEX


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call that an operator is to decide on. `shown` are its arguments, and `beside` what else is sent, with
    known secrets taken out; `digest` is of both as they are. `session` (hashed) is empty where there is none. Times in
    seconds since 1970. What was decided: `edited` are other arguments to call with, in JSON."""

    id: str
    place: Place
    digest: str
    shown: str
    asked: float
    until: float
    session: str = ""
    via: str = ""
    known_as: str = ""
    beside: str = "{}"
    schema: bytes = b""
    state: Literal["undecided", "allowed", "denied"] = "undecided"
    lasts: Lasts = "once"
    edited: str = ""


Shown: TypeAlias = Mapping[str, str | bytes]  # members of a `StoredRequest` that say what is to be decided


class _Waiting(msgspec.Struct, frozen=True):
    """What of a request says for whom it takes room: the rest is passed over."""

    place: Place
    until: float
    state: str = "undecided"
    asked: float = 0.0


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that may be called with any arguments. `until` None: until somebody revokes it."""

    id: str
    place: Place
    lasts: Lasts
    by: Who
    since: float
    until: float | None = None
    session: str = ""


class ApprovalPass(msgspec.Struct, frozen=True):
    """`arguments` None: those of the caller. `is_vague`: two calls that cannot be told apart were let go on in
    different ways."""

    arguments: bytes | None = None
    is_vague: bool = False


class TooMany(Exception):
    """More waits than can be kept. `str()` says of what."""


class Unfit(Exception):
    """This cannot be decided, or not so. `str()` says why."""


class Approvals:
    """All of it, for a gateway and for the command line. `on_new` hears of each request that is made
    here. Raises `NotKept` where the store takes nothing."""

    def __init__(
        self, store: Store, clock: Clock, on_new: Callable[[StoredRequest], object] = lambda _request: None
    ) -> None:
        self._on_new = on_new
        self._store = store
        self._clock = clock
        self._being_written: Counter[str] = Counter()  # requests, by principal
        self._known: dict[str, _Waiting] = {}  # by where they are: those of the last look, and those made here since
        self._looked: float | None = None
        self._calls: Counter[str] = Counter()  # that wait for an operator, by whose they are
        self._passages: OrderedDict[str, ApprovalPass] = OrderedDict()  # the store's, some of them not written yet

    # Requests.

    def find(self, place: Place, digest: str) -> StoredRequest | None:
        return _read(self._store.get(_REQUESTS, key(place, digest)), StoredRequest)

    async def ask(self, place: Place, digest: str, ttl: float, shown: Callable[[], Awaitable[Shown]]) -> StoredRequest:
        """The request for this call: the one that is there, or a new one. Raises `TooMany`, before it is made what is
        `shown`: that costs."""
        found = self.find(place, digest)
        if found:
            return found
        gives_way = self._giving_way(place.principal)
        now = self._clock.wall()
        about = {"id": _new_id(), "place": place, "digest": digest, "asked": now, "until": now + ttl}
        self._being_written[place.principal] += 1
        return await whole(self._made(about, shown, gives_way, ttl))

    async def _made(
        self, about: Mapping[str, Any], shown: Callable[[], Awaitable[Shown]], gives_way: str, ttl: float
    ) -> StoredRequest:
        """What is written is heard of also where who has asked is gone by then: the same call finds it, and is no new
        one."""
        place, where = about["place"], key(about["place"], about["digest"])
        try:
            request = msgspec.convert({**about, **await shown()}, StoredRequest)
            if gives_way:
                await self._store.delete(_REQUESTS, gives_way)
            is_ours = await self._store.compare_and_set(_REQUESTS, where, None, _bytes(request), ttl)
        finally:
            self._being_written[place.principal] -= 1
            self._being_written += Counter()  # without those that are none
        if gives_way or not is_ours:
            self._looked = None
        if is_ours:
            self._known[where] = _Waiting(place, request.until, asked=request.asked)
            self._on_new(request)
            return request
        return self.find(place, request.digest) or request

    def _giving_way(self, principal: str, anew: bool = False) -> str:
        """Where that request is which gives way to one more of this principal; empty where there is room. It is of
        whoever has most, and more than this one, what was decided of the longest ago: nobody makes room by asking for
        what was denied to itself. Raises `TooMany`."""
        known = self._look(anew)
        undecided = sum(each.place.principal == principal and each.state == "undecided" for each in known.values())
        if undecided + self._being_written[principal] >= MOST_UNDECIDED:
            raise TooMany(TOO_MANY)
        counts = Counter(each.place.principal for each in known.values()) + self._being_written
        if counts.total() < MOST_REQUESTS:
            return ""

        def has_more(each: _Waiting) -> bool:
            return counts[each.place.principal] > counts[principal]

        decided = [where for where, each in known.items() if each.state != "undecided" and has_more(each)]
        if not decided:
            raise TooMany(TOO_MANY)
        if not anew:
            return self._giving_way(principal, anew=True)  # what was used up meanwhile may have been asked for again
        return min(decided, key=lambda where: (-counts[known[where].place.principal], known[where].asked))

    def _look(self, anew: bool) -> Mapping[str, _Waiting]:
        """All requests by where they are, as they were a moment ago: to read them takes long where they are large, and
        who is refused may come again at once."""
        now = self._clock.now()
        if anew or self._looked is None or now - self._looked >= LOOKED:
            read = {where: _read(raw, _Waiting) for where, raw in self._store.items(_REQUESTS).items()}
            self._known, self._looked = {where: each for where, each in read.items() if each}, now
        wall = self._clock.wall()
        return {where: each for where, each in self._known.items() if each.until > wall}

    @contextmanager
    def waiting(self, whose: str) -> Generator[None]:
        """A call waits for an operator meanwhile. `whose` it is: see `Principal.counted_as`. Raises `TooMany`."""
        if self._calls[whose] >= MOST_CALLS:
            raise TooMany(TOO_MANY)
        self._calls[whose] += 1
        try:
            yield
        finally:
            self._calls[whose] -= 1
            if not self._calls[whose]:
                del self._calls[whose]

    async def use(self, request: StoredRequest) -> bool:
        """Use a decision up. Whether it was there to be used: somebody else may have been faster."""
        where = key(request.place, request.digest)
        is_used = await self._store.compare_and_set(_REQUESTS, where, _bytes(request), None)
        self._looked = None
        return is_used

    def requests(self) -> list[StoredRequest]:
        """All that are undecided or not used up, the oldest first."""
        known = (_read(raw, StoredRequest) for raw in self._store.items(_REQUESTS).values())
        return sorted((each for each in known if each), key=lambda each: each.asked)

    async def allow(self, request: StoredRequest, lasts: Lasts, ttl: float, edited: str = "") -> None:
        """Let it go through once within `ttl`, and others like it for as long as it `lasts`. Raises `Unfit`, and
        `TooMany`, before anything is decided."""
        if lasts != "once" and is_change(request.place):
            raise Unfit("each change of the servers needs its own decision: allow it once")
        if lasts == "session" and not request.session:
            raise Unfit("its client has no session: allow it once, for an hour or always")
        if lasts != "once":
            self._check_room_for_grant(request.place, request.session if lasts == "session" else "")
        await self._decide(request, ttl, state="allowed", lasts=lasts, edited=edited)
        if lasts != "once":
            await self._keep_grant(request.place, lasts, "operator", request.session)

    async def deny(self, request: StoredRequest, ttl: float) -> None:
        """The same call is refused for so long, and nobody is asked. Raises `Unfit`."""
        await self._decide(request, ttl, state="denied")

    async def _decide(self, request: StoredRequest, ttl: float, **how: str) -> None:
        decided = msgspec.structs.replace(request, until=self._clock.wall() + ttl, **how)
        where = key(request.place, request.digest)
        is_first = await self._store.compare_and_set(_REQUESTS, where, _bytes(request), _bytes(decided), ttl)
        self._looked = None
        if not is_first:
            raise Unfit("it was decided in the meantime or has expired")

    # Grants.

    def is_granted(self, place: Place, session: str) -> bool:
        found = [self._granted(place, "")]
        if session:
            found.append(self._granted(place, session))
        return any(found)

    def _granted(self, place: Place, session: str) -> Grant | None:
        grant = _read(self._store.get(_GRANTS, key(place, session)), Grant)
        return grant if grant and (grant.place, grant.session) == (place, session) else None

    async def grant(self, place: Place, lasts: Lasts, by: Who, session: str = "") -> None:
        """What lasts longer stays. Raises `TooMany`."""
        self._check_room_for_grant(place, session if lasts == "session" else "")
        await self._keep_grant(place, lasts, by, session)

    async def _keep_grant(self, place: Place, lasts: Lasts, by: Who, session: str) -> None:
        session = session if lasts == "session" else ""
        standing = self._granted(place, session)
        if standing and standing.lasts == "always":
            return
        now, ttl = self._clock.wall(), {"hour": HOUR, "session": LONGEST_SESSION}.get(lasts)
        until = None if ttl is None else now + ttl
        made = Grant(id=_new_id(), place=place, lasts=lasts, by=by, since=now, until=until, session=session)
        await self._store.put(_GRANTS, key(place, session), _bytes(made), ttl)

    def _check_room_for_grant(self, place: Place, session: str) -> None:
        if self._granted(place, session):
            return
        known = self.grants()
        theirs = sum(each.place.principal == place.principal for each in known)
        if len(known) >= MOST_GRANTS or theirs >= MOST_GRANTS_OF_ONE:
            raise TooMany("too many tools are allowed already: revoke some")

    def grants(self) -> list[Grant]:
        known = (_read(raw, Grant) for raw in self._store.items(_GRANTS).values())
        return sorted((each for each in known if each), key=lambda each: each.since)

    def lasting(self) -> Mapping[str, str]:
        """Whose those are that outlive sessions, by id."""
        return {each.id: each.place.principal for each in self.grants() if not each.session}

    async def revoke(self, grant: Grant) -> None:
        await self._store.delete(_GRANTS, key(grant.place, grant.session))

    # Passages.

    def let_pass(self, where: str, arguments: bytes | None, ttl: float) -> None:
        """A call was let go on and its server asks something: its next round is found by `where`."""
        approval_pass = ApprovalPass(arguments)
        standing = self.approval_pass(where)
        if standing and standing != approval_pass:
            approval_pass = ApprovalPass(is_vague=True)
        self._passages[where] = approval_pass
        self._passages.move_to_end(where)
        while len(self._passages) > MOST_PASSAGES:
            self._passages.popitem(last=False)
        written = self._store.put(_PASSAGES, where, _bytes(approval_pass), ttl)
        if isinstance(written, asyncio.Future):
            written.add_done_callback(lambda done: self._written(where, done))

    def approval_pass(self, where: str) -> ApprovalPass | None:
        return self._passages.get(where) or _read(self._store.get(_PASSAGES, where), ApprovalPass)

    def _written(self, where: str, done: asyncio.Future[None]) -> None:
        """From now on the store has it, and lets it go in time; where it takes nothing, we have it."""
        if not done.cancelled() and not done.exception():
            self._passages.pop(where, None)


def key(place: Place, *more: str) -> str:
    """Where the store has what is of this place."""
    return hashlib.sha256(jsonrpc.encode([*msgspec.structs.astuple(place), *more])).hexdigest()


def _new_id() -> str:
    return secrets.token_hex(4)


def _bytes(record: StoredRequest | Grant | ApprovalPass) -> bytes:
    return surrogates.pack(record)


Record = TypeVar("Record", StoredRequest, Grant, ApprovalPass, _Waiting)


def _read(raw: bytes | None, type: type[Record]) -> Record | None:
    """What cannot be read has not been decided."""
    try:
        return None if raw is None else surrogates.unpack(raw, type)
    except (msgspec.DecodeError, ValueError):
        return None
