"""A hundred servers, of which some hang, some do not start and some speak no protocol: the others are listed in time;
and after a restart at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from inmemory import LATEST, MODERN, Script, Scripted, Visitor, gateway, tools
from virtualtime import FakeClock

from toolgate.config import CatalogLimits, Config
from toolgate.core.fault import Fault
from toolgate.state.memory import MemoryStore

LIST_TIMEOUT = 10.0


class Garbled(Scripted):
    """Answers everything with something else than JSON-RPC."""

    def received(self, message: bytes) -> None:
        self.requests.append({})
        for said in (b"\xff\xfe\x00", b"Traceback (most recent call last):", b'{"jsonrpc":"2.0"', b"[]", b"7"):
            self.say(said)


def good(number: int) -> Scripted:
    revision = LATEST if number % 2 else MODERN
    more = {} if number % 2 else {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"}
    return Scripted(revision, tools_list=tools("one", "two") | more)


def hanging(number: int) -> Scripted:
    script = Scripted(tools_list=...)
    if number % 2:
        script.answers["initialize"] = ...
    return script


def a_hundred() -> dict[str, Script]:
    kinds: dict[str, Any] = {
        "good": (70, good),
        "hangs": (10, hanging),
        "fails": (10, lambda _: Fault("SERVER_FAILED", "Command not found: nope", reach="not_sent")),
        "garbled": (10, lambda _: Garbled()),
    }
    return {f"{kind}-{number}": make(number) for kind, (many, make) in kinds.items() for number in range(many)}


async def listed(visitor: Visitor) -> tuple[Any, float]:
    """What a client is shown, and how long that took."""
    before = asyncio.get_running_loop().time()
    response = await visitor.ask_modern("tools/list")
    return response.result, asyncio.get_running_loop().time() - before


def by_server(result: Any) -> set[str]:
    return {tool["name"].partition("__")[0] for tool in result["tools"]}


def asked(scripts: Mapping[str, Script]) -> list[str]:
    return [name for name, script in scripts.items() if isinstance(script, Scripted) and script.requests]


CONFIG = Config(catalog=CatalogLimits(list_timeout=LIST_TIMEOUT))
GOOD = {f"good-{number}" for number in range(70)}


@pytest.mark.promise("b.001.list-timeout", "b.001.degraded", "b.001.catalog-kept")
async def test_of_a_hundred_servers_seventy_are_listed_in_time_and_after_a_restart_at_once() -> None:
    clock = FakeClock()
    store, scripts = MemoryStore(clock), a_hundred()
    async with gateway(scripts=scripts, config=CONFIG, store=store) as app:
        result, seconds = await listed(Visitor(app))
        assert seconds == pytest.approx(LIST_TIMEOUT)
        assert by_server(result) == GOOD
        assert len(result["tools"]) == 140
        failed = {each["server_id"] for each in result["_meta"]["failures"]}
        pending = set(result["_meta"]["pending"])
        assert {f"fails-{number}" for number in range(10)} <= failed
        assert {f"hangs-{number}" for number in range(10)} <= pending
        assert failed | pending == scripts.keys() - GOOD
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        for name in GOOD:
            script = scripts[name]
            assert isinstance(script, Scripted)
            assert [each["method"] for each in script.requests].count("tools/list") == 1

    scripts = {name: script for name, script in a_hundred().items() if name in GOOD}
    async with gateway(scripts=scripts, config=CONFIG, store=store) as app:
        again, seconds = await listed(Visitor(app))
        assert seconds == 0
        assert again["tools"] == result["tools"]
        assert "_meta" not in again or not again["_meta"].keys() & {"failures", "pending"}
        assert asked(scripts) == []


async def test_many_lists_at_once_ask_each_of_a_hundred_servers_once() -> None:
    scripts = a_hundred()
    async with gateway(scripts=scripts, config=CONFIG) as app:
        async with asyncio.TaskGroup() as together:
            lists = [together.create_task(listed(Visitor(app))) for _ in range(20)]
        assert {frozenset(by_server(each.result()[0])) for each in lists} == {frozenset(GOOD)}
        assert max(each.result()[1] for each in lists) == pytest.approx(LIST_TIMEOUT)
        for name in GOOD:
            script = scripts[name]
            assert isinstance(script, Scripted)
            assert [each["method"] for each in script.requests].count("tools/list") == 1


async def test_after_a_restart_the_servers_that_were_never_known_are_asked_and_delay_nobody_beyond_the_timeout() -> (
    None
):
    store = MemoryStore(FakeClock())
    async with gateway(scripts=a_hundred(), config=CONFIG, store=store) as app:
        await listed(Visitor(app))
    scripts = a_hundred()
    async with gateway(scripts=scripts, config=CONFIG, store=store) as app:
        result, seconds = await listed(Visitor(app))
        assert seconds <= LIST_TIMEOUT + 0.001
        assert by_server(result) == GOOD
        assert not GOOD & set(asked(scripts))
