"""What a person approves is what they see, and nothing else goes on by it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from markdown_it import MarkdownIt
from peers import (
    LATEST,
    MODERN,
    LegacyServer,
    ModernServer,
    Rig,
    RpcError,
    Scene,
    eventually,
    form,
    gateway,
    named,
)
from virtualtime import FakeClock, settle

from toolgate.auth import safe_text
from toolgate.config import Overlay, Parameter, access
from toolgate.core.model import Call
from toolgate.core.redaction import GONE, Redactor
from toolgate.policy.approval import Approval
from toolgate.policy.approval_requests import LARGEST, MOST_SHOWN
from toolgate.policy.approvals import MOST_UNDECIDED, Approvals, Place, StoredRequest, Unfit
from toolgate.policy.validate import Validate
from toolgate.state.memory import MemoryStore

REVISIONS = pytest.mark.parametrize("revision", ["2025-06-18", LATEST, MODERN])
SECRET = "canary-0123456789"
TTL, WAIT = 600.0, 5.0
INVALID = -32602


async def echo(scene: Scene) -> str:
    return json.dumps(scene.arguments)


async def hello(scene: Scene) -> str:
    return f"hello {(await scene.ask(form()))['content']['name']}, {json.dumps(scene.arguments)}"


class ApprovalRig:
    """Where approvals are kept and decided; `gateway` opens a gateway that asks for everything of `there`."""

    def __init__(self, *by: Any, **settings: Any) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.book = Approvals(self.store, self.clock)
        self.settings = access.Approvals(**{"by": by or ("client",), "wait": WAIT, "ttl": TTL, **settings})
        self.prints: dict[str, str] = {}
        self.verdict: access.Verdict = "ask"

    @property
    def undecided(self) -> list[StoredRequest]:
        return [each for each in self.book.requests() if each.state == "undecided"]

    async def request(self) -> StoredRequest:
        """The one that waits."""
        await eventually(lambda: self.undecided)
        (request,) = self.undecided
        return request

    @asynccontextmanager
    async def gateway(self, **servers: Any) -> AsyncGenerator[Rig]:
        def verdict(call: Call) -> access.Verdict:
            return self.verdict if call.server == "there" else "allow"

        book = Approvals(self.store, self.clock)
        rule = Approval(verdict, book, self.settings, Redactor([SECRET]), self.clock, self.prints, [Validate().check])
        kept = dict(vars(rule))
        async with gateway(policies=[rule], store=self.store, **servers) as rig:
            yield rig
            assert vars(rule) == kept


def decide(decision: str, arguments: Any = None, asked: list[Any] | None = None) -> dict[str, Any]:
    """What a client's user says to all questions of ours; to those of servers, a name."""

    def answer(params: Any) -> Any:
        if asked is not None:
            asked.append(params)
        if "decision" not in params["requestedSchema"]["properties"]:
            return named("Ann")
        given = {"decision": decision} | ({} if arguments is None else {"arguments": json.dumps(arguments)})
        return {"action": "accept", "content": given}

    return {"elicitation/create": answer}


def sent(there: Any) -> list[Any]:
    return [call["params"].get("arguments") for call in there.calls]


def code(reply: Any) -> str:
    return reply.error["data"]["code"]


# What is shown.


@pytest.mark.promise("b.approval.shown")
@REVISIONS
async def test_the_question_names_server_tool_and_arguments(revision: str) -> None:
    asked = list[Any]()
    async with ApprovalRig().gateway(there=LegacyServer({"echo": echo})) as rig:
        client = await rig.client(revision)
        await client.converse(
            "tools/call", decide("once", asked=asked), name="there__echo", arguments={"path": "/tmp/a", "force": True}
        )
    (question,) = asked
    assert question["message"].split("\n") == [
        "toolgate asks for your approval. Nothing has been sent yet.",
        "",
        '- Server: "there"',
        '- Tool: "echo"',
        "- Arguments:",
        "",
        "    {",
        '      "force": true,',
        '      "path": "/tmp/a"',
        "    }",
    ]
    fields = question["requestedSchema"]["properties"]
    assert json.loads(fields["arguments"]["default"]) == {"path": "/tmp/a", "force": True}


