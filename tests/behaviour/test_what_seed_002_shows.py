"""Seed 002: tools are found across servers, called by server and name, and failures say what failed."""

from __future__ import annotations

import json
from typing import Any

import offers
import pytest
from inmemory import Json, Refusal, Scripted, gateway, said, tools
from stage import PIXEL, Asker, cast, playing, read, tool

from toolgate.config import Server
from toolgate.core.fault import Fault

PATHS = pytest.mark.parametrize("path", ["/mcp", "/mcp/meta"])
DOWN = Fault("SERVER_FAILED", "Command not found: npx", reach="not_sent")


def scripted(name: str) -> Scripted:
    found = cast()[name]
    assert isinstance(found, Scripted)
    return found


# mcp_discover.


@PATHS
@pytest.mark.promise("002.discover.servers", "b.names.configured")
async def test_without_a_query_every_server_shows_state_tools_and_criticality(path: str, era: str) -> None:
    odd = Server(id="my-db", name="My_DB", type="stdio", command="memory", criticality="optional")
    async with gateway(odd, scripts={"my-db": scripted("sqlite"), "down": DOWN}) as app:
        assert await Asker(app, era, path).told("mcp_discover") == [
            {"name": "My_DB", "state": "idle", "toolCount": 6, "criticality": "optional"},
            {"name": "down", "state": "failed", "toolCount": None, "criticality": "vital"},
        ]


@pytest.mark.promise("002.discover.servers", "b.lifecycle.words")
async def test_a_server_with_a_call_under_way_is_active_and_one_that_was_closed_is_closed(era: str) -> None:
    async with gateway(scripts={"slow": Scripted(tools_list=tools("t"), tools_call=...)}) as app:
        asker, other = Asker(app, era, "/mcp/meta"), Asker(app, "modern", "/mcp/meta")
        assert (await asker.told("mcp_discover"))[0]["state"] == "idle"
        visitor = other.visitor
        message = visitor.modern_request("tools/call", name="slow__t", arguments={})
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "slow__t"}
        under_way = visitor.begin("POST", json.dumps(message).encode(), headers=headers)
        await app.clock.sleep(0.1)
        assert (await asker.told("mcp_discover"))[0]["state"] == "active"
        await under_way.gone()
        await asker.told("close_child_session", server_id="slow")
        assert (await asker.told("mcp_discover"))[0] == {
            "name": "slow",
            "state": "closed",
            "toolCount": 1,
            "criticality": "vital",
        }


@PATHS
@pytest.mark.promise("002.discover.server")
async def test_a_servers_name_narrows_the_answer_to_it_and_its_tools(path: str, era: str) -> None:
    async with playing("playwright", "sqlite") as app:
        told = await Asker(app, era, path).told("mcp_discover", server="sqlite")
        assert all(tool.pop("signature").startswith(tool["tool"] + "(") for tool in told["tools"])
        assert told == {
            "name": "sqlite",
            "state": "idle",
            "toolCount": 6,
            "criticality": "vital",
            "tools": [
                {"tool": each["name"], "description": each["description"]} for each in offers.read(offers.SQLITE)
            ],
        }


@pytest.mark.promise("002.discover.server")
async def test_a_server_that_is_down_is_told_of_with_its_error(era: str) -> None:
    async with gateway(scripts={"down": DOWN, "sqlite": scripted("sqlite")}) as app:
        told = await Asker(app, era).told("mcp_discover", server="down")
        assert (told["state"], told["toolCount"], told["tools"]) == ("failed", None, [])
        assert "Command not found: npx" in told["error"]


@pytest.mark.promise("002.discover.server")
async def test_a_query_is_filtered_by_the_server_too(era: str) -> None:
    other = Scripted(tools_list={"tools": [tool("screenshot", "Take a screenshot of the desktop")]})
    async with gateway(scripts={"playwright": scripted("playwright"), "desktop": other}) as app:
        asker = Asker(app, era)
        both = await asker.told("mcp_discover", query="screenshot")
        assert {each["server"] for each in both} == {"playwright", "desktop"}
        one = await asker.told("mcp_discover", query="screenshot", server="desktop")
        assert [(each["server"], each["tool"]) for each in one] == [("desktop", "screenshot")]
        assert await asker.told("mcp_discover", query="zebra", server="desktop") == []


