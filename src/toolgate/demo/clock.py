"""A clock, as an MCP server of the old kind: it opens with a handshake, keeps a session, and may ask in mid-call.

It reads one JSON-RPC message per line from stdin and writes one per line to stdout, until stdin ends. In this file:
the tools, which are plain functions; the tables that tell a client of them; the session that serves them. The one
rule: every tool call has a thread of its own, so that the session goes on reading while a call waits for the user.
The protocol: modelcontextprotocol.io/specification, revisions 2024-11-05 to 2025-11-25.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import queue
import sys
import threading
import zoneinfo
from collections.abc import Callable
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32600, -32601, -32602
RESOURCE_NOT_FOUND = -32002
PARAMS_FAILURES = (AttributeError, KeyError, TypeError, ValueError)  # by using what is not as the schema says
TOOL_FAILURES = (*PARAMS_FAILURES, LookupError, OSError)


class RpcError(Exception):
    """The request cannot be served."""

    def __init__(self, code: int, message: str, **data: Any) -> None:
        self.error = {"code": code, "message": message, **({"data": data} if data else {})}


class Cancelled(Exception):
    """Nobody waits for the call any more."""


# What the server can do. A tool fails by an exception of Python's own; the model reads its text, and may try again.


def now(call: Call, timezone: str = "UTC") -> Json:
    return text(f"{datetime.datetime.now(zone(timezone)):%A, %Y-%m-%d %H:%M:%S} {timezone}")


def convert_time(call: Call, time: str, from_timezone: str, to_timezone: str) -> Json:
    here = zone(from_timezone)
    start = datetime.datetime.combine(datetime.datetime.now(here), datetime.time.fromisoformat(time), here)
    there = start.astimezone(zone(to_timezone))
    words = f"{start:%Y-%m-%d %H:%M} {from_timezone} is {there:%Y-%m-%d %H:%M} {to_timezone}."
    return text(words) | {"structuredContent": {"date": f"{there:%Y-%m-%d}", "time": f"{there:%H:%M}"}}


def countdown(call: Call, steps: int = 5) -> Json:
    if not 1 <= steps <= 100:
        raise ValueError("steps must be from 1 to 100")
    for step in range(1, steps + 1):
        call.pause(seconds=0.02)
        call.log("info", f"{steps - step} to go")
        call.report(step, steps, f"Step {step} of {steps}")
    return text(f"Lift-off after {steps} steps.")


def set_alarm(call: Call, time: str) -> Json:
    datetime.time.fromisoformat(time)
    label, said = "Alarm", "The client cannot be asked"
    if call.session.can_ask:
        answer = call.ask(f"What is the alarm at {time} for?", {"label": {"type": "string", "title": "Label"}})
        said = f"The user answered {answer['action']}"
        if answer["action"] == "cancel":
            return text(f"{said}: no alarm is set.")
        if answer["action"] == "accept":
            said += f" with {json.dumps(answer['content'], ensure_ascii=False)}"
            label = answer["content"]["label"]
    call.session.alarms.append(f"{time} {label}")
    return text(f'{said}: alarm "{label}" is set for {time}.')


def read(session: Session, uri: str) -> str:
    if uri == "clock://alarms":
        return "\n".join(session.alarms) or "No alarms are set."
    if uri == "clock://now" or uri.startswith("clock://now/"):
        return datetime.datetime.now(zone(uri[len("clock://now/") :] or "UTC")).isoformat(timespec="seconds")
    raise LookupError(uri)


def plan_day(focus: str) -> Json:
    words = f"It is {datetime.datetime.now(datetime.UTC):%H:%M} UTC. Plan the rest of my day around: {focus}"
    return {"description": "Plan my day", "messages": [{"role": "user", "content": {"type": "text", "text": words}}]}


def text(words: str) -> Json:
    return {"content": [{"type": "text", "text": words}]}


def zone(name: str) -> datetime.tzinfo | None:
    if name == "UTC":
        return datetime.UTC
    if name[:1] in ("+", "-"):
        return datetime.datetime.fromisoformat(f"2000-01-01T00:00{name}").tzinfo
    return zoneinfo.ZoneInfo(name)


# What it tells a client of that: titles for people, JSON Schemas and hints for programs.


def schema(*required: str, **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def tool(title: str, description: str, arguments: Json, **more: Json) -> Json:
    return {"title": title, "description": description, "inputSchema": arguments, **more}


TIME = {"type": "string", "description": "Hours and minutes, like 07:30"}
ZONE = {"type": "string", "description": "A name like Europe/Berlin, or an offset like +02:00"}
STEPS = {"type": "integer", "minimum": 1, "maximum": 100, "default": 5}
READS = {"readOnlyHint": True, "openWorldHint": False}
WRITES = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}
TEXT = {"mimeType": "text/plain"}

TOOLS: dict[str, tuple[Callable[..., Json], Json]] = {
    "now": (now, tool(
        "Current time", "Tell the current date and time in a timezone.",
        schema(timezone={**ZONE, "default": "UTC"}), annotations=READS,
    )),
    "convert_time": (convert_time, tool(
        "Convert a time", "Convert a time of today from one timezone to another.",
        schema("time", "from_timezone", "to_timezone", time=TIME, from_timezone=ZONE, to_timezone=ZONE),
        outputSchema=schema("date", "time", date={"type": "string", "format": "date"}, time=TIME), annotations=READS,
    )),
    "countdown": (countdown, tool(
        "Count down", "Count down in short steps, with a log message and progress at each.",
        schema(steps=STEPS), annotations=READS,
    )),
    "set_alarm": (set_alarm, tool(
        "Set an alarm", "Set an alarm, and ask the user what it is for.",
        schema("time", time=TIME), annotations=WRITES,
    )),
}  # fmt: skip

LISTS: dict[str, Json] = {
    "tools/list": {"tools": [{"name": name, **shown} for name, (_, shown) in TOOLS.items()]},
    "resources/list": {"resources": [
        {"uri": "clock://now", "name": "now", "title": "Current time in UTC", **TEXT},
        {"uri": "clock://alarms", "name": "alarms", "title": "Alarms that are set", **TEXT},
    ]},
    "resources/templates/list": {"resourceTemplates": [
        {"uriTemplate": "clock://now/{+timezone}", "name": "now_in", "title": "Current time in a timezone", **TEXT},
    ]},
    "prompts/list": {"prompts": [{
        "name": "plan_day", "title": "Plan my day", "description": "Plan the rest of the day around one thing.",
        "arguments": [{"name": "focus", "description": "What matters most today", "required": True}],
    }]},
}  # fmt: skip


# How it is served.


class Call:
    """A tool call that runs. Its inbox gets the client's answer to its question, or None: the call is cancelled."""

    def __init__(self, session: Session, params: Json) -> None:
        self.session = session
        self.inbox: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        self._progress_token = params.get("_meta", {}).get("progressToken")

    def log(self, level: str, data: str) -> None:
        if LEVELS.index(level) >= LEVELS.index(self.session.level):
            self.session.notify("notifications/message", {"level": level, "logger": "clock", "data": data})

    def report(self, step: int, total: int, message: str) -> None:
        if self._progress_token is not None:
            progress = {"progress": step, "total": total, "message": message}
            self.session.notify("notifications/progress", {"progressToken": self._progress_token, **progress})

    def pause(self, seconds: float) -> None:
        try:
            self.inbox.get(timeout=seconds)
        except queue.Empty:
            return
        raise Cancelled

    def ask(self, message: str, fields: Json) -> Json:
        """Show the user a form, and wait. The answer has an `action` (accept, decline, cancel) and maybe `content`."""
        form = {"type": "object", "properties": fields, "required": list(fields)}
        key = self.session.send_question(self, {"message": message, "requestedSchema": form})
        answer = self.inbox.get()
        if answer is None:
            self.session.notify("notifications/cancelled", {"requestId": key})
            raise Cancelled
        if "error" in answer:
            raise ValueError(f"the user could not be asked ({answer['error']['message']})")
        return answer["result"]


