"""Clients that have packages looked up at a registry that does not answer, beside others that look for servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import registry_double
from inmemory import Visitor, gateway
from registry_double import Registry, RegistryNet, item, npm
from virtualtime import settle, soon

from toolgate.app import App
from toolgate.auth.safe_net import Fetched
from toolgate.config import Config
from toolgate.config.access import KnownClient
from toolgate.config.provision import Provision

ABOUT = {
    "amber": "Forecast the weather of a city",
    "birch": "Translate sentences between languages",
    "cedar": "Book appointments in a calendar",
    "delta": "Convert currencies by exchange rates",
    "ember": "Compress photographs of animals",
    "fjord": "Trace the route of a parcel",
    "garnet": "Solve equations of algebra",
    "hazel": "Transcribe recordings of speech",
}
WORDS = tuple(ABOUT)
KEYS = {name: f"tg-a-key-of-{name}-that-is-long-enough" for name in ("mallory", "trudy", "ann")}


class Silent(RegistryNet):
    """A registry of packages that answers for one of them alone, and of servers that answers when it is let."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.lists = asyncio.Event()
        self.asked: list[str] = []

    async def fetch(self, url: str, method: Any = "GET", **more: Any) -> Fetched:
        self.asked.append(url)
        if "/npm/" in url and not url.endswith(WORDS[0]):
            await asyncio.Event().wait()
        if "/servers" in url:
            await self.lists.wait()
        return await super().fetch(url, method, **more)


class Here:
    def __init__(self, app: App, net: Silent) -> None:
        self.app, self.net = app, net
        self.waiting: list[asyncio.Task[Any]] = []

    def asks(self, who: str, word: str, **more: Any) -> asyncio.Task[Mapping[str, Any]]:
        visitor = Visitor(self.app)
        visitor.headers["authorization"] = f"Bearer {KEYS[who]}"
        intent = f"{word}: {ABOUT[word]}"
        asked = asyncio.ensure_future(self._told(visitor, {"intent": intent, **more}))
        self.waiting.append(asked)
        return asked

    async def _told(self, visitor: Visitor, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = await visitor.ask_modern("tools/call", name="mcp_provision", arguments=arguments)
        result = answer.result
        return json.loads(result["content"][0]["text"])

    @property
    def looked_up(self) -> list[str]:
        return [url for url in self.net.asked if "/npm/" in url]


@asynccontextmanager
async def plant(refused: bool = False, is_read: bool = True) -> AsyncGenerator[Here]:
    """A gateway with a registry of servers; clients may have them installed unless they are `refused` it."""
    described = [
        item(
            f"io.github.x/{word}",
            description=ABOUT[word],
            packages=[npm(f"x-{word}")],
        )
        for word in WORDS
    ]
    clients = tuple(
        KnownClient(id=who, name=who, key=key, servers="all", admin=not refused, surface="all")
        for who, key in KEYS.items()
    )
    provision = Provision(registries=(registry_double.URL,), trusted=("io.github.x/*",))
    config = Config(clients=clients, provision=provision, add_servers="allow")
    async with gateway(config=config, registries=provision.registries) as app:
        net = Silent(registry := Registry(*described))
        registry_double.reach(app, registry, net)
        here = Here(app, net)
        if is_read:
            net.lists.set()
        try:
            yield here
        finally:
            for each in here.waiting:
                each.cancel()
            await asyncio.gather(*here.waiting, return_exceptions=True)


@pytest.mark.parametrize("how", [{"dryRun": True}, {"autoProvision": True}])
async def test_lookups_of_one_client_keep_no_search_and_no_lookup_of_others_waiting(how: Mapping[str, bool]) -> None:
    async with plant() as here:
        for word in WORDS[1:]:
            here.asks("mallory", word, **how)
        await settle()
        assert (await soon(here.asks("ann", WORDS[1])))["source"] == "registry"
        assert (await soon(here.asks("ann", WORDS[0], dryRun=True)))["matches"][0]["gates"]


async def test_nor_do_those_of_two() -> None:
    async with plant() as here:
        for who in ("mallory", "trudy"):
            for word in WORDS[1:]:
                here.asks(who, word, dryRun=True)
        await settle()
        assert (await soon(here.asks("ann", WORDS[0], dryRun=True)))["matches"][0]["gates"]


async def test_nothing_is_looked_up_for_who_may_have_nothing_installed() -> None:
    async with plant(refused=True) as here:
        told = await soon(here.asks("mallory", WORDS[1], dryRun=True))
        failed = [each["gate"] for each in told["matches"][0]["gates"] if not each["passed"]]
        assert failed[0] == "allowed" and not here.looked_up


async def test_a_package_is_looked_up_once_for_all_who_ask_at_a_time_and_a_while_after() -> None:
    async with plant() as here:
        for who in ("mallory", "trudy"):
            here.asks(who, WORDS[1], dryRun=True)
        await settle()
        assert len([url for url in here.looked_up if url.endswith(WORDS[1])]) == 1
        for _ in range(3):
            await soon(here.asks("ann", WORDS[0], dryRun=True))
        assert len([url for url in here.looked_up if url.endswith(WORDS[0])]) == 1


async def test_lookups_that_nobody_waits_for_any_more_keep_their_turns() -> None:
    async with plant() as here:
        for word in WORDS[1:]:
            asked = here.asks("mallory", word, dryRun=True)
            await settle()
            asked.cancel()
        await settle()
        before = len(here.looked_up)
        here.asks("mallory", WORDS[1], dryRun=True)
        await settle()
        assert len(here.looked_up) == before < len(WORDS[1:])


async def test_searches_that_wait_for_a_registry_to_be_read_keep_no_turns() -> None:
    async with plant(is_read=False) as here:
        for word in WORDS:
            here.asks("mallory", word)
        asked = here.asks("ann", WORDS[0])
        await settle()
        here.net.lists.set()
        assert (await soon(asked))["source"] == "registry"
