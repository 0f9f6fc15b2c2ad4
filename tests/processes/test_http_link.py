"""The link to an HTTP server, against one that is scripted byte by byte: every framing, and every way to go wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from processes.ground import STREAM, Failed, Served, failure, gateway, open_files, read_events, real, settings, until
from processes.scripted_http import OnCall, Request, ScriptedServer, scripted, serving

from toolgate.upstreams.links import http, http1, receipts


@asynccontextmanager
async def behind(
    on_call: OnCall, session: bool = False, modern: bool = False, **more: Any
) -> AsyncIterator[tuple[Served, ScriptedServer]]:
    async with scripted(on_call, session, modern) as server, in_front_of(server, **more) as served:
        yield served, server


def in_front_of(server: ScriptedServer, **more: Any) -> AbstractAsyncContextManager[Served]:
    return gateway(settings(one={"url": f"http://127.0.0.1:{server.port}/mcp", **more}))


def writes(write: Callable[[Request], None]) -> OnCall:
    async def on_call(request: Request) -> None:
        write(request)

    return on_call


def whole(request: Request) -> None:
    request.whole(request.answer())


def chunked(request: Request) -> None:
    """In pieces that have nothing to do with what is in them."""
    request.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    body = request.answer()
    for start in range(0, len(body), 7):
        piece = body[start : start + 7]
        request.write(b"%x;note=1\r\n%b\r\n" % (len(piece), piece))
    request.write(b"0\r\nTrailer: x\r\n\r\n")


def until_close(request: Request) -> None:
    request.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + request.answer())
    request.connection.close()


def http_1_0(request: Request) -> None:
    request.write(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + request.answer())
    request.connection.close()


def with_a_goodbye(request: Request) -> None:
    request.whole(request.answer(), "200 OK", "Connection: close")


def after_100_continue(request: Request) -> None:
    request.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.whole(request.answer())


def as_events(request: Request) -> None:
    request.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n")
    request.write(b": hello\r\n\r\nid: 1\r\nevent: message\r\ndata: " + request.answer() + b"\r\n\r\n")
    request.connection.close()


FRAMINGS = [whole, chunked, until_close, http_1_0, with_a_goodbye, after_100_continue, as_events]


@pytest.mark.parametrize("framing", FRAMINGS, ids=lambda framing: framing.__name__)
@real
async def test_every_framing_is_read(framing: Callable[[Request], None]) -> None:
    async with behind(writes(framing)) as (served, server):
        client = served.client()
        for _ in range(3):
            assert await client.call("one__act") == "ok"
        assert [request.headers["content-type"] for request in server.calls] == ["application/json"] * 3
        assert [request.headers["mcp-protocol-version"] for request in server.calls] == ["2025-11-25"] * 3


@pytest.mark.parametrize("framing", [whole, chunked, after_100_continue], ids=lambda framing: framing.__name__)
@real
async def test_calls_one_after_another_go_over_one_connection(framing: Callable[[Request], None]) -> None:
    async with behind(writes(framing)) as (served, server):
        for _ in range(20):
            await served.client().call("one__act")
        assert len(server.calls) == 20
        assert {request.connection.number for request in server.calls} == {server.calls[0].connection.number}
        assert server.open_connections <= 2


@pytest.mark.parametrize("interim", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
@pytest.mark.parametrize("is_stream", [True, False])
@real
async def test_the_head_of_an_answer_in_chunks_is_read_header_by_header_once(
    is_stream: bool, interim: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers: list[bytes] = []
    on_header = http1.Wire.on_header

    def seen(self: http1.Wire, name: bytes, value: bytes) -> None:
        headers.append(name)
        on_header(self, name, value)

    monkeypatch.setattr(http1.Wire, "on_header", seen)

    async def on_call(request: Request) -> None:
        headers.clear()
        kind = "text/event-stream" if is_stream else "application/json"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nX-A: b\r\nX-C: d\r\nTransfer-Encoding: chunked\r\n\r\n"
        request.write(interim + head.encode())
        if request.id % 2:  # and in pieces of their own
            await asyncio.sleep(0.02)
        text = request.answer(str(request.id))
        body = b"event: message\ndata: %b\n\n" % text if is_stream else text
        request.write(b"%x\r\n%b\r\n" % (len(body), body))
        await asyncio.sleep(0)
        request.end_stream()

    async with behind(on_call) as (served, _):
        client = served.client()
        for _ in range(6):
            assert (await client.call("one__act")).isdigit()
        assert len(headers) == 1 or interim


@real
async def test_an_answer_that_trickles_in_byte_by_byte_is_read() -> None:
    async def on_call(request: Request) -> None:
        body = request.answer()
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body):
            request.write(bytes([byte]))
            await request.connection.writer.drain()
            await asyncio.sleep(0)

    async with behind(on_call) as (served, _):
        assert await served.client().call("one__act") == "ok"


@real
async def test_calls_at_once_have_a_connection_each_which_are_used_again() -> None:
    arrived: list[Request] = []

    async def on_call(request: Request) -> None:
        arrived.append(request)
        if len(arrived) % 8 == 0:
            for each in arrived[-8:]:
                each.whole(each.answer(str(each.connection.number)))

    async with behind(on_call) as (served, server):
        client = served.client()
        await client.tools()
        for _ in range(3):
            said = await asyncio.gather(*(client.call("one__act") for _ in range(8)))
            assert len(set(said)) == 8
        assert len({request.connection.number for request in server.calls}) <= 10
        ids = [request.id for request in server.requests if "id" in request.message]
        assert len(set(ids)) == len(ids)


@pytest.mark.promise("spec.2026.sse.related")
@real
async def test_progress_on_the_stream_of_an_answer_reaches_the_client_before_it() -> None:
    released = asyncio.Event()

    async def on_call(request: Request) -> None:
        token = request.message["params"].get("_meta", {}).get("progressToken")
        note = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
        request.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for message in ({"jsonrpc": "2.0", "method": "notifications/progress", "params": note}, None):
            event = b"data: %b\n\n" % (json.dumps(message).encode() if message else request.answer("done"))
            request.write(b"%x\r\n%b\r\n" % (len(event), event))
            if message:
                await released.wait()
        request.write(b"0\r\n\r\n")

    async with behind(on_call) as (served, server):
        client = served.client()
        reader, writer = await client.start(
            "tools/call", {"name": "one__act", "_meta": {"progressToken": "mine"}}, accept=STREAM
        )
        events = read_events(reader)
        first = await anext(events)
        assert first["method"] == "notifications/progress"
        assert first["params"] == {"progressToken": "mine", "progress": 1, "total": 2, "message": "half"}
        released.set()
        assert (await anext(events))["result"]["content"][0]["text"] == "done"
        writer.close()
        assert await served.client().call("one__act") == "done"
        assert len({request.connection.number for request in server.calls}) == 1


# What goes wrong.


async def fails(on_call: OnCall, **more: Any) -> Failed:
    """The error of one call; the next one, answered properly, works, and no connection is left over."""
    answering = False

    async def once(request: Request) -> None:
        if answering:
            request.whole(request.answer())
        else:
            await on_call(request)

    async with behind(once, **more) as (served, server):
        client = served.client()
        await client.tools()
        error = await failure(client.call("one__act"))
        assert len(server.calls) == 1
        answering = True
        assert await client.call("one__act") == "ok"
        await until(lambda: server.open_connections <= 2)
        return error


def nothing(request: Request) -> None:
    request.connection.close()


def half_a_head(request: Request) -> None:
    request.write(b"HTTP/1.1 200 OK\r\nContent-Le")
    request.connection.close()


def half_a_body(request: Request) -> None:
    body = request.answer()
    request.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body[:-5]))
    request.connection.close()


def half_a_chunk(request: Request) -> None:
    request.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n" + request.answer())
    request.connection.close()


def half_a_stream(request: Request) -> None:
    request.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: " + request.answer()[:-5])
    request.connection.close()


def a_stream_without_an_answer(request: Request) -> None:
    request.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: nothing to say\n\n")
    request.connection.close()


def a_reset(request: Request) -> None:
    request.connection.reset()


def no_http(request: Request) -> None:
    request.write(b"220 smtp.example.com ESMTP ready\r\n")


def binary(request: Request) -> None:
    request.write(bytes(range(256)) * 10)


def something_else(request: Request) -> None:
    request.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x02hi")


def no_status(request: Request) -> None:
    request.whole(request.answer(), "000 Nothing")


def an_empty_answer(request: Request) -> None:
    request.whole(b"")


def accepted(request: Request) -> None:
    request.whole(b"", "202 Accepted")


BROKEN = [nothing, half_a_head, half_a_body, half_a_chunk, half_a_stream, a_stream_without_an_answer, a_reset]
BROKEN += [no_http, binary, something_else, no_status, an_empty_answer, accepted]


@pytest.mark.parametrize("way", BROKEN, ids=lambda way: way.__name__)
@real
async def test_an_answer_that_breaks_off_or_is_none_fails_its_call_only(way: Callable[[Request], None]) -> None:
    error = await fails(writes(way))
    assert error.code == -32603
    assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
    assert error.data["server"] == "one"


@real
async def test_a_status_that_is_none_is_named() -> None:
    assert "not valid HTTP: 000 is no status" in (await fails(writes(no_status))).message


NO_MESSAGE = [b"<html>hello</html>", b'{"jsonrpc":"2.0","id":', b"[]", b'{"ok":true}', b"\xff\xfe", b"null"]


@pytest.mark.parametrize("body", NO_MESSAGE, ids=repr)
@real
async def test_an_answer_that_is_no_message_fails_its_call_at_once(body: bytes) -> None:
    error = await fails(writes(lambda request: request.whole(body)))
    assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")


def a_broken_answer(request: Request) -> bytes:
    return request.answer("broken").replace(b"broken", rb"\q")


def a_broken_event(request: Request) -> None:
    """On a stream that stays open."""
    request.open_stream()
    request.event(a_broken_answer(request))


def a_broken_body(request: Request) -> None:
    request.whole(a_broken_answer(request))


@pytest.mark.parametrize("way", [a_broken_event, a_broken_body])
@real
async def test_an_answer_that_is_no_json_inside_fails_its_call_at_once(way: Callable[[Request], None]) -> None:
    error = await fails(writes(way))
    assert (error.data["code"], error.data["outcome"]) == ("UPSTREAM_ERROR", "executed")


@real
async def test_an_answer_to_another_request_fails_the_call_at_once() -> None:
    foreign = b'{"jsonrpc":"2.0","id":"never sent","result":{"content":[]}}'
    error = await fails(writes(lambda request: request.whole(foreign)))
    assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")


STATUSES = [
    "307 Temporary Redirect",
    "400 Bad Request",
    "401 Unauthorized",
    "403 Forbidden",
    "404 Not Found",
    "429 Too Many Requests",
    "500 Internal Server Error",
    "503 Service Unavailable",
]


@pytest.mark.promise("b.errors.outcome-http")
@pytest.mark.parametrize("status", STATUSES)
@real
async def test_an_http_error_is_told_with_its_status_and_words(status: str) -> None:
    """What it says of the call is nothing: whatever the status means, it also comes when a call has run."""
    error = await fails(writes(lambda request: request.whole(b"the server's own words", status)))
    assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
    assert error.data["http_status"] == int(status[:3])
    assert f"HTTP {status[:3]}" in error.message
    assert "the server's own words" in error.message
    assert ("credentials" in error.data.get("hint", "")) == (status[:3] in ("401", "403"))


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "500 Internal Server Error"])
@pytest.mark.parametrize("id", [True, None, "server-error", 0], ids=["its own", "null", "a word", "another"])
@real
async def test_a_json_rpc_error_in_the_body_of_an_http_error_is_relayed(status: str, id: object) -> None:
    """Whatever id it has: the stream that it came on says whose it is."""

    def refuse(request: Request) -> None:
        error = {"code": 4711, "message": "no more tea", "data": {"kettle": "empty"}}
        body = {"jsonrpc": "2.0", "id": request.id if id is True else id, "error": error}
        request.whole(json.dumps(body).encode(), status)

    error = await fails(writes(refuse))
    assert (error.code, error.message, error.data) == (4711, "no more tea", {"kettle": "empty"})


@real
async def test_headers_that_are_slow_but_in_time_are_waited_for() -> None:
    released = asyncio.Event()

    async def on_call(request: Request) -> None:
        request.write(b"HTTP/1.1 200 OK\r\n")
        await released.wait()
        body = request.answer()
        request.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    async with behind(on_call) as (served, server):
        call = asyncio.create_task(served.client().call("one__act"))
        await until(lambda: server.calls)
        assert not call.done()
        released.set()
        assert await call == "ok"


@real
async def test_headers_that_are_too_slow_time_out_and_their_connection_is_closed() -> None:
    async def on_call(request: Request) -> None:
        request.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")

    async with behind(on_call, timeout="1s") as (served, server):
        error = await failure(served.client().call("one__act"))
        assert (error.data["code"], error.data["outcome"]) == ("TIMEOUT", "sent_unknown")
        (call,) = server.calls
        await until(lambda: call.connection.is_closed)
        await until(lambda: [request for request in server.requests if request.method == "notifications/cancelled"])


@pytest.mark.promise("b.001.own-fault")
@real
async def test_a_server_that_is_not_there_is_named() -> None:
    async with scripted(writes(whole)) as gone:
        url = f"http://127.0.0.1:{gone.port}/mcp"
    async with gateway(settings(one={"url": url})) as served:
        error = await failure(served.client().call("one__act"))
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "not_sent")
        assert url in error.message


@real
async def test_a_word_that_nobody_asked_for_spoils_its_connection_only() -> None:
    """A server that says goodbye on an idle connection, as some do with a 408, is not taken to answer the next call."""

    def answer_twice(request: Request) -> None:
        request.whole(request.answer())
        request.whole(b"Request Timeout", "408 Request Timeout")

    async with behind(writes(answer_twice)) as (served, server):
        for _ in range(5):
            assert await served.client().call("one__act") == "ok"
        assert len({request.connection.number for request in server.calls}) == 5

    async def answer_and_say_later(request: Request) -> None:
        request.whole(request.answer())
        later.append(request)

    later: list[Request] = []
    async with behind(answer_and_say_later) as (served, server):
        assert await served.client().call("one__act") == "ok"
        later[0].whole(b"Request Timeout", "408 Request Timeout")
        await until(lambda: later[0].connection.is_closed)
        assert await served.client().call("one__act") == "ok"


def events(request: Request) -> None:
    request.open_stream()
    request.event(request.answer())
    request.end_stream()


def large(request: Request) -> None:
    request.whole(request.answer("x" * 300_000))


def an_error(request: Request) -> None:
    error = {"jsonrpc": "2.0", "id": request.id, "error": {"code": -32602, "message": "no"}}
    request.whole(json.dumps(error).encode(), "400 Bad Request")


@pytest.mark.parametrize("id", ["of the other call", 0, 1])
@pytest.mark.parametrize("way", ["400 Bad Request", "200 OK", "an event"])
@real
async def test_an_error_ends_the_call_that_it_came_to_and_no_other(way: str, id: object) -> None:
    """Whatever id it has: that of a call under way at the same time, or the same each time."""
    first = asyncio.get_running_loop().create_future()
    refused = asyncio.Event()

    async def on_call(request: Request) -> None:
        if not first.done():
            first.set_result(request.id)
            await refused.wait()
            whole(request)
            return
        answered = await first if isinstance(id, str) else id
        error = {"jsonrpc": "2.0", "id": answered, "error": {"code": 1, "message": ""}}
        if way == "an event":
            request.open_stream()
            request.event(json.dumps(error).encode())
            request.end_stream()
        else:
            request.whole(json.dumps(error).encode(), way)

    async with behind(on_call) as (served, _):
        waits = asyncio.ensure_future(served.client().call("one__act"))
        await first
        for _ in range(3):
            await failure(served.client().call("one__act"))
        assert not waits.done()
        refused.set()
        assert await waits == "ok"


@pytest.mark.parametrize("way", [whole, chunked, events, large, an_error], ids=lambda way: way.__name__)
@real
async def test_one_answer_too_many_costs_the_next_call_only(way: Callable[[Request], None]) -> None:
    """It comes once that was sent, where no reader can tell: each call would be told the answer of the one before."""
    before: list[Request] = []

    def answer(request: Request) -> None:
        is_late = before and before[0].connection is request.connection
        if is_late:
            way(before[-1])
        else:
            whole(request)
        before.append(request)

    async with behind(writes(answer)) as (served, server):
        client = served.client()
        assert await client.call("one__act") == "ok"
        with pytest.raises(Failed):
            await client.call("one__act")
        for _ in range(3):
            assert await client.call("one__act") == "ok"
        assert [request.connection.number for request in server.calls[:2]] == [server.calls[0].connection.number] * 2
        assert len({request.connection.number for request in server.calls}) == 2


@real
async def test_a_redirect_is_told_with_the_url_to_configure() -> None:
    def moved(request: Request) -> None:
        request.whole(b"", "307 Temporary Redirect", "Location: /mcp/")

    error = await fails(writes(moved))
    assert error.data["outcome"] == "sent_unknown"
    assert error.data["hint"].endswith("/mcp/")


@real
async def test_a_redirect_to_nowhere_is_told_as_it_was_written() -> None:
    def moved(request: Request) -> None:
        request.whole(b"", "307 Temporary Redirect", "Location: http://[")

    error = await fails(writes(moved), timeout="5s")
    assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
    assert "'http://['" in error.data["hint"]


@pytest.mark.parametrize("framing", [whole, chunked, until_close], ids=lambda framing: framing.__name__)
@real
async def test_an_answer_beyond_all_measure_fails_its_call(
    framing: Callable[[Request], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "LONGEST_BODY", 1000)
    monkeypatch.setattr(http, "LONGEST_UNAWAITED", 1000)

    class Big(Request):
        def answer(self, text: str = "") -> bytes:
            return super().answer("x" * 2000)

    def big(request: Request) -> None:
        request.__class__ = Big
        framing(request)

    error = await fails(writes(big))
    assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "executed")
    assert "1000 bytes" in error.message


@real
async def test_a_refusal_beyond_all_measure_is_told_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LONGEST_UNAWAITED", 1000)
    begun: list[bytes] = []

    def refuses(request: Request) -> None:
        error = {"code": -5, "message": "mine", "data": "x" * 2000}
        request.whole(json.dumps({"jsonrpc": "2.0", "id": request.id, "error": error}).encode(), "500 No")

    is_rpc_error = http.is_rpc_error
    monkeypatch.setattr(http, "is_rpc_error", lambda body, to: begun.append(body) or is_rpc_error(body, to))
    error = await fails(writes(refuses))
    assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
    assert "HTTP 500" in error.message and len(begun[-1]) <= 1000


@real
async def test_an_event_without_an_end_fails_its_call_and_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LONGEST_BODY", 1000)
    monkeypatch.setattr(http, "LONGEST_UNAWAITED", 1000)

    def endless(request: Request) -> None:
        request.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: " + b"x" * 2000)

    error = await fails(writes(endless))
    assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
    assert "1000 bytes" in error.message


@real
async def test_a_head_without_an_end_fails_its_call_and_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "MOST_BESIDE", 1000)

    def endless(request: Request) -> None:
        request.write(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(200)))

    def endless_value(request: Request) -> None:
        request.write(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 2000)

    for way in (endless, endless_value):
        error = await fails(writes(way))
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        assert "1000 bytes" in error.message


@real
async def test_connections_that_are_no_longer_needed_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any further call, and though the server would keep them."""
    monkeypatch.setattr(http1, "IDLE", 0.2)
    arrived: list[Request] = []

    async def on_call(request: Request) -> None:
        arrived.append(request)
        if len(arrived) == 20:
            for each in arrived:
                each.whole(each.answer())

    async with behind(on_call) as (served, server):
        await asyncio.gather(*(served.client().call("one__act") for _ in range(20)))
        assert len(server.connections) >= 20
        await until(lambda: server.open_connections == 0)