@PATHS
@pytest.mark.promise("002.discover.query")
async def test_a_query_finds_tools_with_score_and_confidence(path: str, era: str) -> None:
    async with playing("playwright", "sqlite") as app:
        found = await Asker(app, era, path).told("mcp_discover", query="screenshot")
        first = found[0]
        assert (first["tool"], first["server"], first["score"]) == ("browser_screenshot", "playwright", 12)
        assert first["description"] == "Take a screenshot of the current page"
        assert 0.9 <= first["confidence"] <= 1.0
        assert [each["confidence"] for each in found] == sorted((each["confidence"] for each in found), reverse=True)


@pytest.mark.promise("002.discover.query")
async def test_as_many_are_found_as_are_wanted(era: str) -> None:
    many = Scripted(tools_list=tools(*(f"search_{number}" for number in range(60)), description="Search things"))
    async with gateway(scripts={"many": many}) as app:
        asker = Asker(app, era)
        assert len(await asker.told("mcp_discover", query="search")) == 10
        assert len(await asker.told("mcp_discover", query="search", limit=50)) == 50
        for limit in (0, 51):
            result = await asker.call("mcp_discover", {"query": "search", "limit": limit})
            assert (result["isError"], result["content"][0]["text"][:17]) == (True, "Invalid arguments")


@pytest.mark.promise("002.discover.query")
@pytest.mark.parametrize(("format", "shows"), [("typescript", "sql: string"), ("python", "sql: str")])
async def test_declarations_are_added_on_demand(format: str, shows: str, era: str) -> None:
    async with playing("sqlite") as app:
        asker = Asker(app, era)
        (found,) = await asker.told("mcp_discover", query="run a sql query", format=format, limit=1)
        assert shows in found["declaration"]
        told = await asker.told("mcp_discover", server="sqlite", format=format)
        assert shows in told["tools"][0]["declaration"]


# mcp_call.


@PATHS
@pytest.mark.promise("002.call.forward")
async def test_a_call_goes_to_the_servers_tool_with_its_arguments_and_its_result_comes_back_whole(
    path: str, era: str
) -> None:
    result = {
        "content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "docs://a", "text": "an a"}},
        ],
        "structuredContent": {"n": 1},
    }
    script = Scripted(tools_list=tools("t"), tools_call=result)
    async with gateway(scripts={"docs": script}) as app:
        args = {"a": [1, {"b": None}], "é": 12345678901234567890}
        found = await Asker(app, era, path).call("mcp_call", {"server": "docs", "tool": "t", "args": args})
        assert found["content"][:3] == result["content"][:3]
        assert found["content"][3]["resource"]["uri"] == "docs+docs://a"
        assert found["structuredContent"] == {"n": 1}
        assert "isError" not in found or found["isError"] is False
        assert script.requests[-1]["params"]["arguments"] == args


@pytest.mark.promise("002.call.no-arguments")
@pytest.mark.parametrize("left_out", [{}, {"args": None}, {"args": {}}])
async def test_a_call_without_arguments_is_one(left_out: Json, era: str) -> None:
    script = scripted("playwright")
    async with gateway(scripts={"playwright": script}) as app:
        call = {"server": "playwright", "tool": "browser_screenshot"} | left_out
        assert (await Asker(app, era).call("mcp_call", call))["content"][0]["type"] == "image"
        assert script.requests[-1]["params"].get("arguments", {}) == {}


@pytest.mark.promise("002.call.forward")
async def test_arguments_that_a_model_wrote_as_a_text_are_understood(era: str) -> None:
    script = scripted("playwright")
    async with gateway(scripts={"playwright": script}) as app:
        call = {"server": "playwright", "tool": "browser_navigate", "args": '{"url": "https://example.com"}'}
        await Asker(app, era).call("mcp_call", call)
        assert script.requests[-1]["params"]["arguments"] == {"url": "https://example.com"}


