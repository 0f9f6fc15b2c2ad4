"""Streams that break and go on: events have ids, and what came after one of them is had again (spec: Resumability)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from inmemory import Exchange, Refusal, Scripted, Visitor, gateway, said, tools
from virtualtime import settle

from toolgate.core import jsonrpc, sse
from toolgate.core.model import Principal
from toolgate.core.sse import Event
from toolgate.frontends import channels
from toolgate.frontends.guards import Headers

Json = dict[str, Any]
LEGACY = ["2025-03-26", "2025-06-18", "2025-11-25"]
FORM: Json = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {}}}


async def identify(headers: Headers, address: str, path: str) -> Principal:
    return Principal(headers.get("authorization", "nobody"), address)


class Talk:
    """A client of one slow tool, `docs__t`, whose server says what the test wants it to say."""

    def __init__(self, visitor: Visitor, script: Scripted) -> None:
        self.visitor = visitor
        self.script = script

    async def call(self, id: int = 7) -> Exchange:
        params = {"name": "docs__t", "_meta": {"progressToken": "p"}}
        message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        running = self.visitor.begin("POST", json.dumps(message).encode())
        await settle()
        return running

    async def progress(self, progress: float, **more: Any) -> None:
        token = self.script.requests[-1]["params"]["_meta"]["progressToken"]
        self.script.tell("notifications/progress", progressToken=token, progress=progress, **more)
        await settle()

    async def answer(self, text: str = "done") -> None:
        self.script.answer_last(said(text))
        await settle()

    async def told(self, *methods: str) -> None:
        """Something is said to the session that belongs to no request."""
        [session] = self.visitor.app.sessions.all()
        for method in methods:
            session.tell(jsonrpc.notification(method))
        await settle()

    async def listen(self, last: str | None = None) -> Exchange:
        exchange = self.visitor.begin("GET", headers={"accept": "text/event-stream", "last-event-id": last})
        await settle()
        return exchange


@asynccontextmanager
async def talking(version: str = "2025-11-25", **capabilities: Any) -> AsyncGenerator[Talk]:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize(version, **capabilities)
        visitor.headers["mcp-protocol-version"] = version
        await visitor.ask("tools/list")
        yield Talk(visitor, script)


def events(exchange: Exchange) -> list[Event]:
    return sse.Reader(10_000_000).feed(exchange.so_far.body)


def said_on(exchange: Exchange) -> list[Any]:
    """What each event says: its progress, its question's method, the text of its answer, nothing."""
    return [what(json.loads(event.data)) if event.data else None for event in events(exchange)]


def what(message: Json) -> Any:
    if message.get("method") == "notifications/progress":
        return message["params"]["progress"]
    return message.get("method") or message["result"]["content"][0]["text"]


@pytest.mark.promise("spec.legacy.http.resumption", "spec.legacy.http.disconnect")
@pytest.mark.parametrize("version", LEGACY)
async def test_a_broken_stream_goes_on_behind_the_last_event_that_was_heard(version: str) -> None:
    async with talking(version) as talk:
        running = await talk.call()
        await talk.progress(1)
        await talk.progress(2)
        *_, one, _two = events(running)
        await running.gone()
        await talk.progress(3)
        resumed = await talk.listen(one.id)
        assert said_on(resumed) == [2, 3]
        await talk.progress(4)
        await talk.answer()
        await resumed.response()
        assert said_on(resumed) == [2, 3, 4, "done"]


@pytest.mark.promise("spec.legacy.http.resumption")
async def test_an_answer_that_came_while_nobody_heard_is_had_again() -> None:
    async with talking() as talk:
        running = await talk.call()
        await talk.progress(1)
        last = events(running)[-1].id
        await running.gone()
        await talk.answer()
        for _ in range(2):
            resumed = await talk.listen(last)
            await resumed.response()
            assert said_on(resumed) == ["done"]


