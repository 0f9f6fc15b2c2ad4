"""A client that floods: `client.py KIND PORT KEY SECONDS` sends the same request again and again, each as soon as the
one before is answered, at least once, and says how often. It is a process of its own: whoever measures loses no time by
it."""

from __future__ import annotations

import itertools
import json
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
ENVELOPE = {META + "protocolVersion": MODERN, META + "clientInfo": {"name": "flood", "version": "1"}}
ENVELOPE[META + "clientCapabilities"] = {"elicitation": {}}
MANY = 1_200_000


def request(method: str, meta: Any = ENVELOPE, **params: Any) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": meta}}
    return json.dumps(message, separators=(",", ":")).encode()


def call(tool: str, arguments: Any = {}, **more: Any) -> bytes:
    return request("tools/call", name=tool, arguments=arguments, **more)


def listen(names: int) -> bytes:
    """So many short names of resources that nobody has."""
    found = itertools.product("abcdefghijklmnopqrstuvwxyz0123456789", repeat=3)
    return request("subscriptions/listen", notifications={"resourceSubscriptions": ["".join(n) for n in found][:names]})


def keys(count: int = MANY) -> dict[str, int]:
    return {f"k{n}": 1 for n in range(count)}


BODIES: dict[str, Callable[[], bytes]] = {
    "names": lambda: listen(26_000),  # about 184 KiB
    "empty objects": lambda: call("wild__act").replace(
        b'"arguments":{}', b'"arguments":{"x":[' + b"{}," * 5_200_000 + b"{}]}"
    ),
    "bare array": lambda: call("wild__act").replace(b'"arguments":{}', b'"arguments":[' + b"{}," * 5_200_000 + b"{}]"),
    "keys of arguments": lambda: call("wild__act", keys()),
    "keys of _meta": lambda: request("tools/call", ENVELOPE | keys(), name="wild__act", arguments={}),
    "keys of params": lambda: call("wild__act", **keys()),
    "nested arrays": lambda: call("wild__act").replace(
        b'"arguments":{}', b'"arguments":{"x":[' + b",".join([b"[" * 500 + b"]" * 500] * 15_000) + b"]}"
    ),
    "keys of capabilities": lambda: request(
        "tools/call", ENVELOPE | {META + "clientCapabilities": keys()}, name="wild__act", arguments={}
    ),
    "values below the limit": lambda: call("wild__act", {"x": [{}] * 99_000, "text": "x" * 1_000_000}),
    "commas in a text": lambda: call("wild__act", {"text": 'a,"b\\[{' * 1_400_000}),
    "a long text": lambda: call("wild__act", {"text": "x" * 15_000_000}),
    "long number": lambda: call("wild__act").replace(b'"arguments":{}', b'"arguments":{"x":%b}' % (b"1" * 15_000_000)),
    "long id": lambda: call("wild__act").replace(b'"id":1', b'"id":' + b"1" * 15_000_000),
    "long token": lambda: request("tools/call", ENVELOPE | {"progressToken": "t" * 1_000_000}, name="wild__act"),
    "list": lambda: request("tools/list"),
    "call": lambda: call("wild__act", {"a": "x" * 20}),
}


class Connection:
    def __init__(self, port: int, key: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 300)
        self._file = self._socket.makefile("rb")
        self._key = key

    def post(self, body: bytes, method: str, name: str) -> int:
        """The status of the answer, and its size; of a stream, once it says something."""
        named = f"Mcp-Name: {name}\r\n" if name else ""
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n"
            f"Content-Type: application/json\r\nMCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n{named}"
            f"Authorization: Bearer {self._key}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)
        status = int(self._file.readline().split()[1])
        length = -1
        while (line := self._file.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        if length < 0:
            self._file.readline()
        else:
            self._file.read(length)
        return status

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Answering:
    """A client of the handshake era, which answers whatever its one call asks."""

    def __init__(self, port: int, key: str) -> None:
        self._address = ("127.0.0.1", port)
        self._head = (
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n"
            f"Content-Type: application/json\r\nAuthorization: Bearer {key}\r\n"
        )
        self._posting = socket.create_connection(self._address, 300)
        self._posted = self._posting.makefile("rb")
        about = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "flood", "version": "1"}}
        self._send(self._posting, id=0, method="initialize", params=about | {"capabilities": {"elicitation": {}}})
        session = next(line for line in self._posted if line.lower().startswith(b"mcp-session-id"))
        self._head += session.decode()
        self._read_body()
        self._post(method="notifications/initialized")

    def _send(self, connection: socket.socket, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        connection.sendall(f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def _read_body(self) -> None:
        length = 0
        while (line := self._posted.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        self._posted.read(length)

    def _post(self, **message: Any) -> None:
        self._send(self._posting, **message)
        self._read_body()

    def call(self, until: float) -> int:
        """How many questions were answered."""
        count = 0
        with socket.create_connection(self._address, 300) as calling, calling.makefile("rb") as events:
            self._send(calling, id=1, method="tools/call", params={"name": "wild__act", "arguments": {}})
            for line in events:
                if line.startswith(b"data: {"):
                    message = json.loads(line[6:])
                    if "method" not in message:
                        break
                    if message["method"] == "elicitation/create":
                        self._post(id=message["id"], result={"action": "accept", "content": {}})
                        count += 1
                if time.monotonic() > until:
                    break
        return count


def main(kind: str, port: int, key: str, seconds: float) -> None:
    if kind == "answers":
        answering = Answering(port, key)
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps({"count": answering.call(time.monotonic() + seconds)}), flush=True)
        return
    body = BODIES[kind]()
    method = json.loads(body[body.index(b'"method":') + 9 :].partition(b",")[0])
    name = "wild__act" if method == "tools/call" else ""
    print("ready", flush=True)
    sys.stdin.readline()
    until, count, statuses = time.monotonic() + seconds, 0, set[int]()
    while not count or time.monotonic() < until:
        connection = Connection(port, key)
        try:
            statuses.add(connection.post(body, method, name))
        except (OSError, IndexError):
            statuses.add(0)
        finally:
            connection.close()
        count += 1
    print(json.dumps({"count": count, "statuses": sorted(statuses)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
