"""Pins: what tools were when they were first seen or approved, and which are not that any more.

The rules this file keeps: a server's tools are trusted when it is seen for the first time, and never again without a
person; what is hidden for a reason of its own is found by comparing, never by what a server says of itself; and one
configuration's pins are no other's.

| a listed tool | is |
|---|---|
| has its pin's digest | as it was |
| has the name of a pin, and another digest | changed |
| has all of a pin but the name, and that name is listed no more | renamed |
| else | new |
| says what `poisoning` reports, and nobody has approved just that | suspicious |

What is not as it was is *pending*: told, and with `quarantine` held back, until somebody approves of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from toolgate.catalog import poisoning
from toolgate.catalog.poisoning import PoisoningSign, visible
from toolgate.catalog.prints import PRINT, Told, read_told, told_of, without_name
from toolgate.config import Config
from toolgate.core import surrogates
from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock
from toolgate.core.complaints import Complaints
from toolgate.core.services import Swap
from toolgate.core.steps import InSteps, at_once
from toolgate.state.base import NotKept, Store
from toolgate.state.latest import LatestValues
from toolgate.upstreams.bounds import little_together

log = logging.getLogger(__name__)


LONGEST_TEXT = 64 * 1024  # characters that are kept of one tool, to show what has changed
MOST_TEXT = 8 * 1024 * 1024  # of one server's
MOST_PENDING = 10_000  # tools, in all scopes of one server
MOST_SAID = 1000  # warnings that are not said again
MOST_NAMED = 10  # tools in one of them
MARK = 40  # hexadecimal digits of a mark
MOST_NEAR = 5  # new tools, and gone ones, that are compared for whether they are the same renamed
NEARNESS = 1000  # characters that are compared
PIECE = 3  # characters of the pieces in which they are
NEAR = 0.75  # the share of these that both have, where they are

PENDING = "pending"  # the space of what waits to be approved

Mode = Literal["off", "warn", "quarantine"]
Note = Callable[..., object]  # as `audit.Trail.note`


class Modes(msgspec.Struct, frozen=True):
    """What becomes of a server's tools that change, and of those that are suspicious."""

    pinning: Mode = "warn"
    descriptions: Mode = "warn"


class Pin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`at` is the time since 1970 at which it was made, `is_approved` whether a person did; `text` is what was pinned,
    or its beginning; `version` says what was (see `PRINT`), `rest` is the digest of all of it but the name."""

    digest: str
    at: float
    is_approved: bool
    text: str
    version: int = 0
    rest: str = ""


class Pending(msgspec.Struct, frozen=True, array_like=True):
    """`was` is the name under which a renamed tool is pinned."""

    digest: str
    what: Literal["changed", "new", "renamed", "unknown", ""]
    was: str
    found: tuple[PoisoningSign, ...]
    is_held: bool
    text: str
    rest: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether not all that it says is kept."""
        return len(self.text) in (0, LONGEST_TEXT)

    def __str__(self) -> str:
        said = {
            "changed": "it has changed",
            "new": "it is new",
            "renamed": f"it was {visible(self.was[:100])[:100]}",
            "unknown": "it is not known whether it was trusted",
            "": "",
        }
        what = [said[self.what]] if self.what else []
        return "; ".join([*what, *dict.fromkeys(each.what for each in self.found)])


class _Waits(NamedTuple):
    """What is pending of one scope. `whose` it is (`Principal.counted_as`), as far as is known."""

    whose: str
    pending: Mapping[str, Pending]
    size: int

    @classmethod
    def of(cls, whose: str, pending: Mapping[str, Pending]) -> _Waits:
        return cls(whose, pending, sum(len(name) + len(each.text) for name, each in pending.items()))


