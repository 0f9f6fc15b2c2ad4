"""Whose question is it? No question reaches anybody but the principal and session whose call caused it.

The servers here are shared children on a pipe, which does not say which call a question belongs to.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgi import HttpRequest
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
    sampled,
    sampling,
    words_of,
)
from virtualtime import settle

from toolgate.core.fault import Fault
from toolgate.upstreams.mcp import questions, upstream
from toolgate.upstreams.mcp.requests import GIVEN_UP


async def secret(scene: Scene) -> str:
    """Asks its caller something that nobody else may see."""
    answer = await scene.ask(form(f"the secret of {scene.arguments['who']}?"))
    return f"{answer['action']} {answer.get('content', {}).get('name', '')}".strip()


class Meeting:
    """Ann and Bob call the same child. `go` lets the one who asks go on, `end` the other one."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.end = asyncio.Event()
        self.old = LegacyServer({"secret": secret, "patient": self.patient, "plain": self.plain})

    async def patient(self, scene: Scene) -> str:
        await self.go.wait()
        return await secret(scene)

    async def plain(self, scene: Scene) -> str:
        await self.end.wait()
        return "plain"


REVISIONS = ["2025-06-18", LATEST, MODERN]


async def visitors(rig: Rig, ann_speaks: str, bob_speaks: str) -> tuple[Any, Any]:
    return (
        await rig.client(ann_speaks, principal="ann"),
        await rig.client(bob_speaks, principal="bob"),
    )


@pytest.mark.promise("spec.2026.elicitation.user", "b.rulings.15-never-made-up")
@pytest.mark.parametrize("ann_speaks", REVISIONS)
@pytest.mark.parametrize("bob_speaks", REVISIONS)
async def test_a_question_while_two_principals_have_calls_in_flight_is_answered_by_an_error_and_put_to_neither(
    ann_speaks: str, bob_speaks: str
) -> None:
    meeting = Meeting()
    async with gateway(old=meeting.old) as rig:
        ann, bob = await visitors(rig, ann_speaks, bob_speaks)
        asking = ann.start("tools/call", name="old__patient", arguments={"who": "ann"})
        other = bob.start("tools/call", name="old__plain")
        await meeting.old.got("tools/call", 2)
        meeting.go.set()
        assert "unclear which of them" in (await asking.reply()).error["message"]
        assert meeting.old.answers[0]["error"]["code"] == -32603
        meeting.end.set()
        assert (await other.reply()).text == "plain"
        for call in (asking, other):
            assert not any(message.get("method") == "elicitation/create" for message in call.messages)


@pytest.mark.promise("spec.2026.elicitation.user")
@pytest.mark.parametrize("end", ["answered", "cancelled", "cancelled and answered"])
async def test_a_question_that_a_call_leaves_behind_when_it_ends_is_not_put_to_the_client_of_another(end: str) -> None:
    """That a call is over does not show that a question was not its own: its server may have given it up unsaid."""
    go = asyncio.Event()

    async def leaves_one_behind(scene: Scene) -> str:
        _id, answer = scene.connection.put(form("the secret of ann?"))  # type: ignore[attr-defined]
        answer.add_done_callback(lambda answer: answer.exception())  # which nobody waits for
        await go.wait()
        return "never mind"

    meeting = Meeting()
    old = LegacyServer({"hasty": leaves_one_behind, "plain": meeting.plain}, ignores_cancellation=True)
    async with gateway(old=old) as rig:
        ann, bob = await rig.legacy(principal="ann"), await rig.legacy(principal="bob")
        bobs = bob.start("tools/call", name="old__plain")
        await old.got("tools/call")
        anns = ann.start("tools/call", name="old__hasty")
        await old.got("tools/call", 2)
        if "cancelled" in end:
            ann.cancel(anns)
            await old.got("notifications/cancelled")
        if "answered" in end:
            go.set()
        await rig.clock.advance(GIVEN_UP + 1)
        assert (ann.asked, bob.asked) == ([], [])
        assert len(old.answers) == 1
        go.set()
        meeting.end.set()
        assert (await bobs.reply()).text == "plain"


