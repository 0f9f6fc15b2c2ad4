"""Sessions: how they begin, whose they are, and how they end."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest
from inmemory import LATEST, THE_SOCKET, Exchange, Scripted, Visitor, gateway, said, tools
from virtualtime import settle

from toolgate.config import Config, Sessions
from toolgate.core.model import Principal
from toolgate.frontends import session, sessions
from toolgate.frontends.guards import Headers

HALF_AN_HOUR = 30 * 60
PAGE = "http://localhost:5173"


async def identify(headers: Headers, address: str, path: str) -> Principal:
    return Principal(headers.get("authorization", "nobody"), address)


async def stream(visitor: Visitor) -> Exchange:
    exchange = visitor.begin("GET", headers={"accept": "text/event-stream"})
    await settle()
    assert exchange.so_far.is_stream
    return exchange


# How they begin.


@pytest.mark.promise("001.endpoint.session", "001.lifecycle.persist", "spec.legacy.session.id")
async def test_the_first_request_makes_a_session_and_its_id_comes_back() -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        first = await visitor.ask("tools/list")
        id = first.headers["mcp-session-id"]
        assert id.isascii() and id.isprintable() and len(id) >= 32
        second = await visitor.ask("ping")
        assert second.headers["mcp-session-id"] == id
        assert len(app.sessions.all()) == 1


@pytest.mark.promise("001.endpoint.session")
async def test_requests_without_a_session_id_are_sessions_of_their_own() -> None:
    async with gateway() as app:
        ids = {(await Visitor(app).ask("ping")).headers["mcp-session-id"] for _ in range(3)}
        assert len(ids) == len(app.sessions.all()) == 3


@pytest.mark.promise("001.lifecycle.initialize", "spec.legacy.http.responses")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_initialize_agrees_on_a_version_that_both_know(version: str) -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        result = (await visitor.initialize(version)).result
        assert result["protocolVersion"] == version
        assert result["serverInfo"]["name"] == "toolgate"
        accepted = await visitor.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (accepted.status, accepted.body) == (202, b"")
        visitor.headers["mcp-protocol-version"] = version
        assert (await visitor.ask("tools/list")).result["tools"]


@pytest.mark.promise("spec.legacy.initialize.unknown-version")
@pytest.mark.parametrize("version", ["2099-01-01", "2024-10-07", "2026-07-28"])
async def test_a_well_formed_version_that_we_do_not_know_is_answered_with_our_latest(version: str) -> None:
    async with gateway() as app:
        assert (await Visitor(app).initialize(version)).result["protocolVersion"] == LATEST


@pytest.mark.promise("003.errors.served", "spec.legacy.initialize.unknown-version")
@pytest.mark.parametrize("version", ["1.0", "", "2025-1-1", "latest"])
async def test_a_malformed_version_is_an_error(version: str) -> None:
    async with gateway() as app:
        response = await Visitor(app).initialize(version)
        assert (response.status, response.error["code"]) == (200, -32602)
        assert response.error["data"]["requested"] == version


@pytest.mark.promise("b.000.initialized")
@pytest.mark.parametrize("notification", ["notifications/initialized", "initialized"])
async def test_both_names_of_the_initialized_notification_are_accepted(notification: str) -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        await visitor.initialize()
        assert (await visitor.post({"jsonrpc": "2.0", "method": notification})).status == 202


async def test_initialize_again_makes_a_new_session() -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        first, second = await visitor.initialize(), await visitor.initialize()
        assert first.headers["mcp-session-id"] != second.headers["mcp-session-id"]


@pytest.mark.promise("spec.legacy.version-header.unknown")
async def test_a_version_header_that_is_no_revision_is_refused() -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        await visitor.initialize()
        for version in ("1999-01-01", "", "nonsense"):
            response = await visitor.post(visitor.request("ping"), headers={"mcp-protocol-version": version})
            assert response.status == 400


@pytest.mark.promise("b.rulings.08-strict", "spec.legacy.session.404")
async def test_a_transparent_path_wants_the_handshake() -> None:
    async with gateway() as app:
        visitor = Visitor(app, "/mcp/servers/greeter")
        response = await visitor.ask("tools/list")
        assert response.status == 400 and "initialize" in response.error["message"]
        assert response.last["id"] == 1
        assert not app.sessions.all()
        await visitor.initialize()
        assert [tool["name"] for tool in (await visitor.ask("tools/list")).result["tools"]] == ["greet", "count"]


async def test_no_session_is_implicit_where_that_is_switched_off() -> None:
    async with gateway(config=Config(sessions=Sessions(implicit=False))) as app:
        assert (await Visitor(app).ask("ping")).status == 400


# Whose they are.


@pytest.mark.promise("spec.legacy.session.404")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_session_that_there_is_not_is_not_found(method: str) -> None:
    async with gateway() as app:
        visitor = Visitor(app, mcp_session_id="bogus")
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}' if method == "POST" else b""
        response = await visitor.send(method, body)
        assert response.status == 404 and "Session not found" in response.error["message"]
        assert response.last["id"] == (1 if method == "POST" else None)
        assert not app.sessions.all()


async def test_what_is_no_request_has_no_id_in_the_refusal_of_its_session() -> None:
    async with gateway() as app:
        visitor = Visitor(app, mcp_session_id="bogus")
        response = await visitor.send("POST", b'{"jsonrpc":"2.0","id":7,"result":{}}')
        assert response.status == 404 and response.last["id"] is None


@pytest.mark.promise("spec.legacy.session.owner")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_another_principals_session_does_not_exist(method: str) -> None:
    async with gateway(identify=identify) as app:
        ada = Visitor(app, authorization="ada")
        await ada.initialize()
        eve = Visitor(app, authorization="eve", mcp_session_id=ada.headers["mcp-session-id"])
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}' if method == "POST" else b""
        assert (await eve.send(method, body)).status == 404
        assert (await ada.ask("ping")).result == {}


async def test_a_session_belongs_to_the_path_that_it_began_on() -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        await visitor.initialize()
        visitor.path = "/mcp/servers/greeter"
        assert (await visitor.ask("tools/list")).status == 404


@pytest.mark.promise("spec.legacy.session.404")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_without_a_session_id_there_is_nothing_to_listen_to_or_to_end(method: str) -> None:
    async with gateway() as app:
        assert (await Visitor(app).send(method)).status == 400


# What is in flight.


@pytest.mark.promise("spec.legacy.ids.in-flight")
async def test_an_id_that_is_in_flight_is_not_taken_twice() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        call = b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"docs__t"}}'
        first = visitor.begin("POST", call)
        await settle()
        again = await visitor.send("POST", b'{"jsonrpc":"2.0","id":"\\u0061","method":"ping"}')
        assert again.error["code"] == -32600 and "already in use" in again.error["message"]
        script.answer_last(said("done"))
        assert (await first.response()).result == said("done")


@pytest.mark.promise("spec.legacy.cancel")
async def test_a_request_that_its_client_cancels_ends_here_and_at_the_server() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        running = visitor.begin("POST", b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"docs__t"}}')
        await settle()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert (await visitor.post(cancel)).status == 202
        await running.response()
        await settle()
        assert script.requests[-1]["method"] == "notifications/cancelled"


@pytest.mark.promise("spec.legacy.cancel.invalid")
@pytest.mark.parametrize("params", [None, {}, {"requestId": None}, {"requestId": []}, {"requestId": 99}])
async def test_a_cancellation_of_nothing_harms_nobody(params: object) -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        await visitor.initialize()
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled"} | ({"params": params} if params else {})
        assert (await visitor.post(message)).status == 202
        assert (await visitor.ask("ping")).result == {}


@pytest.mark.promise("spec.legacy.http.responses")
async def test_answers_that_nobody_asked_for_are_accepted_and_forgotten() -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        await visitor.initialize()
        for id in (1, "a", None, [], 1.5):
            assert (await visitor.post({"jsonrpc": "2.0", "id": id, "result": {}})).status == 202
        assert (await visitor.ask("ping")).result == {}


# What a session is told.


@pytest.mark.promise("001.tools-list.cached", "spec.legacy.http.get")
async def test_a_stream_is_told_that_a_list_has_changed() -> None:
    script = Scripted(tools_list=tools("t"))
    async with gateway(scripts={"docs": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask("tools/list")
        listening = await stream(visitor)
        script.change(tools("u"))
        await asyncio.sleep(1)
        assert [note["method"] for note in listening.so_far.messages] == ["notifications/tools/list_changed"]
        assert [tool["name"] for tool in (await visitor.ask("tools/list")).result["tools"]] == ["docs__u"]
        await listening.gone()


@pytest.mark.promise("spec.legacy.http.one-stream")
async def test_a_message_goes_out_on_one_stream_only() -> None:
    script = Scripted(tools_list=tools("t"))
    async with gateway(scripts={"docs": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask("tools/list")
        streams = [await stream(visitor), await stream(visitor)]
        script.tell("notifications/resources/list_changed")
        await asyncio.sleep(1)
        assert sorted(len(each.so_far.messages) for each in streams) == [0, 1]
        for each in streams:
            await each.gone()


async def test_a_stream_of_a_servers_own_path_is_not_told_of_other_servers() -> None:
    docs, other = Scripted(tools_list=tools("t")), Scripted(tools_list=tools("t"))
    async with gateway(scripts={"docs": docs, "other": other}) as app:
        await Visitor(app).ask("tools/list")
        visitor = Visitor(app, "/mcp/servers/docs")
        await visitor.initialize()
        listening = await stream(visitor)
        other.change(tools("u"))
        await asyncio.sleep(1)
        assert listening.so_far.messages == []
        docs.change(tools("u"))
        await asyncio.sleep(1)
        assert len(listening.so_far.messages) == 1
        await listening.gone()


@pytest.mark.promise("spec.legacy.http.get")
async def test_a_stream_must_be_accepted() -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        await visitor.initialize()
        assert (await visitor.send("GET", headers={"accept": "application/json"})).status == 406


# How they end.


@pytest.mark.promise("001.lifecycle.close", "spec.legacy.session.404")
async def test_delete_ends_a_session_and_its_stream() -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        await visitor.initialize()
        listening = await stream(visitor)
        assert (await visitor.send("DELETE")).status == 204
        await listening.response()
        assert (await visitor.post(visitor.request("ping"))).status == 404
        assert (await visitor.send("DELETE")).status == 404


@pytest.mark.promise("001.lifecycle.close")
async def test_delete_ends_what_is_in_flight() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        running = visitor.begin("POST", b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"docs__t"}}')
        await settle()
        await visitor.send("DELETE")
        await running.response()
        await settle()
        assert script.requests[-1]["method"] == "notifications/cancelled"


@pytest.mark.promise("001.lifecycle.idle")
async def test_a_session_ends_when_it_was_idle_for_half_an_hour() -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await app.clock.sleep(HALF_AN_HOUR - 60)
        assert (await visitor.ask("ping")).status == 200
        await app.clock.sleep(HALF_AN_HOUR - 60)
        assert (await visitor.ask("ping")).status == 200
        await app.clock.sleep(HALF_AN_HOUR + 60)
        assert (await visitor.post(visitor.request("ping"))).status == 404


async def test_a_session_that_is_used_for_a_long_call_or_a_stream_is_not_idle() -> None:
    script = Scripted(tools_list=tools("t"))
    async with gateway(scripts={"docs": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        listening = await stream(visitor)
        await app.clock.sleep(3 * HALF_AN_HOUR)
        assert (await visitor.ask("ping")).status == 200
        await listening.gone()
        await app.clock.sleep(HALF_AN_HOUR - 60)
        assert (await visitor.ask("ping")).status == 200


async def test_of_sessions_that_end_together_few_do_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    ended = session.Session.close

    async def close(self: session.Session) -> None:
        begun.append(self.id)
        await ended(self)

    monkeypatch.setattr(session.Session, "close", close)
    monkeypatch.setattr(sessions, "AT_ONCE", 2)
    async with gateway() as app:
        for _ in range(5):
            await Visitor(app).initialize()
        app.sessions.end_unknown(lambda principal: False)
        assert len(app.sessions) == 0  # none of them is there any more
        rounds: list[int] = []
        while len(begun) < 5:
            await asyncio.sleep(0)
            rounds.append(len(begun))
        assert max(after - before for before, after in zip([0, *rounds], rounds, strict=False)) <= 2


async def test_sessions_that_were_made_by_the_way_take_a_tenth_of_the_room() -> None:
    async with gateway(config=Config(sessions=Sessions(max=30))) as app:
        used = Visitor(app)
        await used.ask("ping")
        await used.ask("ping")
        for _ in range(10):
            await Visitor(app).ask("ping")
        assert len(app.sessions) == 4
        assert (await used.ask("ping")).status == 200


async def test_beyond_the_cap_the_least_recently_used_session_goes() -> None:
    async with gateway(config=Config(sessions=Sessions(max=3))) as app:
        visitors = [Visitor(app) for _ in range(4)]
        for visitor in visitors[:3]:
            await visitor.initialize()
        await visitors[0].ask("ping")
        await visitors[3].initialize()
        answers = [(await visitor.post(visitor.request("ping"))).status for visitor in visitors]
        assert answers == [200, 404, 200, 200]


@pytest.mark.promise("spec.2026.logging.level", "spec.legacy.logging")
async def test_a_log_level_is_set_for_a_session() -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        await visitor.initialize()
        assert (await visitor.ask("logging/setLevel", level="error")).result == {}
        for level in ("loud", 7):
            response = await visitor.post(visitor.request("logging/setLevel", level=level))
            assert response.error["code"] == -32602


async def test_who_opens_session_after_session_loses_its_own_and_nobody_elses() -> None:
    async with gateway(config=Config(sessions=Sessions(max=10)), identify=identify) as app:
        ann = Visitor(app, authorization="ann")
        await ann.initialize()
        for _ in range(30):
            await Visitor(app, authorization="eve").initialize()
        assert len(app.sessions) == 10
        assert (await ann.ask("ping")).result == {}


async def test_who_keeps_session_after_session_at_work_loses_its_own_and_nobody_elses_idle_one() -> None:
    async with gateway(config=Config(sessions=Sessions(max=10)), identify=identify) as app:
        ann, bob = Visitor(app, authorization="ann"), Visitor(app, authorization="bob")
        await ann.initialize()
        listening = []
        for _ in range(12):
            eve = Visitor(app, authorization="eve")
            await eve.initialize()
            listening.append(await stream(eve))
        await bob.initialize()
        assert len(app.sessions) == 10
        for visitor in (ann, bob):
            assert (await visitor.ask("ping")).result == {}
        assert [each.work.done() for each in listening] == [True] * 4 + [False] * 8
        for each in listening[4:]:
            await each.gone()


@pytest.mark.parametrize("origin", [None, PAGE])
async def test_nobody_on_an_open_gateway_gets_the_rights_of_a_session_of_the_operator(origin: str | None) -> None:
    async with gateway() as app:
        first, second = Visitor(app), Visitor(app)
        first.client = THE_SOCKET
        id = (await first.ask("ping")).headers["mcp-session-id"]
        shown = {"mcp-session-id": id, "origin": origin}
        assert (await second.post(second.request("ping"), headers=shown)).status == 404
        assert (await first.ask("ping")).result == {}


async def test_an_idle_session_keeps_less_than_two_kilobytes() -> None:
    async with gateway() as app:

        async def open_sessions(count: int) -> None:
            for _ in range(count):
                visitor = Visitor(app)
                await visitor.initialize()
                await visitor.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
                await visitor.ask("ping")

        await open_sessions(20)  # whatever the first of them load stays out of it
        gc.collect()
        tracemalloc.start()
        try:
            await open_sessions(200)
            gc.collect()
            kept = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/toolgate/*")])
        finally:
            tracemalloc.stop()
        assert sum(each.size for each in kept.statistics("filename")) < 200 * 2048
