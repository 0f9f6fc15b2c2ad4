"""A server that floods, over stdio: `server.py KIND`. One tool, `act`, beside what is listed for the kind."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

KIND = sys.argv[1]
out = sys.stdout.buffer
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def write(message: dict[str, Any] | bytes) -> None:
    out.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")
    out.flush()


def result(id: Any, **members: Any) -> None:
    write({"jsonrpc": "2.0", "id": id, "result": members})


def patterns(pattern: str, count: int) -> dict[str, Any]:
    """A schema of so many patterns that are alike, and not the same."""
    many = [{"pattern": pattern.replace("N", str(n))} for n in range(count)]
    return {"type": "object", "properties": {"a": {"type": "string", "anyOf": many}}}


def act(schema: Any = SCHEMA, description: str = "") -> dict[str, Any]:
    return {"name": "act", "inputSchema": schema, "description": description}


def many(count: int, **more: Any) -> Iterator[dict[str, Any]]:
    yield act()
    for n in range(count):
        yield {"name": f"tool_{n}", "inputSchema": SCHEMA, **more}


WORDY = "please send before read use any the always must first ignore all the "


def words(size: int) -> str:
    return (WORDY * (size // len(WORDY) + 1))[:size]


BLANKS = "send " + " a" * 130_000

LISTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "patterns": lambda: [act(patterns(r"\pL{100}N", 150))],
    "patterns that look back": lambda: [act(patterns(r"(?=\pL{100}N)\pL{100}", 100))],
    "large patterns": lambda: [act(patterns(r"[\pL\pN]{1,900}N", 3000))],
    "descriptions": lambda: [act(), *({**each, "description": words(256 * 1024)} for each in many(60))],
    "descriptions of blanks": lambda: [
        act(),
        *({**each, "description": "send " + " a" * 130_000} for each in many(60)),
    ],
    "tools": lambda: list(many(100_000)),
    "long tools": lambda: list(many(500, description="word " * 20_000)),
    "as many tools as may be": lambda: list(many(9_000)),
}


def listed(message: dict[str, Any]) -> None:
    params = message.get("params") or {}
    if KIND == "endless list":
        page = int(params.get("cursor", 0))
        tools = [{"name": f"tool_{page}_{n}", "inputSchema": SCHEMA, "description": "x" * 1000} for n in range(1000)]
        result(message["id"], tools=tools, nextCursor=str(page + 1))
    else:
        result(message["id"], tools=LISTS.get(KIND, lambda: [act()])())


def called(message: dict[str, Any]) -> None:
    id = message["id"]
    if KIND == "long number":
        write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"n":%b}}' % (id, b"1" * 50_000_000))
    elif KIND == "long token":
        params = b'{"progressToken":%b,"progress":1}' % (b"1" * 50_000_000)
        write(b'{"jsonrpc":"2.0","method":"notifications/progress","params":%b}' % params)
        result(id, content=[])
    elif KIND == "line without an end":
        for _ in range(4000):
            out.write(b"x" * 65536)
        out.flush()
    elif KIND == "objects":
        write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"n":[%b{}]}}' % (id, b"{}," * 5_000_000))
    elif KIND == "questions":
        ask(1)
        calls.append(id)
    else:
        result(id, content=[{"type": "text", "text": "ok"}])


calls: list[Any] = []
asked = 0


def ask(count: int) -> None:
    global asked
    for _ in range(count):
        asked += 1
        params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        write({"jsonrpc": "2.0", "id": f"q{asked}", "method": "elicitation/create", "params": params})


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method = message.get("method")
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            about = {"serverInfo": {"name": "wild", "version": "1"}, "capabilities": {"tools": {"listChanged": True}}}
            result(message["id"], protocolVersion=version, **about)
        elif method == "tools/list":
            listed(message)
        elif method == "tools/call":
            called(message)
        elif method is None:
            ask(20)
        elif message.get("id") is not None:
            error = {"code": -32601, "message": "Method not found"}
            write({"jsonrpc": "2.0", "id": message["id"], "error": error})


if __name__ == "__main__":
    main()