@pytest.mark.parametrize("ann_speaks", REVISIONS)
@pytest.mark.parametrize("bob_speaks", REVISIONS)
async def test_afterwards_calls_run_one_at_a_time_and_questions_reach_their_owner(
    ann_speaks: str, bob_speaks: str
) -> None:
    meeting = Meeting()
    async with gateway(old=meeting.old) as rig:
        ann, bob = await visitors(rig, ann_speaks, bob_speaks)
        asking = ann.start("tools/call", name="old__patient", arguments={"who": "ann"})
        other = bob.start("tools/call", name="old__plain")
        await meeting.old.got("tools/call", 2)
        meeting.go.set()
        await asking.reply()
        meeting.end.set()
        await other.reply()

        most = 0

        def answer(name: str) -> Any:
            def asked(params: Any) -> Any:
                nonlocal most
                most = max(most, rig.in_flight)
                assert words_of(params) == f"the secret of {name}?"
                return named(name.upper())

            return {"elicitation/create": asked}

        talks = [
            client.converse("tools/call", answer(who), name="old__secret", arguments={"who": who})
            for client, who in ((ann, "ann"), (bob, "bob"))
        ]
        replies = await asyncio.gather(*talks)
        assert [reply.text for reply in replies] == ["accept ANN", "accept BOB"]
        assert most == 1


async def test_two_sessions_of_one_principal_are_not_mixed_up_either() -> None:
    meeting = Meeting()
    async with gateway(old=meeting.old) as rig:
        one, other = await rig.legacy(principal="ann"), await rig.legacy(principal="ann")
        asking = one.start("tools/call", name="old__patient", arguments={"who": "ann"})
        waiting = other.start("tools/call", name="old__plain")
        await meeting.old.got("tools/call", 2)
        meeting.go.set()
        assert "unclear which of them" in (await asking.reply()).error["message"]
        meeting.end.set()
        assert (await waiting.reply()).text == "plain"
        assert (one.asked, other.asked) == ([], [])


@pytest.mark.promise("spec.2026.elicitation.user")
async def test_a_parked_question_is_not_seen_by_whoever_calls_meanwhile() -> None:
    meeting = Meeting()
    meeting.end.set()
    async with gateway(old=meeting.old) as rig:
        ann, bob = rig.modern("ann"), await rig.legacy(principal="bob")
        call = ann.start("tools/call", name="old__secret", arguments={"who": "ann"})
        asked = await call.reply()
        assert (await bob.call("old__plain")).text == "plain"
        assert bob.asked == []
        assert (await ann.retry(call, asked, {asked.key: named("A")})).text == "accept A"


async def test_a_late_question_of_a_cancelled_call_does_not_reach_the_next_caller() -> None:
    """The cancellation and the question cross each other on the pipe."""
    old = LegacyServer({"late": never_mind, "plain": waits}, ignores_cancellation=True)
    async with gateway(old=old) as rig:
        ann, bob = await rig.legacy(principal="ann"), await rig.legacy(principal="bob")
        call = ann.start("tools/call", name="old__late", arguments={"who": "ann"})
        await old.got("tools/call")
        ann.cancel(call)
        await settle()
        other = bob.start("tools/call", name="old__plain")
        await rig.clock.advance(0.2)  # now the server asks, for a call that was cancelled
        assert (await other.reply()).text == "plain"  # so it was not of this one
        await settle()
        assert "has ended" in old.answers[0]["error"]["message"]
        assert bob.asked == []


