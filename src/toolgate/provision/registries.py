"""MCP registries as they are read: all pages of `/v0.1/servers`, kept for a day, by the client of safe requests.

A registry finds names only where it searches itself, so all of it is read, and searched here, descriptions too; what
somebody looks for is told to nobody. After a day only what changed since is asked for, with what was deleted; after a
week all of it again. The rules this file keeps: a registry is bounded in pages, bytes, entries and time; what it does
not answer is had from the time before, and that is said; and it is not followed to another place.
"""

from __future__ import annotations

import asyncio
import logging
import re
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from toolgate import __version__
from toolgate.auth.safe_net import Bounds, SafeNet
from toolgate.config import Config
from toolgate.core import jsonrpc, plain
from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.redaction import excerpt
from toolgate.core.services import Swap
from toolgate.provision import entries
from toolgate.provision.entries import Entry
from toolgate.provision.lists import LONGEST_KEPT, Entries, Full, Packing
from toolgate.state.base import Store

log = logging.getLogger(__name__)

SPACE = "registries"
DAY = 24 * 3600.0  # seconds for which a list is good
WEEK = 7 * DAY  # seconds after which all of it is read again
PAUSE = 300.0  # seconds until one that failed is asked again
PAGE = 100  # entries that are asked for
DEEPEST = 100  # levels of a page
MOST_ON_A_PAGE = 1000  # that are read, whatever it was asked for
MOST_PAGES = 400
MOST_ENTRIES = 40_000
LONGEST_PAGE = 4 * 1024 * 1024  # bytes
LONGEST_LIST = 128 * 1024 * 1024  # bytes of all pages
PATIENCE = 15.0  # seconds for a page
LONGEST_READ = 180.0  # seconds for all of them
LONGEST_CURSOR = 2048  # characters
LONGEST_ENTRY = 16 * 1024  # bytes of what is kept of one server
WAIT = 8.0  # seconds that a caller waits for a list that is read for the first time


class Unread(Exception):
    """A registry could not be read; `str()` says why."""


class Kept(NamedTuple):
    """What is known of a registry. `read` is when it was asked last, `whole` when for all of it, in seconds since
    1970."""

    entries: Entries = Entries()
    read: float = 0.0
    whole: float = 0.0


