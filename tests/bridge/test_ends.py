"""How calls end: with their client, their server, their time, or because there are too many; and nothing is left.

That nothing is left (parked, in flight, asked, running) is checked at the end of every conversation by `gateway`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgi import HttpRequest
from peers import (
    LATEST,
    MODERN,
    LegacyClient,
    LegacyServer,
    ModernServer,
    RpcError,
    Scene,
    eventually,
    form,
    gateway,
    named,
)
from virtualtime import settle

from toolgate.config import ParkingLimits
from toolgate.frontends import responses

INVALID = -32602


async def hello(scene: Scene) -> str:
    answer = await scene.ask(form())
    return f"hello {answer['content']['name']}" if answer["action"] == "accept" else answer["action"]


async def never(scene: Scene) -> str:
    await asyncio.Event().wait()
    return "never"


async def hello_then_never(scene: Scene) -> str:
    await scene.ask(form())
    return await never(scene)


# A modern client goes.


@pytest.mark.promise("spec.2026.cancel.own-id", "spec.2026.sse.disconnect")
@pytest.mark.parametrize("stdio", [False, True], ids=["http", "stdio"])
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_a_modern_client_that_goes_in_the_middle_of_a_call_cancels_it(server: Any, stdio: bool) -> None:
    there = server({"never": never})
    async with gateway(there=there) as rig:
        client = rig.modern(stdio=stdio)
        call = client.start("tools/call", name="there__never")
        sent = await there.got("tools/call")
        await rig.clock.advance(0.1)
        await call.gone()
        assert there.cancelled == [sent["id"]]
        assert rig.in_flight == 0


@pytest.mark.parametrize("stdio", [False, True], ids=["http", "stdio"])
async def test_a_modern_client_that_goes_in_the_middle_of_a_later_round_cancels_the_call(stdio: bool) -> None:
    old = LegacyServer({"slow": hello_then_never})
    async with gateway(old=old) as rig:
        client = rig.modern(stdio=stdio)
        call = client.start("tools/call", name="old__slow")
        reply = await call.reply()
        retry = client.retry_later(call, reply, {reply.key: named("Ann")})
        await eventually(lambda: old.answers)
        await rig.clock.advance(0.1)
        await retry.gone()
        assert old.cancelled == [old.calls[0]["id"]]
        assert rig.in_flight == 0
        assert (await client.retry(call, reply, {reply.key: named("Ann")})).error["code"] == INVALID


@pytest.mark.parametrize("moment", [0, 0.01, 0.02, 0.04])
async def test_a_modern_client_that_goes_while_its_questions_are_gathered_cancels_the_call(moment: float) -> None:
    old = LegacyServer({"hello": hello})
    async with gateway(old=old) as rig:
        client = rig.modern()
        await client.request("tools/list")
        call = client.start("tools/call", name="old__hello")
        await old.got("tools/call")
        await rig.clock.advance(moment)
        call.leave()
        await rig.clock.advance(0.2)
        assert old.cancelled == [old.calls[0]["id"]]
        assert len(rig.app.parking) == 0


@pytest.mark.parametrize("moment", [0.035, 0.04, 0.06, 0.075])
async def test_a_modern_client_that_goes_while_later_questions_are_gathered_cancels_the_call(moment: float) -> None:
    async def hello_later(scene: Scene) -> str:
        await asyncio.sleep(0.03)
        return await hello(scene)

    old = LegacyServer({"hello": hello_later})
    async with gateway(old=old) as rig:
        client = rig.modern()
        await client.request("tools/list")
        call = client.start("tools/call", name="old__hello")
        await settle()
        await rig.clock.advance(moment)
        call.leave()
        await rig.clock.advance(0.2)
        assert old.cancelled == [old.calls[0]["id"]]
        assert len(rig.app.parking) == 0


async def test_a_modern_client_that_goes_before_anything_was_sent_sends_nothing() -> None:
    old = LegacyServer({"never": never}, concurrency=1)
    async with gateway(old=old) as rig:
        client = rig.modern()
        first = client.start("tools/call", name="old__never")
        await old.got("tools/call")
        second = client.start("tools/call", name="old__never")
        await rig.clock.advance(0.1)
        await second.gone()
        await first.gone()
        assert len(old.calls) == 1
        assert len(old.cancelled) == 1


async def test_a_modern_client_that_goes_is_missed_also_while_progress_is_reported_all_the_time() -> None:
    async def busy(scene: Scene) -> str:
        for number in range(1000):
            scene.progress(number)
            await asyncio.sleep(0.01)
        return "done"

    old = LegacyServer({"busy": busy})
    async with gateway(old=old) as rig:
        call = rig.modern().start("tools/call", name="old__busy", meta={"progressToken": 1})
        await eventually(lambda: call.messages)
        await call.gone()
        assert old.cancelled == [old.calls[0]["id"]]


async def test_a_question_that_cannot_be_delivered_is_not_parked() -> None:
    old = LegacyServer({"hello": hello})
    async with gateway(old=old) as rig:
        client = rig.modern()
        await client.request("tools/list")
        call = client.start("tools/call", name="old__hello")
        assert call.http
        await old.got("tools/call")
        call.http.breaks = True
        call.leave()
        await rig.clock.advance(0.2)
        assert old.cancelled == [old.calls[0]["id"]]
        assert call.http.task.done()
        if not call.http.task.cancelled():
            call.http.task.exception()


async def test_notes_of_a_parked_call_wait_for_the_retry() -> None:
    go_on = asyncio.Event()

    async def busy(scene: Scene) -> str:
        asked = asyncio.ensure_future(scene.ask(form()))
        await go_on.wait()
        for number in range(3):
            scene.progress(number)
            scene.log("info", f"line {number}")
        return (await asked)["content"]["name"]

    async with gateway(old=LegacyServer({"busy": busy})) as rig:
        client = rig.modern()
        meta = {"progressToken": "first", "io.modelcontextprotocol/logLevel": "debug"}
        call = client.start("tools/call", name="old__busy", meta=meta)
        reply = await call.reply()
        go_on.set()
        await rig.clock.advance(1)
        retry = await client.retry(call, reply, {reply.key: named("Ann")}, _meta={**meta, "progressToken": "second"})
        assert retry.text == "Ann"
        assert retry.notes("notifications/progress") == [{"progressToken": "second", "progress": 2}]
        assert [note["data"] for note in retry.notes("notifications/message")] == ["line 0", "line 1", "line 2"]


# A legacy client goes.


@pytest.mark.promise("spec.legacy.http.disconnect")
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_a_call_goes_on_when_its_legacy_client_has_gone(server: Any) -> None:
    go_on = asyncio.Event()

    async def slow(scene: Scene) -> str:
        await go_on.wait()
        return "done"

    there = server({"slow": slow})
    async with gateway(there=there) as rig:
        client = await rig.legacy()
        call = client.start("tools/call", name="there__slow")
        await there.got("tools/call")
        call.leave()
        await rig.clock.advance(1)
        assert rig.in_flight == 1
        go_on.set()
        await settle()
        assert rig.in_flight == 0
        assert there.cancelled == []


@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_a_call_whose_legacy_client_has_gone_ends_with_its_timeout(server: Any) -> None:
    there = server({"never": never}, timeout=30)
    async with gateway(there=there) as rig:
        client = await rig.legacy()
        call = client.start("tools/call", name="there__never")
        await there.got("tools/call")
        call.leave()
        await rig.clock.advance(29)
        assert rig.in_flight == 1
        await rig.clock.advance(2)
        assert rig.in_flight == 0
        assert there.cancelled == [there.calls[0]["id"]]


@pytest.mark.promise("spec.legacy.elicitation.decline")
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_a_question_to_a_legacy_client_that_has_gone_is_answered_by_an_error_in_time(server: Any) -> None:
    there = server({"hello": hello})
    async with gateway(there=there, parking=ParkingLimits(ttl=100)) as rig:
        client = await rig.legacy()
        call = client.start("tools/call", name="there__hello")
        question = await client.question()
        call.leave()
        await rig.clock.advance(101)
        assert rig.in_flight == 0
        assert client.withdrawn == []  # nobody was there to hear it
        assert question
        if server is LegacyServer:
            assert "did not answer within 100 s" in there.answers[0]["error"]["message"]
        else:
            assert len(there.calls) == 1, "nothing is sent again"


@pytest.mark.promise("spec.legacy.elicitation.decline")
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_that_a_legacy_client_does_not_answer_is_an_error_after_a_while(server: Any) -> None:
    there = server({"hello": hello}, timeout=10)
    async with gateway(there=there, parking=ParkingLimits(ttl=100)) as rig:
        client = await rig.legacy()
        call = client.start("tools/call", name="there__hello")
        question = await client.question()
        await rig.clock.advance(99)
        assert not call.is_answered
        await rig.clock.advance(2)
        assert "did not answer within 100 s" in (await call.reply()).error["message"]
        assert client.withdrawn == [question["id"]]


@pytest.mark.promise("spec.legacy.cancel")
@pytest.mark.parametrize("stdio", [False, True], ids=["http", "stdio"])
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_a_legacy_client_cancels_by_saying_so(server: Any, stdio: bool) -> None:
    there = server({"never": never})
    async with gateway(there=there) as rig:
        client = await rig.legacy(stdio=stdio)
        call = client.start("tools/call", name="there__never", id="abc")
        sent = await there.got("tools/call")
        client.cancel(call)
        await settle()
        assert there.cancelled == [sent["id"]]
        assert rig.in_flight == 0


@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_a_legacy_client_that_cancels_while_it_is_asked_is_asked_no_more(server: Any) -> None:
    there = server({"hello": hello})
    async with gateway(there=there) as rig:
        client = await rig.legacy()
        call = client.start("tools/call", name="there__hello")
        question = await client.question()
        client.cancel(call)
        await settle()
        client.answer(question, named("Too late"))
        await settle()
        assert client.withdrawn == [question["id"]]
        if server is LegacyServer:
            assert there.cancelled == [there.calls[0]["id"]]
        else:
            assert len(there.calls) == 1


@pytest.mark.promise("spec.legacy.cancel.invalid")
async def test_nobody_cancels_the_call_of_another_session() -> None:
    go_on = asyncio.Event()

    async def slow(scene: Scene) -> str:
        await go_on.wait()
        return "done"

    old = LegacyServer({"slow": slow})
    async with gateway(old=old) as rig:
        ann, eve = await rig.legacy(principal="ann"), await rig.legacy(principal="eve")
        call = ann.start("tools/call", name="old__slow", id=7)
        await old.got("tools/call")
        eve.cancel(call)
        await settle()
        assert old.cancelled == []
        go_on.set()
        assert (await call.reply()).text == "done"


# A server goes.


@pytest.mark.promise("b.lifecycle.crash", "b.rulings.04-outcome")
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, "2026-07-28"])
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_a_server_that_crashes_in_the_middle_of_a_call_fails_it_and_is_there_again(
    server: Any, revision: str
) -> None:
    async def crashes(scene: Scene) -> str:
        scene.crash("segmentation fault")
        return await never(scene)

    there = server({"crashes": crashes, "hello": hello})
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        error = (await client.call("there__crashes")).error
        assert error["code"] == -32603
        assert error["data"]["code"] == "SERVER_FAILED"
        assert error["data"]["outcome"] == "sent_unknown"
        reply = await client.converse("tools/call", {"elicitation/create": named("Ann")}, name="there__hello")
        assert reply.text == "hello Ann"
        assert len(there.connections) == 2


async def test_a_server_that_crashes_while_its_call_is_parked_fails_the_retry() -> None:
    old = LegacyServer({"hello": hello})
    async with gateway(old=old) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__hello")
        reply = await call.reply()
        old.connections[0].hang_up("segmentation fault")
        await rig.clock.advance(1)
        error = (await client.retry(call, reply, {reply.key: named("Ann")})).error
        assert error["data"]["code"] == "SERVER_FAILED"
        assert error["data"]["outcome"] == "sent_unknown"
        assert len(old.calls) == 1


async def test_a_server_that_crashes_while_a_legacy_client_is_asked_takes_the_question_back() -> None:
    old = LegacyServer({"hello": hello})
    async with gateway(old=old) as rig:
        client = await rig.legacy()
        call = client.start("tools/call", name="old__hello")
        question = await client.question()
        old.connections[0].hang_up("segmentation fault")
        assert (await call.reply()).error["data"]["code"] == "SERVER_FAILED"
        assert client.withdrawn == [question["id"]]


# Time.


@pytest.mark.promise("001.tools-call.timeout", "b.errors.failed")
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, "2026-07-28"])
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_a_call_that_takes_too_long_is_cancelled_and_says_so(server: Any, revision: str) -> None:
    there = server({"never": never}, timeout=30)
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        call = client.start("tools/call", name="there__never")
        sent = await there.got("tools/call")
        await rig.clock.advance(31)
        error = (await call.reply()).error
        assert error["data"]["code"] == "TIMEOUT"
        assert error["data"]["outcome"] == "sent_unknown"
        assert there.cancelled == [sent["id"]]


@pytest.mark.parametrize("revision", [LATEST, "2026-07-28"])
async def test_the_time_of_a_call_does_not_run_while_its_client_is_asked(revision: str) -> None:
    async def quick(scene: Scene) -> str:
        first = await scene.ask(form())
        await asyncio.sleep(20)
        second = await scene.ask(form())
        return f"{first['content']['name']} {second['content']['name']}"

    async def after_a_while(_params: Any) -> Any:
        await asyncio.sleep(0.5)
        return named("Ann")

    async with gateway(old=LegacyServer({"quick": quick}, timeout=30), parking=ParkingLimits(ttl=100)) as rig:
        client = await rig.client(revision)
        if revision == LATEST:
            call = client.start("tools/call", name="old__quick")
            await rig.clock.advance(50)
            client.answer(client.asked[0], named("A"))  # type: ignore[union-attr]
            await rig.clock.advance(90)
            client.answer(client.asked[1], named("B"))  # type: ignore[union-attr]
            assert (await call.reply()).text == "A B"
        else:
            call = client.start("tools/call", name="old__quick")
            first = await call.reply()
            await rig.clock.advance(50)
            call = client.retry_later(call, first, {first.key: named("A")})  # type: ignore[union-attr]
            await rig.clock.advance(70)
            second = await call.reply()
            reply = await client.retry(call, second, {second.key: named("B")})  # type: ignore[union-attr]
            assert reply.text == "A B"


async def test_the_time_of_a_call_goes_on_after_its_question_was_answered() -> None:
    old = LegacyServer({"slow": hello_then_never}, timeout=30)
    async with gateway(old=old) as rig:
        client = await rig.legacy()
        call = client.start("tools/call", name="old__slow")
        await rig.clock.advance(100)
        client.answer(client.asked[0], named("Ann"))
        await rig.clock.advance(31)
        assert (await call.reply()).error["data"]["code"] == "TIMEOUT"


@pytest.mark.promise("spec.2026.mrtr.no-retry")
async def test_a_parked_call_whose_client_never_comes_back_is_cancelled() -> None:
    old = LegacyServer({"hello": hello})
    async with gateway(old=old, parking=ParkingLimits(ttl=100)) as rig:
        await rig.modern().call("old__hello")
        assert len(rig.app.parking) == 1
        await rig.clock.advance(99)
        assert (len(rig.app.parking), rig.in_flight, old.cancelled) == (1, 1, [])
        await rig.clock.advance(2)
        assert (len(rig.app.parking), rig.in_flight) == (0, 0)
        assert old.cancelled == [old.calls[0]["id"]]


async def test_each_round_has_its_own_time() -> None:
    async def two(scene: Scene) -> str:
        await scene.ask(form("First?"))
        await scene.ask(form("Second?"))
        return "done"

    old = LegacyServer({"two": two})
    async with gateway(old=old, parking=ParkingLimits(ttl=100)) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__two")
        first = await call.reply()
        await rig.clock.advance(90)
        call = client.retry_later(call, first, {first.key: named("A")})
        second = await call.reply()
        await rig.clock.advance(90)
        assert (await client.retry(call, second, {second.key: named("B")})).text == "done"


# Too many.


async def test_beyond_the_cap_of_a_principal_its_least_recently_used_call_goes() -> None:
    old = LegacyServer({"hello": hello}, scope="principal")
    async with gateway(old=old, parking=ParkingLimits(per_principal=2)) as rig:
        ann, bob = rig.modern("ann"), rig.modern("bob")
        await bob.call("old__hello")
        calls, replies = [], []
        for number in range(2):
            calls.append(ann.start("tools/call", name="old__hello", arguments={"n": number}))
            replies.append(await calls[-1].reply())
        again = ann.retry_later(calls[0], replies[0], {})  # unanswered: asked again, and so used last
        replies[0] = await again.reply()
        await ann.call("old__hello")
        assert len(rig.app.parking) == 3
        assert len(old.cancelled) == 1
        gone = await ann.retry(calls[1], replies[1], {replies[1].key: named("Ann")})
        assert gone.error["code"] == INVALID
        assert (await ann.retry(again, replies[0], {replies[0].key: named("Ann")})).text == "hello Ann"
        rig.app.parking.close()


async def test_beyond_the_cap_of_all_the_least_recently_used_call_goes() -> None:
    old = LegacyServer({"hello": hello}, scope="principal")
    async with gateway(old=old, parking=ParkingLimits(max=2)) as rig:
        clients = [rig.modern(name) for name in ("ann", "bob", "cid")]
        calls = []
        for client in clients:
            call = client.start("tools/call", name="old__hello")
            calls.append((client, call, await call.reply()))
        assert len(rig.app.parking) == 2
        results = [await client.retry(call, reply, {reply.key: named("X")}) for client, call, reply in calls]
        assert ["error" in reply.message for reply in results] == [True, False, False]


async def test_a_call_that_goes_because_there_are_too_many_is_answered_if_it_runs() -> None:
    old = LegacyServer({"slow": hello_then_never, "hello": hello})
    async with gateway(old=old, parking=ParkingLimits(per_principal=1)) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="old__slow")
        reply = await call.reply()
        running = client.retry_later(call, reply, {reply.key: named("Ann")})
        await eventually(lambda: old.answers)
        await client.call("old__hello")
        assert (await running.reply()).error["code"] == -32603
        assert old.cancelled == [old.calls[0]["id"]]
        rig.app.parking.close()


async def test_two_hundred_clients_that_come_and_go_leave_nothing() -> None:
    old, new = LegacyServer({"slow": hello_then_never}), ModernServer({"slow": hello_then_never})
    async with gateway(old=old, new=new) as rig:
        calls = []
        for number in range(100):
            client = rig.modern(f"visitor-{number % 7}")
            calls += [client.start("tools/call", name=f"{id}__slow") for id in ("old", "new")]
            if number % 3 == 0:
                await rig.clock.advance(0.02)
        for call in calls:
            call.leave()
        await rig.clock.advance(400)
        assert rig.in_flight == 0


async def test_a_session_that_is_deleted_ends_its_calls() -> None:
    old = LegacyServer({"hello": hello, "never": never})
    async with gateway(old=old) as rig:
        client = await rig.legacy()
        asked = client.start("tools/call", name="old__hello")
        await client.question()
        running = client.start("tools/call", name="old__never")
        await old.got("tools/call", 2)
        headers = {"mcp-session-id": client.session, "x-test-principal": "ann"}
        deleted = await HttpRequest(rig.app.http, "DELETE", "/mcp", headers.items()).answered()
        assert deleted.status in (200, 204)
        await settle()
        assert sorted(old.cancelled) == sorted(call["id"] for call in old.calls)
        assert rig.in_flight == 0
        for call in (asked, running):
            assert "error" in (await call.reply()).message


# Once, and no more.


@pytest.mark.parametrize("kind", [LegacyServer, ModernServer])
async def test_a_tool_whose_own_error_has_the_code_of_a_header_mismatch_runs_once(kind: Any) -> None:
    ran: list[str] = []

    async def fail(scene: Scene) -> str:
        ran.append(scene.target)
        raise RpcError(-32020, "An error of mine")

    async with gateway(there=kind({"fail": fail})) as rig:
        assert (await rig.modern().call("fail")).error["message"] == "An error of mine"
        assert (await (await rig.legacy()).call("fail")).error["message"] == "An error of mine"
        assert ran == ["fail", "fail"]


# Too many.


@pytest.mark.parametrize(("revision", "stdio"), [(LATEST, False), (LATEST, True), (MODERN, True)])
async def test_a_client_has_no_more_requests_in_flight_than_it_may(
    revision: str, stdio: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "MOST_IN_FLIGHT", 3)
    async with gateway(there=ModernServer({"never": never})) as rig:
        client = await rig.client(revision, stdio=stdio)
        first = [client.start("tools/call", name="never") for _ in range(3)]
        await rig.clock.advance(0.1)
        refused = await client.call("never")
        assert refused.error["code"] == -32600
        assert "more than 3 requests" in refused.error["message"]
        for pending in first:
            if isinstance(client, LegacyClient):
                client.cancel(pending)
            else:
                await pending.gone()
