"""A server whose lists are others each time that it says so is looked at ever more seldom, and again at once later; and
lists that are large, or have a large item, delay nobody else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import peers
import pytest
from inmemory import LATEST, MODERN, Exchange, Response, Scripted, Visitor, gateway, tools
from msgspec import Raw
from virtualtime import FakeClock, VirtualTimeLoop, settle

from toolgate.catalog.catalog import PACE
from toolgate.catalog.refresh import DEBOUNCE, LONGEST_DEBOUNCE, MOST_CHANGES, Refresh
from toolgate.core.steps import at_once
from toolgate.eras import revisions
from toolgate.eras.calls import LONGEST_NAME
from toolgate.gateway import lists
from toolgate.surfaces import aggregate
from toolgate.upstreams.mcp import paging


async def test_what_changes_each_time_is_looked_at_more_and_more_seldom() -> None:
    clock = FakeClock()
    refresh = Refresh(clock)
    looks: list[Any] = []

    async def look() -> None:
        looks.append(clock.now())
        refresh.take(("there", ""))
        refresh.looked(("there", ""), is_other=True)

    for _ in range(200):  # 20 seconds
        refresh.before(("there", ""), look)
        await clock.advance(0.1)
        await settle()
    assert 5 < len(looks) < 10 + 20 / (DEBOUNCE * 2**MOST_CHANGES)
    await clock.advance(2 * LONGEST_DEBOUNCE + 1)
    begun = len(looks)
    refresh.before(("there", ""), look)
    await clock.advance(DEBOUNCE)
    await settle()
    assert len(looks) == begun + 1, "after a pause it is looked at as soon as any other"
    await refresh.close()


def large(number: int, size: int = 600) -> bytes:
    listed = tools(*(f"t{each}" for each in range(4000)), description=f"{number}" + "d" * size)
    return json.dumps(listed).encode()


@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/there"])
async def test_a_large_list_that_is_withdrawn_each_time_is_read_at_a_pace(path: str) -> None:
    clock, there = FakeClock(), Scripted(tools_list=large(0))
    size = len(there.answers["tools/list"])
    async with gateway(scripts={"there": there}, clock=clock) as app:
        visitor = Visitor(app, path)
        await visitor.initialize()
        began, before = clock.now(), len(of(there, "tools/list"))
        for number in range(1, 9):
            there.change(large(number))  # type: ignore[arg-type]
            asked = [visitor.begin("POST", json.dumps(visitor.request("tools/list")).encode()) for _ in range(3)]
            for each in asked:
                (tool, *_) = (await ended(clock, each)).result["tools"]
                assert tool["description"].startswith(f"{number}d"), "what is shown is what its server says now"
        read = len(of(there, "tools/list")) - before
        assert read * size / (clock.now() - began + 1) < 1.6 * PACE
        assert read <= 2 * 8, "who asks at once has one answer"


async def test_a_small_list_is_read_as_often_as_it_is_withdrawn() -> None:
    clock, there = FakeClock(), Scripted(tools_list=tools("a"))
    async with gateway(scripts={"there": there}, clock=clock) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        began = clock.now()
        for number in range(20):
            there.change(tools(f"t{number}"))
            assert (await visitor.ask("tools/list")).result["tools"][0]["name"] == f"there__t{number}"
        assert clock.now() - began < 1


@pytest.mark.parametrize("where", ["inputSchema", "_meta", "x-more", "annotations"])
async def test_an_item_of_more_values_than_any_tool_has_is_left_out(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    endless = {"name": "endless", "inputSchema": {"type": "object"}, where: {f"p{each}": {} for each in range(20_000)}}
    there = Scripted(tools_list={"tools": [*tools("a")["tools"], endless, *tools("b")["tools"]]})
    async with gateway(scripts={"there": there}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        shown = (await visitor.post(visitor.request("tools/list"))).result["tools"]
        assert [tool["name"] for tool in shown] == ["there__a", "there__b"]
        assert "there: ignored 1 of its items: more than 10,000 JSON values in one" in caplog.text


async def unused(scene: peers.Scene) -> str:
    return ""


LONG = "é\u1e9b" * LONGEST_NAME


@pytest.mark.parametrize(
    ("method", "member", "item"),
    [
        ("tools/list", "tools", {"name": LONG, "inputSchema": {"type": "object"}}),
        ("tools/list", "tools", {"name": "x" * (LONGEST_NAME + 1), "inputSchema": {"type": "object"}}),
        ("prompts/list", "prompts", {"name": LONG}),
        ("resources/list", "resources", {"uri": "file:///" + LONG, "name": "x"}),
        ("resources/templates/list", "resourceTemplates", {"uriTemplate": "x://" + "{a}/" * LONGEST_NAME, "name": "x"}),
    ],
)
async def test_an_item_with_a_longer_name_than_a_request_can_have_is_left_out(
    method: str, member: str, item: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It held up others wherever it was compared, normalized, matched or told."""
    key = next(key for key in ("uriTemplate", "uri", "name") if key in item)
    listed = {member: [item, item | {key: "x:/ok", "description": LONG}]}
    there = peers.LegacyServer({"a": unused}, {"a": unused}, {"x:a": unused})
    there.lists[method] = (member, listed[member])
    async with peers.gateway(there=there) as rig:
        shown = (await (await rig.client(LATEST)).request(method)).message["result"][member]
        assert [each[key] for each in shown if len(each[key]) < 100] == [each[key] for each in shown]
        assert len(shown) == 1 and shown[0]["description"] == LONG
    assert "ignored 1 of its items: more than 16,384 characters of a name or URI in one" in caplog.text


