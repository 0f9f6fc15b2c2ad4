"""Official SDKs end their session at a message that they cannot read, and all servers are lost with it: Python's over
HTTP with SSE and WebSocket at more than 1 MiB, Ruby's over stdio at more than 4 MiB, Java's at a number of more than
1,000 digits. Whatever one server lists, answers or says, no message is like that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from doors.pipes import SseClient, WebSocket
from inmemory import LATEST, MODERN, Refusal, Scripted, Visitor, gateway, said, tools
from virtualtime import FakeClock, settle

from toolgate.config import Server

HELLO: dict[str, Any] = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
MEANT: dict[str, Any] = {"protocolVersion": MODERN, "clientCapabilities": {}, "clientInfo": HELLO["clientInfo"]}
MIB = 1024 * 1024
LONGEST = {"stdio": 10 * MIB, "sse": MIB, "websocket": MIB}  # that the official SDKs take of TypeScript and Python
LONGEST_LIST = {"stdio": 4 * MIB, "sse": MIB, "websocket": MIB}  # and Ruby
WAYS = [(way, revision) for way in LONGEST for revision in (LATEST, MODERN)]


class Pipe:
    """A client that has one session for all servers on one way."""

    def __init__(self, app: Any, way: str, revision: str) -> None:
        self.lines: list[bytes] = []
        self._longest, self._longest_list = LONGEST[way], LONGEST_LIST[way]
        self.say: Callable[[bytes], object]
        self.leave: Callable[[], Awaitable[None]]
        if way == "stdio":
            frontend = app.stdio(self.lines.append)
            self.say, self.leave = (lambda message: frontend.data_received(message + b"\n")), frontend.close
        elif way == "sse":
            stream = SseClient(app.http, "/mcp/sse", [], self.lines.append)
            self.say, self.leave = stream.say, stream.leave
        else:
            socket = WebSocket(app.http, on_message=self.lines.append)
            self.say, self.leave = socket.say, socket.leave
        self._revision = revision
        self._id = 0

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        if self._revision == MODERN:
            params["_meta"] = {f"io.modelcontextprotocol/{name}": value for name, value in MEANT.items()}
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self.say(json.dumps(message).encode())
        while not self.lines:
            await settle()
        line = self.lines.pop()
        assert len(line) < (self._longest_list if method == "tools/list" else self._longest)
        return json.loads(line)

    async def begin(self, capabilities: Mapping[str, Any] = {}) -> None:
        if self._revision == MODERN:
            return
        info, can = {"name": "c", "version": "1"}, dict(capabilities)
        await self.ask("initialize", protocolVersion=self._revision, capabilities=can, clientInfo=info)
        self.say(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')


def long(text: str, size: int) -> str:
    return text * (size // len(text.encode()))


@pytest.mark.parametrize(("way", "revision"), WAYS)
@pytest.mark.parametrize("text", ["a", "\u2028", "\u0085"])
async def test_a_list_of_any_length_comes_in_pages_that_every_client_takes(text: str, way: str, revision: str) -> None:
    listed = [
        {"name": f"t{number}", "description": long(text, 250_000), "inputSchema": {"type": "object"}}
        for number in range(20)
    ]
    body = json.dumps({"tools": listed}, ensure_ascii=False).encode()
    async with gateway(scripts={"evil": Scripted(tools_list=body), "good": Scripted(tools_list=tools("g"))}) as app:
        pipe = Pipe(app, way, revision)
        await pipe.begin()
        names, cursor = list[str](), {}
        while cursor is not None:
            result = (await pipe.ask("tools/list", **cursor))["result"]
            names += [tool["name"] for tool in result["tools"]]
            cursor = {"cursor": result["nextCursor"]} if "nextCursor" in result else None
        assert len(names) == len({*names}) and {"evil__t0", "evil__t19", "good__g"} <= {*names}
        await pipe.leave()


@pytest.mark.parametrize(("way", "revision"), WAYS)
async def test_an_item_that_is_too_long_for_a_line_is_left_out(way: str, revision: str) -> None:
    listed = [{"name": "t", "description": long("\u0085", 3_000_000), "inputSchema": {"type": "object"}}]
    body = json.dumps({"tools": listed}, ensure_ascii=False).encode()
    async with gateway(scripts={"evil": Scripted(tools_list=body), "good": Scripted(tools_list=tools("g"))}) as app:
        pipe = Pipe(app, way, revision)
        await pipe.begin()
        result = (await pipe.ask("tools/list"))["result"]
        assert [tool["name"] for tool in result["tools"]] == ["good__g"]
        await pipe.leave()


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize(
    ("way", "text", "size"),
    [
        *(("stdio", "a", 10_400_000), ("stdio", "a", 30_000_000), ("stdio", "\u0085", 4_000_000)),
        *(("sse", "a", 1_060_000), ("sse", "a", 5_000_000), ("sse", "\u0085", 400_000), ("websocket", "a", 1_060_000)),
    ],
)
async def test_a_result_that_is_too_long_for_a_line_is_an_error_of_its_own_call(
    text: str, size: int, way: str, revision: str
) -> None:
    evil = Scripted(tools_list=tools("t"), tools_call=said(long(text, size)))
    good = Scripted(tools_list=tools("g"), tools_call=said("here"))
    async with gateway(scripts={"evil": evil, "good": good}) as app:
        pipe = Pipe(app, way, revision)
        await pipe.begin()
        refused = await pipe.ask("tools/call", name="evil__t", arguments={})
        assert "over this transport it may have" in refused["error"]["message"]
        assert (
            refused["error"]["data"]["code"] == "UPSTREAM_ERROR" and "result_limit" in refused["error"]["data"]["hint"]
        )
        answered = await pipe.ask("tools/call", name="good__g", arguments={})
        assert answered["result"]["content"] == said("here")["content"]
        await pipe.leave()


@pytest.mark.parametrize(("way", "revision"), WAYS)
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('{"content":[],"isError":null,"structuredContent":null,"_meta":null}', '{"content":[]}'),
        ('{"content":[],"_meta":{"progressToken":null,"a":null}}', '{"content":[],"_meta":{"a":null}}'),
        ('{"content":[],"_meta":[null]}', '{"content":[]}'),
        (
            '{"content":[],"structuredContent":{"a":null},"x":null}',
            '{"content":[],"structuredContent":{"a":null},"x":null}',
        ),
    ],
)
async def test_a_result_has_no_null_in_place_of_what_may_be_left_out(
    said: str, told: str, way: str, revision: str
) -> None:
    evil = Scripted(tools_list=tools("t"), tools_call=said.encode())
    async with gateway(scripts={"evil": evil, "good": Scripted(tools_list=tools("g"))}) as app:
        pipe = Pipe(app, way, revision)
        await pipe.begin()
        result = (await pipe.ask("tools/call", name="evil__t", arguments={}))["result"]
        assert {name: value for name, value in result.items() if name != "resultType"} == json.loads(told)
        await pipe.leave()


async def test_a_client_that_does_not_end_there_gets_a_result_of_megabytes_over_a_websocket() -> None:
    scripts = {"one": Scripted(tools_list=tools("t"), tools_call=said(long("a", 8_000_000)))}
    async with gateway(scripts=scripts) as app:
        heard = list[bytes]()
        socket = WebSocket(app.http, headers=[("user-agent", "node")], on_message=heard.append)
        meta = {f"io.modelcontextprotocol/{name}": value for name, value in MEANT.items()}
        params = {"name": "one__t", "arguments": {}, "_meta": meta}
        socket.say(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode())
        while not heard:
            await settle()
        assert len(json.loads(heard[0])["result"]["content"][0]["text"]) == 8_000_000
        await socket.leave()


@pytest.mark.parametrize("way", LONGEST)
async def test_a_large_tool_is_listed_where_it_has_room(way: str) -> None:
    listed = [
        {"name": name, "description": long("a", size), "inputSchema": {"type": "object"}}
        for name, size in (("before", 100), ("large", 1_000_000), ("behind", 500_000))
    ]
    async with gateway(scripts={"evil": Scripted(tools_list={"tools": listed})}) as app:
        pipe = Pipe(app, way, LATEST)
        await pipe.begin()
        names = [tool["name"] for tool in (await pipe.ask("tools/list"))["result"]["tools"]]
        assert names == ["evil__before", *["evil__large"] * (way == "stdio"), "evil__behind"]
        await pipe.leave()


@pytest.mark.parametrize("way", ["sse", "websocket"])
async def test_answers_that_are_too_long_in_one_array_come_by_themselves(way: str) -> None:
    evil = Scripted(tools_list=tools("t"), tools_call=said(long("a", 600_000)))
    async with gateway(scripts={"evil": evil}) as app:
        pipe = Pipe(app, way, "2025-03-26")
        await pipe.begin()
        call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "evil__t", "arguments": {}}}
        pipe.say(json.dumps([{**call, "id": id} for id in (7, 8)]).encode())
        while len(pipe.lines) < 2:
            await settle()
        assert {json.loads(line)["id"] for line in pipe.lines} == {7, 8}
        assert max(map(len, pipe.lines)) < MIB
        await pipe.leave()


@pytest.mark.parametrize("way", ["sse", "websocket"])
async def test_a_question_that_is_too_long_is_answered_with_why(way: str) -> None:
    evil = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"evil": evil}) as app:
        pipe = Pipe(app, way, LATEST)
        await pipe.begin({"sampling": {}})
        asked = asyncio.ensure_future(pipe.ask("tools/call", name="evil__t", arguments={}))
        while not any(each["method"] == "tools/call" for each in evil.requests):
            await settle()
        content = {"role": "user", "content": {"type": "text", "text": long("a", 1_060_000)}}
        params = {"messages": [content], "maxTokens": 1}
        evil.say(json.dumps({"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage", "params": params}).encode())
        while "error" not in evil.requests[-1]:
            await settle()
        told, call = evil.requests.pop(), evil.requests[-1]
        assert "over this transport it may have" in told["error"]["message"] and call["method"] == "tools/call"
        evil.answer_last(said("done"))
        assert (await asked)["result"] == said("done")
        await pipe.leave()


DIGITS, NAME = "9" * 5_000, "n" * 60_000
FILLER = "a" * 70_000
ODD = {
    "number": f'"result":{{"content":[],"structuredContent":{{"a":{DIGITS}}}}}',
    "name": f'"result":{{"content":[],"structuredContent":{{"{NAME}":1}}}}',
    "name with quotes": '"result":{"content":[],"_meta":{"%s":1}}' % ('n\\":' * 20_000),
    "number in much": f'"result":{{"content":[],"structuredContent":{{"a":{DIGITS},"b":"{FILLER}"}}}}',
    "name in much": f'"result":{{"content":[],"structuredContent":{{"{FILLER}":1,"b":["{FILLER}"]}}}}',
    "levels": f'"result":{{"content":[],"structuredContent":{{"a":{"[" * 125}{"]" * 125}}}}}',
    "levels of an error": f'"error":{{"code":-32000,"message":"no","data":{"[" * 125}{"]" * 125}}}',
    "a block that is none": '"result":{"content":[5]}',
    "a block without a type": '"result":{"content":[{"text":"x"}]}',
    "a message that is none": '"result":{"messages":[5]}',
    "a message without a type": '"result":{"messages":[{"role":"user","content":{"text":"x"}}]}',
    "content that is none": '"result":{"contents":[5]}',
    "number of an error": f'"error":{{"code":-32000,"message":"no","data":{DIGITS}}}',
    "name of an error": f'"error":{{"code":-32000,"message":"no","data":{{"{NAME}":1}}}}',
}


@pytest.mark.parametrize(("way", "revision"), WAYS)
@pytest.mark.parametrize("odd", ODD)
async def test_what_an_sdk_ends_at_is_an_error_of_its_own_call(odd: str, way: str, revision: str) -> None:
    evil = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"evil": evil}) as app:
        pipe = Pipe(app, way, revision)
        await pipe.begin()
        asked = asyncio.ensure_future(pipe.ask("tools/call", name="evil__t", arguments={}))
        while not any(each["method"] == "tools/call" for each in evil.requests):
            await settle()
        evil.say(b'{"jsonrpc":"2.0","id":%d,%b}' % (evil.requests[-1]["id"], ODD[odd].encode()))
        told = json.dumps(await asked)
        assert "which some clients cannot read" in told and DIGITS not in told and NAME not in told
        await pipe.leave()


async def test_at_its_own_path_a_server_says_what_it_likes() -> None:
    async with gateway(scripts={"evil": Scripted(tools_list=tools("t"), tools_call={"content": [5]})}) as app:
        told: list[bytes] = []
        frontend = app.stdio(told.append, "/mcp/servers/evil")
        for id, (method, params) in enumerate([("initialize", HELLO), ("tools/call", {"name": "t", "arguments": {}})]):
            message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
            frontend.data_received(json.dumps(message).encode() + b"\n")
            await settle()
        assert json.loads(told[-1])["result"]["content"] == [5]
        await frontend.close()


async def test_a_log_line_that_the_java_sdk_ends_at_is_not_sent() -> None:
    evil = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"evil": evil}) as app:
        pipe = Pipe(app, "stdio", LATEST)
        await pipe.begin()
        asked = asyncio.ensure_future(pipe.ask("tools/call", name="evil__t", arguments={}))
        while not any(each["method"] == "tools/call" for each in evil.requests):
            await settle()
        log = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":%s}}'
        evil.say((log % DIGITS).encode())
        await settle()
        evil.answer_last(said("done"))
        assert (await asked)["result"] == said("done")
        await pipe.leave()


@pytest.mark.parametrize(("code", "told"), [(-99999999999, -32603), (2**31, -32603), (2**31 - 1, 2**31 - 1)])
async def test_the_code_of_an_error_has_32_bits_over_stdio(code: int, told: int) -> None:
    def refuse(_params: Any) -> Any:
        raise Refusal(code, "no")

    async with gateway(scripts={"evil": Scripted(tools_list=tools("t"), tools_call=refuse)}) as app:
        pipe = Pipe(app, "stdio", LATEST)
        await pipe.begin()
        error = (await pipe.ask("tools/call", name="evil__t", arguments={}))["error"]
        assert (error["code"], error["message"]) == (told, "no")
        await pipe.leave()


@pytest.mark.parametrize("said", [DIGITS, f'{{"{NAME}":1}}'])
async def test_a_log_line_that_the_java_sdk_ends_its_stream_at_reaches_no_session(said: str) -> None:
    evil = Scripted(tools_list=tools("t"))
    own = Server(id="evil", name="evil", type="stdio", command="memory", scope="session")
    async with gateway(own, scripts={"evil": evil}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        stream = visitor.begin("GET", headers={"accept": "text/event-stream"})
        await visitor.ask("tools/list")
        for data in ('"before"', said, '"behind"'):
            log = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":%s}}'
            evil.say((log % data).encode())
            await settle()
        heard = [each["params"]["data"] for each in stream.so_far.messages if "level" in each.get("params", {})]
        assert heard == ["before", "behind"]
        await stream.gone()


async def test_a_websocket_has_no_error_that_the_java_sdk_ends_at() -> None:
    def refuse(_params: Any) -> Any:
        raise Refusal(2**31, DIGITS)

    async with gateway(scripts={"evil": Scripted(tools_list=tools("t"), tools_call=refuse)}) as app:
        told: list[bytes] = []
        socket = WebSocket(app.http, on_message=told.append)
        for id, (method, params) in enumerate(
            [("initialize", HELLO), ("tools/call", {"name": "evil__t", "arguments": {}})]
        ):
            socket.say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            await settle()
        assert json.loads(told[-1])["error"]["code"] == -32603
        await socket.leave()


MUCH = json.dumps(tools(*(f"t{number}" for number in range(10)), description="a" * 200_000)).encode()


async def test_a_slow_list_is_no_event_which_the_python_sdk_would_lose() -> None:
    clock = FakeClock()
    evil = Scripted(tools_list=...)
    async with gateway(scripts={"evil": evil}, clock=clock) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        listing = visitor.begin("POST", json.dumps(visitor.request("tools/list")).encode())
        while not any(each["method"] == "tools/list" for each in evil.requests):
            await settle()
        await clock.advance(1)
        assert not listing.so_far.headers
        evil.answer_last(MUCH)
        response = await listing.response()
        assert not response.is_stream and len(response.result["tools"]) == 10


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_page_that_is_an_event_has_no_more_than_the_python_sdk_takes(revision: str) -> None:
    async with gateway(scripts={"evil": Scripted(tools_list=MUCH)}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        visitor.headers["accept"] = "text/event-stream"
        if revision == MODERN:
            del visitor.headers["mcp-session-id"]
        response = await (visitor.ask_modern if revision == MODERN else visitor.ask)("tools/list")
        assert response.is_stream and len(response.body) < MIB
        assert len(response.result["tools"]) == 4 and response.result["nextCursor"]
