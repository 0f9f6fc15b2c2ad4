"""What the scripted children are made of: an MCP server of the handshake era, one JSON message a line, stdlib only.

A tool is a function from its arguments to a text, or to a whole result; every call has a thread of its own, unless
`threads` is false. What the child was sent is kept in `seen`, and the tool `seen` tells it.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

Json = dict[str, Any]
Tool = Callable[[Json], str | Json]

seen: list[Json] = []
_writing = threading.Lock()


def write(message: Json | bytes) -> None:
    line = message if isinstance(message, bytes) else json.dumps(message).encode()
    with _writing:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


def answer(id: Any, result: Json) -> None:
    write({"jsonrpc": "2.0", "id": id, "result": result})


def refuse(id: Any, code: int, message: str) -> None:
    write({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})


def text(said: str) -> Json:
    return {"content": [{"type": "text", "text": said}]}


def serve(
    tools: dict[str, Tool],
    on_discover: Callable[[Json], None] | None = None,
    on_cancelled: Callable[[Any], None] | None = None,
    threads: bool = True,
    listed: Callable[[], list[Json]] | None = None,
    lines: Iterable[str | bytes] | None = None,
) -> None:
    """Until stdin ends. `on_discover` answers `server/discover`; without it the method is unknown. `listed` are the
    tools as they are listed, where that is not all; `lines` are those of stdin, as the child reads them."""
    tools = {"seen": lambda _: json.dumps(seen), **tools}

    def call(message: Json) -> None:
        params = message["params"]
        said = tools[params["name"]](params.get("arguments") or {})
        answer(message["id"], text(said) if isinstance(said, str) else said)

    for line in lines or sys.stdin.buffer:
        message = json.loads(line)
        method, id = message.get("method"), message.get("id")
        seen.append({"method": method, "id": id, "params": message.get("params")})
        if method == "initialize":
            answer(
                id,
                {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": True} if listed else {}},
                    "serverInfo": {"name": sys.argv[0], "version": "1"},
                },
            )
        elif method == "tools/list":
            all_of_them = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
            answer(id, {"tools": listed() if listed else all_of_them})
        elif method == "tools/call":
            if threads:
                threading.Thread(target=call, args=(message,), daemon=True).start()
            else:
                call(message)
        elif method == "server/discover" and on_discover:
            on_discover(message)
        elif method == "notifications/cancelled" and on_cancelled:
            on_cancelled(message["params"]["requestId"])
        elif id is not None:
            refuse(id, -32601, f"Method not found: {method}")
