"""Reading a registry: all of its pages, kept for a day, and what is had where it does not answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from registry_double import OFFICIAL, Registry, RegistryNet, item
from virtualtime import FakeClock, settle

from toolgate.config import Config
from toolgate.config.provision import Provision
from toolgate.provision import registries
from toolgate.provision.entries import Entry
from toolgate.provision.registries import DAY, PAUSE, WEEK, Listing, Registries
from toolgate.state.memory import MemoryStore

URL = "http://127.0.0.1"


class Reader:
    """Registries over one double, which may be opened again with what the store has kept."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.open()

    def open(self) -> None:
        config = Config(provision=Provision(registries=(URL,)))
        self.registries = Registries(config, self.store, RegistryNet(self.registry), self.clock)

    async def listing(self) -> Listing:
        (found,) = await self.registries.listings()
        return found

    async def settled(self) -> Listing:
        """When what was begun has ended."""
        await self.listing()
        for state in self.registries._states.values():
            if state.is_read:
                await state.done.wait()
        return await self.listing()


def numbered(count: int) -> list[Any]:
    return [item(f"io.github.ann/notes-{number}") for number in range(count)]


def named(listing: Listing) -> dict[str, Entry]:
    return {entry.name: entry for entry in listing.entries}


async def test_all_pages_are_read_by_their_cursors() -> None:
    reader = Reader(Registry(*numbered(250), page=100))
    found = await reader.settled()
    assert (len(found.entries), found.note) == (250, "")
    assert [query.get("cursor") for _, query in reader.registry.asked] == [None, "100", "200"]
    assert all(query["version"] == "latest" and query["limit"] == "100" for _, query in reader.registry.asked)


async def test_a_list_is_good_for_a_day_in_another_process_too() -> None:
    reader = Reader(Registry(item()))
    await reader.settled()
    reader.open()
    await reader.clock.advance(DAY - 1)
    assert len((await reader.settled()).entries) == 1
    assert len(reader.registry.asked) == 1
    await reader.clock.advance(2)
    await reader.settled()
    assert len(reader.registry.asked) == 2


async def test_after_a_day_only_what_changed_is_asked_for_with_what_was_deleted() -> None:
    old, gone, new = item("io.github.ann/old"), item("io.github.ann/gone"), item("io.github.ann/new")
    reader = Reader(Registry(old, gone))
    assert set(named(await reader.settled())) == {"io.github.ann/old", "io.github.ann/gone"}
    gone["_meta"][OFFICIAL] |= {"status": "deleted", "updatedAt": "2999-01-01T00:00:00Z"}
    new["_meta"][OFFICIAL]["updatedAt"] = "2999-01-01T00:00:00Z"
    reader.registry.items = [old, gone, new]
    await reader.clock.advance(DAY + 1)
    assert set(named(await reader.settled())) == {"io.github.ann/old", "io.github.ann/new"}
    assert reader.registry.asked[-1][1]["include_deleted"] == "true"
    assert "updated_since" in reader.registry.asked[-1][1]
    await reader.clock.advance(WEEK + 1)
    await reader.settled()
    assert "updated_since" not in reader.registry.asked[-1][1]


async def test_an_old_version_that_was_deleted_leaves_the_one_that_counts() -> None:
    deleted = item(version="0.9.0", status="deleted", isLatest=False)
    deleted["_meta"][OFFICIAL]["updatedAt"] = "2999-01-01T00:00:00Z"
    reader = Reader(Registry(item()))
    await reader.settled()
    reader.registry.items.append(deleted)
    await reader.clock.advance(DAY + 1)
    assert named(await reader.settled())["io.github.ann/notes"].version == "1.0.0"


async def test_of_a_mirror_that_lists_all_versions_the_latest_count() -> None:
    items = [item(version="2.0.0"), item(version="1.0.0", isLatest=False)]
    found = await Reader(Registry(*items)).settled()
    assert named(found)["io.github.ann/notes"].version == "2.0.0"


async def test_a_registry_of_the_time_before_is_read_at_its_own_path_and_in_its_own_words() -> None:
    found = await Reader(Registry(*numbered(120), page=50, era="v0")).settled()
    assert len(found.entries) == 120


async def test_what_a_registry_does_not_answer_is_had_from_the_time_before_and_that_is_said() -> None:
    reader = Reader(Registry(item()))
    await reader.settled()
    reader.registry.answers = {"/v0.1/servers": 503}
    await reader.clock.advance(DAY + 3600)
    found = await reader.settled()
    assert len(found.entries) == 1
    assert found.note == "could not be read: it answered HTTP 503; its list of 25 h ago was used"
    asked = len(reader.registry.asked)
    await reader.settled()
    assert len(reader.registry.asked) == asked  # it is left alone for a while
    reader.registry.answers = {}
    await reader.clock.advance(PAUSE + 1)
    assert (await reader.settled()).note == ""