# A modern server: what it is sent, and how it hears that nobody waits any more.


@pytest.mark.promise("spec.2026.headers.upstream", "spec.2026.probe.http")
@real
async def test_every_request_to_a_modern_server_carries_its_headers() -> None:
    async with behind(writes(whole), modern=True) as (served, server):
        await served.client().call("one__act")
        by_method = {request.method: request.headers for request in server.requests}
        assert list(by_method) == ["server/discover", "tools/list", "tools/call"]
        for method, headers in by_method.items():
            assert headers["mcp-protocol-version"] == "2026-07-28"
            assert headers["mcp-method"] == method
            assert "mcp-session-id" not in headers
        assert by_method["tools/call"]["mcp-name"] == "act"


@pytest.mark.promise("spec.2026.sse.disconnect")
@pytest.mark.parametrize("modern", [True, False], ids=["modern", "legacy"])
@real
async def test_a_client_that_vanishes_has_its_call_cancelled_at_the_server(modern: bool) -> None:
    """A modern server hears it by the end of the stream, a legacy one by a notification as well."""
    held: list[Request] = []

    async def on_call(request: Request) -> None:
        held.append(request)
        request.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: working on it\n\n")

    async with behind(on_call, modern=modern) as (served, server):
        kept = asyncio.create_task(served.client().call("one__act"))
        await until(lambda: len(held) == 1)
        _, writer = await served.client().start("tools/call", {"name": "one__act"})
        await until(lambda: len(held) == 2)
        writer.close()
        await until(lambda: held[1].connection.is_closed)
        if not modern:
            await until(lambda: server.requests[-1].method == "notifications/cancelled")
            assert server.requests[-1].message["params"]["requestId"] == held[1].id
        held[0].write(b"data: " + held[0].answer() + b"\n\n")
        held[0].connection.close()
        assert await kept == "ok"
        assert all(request.method != "notifications/cancelled" for request in server.requests) or not modern