class _Stored(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The same, as the store has it."""

    blocks: tuple[bytes, ...]
    size: int
    read: float
    whole: float


class Listing(msgspec.Struct, frozen=True):
    """What is to be had of a registry now. `note` says what is wrong with it."""

    url: str
    entries: Entries
    note: str = ""


class _Page(msgspec.Struct):
    """Of any era. Its items are read one by one: each is somebody else's."""

    servers: list[msgspec.Raw] = []
    metadata: Mapping[str, Any] = {}


class _State:
    """Of one registry. `tried` is when it failed last, by the clock."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.problem = ""
        self.tried: float | None = None
        self.done = asyncio.Event()
        self.is_read = False  # whether that goes on now


class Registries:
    """Those that the configuration names."""

    def __init__(self, config: Config, store: Store, net: SafeNet, clock: Clock) -> None:
        self._store, self._net, self._clock = store, net, clock
        self._urls = config.provision.registries
        self._states: dict[str, _State] = {}
        self._background = BackgroundTasks()

    def prepared(self, config: Config) -> Swap:
        def swap() -> None:
            for url in {*self._urls, *self._states}.difference(config.provision.registries):
                self._states.pop(url, None)
                self._store.delete(SPACE, url)
            self._urls = config.provision.registries

        return swap

    async def close(self) -> None:
        await self._background.close()

    async def listings(self, patience: float = WAIT) -> Sequence[Listing]:
        """What is known of each, after so many seconds at most."""
        states = [(url, self._begun(url)) for url in self._urls]
        waits = [state for _, state in states if state.is_read and not state.kept.read]
        try:
            async with self._clock.timeout(patience):
                for state in waits:
                    await state.done.wait()
        except TimeoutError:
            pass
        return [Listing(url, state.kept.entries, self._note(state)) for url, state in states]

    def _begun(self, url: str) -> _State:
        """Its state; where it is no longer good, reading has begun."""
        state = self._states.get(url)
        if state is None:
            state = self._states[url] = _State(self._kept(url))
        is_fresh = state.kept.read and self._clock.wall() - state.kept.read < DAY
        rests = state.tried is not None and self._clock.now() - state.tried < PAUSE
        if not is_fresh and not rests and not state.is_read:
            state.is_read = True
            state.done.clear()
            self._background.start(self._read(url, state), f"read the registry {url}")
        return state

    def _note(self, state: _State) -> str:
        kept = state.kept
        if state.is_read and not kept.read:
            return "is still being read: ask again in a few seconds"
        if not state.problem:
            return ""
        if not kept.read:
            return f"could not be read: {state.problem}"
        age = max(1, round((self._clock.wall() - kept.read) / 3600))
        return f"could not be read: {state.problem}; its list of {age} h ago was used"

    # Reading.

    async def _read(self, url: str, state: _State) -> None:
        now, before = self._clock.wall(), state.kept
        since = before.read if before.read and now - before.whole < WEEK else 0.0
        try:
            async with self._clock.timeout(LONGEST_READ):
                try:
                    found = await self._all_pages(url, before if since else Kept(), since)
                except Unread:
                    if not since:
                        raise
                    found = await self._all_pages(url, Kept(), since := 0.0)  # some cannot say what changed
            state.kept = Kept(found, now, before.whole if since else now)
            state.problem, state.tried = "", None
            if self._states.get(url) is state:  # else it is not configured any more
                self._store.put(SPACE, url, _stored(state.kept))
        except Unread as why:
            self._failed(url, state, str(why))
        except TimeoutError:
            self._failed(url, state, f"it was not read within {LONGEST_READ:g} s")
        except Exception as why:  # the rescue of who asks next: it rests like all that fail
            self._failed(url, state, f"{type(why).__name__}: {why}")
            raise
        finally:
            state.is_read = False
            state.done.set()

    def _failed(self, url: str, state: _State, why: str) -> None:
        state.problem, state.tried = why, self._clock.now()
        log.warning("the registry %s could not be read: %s", url, why)

    async def _all_pages(self, url: str, before: Kept, since: float) -> Entries:
        """Those of `before`, with what is other since then. Raises `Unread`."""
        asked: dict[str, str] = {"limit": str(PAGE), "version": "latest"}
        if since:
            when = datetime.fromtimestamp(since - 3600, UTC)  # whatever its clock shows
            asked |= {"updated_since": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "include_deleted": "true"}
        found, size, cursors = await asyncio.to_thread(Packing, before.entries), 0, set[str]()
        path, cursor = "/v0.1/servers", ""
        for _ in range(MOST_PAGES):
            body = await self._page(url, path, asked | ({"cursor": cursor} if cursor else {}))
            if body is None and path == "/v0.1/servers" and not cursor:
                path = "/v0/servers"  # of the time before
                body = await self._page(url, path, asked)
            if body is None:
                raise Unread("there is no list of servers at this URL")
            size += len(body)
            if size > LONGEST_LIST:
                raise Unread(f"its list has more than {LONGEST_LIST:,} bytes")
            cursor = await asyncio.to_thread(_taken, found, body, url)
            if len(found) > MOST_ENTRIES:
                raise Unread(f"it has more than {MOST_ENTRIES:,} servers")
            if not cursor:
                return await asyncio.to_thread(_packed, found)
            if cursor in cursors or len(cursor) > LONGEST_CURSOR:
                raise Unread("its pages do not end")
            cursors.add(cursor)
        raise Unread(f"it has more than {MOST_PAGES} pages")

    async def _page(self, url: str, path: str, asked: Mapping[str, str]) -> bytes | None:
        """None where there is nothing at this path. Raises `Unread`."""
        headers = {"Accept": "application/json", "User-Agent": f"toolgate/{__version__}"}
        try:
            fetched = await self._net.fetch(
                f"{url}{path}?{urlencode(asked)}",
                asker=f"provision.registries {url}",
                headers=headers,
                trusted=(url,),
                follow=False,
                bounds=Bounds(PATIENCE, LONGEST_PAGE, 1),
            )
        except Fault as fault:
            raise Unread(excerpt(fault.message, 300)) from None
        if fetched.status in (404, 405):
            return None
        if 300 <= fetched.status < 400:
            raise Unread("it redirects: set provision.registries to where it is")
        if fetched.status != 200:
            raise Unread(f"it answered HTTP {fetched.status}")
        return fetched.body

    # Keeping.

    def _kept(self, url: str) -> Kept:
        stored = self._store.get(SPACE, url)
        try:
            found = msgspec.msgpack.decode(stored, type=_Stored) if stored else None
            kept = Kept(Entries(found.blocks, found.size), found.read, found.whole) if found else Kept()
            kept.entries.at(range(min(1, len(kept.entries))))
        except (zlib.error, IndexError, *jsonrpc.UNREADABLE):
            return Kept()  # of another version
        return kept


def _stored(kept: Kept) -> bytes:
    return msgspec.msgpack.encode(_Stored(tuple(kept.entries.blocks), len(kept.entries), kept.read, kept.whole))


def _taken(found: Packing, body: bytes, url: str) -> str:
    """The entries of a page are in the list then. The cursor of the next page. Raises `Unread`."""
    entries, cursor = _decoded(body, url)
    with _bounded():
        for entry in entries:
            if entry.status == "deleted":
                found.drop(entry)
            elif not found.put(entry, LONGEST_ENTRY):
                log.debug("%s of %s is too long and left out", entry.name, url)
    return cursor


def _packed(found: Packing) -> Entries:
    with _bounded():
        return found.packed()


@contextmanager
def _bounded() -> Generator[None]:
    try:
        yield
    except Full:
        raise Unread(f"what is kept of its list has more than {LONGEST_KEPT:,} bytes") from None


def _decoded(body: bytes, url: str) -> tuple[list[Entry], str]:
    """The entries of a page that count, and the cursor of the next. Raises `Unread`."""
    try:
        page = plain.read(_flat(body), _Page)
    except (UnicodeDecodeError, *jsonrpc.UNREADABLE):
        raise Unread("its answer is no list of servers") from None
    items = _readable(page.servers[:MOST_ON_A_PAGE])
    found = ((entries.read(item, url), entries.is_latest(item)) for item in items)
    counts = [entry for entry, is_latest in found if entry and (is_latest or entry.status == "deleted")]
    cursor = page.metadata.get("nextCursor", page.metadata.get("next_cursor"))
    return counts, cursor if isinstance(cursor, str) else ""


def _readable(raw: Iterable[msgspec.Raw]) -> Iterator[Any]:
    for each in raw:
        try:
            yield plain.read(each)
        except (UnicodeDecodeError, *jsonrpc.UNREADABLE):
            continue  # a number beyond all bounds, for example: the rest of the page is others'


_signs = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)  # to the end, if need be
_unit = rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_lone = re.compile(rb"((?:\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})++)|" + _unit)
_OPENS, _CLOSES = (b"[", b"{"), (b"]", b"}")


def _flat(page: bytes) -> bytes:
    """Without what keeps a page from being read: with nothing in place of what is nested too deep, and no half
    characters."""
    if b"\\u" in page:
        page = _lone.sub(lambda found: found[1] or rb"\ufffd", page)
    parts: list[bytes] = []
    depth = start = 0
    for found in _signs.finditer(page):
        depth += (found[0] in _OPENS) - (found[0] in _CLOSES)
        if depth == DEEPEST + 1 and found[0] in _OPENS:
            parts += [page[start : found.start()], b"null"]
        elif depth == DEEPEST and found[0] in _CLOSES:
            start = found.end()
    return b"".join([*parts, page[start:]]) if parts else page