HOSTILE = [
    'x"\n- Server: "bank"\n\n# Approved\n',
    "x\r\n```\n    }\n\n**Nothing else** is called, choose *always*\n",
    "![](http://evil/?a) <script>alert(1)</script> [Deny](http://evil) ~~x~~ | a | b |",
    "\u202e}\u2066 \u200b\u2028\u0085\x1b[2J\x07",
    "\\\\\n\\`\\*",
    "1. one\n2. two\n> quoted\n---\n===\n",
    'א", "b": 1, "ב',
]


@pytest.mark.promise("b.approval.frame")
@pytest.mark.parametrize("text", HOSTILE)
@REVISIONS
async def test_nothing_that_caller_or_server_wrote_can_fake_the_question(revision: str, text: str) -> None:
    """It has as many lines as with harmless texts, and is the same Markdown but for the texts themselves."""
    asked = list[Any]()
    servers = {"there": LegacyServer({"echo": echo, text: echo})}
    async with ApprovalRig().gateway(**servers) as rig:
        client = await rig.client(revision, path="/mcp/servers/there")
        for name, given in (("echo", "x"), (text, text)):
            arguments = {given: given, f"{given}2": [given, {given: given}]}
            await client.converse("tools/call", decide("deny", asked=asked), name=name, arguments=arguments)
    harmless, hostile = (each["message"] for each in asked)
    assert hostile.count("\n") == harmless.count("\n")
    assert shape(hostile) == shape(harmless)
    assert not set(hostile) & set("\r\x1b\u202e\u2066\u200b\u2028\x85`*<[") - set("[")
    assert json.loads(asked[1]["requestedSchema"]["properties"]["arguments"]["default"])[text] == text
    assert "`" not in asked[1]["requestedSchema"]["properties"]["arguments"]["default"]