class _Scopes:
    """What is pending of one server by scope, the latest last."""

    def __init__(self) -> None:
        self.waits: dict[str, _Waits] = {}
        self.count = self.size = 0
        self._counts, self._sizes = Counter[str](), Counter[str]()  # by whose they are

    def put(self, scope: str, waits: _Waits) -> tuple[Sequence[str], Collection[str]]:
        """What is pending of this scope by now. Where all together is too much, the scopes of whoever has most give
        way, the oldest first; of this one, what there is no room for. The names of which others may be pending now, and
        those of them that gave way."""
        touched = [*waits.pending, *self._take(scope).pending]
        self._add(scope, waits)
        gone: set[str] = set()
        while self.count > MOST_PENDING or self.size > MOST_TEXT:
            shares = {whose: self._share(whose) for whose in self._counts}
            most = max(shares.values())
            oldest = next(each for each, known in self.waits.items() if shares[known.whose] == most)
            given = self._take(oldest)
            gone |= given.pending.keys()
            if oldest == scope:
                self._add(scope, _cut(given, MOST_PENDING - self.count, MOST_TEXT - self.size))
        return [*touched, *gone], gone

    def together(self) -> dict[str, Pending]:
        found = dict[str, Pending]()
        for each in self.waits.values():
            found.update(each.pending)
        return found

    def _add(self, scope: str, waits: _Waits) -> None:
        if waits.pending:
            self.waits[scope] = waits
            self._count(waits, 1)

    def _take(self, scope: str) -> _Waits:
        waits = self.waits.pop(scope, _Waits("", {}, 0))
        self._count(waits, -1)
        return waits

    def _count(self, waits: _Waits, times: int) -> None:
        many, size = times * len(waits.pending), times * waits.size
        self.count, self.size = self.count + many, self.size + size
        self._counts[waits.whose] += many
        self._sizes[waits.whose] += size
        if not self._counts[waits.whose]:
            del self._counts[waits.whose], self._sizes[waits.whose]

    def _share(self, whose: str) -> float:
        """In hundredths: among those that are much alike, age decides."""
        return round(max(self._counts[whose] / MOST_PENDING, self._sizes[whose] / MOST_TEXT), 2)


class Unreadable(Exception):
    """What is pinned cannot be read: it is not known whether there is anything. `str()` says why."""


def _read_pins(raw: bytes) -> dict[str, Pin]:
    try:
        return surrogates.unpack(raw, dict[str, Pin])
    except (msgspec.DecodeError, ValueError) as error:
        raise Unreadable(f"its stored pin is damaged: {error}") from None


async def trouble(config: Config, store: Store) -> str:
    """Why tools that are not pinned are held back, where there is quarantine; empty where all is well."""
    if "quarantine" not in (config.guard.pinning, *(server.pinning for server in config.servers)):
        return ""
    try:
        await store.put("pins probe", "", os.urandom(8), ttl=1.0)
    except NotKept as error:
        return f"nothing can be stored: {error}"
    return store.problem


