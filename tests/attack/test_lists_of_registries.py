"""What lists of registries take in memory, whoever wrote them, and that their servers are found all the same."""

from __future__ import annotations

import asyncio
import gc
import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from registry_double import OFFICIAL, Registry, RegistryNet, item, npm
from virtualtime import FakeClock

from toolgate.config import Config
from toolgate.config.provision import Provision
from toolgate.provision import lists
from toolgate.provision.clients import PackageClients
from toolgate.provision.provisioning import Found, Provisioning
from toolgate.provision.registries import WEEK
from toolgate.state.memory import MemoryStore

URL = "http://127.0.0.1"
LETTERS = "bcdfghjklmnpqrtvwxz"
SERVERS = 4000  # a tenth of the longest list
PER_SERVER = 2500  # bytes that stay: 100 MB for the longest list
BESIDE = 3_000_000  # bytes: the list that comes with toolgate, and what is made once


class Finder:
    """A gateway's provisioning over the servers that a function makes. `servers` are listed at `urls`."""

    def __init__(self, servers: list[Any], urls: tuple[str, ...] = (URL,), **more: Any) -> None:
        self.registry = Registry(*servers, page=1000)
        self.clock = FakeClock()
        config = Config(provision=Provision(registries=urls, **more))
        clients = PackageClients(None, self.clock, Path())  # type: ignore[arg-type]
        net = Everywhere(self.registry)
        self.provisioning = Provisioning(config, MemoryStore(self.clock), net, self.clock, clients, {})

    async def find(self, intent: str) -> Found:
        registries = self.provisioning.registries
        await registries.listings()
        for state in list(registries._states.values()):
            if state.is_read:
                await asyncio.wait_for(state.done.wait(), 60)
        return await self.provisioning.find(intent, "ann")


class Everywhere(RegistryNet):
    """The same at each address."""

    async def fetch(self, url: str, *args: Any, **more: Any) -> Any:
        return await super().fetch(f"{URL}/{url.split('/', 3)[3]}", *args, **more)


def word(number: int) -> str:
    letters = ""
    while number:
        number, letter = divmod(number, len(LETTERS))
        letters += LETTERS[letter]
    return letters


def words(start: int, count: int) -> str:
    return " ".join(word(number) for number in range(start, start + count))


def server(number: int, description: str, **more: Any) -> Any:
    name = f"io.github.p{number % 500}/srv{number}"
    return item(name, description=description, packages=[npm(f"evil-{number}")], **more)


def different_words() -> Iterator[Any]:
    return (server(each, f"files {words(50_000 + 60 * each, 60)}") for each in range(SERVERS))


def many_short_words() -> Iterator[Any]:
    return (
        server(each, " ".join(chr(0x4E00 + (each * 31 + at) % 20_000) * 2 for at in range(100)), title="x" * 99)
        for each in range(SERVERS // 4)
    )


def names_of_many_parts() -> Iterator[Any]:
    for each in range(SERVERS):
        parts = ".".join(word(50_000 + 30 * each + at) for at in range(30))
        yield item(f"io.github.p{each}/{parts}"[:200])


def many_variables() -> Iterator[Any]:
    for each in range(SERVERS):
        variables = [{"name": f"A{at}", "description": word(each * 50 + at) * 3} for at in range(50)]
        yield item(f"io.github.p{each}/s", packages=[npm(f"evil-{each}", environmentVariables=variables)])


def long_words() -> Iterator[Any]:
    return (server(each, f"{word(each + 9)} {'x' * 10_000}") for each in range(SERVERS // 4))


def one_of_many_words() -> Iterator[Any]:
    yield server(0, words(1, 100_000))
    yield from (server(each, "keeps notes") for each in range(1, 10))


def equal() -> Iterator[Any]:
    return (server(each, "keeps notes of people") for each in range(SERVERS))


@pytest.mark.parametrize(
    "listed",
    [
        equal,
        one_of_many_words,
        *(
            pytest.param(each, marks=pytest.mark.attack)
            for each in (different_words, many_short_words, names_of_many_parts, many_variables, long_words)
        ),
    ],
)
@pytest.mark.timeout(400)
async def test_a_list_keeps_few_bytes_of_each_server_whatever_is_written_there(
    listed: Callable[[], Iterator[Any]],
) -> None:
    servers = list(listed())
    assert await kept(Finder(servers)) < len(servers) * PER_SERVER + BESIDE


@pytest.mark.timeout(400)
async def test_a_list_of_short_descriptions_keeps_a_quarter_of_that() -> None:
    """As those of the official registry are."""
    listed = [server(each, f"Keeps {words(900 + each % 700, 12)} for teams") for each in range(SERVERS)]
    assert await kept(Finder(listed)) < SERVERS * PER_SERVER / 4 + BESIDE


@pytest.mark.attack
@pytest.mark.timeout(400)
async def test_a_list_that_is_read_again_takes_its_memory_once() -> None:
    finder = Finder(list(different_words()))
    assert await kept(finder, then=WEEK + 1) < SERVERS * PER_SERVER + BESIDE


@pytest.mark.attack
@pytest.mark.timeout(400)
async def test_two_registries_take_twice_as_much() -> None:
    finder = Finder(list(different_words()), (URL, "http://127.0.0.2"))
    assert await kept(finder) < 2 * SERVERS * PER_SERVER + BESIDE


async def test_of_a_list_that_takes_more_than_a_list_may_that_of_before_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finder = Finder([server(each, "keeps notes of people") for each in range(200)])
    assert (await finder.find("keep notes of people")).matches
    finder.registry.items = list(itertools.islice(different_words(), 2000))
    monkeypatch.setattr(lists, "LONGEST_KEPT", 100_000)
    await finder.clock.advance(WEEK + 1)
    found = await finder.find("keep notes of people")
    assert found.matches[0].entry.description == "keeps notes of people"
    assert "what is kept of its list has more than" in found.notes[0]


async def test_a_server_that_takes_more_than_one_may_is_left_out_and_none_of_the_others() -> None:
    names = [{"name": f"{'A' * 190}{at}", "description": "\U0001f9a5" * 200} for at in range(50)]
    large = item("io.github.p/large", description="keeps notes", packages=[npm("large", environmentVariables=names)])
    finder = Finder([server(1, "keeps notes of people"), large, server(2, "keeps notes of people")])
    found = await finder.find("keep notes of people")
    named = {each.entry.name for each in found.matches}
    assert {"io.github.p1/srv1", "io.github.p2/srv2"} <= named
    assert "io.github.p/large" not in named


async def test_of_equal_servers_the_oldest_is_first_however_many_there_are() -> None:
    listed = list(equal())
    listed[3210]["_meta"][OFFICIAL]["publishedAt"] = "2024-01-01T00:00:00Z"
    found = await Finder(listed).find("keep notes of people")
    assert found.matches[0].entry.name == "io.github.p210/srv3210"


async def kept(finder: Finder, then: float = 0.0) -> int:
    """How many bytes more there are after searches than before; where time passes, after those of another day."""
    await Finder([]).find("keep notes")  # what is made once
    gc.collect()
    tracemalloc.start()
    try:
        for seconds in (0.0, then):
            await finder.clock.advance(seconds)
            for intent in ("files bcd", "keep notes", "something else"):
                await finder.find(intent)
        finder.registry.asked.clear()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