@pytest.mark.promise("b.rulings.04-unsent")
@real
async def test_a_connection_that_the_server_closed_while_idle_is_not_used_again() -> None:
    async with behind(writes(whole)) as (served, server):
        for number in range(3):
            assert await served.client().call("one__act") == "ok"
            before = open_files()
            for connection in server.connections:
                connection.close()
            await until(lambda before=before: server.open_connections == 0 and open_files() < before)
            assert len(server.calls) == number + 1


# Sessions.


@pytest.mark.promise("spec.2026.probe.http", "spec.legacy.session.upstream")
@real
async def test_the_session_id_is_sent_with_everything_and_ended_at_the_close() -> None:
    async with behind(writes(whole), session=True) as (served, server):
        await served.client().call("one__act")
        by_method = {request.method: request.headers.get("mcp-session-id") for request in server.requests}
        assert by_method == {
            "server/discover": None,
            "initialize": None,
            "notifications/initialized": "session-1",
            "GET": "session-1",
            "tools/list": "session-1",
            "tools/call": "session-1",
        }
    assert server.requests[-1].verb == "DELETE"
    assert server.requests[-1].headers["mcp-session-id"] == "session-1"
    assert server.requests[-1].headers["mcp-protocol-version"] == "2025-11-25"
    assert "content-type" not in server.requests[-1].headers  # Fastify refuses an empty body that says it is JSON


