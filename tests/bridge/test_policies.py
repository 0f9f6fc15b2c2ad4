"""Rules that ask: a policy returns `Required`, and clients of both eras are asked as if a server had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from peers import (
    ACCEPTED,
    LATEST,
    MODERN,
    LegacyServer,
    ModernServer,
    Question,
    Scene,
    form,
    gateway,
    named,
    sampling,
    words_of,
)
from virtualtime import settle

from toolgate.core.model import Ask, Asker, Call, Done, Outcome, Required
from toolgate.policy.base import Policy

REVISIONS = ["2025-06-18", LATEST, MODERN]
SERVERS = [LegacyServer, ModernServer]


def ask_of(key: str, question: Question) -> Ask:
    return Ask(key, question[0], Raw(msgspec.json.encode(question[1])))


class Approve(Policy):
    """Asks before a call, and lets it go on if the answer is to accept. Rounds that follow were let through before."""

    def __init__(self, name: str = "approve", state: str | None = None) -> None:
        self.name = name
        self.state = state
        self.asked = 0
        self.seen: list[Call] = []
        self.left: list[str] = []

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Outcome | Required:
        self.seen.append(call)
        resumed = call.resumption
        if was_passed:
            return call
        if not resumed or resumed.asker != Asker("policy", self.name):
            self.asked += 1
            return Required((ask_of("sure", form(f"{self.name}: {call.server} {call.target}?")),), self.state)
        assert resumed.state == self.state
        answer = msgspec.json.decode(resumed.answers["sure"].result) if "sure" in resumed.answers else {}
        if answer.get("action") == "accept":
            return call
        return Done(b'{"content":[{"type":"text","text":"not allowed"}],"isError":true}')

    def after(self, call: Call, outcome: Outcome, ticket: Any) -> Outcome:
        self.left.append(f"{call.server} {call.target}")
        return outcome


class AskAlways(Approve):
    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Outcome | Required:
        return super().before(call, False)


async def plain(scene: Scene) -> str:
    return "done"


async def hello(scene: Scene) -> str:
    return f"hello {(await scene.ask(form('server: your name?')))['content']['name']}"


def consent(*, asked: list[str], answer: Callable[[str], Any] = lambda _message: named("Ann")) -> dict[str, Any]:
    """Answers that note what was asked."""

    def elicited(params: Any) -> Any:
        asked.append(words_of(params))
        return answer(words_of(params))

    return {"elicitation/create": elicited}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("state", [None, "kept by the rule"])
async def test_a_rule_asks_before_a_call_and_then_lets_it_go_on(revision: str, server: Any, state: str | None) -> None:
    there, rule = server({"plain": plain}), Approve(state=state)
    async with gateway(policies=[rule], there=there) as rig:
        client, asked = await rig.client(revision), list[str]()
        reply = await client.converse("tools/call", consent(asked=asked), name="there__plain", arguments={"a": 1})
        assert reply.text == "done"
        assert asked == ["approve: there plain?"]
        (call,) = there.calls
        assert call["params"]["arguments"] == {"a": 1}
        assert rule.left == ["there plain"]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_is_not_approved_never_reaches_the_server(revision: str, server: Any) -> None:
    there = server({"plain": plain})
    async with gateway(policies=[Approve()], there=there) as rig:
        client, asked = await rig.client(revision), list[str]()
        refuse = consent(asked=asked, answer=lambda _message: {"action": "decline"})
        reply = await client.converse("tools/call", refuse, name="there__plain")
        assert reply.text == "not allowed"
        assert there.calls == []


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_rules_ask_in_prompts_and_resources_too(revision: str, method: str) -> None:
    there = LegacyServer({"plain": plain}, {"plain": plain}, {"mem://plain": plain})
    params = {"uri": "there+mem://plain"} if method == "resources/read" else {"name": "there__plain"}
    async with gateway(policies=[Approve()], there=there) as rig:
        client, asked = await rig.client(revision), list[str]()
        assert (await client.converse(method, consent(asked=asked), **params)).text == "done"
        assert len(asked) == 1


@pytest.mark.promise("spec.2026.mrtr.extra")
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_server_that_asks_after_a_rule_gets_its_own_answers_only(revision: str, server: Any) -> None:
    there, rule = server({"hello": hello}), Approve(state="kept by the rule")
    async with gateway(policies=[rule], there=there) as rig:
        client, asked = await rig.client(revision), list[str]()
        reply = await client.converse("tools/call", consent(asked=asked), name="there__hello")
        assert reply.text == "hello Ann"
        assert asked == ["approve: there hello?", "server: your name?"]
        first = there.calls[0]["params"]
        assert "inputResponses" not in first and "requestState" not in first
        assert "kept by the rule" not in repr(there.received)
        assert rule.asked == 1
        assert rule.left == ["there hello"]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_two_rules_ask_one_after_the_other(revision: str, server: Any) -> None:
    there = server({"hello": hello})
    rules = [Approve("outer"), Approve("inner")]
    async with gateway(policies=rules, there=there) as rig:
        client, asked = await rig.client(revision), list[str]()
        reply = await client.converse("tools/call", consent(asked=asked), name="there__hello")
        assert reply.text == "hello Ann"
        assert asked == ["outer: there hello?", "inner: there hello?", "server: your name?"]


async def test_a_rule_that_asks_again_in_every_round_leaves_nothing_parked() -> None:
    """What was parked behind it can never be found again: it is cancelled at once, not only in time."""
    old, rule = LegacyServer({"hello": hello}), AskAlways()
    async with gateway(policies=[rule], old=old) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__hello")
        for _ in range(3):
            asked = await call.reply()
            call = client.retry_later(call, asked, {asked.key: named("Ann")})
            asked = await call.reply()
            assert len(rig.app.parking) in (0, 1)
            call = client.retry_later(call, asked, {asked.key: named("Ann")})
        await call.reply()
        await settle()
        assert len(rig.app.parking) == 0
        assert old.cancelled == [each["id"] for each in old.calls]


@pytest.mark.promise("b.surfaces.true-target")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_rule_sees_the_true_target_whatever_name_was_called(revision: str) -> None:
    there, rule = LegacyServer({"plain": plain}), Approve()
    async with gateway(policies=[rule], there=there) as rig:
        for path, name in (("/mcp", "there__plain"), ("/mcp", "plain"), ("/mcp/servers/there", "plain")):
            client, asked = await rig.client(revision, path=path), list[str]()
            await client.converse("tools/call", consent(asked=asked), name=name)
            assert asked == ["approve: there plain?"]
        assert {(call.server, call.target) for call in rule.seen} == {("there", "plain")}


async def test_a_rule_cannot_ask_a_legacy_client_that_accepts_only_json() -> None:
    there = LegacyServer({"plain": plain})
    async with gateway(policies=[Approve()], there=there) as rig:
        client = await rig.legacy(accept="application/json")
        error = (await client.call("there__plain")).error
        assert error["data"]["requiredCapabilities"] == {"elicitation": {}}
        assert there.calls == []


@pytest.mark.promise("spec.2026.capabilities.required")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_rule_asks_only_clients_that_can_be_asked(revision: str) -> None:
    there = LegacyServer({"plain": plain})
    async with gateway(policies=[Approve()], there=there) as rig:
        client = await rig.client(revision, capabilities={"sampling": {}})
        error = (await client.call("there__plain")).error
        assert error["code"] == (-32021 if revision == MODERN else -32603)
        assert error["data"]["requiredCapabilities"] == {"elicitation": {}}
        assert there.calls == []


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_rule_that_changes_arguments_after_it_asked_is_obeyed(revision: str) -> None:
    class Edit(Approve):
        def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Outcome | Required:
            decision = super().before(call, was_passed)
            if isinstance(decision, Call):
                return msgspec.structs.replace(decision, arguments=Raw(b'{"edited":true}'))
            return decision

    there = LegacyServer({"plain": plain})
    async with gateway(policies=[Edit()], there=there) as rig:
        client, asked = await rig.client(revision), list[str]()
        await client.converse("tools/call", consent(asked=asked), name="there__plain", arguments={"edited": False})
        assert there.calls[0]["params"]["arguments"] == {"edited": True}


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_rule_may_ask_several_things_at_once(revision: str) -> None:
    class Both(Approve):
        def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Outcome | Required:
            if call.resumption:
                assert call.resumption.answers.keys() == {"one", "two"}
                return call
            return Required((ask_of("one", form("One?")), ask_of("two", sampling("Two?"))))

    there = ModernServer({"plain": plain})
    async with gateway(policies=[Both()], there=there) as rig:
        client = await rig.client(revision)
        answers = {
            "elicitation/create": ACCEPTED,
            "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"},
        }
        assert (await client.converse("tools/call", answers, name="there__plain")).text == "done"
