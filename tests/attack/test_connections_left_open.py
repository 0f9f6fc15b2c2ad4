"""A server that answers, and keeps the connections open on which it did: the files that the gateway may open are not
used up by that, and what anybody waits for goes on."""

from __future__ import annotations

import asyncio
import gc

import pytest
from processes.ground import Failed, gateway, real, settings, until
from processes.scripted_http import Request, scripted, serving
from processes.test_http_link import in_front_of
from processes.test_sse_link import OldServer

from toolgate.upstreams.links import http1

CALLS = 150
MOST = 3 * http1.MOST_UNNEEDED  # connections: twice as many as are kept, and what is on its way


@real
async def test_streams_that_stay_open_behind_their_answers_are_closed() -> None:
    held: list[Request] = []

    async def on_call(request: Request) -> None:
        request.open_stream()
        if held:
            request.event(request.answer())
        else:
            held.append(request)

    async with scripted(on_call) as server, in_front_of(server) as served:
        waiting = asyncio.ensure_future(served.client().call("one__act"))
        await until(lambda: held)
        client = served.client()
        for _ in range(CALLS):
            assert await client.call("one__act") == "ok"
        await until(lambda: server.open_connections < MOST)
        held[0].event(held[0].answer("at last"))  # the oldest of all, which somebody needs
        assert await waiting == "at last"


@real
async def test_connections_on_which_a_stream_has_ended_are_closed_when_there_are_many() -> None:
    opened: list[int] = []  # connections, at each time that the stream was gone on with

    def say_more(request: Request) -> None:
        request.open_stream()
        request.event(b"", "id: 1", "retry: 0")
        request.end_stream()

    async def on_call(request: Request) -> None:
        say_more(request)

    async def on_get(request: Request) -> None:
        if "last-event-id" not in request.headers:
            request.whole(b"", "405 Method Not Allowed")
            return
        opened.append(server.open_connections)
        if len(opened) < 2 * MOST:
            say_more(request)
        else:
            request.open_stream()
            request.event(server.calls[0].answer())

    async with scripted(on_call, session=True, on_get=on_get) as server, in_front_of(server) as served:
        assert await served.client().call("one__act") == "ok"
        assert max(opened) < MOST


def wires() -> list[object]:
    return [each for each in gc.get_objects() if isinstance(each, http1.Wire)]


@real
async def test_nothing_of_a_connection_that_has_ended_waits_for_the_garbage_collector() -> None:
    async def on_call(request: Request) -> None:
        request.whole(request.answer(), "200 OK", *(f"X-{number}: y" for number in range(100)), "Connection: close")

    async with scripted(on_call) as server, in_front_of(server) as served:
        client = served.client()
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                assert await client.call("one__act") == "ok"
            await until(lambda: len(wires()) < 5)
        finally:
            gc.enable()


@real
async def test_an_answer_with_very_many_headers_is_not_read() -> None:
    async def on_call(request: Request) -> None:
        request.whole(request.answer(), "200 OK", *(f"X-{number}: y" for number in range(http1.MOST_LINES)))

    async with scripted(on_call) as server, in_front_of(server) as served:
        with pytest.raises(Failed, match="more than 200 headers"):
            await served.client().call("one__act")


class Slow(OldServer):
    """Takes each message, and never ends the answer that says so."""

    async def _take(self, request: Request) -> None:
        request.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\n\r\n")
        if found := self._answer(request):
            self.say(found)
        elif request.method == "tools/call":
            self.say(request.answer())


@real
async def test_receipts_that_never_end_are_not_waited_for() -> None:
    async with serving(Slow()) as server:
        config = {"type": "sse", "url": f"http://127.0.0.1:{server.port}/sse"}
        async with gateway(settings(one=config)) as served:
            client = served.client()
            for _ in range(CALLS):
                assert await client.call("one__act") == "ok"
            await until(lambda: server.open_connections < MOST)
