"""Answers `server/discover` in the way that its argument names; else it is a plain server of the handshake era."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import legacy


def end(_message: object) -> None:
    """As servers on the Rust SDK do; how often, is noted in the file that the second argument names."""
    with Path(sys.argv[2]).open("a") as notes:
        notes.write("ended\n")
    os._exit(1)


def end_late(_message: object) -> None:
    """As the first Python SDK did: it waits for another line before it ends."""
    sys.stdin.buffer.readline()
    end(_message)


WAYS = {
    "end": end,
    "end late": end_late,
    "silence": lambda message: None,
    "-32601": lambda message: legacy.refuse(message["id"], -32601, "Method not found"),
    "-32602": lambda message: legacy.refuse(message["id"], -32602, "Invalid request parameters"),
    "-32600 without an id": lambda message: legacy.refuse(None, -32600, "Not initialized"),
    "text": lambda message: legacy.write(b"Error: received a request before initialization was complete"),
    "half a message": lambda message: legacy.write(b'{"jsonrpc": "2.0", "id": '),
    "no message": lambda message: legacy.write(b'{"what": "is this?"}'),
    "no result": lambda message: legacy.answer(message["id"], {}),
    "an odd result": lambda message: legacy.answer(message["id"], {"supportedVersions": "all", "capabilities": 1}),
    "an old version": lambda message: legacy.answer(
        message["id"], {"supportedVersions": ["2025-06-18"], "capabilities": {}, "serverInfo": {}}
    ),
}

legacy.serve({"echo": lambda arguments: arguments["say"]}, on_discover=WAYS[sys.argv[1]])
