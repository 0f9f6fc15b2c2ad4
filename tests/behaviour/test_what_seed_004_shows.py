"""Seed 004: the daemon's status, its tool proxy and its servers."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from inmemory import Json, Refusal, Scripted, gateway, said, tools
from stage import CONSENTS, PIXEL, THREAD, Asker, allowing, cast, codex, confirming, playing, tool

from toolgate.app import App
from toolgate.config import Config, Server, Sessions, Tasks
from toolgate.config.access import Approvals
from toolgate.config.settings import Codex
from toolgate.core.fault import Fault

PATHS = pytest.mark.parametrize("path", ["/mcp", "/mcp/daemon"])
DOWN = Fault("SERVER_FAILED", "Command not found: npx", reach="not_sent", hint="install Node")


def calling(server: str = "there", tool: str = "t", **arguments: Any) -> Json:
    return {"server_name": server, "tool_name": tool} | ({"arguments": arguments} if arguments else {})


# status, list_mcp_servers.


@PATHS
@pytest.mark.promise("004.status.health", "b.lifecycle.words")
async def test_the_status_tells_how_long_it_is_up_where_and_how_each_server_is(path: str, era: str) -> None:
    async with gateway(scripts={"there": Scripted(tools_list=tools("t")), "down": DOWN, "idle": Scripted()}) as app:
        asker = Asker(app, era, "/mcp/daemon")
        for server in ("there", "down"):
            await asker.call("list_tools", {"server": server})
        await app.clock.sleep(75)
        told = await (asker if path == "/mcp/daemon" else Asker(app, "modern", path)).told("status")
        assert (told["status"], told["pid"], told["mcp_server_count"]) == ("running", os.getpid(), 3)
        assert (told["uptime"], told["uptime_seconds"]) == ("1m 15s", 75)
        there, down, idle = told["mcp_servers"]
        assert there == {"name": "there", "state": "connected", "connected": True, "transport": "stdio"}
        assert (down["state"], down["connected"], down["error"]) == ("failed", False, "Command not found: npx")
        assert (idle["state"], idle["connected"]) == ("disconnected", False)
        assert all(word in told["formatted_message"] for word in ("there", "connected", "1m 15s", "failed"))


@pytest.mark.promise("004.status.health")
@pytest.mark.parametrize(
    ("seconds", "uptime"), [(0, "0s"), (59, "59s"), (60, "1m 0s"), (3600, "1h 0m 0s"), (8130, "2h 15m 30s")]
)
async def test_uptime_is_told_as_people_say_it(seconds: int, uptime: str, era: str) -> None:
    async with playing("sqlite", config=Config(sessions=Sessions(idle=1e5))) as app:
        await app.clock.sleep(seconds)
        told = await Asker(app, era, "/mcp/daemon").told("status")
        assert (told["uptime"], told["uptime_seconds"]) == (uptime, seconds)


@PATHS
@pytest.mark.promise("004.status.servers", "b.names.configured")
async def test_servers_are_listed_with_whether_they_are_connected(path: str, era: str) -> None:
    odd = Server(id="my-db", name="My_DB", type="stdio", command="memory", description="All our data")
    async with gateway(odd, scripts={"my-db": Scripted(tools_list=tools("t"), tools_call=said("ok"))}) as app:
        asker = Asker(app, era, path)
        await asker.told("call_tool", **calling("my_db"))
        (told,) = (await asker.told("list_mcp_servers"))["servers"]
        assert (told["name"], told["description"], told["connected"]) == ("My_DB", "All our data", True)
        assert told["transport"] == "stdio"
        assert "project_id" in told


# The proxy.


@PATHS
@pytest.mark.promise("004.proxy.call", "004.errors.success")
@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (said("plain words"), "plain words"),
        (said('{"rows": [1, 2]}'), {"rows": [1, 2]}),
        (said("[1]"), [1]),
        (said("42"), 42),
        (said("{broken"), "{broken"),
        (said(""), ""),
        ({"content": [], "structuredContent": {"n": 1}}, {"n": 1}),
        ({"content": said("words")["content"], "structuredContent": {"n": 1}}, {"n": 1}),
        ({"content": [*said("a")["content"], *said("b")["content"]]}, "a\nb"),
    ],
)
async def test_the_result_is_structured_content_or_json_or_text(path: str, answer: Json, result: Any, era: str) -> None:
    async with gateway(scripts={"there": Scripted(tools_list=tools("t"), tools_call=answer)}) as app:
        told = await Asker(app, era, path).told("call_tool", **calling())
        assert told == {"success": True, "result": result}


@pytest.mark.promise("004.proxy.call")
async def test_numbers_in_a_result_stay_as_they_are_written(era: str) -> None:
    written = '{"n": 12345678901234567890123, "x": 1.10}'
    async with gateway(scripts={"there": Scripted(tools_list=tools("t"), tools_call=said(written))}) as app:
        result = await Asker(app, era).call("call_tool", calling())
        assert "12345678901234567890123" in result["content"][0]["text"]
        assert "1.10" in result["content"][0]["text"]


@pytest.mark.promise("004.proxy.call")
async def test_images_and_other_blocks_follow_the_result(era: str) -> None:
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    page = {"type": "resource", "resource": {"uri": "docs://a", "text": "an a"}}
    answer = {"content": [image, {"type": "text", "text": "seen"}, page]}
    async with gateway(scripts={"there": Scripted(tools_list=tools("t"), tools_call=answer)}) as app:
        result = await Asker(app, era).call("call_tool", calling())
        assert json.loads(result["content"][0]["text"]) == {"success": True, "result": "seen"}
        assert result["content"][1] == image
        assert result["content"][2]["resource"]["uri"] == "there+docs://a"


@PATHS
@pytest.mark.promise("004.errors.failure", "b.errors.near-miss")
@pytest.mark.parametrize(
    ("given", "type", "phrase", "helps"),
    [
        (calling("ther"), "KeyError", "Server not found: ther", {"available_servers": ["there", "down", "slow"]}),
        (calling(tool="tt"), "KeyError", "Tool not found: tt", {"available_tools": ["t"]}),
        ({"server_name": "there"}, "ValueError", "Invalid arguments: `tool_name` is missing", {}),
        (calling("down"), "ConnectionError", "Server not started", {"hint": "Node"}),
        (calling("slow"), "TimeoutError", "", {}),
        (calling(tool="stale"), "RuntimeError", "the index is stale", {}),
        (calling(tool="fails"), "ToolError", "no such table", {}),
    ],
)
async def test_a_failure_has_a_type_a_message_and_what_mends_it(
    path: str, given: Json, type: str, phrase: str, helps: Json, era: str
) -> None:
    def call(params: Json) -> Json:
        if params["name"] == "stale":
            raise Refusal(-32000, "the index is stale")
        return said("no such table") | {"isError": True}

    offered = tools("t", "stale", "fails") if given.get("tool_name") in ("stale", "fails") else tools("t")
    slow = Server(id="slow", name="slow", type="stdio", command="memory", timeout=5)
    there = Server(id="there", name="there", type="stdio", command="memory")
    down = Server(id="down", name="down", type="stdio", command="memory")
    scripts = {
        "there": Scripted(tools_list=offered, tools_call=call),
        "down": DOWN,
        "slow": Scripted(tools_list=tools("t"), tools_call=...),
    }
    async with gateway(there, down, slow, scripts=scripts) as app:
        told = await Asker(app, era, path).failed("call_tool", **given)
        assert (told["success"], told["error_type"]) == (False, type)
        assert told["error"].startswith(phrase)
        for key, help in helps.items():
            assert help in told[key] if key == "hint" else told[key] == help
        if type == "ValueError":
            assert told["schema"]["required"] == ["server_name", "tool_name"]


@PATHS
@pytest.mark.promise("004.proxy.tools")
async def test_tools_of_one_server_or_of_all_are_listed_with_a_brief_line(path: str, era: str) -> None:
    long = (
        "Run a SQL query, of any kind that the database knows, on any of its tables, views or virtual tables, at once"
    )
    offered = [
        tool("a", "Run a query. It may take long."),
        tool("b", "Run\na query\n\nAnd more"),
        tool("c", long),
        {"name": "d", "inputSchema": {"type": "object"}},
    ]
    async with gateway(scripts={"there": Scripted(tools_list={"tools": offered}), "down": DOWN}) as app:
        asker = Asker(app, era, path)
        told = await asker.told("list_tools", server="there")
        assert (told["success"], told["server"]) == (True, "there")
        briefs = {each["name"]: each["brief"] for each in told["tools"]}
        assert briefs["a"] == "Run a query."
        assert briefs["b"].startswith("Run a query")
        assert briefs["d"] == ""
        assert all(len(brief) <= 100 and "\n" not in brief for brief in briefs.values())
        everything = await asker.told("list_tools")
        assert everything["success"] is True
        there, down, internal = everything["servers"]
        assert (there["name"], there["tools"]) == ("there", told["tools"])
        assert (down["name"], down["tools"]) == ("down", [])
        assert internal["name"] == "gobby-tasks"
        assert "Command not found: npx" in down["error"]
        assert (await asker.told("list_tools", server_name="there")) == told


@PATHS
@pytest.mark.promise("004.proxy.schema")
async def test_one_tool_is_told_in_full(path: str, era: str) -> None:
    whole = tool("t", "A tool", {"sql": "string"}) | {"annotations": {"readOnlyHint": True}, "title": "T"}
    async with gateway(scripts={"there": Scripted(tools_list={"tools": [whole]})}) as app:
        asker = Asker(app, era, path)
        told = await asker.told("get_tool_schema", server_name="there", tool_name="t")
        assert (told["success"], told["server"]) == (True, "there")
        assert told["tool"] | whole == told["tool"]
        wrong = await asker.failed("get_tool_schema", server_name="there", tool_name="tt")
        assert (wrong["error_type"], wrong["available_tools"]) == ("KeyError", ["t"])


@PATHS
@pytest.mark.promise("004.proxy.read-resource")
async def test_a_resource_is_read_by_server_and_uri(path: str, era: str) -> None:
    content = {"uri": "docs://a", "text": "an a", "mimeType": "text/plain"}
    script = Scripted(resources_list={"resources": []}, resources_read={"contents": [content]})
    async with gateway(scripts={"there": script}) as app:
        given = {"server_name": "there", "resource_uri": "docs://a"}
        told = await Asker(app, era, path).told("read_mcp_resource", **given)
        assert told["success"] is True
        assert told["result"]["contents"][0] | content == told["result"]["contents"][0] | {"uri": "docs://a"}
        assert script.requests[-1]["params"]["uri"] == "docs://a"
        script.answers["resources/read"] = Refusal(-32002, "Resource not found")
        failed = await Asker(app, era, path).failed("read_mcp_resource", **given)
        assert failed["success"] is False


@pytest.mark.promise("004.disclosure.steps")
async def test_list_look_and_call_one_after_another(era: str) -> None:
    async with playing("sqlite") as app:
        asker = Asker(app, era, "/mcp/daemon")
        listed = await asker.told("list_tools", server="sqlite")
        name = listed["tools"][0]["name"]
        told = await asker.told("get_tool_schema", server_name="sqlite", tool_name=name)
        arguments = dict.fromkeys(told["tool"]["inputSchema"]["required"], "SELECT 1")
        assert (await asker.told("call_tool", **calling("sqlite", name, **arguments)))["success"] is True
        shown = len(json.dumps((await Asker(app, era).result("tools/list"))["tools"]))
        assert len(json.dumps(listed["tools"])) < shown


@pytest.mark.promise("004.disclosure.tokens")
async def test_the_three_steps_cost_a_few_hundredths_of_all_schemas(era: str) -> None:
    def offer(prefix: str) -> Scripted:
        schema = {
            "type": "object",
            "properties": {
                f"{prefix}_{number}": {"type": "string", "description": "What this is for, in a sentence or two. " * 5}
                for number in range(8)
            },
        }
        listed = [
            {
                "name": f"{prefix}_{number}",
                "description": "Works on it. " + "It has many sides. " * 10,
                "inputSchema": schema,
            }
            for number in range(17)
        ]
        return Scripted(tools_list={"tools": listed}, tools_call=said("done"))

    async with gateway(scripts={f"server-{letter}": offer(letter) for letter in "abcdefghij"}) as app:
        asker = Asker(app, era, "/mcp/daemon")
        everything = len(json.dumps((await Asker(app, era).result("tools/list"))["tools"]))
        listed = await asker.told("list_tools", server="server-c")
        schema = await asker.told("get_tool_schema", server_name="server-c", tool_name="c_3")
        assert (await asker.told("call_tool", **calling("server-c", "c_3")))["success"] is True
        assert len(json.dumps(listed)) + len(json.dumps(schema)) <= 0.04 * everything


# Servers that come and go.


@pytest.mark.promise("004.servers.add")
async def test_a_server_is_added_to_the_project_that_the_call_is_in(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gobby").mkdir()
    (tmp_path / ".gobby" / "project.json").write_text('{"id": "p-1", "name": "one"}')
    monkeypatch.chdir(tmp_path)
    async with allowing(scripts={"sqlite": cast()["sqlite"]}, links_of={"weather": cast()["context7"]}) as app:
        asker = Asker(app, era, "/mcp/daemon")
        await asker.told("add_mcp_server", name="weather", transport="stdio", command="uv")
        servers = (await asker.told("list_mcp_servers"))["servers"]
        assert [(each["name"], each["project_id"]) for each in servers] == [("sqlite", None), ("weather", "p-1")]


@PATHS
@pytest.mark.parametrize("consent", CONSENTS)
@pytest.mark.promise("004.servers.add", "004.servers.remove", "b.rulings.18")
async def test_a_server_is_added_used_and_removed(path: str, era: str, consent: str) -> None:
    begun = CONSENTS[consent](scripts={"sqlite": cast()["sqlite"]}, links_of={"weather": cast()["context7"]})
    async with begun as app:
        asker = Asker(app, era, path)
        told = await asker.told(
            "add_mcp_server", name="weather", transport="stdio", command="uv", args=["run", "weather_server.py"]
        )
        assert (told["success"], told["name"], told["transport"]) == (True, "weather", "stdio")
        assert (told["state"], [each["name"] for each in told["tools"]]) == ("connected", ["get-library-docs"])
        assert (await asker.told("call_tool", **calling("weather", "get-library-docs", libraryId="x")))["success"]
        names = [each["name"] for each in (await asker.told("list_mcp_servers"))["servers"]]
        assert names == ["sqlite", "weather"]
        gone = await asker.told("remove_mcp_server", name="weather")
        assert gone["success"] is True
        failed = await asker.failed("call_tool", **calling("weather", "get-library-docs"))
        assert (failed["error_type"], failed["available_servers"]) == ("KeyError", ["sqlite"])


@pytest.mark.promise("004.servers.add")
async def test_a_server_that_cannot_be_reached_is_kept_with_its_error(era: str) -> None:
    async with allowing(scripts={"sqlite": cast()["sqlite"]}, links_of={"broken": DOWN}) as app:
        asker = Asker(app, era)
        told = await asker.told("add_mcp_server", name="broken", transport="stdio", command="npx")
        assert (told["success"], told["state"], told["tools"]) == (True, "failed", [])
        assert "Command not found: npx" in told["error"]
        assert "broken" in [each["name"] for each in (await asker.told("list_mcp_servers"))["servers"]]


@pytest.mark.promise("004.servers.add")
@pytest.mark.parametrize(
    ("given", "helps"),
    [
        ({"name": "x"}, "transport"),
        ({"name": "x", "transport": "carrier pigeon"}, "stdio"),
        ({"name": "x", "transport": "stdio"}, "command"),
        ({"name": "x", "transport": "http"}, "url"),
        ({"name": "toolgate", "transport": "stdio", "command": "c"}, "toolgate"),
        ({"name": "sqlite", "transport": "stdio", "command": "c"}, "sqlite"),
        ({"name": "", "transport": "stdio", "command": "c"}, "name"),
    ],
)
async def test_what_cannot_be_a_server_is_refused_and_nothing_changes(given: Json, helps: str, era: str) -> None:
    async with gateway(scripts={"sqlite": cast()["sqlite"]}) as app:
        asker = Asker(app, era, an_operator=True)
        told = await asker.failed("add_mcp_server", **given)
        assert (told["success"], told["error_type"]) == (False, "ValueError")
        assert helps in told["error"]
        assert len((await asker.told("list_mcp_servers"))["servers"]) == 1


@pytest.mark.promise("004.servers.remove")
async def test_what_is_not_there_is_not_removed(era: str) -> None:
    async with gateway(scripts={"sqlite": cast()["sqlite"]}) as app:
        told = await Asker(app, era, an_operator=True).failed("remove_mcp_server", name="sqlit")
        assert (told["error_type"], told["available_servers"]) == ("KeyError", ["sqlite"])
        assert "did you mean sqlite?" in told["error"] + told.get("hint", "")


async def test_who_comes_over_the_network_may_call_tools_but_neither_add_servers_nor_remove_them(era: str) -> None:
    async with gateway(scripts={"sqlite": cast()["sqlite"]}, links_of={"more": cast()["context7"]}) as app:
        asker = Asker(app, era)
        assert (await asker.told("call_tool", **calling("sqlite", "list_tables")))["success"] is True
        for name, given in (
            ("add_mcp_server", {"name": "more", "transport": "stdio", "command": "more"}),
            ("remove_mcp_server", {"name": "sqlite"}),
        ):
            told = await asker.failed(name, **given)
            assert not told["success"] and ("needs approval" in told["error"])
            assert "toolgate approvals allow" in told["hint"]
        assert [each["name"] for each in (await asker.told("list_mcp_servers"))["servers"]] == ["sqlite"]


@pytest.mark.promise("004.proxy.internal")
async def test_a_server_of_the_gateways_own_prefix_is_answered_inside_it(era: str) -> None:
    async with gateway(scripts={"there": Scripted(tools_list=tools("t"))}) as app:
        asker = Asker(app, era, "/mcp/daemon")
        listed = await asker.told("list_tools", server="gobby-tasks")
        assert "create_task" in [each["name"] for each in listed["tools"]]
        told = await asker.told("call_tool", **calling("gobby-tasks", "create_task", title="Fix bug"))
        assert told["success"] is True
        assert told["result"]["title"] == "Fix bug"
        failed = await asker.failed("call_tool", **calling("gobby-tasks", "get_task", task_id="gt-000000"))
        assert (failed["success"], failed["error_type"]) == (False, "KeyError")


@pytest.mark.promise("004.proxy.internal")
async def test_a_server_of_the_gateway_itself_is_listed_for_who_asks_and_counted_nowhere(era: str) -> None:
    async with gateway(scripts={"there": Scripted(tools_list=tools("t"))}) as app:
        asker = Asker(app, era, "/mcp/all")
        assert [each["name"] for each in (await asker.told("list_tools"))["servers"]] == ["there", "gobby-tasks"]
        assert (await asker.told("list_registered_children"))["count"] == 1
        assert [each["name"] for each in await asker.told("mcp_discover")] == ["there"]
        assert (await asker.told("status"))["mcp_server_count"] == 1
        assert "create_task" in json.dumps(await asker.told("mcp_discover", query="create a task"))
        assert [name for name in await asker.listed() if "__" in name] == ["there__t"]
        called = await asker.call("gobby-tasks__create_task", {"title": "Fix bug"})
        assert called["structuredContent"]["title"] == "Fix bug"
    async with gateway(
        config=Config(tasks=Tasks(show=True)), scripts={"there": Scripted(tools_list=tools("t"))}
    ) as app:
        shown = await Asker(app, era).listed()
        assert {"there__t", "gobby-tasks__create_task"} <= {*shown}


# Hooks of sessions.


def hook(app: App, era: str, session: str, source: str = "Codex", path: str = "/mcp") -> Callable[..., Awaitable[Any]]:
    """Tells of the hooks of one session."""
    asker = Asker(app, era, path)

    def told(hook_type: str, **params: Any) -> Awaitable[Any]:
        return asker.told("call_hook", hook_type=hook_type, params={"session_id": session, **params}, source=source)

    return told


@PATHS
@pytest.mark.promise("004.hooks.start")
@pytest.mark.parametrize("name", ["SessionStart", "sessionstart", "session-start", "SESSION_START"])
async def test_a_session_is_registered_once_and_gets_what_the_one_before_has_left(
    path: str, name: str, era: str
) -> None:
    async with playing("sqlite") as app:
        before = hook(app, era, "one", path=path)
        first = await before(name, source="startup")
        assert (first["success"], first["hook_type"], first["session_id"]) == (True, "SessionStart", "one")
        assert (first["is_new"], first["status"], first["restored"]) == (True, "active", None)
        assert (await before(name, source="resume"))["is_new"] is False
        await before("PromptSubmit", prompt="Mend the login")
        await before("SessionEnd")
        after = await hook(app, era, "two", path=path)(name, source="startup")
        assert (after["parent_session_id"], after["restored"]["session_id"]) == ("one", "one")
        assert after["restored"]["title"] == "Mend the login" and "Mend the login" in after["restored"]["summary"]
        assert (await hook(app, era, "three", path=path)(name))["restored"] is None  # it was taken


@PATHS
@pytest.mark.promise("004.hooks.prompt")
@pytest.mark.parametrize("name", ["PromptSubmit", "UserPromptSubmit", "user-prompt-submit", "BeforeAgent"])
async def test_the_first_prompt_gives_its_session_a_title_that_stays(path: str, name: str, era: str) -> None:
    async with playing("sqlite") as app:
        told = hook(app, era, "never seen before", path=path)
        first = await told(name, prompt="\n  Mend the\tlogin \nand more")
        assert (first["title"], first["status"]) == ("Mend the login", "active")
        assert (await told(name, prompt="Now the logout"))["title"] == "Mend the login"
        long = await hook(app, era, "another", path=path)(name, prompt="word " * 100)
        assert len(long["title"]) <= 80 and long["title"].endswith("word…")


@PATHS
@pytest.mark.promise("004.hooks.stop")
@pytest.mark.parametrize("name", ["Stop", "stop", "AfterAgent"])
async def test_a_stop_pauses_the_session_until_its_next_prompt(path: str, name: str, era: str) -> None:
    async with playing("sqlite") as app:
        told = hook(app, era, "one", path=path)
        await told("SessionStart")
        assert (await told(name, last_assistant_message="Done."))["status"] == "paused"
        assert (await told("PromptSubmit", prompt="Go on"))["status"] == "active"


@PATHS
@pytest.mark.promise("004.hooks.end")
async def test_the_end_writes_a_summary_with_the_tasks_of_the_session(path: str, era: str) -> None:
    async with playing("sqlite") as app:
        told = hook(app, era, "one", path=path)
        await told("PromptSubmit", prompt="Mend the login")
        await told("PromptSubmit", prompt="And test it")
        await told("Stop", last_assistant_message="The login works again.")
        compact = await told("PreCompact")
        end = await told("SessionEnd", reason="exit")
        assert (compact["status"], end["status"]) == ("paused", "handoff_ready")
        for words in ("Mend the login", "And test it", "The login works again.", "2 prompts"):
            assert words in compact["summary"] and words in end["summary"]


@pytest.mark.promise("004.hooks.start", "004.errors.failure")
async def test_a_hook_that_nobody_knows_is_refused_with_those_that_there_are(era: str) -> None:
    async with playing("sqlite") as app:
        asker = Asker(app, era)
        told = await asker.failed("call_hook", hook_type="SessionBegin", params={"session_id": "one"})
        assert (told["success"], told["error_type"]) == (False, "ValueError")
        assert {"SessionStart", "PromptSubmit", "Stop", "SessionEnd", "BeforeAgent"} <= {*told["available_types"]}
        for params in ({}, {"session_id": ""}, {"session_id": 7}, {"session_id": "x" * 201}, {"session_id": "a\nb"}):
            told = await asker.failed("call_hook", hook_type="Stop", params=params)
            assert told["error_type"] == "ValueError" and "session_id" in told["error"]


# Codex.


@PATHS
@pytest.mark.promise("004.codex.run")
async def test_codex_runs_prompts_and_lists_and_archives_its_threads(path: str, era: str) -> None:
    async with playing("sqlite") as app:
        asker = Asker(app, era, path)
        first = await asker.told("codex", prompt="say Two tests fail.")
        assert (first["success"], first["result"]) == (True, "Two tests fail.")
        again = await asker.told("codex", prompt="say They pass now.", thread_id=first["thread_id"])
        assert (again["result"], again["thread_id"]) == ("They pass now.", first["thread_id"])
        [newest] = (await asker.told("codex_list_threads", limit=1))["threads"]
        assert newest["thread_id"] == first["thread_id"]
        assert (await asker.told("codex_archive_thread", thread_id=first["thread_id"]))["success"] is True
        [before] = (await asker.told("codex_list_threads"))["threads"]
        assert before["thread_id"] == THREAD


@PATHS
@pytest.mark.promise("004.codex.run")
async def test_codex_asks_a_person_first_and_goes_no_further_than_it_may(path: str, era: str) -> None:
    config = Config(codex=Codex(enabled=True))
    async with confirming(config, links_of=codex()) as app:
        told = await Asker(app, era, path).told("codex", prompt="say Done.", sandbox="read-only")
        assert (told["result"], told["sandbox"]) == ("Done.", "read-only")
    refusing = Config(codex=Codex(enabled=True), approvals=Approvals(wait=0))
    async with gateway(config=refusing, links_of=codex()) as app:
        asker = Asker(app, era, path)
        for tool, arguments in (("codex", {"prompt": "say x"}), ("codex_list_threads", {})):
            undecided = await asker.failed(tool, **arguments)
            assert "toolgate approvals allow" in undecided["hint"]
        for wider in ({"sandbox": "danger-full-access"}, {"approval_policy": "never"}):
            refused = await asker.failed("codex", prompt="say x", **wider)
            assert (refused["success"], refused["error_type"]) == (False, "PermissionError")


@PATHS
@pytest.mark.promise("004.codex.run")
@pytest.mark.parametrize("settings", [Codex(), Codex(enabled=True, command="no-such-codex")])
async def test_where_codex_is_not_configured_or_not_found_its_tools_are_not_there(
    path: str, settings: Codex, era: str
) -> None:
    links = {} if settings.enabled else codex()
    async with gateway(config=Config(codex=settings), links_of=links) as app:
        asker = Asker(app, era, path)
        assert not [name for name in await asker.listed() if name.startswith("codex")]
        for tool in ("codex", "codex_list_threads", "codex_archive_thread"):
            response = await asker.request("tools/call", name=tool, arguments={})
            assert "not found" in json.dumps(response.last)
