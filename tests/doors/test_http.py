"""The HTTP door: who gets in, what is refused and how, and what a body may be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inmemory import GREETER, Scripted, Visitor, gateway, said, tools
from virtualtime import settle

from toolgate.config import Config, Http

TOOLS = tools("echo")
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


# Who gets in.


@pytest.mark.promise("spec.2026.http.origin")
@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost.evil.example", "null", "http://[", ""])
async def test_a_foreign_origin_is_refused(origin: str) -> None:
    async with gateway() as app:
        response = await Visitor(app, origin=origin).post(PING)
        assert response.status == 403
        assert response.error["code"] == -32600 and response.last["id"] is None
        assert "http.allowed_origins" in response.error["message"]


@pytest.mark.parametrize("origin", ["http://localhost:5173", "http://127.0.0.1", "https://[::1]:8080"])
async def test_an_origin_on_loopback_is_let_in(origin: str) -> None:
    async with gateway() as app:
        assert (await Visitor(app, origin=origin).post(PING)).status == 200


async def test_an_origin_that_is_configured_is_let_in() -> None:
    config = Config(http=Http(allowed_origins=("https://good.example",)))
    async with gateway(config=config) as app:
        assert (await Visitor(app, origin="https://good.example").post(PING)).status == 200
        assert (await Visitor(app, origin="https://good.example.evil.example").post(PING)).status == 403


@pytest.mark.promise("spec.2026.http.origin")
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8765", "", "[", "user@evil.example"])
async def test_a_foreign_host_is_refused(host: str) -> None:
    async with gateway() as app:
        response = await Visitor(app, host=host).post(PING)
        assert response.status == 403
        assert "http.allowed_hosts" in response.error["message"]


@pytest.mark.promise("spec.2026.http.origin")
async def test_a_request_without_a_host_is_refused() -> None:
    async with gateway() as app:
        assert (await Visitor(app).post(PING, headers={"host": None})).status == 403


async def test_a_host_that_is_configured_or_loopback_is_let_in() -> None:
    async with gateway(config=Config(http=Http(allowed_hosts=("gate.example",)))) as app:
        for host in ("gate.example", "gate.example:443", "localhost", "localhost:3000", "[::1]:8765"):
            assert (await Visitor(app, host=host).post(PING)).status == 200


@pytest.mark.promise("spec.2026.http.origin")
@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
async def test_the_guards_stand_before_every_method(method: str) -> None:
    async with gateway() as app:
        assert (await Visitor(app, origin="https://evil.example").send(method, PING)).status == 403


# Where one may go.


@pytest.mark.parametrize("path", ["/", "", "/mcp2", "/mcp/servers", "/mcp/servers/nope", "/x/sse", "/../mcp", "//mcp"])
async def test_another_path_is_not_found(path: str) -> None:
    async with gateway() as app:
        response = await Visitor(app, path).post(PING)
        assert response.status == 404
        assert "the endpoint is /mcp" in response.error["message"]


@pytest.mark.promise("001.endpoint.one", "001.methods.aggregate")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/mcp/aggregate"])
async def test_the_endpoint_is_found(path: str) -> None:
    async with gateway() as app:
        assert (await Visitor(app, path).post(PING)).status == 200


@pytest.mark.parametrize("method", ["PUT", "HEAD", "OPTIONS", "PATCH", "CONNECT", "post"])
async def test_another_method_is_not_allowed(method: str) -> None:
    async with gateway() as app:
        response = await Visitor(app).send(method)
        assert (response.status, response.headers["allow"]) == (405, "POST, GET, DELETE")


# What a body may be.


@pytest.mark.promise("001.errors.codes", "spec.2026.transports.utf8")
@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"nonsense"])
async def test_malformed_json_is_a_parse_error(body: bytes) -> None:
    async with gateway() as app:
        response = await Visitor(app).post(body)
        assert (response.status, response.error["code"], response.last["id"]) == (400, -32700, None)
        assert not app.sessions.all()


@pytest.mark.promise("001.errors.codes")
@pytest.mark.parametrize("body", [b"[]", b"7", b'{"id":7}', b'{"jsonrpc":"2.0","id":7,"method":"x","params":[]}'])
async def test_json_that_is_no_message_is_an_invalid_request(body: bytes) -> None:
    async with gateway() as app:
        response = await Visitor(app).post(body)
        assert (response.status, response.error["code"]) == (400, -32600)
        assert response.last["id"] in (None, 7)


@pytest.mark.promise("001.errors.codes", "spec.2026.http.unknown-method")
async def test_an_unknown_method_is_not_found() -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        legacy = await visitor.ask("tools/fly")
        assert (legacy.status, legacy.error["code"]) == (200, -32601)
        modern = await visitor.ask_modern("tools/fly")
        assert (modern.status, modern.error["code"]) == (404, -32601)


@pytest.mark.promise("b.errors.not-found")
@pytest.mark.parametrize("params", [{"name": 7}, {}, {"name": "greeter__greet", "arguments": []}, {"_meta": []}])
async def test_parameters_out_of_shape_are_invalid(params: dict[str, Any]) -> None:
    async with gateway() as app:
        response = await Visitor(app).ask("tools/call", **params)
        assert (response.status, response.error["code"]) == (200, -32602)


@pytest.mark.promise("003.methods.served")
async def test_an_id_comes_back_as_it_was_written() -> None:
    async with gateway() as app:
        for id in (b'"\\u0061"', b"1.50", b"-0", b'""', b"18446744073709551617"):
            response = await Visitor(app).post(PING.replace(b"1", id, 1).replace(b"2.0", b"2.0"))
            assert response.body == b'{"jsonrpc":"2.0","id":' + id + b',"result":{}}'


# How large a body may be.

SMALL = Config(http=Http(body_limit=1000))


def padded(size: int) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"pad": ""}}).encode()
    return body.replace(b'""', b'"' + b"x" * (size - len(body)) + b'"')


async def test_a_body_up_to_the_limit_is_read_in_one_piece_or_many() -> None:
    async with gateway(config=SMALL) as app:
        body = padded(1000)
        for pieces in ([body], [body[at : at + 7] for at in range(0, 1000, 7)], [b"", body, b""]):
            response = await Visitor(app, content_length="1000").send("POST", *pieces)
            assert (response.status, response.result) == (200, {})


@pytest.mark.parametrize("length", [None, "1001", "0", "nonsense", "-5", "\xb2", "9" * 5000])
async def test_a_body_over_the_limit_is_refused_whatever_its_length_was_said_to_be(length: str | None) -> None:
    async with gateway(config=SMALL) as app:
        body = padded(1001)
        for pieces in ([body], [body[:600], body[600:]], [body, body, b""]):
            response = await Visitor(app).send("POST", *pieces, headers={"content-length": length})
            assert response.status == 413
            assert response.error["code"] == -32600 and "http.body_limit" in response.error["message"]
        assert (await Visitor(app).post(PING)).status == 200


async def test_a_body_over_the_limit_is_read_to_its_end_so_that_its_sender_hears_the_refusal() -> None:
    async with gateway(config=SMALL) as app:
        exchange = Visitor(app).begin("POST", *[b"x" * 900] * 50, headers={"content-length": "45000"})
        assert (await exchange.response()).status == 413
        assert exchange.parts_left == 0
        assert "connection" not in exchange.so_far.headers


@pytest.mark.parametrize(
    "more", [{"content-length": "99999999999"}, {"content-length": "1001", "expect": "100-continue"}]
)
async def test_a_body_that_is_far_too_large_or_not_yet_sent_is_not_read(more: dict[str, str | None]) -> None:
    async with gateway(config=SMALL) as app:
        exchange = Visitor(app).begin("POST", b"", headers=more)
        assert (await exchange.response()).status == 413
        assert exchange.parts_left == 1
        assert exchange.so_far.headers["connection"] == "close"


async def test_a_body_without_an_end_is_not_read_for_ever() -> None:
    async with gateway(config=SMALL) as app:
        exchange = Visitor(app).begin("POST", *[bytes(1024 * 1024)] * 70, None)
        assert (await exchange.response()).status == 413
        assert 0 < exchange.parts_left < 10
        assert exchange.so_far.headers["connection"] == "close"


async def test_a_client_that_leaves_in_the_middle_of_its_body_harms_nobody() -> None:
    async with gateway() as app:
        exchange = Visitor(app).begin("POST", PING[:10], None)
        await settle()
        await exchange.gone()
        assert not app.sessions.all()
        assert (await Visitor(app).post(PING)).status == 200


# JSON or a stream.


@pytest.mark.promise("001.endpoint.json")
@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "", "text/html"])
async def test_who_does_not_accept_a_stream_gets_json_and_no_notes(accept: str | None) -> None:
    async with gateway(GREETER) as app:
        visitor = Visitor(app)
        call = visitor.request("tools/call", name="greeter__count", _meta={"progressToken": 1})
        response = await visitor.post(call, headers={"accept": accept})
        assert response.headers["content-type"] == "application/json"
        assert len(response.messages) == 1 and response.result["content"]


@pytest.mark.promise("001.endpoint.stream", "spec.2026.progress.token")
@pytest.mark.parametrize("accept", ["text/event-stream", "application/json, text/event-stream", "Text/Event-Stream"])
async def test_who_accepts_a_stream_gets_one_where_there_is_more_to_say(accept: str) -> None:
    async with gateway(GREETER) as app:
        visitor = Visitor(app, accept=accept)
        response = await visitor.ask("tools/call", name="greeter__count", arguments={}, _meta={"progressToken": "t"})
        assert response.is_stream and response.headers["cache-control"].startswith("no-cache")
        *notes, last = response.messages
        assert [note["params"]["progress"] for note in notes] == [1, 2, 3]
        assert {note["params"]["progressToken"] for note in notes} == {"t"}
        assert last["result"]["content"][0]["text"] == "Counted to 3."


@pytest.mark.promise("spec.legacy.ping")
async def test_a_quick_answer_is_json_for_everybody() -> None:
    async with gateway() as app:
        assert not (await Visitor(app).post(PING)).is_stream


@pytest.mark.promise("spec.2026.sse.keep-alive")
async def test_a_long_call_shows_that_it_lives() -> None:
    answers = {"tools_list": TOOLS, "tools_call": ...}
    script = Scripted(**answers)
    async with gateway(scripts={"slow": script}) as app:
        visitor = Visitor(app)
        exchange = visitor.begin("POST", json.dumps(visitor.request("tools/call", name="slow__echo")).encode())
        await app.clock.sleep(50)
        assert exchange.so_far.is_stream
        assert exchange.so_far.body == b": keep-alive\n\n" * 3
        script.answer_last(said("at last"))
        response = await exchange.response()
        assert response.result == said("at last")


# What passes through.


@pytest.mark.promise("001.tools-call.result")
@pytest.mark.parametrize(
    "body",
    [
        b'{ "content" : [ ] , "x" : 1.0000 , "big" : 123456789012345678901234567890 }',
        b'{"content":[{"type":"text","text":"\\u00e9 \\/ \xc3\xa9"}],"structuredContent":{"a":[1e2,-0.0]},"_meta":{}}',
        b'{"content":[{"type":"hologram","data":{"x":[]}}],"isError":true,"dup":1,"dup":2}',
    ],
)
async def test_a_result_reaches_its_client_byte_by_byte(body: bytes) -> None:
    async with gateway(scripts={"docs": Scripted(tools_list=TOOLS, tools_call=body)}) as app:
        response = await Visitor(app).post(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"docs__echo"}}'
        )
        assert response.body == b'{"jsonrpc":"2.0","id":1,"result":' + body + b"}"
        visitor = Visitor(app)
        request = json.dumps(visitor.modern_request("tools/call", name="docs__echo")).encode()
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "docs__echo"}
        response = await visitor.post(request, headers=headers)
        assert response.body.endswith(b'"result":' + body.replace(b"{", b'{"resultType":"complete",', 1) + b"}")


async def test_arguments_reach_the_server_byte_by_byte() -> None:
    heard: list[bytes] = []
    script = Scripted(tools_list=TOOLS, tools_call=said(""))
    script.on_bytes = heard.append
    arguments = b'{ "a" : 1.0000, "b":"\\u00e9", "n":12345678901234567890123 }'
    async with gateway(scripts={"docs": script}) as app:
        await Visitor(app).post(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":'
            + arguments
            + b',"name":"docs__echo"}}'
        )
    assert arguments in heard[-1]


@pytest.mark.promise("001.endpoint.accept-stream-alone")
@pytest.mark.parametrize("accept", ["text/event-stream", "Text/Event-Stream;q=0.9"])
async def test_who_accepts_nothing_but_a_stream_gets_one_in_any_case(accept: str) -> None:
    async with gateway() as app:
        legacy = await Visitor(app, accept=accept).post(PING)
        modern = await Visitor(app, accept=accept).ask("tools/list")
        for response in (legacy, modern):
            assert response.headers["content-type"].startswith("text/event-stream")
            assert "result" in response.messages[-1]