@pytest.mark.promise("spec.2026.elicitation.user", "b.rulings.15-never-made-up")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_when_the_server_has_answered_a_cancelled_call_questions_reach_others_at_once(revision: str) -> None:
    """Most servers in Python answer it, by an error."""

    async def stops(scene: Scene) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise RpcError(0, "Request cancelled") from None
        return "late"

    old = LegacyServer({"stops": stops, "secret": secret})
    async with gateway(old=old) as rig:
        ann = await rig.legacy(principal="ann")
        call = ann.start("tools/call", name="old__stops")
        await old.got("tools/call")
        ann.cancel(call)
        await old.got("notifications/cancelled")
        await settle()
        began = rig.clock.now()
        bob = await rig.client(revision, principal="bob")
        answers = {"elicitation/create": named("B")}
        reply = await bob.converse("tools/call", answers, name="old__secret", arguments={"who": "bob"})
        assert reply.text == "accept B"
        assert rig.clock.now() - began < 1
        assert ann.asked == []


@pytest.mark.promise("spec.2026.elicitation.user", "b.rulings.15-never-made-up")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_where_a_cancelled_call_is_not_answered_a_question_is_refused_once_and_never_again(revision: str) -> None:
    """Servers on the TypeScript SDK say nothing, and may go on. The next call waits until it cannot be uncertain."""

    end = asyncio.Event()

    async def forever(scene: Scene) -> str:
        await end.wait()
        return "late"

    old = LegacyServer({"forever": forever, "secret": secret}, ignores_cancellation=True)
    async with gateway(old=old) as rig:
        ann, bob = await rig.legacy(principal="ann"), await rig.client(revision, principal="bob")

        async def cancelled() -> None:
            count = len(old.requests("tools/call"))
            call = ann.start("tools/call", name="old__forever")
            await old.got("tools/call", count + 1)
            count = len(old.requests("notifications/cancelled"))
            ann.cancel(call)
            await old.got("notifications/cancelled", count + 1)

        await cancelled()
        call = bob.start("tools/call", name="old__secret", arguments={"who": "bob"})
        await rig.clock.advance(questions.HELD + 1)
        assert "unclear which of them" in (await call.reply()).error["message"]

        await cancelled()
        call = bob.start("tools/call", name="old__secret", arguments={"who": "bob"})
        await rig.clock.advance(GIVEN_UP + 1)
        if revision == MODERN:
            asked = await call.reply()
            assert (await bob.retry(call, asked, {asked.key: named("B")})).text == "accept B"
        else:
            bob.answer(await bob.question(), named("B"))
            assert (await call.reply()).text == "accept B"
        assert ann.asked == []
        end.set()


async def never_mind(scene: Scene) -> str:
    await asyncio.sleep(0.1)
    return await secret(scene)


async def waits(scene: Scene) -> str:
    await asyncio.sleep(0.5)
    return "plain"


async def test_a_late_question_of_a_call_that_took_too_long_does_not_reach_the_next_caller() -> None:
    async def too_long(scene: Scene) -> str:
        await asyncio.sleep(10.1)
        return await secret(scene)

    old = LegacyServer({"long": too_long, "plain": waits}, ignores_cancellation=True, timeout=10)
    async with gateway(old=old) as rig:
        ann, bob = await rig.legacy(principal="ann"), await rig.legacy(principal="bob")
        call = ann.start("tools/call", name="old__long", arguments={"who": "ann"})
        await rig.clock.advance(10.01)
        assert "error" in (await call.reply()).message
        other = bob.start("tools/call", name="old__plain")
        assert (await other.reply()).text == "plain"
        assert bob.asked == []


async def test_a_question_outside_any_call_of_a_shared_server_is_answered_by_an_error() -> None:
    async with gateway(old=LegacyServer({"plain": waits})) as rig:
        client = await rig.legacy()
        await client.call("old__plain")
        (connection,) = rig.servers["old"].connections
        for question in (form(), sampling()):
            with pytest.raises(RpcError, match="no client can be asked"):
                await connection.ask(question)
        assert client.asked == []


async def test_after_a_question_outside_any_call_calls_still_run_at_once() -> None:
    async with gateway(old=LegacyServer({"plain": waits})) as rig:
        client = await rig.legacy()
        await client.call("old__plain")
        with pytest.raises(RpcError):
            await rig.servers["old"].connections[0].ask(form())
        calls = [client.start("tools/call", name="old__plain") for _ in range(8)]
        await eventually(lambda: rig.in_flight == 8)
        for call in calls:
            await call.reply()