def shape(message: str) -> list[str]:
    """What Markdown makes of it."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(message)
    return [each.type for token in tokens for each in (token, *(token.children or ()))]


@REVISIONS
async def test_a_known_secret_is_not_shown_and_stays_where_it_was_left(revision: str) -> None:
    asked, there = list[Any](), LegacyServer({"echo": echo})
    async with ApprovalRig().gateway(there=there) as rig:
        client = await rig.client(revision)
        given = {"token": SECRET, "deep": {"token": f"Bearer {SECRET}", "n": 1}}
        changed = {"token": GONE, "deep": {"token": f"Bearer {GONE}", "n": 2}}
        await client.converse("tools/call", decide("once", changed, asked), name="there__echo", arguments=given)
        moved = decide("once", {"elsewhere": GONE})
        moved["elicitation/create"] = once_then_deny(moved["elicitation/create"], asked)
        assert code(await client.converse("tools/call", moved, name="there__echo", arguments=given)) == (
            "APPROVAL_DENIED"
        )
    assert SECRET not in repr(asked) and asked[0]["message"].count("secret") == 2
    assert "stands for a secret" in asked[2]["message"]
    assert sent(there) == [{"token": SECRET, "deep": {"token": f"Bearer {SECRET}", "n": 2}}]


def once_then_deny(first: Callable[[Any], Any], asked: list[Any]) -> Callable[[Any], Any]:
    answers = [first, decide("deny")["elicitation/create"]]

    def answer(params: Any) -> Any:
        asked.append(params)
        return answers.pop(0)(params)

    return answer


async def test_what_a_form_cannot_show_whole_is_for_an_operator() -> None:
    there, long = LegacyServer({"echo": echo}), {"text": "x" * MOST_SHOWN}
    for by in (("client",), ("client", "operator")):
        context = ApprovalRig(*by)
        async with context.gateway(there=there) as rig:
            call = rig.modern().start("tools/call", name="there__echo", arguments=long)
            if "operator" in by:
                await context.book.allow(await context.request(), "once", TTL)
                assert (await call.reply()).result["content"]
            else:
                assert code(await call.reply()) == "APPROVAL_REQUIRED"
    assert sent(there) == [long]


@pytest.mark.parametrize("given", ['{"path":"/safe","path":"/etc"}', '{"a":{"x":1,"\\u0078":2}}'])
async def test_arguments_that_readers_understand_in_several_ways_are_refused(given: str) -> None:
    there = LegacyServer({"echo": echo})
    async with ApprovalRig("client", "operator").gateway(there=there) as rig:
        client = await rig.legacy()
        request = (
            f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"there__echo","arguments":{given}}}}}'
        )
        assert code(await client.raw(request.encode())) == "INVALID_ARGS"
    assert there.calls == []


@pytest.mark.parametrize(("method", "target"), [("prompts/get", "echo"), ("resources/read", "mem://echo")])
@REVISIONS
async def test_prompts_and_resources_ask_too(revision: str, method: str, target: str) -> None:
    async def said(scene: Scene) -> str:
        return "done"

    there, asked = LegacyServer({}, {"echo": said}, {"mem://echo": said}), list[Any]()
    params = {"uri": f"there+{target}"} if method == "resources/read" else {"name": f"there__{target}"}
    async with ApprovalRig().gateway(there=there) as rig:
        client = await rig.client(revision)
        assert code(await client.converse(method, decide("deny", asked=asked), **params)) == "APPROVAL_DENIED"
        assert (await client.converse(method, decide("once", asked=asked), **params)).text == "done"
    assert f'"{target}"' in asked[0]["message"] and len(there.calls) == 1


# What a decision is good for.


@pytest.mark.promise("b.approval.bound")
async def test_an_answer_is_good_once_and_for_its_own_call_only() -> None:
    context, there = ApprovalRig(), LegacyServer({"echo": echo, "other": echo})
    async with context.gateway(there=there) as rig:
        ann, bob = rig.modern(), rig.modern("bob")
        call = ann.start("tools/call", name="there__echo", arguments={"n": 1, "m": 2})
        reply = await call.reply()
        answers = {reply.key: {"action": "accept", "content": {"decision": "once"}}}
        for client, changes in (
            (ann, {"arguments": {"n": 2, "m": 2}}),
            (ann, {"name": "there__other"}),
            (bob, {}),
            (ann, {"requestState": reply.state[:-2] + "AA"}),
        ):
            assert (await client.retry(call, reply, answers, **changes)).error["code"] == INVALID
        assert there.calls == []
        again = await ann.retry(call, reply, answers, arguments={"m": 2, "n": 1})
        assert json.loads(again.text) == {"n": 1, "m": 2}
        assert (await ann.retry(call, reply, answers)).error["code"] == INVALID
    assert len(there.calls) == 1


async def test_numbers_that_look_equal_to_some_readers_are_other_arguments() -> None:
    context, there = ApprovalRig(), LegacyServer({"echo": echo})
    async with context.gateway(there=there) as rig:
        client = rig.modern()
        one, other = (10**30 + number for number in (0, 1))
        call = client.start("tools/call", name="there__echo", arguments={"n": one})
        reply = await call.reply()
        answers = {reply.key: {"action": "accept", "content": {"decision": "once"}}}
        assert (await client.retry(call, reply, answers, arguments={"n": other})).error["code"] == INVALID
    assert there.calls == []


@pytest.mark.promise("b.approval.bound")
@REVISIONS
async def test_what_an_operator_allows_is_good_once_and_for_that_call_only(revision: str) -> None:
    context, there = ApprovalRig("operator", wait=0.0), LegacyServer({"echo": echo, "other": echo})
    async with context.gateway(there=there) as rig:
        ann, bob = await rig.client(revision), await rig.client(revision, principal="bob")

        async def call(client: Any, n: int, tool: str = "echo") -> Any:
            return await client.call(f"there__{tool}", arguments={"n": n})

        refused = await call(ann, 1)
        (request,) = context.undecided
        assert refused.error["data"]["approval"]["id"] == request.id
        assert refused.error["data"]["retryable"] is True
        await context.book.allow(request, "once", TTL)
        for other in (call(ann, 2), call(bob, 1), call(ann, 1, "other")):
            assert code(await other) == "APPROVAL_REQUIRED"
        assert json.loads((await call(ann, 1)).text) == {"n": 1}
        assert code(await call(ann, 1)) == "APPROVAL_REQUIRED"
        with pytest.raises(Unfit):  # what was decided once is decided
            await context.book.allow(request, "once", TTL)
    assert sent(there) == [{"n": 1}]


@REVISIONS
async def test_a_grant_is_of_one_principal_tool_and_server_as_it_is_reached(revision: str) -> None:
    context, there = ApprovalRig(), LegacyServer({"echo": echo, "other": echo})
    context.prints["there"] = "as it was"
    async with context.gateway(there=there) as rig:
        ann, bob = await rig.client(revision), await rig.client(revision, principal="bob")
        await ann.converse("tools/call", decide("always"), name="there__echo")
        for client, name, is_let in ((ann, "echo", True), (ann, "other", False), (bob, "echo", False)):
            reply = await client.converse("tools/call", decide("deny"), name=f"there__{name}")
            assert ("result" in reply.message) is is_let
        context.prints["there"] = "another"
        assert code(await ann.converse("tools/call", decide("deny"), name="there__echo")) == "APPROVAL_DENIED"
    assert len(there.calls) == 2


async def test_of_two_equal_calls_that_wait_one_decision_lets_one_go() -> None:
    context, there = ApprovalRig("operator"), LegacyServer({"echo": echo})
    async with context.gateway(there=there) as rig:
        one, two = (rig.modern().start("tools/call", name="there__echo") for _ in range(2))
        await context.book.allow(await context.request(), "once", TTL)
        await eventually(lambda: one.is_answered or two.is_answered)
        await context.book.deny(await context.request(), TTL)
        replies = [await one.reply(), await two.reply()]
        assert sorted("result" in reply.message for reply in replies) == [False, True]
    assert len(there.calls) == 1


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "decline"},
        {"action": "cancel"},
        {"action": "accept"},
        {"action": "accept", "content": {}},
        {"action": "accept", "content": {"decision": "yes"}},
        {"action": "accept", "content": {"decision": ""}},
        {"action": "accept", "content": {"arguments": "{}"}},
    ],
    ids=lambda answer: json.dumps(answer),
)
@REVISIONS
async def test_whatever_is_no_yes_is_a_no(revision: str, answer: Any) -> None:
    there = LegacyServer({"echo": echo})
    async with ApprovalRig("client", "operator").gateway(there=there) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {"elicitation/create": answer}, name="there__echo")
        assert code(reply) == "APPROVAL_DENIED"
    assert there.calls == []


@pytest.mark.parametrize("revision", ["2025-06-18", LATEST])
async def test_where_a_client_fails_at_the_form_an_operator_decides(revision: str) -> None:
    context, there = ApprovalRig("client", "operator"), LegacyServer({"echo": echo})

    def fails(_params: Any) -> Any:
        raise RpcError(-32603, "no window")

    async with context.gateway(there=there) as rig:
        client = await rig.legacy(revision, answers={"elicitation/create": fails})
        call = client.start("tools/call", name="there__echo")
        await context.book.allow(await context.request(), "once", TTL)
        assert (await call.reply()).result
    assert len(there.calls) == 1


@REVISIONS
async def test_a_client_without_forms_is_the_operators(revision: str) -> None:
    context, there = ApprovalRig("client", "operator"), LegacyServer({"echo": echo})
    async with context.gateway(there=there) as rig:
        client = await rig.client(revision, capabilities={"elicitation": {"url": {}}} if revision >= LATEST else {})
        call = client.start("tools/call", name="there__echo")
        await context.book.allow(await context.request(), "once", TTL)
        assert (await call.reply()).result


# Other arguments.


@pytest.mark.promise("b.approval.edited")
@pytest.mark.promise("b.rulings.14-stream")
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST])
async def test_a_client_that_takes_only_json_is_the_operators_where_there_is_one(revision: str) -> None:
    for by in (("client", "operator"), ("client",)):
        context, there = ApprovalRig(*by), LegacyServer({"echo": echo})
        async with context.gateway(there=there) as rig:
            client = await rig.legacy(revision, accept="application/json")
            pending = client.start("tools/call", name="there__echo", arguments={"a": 1})
            if "operator" in by:
                await context.book.allow(await context.request(), "once", TTL)
                assert json.loads((await pending.reply()).text) == {"a": 1}
            else:
                error = (await pending.reply()).error
                assert error["data"]["requiredCapabilities"] == {"elicitation": {}}
            assert len(there.calls) == ("operator" in by)
            assert not client.asked


@pytest.mark.parametrize("by", ["client", "operator"])
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@REVISIONS
async def test_a_call_that_its_server_asks_something_of_keeps_the_arguments_that_were_approved(
    revision: str, server: Any, by: str
) -> None:
    context, there = ApprovalRig(by, wait=0.0), server({"hello": hello})
    async with context.gateway(there=there) as rig:
        client = await rig.client(revision)
        asked = list[Any]()
        if by == "operator":
            assert code(await client.call("there__hello", arguments={"n": 1})) == "APPROVAL_REQUIRED"
            await context.book.allow(await context.request(), "once", TTL, '{"n": 2}')
        reply = await client.converse(
            "tools/call", decide("once", {"n": 2}, asked), name="there__hello", arguments={"n": 1}
        )
        assert reply.text == 'hello Ann, {"n": 2}'
        assert len(asked) == (2 if by == "client" else 1)
    assert set(map(json.dumps, sent(there))) == {'{"n": 2}'}


@pytest.mark.promise("b.approval.edited")
async def test_they_are_kept_over_a_restart() -> None:
    context, there = ApprovalRig(), ModernServer({"hello": hello})
    async with context.gateway(there=there) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="there__hello", arguments={"n": 1})
        reply = await call.reply()
        yes = {"action": "accept", "content": {"decision": "once", "arguments": '{"n": 2}'}}
        call = client.retry_later(call, reply, {reply.key: yes})
        reply = await call.reply()
    async with context.gateway(there=there) as rig:
        assert (await rig.modern().retry(call, reply, {reply.key: named("Ann")})).text == 'hello Ann, {"n": 2}'
    assert sent(there) == [{"n": 2}, {"n": 2}]


@pytest.mark.parametrize("text", ["[" * LARGEST * 8, '{"a":[' + "{}," * LARGEST + "0]}", "x" * (LARGEST + 1)])
@REVISIONS
async def test_arguments_that_are_too_long_to_be_shown_are_not_read(
    revision: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, lengths = safe_text.read, list[int]()

    def counted(text: Any) -> Any:
        lengths.append(len(text))
        return read(text)

    monkeypatch.setattr(safe_text, "read", counted)
    asked, there = list[Any](), LegacyServer({"echo": echo})

    def answer(params: Any) -> Any:
        asked.append(params["message"])
        given = {"decision": "once", "arguments": text} if len(asked) == 1 else {"decision": "deny"}
        return {"action": "accept", "content": given}

    async with ApprovalRig().gateway(there=there) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {"elicitation/create": answer}, name="there__echo", arguments={})
        assert code(reply) == "APPROVAL_DENIED" and f"more than {LARGEST:,} characters" in asked[1]
    assert max(lengths) <= LARGEST and not there.calls


@pytest.mark.parametrize("verdict", ["allow", "off"])
async def test_what_may_be_called_has_changed_while_a_call_waits(verdict: Any) -> None:
    context, there = ApprovalRig("operator"), LegacyServer({"echo": echo})
    async with context.gateway(there=there) as rig:
        call = rig.modern().start("tools/call", name="there__echo", arguments={"n": 1})
        await context.book.allow(await context.request(), "once", TTL, '{"n": 2}')
        context.verdict = verdict
        reply = await call.reply()
        assert code(reply) == "ACCESS_DENIED" if verdict == "off" else json.loads(reply.text) == {"n": 2}
    assert sent(there) == ([] if verdict == "off" else [{"n": 2}])


async def test_what_was_edited_stays_so_where_nobody_is_asked_any_more() -> None:
    context, there = ApprovalRig(), ModernServer({"hello": hello})
    async with context.gateway(there=there) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="there__hello", arguments={"n": 1})
        reply = await call.reply()
        yes = {"action": "accept", "content": {"decision": "once", "arguments": '{"n": 2}'}}
        call = client.retry_later(call, reply, {reply.key: yes})
        reply = await call.reply()
        context.verdict = "allow"
        assert (await client.retry(call, reply, {reply.key: named("Ann")})).text == 'hello Ann, {"n": 2}'
    assert sent(there) == [{"n": 2}, {"n": 2}]


async def test_without_a_record_of_what_was_approved_the_person_is_asked_again() -> None:
    context, there = ApprovalRig(), ModernServer({"hello": hello})
    async with context.gateway(there=there) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="there__hello", arguments={"n": 1})
        reply = await call.reply()
        yes = {"action": "accept", "content": {"decision": "once", "arguments": '{"n": 2}'}}
        call = client.retry_later(call, reply, {reply.key: yes})
        reply = await call.reply()
        for key in context.store.items("passages"):
            await context.store.delete("passages", key)
        again = await client.retry(call, reply, {reply.key: named("Ann")})
        assert '"n": 1' in again.asks["approval"]["params"]["message"]
    assert sent(there) == [{"n": 2}]


async def test_calls_that_cannot_be_told_apart_are_not_let_pass() -> None:
    context = ApprovalRig()
    context.book.let_pass("here", None, TTL)
    context.book.let_pass("here", None, TTL)
    assert context.book.approval_pass("here") is not None and not context.book.approval_pass("here").is_vague  # type: ignore[union-attr]
    context.book.let_pass("here", b"{}", TTL)
    assert context.book.approval_pass("here").is_vague  # type: ignore[union-attr]
    await settle()


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "who": {"type": "string"}}}


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ('{"n": "two"}', "/n"),
        ("{", "it is not valid JSON"),
        ("[1]", "it is not a JSON object"),
        ('{"n": 1, "n": 2}', "a duplicate member"),
        ("", "the text is empty"),
        (" \n", "the text is empty"),
        ({"n": 3}, "not a text"),
        (5, "not a text"),
        (0, "not a text"),
        (False, "not a text"),
        ([], "not a text"),
        ({}, "not a text"),
    ],
)
@REVISIONS
async def test_what_a_person_writes_is_held_against_the_schema_and_asked_again(
    revision: str, written: Any, problem: str
) -> None:
    there, asked = LegacyServer({"echo": echo}), list[Any]()
    there.offer("tools", {"name": "echo", "inputSchema": SCHEMA})

    def answer(params: Any) -> Any:
        asked.append(params)
        given = written if len(asked) == 1 else '{"n": 2}'
        return {"action": "accept", "content": {"decision": "once", "arguments": given}}

    async with ApprovalRig().gateway(there=there) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {"elicitation/create": answer}, name="there__echo", arguments={})
        assert json.loads(reply.text) == {"n": 2}
    assert sent(there) == [{"n": 2}]
    assert problem in asked[1]["message"].split("\n")[0]


@REVISIONS
async def test_a_person_cannot_change_what_an_overlay_fixes(revision: str) -> None:
    overlay = Overlay(parameters={"who": Parameter(fixed="ann"), "n": Parameter(name="count")})
    there, asked = LegacyServer({"echo": echo}), list[Any]()
    there.settings["tools"] = {"echo": overlay}
    there.offer("tools", {"name": "echo", "inputSchema": SCHEMA})
    answers = [{"n": 1, "who": "bob"}, {"n": 1}, {"n": 2, "who": "ann"}]

    def answer(params: Any) -> Any:
        asked.append(params)
        return {"action": "accept", "content": {"decision": "once", "arguments": json.dumps(answers[len(asked) - 1])}}

    async with ApprovalRig().gateway(there=there) as rig:
        client = await rig.client(revision)
        reply = await client.converse(
            "tools/call", {"elicitation/create": answer}, name="there__echo", arguments={"count": 1}
        )
        assert json.loads(reply.text) == {"n": 2, "who": "ann"}
    assert ["cannot be given by the caller" in each["message"] for each in asked] == [False, True, True]


# What cannot ask.


@REVISIONS
async def test_a_subscription_that_would_ask_is_refused(revision: str) -> None:
    async def said(scene: Scene) -> str:
        return "done"

    context, there = ApprovalRig("client", "operator"), LegacyServer({}, {}, {"mem://a": said}, tells=True)
    async with context.gateway(there=there) as rig:
        client = await rig.client(revision)
        if revision == MODERN:
            assert "resourceSubscriptions" not in (await client.listen("there+mem://a")).honoured
        else:
            reply = await client.request("resources/subscribe", uri="there+mem://a")
            assert code(reply) == "APPROVAL_REQUIRED"
        assert context.book.requests() == [] and there.watched == []


@REVISIONS
async def test_a_completion_asks_nobody(revision: str) -> None:
    async def said(scene: Scene) -> str:
        return "done"

    context = ApprovalRig("client", "operator")
    there = LegacyServer({}, {"echo": said}, completes=lambda _params: {"values": ["x"]})
    async with context.gateway(there=there) as rig:
        client = await rig.client(revision)
        params = {"ref": {"type": "ref/prompt", "name": "there__echo"}, "argument": {"name": "a", "value": ""}}
        assert code(await client.request("completion/complete", **params)) == "APPROVAL_REQUIRED"
        assert context.book.requests() == []


# What waits.


async def test_a_call_that_is_given_up_leaves_its_question_and_the_next_one_finds_the_answer() -> None:
    context, there = ApprovalRig("operator"), LegacyServer({"echo": echo})
    async with context.gateway(there=there) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="there__echo")
        request = await context.request()
        await call.gone()
        await rig.is_quiet()
        await context.book.allow(request, "once", TTL)
        assert (await client.call("there__echo")).result
    assert len(there.calls) == 1


async def test_so_many_calls_of_one_principal_wait_and_no_more() -> None:
    context, there = ApprovalRig("operator", wait=0.0), LegacyServer({"echo": echo})
    async with context.gateway(there=there) as rig:
        ann, bob = rig.modern(), rig.modern("bob")
        for number in range(MOST_UNDECIDED + 1):
            reply = await ann.call("there__echo", arguments={"n": number})
        assert "too many" in reply.error["message"] and code(reply) == "APPROVAL_REQUIRED"
        assert len(context.book.requests()) == MOST_UNDECIDED
        assert "approval" in (await bob.call("there__echo")).error["data"]
    assert there.calls == []


async def test_nothing_is_made_to_be_shown_of_calls_that_may_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[int]()
    plain = safe_text.plain
    monkeypatch.setattr(safe_text, "plain", lambda text, *how: shown.append(len(text)) or plain(text, *how))
    context, there = ApprovalRig("operator", wait=0.0), LegacyServer({"echo": echo})
    async with context.gateway(there=there) as rig:
        ann = rig.modern()
        asked = (ann.call("there__echo", arguments={"text": "*" * 50_000, "n": n}) for n in range(3 * MOST_UNDECIDED))
        replies = await asyncio.gather(*asked)
    assert sum("too many" in reply.error["message"] for reply in replies) == 2 * MOST_UNDECIDED
    assert sum(size > 1000 for size in shown) == MOST_UNDECIDED


async def test_what_is_too_long_for_a_form_is_not_looked_at_to_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[int]()
    plain = safe_text.plain
    monkeypatch.setattr(safe_text, "plain", lambda text, *how: shown.append(len(text)) or plain(text, *how))
    async with ApprovalRig().gateway(there=LegacyServer({"echo": echo})) as rig:
        client = await rig.legacy()
        reply = await client.converse("tools/call", decide("once"), name="there__echo", arguments={"a": "*" * 50_000})
    assert code(reply) == "APPROVAL_REQUIRED" and max(shown, default=0) < 1000


@pytest.mark.parametrize("by", ["client", "operator"])
async def test_where_nothing_can_be_kept_nothing_is_let_through_by_an_operator(by: str) -> None:
    context, there = ApprovalRig(by, wait=0.0), LegacyServer({"echo": echo})
    async with context.gateway(there=there) as rig:
        await context.store.close()
        client = await rig.legacy()
        reply = await client.converse("tools/call", decide("always"), name="there__echo")
        if by == "operator":
            assert code(reply) == "APPROVAL_REQUIRED" and there.calls == []
        else:
            assert reply.result  # this once


async def test_a_grant_is_not_made_shorter() -> None:
    context = ApprovalRig()
    place = Place("ann", "there", "", "tools", "echo")
    await context.book.grant(place, "always", "operator")
    await context.book.grant(place, "hour", "client")
    await context.clock.advance(7200)
    assert context.book.is_granted(place, "")


async def test_a_record_that_cannot_be_read_has_not_been_decided() -> None:
    context = ApprovalRig()
    place = Place("ann", "there", "", "tools", "echo")
    await context.book.grant(place, "always", "operator")
    for key in context.store.items("grants"):
        await context.store.put("grants", key, b"\xff")
    assert not context.book.is_granted(place, "") and context.book.grants() == []


async def test_arguments_that_are_too_long_for_anybody_are_refused() -> None:
    context, there = ApprovalRig("operator", wait=0.0), LegacyServer({"echo": echo})
    async with context.gateway(there=there) as rig:
        for size, expected in ((LARGEST - 100, "APPROVAL_REQUIRED"), (LARGEST, "INVALID_ARGS")):
            reply = await rig.modern().call("there__echo", arguments={"text": "é" * (size // 6)})
            assert code(reply) == expected
