"""A server that is up and does not list, or lists slowly on purpose: others' lists wait for it once, and for a moment
after that. Time is the tests' own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from inmemory import LATEST, MODERN, Refusal, Scripted, Visitor, gateway, tools
from msgspec import Raw
from virtualtime import settle

from toolgate.catalog import catalog
from toolgate.config import CatalogLimits, Server
from toolgate.upstreams.base import Items
from toolgate.upstreams.mcp import upstream

PATIENCE, SHORT = CatalogLimits().list_timeout, CatalogLimits().first_wait


async def listed(visitor: Visitor) -> tuple[set[str], list[str], float]:
    """The tools, what is pending, and how long that took."""
    before = asyncio.get_running_loop().time()
    result = (await visitor.ask_modern("tools/list")).result
    names = {tool["name"] for tool in result["tools"]}
    pending = result.get("_meta", {}).get("pending", [])
    return names, pending, asyncio.get_running_loop().time() - before


class Slow(Scripted):
    """Answers each `tools/list` after so many seconds, with what `answers` has for it."""

    seconds = 0.0

    def received(self, message: bytes) -> None:
        if b'"tools/list"' in message and self.seconds:
            asyncio.get_running_loop().call_later(self.seconds, super().received, message)
        else:
            super().received(message)


def slow(seconds: float, revision: str = LATEST, answer: Any = None, **more: Any) -> Slow:
    there = Slow(revision, tools_list=answer or {**tools("late"), **more})
    there.seconds = seconds
    return there


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_server_that_does_not_list_is_waited_for_once(revision: str) -> None:
    wild = Scripted(revision, tools_list=...)
    async with gateway(scripts={"calm": Scripted(tools_list=tools("ok")), "wild": wild}) as app:
        taken = [await listed(Visitor(app)) for _ in range(4)]
        assert all((names, pending) == ({"calm__ok"}, ["wild"]) for names, pending, _ in taken)
        assert [round(seconds, 3) for *_, seconds in taken] == [PATIENCE, 0, 0, 0]


async def test_when_its_fetch_was_in_vain_the_next_is_waited_for_a_moment() -> None:
    wild = Scripted(tools_list=...)
    async with gateway(scripts={"calm": Scripted(tools_list=tools("ok")), "wild": wild}) as app:
        await listed(Visitor(app))
        for _ in range(3):
            await asyncio.sleep(200)  # its own time is over
            assert [round((await listed(Visitor(app)))[2], 3) for _ in range(2)] == [SHORT, 0]
        await asyncio.sleep(200)
        wild.answers["tools/list"] = tools("back")
        assert (await listed(Visitor(app)))[0] == {"calm__ok", "wild__back"}, "it answers, and is shown at once"
        await settle()


async def test_a_server_that_takes_its_time_to_refuse_is_not_waited_for_each_time() -> None:
    wild = slow(6.0, answer=Refusal(-32603, "no"))
    async with gateway(scripts={"calm": Scripted(tools_list=tools("ok")), "wild": wild}) as app:
        taken = []
        for _ in range(5):
            taken.append(round((await listed(Visitor(app)))[2], 3))
            await asyncio.sleep(20)
        assert taken == [6.0, 6.0, SHORT, SHORT, SHORT]


async def test_a_slow_server_is_shown_on_the_first_request_as_ever() -> None:
    async with gateway(scripts={"calm": Scripted(tools_list=tools("ok")), "there": slow(4.0)}) as app:
        assert await listed(Visitor(app)) == ({"calm__ok", "there__late"}, [], pytest.approx(4.0))


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_server_that_takes_its_list_back_each_time_and_is_slow_is_not_waited_for_each_time(
    revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "REGAINED", 0.1)
    wild = slow(0.0, revision)
    async with gateway(scripts={"calm": Scripted(tools_list=tools("ok")), "wild": wild}) as app:
        await listed(Visitor(app))
        wild.seconds = 4.0
        taken = []
        for _ in range(8):
            wild.tell("notifications/tools/list_changed")
            await settle()
            names, _, seconds = await listed(Visitor(app))
            assert names == {"calm__ok", "wild__late"}
            taken.append(round(seconds, 1))
            await asyncio.sleep(5)
        assert taken[0] == 4.0 and sum(taken) < 2 * PATIENCE, taken
        assert taken[-4:] == [0.0] * 4, taken
        await asyncio.sleep(1.2 * PATIENCE / catalog.REGAINED)
        wild.tell("notifications/tools/list_changed")
        await settle()
        assert (await listed(Visitor(app)))[2] > 0, "once in a while it is waited for again"


async def test_where_nothing_else_is_there_it_is_waited_for() -> None:
    there = slow(14.0)
    async with gateway(scripts={"there": there}) as app:
        assert (await listed(Visitor(app)))[1:] == (["there"], pytest.approx(PATIENCE))
        assert await listed(Visitor(app)) == ({"there__late"}, [], pytest.approx(4.0))


async def test_few_lists_of_a_server_with_a_connection_for_each_client_come_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each may have megabytes, which are held until they are read: 60 clients took 2 GB."""
    doors, under_way, most = asyncio.Event(), 0, 0

    async def read_list(*given: Any) -> Items:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await doors.wait()
        under_way -= 1
        return Items((Raw(b'{"name":"t","inputSchema":{"type":"object"}}'),))

    monkeypatch.setattr(upstream, "read_list", read_list)
    there = Server(id="there", name="there", type="stdio", command="memory", scope="session")
    async with gateway(there, scripts={"there": Scripted(tools_list=tools("t"))}) as app:
        visitors = [Visitor(app) for _ in range(12)]
        for visitor in visitors:
            await visitor.initialize()
        asking = [asyncio.ensure_future(visitor.ask("tools/list")) for visitor in visitors]
        await settle()
        assert under_way == upstream.LISTED_AT_ONCE
        doors.set()
        assert all(b"there__t" in each.body for each in await asyncio.gather(*asking))
        assert most == upstream.LISTED_AT_ONCE