@pytest.mark.promise("spec.legacy.session.learned")
@pytest.mark.parametrize("session", [True, False])
@real
async def test_a_session_id_is_learned_from_a_successful_initialize_only(session: bool) -> None:
    """The Python SDK up to 1.30 names a session of no use in each refusal; other servers name one anywhere."""

    def with_another_id(request: Request) -> None:
        request.whole(request.answer(), "200 OK", "Mcp-Session-Id: of-an-answer")

    async with behind(writes(with_another_id), session=session) as (served, server):
        client = served.client()
        assert [await client.call("one__act") for _ in range(2)] == ["ok"] * 2
        sent = {request.headers.get("mcp-session-id") for request in server.requests if request.method != "initialize"}
        assert sent == ({None, "session-1"} if session else {None})
        assert server.requests[1].method == "initialize" and "mcp-session-id" not in server.requests[1].headers


@pytest.mark.parametrize("version", ["2025-06-18", "2024-11-05"])
@real
async def test_a_server_that_refuses_the_version_by_http_400_is_asked_in_older_ones(version: str) -> None:
    """As xiaohongshu-mcp does, for example."""
    async with behind(writes(whole), session=True) as (served, server):
        server.version, server.is_strict = version, True
        assert await served.client().call("one__act") == "ok"
        asked = [each.message["params"]["protocolVersion"] for each in server.requests if each.method == "initialize"]
        assert asked == list(dict.fromkeys(["2025-11-25", "2025-06-18", version]))
        assert server.calls[0].headers["mcp-session-id"] == "session-1"