class StoredPins:
    """Pins and pending tools in the store, for the servers of one configuration."""

    def __init__(self, store: Store, source: str) -> None:
        self.store = store
        self._which = hashlib.sha256(os.path.abspath(source).encode()).hexdigest()[:12] if source else "-"

    def key(self, server: str) -> str:
        return f"{self._which}/{server}"

    def pins(self, server: str) -> dict[str, Pin] | None:
        """By name; None where nothing of the server is pinned. Raises `Unreadable`: that is not the same."""
        raw = self.store.get("pins", self.key(server))
        if raw is None and self.store.problem:
            raise Unreadable(self.store.problem)
        return None if raw is None else _read_pins(raw)

    def pending(self, server: str) -> dict[str, Pending]:
        raw = self.packed_pending(server)
        return {} if raw is None else self.unpacked_pending(raw)

    def packed_pending(self, server: str) -> bytes | None:
        return self.store.get(PENDING, self.key(server))

    @staticmethod
    def unpacked_pending(raw: bytes) -> dict[str, Pending]:
        """It may take long, and go on in any thread."""
        try:
            return surrogates.unpack(raw, dict[str, Pending])
        except (msgspec.DecodeError, ValueError):
            return {}  # it is made again from the next list

    def first(self, server: str, pins: Mapping[str, Pin]) -> Awaitable[bool]:
        return self.store.compare_and_set("pins", self.key(server), None, surrogates.pack(pins))

    async def renew(self, server: str, renewed: Mapping[str, Pin]) -> None:
        """Keep these in place of those of an older version, unless they are others by now."""
        raw = self.store.get("pins", self.key(server))
        try:
            kept = _read_pins(raw) if raw else {}
        except Unreadable:
            return
        old = {name: pin for name, pin in renewed.items() if name in kept and kept[name].version < pin.version}
        if old:
            await self.store.compare_and_set("pins", self.key(server), raw, surrogates.pack(kept | old))

    def set_pending(self, server: str, pending: Mapping[str, Pending]) -> Awaitable[None]:
        if not pending:
            return self.store.delete(PENDING, self.key(server))
        return self.store.put(PENDING, self.key(server), surrogates.pack(pending))

    async def approve(self, server: str, tools: Collection[str], seen: str, now: float) -> list[str] | None:
        """Pin these tools (none: all) as they are pending now; their names. None where what is pending is not what was
        `seen` (see `mark`; empty: whatever it is)."""
        pending = self.pending(server)
        if seen and mark(pending) != seen:
            return None
        approved = {name: each for name, each in pending.items() if not tools or name in tools}
        new = {name: Pin(each.digest, now, True, each.text, PRINT, each.rest) for name, each in approved.items()}
        gone = {each.was for each in approved.values() if each.was} - new.keys()
        while True:
            before = self.store.get("pins", self.key(server))
            try:
                kept = {} if before is None else _read_pins(before)
            except Unreadable:
                kept = dict[str, Pin]()
            after = {name: pin for name, pin in kept.items() if name not in gone} | new
            if await self.store.compare_and_set("pins", self.key(server), before, surrogates.pack(after)):
                break
        await self.set_pending(server, {name: each for name, each in pending.items() if name not in approved})
        return list(approved)


def mark(pending: Mapping[str, Pending]) -> str:
    """By which to say: what I have looked at. Long enough that no server finds two definitions with the same one."""
    seen = sorted((name, each.digest) for name, each in pending.items())
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:MARK]


