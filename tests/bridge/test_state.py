"""`requestState`: it opens one thing, for one client, once; whatever else is tried with it uses nothing up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from peers import (
    LegacyServer,
    ModernClient,
    ModernServer,
    Pending,
    Reply,
    Rig,
    Scene,
    form,
    gateway,
    named,
    text_of,
)
from virtualtime import settle

from toolgate.config import Config, ParkingLimits
from toolgate.core import jsonrpc
from toolgate.core.model import Ask, Asker, Call, Done, Outcome, Required
from toolgate.policy.base import Policy

INVALID = -32602


async def hello(scene: Scene) -> str:
    answer = await scene.ask(form())
    return f"hello {answer['content']['name']}"


async def plain(scene: Scene) -> str:
    return "hello there"


async def two_rounds(scene: Scene) -> str:
    first = await scene.ask(form("First?"))
    second = await scene.ask(form("Second?"))
    return f"{first['content']['name']} {second['content']['name']}"


class Approve(Policy):
    """A policy that asks before anything is called."""

    name = "approve"

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Outcome | Required:
        resumed = call.resumption
        if not resumed:
            method, params = form("Really?")
            return Required((Ask("really", method, jsonrpc.Raw(msgspec.json.encode(params))),))
        if resumed.asker == Asker("policy", "approve") and "really" not in resumed.answers:
            return Done(b'{"content":[{"type":"text","text":"not approved"}]}')
        return call


class Asked:
    """A modern client that has been asked, in the middle of a call of `tools/call there__hello {"a": [1, "x"]}`."""

    def __init__(self, rig: Rig, client: ModernClient, call: Pending, reply: Reply) -> None:
        self.rig = rig
        self.client = client
        self.call = call
        self.reply = reply
        self.there = rig.servers["there"]

    async def retry(self, who: str = "Ann", client: ModernClient | None = None, **changes: Any) -> Reply:
        return await (client or self.client).retry(self.call, self.reply, {self.reply.key: named(who)}, **changes)

    async def still_works(self) -> None:
        assert (await self.retry()).text == "hello Ann"


# Who asks: parked work of a legacy server, a modern server that keeps nothing, or a rule of the gateway's own.
ASKERS = ("legacy server", "modern server", "policy")


@asynccontextmanager
async def asked(asker: str, **more: Any) -> AsyncGenerator[Asked]:
    scripts = {"hello": hello, "other": hello}
    prompts = {"hello": hello}
    if asker == "policy":
        scripts = {"hello": lambda _scene: plain(_scene), "other": lambda _scene: plain(_scene)}
        prompts = scripts
        more["policies"] = [Approve()]
    server: Any = ModernServer if asker == "modern server" else LegacyServer
    there, elsewhere = server(scripts, prompts=prompts), server({"hello": hello})
    async with gateway(there=there, elsewhere=elsewhere, **more) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="there__hello", arguments={"a": [1, "x"], "b": None})
        reply = await call.reply()
        yield Asked(rig, client, call, reply)


def said(asker: str, reply: Reply) -> bool:
    return reply.text == ("hello there" if asker == "policy" else "hello Ann")


# What is refused, and uses nothing up.


@pytest.mark.promise("spec.2026.mrtr.state-request")
@pytest.mark.parametrize("asker", ASKERS)
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"name": "there__other"}, id="another tool"),
        pytest.param({"name": "elsewhere__hello"}, id="another server"),
        pytest.param({"name": "hello"}, id="another name of the same tool"),
        pytest.param({"arguments": {"a": [1, "y"], "b": None}}, id="other arguments"),
        pytest.param({"arguments": {"a": [1, "x"]}}, id="an argument less"),
        pytest.param({"arguments": {"a": [1, "x"], "b": None, "c": 1}}, id="an argument more"),
        pytest.param({"arguments": {"a": [1.0, "x"], "b": None}}, id="a number of another kind"),
        pytest.param({"arguments": None}, id="no arguments"),
        pytest.param({"method": "prompts/get"}, id="another method"),
    ],
)
async def test_a_state_is_refused_with_another_request(asker: str, changes: dict[str, Any]) -> None:
    async with asked(asker) as middle:
        sent = len(middle.there.calls)
        if "method" in changes:
            pending = middle.client.start(
                changes["method"],
                **{key: value for key, value in middle.call.message["params"].items() if key != "_meta"},
                requestState=middle.reply.state,
                inputResponses={middle.reply.key: named("Eve")},
            )
            refused = await pending.reply()
        else:
            refused = await middle.retry("Eve", **changes)
        assert refused.error["code"] == INVALID
        assert refused.status == 400
        assert len(middle.there.calls) == sent
        assert said(asker, await middle.retry())


@pytest.mark.promise("spec.2026.mrtr.state-request")
@pytest.mark.parametrize("asker", ASKERS)
async def test_a_state_is_refused_from_another_principal(asker: str) -> None:
    async with asked(asker) as middle:
        refused = await middle.retry("Eve", client=middle.rig.modern("eve"))
        assert refused.error["code"] == INVALID
        assert said(asker, await middle.retry())


@pytest.mark.promise("spec.2026.mrtr.state-request")
@pytest.mark.parametrize("asker", ASKERS)
@pytest.mark.parametrize("path", ["/mcp/aggregate", "/mcp/servers/elsewhere", "/mcp/servers/there"])
async def test_a_state_is_refused_at_another_path(asker: str, path: str) -> None:
    async with asked(asker) as middle:
        refused = await middle.retry("Eve", client=middle.rig.modern(path=path))
        assert refused.error["code"] == INVALID
        assert said(asker, await middle.retry())


@pytest.mark.promise("spec.2026.mrtr.state-integrity")
@pytest.mark.parametrize("asker", ASKERS)
async def test_a_state_with_any_character_changed_is_refused(asker: str) -> None:
    async with asked(asker) as middle:
        state = middle.reply.state
        for place, character in enumerate(state):
            other = "B" if character != "B" else "C"
            refused = await middle.retry("Eve", requestState=state[:place] + other + state[place + 1 :])
            assert refused.error["code"] == INVALID, place
        assert said(asker, await middle.retry())


@pytest.mark.promise("spec.2026.mrtr.state-integrity")
@pytest.mark.parametrize("asker", ASKERS)
@pytest.mark.parametrize(
    "mangle",
    [
        pytest.param(lambda state: "", id="empty"),
        pytest.param(lambda state: state[:-1], id="shorter"),
        pytest.param(lambda state: state + "A", id="longer"),
        pytest.param(lambda state: state + "=", id="padded"),
        pytest.param(lambda state: state + "\n", id="with a newline"),
        pytest.param(lambda state: " " + state, id="with a space"),
        pytest.param(lambda state: state.upper(), id="in capitals"),
        pytest.param(lambda state: state[3:], id="without its version"),
        pytest.param(lambda state: state.replace("v1.", "v2."), id="of another version"),
        pytest.param(lambda state: "v1.", id="nothing but a version"),
        pytest.param(lambda state: "é" * 50, id="no ASCII"),
        pytest.param(lambda state: state * 2, id="twice"),
        pytest.param(lambda state: "A" * 100_000, id="very long"),
    ],
)
async def test_a_state_that_is_none_of_ours_is_refused(asker: str, mangle: Any) -> None:
    async with asked(asker) as middle:
        refused = await middle.retry("Eve", requestState=mangle(middle.reply.state))
        assert refused.error["code"] == INVALID
        assert said(asker, await middle.retry())


@pytest.mark.parametrize("asker", ASKERS)
@pytest.mark.parametrize("state", [1, True, {}, ["a"]])
async def test_a_state_that_is_no_text_is_refused(asker: str, state: Any) -> None:
    async with asked(asker) as middle:
        assert (await middle.retry("Eve", requestState=state)).error["code"] == INVALID
        assert said(asker, await middle.retry())


@pytest.mark.promise("spec.2026.mrtr.malformed")
@pytest.mark.parametrize("asker", ASKERS)
@pytest.mark.parametrize("answers", ["text", 1, ["a"], None])
async def test_answers_out_of_shape_are_refused_and_use_nothing_up(asker: str, answers: Any) -> None:
    async with asked(asker) as middle:
        params = {key: value for key, value in middle.call.message["params"].items() if key != "_meta"}
        pending = middle.client.start("tools/call", **params, requestState=middle.reply.state, inputResponses=answers)
        assert (await pending.reply()).error["code"] == INVALID
        assert said(asker, await middle.retry())


@pytest.mark.parametrize("asker", ASKERS)
async def test_a_retry_without_its_state_is_a_new_call(asker: str) -> None:
    async with asked(asker) as middle:
        anew = middle.client.start("tools/call", name="there__hello", arguments={"a": [1, "x"], "b": None})
        reply = await anew.reply()
        assert reply.state != middle.reply.state
        assert said(asker, await middle.retry())
        assert said(asker, await middle.client.retry(anew, reply, {reply.key: named("Ann")}))


async def test_answers_to_no_question_are_for_a_modern_server_to_judge_and_no_legacy_one_sees_them() -> None:
    async def plain(scene: Scene) -> str:
        return "done"

    there, old = ModernServer({"t": plain}), LegacyServer({"t": plain})
    async with gateway(there=there, old=old) as rig:
        client = rig.modern()
        for server in ("there", "old"):
            reply = await client.call(f"{server}__t", inputResponses={"name": named("Ann")})
            assert text_of(reply.result) == "done"
    assert there.calls[0]["params"]["inputResponses"] == {"name": named("Ann")}
    assert "inputResponses" not in old.calls[0]["params"]


@pytest.mark.parametrize("asker", ASKERS)
async def test_the_same_arguments_spelled_differently_are_the_same_request(asker: str) -> None:
    async with asked(asker) as middle:
        assert said(asker, await middle.retry(arguments={"b": None, "a": [1, "x"]}))


async def test_a_state_of_one_gateway_is_refused_by_another() -> None:
    async with asked("legacy server") as first, asked("legacy server") as second:
        refused = await second.client.retry(first.call, first.reply, {first.reply.key: named("Eve")})
        assert refused.error["code"] == INVALID
        await first.still_works()
        await second.still_works()


# Time.


@pytest.mark.promise("spec.2026.mrtr.state-expiry")
@pytest.mark.parametrize("asker", ASKERS)
async def test_a_state_is_good_until_its_time_is_over(asker: str) -> None:
    async with asked(asker, parking=ParkingLimits(ttl=100)) as middle:
        await middle.rig.clock.advance(99)
        assert said(asker, await middle.retry())


@pytest.mark.promise("spec.2026.mrtr.state-expiry")
@pytest.mark.parametrize("asker", ASKERS)
async def test_an_expired_state_is_refused(asker: str) -> None:
    async with asked(asker, parking=ParkingLimits(ttl=100)) as middle:
        sent = len(middle.there.calls)
        await middle.rig.clock.advance(101)
        assert (await middle.retry()).error["code"] == INVALID
        assert len(middle.there.calls) == sent


# Once.


async def test_the_same_retry_twice_at_once_joins() -> None:
    reached = asyncio.Event()
    go_on = asyncio.Event()

    async def slow(scene: Scene) -> str:
        answer = await scene.ask(form())
        reached.set()
        await go_on.wait()
        return f"hello {answer['content']['name']}"

    old = LegacyServer({"hello": slow})
    async with gateway(old=old) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__hello")
        reply = await call.reply()
        answers = {reply.key: named("Ann")}
        retries = [client.retry_later(call, reply, answers) for _ in range(3)]
        await reached.wait()
        retries.append(client.retry_later(call, reply, answers))
        await settle()
        go_on.set()
        replies = [await retry.reply() for retry in retries]
        assert [reply.text for reply in replies] == ["hello Ann"] * 4
        assert len({reply.message["id"] for reply in replies}) == 4
        assert len(old.answers) == 1
        assert len(old.calls) == 1
        late = await client.retry(call, reply, answers)
        assert late.error["code"] == INVALID


async def test_the_same_retry_twice_at_once_joins_in_a_further_round_too() -> None:
    old = LegacyServer({"two": two_rounds})
    async with gateway(old=old) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__two")
        first = await call.reply()
        retries = [client.retry_later(call, first, {first.key: named("A")}) for _ in "ab"]
        one, other = [await retry.reply() for retry in retries]
        assert one.result == other.result
        assert (await client.retry(retries[1], other, {other.key: named("B")})).text == "A B"
        assert len(old.answers) == 2


async def test_one_of_two_that_joined_may_go_away_without_harm() -> None:
    reached = asyncio.Event()
    go_on = asyncio.Event()

    async def slow(scene: Scene) -> str:
        await scene.ask(form())
        reached.set()
        await go_on.wait()
        return "done"

    old = LegacyServer({"slow": slow})
    async with gateway(old=old) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__slow")
        reply = await call.reply()
        stays, leaves = (client.retry_later(call, reply, {reply.key: named("Ann")}) for _ in "ab")
        await reached.wait()
        await rig.clock.advance(0.1)
        await leaves.gone()
        assert old.cancelled == []
        go_on.set()
        assert (await stays.reply()).text == "done"


async def test_when_all_that_joined_have_gone_the_server_is_told() -> None:
    reached = asyncio.Event()

    async def slow(scene: Scene) -> str:
        await scene.ask(form())
        reached.set()
        await asyncio.Event().wait()
        return "never"

    old = LegacyServer({"slow": slow})
    async with gateway(old=old) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__slow")
        reply = await call.reply()
        retries = [client.retry_later(call, reply, {reply.key: named("Ann")}) for _ in "ab"]
        await reached.wait()
        await rig.clock.advance(0.1)
        for retry in retries:
            await retry.gone()
        assert old.cancelled == [old.calls[0]["id"]]


@pytest.mark.promise("spec.2026.mrtr.state-once")
async def test_after_the_reply_a_retry_is_refused() -> None:
    async with asked("legacy server") as middle:
        assert (await middle.retry()).text == "hello Ann"
        for _ in "ab":
            refused = await middle.retry()
            assert refused.error["code"] == INVALID
        assert len(middle.there.calls) == 1
        assert len(middle.there.answers) == 1


@pytest.mark.promise("spec.2026.mrtr.state-once")
async def test_the_state_of_an_earlier_round_is_refused_and_uses_nothing_up() -> None:
    async with gateway(old=LegacyServer({"two": two_rounds})) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__two")
        first = await call.reply()
        second_call = client.retry_later(call, first, {first.key: named("A")})
        second = await second_call.reply()
        refused = await client.retry(call, first, {first.key: named("X"), second.key: named("X")})
        assert refused.error["code"] == INVALID
        assert (await client.retry(second_call, second, {second.key: named("B")})).text == "A B"


async def test_after_a_call_failed_its_state_is_refused() -> None:
    async def fails(scene: Scene) -> str:
        await scene.ask(form())
        scene.crash("gone")
        return "never"

    async with gateway(old=LegacyServer({"fails": fails})) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__fails")
        reply = await call.reply()
        failed = await client.retry(call, reply, {reply.key: named("Ann")})
        assert failed.error["data"]["code"] == "SERVER_FAILED"
        assert failed.error["data"]["outcome"] == "sent_unknown"
        assert (await client.retry(call, reply, {reply.key: named("Ann")})).error["code"] == INVALID


@pytest.mark.promise("spec.2026.mrtr.state-once")
async def test_one_approval_is_good_for_one_call() -> None:
    async with asked("policy") as middle:
        assert (await middle.retry()).text == "hello there"
        again = await middle.retry()
        assert again.error["code"] == INVALID
        assert len(middle.there.calls) == 1


async def test_one_approval_sent_twice_at_once_is_one_call() -> None:
    async with asked("policy") as middle:
        answers = {middle.reply.key: named("Ann")}
        retries = [middle.client.retry_later(middle.call, middle.reply, answers) for _ in "ab"]
        assert [(await retry.reply()).text for retry in retries] == ["hello there"] * 2
        assert len(middle.there.calls) == 1


async def test_an_approval_is_spent_even_if_its_call_failed() -> None:
    async def fails(scene: Scene) -> str:
        scene.crash("gone")
        await asyncio.Event().wait()
        return "never"

    old = LegacyServer({"fails": fails})
    async with gateway(policies=[Approve()], old=old) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__fails")
        reply = await call.reply()
        answers = {reply.key: named("Ann")}
        assert (await client.retry(call, reply, answers)).error["data"]["code"] == "SERVER_FAILED"
        assert (await client.retry(call, reply, answers)).error["code"] == INVALID
        assert len(old.calls) == 1


@pytest.mark.promise("spec.2026.mrtr.state-once")
async def test_a_round_of_a_modern_server_is_good_for_once_too() -> None:
    async with asked("modern server") as middle:
        assert (await middle.retry()).text == "hello Ann"
        assert (await middle.retry()).error["code"] == -32602
        assert len(middle.there.calls) == 2


@pytest.mark.parametrize("changes", [{"args": ("other",)}, {"type": "http", "url": "http://127.0.0.1:9/mcp"}])
async def test_what_a_user_answers_to_a_server_goes_to_no_other_that_has_taken_its_name(
    changes: dict[str, Any],
) -> None:
    def edited(config: Config) -> Config:
        return msgspec.structs.replace(config, servers=(msgspec.structs.replace(config.servers[0], **changes),))

    there = ModernServer({"t": hello})
    async with gateway(there=there, edited=edited) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="there__t")
        reply = await call.reply()
        await rig.app.reload()
        error = (await client.retry(call, reply, {reply.key: named("Ann")})).error
        assert (error["data"]["code"], error["data"]["outcome"]) == ("INVALID_STATE", "not_sent")
        assert len(there.requests("tools/call")) == 1


async def test_what_a_user_answers_still_goes_to_a_server_of_which_another_key_was_edited() -> None:
    def edited(config: Config) -> Config:
        return msgspec.structs.replace(config, servers=(msgspec.structs.replace(config.servers[0], env={"A": "b"}),))

    there = ModernServer({"t": hello})
    async with gateway(there=there, edited=edited) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="there__t")
        reply = await call.reply()
        await rig.app.reload()
        assert (await client.retry(call, reply, {reply.key: named("Ann")})).text == "hello Ann"
