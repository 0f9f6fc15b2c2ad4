"""A client of large results: `large_client.py CARRIER WAY PORT KEY SECONDS` asks again and again in the same way, each
time as soon as it is answered, at least once, and says how often, and how many bytes came. `CARRIER` is `modern`,
`events`, `legacy`, `sse` or `ws`: POSTs of either era, the first answered as JSON and the second as a stream, or one
connection that goes both ways."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
ENVELOPE: dict[str, Any] = {META + "protocolVersion": MODERN, META + "clientInfo": {"name": "loud", "version": "1"}}
ENVELOPE[META + "clientCapabilities"] = {"elicitation": {"form": {}}}


def tool(name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "tools/call", {"name": name, "arguments": arguments}


WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "tools/call": tool("wild__act"),
    "after a question": tool("wild__ask"),
    "call_tool": tool("call_tool", server_name="wild", tool_name="act", arguments={}),
    "execute_child_tool": tool("execute_child_tool", server_id="wild", tool_name="act", arguments={}),
    "head": tool("execute_child_tool", server_id="wild", tool_name="act", arguments={}, head=5),
    "mcp_call": tool("mcp_call", server="wild", tool="act", args={}),
    "resources/read": ("resources/read", {"uri": "x://a"}),
    "read_mcp_resource": tool("read_mcp_resource", server="wild", resource_uri="x://a"),
    "prompts/get": ("prompts/get", {"name": "wild__p"}),
    "mcp_execute": tool("mcp_execute", code="return await servers.wild.act({})"),
    "length": tool("mcp_execute", code="return JSON.stringify(await servers.wild.act({})).length"),
    "raw": tool("mcp_execute", code="return (await servers.wild.callRaw('act', {})).content.length"),
    "execute_code": tool("execute_code", code="result = len(str(servers.wild.act()))", language="python"),
    "printing": tool("execute_code", code="print('x' * 9_000_000)", language="python"),
    "returning": tool("execute_code", code="result = [1] * 3_000_000", language="python"),
    "process_large_dataset": tool(
        "process_large_dataset", data=[{"id": n, "name": f"row {n}"} for n in range(200_000)], operation="count rows"
    ),
    "dataset by code": tool(
        "process_large_dataset",
        data=[{"id": n, "name": f"row {n}"} for n in range(90_000)],
        operation="all",
        parameters={"code": "result = data"},
    ),
    "nested arguments": tool("wild__checked", a=[[[{"b": [n, str(n)]}]] for n in range(9_000)]),
}


class Http:
    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._common = (
            f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nAuthorization: Bearer {key}\r\n"
            "Accept: application/json, text/event-stream\r\n"
        )

    def post(self, path: str, message: Any, more: str = "") -> tuple[int, dict[str, str], bytes]:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        with socket.create_connection(("127.0.0.1", self._port), 300) as connection:
            head = (
                f"POST {path} HTTP/1.1\r\n{self._common}{more}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            connection.sendall(head.encode() + body)
            head, rest = b"", b""
            with connection.makefile("rb") as file:
                status = int(file.readline().split()[1])
                headers: dict[str, str] = {}
                while (line := file.readline()) not in (b"\r\n", b""):
                    name, _, value = line.decode().partition(":")
                    headers[name.lower()] = value.strip()
                rest = file.read()
        return status, headers, rest


class Modern(Http):
    more = ""

    def ask(self, method: str, params: dict[str, Any]) -> int:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": ENVELOPE}}
        name = params.get("name", params.get("uri"))
        more = f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\nMcp-Name: {name}\r\n"
        status, _, body = self.post("/mcp", message, more)
        if b'"input_required"' in body[:4096] and status == 200:
            asked = json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])["result"]
            answers = {key: {"action": "accept", "content": {}} for key in asked["inputRequests"]}
            params = params | {"inputResponses": answers, "requestState": asked["requestState"]}
            return self.ask(method, params)
        assert status == 200, (status, body[:500])
        check(body)
        return len(body)


class Legacy(Http):
    def __init__(self, port: int, key: str) -> None:
        super().__init__(port, key)
        about = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "loud", "version": "1"}}
        about["capabilities"] = {"elicitation": {}}  # type: ignore[assignment]
        _, headers, _ = self.post("/mcp", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about})
        self._session = f"Mcp-Session-Id: {headers['mcp-session-id']}\r\n"
        self.post("/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, self._session)

    def ask(self, method: str, params: dict[str, Any]) -> int:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        body = json.dumps(message).encode()
        with socket.create_connection(("127.0.0.1", self._port), 300) as connection:
            head = f"POST /mcp HTTP/1.1\r\n{self._common}{self._session}Connection: close\r\n"
            head += f"Content-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            seen, size, answered = bytearray(), 0, False
            while part := connection.recv(1 << 20):
                size += len(part)
                if len(seen) < 1 << 16:
                    seen += part
                    if not answered and b'"elicitation/create"' in seen and b"\n\n" in seen:
                        answered = True
                        said = bytes(seen)
                        id = said[said.index(b'"id":') + 5 :].split(b",")[0]
                        reply = b'{"jsonrpc":"2.0","id":%b,"result":{"action":"accept","content":{}}}' % id
                        self.post("/mcp", reply, self._session)
        assert b"200 OK" in seen[:20], bytes(seen[:500])
        check(bytes(seen))
        return size


class WebSocket:
    def __init__(self, port: int, key: str) -> None:
        from websockets.sync.client import connect

        headers = {"Authorization": f"Bearer {key}"}
        self._socket = connect(
            f"ws://127.0.0.1:{port}/mcp",
            additional_headers=headers,
            subprotocols=["mcp"],
            max_size=None,
            compression=None,  # type: ignore
        )
        about: dict[str, Any] = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "loud", "version": "1"}}
        self._exchange("initialize", about | {"capabilities": {}})
        self._socket.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def _exchange(self, method: str, params: dict[str, Any]) -> bytes:
        self._socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
        while True:
            found = self._socket.recv(decode=False)
            assert isinstance(found, bytes)
            if b'"id":1' in found[:100]:
                return found

    def ask(self, method: str, params: dict[str, Any]) -> int:
        found = self._exchange(method, params)
        check(found)
        return len(found)


class Events(Http):
    """The transport of 2024-11-05."""

    def __init__(self, port: int, key: str) -> None:
        super().__init__(port, key)
        self._stream = socket.create_connection(("127.0.0.1", port), 300)
        self._stream.sendall(f"GET /mcp/sse HTTP/1.1\r\n{self._common}\r\n".encode())
        self._file = self._stream.makefile("rb")
        while not (line := self._file.readline()).startswith(b"data: "):
            assert line
        self._place = line[6:].decode().strip()
        about: dict[str, Any] = {"protocolVersion": "2024-11-05", "clientInfo": {"name": "loud", "version": "1"}}
        self.ask("initialize", about | {"capabilities": {}})
        self.post(self._place, {"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any]) -> int:
        self.post(self._place, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        while not (line := self._file.readline()).startswith(b"data: "):
            assert line
        check(line)
        return len(line)


def check(body: bytes) -> None:
    start = body[:4096]
    if b'"error":{' in start or b'"isError":true' in start:
        failures.append(start.decode(errors="replace")[:300])


failures: list[str] = []
CLIENTS: dict[str, Callable[[int, str], Any]] = {"modern": Modern, "legacy": Legacy, "ws": WebSocket, "sse": Events}


def main(carrier: str, way: str, port: int, key: str, seconds: float) -> None:
    client = CLIENTS[carrier](port, key)
    method, params = WAYS[way]
    print("ready", flush=True)
    sys.stdin.readline()
    until, count, size, longest = time.monotonic() + seconds, 0, 0, 0.0
    while not count or time.monotonic() < until:
        began = time.monotonic()
        size = client.ask(method, params)
        longest = max(longest, time.monotonic() - began)
        count += 1
    print(
        json.dumps({"count": count, "bytes": size, "longest": round(longest, 2), "failures": failures[:2]}), flush=True
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], float(sys.argv[5]))