@PATHS
@pytest.mark.promise("002.errors.message", "b.errors.near-miss")
@pytest.mark.parametrize(
    ("given", "begins", "holds"),
    [
        ({"server": "playwrite", "tool": "t"}, "Error calling t on playwrite: Server not found", "playwright"),
        (
            {"server": "playwright", "tool": "browser_screenshoot"},
            "Error calling browser_screenshoot on playwright: Tool not found",
            "did you mean browser_screenshot",
        ),
        ({"server": "down", "tool": "t"}, "Error calling t on down: Server not started", "Command not found: npx"),
        ({"server": "playwright"}, "Invalid arguments: `tool` is missing", "mcp_call(server, tool, args?)"),
        ({"server": "playwright", "tool": "t", "args": 7}, "Error calling t on playwright: Invalid arguments", "args"),
        ({"server": "stale", "tool": "t"}, "Error calling t on stale: the index is stale", ""),
    ],
)
async def test_a_failed_call_names_tool_server_and_reason(
    path: str, given: Json, begins: str, holds: str, era: str
) -> None:
    stale = Scripted(tools_list=tools("t"), tools_call=Refusal(-32000, "the index is stale"))
    async with gateway(scripts={"playwright": scripted("playwright"), "down": DOWN, "stale": stale}) as app:
        result = await Asker(app, era, path).call("mcp_call", given)
        text = result["content"][0]["text"]
        assert result["isError"] is True
        assert text.startswith(begins) and holds in text, text


@pytest.mark.promise("002.errors.message")
async def test_a_tools_own_failure_passes_as_it_is(era: str) -> None:
    failed = said("no such table: users") | {"isError": True}
    script = Scripted(tools_list=tools("query"), tools_call=failed)
    async with gateway(scripts={"sqlite": script}) as app:
        result = await Asker(app, era).call("mcp_call", {"server": "sqlite", "tool": "query"})
        assert (result["content"], result["isError"]) == (failed["content"], True)


class Crashing(Scripted):
    """Crashes in the first so many calls."""

    def __init__(self, crashes: int, **hints: Any) -> None:
        super().__init__(tools_list=tools("t", **({"annotations": hints} if hints else {})))
        self.calls = 0
        self.answers["tools/call"] = self._call
        self._crashes = crashes

    def _call(self, _params: Json) -> Any:
        self.calls += 1
        if self.calls <= self._crashes:
            self.hang_up("it crashed")
            return ...
        return said("done")


CALL = {"server": "there", "tool": "t"}


@pytest.mark.promise("002.call.retry")
async def test_a_crash_of_a_vital_server_is_followed_by_one_retry(era: str) -> None:
    script = Crashing(1)
    async with gateway(scripts={"there": script}) as app:
        assert (await Asker(app, era).call("mcp_call", CALL))["content"] == said("done")["content"]
        assert script.calls == 2


@pytest.mark.promise("002.call.retry")
async def test_a_second_crash_is_a_failure(era: str) -> None:
    script = Crashing(9)
    async with gateway(scripts={"there": script}) as app:
        result = await Asker(app, era).call("mcp_call", CALL)
        assert result["isError"] is True
        assert result["content"][0]["text"].startswith("Error calling t on there: ")
        assert script.calls == 2


@pytest.mark.promise("002.call.retry", "b.rulings.04-destructive")
@pytest.mark.parametrize(
    ("criticality", "control", "hints"),
    [
        ("optional", "mcp_call", {}),
        ("vital", "mcp_call", {"destructiveHint": True}),
        ("vital", "mcp_call", {"destructiveHint": True, "idempotentHint": False}),
        ("vital", "execute_child_tool", {}),
        ("vital", "call_tool", {}),
        ("vital", "there__t", {}),
    ],
)
async def test_there_is_no_retry_where_it_might_do_harm_or_was_not_promised(
    criticality: Any, control: str, hints: Json, era: str
) -> None:
    script = Crashing(9, **hints)
    config = Server(id="there", name="there", type="stdio", command="memory", criticality=criticality)
    calls = {
        "mcp_call": CALL,
        "execute_child_tool": {"server_id": "there", "tool_name": "t", "arguments": {}},
        "call_tool": {"server_name": "there", "tool_name": "t"},
    }
    async with gateway(config, scripts={"there": script}) as app:
        answer = await Asker(app, era).request("tools/call", name=control, arguments=calls.get(control, {}))
        assert "error" in answer.last or answer.result["isError"] is True
        assert script.calls == 1


@pytest.mark.promise("002.response.text")
async def test_every_tool_answers_with_text_that_is_json(era: str) -> None:
    async with playing("playwright") as app:
        asker = Asker(app, era, "/mcp/meta")
        for arguments in ({}, {"server": "playwright"}, {"query": "navigate"}):
            result = await asker.call("mcp_discover", arguments)
            (block,) = result["content"]
            assert block["type"] == "text"
            assert read(result)