class Pins:
    """What a running gateway knows of them. `note` notes what goes into quarantine, and what comes out of it without
    having been approved."""

    def __init__(
        self, store: Store, clock: Clock, source: str, note: Note, complaints: Complaints | None = None
    ) -> None:
        self._note = note
        self._complaints = complaints or Complaints(clock)
        self._records = StoredPins(store, source)
        self._clock = clock
        self._modes: Mapping[str, Modes] = {}
        self._pins: dict[str, dict[str, Pin]] = {}
        self._pending: dict[str, dict[str, Pending]] = {}  # of all its scopes, as it is stored
        self._scopes: dict[str, _Scopes] = {}  # by server
        self._read: dict[str, ReadTools] = {}  # by server: the last list
        self._said: set[tuple[str, str, str]] = set()
        self._renewing = BackgroundTasks()
        self._to_keep = LatestValues(store, clock)  # what is pending
        self._unknown: dict[str, str] = {}  # by server: why it is not known what was trusted
        self.on_change: Callable[[], object] = lambda: None  # what was shown as trusted is held back after all

    def prepared(self, config: Config) -> Swap:
        guard = config.guard
        modes = {each.id: Modes(each.pinning or guard.pinning, guard.descriptions) for each in config.servers}

        def swap() -> None:
            self._modes = modes
            for known in (self._pins, self._pending, self._scopes, self._read):
                for server in known.keys() - modes.keys():
                    del known[server]

        return swap

    def read_again(self) -> None:
        """Somebody has approved of something."""
        self._pins.clear()
        self._pending.clear()
        self._to_keep.forget()  # or what was approved would be pending again; the rest is, when it is judged anew
        self._scopes.clear()
        self._unknown.clear()

    async def close(self) -> None:
        """What is pending is on its way to the store then."""
        await self._to_keep.close()

    def holds(self, server: str) -> bool:
        """Whether any of a server's tools may be in quarantine."""
        rules = self._modes.get(server, _OFF)
        return "quarantine" in (rules.pinning, rules.descriptions)

    def judge(self, server: str, scope: str, tools: Mapping[str, Raw], whose: str = "") -> Mapping[str, str] | None:
        """Which of these tools, as their server lists them, are in quarantine, and why; None where none can be. `whose`
        the scope is: see `Principal.counted_as`; where that is not known, it is for itself."""
        rules = self._modes.get(server, _OFF)
        if rules == _OFF:
            return None
        listed = self._listed(server, tools)
        pending = self._compared(server, listed, rules)
        self._keep(server, scope, _Waits.of(whose or scope, pending))
        self._say(server, pending)
        if not self.holds(server):
            return None
        return {name: str(each) for name, each in pending.items() if each.is_held}

    def read(self, server: str, tools: Mapping[str, Raw]) -> InSteps[ReadTools | None]:
        """What is to be known of tools as they are listed, which may take long; None where nothing is. It may go on in
        any thread. What is as it was in the last list is not read again."""
        if self._modes.get(server, _OFF) == _OFF:
            return None
        before = self._read.get(server, {})
        known = {name: before[name] for name, raw in tools.items() if name in before and before[name][0] == raw}
        new = {name: raw for name, raw in tools.items() if name not in known}
        found = list[_Listed]()
        for few in little_together(new.values()):
            found += _all_listed(few)
            yield
        read = dict(zip(new, zip(new.values(), found, strict=True), strict=True))
        return {name: known.get(name) or read[name] for name in tools} if known else read

    def was_read(self, server: str, read: ReadTools) -> None:
        """So the next look at these tools is short."""
        if server in self._modes:
            self._read[server] = read

    def unread(self, server: str, tools: Mapping[str, Raw]) -> int:
        """How many bytes of these tools are to be read before they can be judged."""
        before = self._read.get(server, {})
        return sum(len(raw) for name, raw in tools.items() if name not in before or before[name][0] != raw)

    def _listed(self, server: str, tools: Mapping[str, Raw]) -> dict[str, _Listed]:
        found = self._read[server] = at_once(self.read(server, tools)) or {}
        return {name: each for name, (_, each) in found.items()}

    def _compared(self, server: str, listed: Mapping[str, _Listed], rules: Modes) -> dict[str, Pending]:
        pins = self._pins_of(server, listed)
        new = len(listed.keys() - pins.keys())
        gone = {name: pin for name, pin in pins.items() if name not in listed} if 0 < new <= MOST_NEAR else {}
        pending: dict[str, Pending] = {}
        left = MOST_TEXT
        self._renew(server, pins, listed)
        for name, each in listed.items():
            pin = pins.get(name)
            is_same = pin is not None and pin.digest == each.digest
            what, was = "", ""
            if rules.pinning != "off" and not is_same:
                what, was = ("changed", "") if pin else _where_from(each, gone)
                what = "unknown" if server in self._unknown else what
            is_approved = is_same and pin is not None and pin.is_approved
            found = () if rules.descriptions == "off" or is_approved else each.signs
            if what or found:
                is_held = bool(
                    (what and rules.pinning == "quarantine") or (found and rules.descriptions == "quarantine")
                )
                text, left = each.text if left > 0 else "", left - len(each.text)
                pending[name] = Pending(each.digest, what, was, found, is_held, text, each.rest)  # type: ignore[arg-type]
        return pending

    def _pins_of(self, server: str, listed: Mapping[str, _Listed]) -> dict[str, Pin]:
        """At first sight what is listed is pinned. A server that lists nothing has not been seen. Where there is
        quarantine, and it cannot be told whether this is the first sight, nothing is trusted."""
        if server in self._unknown:
            return {}
        if server not in self._pins:
            try:
                known = self._records.pins(server)
            except Unreadable as why:
                if self._modes[server].pinning == "quarantine":
                    return self._not_known(server, str(why))
                known = None
            if known is None:
                if not listed:
                    return {}
                now, left = self._clock.wall(), MOST_TEXT
                known = dict[str, Pin]()
                for name, each in listed.items():
                    known[name] = Pin(each.digest, now, False, each.text if left > 0 else "", PRINT, each.rest)
                    left -= len(each.text)
                asyncio.ensure_future(self._records.first(server, known)).add_done_callback(
                    lambda kept: self._was_first(server, kept)
                )
            self._pins[server] = known
        return self._pins[server]

    def _renew(self, server: str, pins: dict[str, Pin], listed: Mapping[str, _Listed]) -> None:
        """Make pins of an older version anew, where what they have pinned is as it was."""
        renewed = {
            name: Pin(each.digest, pin.at, pin.is_approved, each.text if pin.text else "", PRINT, each.rest)
            for name, each in listed.items()
            if (pin := pins.get(name)) and pin.version < PRINT and pin.digest == each.older
        }
        if renewed:
            pins.update(renewed)
            self._renewing.start(self._records.renew(server, renewed), "renew pins")

    def _not_known(self, server: str, why: str) -> dict[str, Pin]:
        if server not in self._unknown:
            self._unknown[server] = why
            log.warning("Tools of %s are in quarantine, because it is not known which were trusted: %s", server, why)
            self._note("pins.unreadable", server=server, reason=why)
        return {}

    def _was_first(self, server: str, kept: asyncio.Future[bool]) -> None:
        """What is pinned nowhere would be trusted anew at each start; and another gateway may have been first."""
        if kept.cancelled() or self._modes.get(server, _OFF).pinning != "quarantine":
            return
        if error := kept.exception():
            self._not_known(server, f"nothing can be stored: {error}")
        elif kept.result():
            return
        self._pins.pop(server, None)
        self.on_change()

    def _keep(self, server: str, scope: str, waits: _Waits) -> None:
        """For the command line, and the audit. Of a server that lists each principal its own, nothing is over because
        another's list is as it was. What gives way is held all the same: each list is judged by itself."""
        if server not in self._pending:
            self._pending[server] = self._records.pending(server)
        before = self._pending[server]
        if server not in self._scopes:
            self._scopes[server] = _Scopes()
            self._scopes[server].put("", _Waits.of("", before))
        touched, gone = self._scopes[server].put(scope, waits)
        after = self._scopes[server].together()
        if after != before:
            self._pending[server] = after
            self._keep_pending(server, after, self._scopes[server].size)
            now = {name: after[name] for name in touched if name in after}
            known = {name: before[name] for name in touched if name in before and (name in now or name not in gone)}
            self._note_quarantine(server, _held(known), _held(now))

    def _keep_pending(self, server: str, pending: Mapping[str, Pending], size: int) -> None:
        key = self._records.key(server)
        if pending:
            self._to_keep.put(PENDING, key, size, partial(surrogates.pack, pending))
        else:
            self._to_keep.delete(PENDING, key)

    def _note_quarantine(self, server: str, before: Mapping[str, Pending], after: Mapping[str, Pending]) -> None:
        def note(event: str, tools: Mapping[str, str]) -> None:
            named = {name[:100]: why for name, why in list(tools.items())[:MOST_NAMED]}
            more = {"more": len(tools) - len(named)} if len(tools) > len(named) else {}
            if tools:
                self._note(event, server=server, tools=named, **more)

        known = {(name, each.digest) for name, each in before.items()}
        note("pins.held", {name: str(each) for name, each in after.items() if (name, each.digest) not in known})
        note(
            "pins.released",
            {name: "it matches its pin again, or no longer exists" for name in before if name not in after},
        )

    def _say(self, server: str, pending: Mapping[str, Pending]) -> None:
        fresh = [name for name, each in pending.items() if (server, name, each.digest) not in self._said]
        if not fresh or not self._complaints.takes(server):  # it is said later then, if it is so still
            return
        if len(self._said) > MOST_SAID:
            self._said.clear()
        self._said.update((server, name, pending[name].digest) for name in fresh)
        told = [
            f"{visible(name[:100])[:100]} ({pending[name]}{', in quarantine' if pending[name].is_held else ''})"
            for name in fresh[:MOST_NAMED]
        ]
        told += [f"and {len(fresh) - MOST_NAMED} more"] if len(fresh) > MOST_NAMED else []
        log.warning("Tools of %s need review: %s. Run: toolgate pins diff %s", server, ", ".join(told), server)