@pytest.mark.parametrize("revision", REVISIONS)
async def test_parallel_calls_of_one_client_all_get_their_questions_answered(revision: str) -> None:
    async with gateway(old=LegacyServer({"secret": secret, "plain": waits})) as rig:
        client = await rig.client(revision)
        answers = {"elicitation/create": lambda params: named(words_of(params).split()[3].rstrip("?").upper())}
        if revision != MODERN:
            client.answers = answers  # type: ignore[union-attr]
        talks = [
            client.converse("tools/call", answers, name="old__secret", arguments={"who": f"p{number}"})
            for number in range(5)
        ]
        replies = await asyncio.gather(*talks, client.converse("tools/call", answers, name="old__plain"))
        assert [reply.text for reply in replies] == [f"accept P{number}" for number in range(5)] + ["plain"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_question_outlives_a_parallel_call_of_its_client_that_it_was_shown_with(revision: str) -> None:
    """A pipe does not say which of one client's calls a question is of; the call that ends may be the other one."""
    go_on = asyncio.Event()

    async def quick(scene: Scene) -> str:
        await go_on.wait()
        return "quick"

    old = LegacyServer({"secret": secret_soon, "quick": quick})
    async with gateway(old=old) as rig:
        client = await rig.client(revision)
        asking = client.start("tools/call", name="old__secret", arguments={"who": "ann"})
        other = client.start("tools/call", name="old__quick")
        if revision == MODERN:
            asked = await other.reply()  # with the newest call
            go_on.set()
            assert (await client.retry(other, asked, {})).text == "quick"  # type: ignore[union-attr]
            asked = await asking.reply()
            done = await client.retry(asking, asked, {asked.key: named("A")})  # type: ignore[union-attr]
            assert done.text == "accept A"
        else:
            question = await client.question()  # type: ignore[union-attr]
            go_on.set()
            assert (await other.reply()).text == "quick"
            again = await client.question(2)  # type: ignore[union-attr]
            assert again["params"] == question["params"]
            client.answer(again, named("A"))  # type: ignore[union-attr]
            assert (await asking.reply()).text == "accept A"
        assert len(old.answers) == 1


@pytest.mark.promise("spec.2026.elicitation.user")
async def test_a_question_outlives_a_parallel_call_of_its_client_and_never_goes_to_another() -> None:
    go_on = asyncio.Event()

    async def quick(scene: Scene) -> str:
        await go_on.wait()
        return "quick"

    old = LegacyServer({"secret": secret_soon, "quick": quick, "plain": waits})
    async with gateway(old=old) as rig:
        ann, bob = await rig.legacy(principal="ann"), await rig.legacy(principal="bob")
        asking = ann.start("tools/call", name="old__secret", arguments={"who": "ann"})
        quickly = ann.start("tools/call", name="old__quick")
        await ann.question()
        bobs = bob.start("tools/call", name="old__plain")
        await old.got("tools/call", 3)
        go_on.set()
        assert (await quickly.reply()).text == "quick"
        ann.answer(await ann.question(2), named("A"))
        assert (await asking.reply()).text == "accept A"
        assert (await bobs.reply()).text == "plain"
        assert bob.asked == []


async def secret_soon(scene: Scene) -> str:
    await asyncio.sleep(0.05)
    return await secret(scene)


async def test_the_time_of_parallel_calls_of_one_client_does_not_run_while_it_is_asked() -> None:
    """It is uncertain which of them waits for the answer."""
    old = LegacyServer({"secret": secret_soon, "quick": waits}, timeout=30)
    async with gateway(old=old) as rig:
        client = await rig.legacy()
        calls = [client.start("tools/call", name="old__secret", arguments={"who": "ann"}) for _ in range(2)]
        await client.question(2)
        await rig.clock.advance(100)
        for question in client.asked:
            client.answer(question, named("A"))
        assert [(await call.reply()).text for call in calls] == ["accept A"] * 2


# Servers of one's own.


@pytest.mark.promise("b.lifecycle.scopes")
@pytest.mark.parametrize("ann_speaks", REVISIONS)
@pytest.mark.parametrize("bob_speaks", REVISIONS)
async def test_each_principal_has_its_own_child_of_a_server_with_that_scope(ann_speaks: str, bob_speaks: str) -> None:
    old = LegacyServer({"secret": secret_soon}, scope="principal")
    async with gateway(old=old) as rig:
        ann, bob = await visitors(rig, ann_speaks, bob_speaks)
        talks = [
            client.converse(
                "tools/call",
                {"elicitation/create": lambda params, who=who: named(f"{who} hears {words_of(params)}")},
                name="old__secret",
                arguments={"who": who},
            )
            for client, who in ((ann, "ann"), (bob, "bob"))
        ]
        replies = await asyncio.gather(*talks)
        assert [reply.text for reply in replies] == [
            "accept ann hears the secret of ann?",
            "accept bob hears the secret of bob?",
        ]
        assert len(old.connections) == 2


@pytest.mark.promise("b.lifecycle.scopes")
@pytest.mark.parametrize(("server", "children"), [(ModernServer, 1), (LegacyServer, 3)])
async def test_a_child_is_for_all_that_a_client_can_do_where_it_hears_that_with_each_request(
    server: Any, children: int
) -> None:
    there = server({"plain": waits}, scope="session")
    async with gateway(there=there) as rig:
        for capabilities in ({}, {"sampling": {}}, {"roots": {}}, {"sampling": {}}):
            assert (await rig.modern(capabilities=capabilities).call("there__plain")).text == "plain"
        assert len(there.connections) == children


@pytest.mark.promise("b.lifecycle.scopes")
async def test_each_legacy_session_has_its_own_child_which_ends_with_it() -> None:
    old = LegacyServer({"secret": secret}, scope="session")
    async with gateway(old=old) as rig:
        answers = {"elicitation/create": named("A")}
        one, other = await rig.legacy(answers=answers), await rig.legacy(answers=answers)
        for client in (one, other):
            assert (await client.call("old__secret", arguments={"who": "ann"})).text == "accept A"
        assert [connection.is_open for connection in old.connections] == [True, True]
        headers = {"mcp-session-id": one.session, "x-test-principal": "ann"}
        await HttpRequest(rig.app.http, "DELETE", "/mcp", headers.items()).answered()
        await settle()
        assert [connection.is_open for connection in old.connections] == [False, True]
        assert (await other.call("old__secret", arguments={"who": "ann"})).text == "accept A"


async def ended(rig: Rig, client: Any) -> None:
    """A client says that its session is over."""
    headers = {"mcp-session-id": client.session, "x-test-principal": "ann"}
    await HttpRequest(rig.app.http, "DELETE", "/mcp", headers.items()).answered()
    await settle()


@pytest.mark.promise("b.lifecycle.scopes")
async def test_the_end_of_one_session_leaves_what_others_of_its_principal_wait_for() -> None:
    slow, held = LegacyServer({"plain": waits}, scope="principal"), asyncio.Event()

    class Slow(slow.connection):  # type: ignore[name-defined,misc]
        def requested(self, message: Any) -> None:
            if not held.is_set() and message["method"] == "tools/list":
                then = asyncio.ensure_future(held.wait())
                then.add_done_callback(lambda _done: self.requested(message))
            else:
                super().requested(message)

    slow.connection = Slow
    other = LegacyServer({"plain": waits}, {"plain": waits}, {"mem://a": waits}, scope="principal")
    async with gateway(slow=slow, other=other) as rig:
        leaver, stayer = await rig.legacy(), await rig.legacy()
        await leaver.request("prompts/list")
        waiting = [stayer.start("tools/list"), stayer.start("tools/call", name="slow__plain")]
        await slow.got("tools/list")
        await ended(rig, leaver)
        held.set()
        listed, called = [await each.reply() for each in waiting]
        assert [tool["name"] for tool in listed.result["tools"]] == ["slow__plain", "other__plain"]
        assert "_meta" not in listed.result
        assert called.text
        assert len(other.requests("prompts/list")) == 1
        await stayer.request("prompts/list")
        assert len(other.requests("prompts/list")) == 1, "what the principal's connection lists was forgotten"


@pytest.mark.promise("b.lifecycle.scopes")
async def test_the_end_of_a_session_forgets_what_was_its_own() -> None:
    own = LegacyServer({"plain": waits}, scope="session")
    async with gateway(own=own) as rig:
        leaver, stayer = await rig.legacy(), await rig.legacy()
        for client in (leaver, stayer):
            await client.request("tools/list")
        catalog = rig.app.gateway.snapshot.catalog
        assert len({scope for _, scope, _ in catalog._slots}) == 2
        await ended(rig, leaver)
        assert len({scope for _, scope, _ in catalog._slots}) == len(catalog._readers) == 1


async def test_a_child_of_ones_own_is_told_ones_own_capabilities() -> None:
    old = LegacyServer({"plain": waits}, scope="session")
    async with gateway(old=old) as rig:
        for revision, capabilities in (
            ("2025-06-18", {"elicitation": {}}),
            (LATEST, {"sampling": {}}),
            (MODERN, {"roots": {}, "elicitation": {"url": {}}}),
        ):
            client = await rig.client(revision, capabilities=capabilities)
            await client.call("old__plain")
        told = [connection.client_capabilities for connection in old.connections]
        assert [sorted(capabilities) for capabilities in told] == [
            ["elicitation"],
            ["sampling"],
            ["elicitation", "roots"],
        ]
        assert told[2]["elicitation"] == {"url": {}}


async def test_a_shared_child_is_told_what_the_gateway_can_bridge() -> None:
    old = LegacyServer({"plain": waits})
    async with gateway(old=old) as rig:
        await rig.modern(capabilities={}).call("old__plain")
        assert old.connections[0].client_capabilities == {
            "elicitation": {"form": {}, "url": {}},
            "sampling": {"tools": {}},
        }


# Logs, which a pipe does not place either.


@pytest.mark.promise("spec.2026.logging.own")
async def test_a_log_line_while_two_principals_have_calls_in_flight_reaches_neither() -> None:
    go = asyncio.Event()

    async def talks(scene: Scene) -> str:
        await go.wait()
        scene.log("error", f"about {scene.arguments['who']}")
        return "done"

    old = LegacyServer({"talks": talks})
    async with gateway(old=old) as rig:
        ann, bob = await rig.legacy(principal="ann"), rig.modern("bob")
        calls = [
            ann.start("tools/call", name="old__talks", arguments={"who": "ann"}),
            bob.start(
                "tools/call",
                name="old__talks",
                arguments={"who": "bob"},
                meta={"io.modelcontextprotocol/logLevel": "debug"},
            ),
        ]
        await old.got("tools/call", 2)
        go.set()
        for call in calls:
            await call.reply()
        assert not any("about bob" in repr(message) for message in calls[0].messages)
        assert not any("about ann" in repr(message) for message in calls[1].messages)


async def test_two_modern_servers_of_the_same_principals_never_wait_for_each_other() -> None:
    """A modern server's questions come with its answers, so that any number of principals may call at once."""
    new = ModernServer({"secret": secret_soon})
    async with gateway(new=new) as rig:
        talks = [
            rig.modern(who).converse(
                "tools/call",
                {"elicitation/create": lambda params, who=who: named(f"{who} hears {words_of(params)}")},
                name="new__secret",
                arguments={"who": who},
            )
            for who in ("ann", "bob", "cid")
        ]
        replies = await asyncio.gather(*talks)
        assert [reply.text for reply in replies] == [
            f"accept {who} hears the secret of {who}?" for who in ("ann", "bob", "cid")
        ]


@pytest.mark.promise("spec.legacy.sampling")
async def test_sampling_is_placed_by_the_same_rule() -> None:
    go = asyncio.Event()

    async def thinks(scene: Scene) -> str:
        await go.wait()
        try:
            return (await scene.ask(sampling(scene.arguments["who"])))["content"]["text"]
        except RpcError as error:
            return error.message

    old = LegacyServer({"thinks": thinks})
    async with gateway(old=old) as rig:
        answers = {"sampling/createMessage": sampled("thought")}
        ann = await rig.legacy(principal="ann", answers=answers)
        bob = await rig.legacy(principal="bob", answers=answers)
        calls = [
            client.start("tools/call", name="old__thinks", arguments={"who": client.wire.principal})
            for client in (ann, bob)
        ]
        await old.got("tools/call", 2)
        go.set()
        for call in calls:
            await call.reply()
        for client, other in ((ann, "bob"), (bob, "ann")):
            assert not any(other in repr(question) for question in client.asked)


@pytest.mark.promise("b.rulings.16-principal")
async def test_the_clients_of_one_principal_share_its_child_whatever_they_declare() -> None:
    """It is told what the gateway bridges; who did not declare it is not asked, and the server is told which."""
    old = LegacyServer({"secret": secret, "plain": waits}, scope="principal")
    async with gateway(old=old) as rig:
        for revision in REVISIONS:
            for capabilities in ({}, {"sampling": {}}, {"roots": {"listChanged": True}, "elicitation": {}}):
                client = await rig.client(revision, principal="ann", capabilities=capabilities)
                answers = {"elicitation/create": named("A")}
                reply = await client.converse("tools/call", answers, name="old__secret", arguments={"who": "ann"})
                if "elicitation" in capabilities:
                    assert reply.text == "accept A"
                else:
                    assert "did not declare the capability elicitation.form" in reply.error["message"]
        assert len(old.connections) == 1
        assert sorted(old.connections[0].client_capabilities) == ["elicitation", "sampling"]
        await (await rig.legacy(principal="bob")).call("old__plain")
        assert len(old.connections) == 2


@pytest.mark.parametrize("is_lost", [False, True])
async def test_of_clients_with_their_own_child_that_stay_away_only_so_much_is_remembered(
    is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may declare other capabilities with each request, and has another child for each of them."""
    monkeypatch.setattr(upstream, "MOST_AWAY", 2)
    old = LegacyServer({"plain": waits}, scope="session")
    async with gateway(old=old) as rig:
        for names in (["roots"], ["sampling"], ["elicitation"], ["roots", "sampling"], ["roots", "elicitation"]):
            client = rig.modern(capabilities={name: {} for name in names})
            await client.request("tools/list")
            await client.call("old__plain")
            if is_lost:
                old.connections[-1].hang_up()
            await rig.clock.advance(700)
            assert not rig.connections
        catalog, there = rig.app.gateway.snapshot.catalog, rig.app.gateway.snapshot.upstreams["old"]
        assert isinstance(there, upstream.McpUpstream)
        kept = (there._sessions, catalog._slots, catalog._readers)
        assert [len(each) for each in kept] == [3, 3, 3]  # with that of the last, which was open when it was counted


async def test_a_child_of_ones_own_that_does_not_start_is_forgotten() -> None:
    async def fails(*_any: Any) -> Any:
        raise Fault("SERVER_FAILED", "it does not start", reach="not_sent")

    old = LegacyServer({"plain": waits}, scope="principal")
    old.make_link = fails
    async with gateway(old=old) as rig:
        there = rig.app.gateway.snapshot.upstreams["old"]
        assert isinstance(there, upstream.McpUpstream)
        assert "does not start" in (await rig.modern().call("old__plain")).error["message"]
        assert there.status().error == "it does not start"
        assert not (there._sessions or rig.app.gateway.snapshot.catalog._readers)
