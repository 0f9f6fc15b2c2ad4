"""A tool component of a few lines, as anybody would write one: HTTP/1.0 by the standard library, on the port of PORT.

Its only argument is how it behaves: `well`, `mute` (it never listens), `dying` (it says why, and exits).
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer


def wait(arguments: dict[str, str]) -> str:
    """It takes nothing else meanwhile."""
    while not os.path.exists(arguments["file"]):
        time.sleep(0.01)
    return "done"


TOOLS = {
    "echo": lambda arguments: arguments["message"],
    "pid": lambda arguments: str(os.getpid()),
    "setting": lambda arguments: os.environ.get(arguments["name"], ""),
    "wait": wait,
    "crash": lambda arguments: os._exit(3),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer([{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS])

    def do_POST(self) -> None:
        arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = TOOLS[self.path.rpartition("/")[2]](arguments)
        self.answer({"content": [{"type": "text", "text": said}]})

    def answer(self, value: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, format: str, *args: object) -> None:
        print("stdout:", format % args, flush=True)


behaviour = sys.argv[1]
print(f"it behaves {behaviour}", file=sys.stderr, flush=True)
if behaviour == "dying":
    sys.exit("no database here")
if behaviour == "mute":
    time.sleep(600)
HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