_OFF = Modes("off", "off")


def _held(pending: Mapping[str, Pending]) -> dict[str, Pending]:
    return {name: each for name, each in pending.items() if each.is_held}


def _cut(waits: _Waits, count: int, size: int) -> _Waits:
    """The first of these, as far as there is room for so many tools and characters."""
    kept: dict[str, Pending] = {}
    for name, each in waits.pending.items():
        size -= len(name) + len(each.text)
        if len(kept) == count or size < 0:
            break
        kept[name] = each
    return _Waits.of(waits.whose, kept)


class _Listed(NamedTuple):
    """A tool as it is listed now. `text` is what of it is pinned; `older` what version 0 would say of it; `rest` is
    there where it says more than a name and a schema."""

    digest: str
    older: str
    text: str
    rest: str
    signs: tuple[PoisoningSign, ...]


def _all_listed(tools: Sequence[Raw]) -> list[_Listed]:
    told = [told_of(raw) for raw in tools]
    signs = poisoning.of_each(zip(tools, [each.is_read for each in told], strict=True))
    return [_Listed(*_digests(each), found) for each, found in zip(told, signs, strict=True)]


def _digests(told: Told) -> tuple[str, str, str, str]:
    digest = _digest(told.whole)
    older = digest if told.before is told.whole else _digest(told.before)
    return digest, older, told.whole[:LONGEST_TEXT], _digest(told.rest) if told.rest else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


