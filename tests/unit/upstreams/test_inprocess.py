"""Functions of this process as an upstream."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw
from virtualtime import FakeClock, settle

from toolgate.config import Server
from toolgate.core.fault import Fault
from toolgate.core.model import Answer, Asker, Call, Client, Done, NeedInput
from toolgate.core.notes import Note, Notes
from toolgate.upstreams.base import Items
from toolgate.upstreams.inprocess.tools import Arguments, InProcessItem, InProcessTools, Object, ToolContext, text
from toolgate.upstreams.inprocess.upstream import InProcessUpstream

FORM = {"elicitation": {"form": {}}}


async def echo(arguments: Arguments, _context: ToolContext) -> Object:
    return text(str(arguments["message"]), seen=arguments)


async def ask(_arguments: Arguments, context: ToolContext) -> Object:
    answer = await context.ask("elicitation/create", {"message": "?"})
    return text(bytes(answer.result).decode())


async def work(_arguments: Arguments, context: ToolContext) -> Object:
    context.progress(1, 2, "half")
    return text("done")


async def hang(_arguments: Arguments, _context: ToolContext) -> Object:
    await asyncio.Event().wait()
    return {}


TOOLS = {
    name: InProcessItem({"name": name, "inputSchema": {}}, function)
    for name, function in {"echo": echo, "ask": ask, "work": work, "hang": hang}.items()
}
TEMPLATES = {"made://{name}": InProcessItem({"uriTemplate": "made://{name}", "name": "made"})}


def made(uri: str) -> Object | None:
    return {"contents": [{"uri": uri, "text": "made"}]} if uri.startswith("made://") else None


def upstream(clock: FakeClock | None = None) -> InProcessUpstream:
    registry = InProcessTools({"tools": TOOLS, "resourceTemplates": TEMPLATES}, made)
    return InProcessUpstream(Server(id="own", name="own", type="registry"), registry, clock or FakeClock())


def call(tool: str, arguments: bytes = b"", method: str = "tools/call", **more: Any) -> Call:
    return Call(method, tool, more.pop("client", Client()), Raw(arguments), "own", **more)


async def test_its_entries_are_listed_as_they_are_shown() -> None:
    names = [json.loads(bytes(raw))["name"] for raw in (await upstream().list("tools", Client())).raw]
    assert names == ["echo", "ask", "work", "hang"]
    assert await upstream().list("prompts", Client()) == Items()


async def test_a_function_gets_the_arguments_and_its_object_is_the_result() -> None:
    outcome = await upstream().invoke(call("echo", b'{"message":"hi"}'))
    assert isinstance(outcome, Done)
    assert json.loads(outcome.body) == {"content": [{"type": "text", "text": "hi"}], "seen": {"message": "hi"}}


async def test_a_function_may_ask() -> None:
    asked = await upstream().invoke(call("ask", client=Client(capabilities=FORM)))
    assert isinstance(asked, NeedInput) and asked.resume.asker == Asker("upstream", "own")
    asked.resume.answer(asked.asks[0].key, Answer(result=Raw(b'"yes"')))
    outcome = await asked.resume.next()
    assert isinstance(outcome, Done) and json.loads(outcome.body)["content"][0]["text"] == '"yes"'


async def test_a_client_that_cannot_be_asked_has_said_nothing() -> None:
    outcome = await upstream().invoke(call("ask"))
    assert isinstance(outcome, Done) and json.loads(outcome.body)["content"][0]["text"] == ""


async def test_progress_reaches_those_who_want_it() -> None:
    heard: list[Note] = []
    await upstream().invoke(call("work", notes=Notes(heard.append)))
    assert not heard
    await upstream().invoke(call("work", notes=Notes(heard.append), wants_progress=True))
    assert [json.loads(bytes(note.params)) for note in heard] == [{"progress": 1, "total": 2, "message": "half"}]


async def test_a_function_that_breaks_is_its_own_calls_failure() -> None:
    with pytest.raises(Fault, match="KeyError") as caught:
        await upstream().invoke(call("echo", b"{}"))
    assert (caught.value.code, caught.value.reach) == ("UPSTREAM_ERROR", "executed")


async def test_a_function_that_takes_too_long_is_ended() -> None:
    clock = FakeClock()
    running = asyncio.ensure_future(upstream(clock).invoke(call("hang")))
    await clock.advance(60)
    with pytest.raises(Fault) as caught:
        await running
    assert caught.value.code == "TIMEOUT"


async def test_what_is_not_there_is_not_found() -> None:
    for method, target, code in (
        ("tools/call", "nope", "TOOL_NOT_FOUND"),
        ("prompts/get", "echo", "PROMPT_NOT_FOUND"),
        ("resources/read", "other://x", "RESOURCE_NOT_FOUND"),
    ):
        with pytest.raises(Fault) as caught:
            await upstream().invoke(call(target, method=method))
        assert (caught.value.code, caught.value.reach) == (code, "not_sent")


async def test_a_uri_that_a_template_made_is_read() -> None:
    outcome = await upstream().invoke(call("made://x", method="resources/read"))
    assert isinstance(outcome, Done) and json.loads(outcome.body)["contents"][0]["uri"] == "made://x"


async def test_a_registry_counts_its_calls_and_can_be_stopped_and_used_again() -> None:
    own = upstream()
    running = asyncio.ensure_future(own.invoke(call("hang")))
    await settle()
    assert (own.status().state, own.calls, own.status().calls) == ("busy", 1, 1)
    await own.stop()
    with pytest.raises(Fault, match="own was stopped") as caught:
        await running
    assert (caught.value.code, caught.value.reach) == ("SERVER_FAILED", "sent_unknown")
    assert (own.status().state, own.status().stopped_by, own.calls) == ("stopped", "close", 0)
    await own.invoke(call("work"))
    assert own.status().state == "ready"


async def test_a_registry_is_drained_when_its_calls_are_over_or_their_time_is() -> None:
    clock = FakeClock()
    own = upstream(clock)
    await own.drain(40)
    running = asyncio.ensure_future(own.invoke(call("hang")))
    await settle()
    drain = asyncio.ensure_future(own.drain(40))
    await clock.advance(39)
    assert not drain.done()
    await clock.advance(2)
    assert drain.done()
    with pytest.raises(Fault, match="own was stopped"):
        await running
