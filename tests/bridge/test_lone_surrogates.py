"""Half a character, as JavaScript leaves it when it cuts a text: valid JSON, which passes wherever text may stand."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from peers import (
    LATEST,
    MODERN,
    LegacyServer,
    ModernServer,
    Pending,
    RpcError,
    Scene,
    form,
    gateway,
    named,
    text_of,
)

CUT = "smile \ud83d"
TAIL = "\ude00 smile"
REVISIONS = ["2025-03-26", LATEST, MODERN]
SERVERS = [LegacyServer, ModernServer]
pytestmark = pytest.mark.promise("b.rulings.17")


async def echo(scene: Scene) -> Any:
    said = scene.arguments.get("text", "nothing")
    return {"content": [{"type": "text", "text": said}], "structuredContent": {"said": said, CUT: TAIL}}


def tool(name: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 20}}}
    return {"name": name, "inputSchema": schema, **more}


@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/there"])
@pytest.mark.parametrize("stdio", [False, True])
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_call_takes_them_there_and_back(revision: str, server: Any, stdio: bool, path: str) -> None:
    async with gateway(there=server({"echo": echo})) as rig:
        rig.servers["there"].lists["tools/list"][1][:] = [tool("echo")]
        client = await rig.client(revision, stdio=stdio, path=path)
        name = "echo" if path.endswith("there") else "there__echo"
        reply = await client.call(name, arguments={"text": CUT})
        assert reply.text == CUT
        assert rig.servers["there"].calls[-1]["params"]["arguments"] == {"text": CUT}
        too_long = await client.call(name, arguments={"text": CUT * 9})
        assert ("error" in too_long.message) is not path.endswith("there")


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_tool_with_one_stands_in_no_list_and_spoils_none(revision: str, server: Any) -> None:
    """A list is of all servers, and strict readers could read none of it."""
    async with gateway(there=server({"a": echo, CUT: echo, "b": echo})) as rig:
        in_its_schema = tool("a")
        in_its_schema["inputSchema"]["properties"]["text"]["default"] = CUT
        rig.servers["there"].lists["tools/list"][1][:] = [in_its_schema, tool("a", title=TAIL), tool(CUT), tool("b")]
        client = await rig.client(revision)
        listed = (await client.request("tools/list")).result["tools"]
        assert [each["name"] for each in listed] == ["there__b"]
        assert (await client.call("there__b", arguments={"text": CUT})).text == CUT


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_prompts_and_resources_have_them_and_their_lists_do_not(revision: str, server: Any) -> None:
    async def prompt(scene: Scene) -> Any:
        return {"messages": [{"role": "user", "content": {"type": "text", "text": scene.arguments["who"]}}]}

    async def resource(scene: Scene) -> Any:
        return {"contents": [{"uri": scene.target, "text": CUT}]}

    async with gateway(
        there=server(prompts={"greet": prompt, "b": prompt}, resources={"note://1": resource, "note://2": resource})
    ) as rig:
        there = rig.servers["there"]
        there.lists["prompts/list"][1][1]["description"] = CUT
        there.lists["resources/list"][1][1]["description"] = TAIL
        client = await rig.client(revision)
        assert [each["name"] for each in (await client.request("prompts/list")).result["prompts"]] == ["there__greet"]
        listed = (await client.request("resources/list")).result["resources"]
        assert [each["uri"] for each in listed] == ["there+note://1"]
        got = await client.request("prompts/get", name="there__greet", arguments={"who": CUT})
        assert got.result["messages"][0]["content"]["text"] == CUT
        read = await client.request("resources/read", uri="there+note://1")
        assert read.result["contents"][0]["text"] == CUT


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_errors_questions_and_answers_have_them(revision: str, server: Any) -> None:
    async def asks(scene: Scene) -> Any:
        answer = await scene.ask(form(CUT))
        return {"content": [{"type": "text", "text": answer["content"]["name"]}]}

    async def fails(scene: Scene) -> Any:
        raise RpcError(-32000, CUT, {"why": TAIL})

    async with gateway(there=server({"asks": asks, "fails": fails})) as rig:
        client = await rig.client(revision)
        error = (await client.call("there__fails")).error
        assert (error["code"], error["message"], error["data"]) == (-32000, CUT, {"why": TAIL})
        if revision != "2025-03-26":
            reply = await client.converse("tools/call", {"elicitation/create": named(CUT)}, name="there__asks")
            assert reply.text == CUT


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_progress_and_log_lines_have_them(revision: str) -> None:
    async def tells(scene: Scene) -> Any:
        scene.progress(1, message=CUT)
        scene.log("error", CUT)
        return "done"

    async with gateway(there=LegacyServer({"tells": tells})) as rig:
        client = await rig.client(revision)
        meta = {"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"}
        reply = await client.call("there__tells", meta=meta if revision == MODERN else {"progressToken": "p"})
        assert [note["message"] for note in reply.notes("notifications/progress")] == [CUT]
        assert [note["data"] for note in reply.notes("notifications/message")] == [CUT]


async def test_control_tools_wrap_them_in_json_that_holds_them_still() -> None:
    async with gateway(there=LegacyServer({"echo": echo})) as rig:
        client = await rig.client(LATEST, path="/mcp/all")
        given = {"text": CUT}
        wrapped = await client.call(
            "execute_child_tool", arguments={"server_id": "there", "tool_name": "echo", "arguments": given}
        )
        assert json.loads(wrapped.text)["result"] == CUT
        wrapped = await client.call(
            "call_tool", arguments={"server_name": "there", "tool_name": "echo", "arguments": given}
        )
        assert json.loads(wrapped.text)["result"] == {"said": CUT, CUT: TAIL}
        wrapped = await client.call("mcp_call", arguments={"server": "there", "tool": "echo", "args": given})
        assert wrapped.text == CUT
        wrapped = await client.call(
            "mcp_call", arguments={"server": "there", "tool": "echo", "args": json.dumps(given)}
        )
        assert wrapped.text == CUT
        for name, arguments in [
            ("mcp_discover", {"query": CUT}),
            ("mcp_discover", {"server": CUT}),
            ("search_tools", {"query": CUT}),
            ("get_schema", {"server_id": "there"}),
            ("call_tool", {"server_name": CUT, "tool_name": TAIL}),
            ("call_tool", {"server_name": "there", "tool_name": TAIL}),
            (CUT, {}),
            (f"there__{CUT}", {}),
        ]:
            assert (await client.call(name, arguments=arguments)).message["id"]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_result_that_is_cut_may_hold_one(revision: str, server: Any) -> None:
    async def long(scene: Scene) -> Any:
        return {"content": [{"type": "text", "text": f"{CUT}\n" * 10_000}]}

    async with gateway(there=server({"long": long})) as rig:
        client = await rig.client(revision)
        assert "smile" in (await client.call("there__long")).text


@pytest.mark.parametrize("id", ["a\ud83d", "\ude00"])
async def test_an_id_may_hold_one(id: str) -> None:
    async with gateway(there=LegacyServer({"echo": echo})) as rig:
        modern = rig.modern()
        assert (await modern.call("there__echo", id=id)).message["id"] == id


BROKEN = rb'{"jsonrpc":"2.0","id":"q7","method":"tools/call","params":{"name":"there__echo","arguments":{"text":"\q"}}}'


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("stdio", [False, True])
async def test_a_request_that_cannot_be_read_is_refused_under_its_id(revision: str, stdio: bool) -> None:
    async with gateway(there=LegacyServer({"echo": echo})) as rig:
        client = await rig.client(revision, stdio=stdio)
        envelope = client.start("tools/call", name="there__echo") if revision == MODERN else None
        spelled = BROKEN
        if envelope:
            meta = json.dumps(envelope.message["params"]["_meta"]).encode()
            spelled = BROKEN.replace(b'"arguments"', b'"_meta":' + meta + b',"arguments"')
            await envelope.reply()
        broken = client._open(Pending(json.loads(spelled.replace(rb"\q", b"q")), spelled))
        assert (await broken.reply()).error["code"] == -32700


async def test_a_question_that_cannot_be_read_is_refused_under_its_id() -> None:
    async def asks(scene: Scene) -> Any:
        answer = asyncio.get_running_loop().create_future()
        scene.connection._questions["theirs"] = "elicitation/create", answer
        scene.connection.say(
            rb'{"jsonrpc":"2.0","id":"theirs","method":"elicitation/create","params":{"message":"\q"}}'
        )
        with contextlib.suppress(RpcError):
            await answer
        return "went on"

    async with gateway(there=LegacyServer({"asks": asks})) as rig:
        client = await rig.client(LATEST)
        assert text_of((await client.call("there__asks")).result) == "went on"
        (answer,) = rig.servers["there"].answers
        assert (answer["id"], answer["error"]["code"]) == ("theirs", -32700)
