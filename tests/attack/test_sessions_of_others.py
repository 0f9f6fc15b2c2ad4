"""One client provokes HTTP 404s of a tool whose server says so of what there is not. The session that all clients have
at that server stays, and with it what is under way there; one that is really lost is opened anew, as before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attack.test_connections_to_servers import by_header, client_of
from processes.ground import STREAM, Client, failure, gateway, real, settings, shut, until
from processes.scripted_http import OnCall, Request, ScriptedServer, serving
from processes.test_http_streams import Broken
from processes.test_sse_link import OldServer

from toolgate.upstreams.links import session_check

NO_ITEM = "404 Not Found"
MANY = 8


async def item(request: Request) -> None:
    """A tool of a framework that answers 404 where there is no such item."""
    if request.message["params"]["arguments"].get("item") == "none":
        request.whole(b'{"detail":"no such item"}', NO_ITEM)
    else:
        request.whole(request.answer())


class Pinged(ScriptedServer):
    """`on_ping` says what a ping is answered; without, the server knows its session."""

    def __init__(self, on_call: OnCall = item, on_get: OnCall | None = None) -> None:
        super().__init__(on_call, session=True, on_get=on_get)
        self.pings: list[Request] = []
        self.on_ping: Callable[[Request], object] = lambda request: request.whole(request.result())
        self.notes = ""

    @property
    def opened(self) -> int:
        return sum(request.method == "initialize" for request in self.requests)

    async def _respond(self, request: Request) -> None:
        if request.method == "ping":
            self.pings.append(request)
            self.on_ping(request)
        elif self.notes and request.method == "notifications/cancelled":
            request.whole(b"no such request", self.notes)
        else:
            await super()._respond(request)


@asynccontextmanager
async def two(server: Any, path: str = "/mcp", **more: Any) -> AsyncIterator[tuple[Client, Client]]:
    async with serving(server):
        config = settings(one={"url": f"http://127.0.0.1:{server.port}{path}", **more})
        async with gateway(config, identify=by_header) as served:
            yield client_of(served, "mallory"), client_of(served, "bob")


@real
async def test_what_one_client_does_not_find_opens_no_session_anew() -> None:
    server = Pinged()
    async with two(server) as (mallory, bob):
        assert await bob.call("one__act") == "ok"
        for _ in range(MANY):
            error = await failure(mallory.call("one__act", item="none"))
            assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
            assert "no such item" in error.message
            assert await bob.call("one__act") == "ok"
        assert server.opened == 1
        assert {request.headers["mcp-session-id"] for request in server.calls + server.pings} == {"session-1"}
        assert len({request.message["id"] for request in server.pings}) == MANY


@real
async def test_calls_at_once_that_find_nothing_are_told_by_one_ping() -> None:
    server, held = Pinged(), list[Request]()
    server.on_ping = held.append
    async with two(server) as (mallory, bob):
        await bob.call("one__act")
        calls = [asyncio.create_task(failure(mallory.call("one__act", item="none"))) for _ in range(MANY)]
        await until(lambda: len(server.calls) == MANY + 1 and held)
        assert await bob.call("one__act") == "ok"  # meanwhile
        held[0].whole(held[0].result())
        assert all("no such item" in error.message for error in await asyncio.gather(*calls))
        assert len(server.pings) <= 2 and server.opened == 1


@real
async def test_a_call_under_way_over_sse_outlives_what_another_does_not_find() -> None:
    class Items(OldServer):
        async def _take(self, request: Request) -> None:
            if request.method == "tools/call" and request.message["params"]["arguments"].get("item") == "none":
                request.whole(b"no such item", NO_ITEM)
            else:
                await super()._take(request)

    server = Items()
    async with two(server, "/sse", type="sse") as (mallory, bob):
        under_way = asyncio.create_task(bob.call("one__act"))
        await until(lambda: server.calls)
        for _ in range(MANY):
            error = await failure(mallory.call("one__act", item="none"))
            assert "no such item" in error.message and error.data["outcome"] == "sent_unknown"
        server.say(server.calls[0].answer("at last"))
        assert await under_way == "at last"
        assert len(server.streams) == 1


@real
async def test_a_stream_that_is_not_given_again_ends_no_session() -> None:
    broken = Broken()

    async def refuse(request: Request) -> None:
        request.whole(b"no such event", NO_ITEM if "last-event-id" in request.headers else "405 Method Not Allowed")

    async def on_call(request: Request) -> None:
        await (broken.on_call if request.message["params"]["arguments"].get("item") == "none" else item)(request)

    server = Pinged(on_call, refuse)
    async with two(server) as (mallory, bob):
        await bob.call("one__act")
        error = await failure(mallory.call("one__act", item="none"))
        assert "did not resume it" in error.message
        assert await bob.call("one__act") == "ok"
        assert server.opened == 1


@real
async def test_a_note_that_is_not_found_ends_no_session() -> None:
    """The server has forgotten the request that it is about."""
    calls: list[Request] = []

    async def on_call(request: Request) -> None:
        if request.message["params"]["arguments"].get("item") == "none":
            calls.append(request)
        else:
            request.whole(request.answer())

    server = Pinged(on_call)
    server.notes = NO_ITEM
    async with two(server) as (mallory, bob):
        await bob.call("one__act")
        _, writer = await mallory.start("tools/call", {"name": "one__act", "arguments": {"item": "none"}}, STREAM)
        await until(lambda: calls)
        await shut(writer)
        await until(lambda: server.pings)
        assert await bob.call("one__act") == "ok"
        assert server.opened == 1


# A session that is lost.


def refuses(status: str, body: bytes = b"") -> Callable[[Request], object]:
    return lambda request: request.whole(body, status)


class Restarted(Pinged):
    """Knows only its newest session, and says nothing but 404 of all others."""

    def __init__(self) -> None:
        super().__init__()
        self.annotations: dict[str, bool] = {}

    def listed(self) -> list[dict[str, Any]]:
        return [each | {"annotations": self.annotations} for each in super().listed()]

    async def _respond(self, request: Request) -> None:
        if request.headers.get("mcp-session-id", self.session) not in (self.session, ""):
            self.requests.append(request)
            request.whole(b"", NO_ITEM)
        else:
            await super()._respond(request)


@pytest.mark.promise("b.faults.404")
@pytest.mark.parametrize("is_harmless", [True, False])
@real
async def test_a_server_that_restarted_and_says_only_404_has_a_new_session(is_harmless: bool) -> None:
    server = Restarted()
    server.annotations = {"readOnlyHint": is_harmless}
    async with two(server) as (_, bob):
        assert await bob.call("one__act") == "ok"
        server.forget_the_session()
        if is_harmless:  # it is sent again when it is known where to
            assert await bob.call("one__act") == "ok"
        else:
            assert (await failure(bob.call("one__act"))).data["outcome"] == "sent_unknown"
            assert await bob.call("one__act") == "ok"
        assert server.opened == 2


@pytest.mark.promise("b.faults.404")
@pytest.mark.parametrize(
    ("answer", "opened"),
    [
        (refuses("404 Not Found"), 2),
        (refuses("404 Not Found", b"<h1>nothing here</h1>"), 2),
        (refuses("400 Bad Request", b"Bad Request: No valid session ID provided"), 2),
        (refuses("400 Bad Request", b"what?"), 1),
        (refuses("500 Oops"), 1),
        (lambda request: request.connection.reset(), 1),
        (lambda request: request.whole(_no_ping(request), "404 Not Found"), 1),
        (lambda request: request.whole(_no_ping(request)), 1),
        (lambda request: None, 1),
    ],
    ids=["404", "404 with words", "words", "400", "500", "broken", "no ping by 404", "no ping", "nothing"],
)
@real
async def test_only_where_the_ping_is_refused_too_is_a_session_lost(
    answer: Callable[[Request], object], opened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if opened == 1:
        monkeypatch.setattr(session_check, "PATIENCE", 0.1)
    server = Pinged()
    server.on_ping = answer
    async with two(server) as (mallory, bob):
        await bob.call("one__act")
        assert "no such item" in (await failure(mallory.call("one__act", item="none"))).message
        assert await bob.call("one__act") == "ok"
        assert server.opened == opened


def _no_ping(request: Request) -> bytes:
    return b'{"jsonrpc":"2.0","id":"%b","error":{"code":-32601,"message":"Method not found"}}' % (
        request.message["id"].encode()
    )
