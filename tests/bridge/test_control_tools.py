"""A call through a control tool is a call like any other: it asks, reports, is cancelled and fails, in every pair of
eras; only its result has the shape of the control tool's seed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from peers import (
    DECLINED,
    LATEST,
    MODERN,
    LegacyServer,
    ModernServer,
    Reply,
    RpcError,
    Scene,
    eventually,
    form,
    gateway,
    link,
    named,
    sampled,
    sampling,
)
from virtualtime import settle

from toolgate.config import Config
from toolgate.core.fault import Fault
from toolgate.core.model import Call
from toolgate.policy.base import Policy
from toolgate.surfaces.controls import base

SERVERS = pytest.mark.parametrize("server", [LegacyServer, ModernServer])
CLIENTS = pytest.mark.parametrize("revision", ["2025-06-18", LATEST, MODERN])

# How each forwards: its arguments for a tool of the server `there`, and what its good and its failed result hold.
Args = Callable[[str], dict[str, Any]]
TOOLS: dict[str, tuple[Args, Callable[[str], Any], Callable[[dict[str, Any]], bool]]] = {
    "execute_child_tool": (
        lambda tool: {"server_id": "there", "tool_name": tool, "arguments": {}},
        lambda text: {"result": text, "status": "success"},
        lambda said: said["status"] == "failed" and bool(said["code"]),
    ),
    "mcp_call": (
        lambda tool: {"server": "there", "tool": tool},
        lambda text: text,
        lambda said: said["text"].startswith("Error calling "),
    ),
    "call_tool": (
        lambda tool: {"server_name": "there", "tool_name": tool},
        lambda text: {"success": True, "result": text},
        lambda said: said["success"] is False and bool(said["error_type"]),
    ),
}
FORWARDING = pytest.mark.parametrize("control", TOOLS)


def params(control: str, tool: str) -> dict[str, Any]:
    return {"name": control, "arguments": TOOLS[control][0](tool)}


def said(control: str, reply: Reply) -> Any:
    """What a reply holds: JSON, save for `mcp_call`, which says what the tool said."""
    text = reply.text
    return text if control == "mcp_call" and not reply.result.get("isError") else _json(text)


def _json(text: str) -> Any:
    return json.loads(text) if text.startswith("{") else {"text": text}


async def plain(scene: Scene) -> str:
    return "done"


async def hello(scene: Scene) -> str:
    answer = await scene.ask(form())
    return f"hello {answer['content']['name']}" if answer["action"] == "accept" else answer["action"]


async def two_rounds(scene: Scene) -> str:
    first = await scene.ask(form("First?"))
    second = await scene.ask(form("Second?"))
    return f"{first['content']['name']} {second['content']['name']}"


async def model(scene: Scene) -> str:
    return (await scene.ask(sampling()))["content"]["text"]


async def asks_and_crashes(scene: Scene) -> str:
    await scene.ask(form())
    scene.crash()
    return ""


async def asks_and_refuses(scene: Scene) -> str:
    await scene.ask(form())
    raise RpcError(-32000, "the index is stale")


async def asks_and_fails(scene: Scene) -> dict[str, Any]:
    await scene.ask(form())
    return {"content": [{"type": "text", "text": "no such file"}], "isError": True}


# Questions.


@pytest.mark.promise("b.meta.asking")
@SERVERS
@CLIENTS
@FORWARDING
async def test_a_question_through_a_control_tool_reaches_the_client_and_its_answer_the_server(
    server: Any, revision: str, control: str
) -> None:
    async with gateway(there=server({"hello": hello})) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {"elicitation/create": named("Ann")}, **params(control, "hello"))
        assert said(control, reply) == TOOLS[control][1]("hello Ann")
        assert not reply.result.get("isError")


@pytest.mark.promise("b.meta.asking")
@SERVERS
@CLIENTS
@FORWARDING
async def test_several_rounds_and_sampling_work_as_well(server: Any, revision: str, control: str) -> None:
    async with gateway(there=server({"two": two_rounds, "model": model})) as rig:
        client = await rig.client(revision)
        names = iter(["Ann", "Bea"])
        answers = {"elicitation/create": lambda _: named(next(names)), "sampling/createMessage": sampled("hi")}
        reply = await client.converse("tools/call", answers, **params(control, "two"))
        assert said(control, reply) == TOOLS[control][1]("Ann Bea")
        reply = await client.converse("tools/call", answers, **params(control, "model"))
        assert said(control, reply) == TOOLS[control][1]("hi")


@pytest.mark.promise("b.meta.asking")
@SERVERS
@CLIENTS
@FORWARDING
async def test_a_refusal_reaches_the_server(server: Any, revision: str, control: str) -> None:
    async with gateway(there=server({"hello": hello})) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {"elicitation/create": DECLINED}, **params(control, "hello"))
        assert said(control, reply) == TOOLS[control][1]("decline")


@pytest.mark.promise("b.meta.asking")
@SERVERS
@FORWARDING
async def test_a_parked_call_is_resumed_by_the_same_call_alone(server: Any, control: str) -> None:
    async with gateway(there=server({"hello": hello, "plain": plain})) as rig:
        client = rig.modern()
        call = client.start("tools/call", **params(control, "hello"))
        reply = await call.reply()
        state = reply.state
        other = await client.retry(call, reply, {reply.key: named("Eve")}, arguments=TOOLS[control][0]("plain"))
        assert other.error["code"] == -32602
        assert other.error["data"]["code"] == "INVALID_STATE"
        renamed = await client.retry(call, reply, {reply.key: named("Eve")}, name="mcp_discover", arguments={})
        assert "error" in renamed.message
        assert state
        done = await client.retry(call, reply, {reply.key: named("Ann")})
        assert said(control, done) == TOOLS[control][1]("hello Ann")


@pytest.mark.promise("b.meta.asking")
@FORWARDING
async def test_a_client_that_cannot_be_asked_is_told_so_by_the_protocol(control: str) -> None:
    async def needs(scene: Scene) -> str:
        raise RpcError(-32021, "Missing capability", {"requiredCapabilities": {"elicitation": {}}})

    async with gateway(there=ModernServer({"needs": needs})) as rig:
        reply = await rig.modern(capabilities={}).call(**params(control, "needs"))
        assert reply.error["code"] == -32021
        assert reply.error["data"]["requiredCapabilities"] == {"elicitation": {}}


@pytest.mark.promise("b.meta.asking")
@FORWARDING
async def test_a_server_that_asks_who_cannot_be_asked_has_failed(control: str) -> None:
    async with gateway(there=ModernServer({"hello": hello})) as rig:
        reply = await rig.modern(capabilities={}).call(**params(control, "hello"))
        assert reply.result["isError"] is True
        assert TOOLS[control][2](said(control, reply))
        assert "did not declare" in reply.text


@pytest.mark.promise("b.meta.asking")
async def test_a_client_without_elicitation_by_url_is_referred_as_the_protocol_has_it() -> None:
    async def visit(scene: Scene) -> str:
        raise RpcError(-32042, "sign in first", {"elicitations": [{**link()[1], "elicitationId": "e1"}]})

    async with gateway(there=LegacyServer({"visit": visit})) as rig:
        client = await rig.legacy()
        for control in TOOLS:
            assert (await client.call(**params(control, "visit"))).error["code"] == -32042


# Failures on a later round.


@pytest.mark.promise("b.meta.failing-late")
@SERVERS
@CLIENTS
@FORWARDING
@pytest.mark.parametrize("tool", ["crashes", "refuses"])
async def test_what_fails_after_an_answer_has_the_seeds_shape_too(
    server: Any, revision: str, control: str, tool: str
) -> None:
    scripts = {"crashes": asks_and_crashes, "refuses": asks_and_refuses}
    async with gateway(there=server(scripts)) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {"elicitation/create": named("Ann")}, **params(control, tool))
        assert reply.result["isError"] is True
        assert TOOLS[control][2](said(control, reply)), reply.text
        assert ("the index is stale" in reply.text) == (tool == "refuses")


@pytest.mark.promise("b.meta.failing-late")
@SERVERS
@CLIENTS
@FORWARDING
async def test_a_tools_own_failure_after_an_answer_is_flagged(server: Any, revision: str, control: str) -> None:
    async with gateway(there=server({"fails": asks_and_fails})) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {"elicitation/create": named("Ann")}, **params(control, "fails"))
        assert reply.result["isError"] is True
        assert "no such file" in reply.text


@pytest.mark.promise("b.meta.failing-late")
@SERVERS
@FORWARDING
async def test_a_question_that_nobody_answers_in_time_ends_in_the_seeds_shape_or_unknown(
    server: Any, control: str
) -> None:
    async with gateway(there=server({"hello": hello})) as rig:
        client = rig.modern()
        call = client.start("tools/call", **params(control, "hello"))
        reply = await call.reply()
        await rig.clock.advance(1000)
        late = await client.retry(call, reply, {reply.key: named("Ann")})
        assert late.error["data"]["code"] == "INVALID_STATE"  # the protocol's own business


# Progress, logs, cancellation.


@pytest.mark.promise("b.meta.progress")
@SERVERS
@CLIENTS
@FORWARDING
async def test_progress_comes_under_the_clients_own_token(server: Any, revision: str, control: str) -> None:
    async def works(scene: Scene) -> str:
        scene.progress(1, total=2)
        scene.progress(2, total=2)
        return "done"

    async with gateway(there=server({"works": works})) as rig:
        client = await rig.client(revision)
        reply = await client.call(**params(control, "works"), meta={"progressToken": "mine"})
        told = reply.notes("notifications/progress")
        assert [(each["progressToken"], each["progress"]) for each in told] == [("mine", 1), ("mine", 2)]
        assert said(control, reply) == TOOLS[control][1]("done")


@pytest.mark.promise("b.meta.progress")
@SERVERS
@FORWARDING
async def test_logs_of_a_call_come_with_it(server: Any, control: str) -> None:
    async def talks(scene: Scene) -> str:
        scene.log("warning", "careful")
        return "done"

    async with gateway(there=server({"talks": talks})) as rig:
        client = rig.modern()
        meta = {"io.modelcontextprotocol/logLevel": "info"}
        reply = await client.call(**params(control, "talks"), meta=meta)
        assert [note["data"] for note in reply.notes("notifications/message")] == ["careful"]


@pytest.mark.promise("b.meta.cancelling")
@SERVERS
@CLIENTS
@FORWARDING
async def test_a_cancelled_call_is_cancelled_at_its_server(server: Any, revision: str, control: str) -> None:
    async def waits(scene: Scene) -> str:
        await rig.clock.sleep(1000)
        return "late"

    async with gateway(there=server({"waits": waits})) as rig:
        client = await rig.client(revision)
        there = rig.servers["there"]
        call = client.start("tools/call", **params(control, "waits"))
        await eventually(lambda: there.calls)
        if revision == MODERN:
            await call.gone()
        else:
            client.cancel(call)  # type: ignore[union-attr]
        await eventually(lambda: there.cancelled)
        await settle()
        await rig.is_quiet()


# Rules, and where a call goes.


class Watch(Policy):
    """Notes what rules are shown."""

    name = "watch"

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call:
        self.seen.append((call.server, call.target, call.via))
        return call


@pytest.mark.promise("b.surfaces.true-target-meta")
@SERVERS
@CLIENTS
@pytest.mark.parametrize("path", ["/mcp", "/mcp/children", "/mcp/meta", "/mcp/daemon", "/mcp/components", "/mcp/all"])
async def test_rules_see_the_true_server_and_tool_whatever_was_called(server: Any, revision: str, path: str) -> None:
    watch = Watch()
    async with gateway([watch], there=server({"plain": plain}, resources={"there://a": plain})) as rig:
        client = await rig.client(revision, path=path)
        for control in TOOLS:
            await client.call(**params(control, "plain"))
        await client.call("read_mcp_resource", arguments={"server_name": "there", "resource_uri": "there://a"})
        await client.call("list_registered_children", arguments={})
        assert watch.seen == [
            *(("there", "plain", control) for control in TOOLS),
            ("there", "there://a", "read_mcp_resource"),
            ("toolgate", "list_registered_children", ""),
        ]


class Deny(Policy):
    """Refuses one tool of one server, under whatever name."""

    name = "deny"

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call:
        if (call.server, call.target) == ("there", "secret"):
            raise Fault("ACCESS_DENIED", "This tool is not for you", reach="not_sent")
        return call


@pytest.mark.promise("b.surfaces.true-target-meta")
@SERVERS
@CLIENTS
async def test_what_a_rule_refuses_is_refused_through_every_control_tool(server: Any, revision: str) -> None:
    async with gateway([Deny()], there=server({"secret": plain})) as rig:
        client = await rig.client(revision)
        for control in TOOLS:
            reply = await client.call(**params(control, "secret"))
            assert reply.result["isError"] is True
            assert "This tool is not for you" in reply.text
        assert (await client.call("there__secret")).error["code"] == -32600
        assert rig.servers["there"].calls == []


@pytest.mark.promise("b.meta.asking")
@pytest.mark.parametrize("control", [*TOOLS, "mcp_discover"])
async def test_a_control_tool_does_not_run_as_a_task_where_tasks_are_offered(control: str) -> None:
    tasks = {"tasks": {"requests": {"tools": {"call": {}}}}}
    async with gateway(there=LegacyServer({"plain": plain}, declares={"tools": {}, **tasks})) as rig:
        client = await rig.legacy(LATEST)
        given = params(control, "plain") if control in TOOLS else {"name": control, "arguments": {}}
        reply = await client.call(**given, task={"ttl": 1000})
        assert reply.error["code"] == -32601


# Lists that are out of shape.


@pytest.mark.parametrize("odd", [None, 5, ["a"]])
@pytest.mark.parametrize("member", ["description", "title", "inputSchema"])
async def test_a_tool_that_is_listed_out_of_shape_spoils_no_control_tool(member: str, odd: Any) -> None:
    is_listed = member != "inputSchema" or odd is None
    server = LegacyServer({"odd": plain, "fine": plain}, resources={"file:///a": plain})
    said = {"inputSchema": {"type": "object"}, member: odd}
    server.offer("tools", {"name": "odd", **said}, {"name": "fine", "inputSchema": {"type": "object"}})
    server.offer("resources", {"uri": "file:///a", "name": "a", member: odd})
    async with gateway(there=server) as rig:
        client = await rig.client(LATEST)
        for control, arguments in ASKING:
            reply = await client.call(control, arguments=arguments)
            assert "fine" in reply.text, f"{control}: {reply.text}"
            assert ("odd" in reply.text) is is_listed, f"{control}: {reply.text}"


ASKING: list[tuple[str, dict[str, Any]]] = [
    ("get_schema", {"server_id": "there"}),
    ("list_tools", {"server": "there"}),
    ("list_tools", {}),
    ("mcp_discover", {"server": "there"}),
    ("mcp_discover", {"server": "there", "format": "typescript"}),
    ("mcp_discover", {"query": "odd fine", "format": "python"}),
    ("search_tools", {"query": "odd fine"}),
]


async def test_of_parameters_that_there_are_not_only_some_are_named() -> None:
    async with gateway(there=LegacyServer({"t": plain})) as rig:
        client = await rig.client(LATEST)
        reply = await client.call("call_tool", arguments={f"tool_nam{number}": 1 for number in range(20_000)})
        assert "did you mean tool_name?" in reply.text and "19,990 more" in reply.text
        assert len(reply.text) < 5_000


# Waiting while the configuration is edited.


@pytest.mark.parametrize("path", ["/mcp", "/mcp/bundles/some"])
@pytest.mark.parametrize(
    ("control", "arguments"),
    [
        ("list_tools", {}),
        ("list_tools", {"server": "slow"}),
        ("get_schema", {"server_id": "slow"}),
        ("mcp_discover", {}),
        ("mcp_discover", {"server": "slow"}),
        ("mcp_discover", {"query": "t"}),
        ("search_tools", {"query": "t"}),
    ],
)
async def test_a_control_tool_that_waits_for_a_server_that_is_removed_meanwhile_answers(
    path: str, control: str, arguments: dict[str, Any]
) -> None:
    slow, opens = LegacyServer({"t": plain}), asyncio.Event()
    connects = slow.make_link

    async def connects_late(*given: Any) -> Any:
        await opens.wait()
        return await connects(*given)

    slow.make_link = connects_late  # type: ignore[method-assign]

    def without_it(config: Config) -> Config:
        return msgspec.structs.replace(config, servers=config.servers[1:], bundles={})

    other = LegacyServer({"o": plain})
    async with gateway(slow=slow, other=other, bundles=SOME, edited=without_it) as rig:
        client = await rig.client(LATEST, path=path)
        call = client.start("tools/call", name=control, arguments=arguments)
        await settle()
        await rig.app.reload()
        reply = await call.reply()
        opens.set()
        assert "result" in reply.message, reply.message


SOME = {"some": ("slow__*", "other__*")}


@pytest.mark.promise("002.discover.signature")
async def test_a_found_tool_says_how_it_is_called_and_a_refusal_says_it_again() -> None:
    async def read(scene: Scene) -> str:
        raise RpcError(-32602, "no such path")

    schema = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "head": {"type": "integer"}},
        "required": ["path"],
    }
    async with gateway(files=LegacyServer({"read_file": read})) as rig:
        rig.servers["files"].lists["tools/list"][1][:] = [{"name": "read_file", "inputSchema": schema}]
        client = await rig.client(LATEST, path="/mcp/meta")
        found = json.loads((await client.call("mcp_discover", arguments={"query": "read file"})).text)
        assert found[0]["signature"] == "read_file(path: string, head?: integer)"
        told = json.loads((await client.call("mcp_discover", arguments={"server": "files"})).text)
        assert told["tools"][0]["signature"] == "read_file(path: string, head?: integer)"
        call = {"server": "files", "tool": "read_file"}
        for args in ({"pth": "x"}, {"path": "gone"}):  # refused by us, and by the server
            refused = await client.call("mcp_call", arguments={**call, "args": args})
            assert (
                refused.result["isError"]
                and json.loads(refused.text.partition("The schema of the arguments: ")[2]) == schema
            )
            assert "data." not in refused.text


async def test_a_piece_of_a_name_is_found() -> None:
    async def shoot(scene: Scene) -> str:
        return "done"

    async with gateway(there=LegacyServer({"browser_screenshot": shoot, "browser_click": shoot})) as rig:
        client = await rig.client(LATEST, path="/mcp/meta")
        found = json.loads((await client.call("mcp_discover", arguments={"query": "shot"})).text)
        assert [(each["tool"], each["score"]) for each in found] == [("browser_screenshot", 5)]


async def test_the_children_are_shown_with_their_arguments_and_no_secret_of_them() -> None:
    async with gateway(there=LegacyServer({}, args=("-y", "server", "--api-key", "hunter2hunter2"))) as rig:
        client = await rig.client(LATEST, path="/mcp/children")
        read = await client.request("resources/read", uri="mcp://children_servers")
        (child,) = json.loads(read.result["contents"][0]["text"])["children"]
        assert child["config"]["args"] == ["-y", "server", "--api-key", "***"]


async def test_a_server_may_be_named_as_it_is_configured() -> None:
    async def echo(scene: Scene) -> str:
        return "heard"

    async with gateway(my_server=LegacyServer({"x": echo})) as rig:
        client = await rig.client(LATEST)
        for written in ("my-server", "my_server"):
            assert (await client.call(f"{written}__x")).text == "heard"


@pytest.mark.parametrize("tool", ["here", "nowhere"])
@pytest.mark.parametrize("control", ["execute_child_tool", "mcp_call", "call_tool"])
async def test_large_arguments_for_a_tool_are_taken_apart_once(control: str, tool: str, monkeypatch: Any) -> None:
    """What a call is for is looked at ten times."""
    read: list[str] = []
    decoded = base._decoded  # type: ignore[reportPrivateUsage]

    def counted(control: base.Control, call: Call) -> Any:
        read.append(control.name)
        return decoded(control, call)

    monkeypatch.setattr(base, "_decoded", counted)
    async with gateway(there=LegacyServer({"here": plain})) as rig:
        client = await rig.client(LATEST, path="/mcp/all")
        args = TOOLS[control][0](tool)
        name = "args" if control == "mcp_call" else "arguments"
        await client.call(control, arguments={**args, name: {"text": "x" * base.LARGE}})
        assert read == [control]