ReadTools: TypeAlias = dict[str, tuple[Raw, _Listed]]
"""By name, as they were read from one list."""


def _where_from(tool: _Listed, gone: Mapping[str, Pin]) -> tuple[Literal["new", "renamed"], str]:
    """Whether a tool without a pin is one that was pinned under another name; which. `gone` are the pins without it."""
    others: Mapping[str, Pin] = gone if tool.rest else {}
    if same := next((name for name, pin in others.items() if pin.rest == tool.rest), ""):
        return "renamed", same
    if not 0 < len(others) <= MOST_NEAR:
        return "new", ""
    own = _description(tool.text)
    near = (name for name, pin in others.items() if _is_near(own, _description(pin.text)))
    return ("renamed", found) if (found := next(near, "")) else ("new", "")


def _is_near(own: object, other: object) -> bool:
    if not isinstance(own, str) or not isinstance(other, str):
        return False
    mine, its = _pieces(own), _pieces(other)
    return 2 * (mine & its).total() > NEAR * (mine.total() + its.total())


def _pieces(text: str) -> Counter[str]:
    """How often each stands in the beginning of a text: to compare these takes the same time whatever it says."""
    return Counter(text[start : start + PIECE] for start in range(min(len(text), NEARNESS)))


def _description(text: str) -> object:
    """Of a tool as it is pinned, where that is whole."""
    return without_name(read_told(text)).get("description")
