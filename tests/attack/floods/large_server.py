"""A server with large results: `large_server.py CARRIER SHAPE SIZE ERA`. The tool `act`, the resource `x://a` and the
prompt `p` are as large as is said, and so is what `ask` gives once it was answered. `CARRIER` is `stdio`, or one of
`http`, `events`, `sse`, `ws` and `component`, which say their port on stdout and end with their stdin."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CARRIER, SHAPE, SIZE, ERA = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
out = sys.stdout.buffer


def repeated(part: bytes, joint: bytes = b"") -> bytes:
    return joint.join([part] * (SIZE // (len(part) + len(joint)) + 1))


def rows() -> bytes:
    many = (b'{"id":%d,"name":"row %d","ok":true}' % (n, n) for n in range(SIZE // 44))
    return b"[" + b",".join(many) + b"]"


def texts(written: bytes) -> bytes:
    return b'"content":[{"type":"text","text":"%b"}]' % written


SHAPES: dict[str, Callable[[], bytes]] = {
    "text": lambda: texts(repeated(b"seven words of text and a dot. ")),
    "word": lambda: texts(repeated(b"aZ09")),
    "escapes": lambda: texts(repeated(rb"a\n\"b\" \u00e9 \\ ")),
    "letters": lambda: texts(repeated("größer als ein Buchstabe 文字 ".encode())),
    "links": lambda: texts(repeated(rb"a \"resource\" and \u0041 ")),
    "json in text": lambda: texts(rows().replace(b'"', b'\\"')),
    "structured": lambda: b'"content":[],"structuredContent":{"rows":' + rows() + b"}",
    "long texts": lambda: (
        b'"content":[],"structuredContent":{"rows":[' + repeated(b'"' + b"x" * 1000 + b'"', b",") + b"]}"
    ),
    "numbers": lambda: b'"content":[],"structuredContent":{"a":[' + repeated(b"1", b",") + b"]}",
    "objects": lambda: b'"content":[],"structuredContent":{"a":[' + repeated(b"{}", b",") + b"]}",
    "list": lambda: b'"content":[],"structuredContent":[' + repeated(b'"' + b"x" * 500 + b'"', b",") + b"]",
    "items": lambda: b'"content":[' + repeated(b'{"type":"text","text":"a small one"}', b",") + b"]",
    "fewer items": lambda: b'"content":[' + repeated(b'{"type":"text","text":"%b"}' % (b"y" * 4000), b",") + b"]",
    "resources": lambda: (
        b'"content":[' + repeated(b'{"type":"resource_link","uri":"x://%b","name":"n"}' % (b"u" * 4000), b",") + b"]"
    ),
    "deep": lambda: b'"content":[],"structuredContent":{"a":[' + repeated(b"[" * 200 + b"]" * 200, b",") + b"]}",
    "deep texts": lambda: (
        b'"content":[],"structuredContent":{"a":['
        + repeated(b"[" * 200 + b'"' + b"z" * 90_000 + b'"' + b"]" * 200, b",")
        + b"]}"
    ),
    "members": lambda: b'"content":[],' + b",".join(b'"m%d":"%b"' % (n, b"v" * 300) for n in range(SIZE // 312)),
}
LARGE = SHAPES[SHAPE]() if SHAPE in SHAPES else b'"content":[{"type":"text","text":"ok"}]'
text = (
    LARGE if SHAPE in ("text", "word", "escapes", "letters", "links", "json in text") else texts(repeated(b"read it "))
)
inside = text.partition(b'"text":"')[2][:-3] if SIZE else b"ok"
READ = b'"contents":[{"uri":"x://a","mimeType":"text/plain","text":"%b"}]' % inside
GOT = b'"messages":[{"role":"user","content":{"type":"text","text":"%b"}}]' % inside
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("act", "ask")]
LISTS = {
    "tools/list": {"tools": TOOLS},
    "resources/list": {"resources": [{"uri": "x://a", "name": "a"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "prompts/list": {"prompts": [{"name": "p"}]},
}
FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
waiting: list[Any] = []


def result(id: Any, members: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":{%b%b}}' % (json.dumps(id).encode(), COMPLETE, members)


COMPLETE = b'"resultType":"complete",' if ERA == "modern" else b""


def answer(message: Any) -> bytes | None:
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None and waiting:
        return result(waiting.pop(), LARGE)
    if id is None or method is None:
        return None
    capabilities: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
    if method == "initialize" and ERA == "legacy":
        about = {"serverInfo": {"name": "wild", "version": "1"}, "capabilities": capabilities}
        found: Any = {"protocolVersion": params["protocolVersion"], **about}
    elif method == "server/discover" and ERA == "modern":
        found = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "resultType": "complete"}
        found |= {"ttlMs": 0, "cacheScope": "private"}
    elif method in LISTS:
        found = LISTS[method] | ({"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if COMPLETE else {})
    elif method == "tools/call" and params["name"] == "ask":
        waiting.append(id)
        asked = {"jsonrpc": "2.0", "id": f"q{id}", "method": "elicitation/create", "params": FORM}
        return json.dumps(asked).encode()
    elif method in ("tools/call", "resources/read", "prompts/get"):
        return result(id, {"tools/call": LARGE, "resources/read": READ, "prompts/get": GOT}[method])
    elif method == "ping":
        found = {}
    else:
        error = {"code": -32601, "message": "Method not found"}
        return json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode()
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": found}).encode()


def stdio() -> None:
    for line in sys.stdin.buffer:
        if found := answer(json.loads(line)):
            out.write(found + b"\n")
            out.flush()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    said: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        if CARRIER == "component":
            self.plain(json.dumps([{**tool, "description": "As large as is said"} for tool in TOOLS]).encode())
            return
        if CARRIER != "sse":
            self.send_error(405)
            return
        self.head("text/event-stream")
        self.event(b"/post", b"endpoint")
        while True:
            self.event(self.said.get(), b"message")

    def do_DELETE(self) -> None:
        self.send_error(405)

    def do_POST(self) -> None:
        if CARRIER == "component":
            self.rfile.read(int(self.headers["content-length"]))
            self.plain(b"{%b}" % LARGE)
            return
        if self.path == "/mcp" and CARRIER == "sse":
            self.send_error(405)
            return
        found = answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        if CARRIER == "events" and found:
            self.head("text/event-stream")
            self.event(found, b"message")
            self.wfile.write(b"0\r\n\r\n")
        elif found and CARRIER == "http":
            self.plain(found)
        else:
            if found:
                self.said.put(found)
            self.send_response(202)
            self.send_header("content-length", "0")
            self.end_headers()

    def plain(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def head(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def event(self, data: bytes, name: bytes) -> None:
        written = b"event: %b\ndata: %b\n\n" % (name, data)
        self.wfile.write(b"%x\r\n%b\r\n" % (len(written), written))
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The gateway hangs up."""


def over_http() -> int:
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def over_websocket() -> int:
    from websockets.sync.server import ServerConnection, serve

    def converse(connection: ServerConnection) -> None:
        for message in connection:
            if found := answer(json.loads(message)):
                connection.send(found.decode())

    server = serve(converse, "127.0.0.1", 0, max_size=None, compression=None, subprotocols=["mcp"])  # type: ignore
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.socket.getsockname()[1]


if CARRIER == "stdio":
    stdio()
else:
    print(over_websocket() if CARRIER == "ws" else over_http(), flush=True)
    sys.stdin.read()
    os._exit(0)
