"""Runs calls as they say: `fault` is how this child fails over one, and each that is run stands in a file, by its id.

`dies before` and `dies after` it ran, `closes` its stdout when it ran, `answers twice`, with `garbage` or half a
result.
"""

from __future__ import annotations

import json
import os
import sys

import legacy

ran = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def run(arguments: legacy.Json) -> str:
    fault, id = arguments["fault"], arguments["id"]
    if fault == "dies before":
        os._exit(7)
    os.write(ran, f"{id}\n".encode())
    answer = {"jsonrpc": "2.0", "id": legacy.seen[-1]["id"], "result": legacy.text(id)}
    if fault == "dies after":
        os._exit(7)
    if fault == "closes":
        os.close(1)
        os._exit(0)
    if fault == "answers twice":
        legacy.write(answer)
    if fault == "garbage":
        legacy.write(b"{\x00\xff garbage")
    if fault == "half a result":
        legacy.write(json.dumps(answer).encode()[:-4])
    legacy.seen.clear()
    return id


def listed() -> list[legacy.Json]:
    tool = {"inputSchema": {"type": "object"}}
    return [{"name": "act", **tool}, {"name": "look", "annotations": {"readOnlyHint": True}, **tool}]


legacy.serve({"act": run, "look": run}, threads=False, listed=listed)