@pytest.mark.promise("spec.legacy.http.resumption")
async def test_a_stream_begins_with_an_event_that_says_nothing_for_those_who_know_that() -> None:
    async with talking() as talk:
        running = await talk.call()
        await talk.progress(1)
        first = events(running)[0]
        assert (first.data, first.retry) == (b"", 1000) and first.id
        await talk.answer()
        await running.response()
    for version in LEGACY[:-1]:
        async with talking(version) as talk:
            running = await talk.call()
            await talk.progress(1)
            assert said_on(running) == [1]
            await talk.answer()


@pytest.mark.promise("spec.legacy.http.resumption")
async def test_a_call_that_takes_more_than_a_moment_can_be_resumed_though_nothing_was_said() -> None:
    async with talking() as talk:
        running = await talk.call()
        await talk.visitor.app.clock.sleep(1)
        [first] = events(running)
        await running.gone()
        await talk.answer()
        resumed = await talk.listen(first.id)
        await resumed.response()
        assert said_on(resumed) == ["done"]


async def test_an_answer_that_comes_at_once_is_a_plain_body_and_nothing_is_kept() -> None:
    async with talking() as talk:
        talk.script.answers["tools/call"] = said("at once")
        assert not (await talk.visitor.ask("tools/call", name="docs__t")).is_stream
        [session] = talk.visitor.app.sessions.all()
        assert session._replay_buffer is None


@pytest.mark.promise("spec.legacy.http.resumption")
async def test_event_ids_are_unique_in_a_session_and_name_their_stream() -> None:
    async with talking() as talk:
        one = await talk.call(1)
        await talk.progress(1)
        two = await talk.call(2)
        await talk.progress(1)
        listening = await talk.listen()
        seen = [event.id for exchange in (one, two, listening) for event in events(exchange)]
        assert len(set(seen)) == len(seen) == 5
        first, second = ({(event.id or "").partition(".")[0] for event in events(each)} for each in (one, two))
        assert len(first) == len(second) == 1 and first != second
        for exchange in (one, two, listening):
            await exchange.gone()


@pytest.mark.promise("spec.legacy.http.resumption", "spec.legacy.http.one-stream")
async def test_a_stream_that_is_taken_over_ends_where_it_was_carried_before() -> None:
    async with talking() as talk:
        running = await talk.call()
        await talk.progress(1)
        resumed = await talk.listen(events(running)[-1].id)
        assert running.has_ended and not resumed.has_ended
        await talk.answer()
        await running.response()
        await resumed.response()
        assert said_on(running) == [None, 1] and said_on(resumed) == ["done"]


@pytest.mark.promise("spec.legacy.http.resumption")
@pytest.mark.parametrize("id", ["c9.1", "c1", "c1.x", "nonsense", "c1.-1", "c1.99999999999999999999", ".", "c1.\xb2"])
async def test_an_event_that_is_not_known_is_refused_with_a_reason(id: str) -> None:
    async with talking() as talk:
        running = await talk.call()
        await talk.progress(1)
        refused = await (await talk.listen(id)).response()
        assert refused.status == 400 and "cannot be resumed" in refused.error["message"]
        await running.gone()


async def test_what_is_kept_is_let_go_after_five_minutes() -> None:
    async with talking() as talk:
        running = await talk.call()
        await talk.progress(1)
        last = events(running)[-1].id
        await running.gone()
        await talk.answer()
        await talk.visitor.app.clock.sleep(channels.KEPT_FOR + 60)
        [session] = talk.visitor.app.sessions.all()
        assert not session.replay_buffer._kept and not session.replay_buffer._channels
        assert (await (await talk.listen(last)).response()).status == 400


async def test_a_call_under_way_can_be_resumed_however_long_nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "KEPT_FOR", 5)
    async with talking() as talk:
        running = await talk.call()
        await talk.progress(1)
        last = events(running)[-1].id
        await running.gone()
        await talk.visitor.app.clock.sleep(45)
        resumed = await talk.listen(last)
        await talk.answer()
        assert said_on(resumed) == ["done"]


async def test_what_one_principal_heard_is_not_for_another() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}, identify=identify) as app:
        ada = Visitor(app, authorization="ada")
        await ada.initialize()
        talk = Talk(ada, script)
        running = await talk.call()
        await talk.progress(1)
        last = events(running)[-1].id
        ada.headers["authorization"] = "eve"
        assert (await (await talk.listen(last)).response()).status == 404
        await running.gone()


