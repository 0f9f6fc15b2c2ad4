"""Every example of the five texts runs as it stands: no reply has fewer fields than are shown (behaviour, ruling 10).

`RUNS` says by an example's id how it is run, `LATER` of which subject it is that is not served yet; none is left out.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import examples
import pytest
import tomlkit
from inmemory import Json, Refusal, Response, Scripted, Visitor, gateway, said, tools
from stage import CONSENTS, LINES, PIXEL, ROWS, Asker, at_least, cast, playing, read, tool

from toolgate import config
from toolgate.config import Config, Server, Sessions
from toolgate.core.fault import Fault
from toolgate.surfaces import controls

EXAMPLES = {example.id: example for example in examples.kept()}
SIGNED = {id: example for id, example in EXAMPLES.items() if example.kind in ("signature", "parameters")}

# By the beginning of the id.
LATER: dict[str, str] = {}
# Those of real HTTP, or real processes, by the file that runs them.
ELSEWHERE = {
    "002 mcp_execute": "processes/test_code_that_calls_tools.py",
    "003 Tool Component Requirements": "processes/test_a_component_of_the_text.py",
    "004 execute_code": "processes/test_code_that_calls_tools.py",
    "004 process_large_dataset": "processes/test_code_that_calls_tools.py",
}
# What the behaviour page rules otherwise than the table of a text.
MAY_BE_LEFT_OUT = {("get_child_status", "server_id")}
SPOKEN = {"number": "integer", "array/object": ["array", "object"]}  # lines are counted

Run = Callable[[str], Awaitable[None]]  # of an era
RUNS: dict[str, Run] = {}


def runs(*ids: str) -> Callable[[Run], Run]:
    """This is how these examples are run."""

    def register(run: Run) -> Run:
        assert not set(ids) & set(RUNS)
        RUNS.update(dict.fromkeys(ids, run))
        return run

    return register


def body(id: str) -> Any:
    return EXAMPLES[id].body


def is_later(id: str) -> bool:
    return any(id.startswith(part) for part in LATER)


# Seed 000.


@runs("000 execute_child_tool 5", "000 execute_child_tool 3")
async def _(era: str) -> None:
    script = cast()["serena"]
    assert isinstance(script, Scripted)
    async with gateway(scripts={"serena": script}) as app:
        for path in ("/mcp", "/mcp/children", "/mcp/meta"):
            told = await Asker(app, era, path).told("execute_child_tool", **body("000 execute_child_tool 5"))
            at_least(body("000 execute_child_tool 3"), told)
            assert told == {"result": "\n".join(LINES), "status": "success"}
            sent = script.requests[-1]["params"]
            assert (sent["name"], sent["arguments"]) == ("search_code", body("000 execute_child_tool 5")["arguments"])


@runs("000 execute_child_tool 6")
async def _(era: str) -> None:
    async with playing("serena") as app:
        told = await Asker(app, era).told("execute_child_tool", **body("000 execute_child_tool 6"))
        assert told["result"].split("\n") == [*LINES[:50], "...", *LINES[-20:]]
        assert (told["truncated"], told["total_lines"]) == (True, 300)


@runs("000 execute_child_tool 7")
async def _(era: str) -> None:
    async with playing("codegraph") as app:
        told = await Asker(app, era).told("execute_child_tool", **body("000 execute_child_tool 7"))
        assert told == {"result": '[{"n.name": "main"}]', "status": "success"}


@runs("000 execute_child_tool 4")
async def _(era: str) -> None:
    async with playing("serena") as app:
        asker = Asker(app, era)
        for wrong in ({"server_id": "nope", "tool_name": "t"}, {"server_id": "serena", "tool_name": "nope"}):
            told = await asker.failed("execute_child_tool", **wrong, arguments={})
            at_least(body("000 execute_child_tool 4"), told)
            assert told["status"] == "failed"


@runs("000 get_schema 3", "000 get_schema 4", "000 get_schema 5")
async def _(era: str) -> None:
    async with playing("serena") as app:
        told = await Asker(app, era).told("get_schema", **body("000 get_schema 4"))
        at_least(body("000 get_schema 3"), _with_one_parameter(told))
        assert told["tools"] == body("000 get_schema 5")["tools"]


def _with_one_parameter(told: Json) -> Json:
    """The text shows a tool whose only parameter is `param1`: here the names of the parameters are that."""
    parameters = told["tools"][0]["parameters"]
    parameters = parameters | {"properties": {"param1": parameters["properties"]["query"]}}
    return told | {"tools": [told["tools"][0] | {"parameters": parameters}]}


@runs("000 list_registered_children 2", "000 list_registered_children 3", "000 list_registered_children 4")
async def _(era: str) -> None:
    async with playing("serena", "context7", "codegraph") as app:
        told = await Asker(app, era).told("list_registered_children", **body("000 list_registered_children 3"))
        at_least(body("000 list_registered_children 2"), told)
        assert told == body("000 list_registered_children 4")


@runs("000 get_child_status 3", "000 get_child_status 5", "000 get_child_status 6")
async def _(era: str) -> None:
    async with playing("serena") as app:
        asker = Asker(app, era)
        await asker.call("serena__search_code", {"query": "x"})
        told = await asker.told("get_child_status", **body("000 get_child_status 5"))
        at_least(body("000 get_child_status 3"), told)
        at_least(body("000 get_child_status 6"), told)
        assert (told["server_id"], told["status"]) == ("serena", "running")
        shown = body("000 get_child_status 6")["startup_time"]
        assert [c.isdigit() for c in told["startup_time"]] == [c.isdigit() for c in shown]


@runs("000 get_child_status 4", "000 get_child_status 7")
async def _(era: str) -> None:
    npx = Server(id="serena", name="serena", type="stdio", command="npx-that-is-not-there")
    broken = Server(id="broken-server", name="broken_server", type="stdio", command="broken_command")
    async with gateway(npx, broken) as app:
        asker = Asker(app, era)
        await asker.request("tools/list")
        for server, id in (("serena", "000 get_child_status 4"), ("broken_server", "000 get_child_status 7")):
            told = await asker.told("get_child_status", server_id=server)
            at_least(body(id), told)
            assert (told["server_id"], told["status"]) == (server, "failed")
            assert told["error"].startswith("Command not found")
            assert "not found" in told["stderr"]


@runs("000 close_child_session 3", "000 close_child_session 4", "000 close_child_session 5")
async def _(era: str) -> None:
    stays = Server(id="serena", name="serena", type="stdio", command="memory", lifecycle="keep-alive")
    async with playing("serena", servers=(stays,)) as app:
        asker = Asker(app, era)
        await asker.call("serena__search_code", {"query": "x"})
        await app.clock.sleep(15 * 60 + 32)
        told = await asker.told("close_child_session", **body("000 close_child_session 4"))
        assert told == body("000 close_child_session 3") | body("000 close_child_session 5")


@runs("000 Resource URIs 1", "000 Resource URIs 2")
async def _(era: str) -> None:
    source = body("000 Resource URIs 2")["config_path"]
    async with playing("serena", "context7", "codegraph", config=Config(source=source)) as app:
        asker = Asker(app, era, "/mcp/children")
        for server in ("serena", "codegraph"):
            await asker.told("get_schema", server_id=server)
        for path in ("/mcp/children", "/mcp"):
            result = await Asker(app, "modern", path).result("resources/read", **body("000 Resource URIs 1"))
            told = json.loads(result["contents"][0]["text"])
            at_least(body("000 Resource URIs 2"), told)
            assert told | {"version": "1.0.0"} == body("000 Resource URIs 2")
        await Asker(app, era).result("resources/read", **body("000 Resource URIs 1"))


@runs("000 Advanced Parameters 1", "000 Advanced Parameters 2", "000 Advanced Parameters 3")
async def _(era: str) -> None:
    call = {"server_id": "serena", "tool_name": "search_code", "arguments": {"query": "import"}}
    async with playing("serena") as app:
        asker = Asker(app, era)
        for number, lines in ((1, LINES[:100]), (2, LINES[-50:]), (3, [*LINES[:50], "...", *LINES[-50:]])):
            told = await asker.told("execute_child_tool", **call, **body(f"000 Advanced Parameters {number}"))
            assert told["result"].split("\n") == lines


@runs("000 Advanced Parameters 4", "000 Advanced Parameters 5", "000 Advanced Parameters 6")
async def _(era: str) -> None:
    script = Scripted(tools_list=tools("t"), tools_call=said("ok"))
    async with gateway(scripts={"serena": script}) as app:
        asker = Asker(app, era)
        for number in (4, 5, 6):
            given = body(f"000 Advanced Parameters {number}")
            await asker.told("execute_child_tool", server_id="serena", tool_name="t", **given)
            assert script.requests[-1]["params"]["arguments"] == given["arguments"]


# Seed 002.


@runs("002 mcp_discover 2", "002 mcp_discover 3")
async def _(era: str) -> None:
    async with playing("playwright", "sqlite") as app:
        told = await Asker(app, era).told("mcp_discover", **body("002 mcp_discover 2"))
        at_least(body("002 mcp_discover 3"), told)
        assert told == body("002 mcp_discover 3")


@runs("002 mcp_discover 4", "002 mcp_discover 5")
async def _(era: str) -> None:
    async with playing("playwright", "sqlite") as app:
        told = await Asker(app, era).told("mcp_discover", **body("002 mcp_discover 4"))
        (shown,) = body("002 mcp_discover 5")
        at_least([shown], told)
        signature = "browser_screenshot(filename?: string, fullPage?: string)"  # of the scripted server's own schema
        assert {**told[0], "confidence": 0} == {**shown, "confidence": 0, "signature": signature}
        assert abs(told[0]["confidence"] - shown["confidence"]) <= 0.05


@runs("002 mcp_discover 6")
async def _(era: str) -> None:
    async with playing("playwright", "sqlite") as app:
        told = await Asker(app, era).told("mcp_discover", **body("002 mcp_discover 6"))
        at_least(body("002 mcp_discover 3")[0], told)
        assert told["name"] == "playwright"
        assert [each["tool"] for each in told["tools"]][:2] == ["browser_navigate", "browser_screenshot"]


@runs("002 mcp_provision 2", "002 mcp_provision 3")
async def _(era: str) -> None:
    async with playing() as app:
        told = await Asker(app, era).told("mcp_provision", **body("002 mcp_provision 2"))
        shown = body("002 mcp_provision 3")
        at_least(shown, told)
        (tool,) = shown["tools"]
        assert (told["source"], {**told["tools"][0], "confidence": 0}) == ("local", {**tool, "confidence": 0})
        assert abs(told["tools"][0]["confidence"] - tool["confidence"]) <= 0.05


@runs("002 mcp_provision 4")
async def _(era: str) -> None:
    async with playing("playwright") as app:
        given = body("002 mcp_provision 4")
        told = await Asker(app, era).told("mcp_provision", **given)
        assert (told["source"], told["matches"][0]["name"]) == ("registry", "@modelcontextprotocol/server-postgres")
        whole = await Asker(app, era).told("mcp_provision", intent=f"{given['intent']} {given['context']}")
        assert whole == told != await Asker(app, era).told("mcp_provision", intent=given["intent"])


@runs("002 mcp_provision 5", "002 mcp_provision 6")
async def _(era: str) -> None:
    async with playing(environ={"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_a"}) as app:
        told = await Asker(app, era).told("mcp_provision", **body("002 mcp_provision 5"))
        shown = body("002 mcp_provision 6")
        at_least(shown, told)
        (match,), found = shown["matches"], told["matches"][0]
        assert told["source"] == "registry"
        assert {key: found[key] for key in match if key not in ("confidence", "installCommand")} == {
            key: match[key] for key in match if key not in ("confidence", "installCommand")
        }
        assert abs(found["confidence"] - match["confidence"]) <= 0.05
        assert found["installCommand"] == f"{match['installCommand']}@2025.4.8", "never an unpinned one"


@runs("002 mcp_call 2", "002 Response format 1")
async def _(era: str) -> None:
    async with playing("playwright", "sqlite") as app:
        for path in ("/mcp", "/mcp/meta"):
            result = await Asker(app, era, path).call("mcp_call", body("002 mcp_call 2"))
            at_least(body("002 Response format 1"), result)
            assert result["content"] == said("Navigated to https://example.com")["content"]
            listed = await Asker(app, era, path).call("mcp_discover")
            at_least(body("002 Response format 1"), listed)
            assert read(listed)


@runs("002 mcp_call 3")
async def _(era: str) -> None:
    script = cast()["sqlite"]
    assert isinstance(script, Scripted)
    async with gateway(scripts={"sqlite": script}) as app:
        result = await Asker(app, era).call("mcp_call", body("002 mcp_call 3"))
        assert result["structuredContent"] == {"rows": ROWS}
        assert script.requests[-1]["params"]["arguments"] == body("002 mcp_call 3")["args"]


@runs("002 mcp_call 4")
async def _(era: str) -> None:
    script = cast()["playwright"]
    assert isinstance(script, Scripted)
    async with gateway(scripts={"playwright": script}) as app:
        result = await Asker(app, era).call("mcp_call", body("002 mcp_call 4"))
        assert result["content"] == [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]
        assert script.requests[-1]["params"].get("arguments", {}) == {}


@runs("002 Error handling 1")
async def _(era: str) -> None:
    refusing = cast()["playwright"]
    assert isinstance(refusing, Scripted)
    refusing.answers["tools/call"] = Refusal(-32603, "Connection refused")
    down = Fault("SERVER_FAILED", "Connection refused", reach="not_sent")
    async with gateway(scripts={"playwright": refusing, "down": down}) as app:
        shown = body("002 Error handling 1")
        result = await Asker(app, era).call("mcp_call", body("002 mcp_call 2"))
        assert {key: result[key] for key in shown} == shown
        result = await Asker(app, era).call("mcp_call", body("002 mcp_call 2") | {"server": "down"})
        at_least(shown, result)
        assert result["content"][0]["text"].startswith("Error calling browser_navigate on down: ")
        assert "Connection refused" in result["content"][0]["text"]


# Seed 003.


@runs("003 Configuration 1")
async def _(era: str) -> None:
    text = tomlkit.dumps(body("003 Configuration 1"))
    for word, is_checked in (("true", True), ("false", False)):
        changed = text.replace('validate_arguments = "true"', f'validate_arguments = "{word}"')
        found = config.read(changed, file="spin.toml", environ={}, format="toml")
        assert [(server.id, server.type) for server in found.servers] == [
            ("echo", "component"),
            ("calculator", "component"),
            ("weather", "component"),
        ]
        assert found.servers[0].url == "http://echo.spin.internal/"
        assert (found.validate_arguments, found.surface) == (is_checked, "components")


@runs("003 Usage Example 1")
async def _(era: str) -> None:
    echo = one_that_echoes()
    async with gateway(scripts={"echo": echo}) as app:
        visitor = Visitor(app)
        answers: list[Response] = []
        for _url, headers, message in body("003 Usage Example 1"):
            told = {name.lower(): value for name, value in headers.items()} | {"accept": None}
            answers.append(await visitor.post(message, headers=told))
        opened, listed, called = (answer.result for answer in answers)
        assert opened["protocolVersion"] == "2025-06-18"
        assert [each["name"] for each in listed["tools"]] == ["echo__echo"]
        assert called["content"] == [{"type": "text", "text": "Hello"}]
        assert [answer.last["id"] for answer in answers] == [1, 2, 3]


def one_that_echoes() -> Scripted:
    return Scripted(
        tools_list={"tools": [tool("echo", "Echoes", {"message": "string"})]},
        tools_call=lambda params: said(params["arguments"]["message"]),
    )


# Seed 004.


@runs("004 status 2")
async def _(era: str) -> None:
    async with playing("context7", "serena", "sqlite", config=Config(sessions=Sessions(idle=1e5))) as app:
        asker = Asker(app, era, "/mcp/daemon")
        await asker.call("call_tool", {"server_name": "context7", "tool_name": "get-library-docs"})
        await app.clock.sleep(body("004 status 2")["uptime_seconds"])
        told = await asker.told("status")
        at_least(body("004 status 2"), told)
        shown = body("004 status 2")
        for key in ("status", "uptime", "uptime_seconds", "port", "mcp_server_count"):
            assert told[key] == shown[key], key


@runs("004 list_mcp_servers 2")
async def _(era: str) -> None:
    async with playing("context7") as app:
        asker = Asker(app, era, "/mcp/daemon")
        await asker.call("call_tool", {"server_name": "context7", "tool_name": "get-library-docs"})
        (told,) = (await asker.told("list_mcp_servers"))["servers"]
        (shown,) = body("004 list_mcp_servers 2")["servers"]
        assert shown.keys() <= told.keys()
        assert (told["name"], told["connected"], told["project_id"]) == ("context7", True, None)


@runs("004 call_tool 3", "004 Error Handling 1")
async def _(era: str) -> None:
    async with playing("context7") as app:
        (name, places, _named), (same, of_tasks, _) = body("004 call_tool 3")
        for path in ("/mcp", "/mcp/daemon"):
            told = await Asker(app, era, path).told(name, **by_name(name, places))
            at_least(body("004 Error Handling 1"), told)
            assert told == {"success": True, "result": "# React"}
            told = await Asker(app, era, path).told(same, **by_name(same, of_tasks))
            at_least(body("004 Error Handling 1"), told)
            assert (told["result"]["title"], told["result"]["priority"]) == ("Fix bug", 1)
            assert told["result"]["created_in_session_id"] == "<your_session_id>"


def by_name(name: str, places: list[Any]) -> Json:
    """Arguments that stand in their places, by the names that the signature has for them."""
    names = controls.CONTROLS[name].parameters
    return dict(zip(names, places, strict=False))


@runs("004 Error Handling 2")
async def _(era: str) -> None:
    async with playing("context7") as app:
        told = await Asker(app, era).failed("call_tool", server_name="context7", tool_name=7)
        at_least(body("004 Error Handling 2"), told)
        assert (told["success"], told["error_type"]) == (False, "ValueError")


@runs("004 list_tools 3")
async def _(era: str) -> None:
    async with playing("context7") as app:
        shown = body("004 list_tools 3")
        told = await Asker(app, era).told("list_tools", server="context7")
        at_least(shown, told)
        assert told["server"] == "context7"
        assert told["tools"] == [{"name": "get-library-docs", "brief": "Get the documentation of a library."}]
        told = await Asker(app, era).told("list_tools", server="gobby-tasks")
        assert (told["success"], told["server"]) == (True, shown["server"])
        assert [each for each in told["tools"] if each in shown["tools"]] == shown["tools"]


@runs("004 get_tool_schema 3")
async def _(era: str) -> None:
    shown = body("004 get_tool_schema 3")
    script = Scripted(tools_list={"tools": [shown["tool"]]})
    async with gateway(scripts={"tasks": script}) as app:
        told = await Asker(app, era).told("get_tool_schema", server_name="tasks", tool_name="create_task")
        assert told == shown | {"server": "tasks"}
        told = await Asker(app, era).told("get_tool_schema", server_name="gobby-tasks", tool_name="create_task")
        at_least(shown, told)
        assert told["tool"]["description"] == shown["tool"]["description"]
        assert told["tool"]["inputSchema"]["required"] == ["title"]


@runs("004 Example: Task Workflow 1")
async def _(era: str) -> None:
    for path in ("/mcp", "/mcp/daemon", "/mcp/all"):
        async with playing("context7") as app:
            asker = Asker(app, era, path)
            id = ""
            for name, places, named in body("004 Example: Task Workflow 1"):
                given = by_name(name, places) | named
                if "task_id" in given.get("arguments", {}):
                    given["arguments"] = given["arguments"] | {"task_id": id}  # the example has one of its own
                told = await asker.told(name, **given)
                assert told["success"] is True
                id = told.get("result", {}).get("id", id)
            assert (told["result"]["status"], told["result"]["closed_reason"]) == ("closed", "completed")


@runs("004 call_hook 3")
async def _(era: str) -> None:
    async with playing("serena") as app:
        [[tool, _, arguments]] = body("004 call_hook 3")
        told = await Asker(app, era).told(tool, **arguments)
        assert (told["success"], told["session_id"]) == (True, "codex-abc123")


@runs("004 add_mcp_server 3", "004 add_mcp_server 4")
async def _(era: str) -> None:
    whole = cast()
    later = {"context7": whole["context7"], "weather": whole["sqlite"]}
    for consent in CONSENTS.values():
        async with consent(scripts={"serena": whole["serena"]}, links_of=later) as app:
            asker = Asker(app, era)
            for id, name, transport in (("3", "context7", "http"), ("4", "weather", "stdio")):
                ((tool, _places, given),) = body(f"004 add_mcp_server {id}")
                told = await asker.told(tool, **given)
                assert (told["success"], told["name"], told["transport"]) == (True, name, transport)
                assert (told["state"], bool(told["tools"])) == ("connected", True)
            context7, weather = (app.gateway.snapshot.servers[name] for name in later)
            assert (context7.url, dict(context7.headers)) == (
                "https://mcp.context7.com/mcp",
                {"CONTEXT7_API_KEY": "ctx7sk-..."},
            )
            assert (weather.command, weather.args, dict(weather.env)) == (
                "uv",
                ("run", "weather_server.py"),
                {"API_KEY": "secret"},
            )
            assert "ctx7sk" not in json.dumps(await asker.result("resources/read", uri="mcp://children_servers"))


README = """```json
{"mcpServers": {
  "server1": {"command": "npx", "args": ["-y", "@ann/one@1.0.0"]},
  "server2": {"command": "npx", "args": ["-y", "@ann/two@1.0.0"], "env": {"API_KEY": "KEY"}}
}}
```"""


@runs("004 import_mcp_server 3", "004 import_mcp_server 4")
async def _(era: str) -> None:
    later = {name: Scripted(tools_list=tools("t")) for name in ("server1", "server2")}
    for key, id in (("a-key", "004 import_mcp_server 3"), ("${API_KEY}", "004 import_mcp_server 4")):
        async with CONSENTS["confirmed"](scripts={"there": Scripted(tools_list=tools("t"))}, links_of=later) as app:
            content = README.replace('"KEY"', json.dumps(key))
            url = "https://github.com/ann/servers"
            told = await Asker(app, era).told("import_mcp_server", github_url=url, content=content)
            at_least(body(id), told)
            if key == "a-key":
                assert told == body(id)
            else:
                assert (told["status"], told["missing"]) == (body(id)["status"], body(id)["missing"])


@runs("004 recommend_tools 3")
async def _(era: str) -> None:
    supabase = [tool(f"table_{number}", "Change a table of the database", {"name": "string"}) for number in range(24)]
    context7 = cast()["context7"]
    async with gateway(scripts={"context7": context7, "supabase": Scripted(tools_list={"tools": supabase})}) as app:
        shown = body("004 recommend_tools 3")
        told = await Asker(app, era).told("recommend_tools", task_description=shown["task"])
        at_least(shown, told)
        for key in ("success", "task", "available_servers", "total_tools"):
            assert told[key] == shown[key]
        assert "context7 tools" in told["recommendation"]


# All of them.


def test_the_examples_are_those_of_the_texts() -> None:
    place = examples.folder()
    if not place:
        pytest.skip("the five texts are not here: TOOLGATE_SEEDS says where they are")
    assert examples.read(place) == examples.kept()


@pytest.mark.promise("b.rulings.10")
def test_every_example_runs_or_waits_for_its_subject() -> None:
    waiting = {id for id in EXAMPLES if is_later(id)}
    elsewhere = {id for id in EXAMPLES for part in ELSEWHERE if id.startswith(part)}
    assert waiting | elsewhere | set(RUNS) | set(SIGNED) == set(EXAMPLES)
    assert all((examples.HERE.parent / file).is_file() for file in ELSEWHERE.values())


@pytest.mark.parametrize("id", sorted(id for id in RUNS if not is_later(id)))
@pytest.mark.promise("b.rulings.10")
async def test_an_example_runs_as_it_stands(id: str, era: str) -> None:
    await RUNS[id](era)


@pytest.mark.parametrize("id", sorted(id for id in SIGNED if not is_later(id)))
@pytest.mark.promise("b.rulings.10")
def test_a_control_tool_takes_what_its_text_says(id: str) -> None:
    example = SIGNED[id]
    name = example.body[0] if example.kind == "signature" else id.split()[1]
    schema = controls.CONTROLS[name].schema
    required = set(schema.get("required", ()))
    if example.kind == "signature":
        rows = [[each.rstrip("?"), None, not each.endswith("?")] for each in example.body[1]]
    else:
        rows = example.body
    for parameter, type, is_required in rows:
        assert type is None or schema["properties"][parameter]["type"] == SPOKEN.get(type, type)
        assert (parameter in required) == (is_required and (name, parameter) not in MAY_BE_LEFT_OUT), parameter
