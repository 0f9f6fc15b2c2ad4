"""A server that floods, over HTTP: `http_server.py KIND`. It says its port on stdout, and ends with its stdin."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KIND = sys.argv[1]
numbers = itertools.count(1)
SCHEMA = {"type": "object"}


def question() -> bytes:
    params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    message = {"jsonrpc": "2.0", "id": f"q{next(numbers)}", "method": "elicitation/create", "params": params}
    return b"data: " + json.dumps(message).encode() + b"\n\n"


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The gateway hangs up: that is what it should do."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        self.send_error(405)

    def do_DELETE(self) -> None:
        self.send_error(405)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, id = message.get("method"), message.get("id")
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            about = {"serverInfo": {"name": "wild", "version": "1"}, "capabilities": {"tools": {}}}
            self.result(id, {"protocolVersion": version, **about})
        elif method == "tools/list":
            self.result(id, {"tools": [{"name": "act", "inputSchema": SCHEMA}]})
        elif method == "tools/call":
            self.call(id)
        elif method is None and KIND == "questions in answers":
            self.stream(b"".join(question() for _ in range(20)))
        elif id is not None and method is not None:
            self.whole(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}).encode())
        else:
            self.send_response(202)
            self.send_header("content-length", "0")
            self.end_headers()

    def result(self, id: Any, result: Any) -> None:
        self.whole(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode())

    def whole(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def call(self, id: Any) -> None:
        if KIND == "questions in answers":
            self.begin("text/event-stream")
            asked = question()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(asked), asked))
            self.wfile.flush()
            threading.Event().wait(60)
        elif KIND == "chunks":
            self.begin("application/json")
            for _ in range(1000):
                self.wfile.write(b"1\r\nx\r\n" * 20_000)
        elif KIND == "chunks of an event":
            self.begin("text/event-stream")
            for _ in range(1000):
                self.wfile.write(b"1\r\nx\r\n" * 20_000)
        elif KIND == "empty events":
            self.begin("text/event-stream")
            for _ in range(300):
                self.wfile.write(b"1e000\r\n" + b"data:\n" * 20_480 + b"\r\n")
        else:
            self.result(id, {"content": [{"type": "text", "text": "ok"}]})


server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
os._exit(0)