@pytest.mark.promise("spec.legacy.initialized.first")
@real
async def test_nothing_overtakes_the_end_of_the_handshake() -> None:
    """Each message is a request on a connection of its own; a server may be slow to take one."""
    taken = False
    early: list[str] = []

    class Slow(ScriptedServer):
        async def _respond(self, request: Request) -> None:
            nonlocal taken
            if request.method == "notifications/initialized":
                for _ in range(200):  # turns of the loop, in which others could come
                    await asyncio.sleep(0)
                taken = True
            elif request.method not in ("server/discover", "initialize") and not taken:
                early.append(request.method)
            await super()._respond(request)

    async with serving(Slow(writes(whole), session=True)) as server, in_front_of(server) as served:
        client = served.client()
        assert await asyncio.gather(*(client.call("one__act") for _ in range(4))) == ["ok"] * 4
    assert taken and early == []


@real
async def test_a_server_that_never_takes_the_end_of_the_handshake_is_used_nonetheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receipts, "PATIENCE", 0.05)

    class Mute(ScriptedServer):
        async def _respond(self, request: Request) -> None:
            if request.method != "notifications/initialized":
                await super()._respond(request)

    async with serving(Mute(writes(whole), session=True)) as server, in_front_of(server) as served:
        assert await served.client().call("one__act") == "ok"