class Session:
    """One client, from its `initialize` to the end of stdin."""

    def __init__(self) -> None:
        self.version, self.level = "", "info"
        self.alarms: list[str] = []
        self.can_ask = False
        self._calls: dict[str | int, Call] = {}
        self._questions: dict[str | int, Call] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def receive(self, message: Json) -> None:
        key, method, params = message.get("id"), message.get("method"), message.get("params", {})
        if key is None:
            if method == "notifications/cancelled" and params["requestId"] in self._calls:
                self._calls[params["requestId"]].inbox.put(None)
        elif method is None:  # the answer to a question of ours
            self._questions.pop(key).inbox.put(message)
        elif method == "tools/call":
            call = self._calls[key] = Call(self, params)
            threading.Thread(target=self._respond, args=(key, lambda: self._call_tool(call, params))).start()
        else:
            self._respond(key, lambda: self._answer(method, params))

    def end(self) -> None:
        for call in list(self._calls.values()):
            call.inbox.put(None)

    def notify(self, method: str, params: Json) -> None:
        self._write({"method": method, "params": params})

    def send_question(self, call: Call, params: Json) -> str:
        key = f"question-{next(self._numbers)}"
        self._questions[key] = call
        self._write({"id": key, "method": "elicitation/create", "params": params})
        return key

    def _write(self, message: Json) -> None:
        with self._lock, contextlib.suppress(BrokenPipeError):  # if the client has gone, stdin ends too
            os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _respond(self, key: str | int, work: Callable[[], Json]) -> None:
        try:
            self._write({"id": key, "result": work()})
        except Cancelled:
            pass
        except RpcError as error:
            self._write({"id": key, "error": error.error})
        except PARAMS_FAILURES as error:
            self._write({"id": key, "error": RpcError(INVALID_PARAMS, f"Invalid params: {error!r}").error})
        finally:
            self._calls.pop(key, None)

    def _call_tool(self, call: Call, params: Json) -> Json:
        if not self.version:
            raise RpcError(INVALID_REQUEST, "Say initialize first: a tool must know what its client can do")
        if params["name"] not in TOOLS:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {params['name']}")
        run, _ = TOOLS[params["name"]]
        try:
            return run(call, **params.get("arguments", {}))
        except TOOL_FAILURES as error:
            return text(f"{params['name']} failed: {error}") | {"isError": True}

    def _answer(self, method: str, params: Json) -> Json:
        match method:
            case "initialize":
                wanted = params["protocolVersion"]
                self.version = wanted if wanted in REVISIONS else REVISIONS[-1]
                ways = params["capabilities"].get("elicitation", {"url": {}})  # {} means forms, as before "url" came
                self.can_ask = self.version >= "2025-06-18" and ("form" in ways or "url" not in ways)
                return {
                    "protocolVersion": self.version,
                    "capabilities": {"tools": {}, "resources": {}, "prompts": {}, "logging": {}},
                    "serverInfo": {"name": "clock", "title": "Clock", "version": "1.0.0"},
                    "instructions": "Tells and converts times, counts down, sets alarms.",
                }
            case "ping":
                return {}
            case "logging/setLevel":
                if params["level"] not in LEVELS:
                    raise RpcError(INVALID_PARAMS, f"Unknown log level: {params['level']}")
                self.level = params["level"]
                return {}
            case "resources/read":
                try:
                    return {"contents": [{"uri": params["uri"], "text": read(self, params["uri"]), **TEXT}]}
                except (ValueError, LookupError, OSError):
                    raise RpcError(RESOURCE_NOT_FOUND, "Resource not found", uri=params["uri"]) from None
            case "prompts/get":
                if params["name"] != "plan_day":
                    raise RpcError(INVALID_PARAMS, f"Unknown prompt: {params['name']}")
                return plan_day(params["arguments"]["focus"])
            case _ if method in LISTS:
                return LISTS[method]
            case _:
                raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")


def main() -> None:
    session = Session()
    for line in sys.stdin.buffer:
        try:
            received: Json | list[Json] = json.loads(line)
            for message in received if isinstance(received, list) else [received]:  # 2025-03-26 knows batches
                session.receive(message)
        except (*PARAMS_FAILURES, RecursionError) as error:
            print(f"clock: ignored {line[:80]!r}: {error!r}", file=sys.stderr)
    session.end()


if __name__ == "__main__":
    main()