async def test_of_a_registry_that_is_configured_no_more_nothing_is_kept_and_it_is_read_anew_when_it_is_again() -> None:
    reader = Reader(Registry(item()))
    await reader.settled()
    assert reader.store.items(registries.SPACE)
    reader.registries.prepared(Config(provision=Provision(registries=())))()
    assert await reader.registries.listings() == [] and not reader.registries._states
    assert not reader.store.items(registries.SPACE)
    reader.registries.prepared(Config(provision=Provision(registries=(URL,))))()
    assert len((await reader.settled()).entries) == 1 and len(reader.registry.asked) == 2


async def test_one_that_is_taken_away_while_it_is_read_leaves_nothing_either() -> None:
    reader = Reader(Registry(item()))
    reading = asyncio.ensure_future(reader.registries.listings())
    await settle()
    state = reader.registries._states[URL]
    reader.registries.prepared(Config(provision=Provision(registries=())))()
    await state.done.wait()
    await reading
    assert not reader.registries._states and not reader.store.items(registries.SPACE)


async def test_after_a_failure_that_nobody_has_thought_of_it_rests_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def surprised(_kept: Any) -> bytes:
        raise RuntimeError("surprise")

    monkeypatch.setattr(registries, "_stored", surprised)
    reader = Reader(Registry(item()))
    assert "RuntimeError: surprise" in (await reader.settled()).note
    await reader.settled()
    assert len(reader.registry.asked) == 1


async def test_a_registry_that_never_answered_is_named() -> None:
    found = await Reader(Registry()).settled()
    assert (len(found.entries), found.note) == (0, "")
    broken = Registry()
    broken.answers = {"/v0.1/servers": b"<html>"}
    assert (await Reader(broken).settled()).note == "could not be read: its answer is no list of servers"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (404, "there is no list of servers at this URL"),
        (302, "it redirects: set provision.registries to where it is"),
        (..., "cannot be fetched"),
        (None, "cannot be fetched"),
        (b"[]", "is no list of servers"),
        (b'{"servers": 7}', "is no list of servers"),
        (b"[" * 100_000, "is no list of servers"),
        (b'{"servers": [], "metadata": {"nextCursor": "again"}}', "its pages do not end"),
        (json.dumps({"servers": [], "metadata": {"nextCursor": "x" * 3000}}).encode(), "its pages do not end"),
        (b" " * (registries.LONGEST_PAGE + 1), "sent more than"),
    ],
)
async def test_a_registry_that_answers_wrong_is_no_registry_and_says_why(answer: Any, says: str) -> None:
    registry = Registry()
    registry.answers = {"/v0.1/servers": answer, "/v0/servers": answer}
    found = await Reader(registry).settled()
    assert not len(found.entries)
    assert says in found.note


async def test_pages_without_end_are_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "MOST_PAGES", 5)
    reader = Reader(Registry(*numbered(60), page=10))
    assert "more than 5 pages" in (await reader.settled()).note
    assert len(reader.registry.asked) == 5


@pytest.mark.parametrize(
    ("bound", "value", "says"), [("MOST_ENTRIES", 20, "20 servers"), ("LONGEST_LIST", 9, "9 bytes")]
)
async def test_a_list_has_bounds(monkeypatch: pytest.MonkeyPatch, bound: str, value: int, says: str) -> None:
    monkeypatch.setattr(registries, bound, value)
    assert says in (await Reader(Registry(*numbered(60), page=10)).settled()).note


async def test_another_configuration_asks_other_registries() -> None:
    reader = Reader(Registry(item()))
    await reader.settled()
    reader.registries.prepared(Config(provision=Provision(registries=())))()
    assert await reader.registries.listings() == []


ODD = [
    "[" * 1100 + "]" * 1100,
    '{"a":' * 1100 + "1" + "}" * 1100,
    "[" * 200_000 + "]" * 200_000,
    "1e999",
    "9" * 4500,
    '"\\ud800"',
    '"\\\\\\ud800 \\ud83d\\ude00 \\uD83D"',
    '"]}[{\\\\"',
]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_an_entry_that_cannot_be_read_costs_nobody_the_others(odd: str) -> None:
    """Whoever publishes one may write any JSON into it."""
    first, last = (json.dumps(each) for each in numbered(2))
    evil = json.dumps(item("io.github.evil/b")).replace('"Keeps notes"', f'"Keeps notes", "x": {odd}')
    page = f'{{"servers": [{first}, {evil}, {last}], "metadata": {{"nextCursor": "c"}}}}'
    found, cursor = registries._decoded(page.encode(), URL)
    names = [entry.name for entry in found if "evil" not in entry.name]
    assert (names, cursor) == (["io.github.ann/notes-0", "io.github.ann/notes-1"], "c")


@pytest.mark.parametrize(
    "page", ["", "[]", '{"servers": 1}', '{"servers": [', '"' + '\\"' * 1_000_000, "[" * 1_000_000]
)
def test_what_is_no_page_is_told_soon(page: str) -> None:
    with pytest.raises(registries.Unread):
        registries._decoded(page.encode(), URL)
