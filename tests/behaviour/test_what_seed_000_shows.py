"""Seed 000: child servers, their tools, their state, and the words for what goes wrong."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from inmemory import GREETER, PID, Json, Refusal, Scripted, gateway, said, tools
from stage import LINES, PIXEL, Asker, cast, playing
from virtualtime import settle

from toolgate import config
from toolgate.config import Config, Server
from toolgate.core.fault import Fault
from toolgate.surfaces.controls import base

PATHS = ["/mcp", "/mcp/children"]
BLOCKS: list[Json] = [
    {"type": "text", "text": "one"},
    {"type": "image", "data": PIXEL, "mimeType": "image/png"},
    {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
    {"type": "text", "text": "two"},
    {"type": "resource", "resource": {"uri": "docs://a", "text": "an a"}},
    {"type": "resource_link", "uri": "docs://b", "name": "b"},
]


def execution(server: str = "serena", tool: str = "search_code", **more: Any) -> Json:
    return {"server_id": server, "tool_name": tool, "arguments": {"query": "x"}, **more}


async def test_a_result_that_would_be_too_long_as_json_in_a_text_is_passed_on_as_it_is(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "LONGEST_TEXT", 10_000)
    words = {"letters": "a" * 4_000, "quotes": '"' * 3_000}
    scripts = {name: Scripted(tools_list=tools("t"), tools_call=said(text)) for name, text in words.items()}
    async with gateway(scripts=scripts) as app:
        told = await Asker(app, era).told("execute_child_tool", **execution("letters", "t"))
        assert told["result"] == words["letters"]
        result = await Asker(app, era).call("execute_child_tool", execution("quotes", "t"))
        assert [block["text"] for block in result["content"]] == [words["quotes"]]


@pytest.mark.promise("000.execute.call", "000.execute.success")
@pytest.mark.parametrize("path", PATHS)
async def test_a_tool_runs_with_its_arguments_as_they_are(path: str, era: str) -> None:
    script = Scripted(tools_list=tools("t"), tools_call=said("output"))
    arguments = {"nested": {"a": [1, 2.50, None]}, "large": 12345678901234567890, "é": "ü"}
    async with gateway(scripts={"serena": script}) as app:
        told = await Asker(app, era, path).told("execute_child_tool", **execution(tool="t") | {"arguments": arguments})
        assert told == {"result": "output", "status": "success"}
        assert script.requests[-1]["params"]["name"] == "t"
        assert script.requests[-1]["params"]["arguments"] == arguments


@pytest.mark.promise("000.execute.success", "b.000.result-blocks")
async def test_texts_are_one_result_and_other_blocks_follow(era: str) -> None:
    result = {"content": BLOCKS, "structuredContent": {"n": 1}, "_meta": {"trace": "t"}}
    async with gateway(scripts={"docs": Scripted(tools_list=tools("t"), tools_call=result)}) as app:
        found = await Asker(app, era).call("execute_child_tool", execution("docs", "t"))
        assert json.loads(found["content"][0]["text"]) == {"result": "one\ntwo", "status": "success"}
        image, audio, resource, link = found["content"][1:]
        assert (image, audio) == (BLOCKS[1], BLOCKS[2])
        assert resource["resource"]["uri"] == "docs+docs://a"  # what a client can read here
        assert link["uri"] == "docs+docs://b"
        assert found["structuredContent"] == {"n": 1}
        assert found["_meta"]["trace"] == "t"


@pytest.mark.promise("000.execute.failure")
async def test_a_tools_own_failure_is_a_failed_run(era: str) -> None:
    script = Scripted(tools_list=tools("t"), tools_call=said("no such file") | {"isError": True})
    async with gateway(scripts={"serena": script}) as app:
        told = await Asker(app, era).failed("execute_child_tool", **execution(tool="t"))
        assert (told["error"], told["status"]) == ("no such file", "failed")


# Failures: the words of the seed, and what fixes them.


@pytest.mark.promise("000.errors.codes", "000.execute.failure", "b.errors.near-miss")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("given", "code", "phrase", "helps"),
    [
        (execution("serina"), "SERVER_NOT_FOUND", "Server not found: serina", "did you mean serena?"),
        (execution("zzz"), "SERVER_NOT_FOUND", "Server not found: zzz", "there are serena, down"),
        (execution(tool="search_coed"), "TOOL_NOT_FOUND", "Tool not found: search_coed", "did you mean search_code?"),
        (execution("down"), "SERVER_FAILED", "Server not started", ""),
        ({"server_id": "serena", "tool_name": "t"}, "INVALID_ARGS", "Invalid arguments: `arguments` is missing", ""),
        (execution(head=-1), "INVALID_ARGS", "Invalid arguments: ", "head"),
        (execution(head="7"), "INVALID_ARGS", "Invalid arguments: `head` must be a whole number", ""),
        (execution(tail=1.5), "INVALID_ARGS", "Invalid arguments: `tail` must be a whole number", ""),
        (execution() | {"arguments": [1]}, "INVALID_ARGS", "Invalid arguments: `arguments` must be an object", ""),
        (execution(haed=1), "INVALID_ARGS", "Invalid arguments: unknown parameter `haed`", "did you mean head?"),
    ],
)
async def test_each_failure_has_its_word_its_phrase_and_its_mend(
    path: str, given: Json, code: str, phrase: str, helps: str, era: str
) -> None:
    scripts = {"serena": cast()["serena"], "down": Fault("SERVER_FAILED", "it is broken", reach="not_sent")}
    async with gateway(scripts=scripts) as app:
        result = await Asker(app, era, path).call("execute_child_tool", given)
        told = json.loads(result["content"][0]["text"])
        assert result["isError"] is True
        assert (told["status"], told["code"]) == ("failed", code)
        assert told["error"].startswith(phrase)
        assert helps in told["error"] + str(told.get("hint", ""))


@pytest.mark.promise("000.errors.codes")
async def test_what_was_never_sent_is_refused_before_any_server_hears_of_it(era: str) -> None:
    script = cast()["serena"]
    assert isinstance(script, Scripted)
    async with gateway(scripts={"serena": script}) as app:
        await Asker(app, era).failed("execute_child_tool", **execution(head=-1))
        assert "tools/call" not in [asked["method"] for asked in script.requests]


@pytest.mark.promise("000.errors.codes")
async def test_a_tool_that_takes_too_long_has_timed_out(era: str) -> None:
    slow = Server(id="slow", name="slow", type="stdio", command="memory", timeout=5)
    async with gateway(slow, scripts={"slow": Scripted(tools_list=tools("t"), tools_call=...)}) as app:
        told = await Asker(app, era).failed("execute_child_tool", **execution("slow", "t"))
        assert (told["code"], told["status"]) == ("TIMEOUT", "failed")


@pytest.mark.promise("000.errors.codes")
async def test_a_session_that_breaks_in_mid_call_is_told_with_its_word(era: str) -> None:
    script = Scripted(tools_list=tools("t"))
    script.answers["tools/call"] = lambda params: script.hang_up("it crashed") or ...
    async with gateway(scripts={"serena": script}) as app:
        told = await Asker(app, era).failed("execute_child_tool", **execution(tool="t"))
        assert told["code"] in ("SERVER_FAILED", "SESSION_ERROR")
        assert "it crashed" in told["error"]


@pytest.mark.promise("000.execute.failure")
async def test_an_error_of_the_server_is_a_failed_run_with_its_words(era: str) -> None:
    script = Scripted(tools_list=tools("t"), tools_call=Refusal(-32000, "the index is stale"))
    async with gateway(scripts={"serena": script}) as app:
        told = await Asker(app, era).failed("execute_child_tool", **execution(tool="t"))
        assert (told["error"], told["code"], told["status"]) == ("the index is stale", "UPSTREAM_ERROR", "failed")


# Truncation.


@pytest.mark.promise("000.truncation", "b.000.truncation-edges")
@pytest.mark.parametrize(
    ("ends", "lines"),
    [
        ({"head": 2}, LINES[:2]),
        ({"tail": 2}, LINES[-2:]),
        ({"head": 2, "tail": 1}, [*LINES[:2], "...", LINES[-1]]),
        ({"head": 0}, [""]),
        ({"head": 0, "tail": 1}, ["...", LINES[-1]]),
        ({"head": 150, "tail": 150}, LINES),
        ({"head": 300}, LINES),
        ({"head": 10_000, "tail": 10_000}, LINES),
    ],
)
async def test_head_and_tail_are_the_first_and_the_last_lines(ends: Json, lines: list[str], era: str) -> None:
    async with playing("serena") as app:
        told = await Asker(app, era).told("execute_child_tool", **execution(**ends))
        assert told["result"].split("\n") == lines
        assert told.get("truncated", False) == (lines != LINES)
        if lines != LINES:
            assert told["total_lines"] == len(LINES)


@pytest.mark.promise("b.000.aliases", "000.truncation")
async def test_other_names_of_parameters_are_understood(era: str) -> None:
    async with playing("serena") as app:
        asker = Asker(app, era)
        call = {"child_name": "serena", "tool_name": "search_code", "tool_args": {"query": "x"}}
        assert (await asker.told("execute_child_tool", **call))["result"] == "\n".join(LINES)
        cut = await asker.told("execute_child_tool", **call, head_chars=3, tail_chars=2)
        assert cut["result"] == "src\n...\nos"
        assert (await asker.told("get_schema", child_name="serena"))["tools"]
        twice = await asker.call("execute_child_tool", call | {"arguments": {"query": "y"}})
        assert "`tool_args` and `arguments` are the same parameter: give one of them" in json.dumps(twice)


# What children there are, and how they are.


@pytest.mark.promise("000.children.list", "b.names.configured")
@pytest.mark.parametrize("path", PATHS)
async def test_children_are_listed_by_the_names_that_people_gave_them(path: str, era: str) -> None:
    odd = Server(id="my-child", name="My_Child", type="stdio", command="memory")
    async with gateway(odd, scripts={"my-child": Scripted(tools_list=tools("t"), tools_call=said("ok"))}) as app:
        asker = Asker(app, era, path)
        assert await asker.told("list_registered_children") == {"children": ["My_Child"], "count": 1}
        for spelling in ("My_Child", "my-child", "my_child"):
            assert (await asker.told("get_child_status", server_id=spelling))["server_id"] == "My_Child"
            assert (await asker.told("execute_child_tool", **execution(spelling, "t")))["result"] == "ok"


@pytest.mark.promise("000.children.list")
async def test_without_children_the_list_is_empty(era: str) -> None:
    off = Server(id="off", name="off", type="stdio", command="memory", enabled=False)
    async with gateway(off) as app:
        assert await Asker(app, era).told("list_registered_children") == {"children": [], "count": 0}


@pytest.mark.promise("000.schema.tools", "000.schema.resources")
async def test_a_schema_shows_tools_and_resources_as_their_server_does(era: str) -> None:
    async with playing("serena", "sqlite") as app:
        asker = Asker(app, era, "/mcp/children")
        told = await asker.told("get_schema", server_id="serena")
        assert told["resources"] == [{"uri": "serena://guide", "name": "guide", "description": "How to search"}]
        assert [tool.keys() for tool in told["tools"]] == [{"name", "description", "parameters"}]
        assert (await asker.told("get_schema", server_id="sqlite"))["resources"] == []


@pytest.mark.promise("000.schema.tools")
async def test_a_server_that_is_down_has_no_schema_and_says_why(era: str) -> None:
    async with gateway(scripts={"down": Fault("SERVER_FAILED", "Command not found: npx", reach="not_sent")}) as app:
        told = await Asker(app, era).failed("get_schema", server_id="down")
        assert (told["code"], told["status"]) == ("SERVER_FAILED", "failed")
        assert "Command not found: npx" in told["error"]


@pytest.mark.promise("000.status.running", "000.status.values")
async def test_a_running_child_shows_since_when_and_its_process(era: str) -> None:
    async with playing("serena") as app:
        asker = Asker(app, era, "/mcp/children")
        before = await asker.told("get_child_status", server_id="serena")
        assert (before["status"], before["reason"]) == ("stopped", "not_started")
        await asker.told("execute_child_tool", **execution())
        told = await asker.told("get_child_status", server_id="serena")
        assert (told["status"], told["pid"]) == ("running", PID)
        assert told["startup_time"].startswith("2027-01-15T") and told["startup_time"].endswith("Z")


@pytest.mark.promise("000.status.values", "b.lifecycle.words")
async def test_a_child_that_starts_is_starting(era: str) -> None:
    async with gateway(scripts={"slow": Scripted(initialize=..., server_discover=...)}) as app:
        asker = Asker(app, era, "/mcp/children")
        slow = app.gateway.snapshot.upstreams["slow"]
        opening = asyncio.ensure_future(slow.open())
        await app.clock.sleep(1)
        assert (await asker.told("get_child_status", server_id="slow"))["status"] == "starting"
        opening.cancel()


@pytest.mark.promise("b.000.status-all", "000.status.failed")
async def test_without_a_name_all_children_are_told_of_and_a_failure_is_a_good_answer(era: str) -> None:
    down = Fault("SERVER_FAILED", "Command not found: npx", reach="not_sent")
    async with gateway(scripts={"serena": cast()["serena"], "down": down}) as app:
        asker = Asker(app, era, "/mcp/children")
        await asker.told("execute_child_tool", **execution())
        await asker.failed("get_schema", server_id="down")
        told = await asker.told("get_child_status")
        assert told["count"] == 2
        assert [(each["server_id"], each["status"]) for each in told["children"]] == [
            ("serena", "running"),
            ("down", "failed"),
        ]
        one = await asker.told("get_child_status", server_id="down")
        assert one["error"] == "Command not found: npx"
        assert isinstance(one["stderr"], str)


@pytest.mark.promise("000.close.closed", "b.lifecycle.words")
async def test_a_closed_child_is_stopped_and_starts_again_with_its_next_call(era: str) -> None:
    script = Scripted(tools_list=tools("t"), tools_call=said("ok"))
    async with gateway(scripts={"serena": script}) as app:
        asker = Asker(app, era, "/mcp/children")
        await asker.told("execute_child_tool", **execution(tool="t"))
        await app.clock.sleep(65)
        told = await asker.told("close_child_session", server_id="serena")
        assert told == {
            "server_id": "serena",
            "status": "closed",
            "message": "Session closed successfully",
            "uptime": "00:01:05",
        }
        assert (await asker.told("get_child_status", server_id="serena"))["status"] == "stopped"
        assert (await asker.told("execute_child_tool", **execution(tool="t")))["result"] == "ok"
        assert (await asker.told("get_child_status", server_id="serena"))["status"] == "running"
        assert [asked["method"] for asked in script.requests].count("initialize") == 2


@pytest.mark.promise("000.close.closed")
async def test_closing_what_is_not_open_is_no_failure_and_starts_nothing(era: str) -> None:
    script = cast()["serena"]
    assert isinstance(script, Scripted)
    async with gateway(scripts={"serena": script}) as app:
        told = await Asker(app, era, "/mcp/children").told("close_child_session", server_id="serena")
        assert (told["status"], told["uptime"]) == ("closed", "00:00:00")
        assert script.requests == []


@pytest.mark.promise("000.close.closed")
async def test_closing_one_child_leaves_the_others_alone(era: str) -> None:
    async with playing("serena", "sqlite") as app:
        asker = Asker(app, era, "/mcp/children")
        for server in ("serena", "sqlite"):
            await asker.told("get_schema", server_id=server)
        await asker.told("close_child_session", server_id="serena")
        assert (await asker.told("get_child_status", server_id="sqlite"))["status"] == "running"


# Resources of the gateway.


@pytest.mark.promise("000.resources.summary")
async def test_the_summary_counts_children_and_those_that_are_up(era: str) -> None:
    async with playing("serena", "sqlite", config=Config(source="/etc/children.json")) as app:
        asker = Asker(app, era, "/mcp/children")
        await asker.told("get_schema", server_id="serena")
        told = await _read(asker, "mcp://server_summary")
        assert (told["total_children"], told["active_sessions"], told["config_path"]) == (2, 1, "/etc/children.json")
        assert told["version"]


@pytest.mark.promise("000.resources.children")
async def test_the_children_are_told_of_without_their_secrets(era: str) -> None:
    secret = Server(
        id="secret", name="secret", type="stdio", command="run", args=("--key", "s3cret"), env={"API_KEY": "s3cret"}
    )
    remote = Server(
        id="far", name="far", type="http", url="https://u:s3cret@example.org/s3cret?key=s3cret", headers={"A": "s3cret"}
    )
    async with gateway(secret, remote, scripts={"secret": Scripted(tools_list=tools("a", "b"))}) as app:
        asker = Asker(app, era, "/mcp/children")
        await asker.told("get_schema", server_id="secret")
        result = await asker.result("resources/read", uri="mcp://children_servers")
        assert "s3cret" not in json.dumps(result)
        near, far = json.loads(result["contents"][0]["text"])["children"]
        assert (near["name"], near["status"], near["tool_count"]) == ("secret", "running", 2)
        assert near["session"]["pid"] == PID
        assert near["config"]["env"] == {"API_KEY": "***"}
        assert (far["name"], far["status"], far["tool_count"], far["session"]) == ("far", "stopped", None, None)


@pytest.mark.promise("000.resources.children", "000.resources.summary", "b.surfaces.hidden")
@pytest.mark.parametrize(
    ("path", "is_listed"), [("/mcp", False), ("/mcp/children", True), ("/mcp/all", True), ("/mcp/meta", False)]
)
async def test_the_gateways_resources_are_read_everywhere_and_listed_where_they_belong(
    path: str, is_listed: bool, era: str
) -> None:
    async with gateway(GREETER) as app:
        asker = Asker(app, era, path)
        for uri in ("mcp://server_summary", "mcp://children_servers"):
            assert await _read(asker, uri)
            assert (uri in await asker.listed("resources")) == is_listed


@pytest.mark.promise("000.resources.summary")
async def test_an_unknown_resource_of_the_gateway_is_not_found_and_those_there_are_are_named(era: str) -> None:
    async with gateway(GREETER) as app:
        error = await Asker(app, era, "/mcp/children").error("resources/read", uri="mcp://nope")
        assert error["code"] == (-32002 if era == "legacy" else -32602)
        assert "mcp://server_summary" in error["data"]["hint"]


async def _read(asker: Asker, uri: str) -> Any:
    (content,) = (await asker.result("resources/read", uri=uri))["contents"]
    assert (content["uri"], content["mimeType"]) == (uri, "application/json")
    return json.loads(content["text"])


# The four patterns.


@pytest.mark.promise("000.patterns")
async def test_the_pattern_of_discovery(era: str) -> None:
    async with playing("serena", "sqlite") as app:
        asker = Asker(app, era, "/mcp/children")
        server = (await asker.told("list_registered_children"))["children"][0]
        tool = (await asker.told("get_schema", server_id=server))["tools"][0]
        told = await asker.told("execute_child_tool", **execution(server, tool["name"]))
        assert told["status"] == "success"


@pytest.mark.promise("000.patterns")
async def test_the_pattern_of_validation(era: str) -> None:
    async with playing("serena") as app:
        asker = Asker(app, era, "/mcp/children")
        assert (await asker.told("get_child_status", server_id="serena"))["status"] in ("running", "stopped")
        (tool,) = (await asker.told("get_schema", server_id="serena"))["tools"]
        assert (await asker.told("get_child_status", server_id="serena"))["status"] == "running"
        arguments = dict.fromkeys(tool["parameters"]["required"], "x")
        call = execution(tool=tool["name"]) | {"arguments": arguments}
        assert (await asker.told("execute_child_tool", **call))["status"] == "success"


@pytest.mark.promise("000.patterns", "000.status.failed")
async def test_the_pattern_of_debugging(era: str) -> None:
    script = Scripted(tools_list=tools("t"), tools_call=said("ok"))
    broken = {"is": True}

    def opening(params: Json) -> Json:
        if broken["is"]:
            raise Refusal(-32603, "no configuration")
        return opened

    opened = script.answers["initialize"]
    script.answers["initialize"] = opening
    async with gateway(scripts={"serena": script}) as app:
        asker = Asker(app, era, "/mcp/children")
        assert (await asker.failed("execute_child_tool", **execution(tool="t")))["code"] == "SERVER_FAILED"
        told = await asker.told("get_child_status", server_id="serena")
        assert (told["status"], "no configuration" in told["error"]) == ("failed", True)
        broken["is"] = False
        assert (await asker.told("close_child_session", server_id="serena"))["status"] == "closed"
        assert (await asker.told("execute_child_tool", **execution(tool="t")))["result"] == "ok"
        assert (await asker.told("get_child_status", server_id="serena"))["status"] == "running"


@pytest.mark.promise("000.patterns")
async def test_the_pattern_of_cleaning_up(era: str) -> None:
    async with playing("serena", "sqlite") as app:
        asker = Asker(app, era, "/mcp/children")
        for server in ("serena", "sqlite"):
            await asker.told("get_schema", server_id=server)
        for server in ("serena", "sqlite"):
            await asker.told("close_child_session", server_id=server)
        told = await asker.told("get_child_status")
        assert [each["status"] for each in told["children"]] == ["stopped", "stopped"]


# What a failed start is due to, and children of a children config.


@pytest.mark.promise("000.status.causes")
@pytest.mark.parametrize(
    ("why", "fix"),
    [("Command not found: npx", "Node"), ("Command not found: uvx", "uv"), ("Permission denied: ./run", "permissions")],
)
async def test_a_known_cause_of_a_failed_start_tells_its_mend(why: str, fix: str, era: str) -> None:
    async with gateway(scripts={"broken": Fault("SERVER_FAILED", why, reach="not_sent")}) as app:
        asker = Asker(app, era, "/mcp/children")
        failed = await asker.failed("execute_child_tool", **execution("broken", "t"))
        assert failed["code"] == "SERVER_FAILED"
        told = await asker.told("get_child_status", server_id="broken")
        assert (told["status"], told["error"]) == ("failed", why)
        assert fix in told["hint"]


CHILDREN = """
[mcp_servers.serena]
command = "uvx"
args = ["serena"]
"""


@pytest.mark.promise("b.000.children-start")
async def test_children_of_a_children_config_start_at_once_stay_and_take_one_call_at_a_time(
    era: str, tmp_path: Path
) -> None:
    file = tmp_path / "children_config.toml"
    file.write_text(CHILDREN)
    found = config.load(file, {})
    assert found.surface == "children"
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(*found.servers, scripts={"serena": script}) as app:
        await settle()
        assert "initialize" in [asked["method"] for asked in script.requests]
        await app.clock.sleep(7200)
        asker = Asker(app, era, "/mcp/children")
        assert (await asker.told("get_child_status", server_id="serena"))["status"] == "running"
        calls = [asyncio.ensure_future(asker.told("execute_child_tool", **execution(tool="t"))) for _ in range(3)]
        for count in (1, 2, 3):
            await app.clock.sleep(1)
            assert [asked["method"] for asked in script.requests].count("tools/call") == count
            script.answer_last(said("done"))
        assert [each["result"] for each in await asyncio.gather(*calls)] == ["done"] * 3
        assert [asked["method"] for asked in script.requests].count("initialize") == 1
