"""Tells all that it was given, its environment and its arguments, wherever a server can say something."""

from __future__ import annotations

import json
import os
import sys

import legacy

words = " ".join([*sys.argv[1:], *os.environ.values()])
print(f"starting with {words}", file=sys.stderr, flush=True)
if "--die" in sys.argv:
    sys.exit(f"cannot go on with {words}")


def everything(_: legacy.Json) -> str:
    return json.dumps({"environ": dict(os.environ), "arguments": sys.argv})


def notes(_: legacy.Json) -> str:
    asked = next(each for each in reversed(legacy.seen) if each["method"] == "tools/call")
    token = asked["params"].get("_meta", {}).get("progressToken")
    told = {"progressToken": token, "progress": 1, "message": words}
    legacy.write({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
    logged = {"level": "error", "data": {"words": words}}
    legacy.write({"jsonrpc": "2.0", "method": "notifications/message", "params": logged})
    return "noted"


def dies(_: legacy.Json) -> str:
    print(f"dying of {words}", file=sys.stderr, flush=True)
    os._exit(3)


def fails(_: legacy.Json) -> str:
    asked = next(each for each in reversed(legacy.seen) if each["method"] == "tools/call")
    legacy.write({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32000, "message": words, "data": [words]}})
    return "too late"


legacy.serve({"everything": everything, "notes": notes, "dies": dies, "fails": fails}, threads=False)
