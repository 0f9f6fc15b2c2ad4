"""A question to a person is short: its texts are written out, a character at a time, and that holds up everybody."""

from __future__ import annotations

from typing import Any

import pytest
from inmemory import Scripted, Visitor, said, tools
from inmemory import gateway as gateway_of_scripts
from msgspec import Raw
from peers import LATEST, MODERN, Json, LegacyServer, ModernServer, RpcError, Scene, form, gateway, link, named, sampled
from virtualtime import settle

from toolgate.core import asks, jsonrpc, mcp
from toolgate.core.model import Ask, Client
from toolgate.surfaces import who_asks

LONG = "\x7f" * asks.MOST_TO_READ
HALF = "\x7f" * (asks.MOST_TO_READ // 2)


def field(**texts: Any) -> Any:
    return form(requestedSchema={"type": "object", "properties": {"name": {"type": "string"} | texts}})


QUESTIONS = {
    "message": form(LONG),
    "title of the form": form(title=LONG),
    "title": field(title=LONG),
    "description": field(description=LONG),
    "names of choices": field(enum=["a"], enumNames=[LONG]),
    "page": (link("https://a.example/")[0], link("https://a.example/")[1] | {"message": LONG}),
}


async def outcome(server: Any, revision: str, *questions: Any) -> tuple[str, list[Json]]:
    """What the server, or else the client, is told of these questions of one call; and those that the client got."""
    seen: list[Json] = []

    async def ask(scene: Scene) -> str:
        try:
            return "".join([str(await scene.ask(question)) for question in questions])
        except RpcError as error:
            return error.message

    def answer(params: Json) -> Json:
        seen.append(params)
        return sampled("yes") if "messages" in params else named("Ann")

    async with gateway(evil=server({"ask": ask}), bank=server({"ask": ask})) as rig:
        answers = {"elicitation/create": answer, "sampling/createMessage": answer}
        client = await rig.client(revision)
        reply = await client.converse("tools/call", answers, name="evil__ask")
        return reply.text if "result" in reply.message else reply.message["error"]["message"], seen


@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("case", QUESTIONS)
async def test_a_long_question_to_a_person_is_refused_and_says_why(case: str, server: Any, revision: str) -> None:
    told, seen = await outcome(server, revision, QUESTIONS[case])
    assert "65,536" in told and "to a person" in told
    assert not seen


@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_one_to_a_model_may_be_long(server: Any, revision: str) -> None:
    messages = [{"role": "user", "content": {"type": "text", "text": "x" * 2 * asks.MOST_TO_READ}}]
    told, seen = await outcome(server, revision, ("sampling/createMessage", {"messages": messages, "maxTokens": 1}))
    assert "yes" in told, told[:300]
    assert [each["messages"] for each in seen] == [messages]


@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("kind", ["text", "image"])
async def test_one_to_a_model_has_four_mebibytes_at_most(kind: str, server: Any, revision: str) -> None:
    """A picture of 3 MiB fits in: to read it, search it and write it takes its time on the loop."""

    def question(size: int) -> Any:
        content: Json = {"type": "text", "text": "\\" * (size // 2)}
        if kind == "image":
            content = {"type": "image", "mimeType": "image/png", "data": "A" * size}
        return "sampling/createMessage", {"messages": [{"role": "user", "content": content}], "maxTokens": 1}

    most = 4 * 1024 * 1024
    passes = most - 1024 if server is LegacyServer else 200 * 1024  # an answer above 256 KiB may ask little
    told, seen = await outcome(server, revision, question(passes))
    assert "yes" in told and len(seen) == 1, told[:300]
    told, seen = await outcome(server, revision, question(most))
    assert "4,194,304 bytes" in told and not seen, told[:300]


@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@pytest.mark.parametrize("unit", ["\\u00", '"\\', "\x07"])
async def test_one_to_a_model_has_so_many_escapes_at_most(unit: str, server: Any) -> None:
    """To look for secrets behind each takes as long as some hundred other characters."""
    content = {"type": "text", "text": unit * (asks.MOST_ESCAPES + 1)}
    question = {"messages": [{"role": "user", "content": content}], "maxTokens": 1}
    told, seen = await outcome(server, LATEST, ("sampling/createMessage", question))
    assert not seen and "yes" not in told


async def test_the_open_questions_of_a_call_to_a_person_count_together() -> None:
    script = Scripted(tools_list=tools("ask"), tools_call=...)
    async with gateway_of_scripts(scripts={"there": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize(elicitation={})
        asking = visitor.begin("POST", jsonrpc.encode(visitor.request("tools/call", name="there__ask", arguments={})))
        await settle()
        for number in range(3):
            method, params = form(HALF[:-200])
            script.say(jsonrpc.encode({"jsonrpc": "2.0", "id": f"q{number}", "method": method, "params": params}))
        await settle()
        [refused] = [each for each in script.requests if "error" in each]
        assert refused["id"] == "q2" and "65,536 bytes of those to a person" in refused["error"]["message"]
        call = next(each for each in script.requests if each.get("method") == "tools/call")
        script.say(jsonrpc.encode({"jsonrpc": "2.0", "id": call["id"], "result": said("done")}))
        assert (await asking.response()).last["result"]["content"] == said("done")["content"]


def pages(*messages: str) -> Raw:
    made = [{**link(f"https://a.example/{n}")[1], "message": each} for n, each in enumerate(messages)]
    return Raw(jsonrpc.encode({"elicitations": made}))


@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("messages", [(LONG,), (HALF, HALF)], ids=["one", "two"])
async def test_an_error_with_long_pages_passes_without_them(
    messages: tuple[str, ...], server: Any, revision: str
) -> None:
    async def refuse(scene: Scene) -> str:
        data = jsonrpc.value(pages(*messages))
        raise RpcError(mcp.URL_ELICITATION_REQUIRED, "Sign in first", data)

    async with gateway(evil=server({"ask": refuse}), bank=server({"ask": refuse})) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {}, name="evil__ask")
        assert reply.message["error"]["message"] == "Sign in first" and "data" not in reply.message["error"]


@pytest.mark.parametrize("messages", [(LONG,), (HALF, HALF)], ids=["one", "two"])
def test_of_what_is_told_of_a_task_long_questions_are_left_out(messages: tuple[str, ...]) -> None:
    asked = {f"q{n}": {"method": "elicitation/create", "params": form(each)[1]} for n, each in enumerate(messages)}
    client = Client(capabilities={"elicitation": {"form": {}}})
    told = who_asks.told_of_task(jsonrpc.encode({"taskId": "t", "inputRequests": asked}), client, "evil", False)
    assert jsonrpc.value(Raw(told))["inputRequests"] == {}


def test_so_many_bytes_are_the_bound() -> None:
    question = b'{"message":"%b"}'
    longest = question % (b"x" * (asks.MOST_TO_READ - len(question) + 2))
    assert not asks.is_too_large(Ask("a", "elicitation/create", Raw(longest)))
    assert asks.is_too_large(Ask("a", "elicitation/create", Raw(longest + b" ")))