@pytest.mark.promise("b.faults.404", "b.rulings.04-unsent")
@real
async def test_a_session_that_the_server_forgot_is_opened_anew_and_the_call_sent_again() -> None:
    async with behind(writes(whole), session=True) as (served, server):
        client = served.client()
        assert await client.call("one__act") == "ok"
        server.forget_the_session()
        assert await client.call("one__act") == "ok"
        sessions = [request.headers["mcp-session-id"] for request in server.calls]
        assert sessions == ["session-1", "session-1", "session-2"]
        assert [request.method for request in server.requests].count("initialize") == 2
        assert served.status("one").state == "ready"


@pytest.mark.promise("b.faults.404")
@real
async def test_a_server_that_forgets_every_session_at_once_is_asked_twice_and_no_more() -> None:
    async def on_call(request: Request) -> None:
        request.whole(b"Session not found", "404 Not Found")

    async with behind(on_call, session=True) as (served, server):
        error = await failure(served.client().call("one__act"))
        assert error.data["outcome"] == "not_sent"
        assert len(server.calls) == 2


@pytest.mark.promise("b.errors.outcome-http", "b.faults.404")
@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("404 Not Found", '{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}'),
        ("404 Not Found", "session not found\n"),
        ("400 Bad Request", "Bad Request: No valid session ID provided"),
        ("401 Unauthorized", "Unauthorized: Session not found"),
    ],
)
@real
async def test_a_refusal_that_says_that_the_session_is_unknown_has_not_run_the_call(status: str, words: str) -> None:
    async def on_call(request: Request) -> None:
        if len(server.calls) == 1:
            request.whole(words.encode(), status)
        else:
            request.whole(request.answer())

    async with behind(on_call, session=True) as (served, server):
        assert await served.client().call("one__act") == "ok"
        assert [request.method for request in server.requests].count("initialize") == 2