@pytest.mark.promise("spec.legacy.http.resumption")
async def test_a_question_waits_for_a_client_that_lost_its_connection() -> None:
    async with talking(elicitation={}) as talk:
        running = await talk.call()
        await talk.progress(1)
        last = events(running)[-1].id
        await running.gone()
        talk.script.say(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": FORM}).encode()
        )
        await talk.visitor.app.clock.sleep(100)
        resumed = await talk.listen(last)
        assert said_on(resumed) == ["elicitation/create"]
        question = json.loads(events(resumed)[-1].data)
        await talk.visitor.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "cancel"}})
        await settle()
        assert talk.script.requests[-1]["result"] == {"action": "cancel"}
        await resumed.gone()


async def test_a_question_that_nobody_came_back_for_is_answered_by_an_error_when_its_time_is_over() -> None:
    async with talking(elicitation={}) as talk:
        running = await talk.call()
        await talk.progress(1)
        await running.gone()
        talk.script.say(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": FORM}).encode()
        )
        await talk.visitor.app.clock.sleep(400)
        (told,) = [answer["error"] for answer in talk.script.requests if "method" not in answer]
        assert "did not answer" in told["message"]


# The stream of what nobody asked for.


CHANGED = "notifications/tools/list_changed"


@pytest.mark.promise("spec.legacy.http.get")
async def test_what_a_session_was_told_before_its_stream_was_there_is_not_lost() -> None:
    async with talking() as talk:
        await talk.told(CHANGED, CHANGED, "notifications/resources/list_changed")
        listening = await talk.listen()
        assert said_on(listening) == [None, CHANGED, "notifications/resources/list_changed"]
        other = await talk.listen()
        assert said_on(other) == [None]
        await listening.gone()
        await other.gone()


@pytest.mark.promise("spec.legacy.http.get")
async def test_a_list_that_changes_right_after_the_handshake_is_told_of() -> None:
    async with talking() as talk:
        talk.script.change(tools("t", "u"))
        await talk.visitor.app.clock.sleep(1)
        listening = await talk.listen()
        assert said_on(listening) == [None, CHANGED]
        await listening.gone()


@pytest.mark.promise("spec.legacy.http.resumption", "spec.legacy.http.get")
async def test_a_sessions_own_stream_is_resumed_too() -> None:
    async with talking() as talk:
        listening = await talk.listen()
        await talk.told(CHANGED)
        primer, changed = events(listening)
        await listening.gone()
        await talk.told("notifications/prompts/list_changed")
        resumed = await talk.listen(changed.id)
        assert said_on(resumed) == ["notifications/prompts/list_changed"]
        again = await talk.listen(primer.id)
        await resumed.response()
        assert said_on(again) == [CHANGED, "notifications/prompts/list_changed"]
        await talk.told(CHANGED)
        assert said_on(again)[2:] == [CHANGED]
        await again.gone()


async def test_a_sessions_own_stream_begins_anew_where_its_events_are_forgotten() -> None:
    async with talking() as talk:
        listening = await talk.listen()
        [primer] = events(listening)
        await listening.gone()
        anew = await talk.listen(primer.id)
        await talk.told(CHANGED)
        assert said_on(anew) == [None, CHANGED]
        await anew.gone()


async def test_a_session_that_only_lost_its_connections_ends_when_it_was_idle() -> None:
    async with talking() as talk:
        await (await talk.listen()).gone()
        await talk.visitor.app.clock.sleep(31 * 60)
        assert not talk.visitor.app.sessions.all()


# Without a version header.


@pytest.mark.promise("spec.legacy.version-header.absent")
async def test_without_a_version_header_a_session_speaks_what_it_agreed_on() -> None:
    async with talking() as talk:
        del talk.visitor.headers["mcp-protocol-version"]
        running = await talk.call()
        await talk.progress(1)
        assert said_on(running) == [None, 1], "only this revision knows the first event"
        await running.gone()
        talk.script.answers["tools/call"] = Refusal(-32000, "no")
        assert (await talk.visitor.post([talk.visitor.request("ping")])).status == 400, "and it has no batches"
