"""A server that vanished or was started again: whatever is left of the connections to it, the next call works."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from processes.ground import failure, gateway, real, settings, until
from processes.scripted_http import Request, ScriptedServer, scripted, serving

from toolgate.config import Config


def to(server: ScriptedServer, **more: Any) -> Config:
    return settings(one={"url": f"http://127.0.0.1:{server.port}/mcp", **more})


async def whole(request: Request) -> None:
    request.whole(request.answer(), "200 OK", "Keep-Alive: timeout=60")


@pytest.mark.promise("b.links.return")
@pytest.mark.parametrize("modern", [True, False], ids=["modern", "legacy"])
@real
async def test_after_a_call_that_timed_out_no_connection_from_before_it_is_used(modern: bool) -> None:
    arrived: list[Request] = []

    async def on_call(request: Request) -> None:
        arrived.append(request)
        if len(arrived) == 8:
            for each in arrived:
                await whole(each)
        elif len(arrived) > 8:
            await whole(request)

    async with (
        scripted(on_call, session=not modern, modern=modern) as server,
        gateway(to(server, timeout="1s")) as served,
    ):
        client = served.client()
        assert await asyncio.gather(*(client.call("one__act") for _ in range(8))) == ["ok"] * 8
        server.vanish()
        error = await failure(client.call("one__act"))
        assert (error.data["code"], error.data["outcome"]) == ("TIMEOUT", "sent_unknown")
        before = len(server.connections)
        for _ in range(8):
            assert await client.call("one__act") == "ok"
        assert all(request.connection.number >= before - 1 for request in server.calls[-8:])
        assert len(server.calls) == 17


@real
async def test_what_answered_since_a_call_was_sent_is_used_on() -> None:
    """One call that is given up for its slowness does not cost the others their connections."""
    held: list[Request] = []

    async def on_call(request: Request) -> None:
        if request.message["params"]["arguments"].get("hold"):
            held.append(request)
        else:
            await whole(request)

    async with scripted(on_call, modern=True) as server, gateway(to(server)) as served:
        client = served.client()
        await client.tools()
        params = {"name": "one__act", "arguments": {"hold": True}}
        _, writer = await client.start("tools/call", params)
        await until(lambda: held)
        assert await client.call("one__act") == "ok"
        writer.close()
        await until(lambda: held[0].connection.is_closed)
        assert await client.call("one__act") == "ok"
        assert server.calls[-1].connection is server.calls[-2].connection


@pytest.mark.promise("b.links.return", "b.faults.404")
@pytest.mark.parametrize("listens", [True, False], ids=["with a stream of its own", "without"])
@real
async def test_a_server_that_was_started_again_between_two_calls_is_opened_anew(listens: bool) -> None:
    async def on_get(request: Request) -> None:
        request.open_stream()

    listener = on_get if listens else None
    async with scripted(whole, True, False, listener) as first, gateway(to(first)) as served:
        client = served.client()
        assert await client.call("one__act") == "ok"
        await until(lambda: first.gets)
        await first.stop()
        second = ScriptedServer(whole, True, False, listener)
        second.session = "another"
        async with serving(second, first.port):
            assert await client.call("one__act") == "ok"
            assert second.calls[-1].headers["mcp-session-id"] == "session-1"
            assert [request.method for request in second.requests].count("initialize") == 1
            await until(lambda: second.gets)


@pytest.mark.promise("b.links.return")
@real
async def test_a_call_that_a_kept_connection_swallowed_is_not_sent_again_but_the_next_one_works() -> None:
    """The server went away just before: nobody can tell whether it had read the call."""
    answers = 0

    async def on_call(request: Request) -> None:
        nonlocal answers
        answers += 1
        if answers == 2:
            for connection in server.connections:
                connection.reset()
        else:
            await whole(request)

    async with scripted(on_call, session=True) as server, gateway(to(server)) as served:
        client = served.client()
        assert await client.call("one__act") == "ok"
        error = await failure(client.call("one__act"))
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        assert len(server.calls) == 2
        assert await client.call("one__act") == "ok"
        assert server.calls[0].connection is server.calls[1].connection
