"""What was too large to be shown, kept for a while, to be read in ranges as a resource `mcp://results/{id}`.

The rules this file keeps: what one principal's calls gave at one path, nobody else can read, or learn that it exists,
nor can it elsewhere; ranges that are read in turn give the whole back, byte by byte; a range costs what it is long;
everything is bounded, and of whoever has the most, what was least recently read goes first.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from toolgate.auth import access
from toolgate.config import Config
from toolgate.core import surrogates
from toolgate.core.clock import Clock, Timer
from toolgate.core.fault import Fault
from toolgate.core.model import Client, Made
from toolgate.core.services import Swap, sets
from toolgate.policy.places import Places

PREFIX = access.KEPT
RANGE_KEY = "toolgate/range"  # of the `_meta` of what is read
AT_ONCE = 64 * 1024  # bytes
LEAST = 64  # any character fits
LINES = 200  # of a range that is proposed
_ASKED = re.compile(r"(lines|bytes|chars)=(\d{1,15})(-(\d{1,15})?)?")


class Source(NamedTuple):
    """The server, and what of it was called."""

    server: str
    made: Made


_NOWHERE = Source("", Made("", ""))


class Bounds(msgspec.Struct, frozen=True):
    """Bytes and numbers of what is kept, and for how many seconds."""

    bytes: int = 256 * 1024 * 1024
    bytes_of_one: int = 64 * 1024 * 1024  # of one principal's
    count: int = 4096
    count_of_one: int = 512
    ttl: float = 3600.0


class _Overflow(msgspec.Struct, frozen=True):
    """`owner` may read it at `path`, and it is counted as `counted_as` says; `places` are those of a text."""

    owner: str
    path: str
    counted_as: str
    data: bytes
    places: Places | None
    mime: str
    until: float
    source: Source


class Range(msgspec.Struct, frozen=True):
    """Of units that are counted from `base` on, those from `start` to before `end`, of `total`: as they were found,
    and what part of the bytes they are."""

    unit: str
    base: int
    start: int
    end: int
    total: int
    bytes: slice


class Later:
    """What is to be kept in a store that no thread may touch."""

    def __init__(self, store: OverflowStore, until: float, room: int) -> None:
        self.at_once = store.at_once
        self._store = store
        self._until = until
        self._room = room
        self._kept: list[tuple[str, _Overflow]] = []

    def keep(self, client: Client, whole: str | bytes, mime: str, source: Source = _NOWHERE) -> str:
        """As `OverflowStore.keep`."""
        data = surrogates.shown(whole).encode() if isinstance(whole, str) else whole
        if len(data) > self._room:
            return ""
        id = secrets.token_urlsafe(16)
        places = Places(data) if isinstance(whole, str) else None
        whose = client.principal
        overflow = _Overflow(whose.id, client.path, whose.counted_as, data, places, mime, self._until, source)
        self._kept.append((id, overflow))
        return PREFIX + id

    def done(self) -> None:
        for id, overflow in self._kept:
            self._store.take(id, overflow)


class _Share:
    """What is kept of one principal."""

    def __init__(self) -> None:
        self.ids: OrderedDict[str, None] = OrderedDict()  # least recently read first
        self.bytes = 0


def at_once(config: Config) -> int:
    """How many bytes of what is kept one reply may have: it keeps to the limits of results, too."""
    limits = config.limits
    return min(AT_ONCE, limits.result_limit or AT_ONCE, 4 * limits.result_tokens if limits.result_tokens else AT_ONCE)


class OverflowStore:
    """`at_once`: how many bytes one reply may have."""

    def __init__(self, clock: Clock, at_once: int = AT_ONCE, bounds: Bounds | None = None) -> None:
        self.at_once = max(at_once, LEAST)
        self._clock = clock
        self._bounds = bounds or Bounds()
        self._kept: dict[str, _Overflow] = {}
        self._shares: dict[str, _Share] = {}  # by whose they are
        self._bytes = 0
        self._timer: Timer | None = None

    def prepared(self, config: Config) -> Swap:
        return sets(self, at_once=max(at_once(config), LEAST))

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, client: Client, whole: str | bytes, mime: str, source: Source = _NOWHERE) -> str:
        """The URI to read it by; empty where it is larger than everything that one principal may have here."""
        later = self.later()
        uri = later.keep(client, whole, mime, source)
        later.done()
        return uri

    def later(self) -> Later:
        """For a thread: what it keeps is here when it is `done`."""
        return Later(self, self._clock.now() + self._bounds.ttl, min(self._bounds.bytes_of_one, self._bounds.bytes))

    def take(self, id: str, overflow: _Overflow) -> None:
        self._add(id, overflow)
        self._make_room(overflow)
        self._timer = self._timer or self._clock.call_later(self._bounds.ttl, self._sweep)

    def knows(self, client: Client, uri: str) -> bool:
        """Whether this is the URI, with or without a range, of something that is kept for this client."""
        return self._find(client, uri.partition("?")[0]) is not None

    def source(self, client: Client, uri: str) -> Source | None:
        """What gave that which is kept for this client under a URI."""
        overflow = self._find(client, uri.partition("?")[0])
        return overflow.source if overflow else None

    def read(self, client: Client, uri: str) -> dict[str, Any]:
        """The result of `resources/read`. Raises `Fault`."""
        address, _, query = uri.partition("?")
        overflow = self._find(client, address)
        if not overflow:
            raise not_kept(uri)
        self._shares[overflow.counted_as].ids.move_to_end(address.removeprefix(PREFIX))
        if not query:
            return _contents(uri, overflow, self._whole(overflow, address), {})
        found = self._range(overflow, address, query)
        return _contents(uri, overflow, overflow.data[found.bytes], {"_meta": {RANGE_KEY: _told(found, address)}})

    def close(self) -> None:
        self._kept.clear()
        self._shares.clear()
        self._bytes = 0
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _find(self, client: Client, address: str) -> _Overflow | None:
        overflow = self._kept.get(address.removeprefix(PREFIX)) if address.startswith(PREFIX) else None
        if not overflow or (overflow.owner, overflow.path) != (client.principal.id, client.path):
            return None
        return overflow if overflow.until > self._clock.now() else None

    def _make_room(self, overflow: _Overflow) -> None:
        """For this one, which is the last of its share and stays."""
        most, mine = self._bounds, self._shares[overflow.counted_as]
        while mine.bytes > most.bytes_of_one or len(mine.ids) > most.count_of_one:
            self._drop(next(iter(mine.ids)))
        size = len(overflow.data)
        while self._bytes > most.bytes:
            self._drop_of_the(max(self._shares.values(), key=lambda share: share.bytes - size * (share is mine)))
        while len(self._kept) > most.count:
            self._drop_of_the(max(self._shares.values(), key=lambda share: len(share.ids) - (share is mine)))

    def _drop_of_the(self, greatest: _Share) -> None:
        self._drop(next(iter(greatest.ids)))

    def _add(self, id: str, overflow: _Overflow) -> None:
        self._kept[id] = overflow
        share = self._shares.setdefault(overflow.counted_as, _Share())
        share.ids[id] = None
        share.bytes += len(overflow.data)
        self._bytes += len(overflow.data)

    def _drop(self, id: str) -> None:
        overflow = self._kept.pop(id)
        share = self._shares[overflow.counted_as]
        del share.ids[id]
        share.bytes -= len(overflow.data)
        self._bytes -= len(overflow.data)
        if not share.ids:
            del self._shares[overflow.counted_as]

    def _sweep(self) -> None:
        """End what is too old; come back when the next one will be."""
        now = self._clock.now()
        for id in [id for id, overflow in self._kept.items() if overflow.until <= now]:
            self._drop(id)
        soonest = min((overflow.until for overflow in self._kept.values()), default=None)
        self._timer = None if soonest is None else self._clock.call_later(soonest - now, self._sweep)

    def _whole(self, overflow: _Overflow, address: str) -> bytes:
        if len(overflow.data) <= self.at_once:
            return overflow.data
        ranges = " or ".join(_proposed(address, overflow, self.at_once))
        size = f"{len(overflow.data):,} bytes" + (f", {overflow.places.lines:,} lines" if overflow.places else "")
        raise Fault(
            "INVALID_ARGS",
            f"Invalid arguments: {address} is too large to read at once ({size}): read a range, such as {ranges}",
            hint=f"at most {self.at_once:,} bytes at once",
        )

    def _range(self, overflow: _Overflow, address: str, query: str) -> Range:
        asked = _ASKED.fullmatch(query)
        if not asked or (asked[1] != "bytes" and not overflow.places):
            ranges = " or ".join(_proposed(address, overflow, self.at_once))
            raise Fault("INVALID_ARGS", f"Invalid arguments: {query!r} is not a range; examples: {ranges}")
        first = int(asked[2])
        last = int(asked[4]) if asked[4] else None if asked[3] else first
        if last is not None and last < first:
            raise Fault("INVALID_ARGS", f"Invalid arguments: the range ends before it starts: {query}")
        found = _READERS[asked[1]](overflow, first, last, self.at_once)
        if found.start == found.end and found.start < found.base + found.total and asked[1] == "lines":
            where = f"{address}?bytes={found.bytes.start}-{found.bytes.start + self.at_once - 1}"
            raise Fault(
                "INVALID_ARGS", f"Invalid arguments: line {found.start} is too long: read it as bytes, such as {where}"
            )
        return found


def not_kept(uri: str) -> Fault:
    hint = "results are kept for a limited time; make the call again"
    return Fault("RESOURCE_NOT_FOUND", f"Resource not found: {uri}", hint=hint)


def _proposed(address: str, overflow: _Overflow, at_once: int) -> list[str]:
    """Ranges to begin with."""
    by_bytes = f"{address}?bytes=0-{min(at_once, len(overflow.data)) - 1}"
    if not overflow.places or overflow.places.lines < 2:
        return [by_bytes]
    return [f"{address}?lines=1-{min(LINES, overflow.places.lines)}", by_bytes]


def _contents(uri: str, overflow: _Overflow, data: bytes, more: Mapping[str, Any]) -> dict[str, Any]:
    shown = {"text": data.decode()} if overflow.places else {"blob": base64.b64encode(data).decode()}
    return {"contents": [{"uri": uri, "mimeType": overflow.mime, **shown}], **more}


def _told(found: Range, address: str) -> dict[str, Any]:
    told: dict[str, Any] = {"unit": found.unit, "from": found.start, "to": found.end - 1, "total": found.total}
    if found.end < found.base + found.total:
        width = max(found.end - found.start, 1)
        last = min(found.end + width, found.base + found.total) - 1
        told["next"] = f"{address}?{found.unit}={found.end}-{last}"
    return told


# Each kind of range: the asked units that there are, as many as go at once.


def _by_lines(overflow: _Overflow, first: int, last: int | None, at_once: int) -> Range:
    assert overflow.places
    data, total = overflow.data, overflow.places.lines
    start = min(max(first, 1), total + 1)
    end = total + 1 if last is None else max(min(last, total) + 1, start)
    begin = stop = overflow.places.after_lines(start - 1)
    reached = start
    while reached < end and (after := data.find(b"\n", stop, begin + at_once) + 1 or len(data)) - begin <= at_once:
        stop, reached = after, reached + 1
    return Range("lines", 1, start, reached, total, slice(begin, stop))


def _by_bytes(overflow: _Overflow, first: int, last: int | None, at_once: int) -> Range:
    """Of a text, a character belongs to where it begins."""
    total = len(overflow.data)
    start = min(first, total)
    end = min(total if last is None else last + 1, total, start + at_once)
    whole = slice(_begin(overflow, start), _begin(overflow, end))
    return Range("bytes", 0, start, end, total, whole)


def _begin(overflow: _Overflow, place: int) -> int:
    """The first place from this one on where a character begins."""
    while overflow.places and place < len(overflow.data) and overflow.data[place] & 0xC0 == 0x80:
        place += 1
    return place


def _by_chars(overflow: _Overflow, first: int, last: int | None, at_once: int) -> Range:
    assert overflow.places
    total = overflow.places.chars
    start = min(first, total)
    begin = overflow.places.after_chars(start)
    fitting = overflow.data[begin : begin + at_once].decode(errors="ignore")
    wanted = fitting if last is None else fitting[: last + 1 - start]
    return Range("chars", 0, start, start + len(wanted), total, slice(begin, begin + len(wanted.encode())))


_READERS: Mapping[str, Callable[[_Overflow, int, int | None, int], Range]] = {
    "lines": _by_lines,
    "bytes": _by_bytes,
    "chars": _by_chars,
}