@pytest.mark.promise("b.errors.outcome-http")
@pytest.mark.parametrize("body", ["", "404 page not found", "Session not found: another-session"])
@real
async def test_any_other_404_in_a_session_says_nothing_of_the_call_and_starts_another_session(body: str) -> None:
    """Where that is what the server says to a ping, too: see `attack/test_sessions_of_others.py`."""

    class Lost(ScriptedServer):
        async def _respond(self, request: Request) -> None:
            if request.method == "ping":
                request.whole(body.encode(), "404 Not Found")
            else:
                await super()._respond(request)

    async def on_call(request: Request) -> None:
        if len(server.calls) == 1:
            request.whole(body.encode(), "404 Not Found")
        else:
            request.whole(request.answer())

    async with serving(Lost(on_call, session=True)) as server, in_front_of(server) as served:
        error = await failure(served.client().call("one__act"))
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        assert len(server.calls) == 1
        assert await served.client().call("one__act") == "ok"
        assert [request.headers["mcp-session-id"] for request in server.calls] == ["session-1", "session-2"]


@pytest.mark.promise("b.errors.outcome-http")
@pytest.mark.parametrize(
    ("status", "annotations", "calls"),
    [
        ("404 Not Found", {"readOnlyHint": True}, 2),
        ("404 Not Found", {"idempotentHint": True}, 2),
        ("404 Not Found", {"destructiveHint": True}, 1),
        ("404 Not Found", {}, 1),
        ("503 Service Unavailable", {"readOnlyHint": True}, 2),
        ("503 Service Unavailable", {}, 1),
        ("403 Forbidden", {"readOnlyHint": True}, 1),
    ],
)
@pytest.mark.parametrize("via", ["", "mcp_call"])
@real
async def test_what_was_refused_is_sent_again_only_where_that_does_no_harm_and_may_help(
    status: str, annotations: dict[str, bool], calls: int, via: str
) -> None:
    """By `mcp_call`, too: a server that answers has not crashed."""

    class Annotated(ScriptedServer):
        def listed(self) -> list[dict[str, Any]]:
            return [each | {"annotations": annotations} for each in super().listed()]

    refuse = writes(lambda request: request.whole(b"no", status))
    async with serving(Annotated(refuse, session=True)) as server, in_front_of(server) as served:
        client = served.client()
        await client.tools()
        if via:
            asked = {"name": "mcp_call", "arguments": {"server": "one", "tool": "act", "args": {}}}
            with contextlib.suppress(Failed):
                await client.ask("tools/call", asked)
        else:
            await failure(client.call("one__act"))
        assert len(server.calls) == calls


