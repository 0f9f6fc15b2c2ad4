"""Tool components, scripted byte by byte on a socket: what is asked of them, and every way that they may answer."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw
from processes.ground import LEGACY, MODERN, Served, failure, gateway, real, until
from processes.scripted_component import ScriptedComponent, component, echoes, said, tool
from processes.scripted_http import OnCall, Request, serving
from processes.test_http_link import writes

from toolgate.config import CatalogLimits, Config, Server
from toolgate.core.clock import SystemClock
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Done, Event, Outcome
from toolgate.eras import calls
from toolgate.upstreams.base import Items
from toolgate.upstreams.bounds import Bounds
from toolgate.upstreams.component import upstream as upstream_module
from toolgate.upstreams.component.upstream import ComponentUpstream
from toolgate.upstreams.links import LinkDeps, whole
from toolgate.upstreams.pool import Pool
from toolgate.upstreams.process.supervisor import Supervisor
from toolgate.upstreams.stopping import was_stopped


def server(url: str, id: str = "echo", **more: Any) -> Server:
    return Server(**{"id": id, "name": id.replace("-", "_"), "type": "component", "url": url, **more})


@asynccontextmanager
async def upstream(of: Server | ScriptedComponent, **more: Any) -> AsyncIterator[ComponentUpstream]:
    clock = SystemClock()
    events: list[Event] = more.pop("events", [])
    bounds: Bounds = more.pop("bounds", None) or Bounds()
    told = of if isinstance(of, Server) else server(of.url + more.pop("path", ""), **more)
    deps = LinkDeps(clock, Supervisor(clock, {}), Pool(clock), bounds=bounds)
    found = ComponentUpstream(told, deps, events.append)
    try:
        yield found
    finally:
        await found.close()


def call(name: str = "echo", arguments: bytes = b'{"message":"hi"}', method: str = "tools/call") -> Call:
    return Call(method, name, Client(), Raw(arguments), "echo")


def body(outcome: Outcome) -> bytes:
    assert isinstance(outcome, Done)
    return bytes(outcome.body)


def names(items: Items) -> list[str]:
    return [json.loads(bytes(raw))["name"] for raw in items.raw]


async def fault(work: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        await work
    return caught.value


@real
async def test_why_it_has_failed_keeps_nothing_of_the_calls_that_were_told_so() -> None:
    async with upstream(server("http://127.0.0.1:1/")) as echo:
        told = await fault(echo.invoke(call()))
        kept = echo._fault  # pyright: ignore[reportPrivateUsage]
        assert kept and kept.message in told.message
        assert kept.__traceback__ is kept.__context__ is kept.__cause__ is None


# What it says of itself.


@pytest.mark.promise("003.flow.discovery", "003.component.post")
@pytest.mark.parametrize(("path", "posted"), [("", "/"), ("/", "/"), ("/tools/echo?key=1", "/tools/echo?key=1")])
@real
async def test_one_object_is_one_tool_that_is_posted_to_the_same_url(path: str, posted: str) -> None:
    async with component() as script, upstream(script, path=path) as echo:
        listed = await echo.list("tools", Client())
        assert json.loads(bytes(listed.raw[0])) == script.metadata
        await echo.invoke(call())
        assert [(request.verb, request.path) for request in script.requests] == [("GET", posted), ("POST", posted)]


@pytest.mark.promise("003.flow.discovery", "003.component.post")
@pytest.mark.parametrize(
    ("path", "posted"), [("", "/add"), ("/", "/add"), ("/math", "/math/add"), ("/math/?key=1", "/math/add?key=1")]
)
@real
async def test_of_an_array_each_tool_is_posted_to_a_path_of_its_own(path: str, posted: str) -> None:
    async with component([tool("add"), tool("a b/ü")]) as script, upstream(script, path=path) as math:
        assert names(await math.list("tools", Client())) == ["add", "a b/ü"]
        for name in ("add", "a b/ü"):
            await math.invoke(call(name))
        paths = [request.path for request in script.posts]
        assert paths == [posted, posted.replace("add", "a%20b%2F%C3%BC")]


@real
async def test_a_listing_passes_through_as_the_bytes_that_it_came_in() -> None:
    written = (
        b'[ {"name":"echo", "inputSchema":{"type":"object","x":1.0},  "x-own":[1e2]} , {"name":"b","inputSchema":{}}]'
    )
    async with component(written) as script, upstream(script) as echo:
        first, second = (await echo.list("tools", Client())).raw
        assert bytes(first) == b'{"name":"echo", "inputSchema":{"type":"object","x":1.0},  "x-own":[1e2]}'
        assert bytes(second) == b'{"name":"b","inputSchema":{}}'


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"inputSchema": {}}, "Object missing required field `name`"),
        ({"name": "", "inputSchema": {}}, "Expected `str` of length >= 1 - at `$.name`"),
        ({"name": 7, "inputSchema": {}}, "Expected `str`, got `int` - at `$.name`"),
        ({"name": "b"}, "Object missing required field `inputSchema`"),
        ({"name": "b", "inputSchema": []}, "Expected `object`, got `array` - at `$.inputSchema`"),
        (["b"], "Expected `object`, got `array`"),
        (tool("echo", title="another"), "a second tool with the name echo"),
        (tool(".."), "the name .. cannot be part of a path"),
        (tool("."), "the name . cannot be part of a path"),
    ],
)
@real
async def test_a_tool_that_is_out_of_shape_is_left_out_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture, wrong: Any, said: str
) -> None:
    async with component([tool("echo"), wrong, tool("last")]) as script, upstream(script) as echo:
        with caplog.at_level(logging.WARNING, "toolgate"):
            assert names(await echo.list("tools", Client())) == ["echo", "last"]
        assert f"echo: ignored a tool: {said}" in caplog.text


@pytest.mark.parametrize(
    ("metadata", "status", "code", "said"),
    [
        (b"<html>", "200 OK", "UPSTREAM_ERROR", "answered GET with an invalid tool: JSON is malformed"),
        (b'{"name":"\xff"}', "200 OK", "UPSTREAM_ERROR", "it is not valid JSON"),
        (b"", "200 OK", "UPSTREAM_ERROR", "answered GET with an invalid tool"),
        ({"error": "out of order"}, "200 OK", "UPSTREAM_ERROR", "missing required field `name`"),
        ([{"nome": "echo"}], "200 OK", "UPSTREAM_ERROR", "missing required field `name`"),
        ("down", "503 Service Unavailable", "SERVER_FAILED", 'answered GET with HTTP 503: "down"'),
        (tool(), "404 Not Found", "SERVER_FAILED", "answered GET with HTTP 404"),
    ],
)
@real
async def test_what_is_no_tool_at_all_is_a_fault(metadata: Any, status: str, code: str, said: str) -> None:
    async with component(metadata, status=status) as script, upstream(script) as echo:
        found = await fault(echo.list("tools", Client()))
        assert (found.code, found.reach) == (code, "not_sent") and said in found.message
        shown = echo.status()
        assert (shown.state, shown.error) == ("failed", found.message)
        script.metadata, script.status = tool(), "200 OK"
        assert names(await echo.list("tools", Client())) == ["echo"]
        assert (echo.status().state, echo.status().error) == ("ready", "")


FEW = Bounds(CatalogLimits(items=2, bytes=1000))


@pytest.mark.parametrize(
    ("metadata", "most"),
    [
        ([tool("a"), tool("b")], ""),
        ([tool("a"), tool("b"), tool("c")], "2 items (catalog.items)"),
        ([tool("a"), *[7] * 30], "2 items (catalog.items)"),
        ([tool("a", description="x" * 1000)], "1,000 bytes (catalog.bytes)"),
        (tool("a", description="x" * 1000), "1,000 bytes (catalog.bytes)"),
    ],
)
@real
async def test_its_list_is_as_long_as_that_of_any_server_at_most(metadata: Any, most: str) -> None:
    """One of 60,000 tools held up everybody else for a second, each time that it was asked."""
    async with component(metadata) as script, upstream(script, bounds=FEW) as echo:
        if not most:
            assert names(await echo.list("tools", Client())) == ["a", "b"]
            return
        for work in (echo.list("tools", Client()), echo.invoke(call("a"))):
            found = await fault(work)
            assert found.code == "UPSTREAM_ERROR"
            assert f"The server's list of tools is too long: it has more than {most}" in found.message
        assert not script.posts and echo.status().state == "failed"


@real
async def test_a_name_that_no_request_can_have_is_left_out() -> None:
    long = "x" * (calls.LONGEST_NAME + 1)
    async with component([tool(long), tool(long[1:])]) as script, upstream(script) as echo:
        listed = await echo.list("tools", Client())
        assert names(listed) == [long[1:]]
        assert [f"more than {calls.LONGEST_NAME:,} characters of a name" in each for each in listed.ignored] == [True]
        await echo.invoke(call(long[1:]))


@real
async def test_the_head_of_a_request_is_made_when_a_tool_is_called_and_few_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    head = whole.HttpClient.head
    monkeypatch.setattr(upstream_module, "MOST_HEADS", 2)
    monkeypatch.setattr(
        whole.HttpClient, "head", lambda self, *of, **more: (made.append(of[-1]), head(self, *of, **more))[1]
    )
    async with component([tool(f"t{number}") for number in range(100)]) as script, upstream(script) as echo:
        await echo.list("tools", Client())
        for name in ("t1", "t2", "t1", "t3", "t2", "t1"):
            await echo.invoke(call(name))
        assert made == ["GET", "/t1", "/t2", "/t3", "/t1"]
        assert [request.path for request in script.posts] == ["/t1", "/t2", "/t1", "/t3", "/t2", "/t1"]


@real
async def test_one_that_has_no_tools_is_not_asked_again_and_again_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_module, "AGAIN", 1000.0)
    async with component([]) as script, upstream(script) as echo:
        for number in range(5):
            assert (await fault(echo.invoke(call(f"none {number}")))).code == "TOOL_NOT_FOUND"
        assert len(script.gets) == 1


@real
async def test_it_is_asked_once_however_many_wait() -> None:
    async with component() as script, upstream(script) as echo:
        script.held.clear()
        work = [asyncio.ensure_future(echo.list("tools", Client())) for _ in range(5)]
        work += [asyncio.ensure_future(echo.invoke(call())) for _ in range(5)]  # type: ignore[misc]
        await until(lambda: script.gets)
        script.held.set()
        await asyncio.gather(*work)
        assert len(script.gets) == 1


@pytest.mark.promise("003.flow.discovery")
@real
async def test_what_was_fetched_at_the_start_is_the_first_list() -> None:
    async with component() as script, upstream(script) as echo:
        await echo.open()
        assert names(await echo.list("tools", Client())) == ["echo"]
        assert len(script.gets) == 1
        await echo.list("tools", Client())
        assert len(script.gets) == 2


@real
async def test_a_tool_that_has_come_since_is_asked_for_and_clients_hear_of_it() -> None:
    events: list[Event] = []
    async with component([tool("one")]) as script, upstream(script, events=events) as echo:
        await echo.list("tools", Client())
        script.metadata = [tool("one"), tool("two")]
        await echo.invoke(call("two"))
        assert events == [Event("echo", "opened"), Event("echo", "list_changed", "", ("tools",))]
        found = await fault(echo.invoke(call("three")))
        assert (found.code, found.reach) == ("TOOL_NOT_FOUND", "not_sent")
        assert len(script.posts) == 1


@real
async def test_it_is_not_asked_again_and_again_for_tools_that_it_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_module, "AGAIN", 1000.0)
    async with component([tool("one")]) as script, upstream(script) as echo:
        await echo.list("tools", Client())
        for number in range(5):
            assert (await fault(echo.invoke(call(f"none {number}")))).code == "TOOL_NOT_FOUND"
        assert len(script.gets) == 2, "for its list, and for the first name"
        await echo.invoke(call("one"))
        script.metadata = [tool("one"), tool("two")]
        monkeypatch.setattr(upstream_module, "AGAIN", 0.0)
        await echo.invoke(call("two"))


@real
async def test_it_has_nothing_but_tools() -> None:
    async with component() as script, upstream(script) as echo:
        for kind in ("prompts", "resources", "resourceTemplates"):
            assert await echo.list(kind, Client()) == Items()
        for method, code in (("prompts/get", "PROMPT_NOT_FOUND"), ("resources/read", "RESOURCE_NOT_FOUND")):
            assert (await fault(echo.invoke(call(method=method)))).code == code
        assert (await echo.about(Client())).capabilities == {"tools": {}}
        assert (await fault(echo.watch("x:y", Client()))).code == "METHOD_NOT_FOUND"
        assert script.requests == []


@real
async def test_one_that_is_back_is_asked_anew_what_it_has() -> None:
    events: list[Event] = []
    script = ScriptedComponent([tool("one")])
    await script.start()
    async with upstream(server(script.url), events=events) as echo:
        await echo.invoke(call("one"))
        await script.stop()
        while (found := await fault(echo.invoke(call("one")))).reach != "not_sent":
            pass  # a kept connection was not yet known to be closed
        assert found.code == "SERVER_FAILED"
        async with serving(ScriptedComponent(tool("one")), script.port) as again:
            await echo.invoke(call("one"))
            assert [request.path for request in again.posts] == ["/"]
    assert events == [Event("echo", "opened")] * 2


# A call.


@real
async def test_a_tool_gets_the_bytes_of_the_arguments_and_their_length() -> None:
    async with component() as script, upstream(script, headers={"X-Key": "k"}) as echo:
        for arguments in (b'{"message": "\xc3\xbc",  "n":1.0}', b""):
            await echo.invoke(call(arguments=arguments))
        first, second = script.posts
        assert (first.body, second.body) == (b'{"message": "\xc3\xbc",  "n":1.0}', b"{}")
        assert (first.headers["content-length"], second.headers["content-length"]) == (str(len(first.body)), "2")
        assert first.headers["content-type"] == first.headers["accept"] == "application/json"
        assert first.headers["host"] == f"127.0.0.1:{script.port}"
        assert {request.headers["x-key"] for request in script.requests} == {"k"}


@pytest.mark.promise("003.component.post")
@pytest.mark.parametrize(
    "result",
    [
        b'{ "content":[{"type":"text","text":"no"}],"isError" : true }',
        b'{"content":[],"structuredContent":{"n":1.0},"_meta":{"a":[ ]},"own":1e2}\n',
    ],
)
@real
async def test_a_result_passes_through_as_the_bytes_that_it_came_in(result: bytes) -> None:
    async with component(on_post=writes(lambda request: request.whole(result))) as script, upstream(script) as echo:
        assert body(await echo.invoke(call())) == result


def bare(request: Request) -> None:
    request.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(said("ok")) + said("ok"))


def until_close(request: Request) -> None:
    request.write(b"HTTP/1.1 200 OK\r\n\r\n" + said("ok"))
    request.connection.close()


def http_1_0(request: Request) -> None:
    request.write(b"HTTP/1.0 200 OK\r\n\r\n" + said("ok"))
    request.connection.close()


def chunked(request: Request) -> None:
    request.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for piece in (said("ok")[:9], said("ok")[9:]):
        request.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    request.write(b"0\r\n\r\n")


def mislabelled(request: Request) -> None:
    request.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n" + said("ok"))
    request.connection.close()


@pytest.mark.promise("003.component.post")
@pytest.mark.parametrize(
    "framing", [bare, until_close, http_1_0, chunked, mislabelled], ids=lambda framing: framing.__name__
)
@real
async def test_every_framing_of_an_answer_is_understood(framing: Callable[[Request], None]) -> None:
    async with component(on_post=writes(framing)) as script, upstream(script) as echo:
        assert [body(await echo.invoke(call())) for _ in range(3)] == [said("ok")] * 3


@pytest.mark.promise("003.component.post")
@pytest.mark.parametrize(
    ("status", "answer", "shown", "reach"),
    [
        ("500 Internal Server Error", b"boom", "500): boom", "sent_unknown"),
        ("404 Not Found", b'{"content":[]}', '404): {"content":[]}', "sent_unknown"),
        ("201 Created", said("ok"), f"201): {said('ok').decode()}", "sent_unknown"),
        ("302 Found", b"", "302): ", "sent_unknown"),
        ("200 OK", b"plain", "200): plain", "sent_unknown"),
        ("200 OK", b"", "200): ", "sent_unknown"),
        ("200 OK", b'"text"', '200): "text"', "sent_unknown"),
        ("200 OK", b'[{"content":[]}]', '200): [{"content":[]}]', "sent_unknown"),
        ("200 OK", b'{"result":1}', '200): {"result":1}', "sent_unknown"),
        ("200 OK", b'{"content":"hi"}', '200): {"content":"hi"}', "sent_unknown"),
        ("200 OK", b'{"content":["\xff"]}', '200): {"content":["\ufffd"]}', "sent_unknown"),
        ("200 OK", b'{"content":[]', '200): {"content":[]', "sent_unknown"),
        ("500 Internal Server Error", b"x" * 3000, "500): " + "x" * 2000 + "…", "sent_unknown"),
    ],
)
@real
async def test_an_answer_that_is_none_is_a_fault_that_shows_it(
    status: str, answer: bytes, shown: str, reach: str
) -> None:
    on_post = writes(lambda request: request.whole(answer, status))
    async with component(on_post=on_post) as script, upstream(script) as echo:
        found = await fault(echo.invoke(call()))
        assert found.message == f"Tool execution failed (status {shown}"
        assert (found.code, found.rpc, found.reach) == ("UPSTREAM_ERROR", -32603, reach)
        assert echo.status().state == "ready"


@real
async def test_a_component_that_has_moved_says_where_to() -> None:
    on_post = writes(lambda request: request.whole(b"", "308 Permanent Redirect", "Location: /new"))
    async with component(on_post=on_post) as script, upstream(script) as echo:
        assert f"set its url to {script.url}/new" in (await fault(echo.invoke(call()))).hint


@real
async def test_an_endless_refusal_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "MOST_OF_A_REFUSAL", 100)
    on_post = writes(lambda request: request.whole(b"x" * 100_000, "500 Internal Server Error"))
    async with component(on_post=on_post) as script, upstream(script) as echo:
        assert (await fault(echo.invoke(call()))).message == f"Tool execution failed (status 500): {'x' * 100}"


@real
async def test_an_answer_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "LONGEST_MESSAGE", 1000)
    on_post = writes(lambda request: request.whole(said("x" * 1000)))
    async with component(on_post=on_post) as script, upstream(script) as echo:
        found = await fault(echo.invoke(call()))
        assert found.message == "Tool execution failed: its answer has more than 1000 bytes"
        assert (found.code, found.reach) == ("SERVER_FAILED", "executed")
        assert await echo.list("tools", Client())


@real
async def test_a_component_that_is_down_is_a_fault_until_it_is_up() -> None:
    async with component() as script:
        port = script.port
    async with upstream(server(f"http://127.0.0.1:{port}", timeout=5)) as echo:
        listed = await fault(echo.list("tools", Client()))
        assert listed.message == f"Cannot reach http://127.0.0.1:{port}/: Connection refused"
        called = await fault(echo.invoke(call()))
        assert called.message == f"Tool execution failed: {listed.message}"
        assert [(found.code, found.reach) for found in (listed, called)] == [("SERVER_FAILED", "not_sent")] * 2
        assert "start it" in listed.hint and called.hint == listed.hint
        script = ScriptedComponent()
        await script.start(port)
        assert body(await echo.invoke(call())) == said("hi")
        await script.stop()
        again = await fault(echo.invoke(call()))
        assert again.code == "SERVER_FAILED" and again.message.startswith("Tool execution failed: ")


@pytest.mark.parametrize(("url", "said"), [("ftp://x", "not an http(s) URL"), ("http://x:99999", "out of range")])
@real
async def test_what_is_no_url_is_a_fault_of_its_server(url: str, said: str) -> None:
    async with upstream(server(url)) as echo:
        assert said in (await fault(echo.list("tools", Client()))).message.replace("Port", "port")


@pytest.mark.promise("003.flow.routing")
@real
async def test_a_name_in_a_url_is_the_servers_in_kebab_case() -> None:
    told = Server(id="weather-report", name="weather_report", type="component", url="http://{name}.spin.internal/")
    async with upstream(told) as echo:
        found = await fault(echo.list("tools", Client()))
        assert found.message.startswith("Cannot reach http://weather-report.spin.internal/: ")
        assert "component_url" in found.hint
    async with component() as script, upstream(script, path="/{name}", id="weather-report") as echo:
        await echo.invoke(call())
        assert {request.path for request in script.requests} == {"/weather-report"}


@real
async def test_a_connection_that_breaks_leaves_open_what_happened() -> None:
    on_post = writes(lambda request: request.connection.reset())
    async with component(on_post=on_post) as script, upstream(script) as echo:
        found = await fault(echo.invoke(call()))
        assert (found.code, found.reach) == ("SERVER_FAILED", "sent_unknown")
        assert found.message.startswith("Tool execution failed: the connection broke")


class Holding:
    """Holds every answer until the test says which it wants."""

    def __init__(self) -> None:
        self.held: list[Request] = []

    async def __call__(self, request: Request) -> None:
        self.held.append(request)

    async def until(self, number: int) -> None:
        await until(lambda: len(self.held) == number)


@real
async def test_a_call_that_takes_too_long_is_ended() -> None:
    holding = Holding()
    async with component(on_post=holding) as script, upstream(script, timeout=0.3) as echo:
        found = await fault(echo.invoke(call()))
        assert found.message == "Tool execution failed: no answer within 0.3 s"
        assert (found.code, found.reach) == ("TIMEOUT", "sent_unknown")
        await until(lambda: holding.held[0].connection.is_closed)


@real
async def test_a_component_that_does_not_say_what_it_has_is_waited_for_no_longer_than_allowed() -> None:
    async with component() as script, upstream(script, timeout=0.3) as echo:
        script.held.clear()
        found = await fault(echo.list("tools", Client()))
        assert found.code == "TIMEOUT" and found.message == f"{script.url}/ did not list its tools within 0.3 s"
        called = await fault(echo.invoke(call()))
        assert (called.code, called.reach) == ("TIMEOUT", "not_sent")
        assert called.message == f"Tool execution failed: {found.message}"
        script.held.set()


@real
async def test_a_call_that_is_given_up_closes_its_request() -> None:
    holding = Holding()
    async with component(on_post=holding) as script, upstream(script) as echo:
        work = asyncio.ensure_future(echo.invoke(call()))
        await holding.until(1)
        assert (echo.calls, echo.status().state) == (1, "busy")
        work.cancel()
        await until(lambda: holding.held[0].connection.is_closed)
        assert (echo.calls, echo.status().state) == (0, "ready")


@real
async def test_calls_are_in_flight_together() -> None:
    holding = Holding()
    async with component(on_post=holding) as script, upstream(script) as echo:
        work = [asyncio.ensure_future(echo.invoke(call(arguments=b'{"message":"%d"}' % n))) for n in range(16)]
        await holding.until(16)
        for request in reversed(holding.held):
            await echoes(request)
        assert [body(await each) for each in work] == [said(str(n)) for n in range(16)]


@real
async def test_no_more_calls_run_at_once_than_is_configured() -> None:
    holding = Holding()
    async with component(on_post=holding) as script, upstream(script, concurrency=2) as echo:
        work = [asyncio.ensure_future(echo.invoke(call())) for _ in range(5)]
        for number in (2, 3, 4, 5):
            await holding.until(number)
            assert len(script.posts) == number and echo.calls == 7 - number
            await echoes(holding.held[number - 2])
            await until(lambda: sum(each.done() for each in work) == number - 1)
        await echoes(holding.held[4])
        await asyncio.gather(*work)


# Its end.


@real
async def test_one_that_is_stopped_fails_what_is_under_way_and_works_again() -> None:
    holding = Holding()
    async with component(on_post=holding) as script, upstream(script) as echo:
        work = asyncio.ensure_future(echo.invoke(call()))
        await holding.until(1)
        await echo.stop()
        found = await fault(work)
        assert (found.message, found.reach) == ("Tool execution failed: echo was stopped", "sent_unknown")
        assert was_stopped(found)  # so that it is not sent again
        assert echo.status().state == "stopped"
        again = asyncio.ensure_future(echo.invoke(call()))
        await holding.until(2)
        await echoes(holding.held[1])
        assert body(await again) == said("hi") and echo.status().state == "ready"


@real
async def test_one_that_is_stopped_while_it_is_asked_tells_those_who_wait() -> None:
    async with component() as script, upstream(script) as echo:
        script.held.clear()
        listing, calling = (asyncio.ensure_future(work) for work in (echo.list("tools", Client()), echo.invoke(call())))
        await until(lambda: script.gets)
        await echo.stop()
        assert "echo was stopped" in (await fault(listing)).message
        assert (await fault(calling)).reach == "not_sent"
        script.held.set()


@real
async def test_what_is_drained_is_served_until_its_calls_have_ended() -> None:
    holding = Holding()
    async with component(on_post=holding) as script, upstream(script) as echo:
        work = [asyncio.ensure_future(echo.invoke(call())) for _ in range(2)]
        await holding.until(2)
        draining = asyncio.ensure_future(echo.drain(60))
        await echoes(holding.held[0])
        await work[0]
        late = asyncio.ensure_future(echo.invoke(call()))
        await holding.until(3)
        for request in holding.held[1:]:
            await echoes(request)
        assert [body(await each) for each in (*work, late)] == [said("hi")] * 3
        await draining
        assert echo.status().state == "stopped"
        found = await fault(echo.invoke(call()))
        assert found.message == "Tool execution failed: echo is no longer configured" and found.reach == "not_sent"


@real
async def test_what_is_drained_ends_in_its_time_whatever_runs() -> None:
    holding = Holding()
    async with component(on_post=holding) as script, upstream(script) as echo:
        work = asyncio.ensure_future(echo.invoke(call()))
        await holding.until(1)
        await echo.drain(0.1)
        assert (await fault(work)).reach == "sent_unknown"


@real
async def test_it_leaves_no_connection_open() -> None:
    async with component() as script:
        async with upstream(script) as echo:
            await asyncio.gather(*(echo.invoke(call()) for _ in range(8)))
            assert script.open_connections > 1
        await until(lambda: script.open_connections == 0)


# Through the whole gateway.


@asynccontextmanager
async def behind(*servers: Server, **more: Any) -> AsyncIterator[Served]:
    async with gateway(Config(servers=servers, **more)) as served:
        yield served


@pytest.mark.promise("003.component.post", "003.flow.discovery")
@pytest.mark.parametrize("era", [LEGACY, MODERN])
@real
async def test_clients_of_both_eras_list_and_call_it(era: str) -> None:
    async with component() as script, behind(server(script.url)) as served:
        client = served.client(era)
        if era == LEGACY:
            await client.open()
        [listed] = (await client.ask("tools/list"))["tools"]
        assert listed == tool("echo") | {"name": "echo__echo"}
        assert await client.call("echo__echo", message="Hello") == "Hello"
        assert await client.call("echo", message="bare") == "bare"


@pytest.mark.parametrize("era", [LEGACY, MODERN])
@real
async def test_a_tools_own_error_is_a_result_and_any_other_answer_an_error(era: str) -> None:
    answers = [(said("no", isError=True), "200 OK"), (b"boom", "500 Internal Server Error")]
    on_post: OnCall = writes(lambda request: request.whole(*answers[len(script.posts) - 1]))
    async with component(on_post=on_post) as script, behind(server(script.url)) as served:
        client = served.client(era)
        result = await client.ask("tools/call", {"name": "echo__echo", "arguments": {}})
        assert result["isError"] is True and result["content"] == [{"type": "text", "text": "no"}]
        error = await failure(client.call("echo__echo"))
        assert (error.code, error.message) == (-32603, "Tool execution failed (status 500): boom")
        shown = {name: error.data[name] for name in ("code", "server", "tool", "outcome", "retryable")}
        assert shown == {
            "code": "UPSTREAM_ERROR", "server": "echo", "tool": "echo", "outcome": "sent_unknown", "retryable": False
        }  # fmt: skip


@pytest.mark.promise("003.flow.discovery")
@real
async def test_all_are_asked_at_the_start_side_by_side() -> None:
    async with component(tool("one")) as one, component([tool("two")]) as two:
        for script in (one, two):
            script.held.clear()

        async with behind(server(one.url, "one"), server(two.url, "two")) as served:
            await until(lambda: one.gets and two.gets)
            assert [served.status(id).state for id in ("one", "two")] == ["starting", "starting"]
            for script in (one, two):
                script.held.set()
            await until(lambda: [served.status(id).state for id in ("one", "two")] == ["ready", "ready"])
            assert await served.client().tools() == ["one__one", "two__two"]
            assert [len(script.gets) for script in (one, two)] == [1, 1]


@pytest.mark.promise("003.flow.discovery")
@real
async def test_one_that_says_so_is_asked_when_it_is_first_needed() -> None:
    async with component() as script, behind(server(script.url, start="lazy")) as served:
        assert served.status("echo").state == "configured" and not script.gets
        assert await served.client().tools() == ["echo__echo"]


@real
async def test_one_that_is_down_is_shown_beside_the_tools_of_the_others() -> None:
    async with component() as script:
        down = script.port
    async with component() as script, behind(server(script.url), server(f"http://127.0.0.1:{down}", "down")) as served:
        listed = await served.client().ask("tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["echo__echo"]
        assert listed["_meta"]["failures"] == [
            {"server_id": "down", "error": f"Cannot reach http://127.0.0.1:{down}/: Connection refused"}
        ]


@pytest.mark.promise("003.flow.discovery")
@real
async def test_what_it_has_is_asked_again_when_that_may_be_old() -> None:
    async with component() as script, behind(server(script.url), catalog=CatalogLimits(ttl=0.01)) as served:
        client = served.client()
        assert await client.tools() == ["echo__echo"]
        script.metadata = tool("shout")
        again = served.app.clock.now() + 0.02
        await until(lambda: served.app.clock.now() > again)
        assert await client.tools() == ["echo__shout"]


@real
async def test_a_client_that_goes_away_ends_its_call() -> None:
    holding = Holding()
    async with component(on_post=holding) as script, behind(server(script.url)) as served:
        _, writer = await served.client().start("tools/call", {"name": "echo__echo", "arguments": {}})
        await holding.until(1)
        writer.close()
        await until(lambda: holding.held[0].connection.is_closed)