@pytest.mark.parametrize("item", [{"name": "x" * LONGEST_NAME}, {"name": "\ue000" * LONGEST_NAME}])
def test_a_name_that_a_request_can_have_is_kept_however_it_is_written(item: Any) -> None:
    kept = at_once(paging._kept([Raw(json.dumps(item).encode())], "prompts", False))  # pyright: ignore[reportPrivateUsage]
    assert len(kept.items) == 1 and not any(kept.left_out.values())


async def test_an_item_of_as_many_values_as_ever_may_be_is_listed() -> None:
    schema = {"type": "object", "properties": {f"p{each}": {} for each in range(9_000)}}
    there = Scripted(tools_list={"tools": [{"name": "large", "inputSchema": schema}]})
    async with gateway(scripts={"there": there}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        assert len((await visitor.ask("tools/list")).result["tools"][0]["inputSchema"]["properties"]) == 9_000


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_large_list_is_named_and_written_beside_the_loop(
    revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bool] = []
    renamed, write_item = aggregate._renamed, revisions.write_item

    def noted(*args: Any) -> Any:
        written.append(VirtualTimeLoop.is_aside)
        return write_item(*args)

    def noted_too(*args: Any) -> Any:
        written.append(VirtualTimeLoop.is_aside)
        return renamed(*args)

    monkeypatch.setattr(revisions, "write_item", noted)
    monkeypatch.setattr(aggregate, "_renamed", noted_too)
    there = Scripted(tools_list=large(0))
    async with gateway(scripts={"there": there}) as app:
        visitor = Visitor(app)
        if revision == LATEST:
            await visitor.initialize()
            shown = await visitor.ask("tools/list")
        else:
            shown = await visitor.ask_modern("tools/list")
        assert shown.result["tools"][0]["name"] == "there__t0"
        assert len(written) > 4000 and all(written)


async def test_a_list_that_is_withdrawn_while_it_is_named_is_shown_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    there, other = Scripted(tools_list=large(0)), Scripted(tools_list=tools("x"))
    named = lists.exposed

    def withdrawn(server: str, *args: Any) -> Any:
        loop.call_soon_threadsafe(lambda: [each.tell("notifications/tools/list_changed") for each in (there, other)])
        return named(server, *args)

    async with gateway(scripts={"there": there, "other": other}) as app:
        loop = asyncio.get_running_loop()
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask("tools/list")
        there.change(large(1))  # type: ignore[arg-type]
        monkeypatch.setattr(lists, "exposed", withdrawn)
        shown = (await visitor.ask("tools/list")).result
        assert shown["tools"][0]["name"] == "there__t0" and "_meta" not in shown
        whole = {tool["name"] for tool in shown["tools"]}
        while "nextCursor" in shown:
            shown = (await visitor.ask("tools/list", cursor=shown["nextCursor"])).result
            whole |= {tool["name"] for tool in shown["tools"]}
        assert "other__x" in whole and len(whole) == 4001


def of(there: Scripted, method: str) -> list[Any]:
    return [each for each in there.requests if each["method"] == method]


async def ended(clock: FakeClock, exchange: Exchange) -> Response:
    for _ in range(200):
        await settle()
        if exchange.work.done():
            break
        await clock.advance(0.25)
    return await exchange.response()