@real
async def test_calls_at_once_in_a_forgotten_session_are_all_sent_again() -> None:
    """Each was refused before it ran, so each is safe to send again; and one session is opened for all of them."""
    async with behind(writes(whole), session=True) as (served, server):
        client = served.client()
        await client.call("one__act")
        server.forget_the_session()
        assert await asyncio.gather(*(client.call("one__act") for _ in range(16))) == ["ok"] * 16
        assert [request.method for request in server.requests].count("initialize") == 2


@real
async def test_a_call_that_is_being_answered_outlives_its_session() -> None:
    """Another call meets the 404 meanwhile; the answer that is on its way still comes."""
    held: list[Request] = []

    async def on_call(request: Request) -> None:
        if request.message["params"]["arguments"].get("say") == "held":
            held.append(request)
        else:
            request.whole(request.answer())

    async with behind(on_call, session=True) as (served, server):
        client = served.client()
        await client.tools()
        first = asyncio.create_task(client.call("one__act", say="held"))
        await until(lambda: held)
        server.forget_the_session()
        assert await client.call("one__act") == "ok"
        held[0].whole(held[0].answer("at last"))
        assert await first == "at last"


@real
async def test_sessions_that_are_forgotten_again_and_again_leave_no_connections() -> None:
    async with behind(writes(whole), session=True) as (served, server):
        client = served.client()
        for _ in range(20):
            assert await client.call("one__act") == "ok"
            server.forget_the_session()
        await until(lambda: server.open_connections <= 2)
