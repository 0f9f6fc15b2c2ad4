"""Calls with ids of their own through servers that fail in every way, each of which knows what it has run.

`run` makes them and compares what each call was told with what became of it. `make faults` makes 20,000.

The rule this file keeps: a server that fails says nothing untrue itself (it names a session unknown only where it has
not looked at the call, and writes a result only when it has run it); whatever else it says may be said before the call
is run, or behind that.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
from processes.ground import Client, Failed, Served, child, gateway, settings
from processes.scripted_http import Request, ScriptedServer, serving
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from toolgate.upstreams import breaker

Json = dict[str, Any]
AT_ONCE = 24
HARMLESS = "look"  # may run twice
TOOLS = [
    {"name": "act", "inputSchema": {"type": "object"}},
    {"name": HARMLESS, "annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}},
]


class Ran:
    """How often each call was run, and how often it came."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()
        self.came: Counter[str] = Counter()

    def run(self, message: Json) -> str:
        id = message["params"]["arguments"]["id"]
        self.times[id] += 1
        return id


# Over HTTP. What goes wrong, by name; each is given whether the call is run before.

STATUSES = ["400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found", "409 Conflict", "429 Too Many"]
FAILURES = ["500 Oops", "502 Bad Gateway", "503 Unavailable", "504 Timeout"]
ERROR = {"code": -32001, "message": "it did not work"}
HALF = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def refuses(statuses: list[str], as_json: bool) -> Callable[[Request], None]:
    def refuse(request: Request) -> None:
        id = request.message.get("id") if random.random() < 0.5 else None
        body = json.dumps({"jsonrpc": "2.0", "id": id, "error": ERROR}).encode() if as_json else b"no"
        request.whole(body if random.random() < 0.9 else b"", random.choice(statuses))

    return refuse


def resets(request: Request) -> None:
    request.connection.reset()


def closes(request: Request) -> None:
    request.connection.close()


def half_a_head(request: Request) -> None:
    request.write(b"HTTP/1.1 200 OK\r\nContent-Le")
    request.connection.close()


def half_an_answer(request: Request) -> None:
    body = request.answer()
    request.write(HALF % len(body) + body[: random.randrange(len(body))])
    request.connection.close()


def half_an_error(request: Request) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": request.id, "error": ERROR}).encode()
    request.whole(body[: random.randrange(10, len(body) - 1)])


def half_a_result(request: Request) -> None:
    request.whole(request.answer()[:-3])


def another_page(request: Request) -> None:
    request.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>")


def another_type(request: Request) -> None:
    body = request.answer()
    request.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def another_id(request: Request) -> None:
    """Of a call that may be under way, too."""
    message = json.loads(request.answer()) | {"id": request.id + random.choice([-2, -1, 1, 2, 1000])}
    request.whole(json.dumps(message).encode())


def twice(request: Request) -> None:
    request.open_stream()
    for _ in range(2):
        request.event(request.answer())
    request.end_stream()


def no_event(request: Request) -> None:
    request.open_stream()
    request.connection.close()


def one_event(request: Request) -> None:
    request.open_stream()
    request.event(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"so far"}}')
    request.connection.close()


def moved(request: Request) -> None:
    request.whole(b"", "307 Temporary Redirect", "Location: /elsewhere")


def accepted(request: Request) -> None:
    request.whole(b"", "202 Accepted")


class Fault(NamedTuple):
    name: str
    answer: Callable[[Request], None]
    before: bool = True  # it also comes before the call is run
    after: bool = True


HTTP = [
    Fault("a reset", resets),
    Fault("a close", closes),
    Fault("half a head", half_a_head),
    Fault("half an answer", half_an_answer, before=False),
    Fault("4xx", refuses(STATUSES, False)),
    Fault("4xx with JSON", refuses(STATUSES, True)),
    Fault("5xx", refuses(FAILURES, False)),
    Fault("5xx with JSON", refuses(FAILURES, True)),
    Fault("half an error", half_an_error),
    Fault("half a result", half_a_result, before=False),
    Fault("another page", another_page),
    Fault("another type", another_type, before=False),
    Fault("another id", another_id, before=False),
    Fault("twice", twice, before=False),
    Fault("a stream without an event", no_event),
    Fault("a stream cut after an event", one_event),
    Fault("a redirect", moved),
    Fault("accepted", accepted),
]
SESSION = "unknown session"
KEPT = "a kept connection closed"


class FaultyHttp(ScriptedServer):
    def __init__(self, ran: Ran, session: bool, modern: bool) -> None:
        super().__init__(self._call, session, modern)
        self._ran = ran
        self._faults = {fault.name: fault for fault in HTTP}

    def listed(self) -> list[Json]:
        return TOOLS

    async def _call(self, request: Request) -> None:
        """Each call fails when it comes first, and is answered if it comes again."""
        self.requests.clear()  # what is remembered of twenty thousand
        arguments = request.message["params"]["arguments"]
        self._ran.came[arguments["id"]] += 1
        is_first = self._ran.came[arguments["id"]] == 1
        fault = self._faults.get(arguments["fault"])
        if is_first and arguments["fault"] == SESSION:
            request.whole(b"Session not found", "404 Not Found")
            return
        if is_first and fault and arguments["before"]:
            fault.answer(request)
            return
        self._ran.run(request.message)
        if is_first and fault:
            for _ in range(random.choice([0, 0, 5])):
                await asyncio.sleep(0)
            fault.answer(request)
        else:
            request.whole(request.answer(arguments["id"]))
        if is_first and arguments["fault"] == KEPT:  # as whoever has it next writes to it
            asyncio.get_running_loop().call_later(random.random() / 200, request.connection.close)


class FaultyComponent(ScriptedServer):
    def __init__(self, ran: Ran) -> None:
        super().__init__(self._never)
        self._ran = ran
        self._faults = {fault.name: fault for fault in HTTP}

    async def _never(self, request: Request) -> None: ...

    async def _respond(self, request: Request) -> None:
        self.requests.clear()
        if request.verb == "GET":
            request.whole(json.dumps(TOOLS).encode())
            return
        request.message = {"id": 1, "params": {"arguments": request.message}}
        arguments = request.message["params"]["arguments"]
        fault = self._faults.get(arguments["fault"]) if arguments["fault"] in COMPONENT else None
        if not (fault and arguments["before"]):
            self._ran.run(request.message)
        if fault:
            fault.answer(request)
        else:
            request.whole(json.dumps({"content": [{"type": "text", "text": arguments["id"]}]}).encode())


OF_MCP = ("twice", "another id", "another type", "a stream cut after an event")
COMPONENT = tuple(fault.name for fault in HTTP if fault.name not in OF_MCP)


# Over HTTP+SSE.


class FaultySse(ScriptedServer):
    """The answer to a POST may fail, and so may the stream that the answer to the call comes on."""

    FAULTS = ("4xx", "4xx with JSON", "5xx", "a reset", "a close", "half a head", "a redirect")
    STREAM_ENDS = "the stream ends"

    def __init__(self, ran: Ran) -> None:
        super().__init__(self._never)
        self._ran = ran
        self._faults = {fault.name: fault for fault in HTTP}
        self._streams: dict[str, Request] = {}

    async def _never(self, request: Request) -> None: ...

    async def _respond(self, request: Request) -> None:
        self.requests.clear()
        if request.verb == "GET":
            name = f"stream-{len(self._streams)}"
            self._streams[name] = request
            request.open_stream()
            request.event(f"/messages?session_id={name}".encode(), "event: endpoint")
            return
        name = request.path.partition("=")[2]
        stream = self._streams[name]
        if stream.connection.is_closed:
            request.whole(b"Could not find session", "404 Not Found")
            return
        if request.method == "tools/call":
            self._call(request, stream)
        else:
            request.whole(b"Accepted", "202 Accepted")
            if request.method == "initialize":
                info = {"name": "faulty", "version": "1"}
                told = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": info}
                stream.event(request.result(**told))
            elif request.method == "tools/list":
                stream.event(request.result(tools=TOOLS))

    def _call(self, request: Request, stream: Request) -> None:
        arguments = request.message["params"]["arguments"]
        self._ran.came[arguments["id"]] += 1
        is_first = self._ran.came[arguments["id"]] == 1
        if is_first and arguments["fault"] == SESSION:
            request.whole(b"Could not find session", "404 Not Found")
            return
        fault = self._faults.get(arguments["fault"]) if is_first else None
        ends = is_first and arguments["fault"] == self.STREAM_ENDS
        if not ((fault or ends) and arguments["before"]):
            self._ran.run(request.message)
        if fault:
            fault.answer(request)
        else:
            request.whole(b"Accepted", "202 Accepted")
        if ends:
            stream.connection.close()
        elif (not (fault and arguments["before"]) and random.random() < 0.5) or not fault:
            stream.event(request.answer(arguments["id"]))


# Over WebSocket.


class FaultyWs:
    FAULTS = ("closes", "aborts", "garbage", "twice", "half a result")

    def __init__(self, ran: Ran) -> None:
        self._ran = ran

    async def __call__(self, connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for text in connection:
                message = json.loads(text)
                if message.get("method") == "tools/call":
                    await self._call(connection, message)
                elif "id" in message:
                    await connection.send(self._opening(message))

    def _opening(self, message: Json) -> str:
        info = {"name": "faulty", "version": "1"}
        told = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        found = {"initialize": told, "tools/list": {"tools": TOOLS}}.get(message["method"])
        outcome = {"result": found} if found else {"error": {"code": -32601, "message": "Method not found"}}
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome})

    async def _call(self, connection: ServerConnection, message: Json) -> None:
        arguments = message["params"]["arguments"]
        fault = arguments["fault"]
        breaks = fault in ("closes", "aborts")
        if not (breaks and arguments["before"]):
            self._ran.run(message)
        content = [{"type": "text", "text": arguments["id"]}]
        answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": content}})
        if fault == "closes":
            await connection.close(1011)
        elif fault == "aborts":
            connection.transport.abort()
        else:
            if fault == "garbage":
                await connection.send("{garbage")
            await connection.send(answer[:-4] if fault == "half a result" else answer)
            if fault == "twice":
                await connection.send(answer)


# The calls, and what they are told.

STDIO = ("dies before", "dies after", "closes", "answers twice", "garbage", "half a result")
ONLY_AFTER = {fault.name for fault in HTTP if not fault.before} | {"twice", "garbage", "half a result", KEPT}

KINDS: dict[str, tuple[str, ...]] = {
    "session": ("", SESSION, KEPT, *(fault.name for fault in HTTP)),
    "modern": ("", KEPT, *(fault.name for fault in HTTP)),
    "component": ("", *COMPONENT),
    "sse": ("", SESSION, FaultySse.STREAM_ENDS, *FaultySse.FAULTS),
    "ws": ("", *FaultyWs.FAULTS),
    "stdio": ("", *STDIO),
    "nowhere": ("",),
}
"""What may go wrong, by the server."""


class Report(NamedTuple):
    told: Counter[tuple[str, str]]  # by the kind of fault and what was told
    lies: list[str]
    doubles: list[str]


def planned(count: int) -> list[Json]:
    """The calls, in any order; each kind of fault as often as any other."""
    kinds = [(server, fault) for server, faults in KINDS.items() for fault in faults]
    found: list[Json] = []
    for number, (server, fault) in zip(range(count), itertools.cycle(kinds), strict=False):
        tool = HARMLESS if random.random() < 0.25 else "act"
        before = fault not in ONLY_AFTER and random.random() < 0.5
        found.append({"id": f"call-{number}", "server": server, "tool": tool, "fault": fault, "before": before})
    random.shuffle(found)
    return found


@asynccontextmanager
async def servers(ran: Ran, file: Path) -> AsyncIterator[Served]:
    async with (
        serving(FaultyHttp(ran, session=True, modern=False)) as session,
        serving(FaultyHttp(ran, session=False, modern=True)) as modern,
        serving(FaultyComponent(ran)) as component,
        serving(FaultySse(ran)) as sse,
        serve(FaultyWs(ran), "127.0.0.1", 0, subprotocols=["mcp"]) as ws,  # type: ignore[list-item]
    ):
        async with serving(ScriptedServer(_never)) as gone:
            nowhere = gone.port
        port = next(iter(ws.sockets)).getsockname()[1]
        config = settings(
            session={"url": f"http://127.0.0.1:{session.port}/mcp", "timeout": "20s"},
            modern={"url": f"http://127.0.0.1:{modern.port}/mcp", "timeout": "20s"},
            component={"type": "component", "url": f"http://127.0.0.1:{component.port}/", "timeout": "20s"},
            sse={"type": "sse", "url": f"http://127.0.0.1:{sse.port}/sse", "timeout": "20s"},
            ws={"type": "ws", "url": f"ws://127.0.0.1:{port}/mcp", "timeout": "20s"},
            stdio=child("faulty", str(file), timeout="20s"),
            nowhere={"url": f"http://127.0.0.1:{nowhere}/mcp"},
        )
        async with gateway(config) as served:
            yield served


async def _never(request: Request) -> None: ...


async def run(count: int) -> Report:
    """`count` calls, `AT_ONCE` of them at a time."""
    kept, breaker.FAILURES = breaker.FAILURES, sys.maxsize  # or most calls would be refused at once
    ran = Ran()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "ran")
        try:
            async with servers(ran, file) as served:
                told = await _told(planned(count), served.client())
        finally:
            breaker.FAILURES = kept
        ran.times.update(file.read_text().split() if file.exists() else [])
    return _judged(told, ran)


async def _told(calls: list[Json], client: Client) -> list[tuple[Json, str]]:
    told: list[tuple[Json, str]] = []
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            told.append((call, await _outcome(client, call)))

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    return told


async def _outcome(client: Client, call: Json) -> str:
    try:
        result = await client.ask("tools/call", {"name": f"{call['server']}__{call['tool']}", "arguments": call})
    except Failed as error:
        return error.data.get("outcome", "the server's own error")
    said = result["content"][0]["text"]
    return "answered" if said in (call["id"], "ok") else f"answered with {said!r}"


def _judged(told: list[tuple[Json, str]], ran: Ran) -> Report:
    lies: list[str] = []
    doubles: list[str] = []
    seen: Counter[tuple[str, str]] = Counter()
    for call, outcome in told:
        times = ran.times[call["id"]]
        seen[f"{call['server']}: {call['fault'] or 'nothing wrong'}", outcome] += 1
        is_true = {
            "not_sent": not times,
            "sent_unknown": True,
            "executed": times > 0,
            "answered": times > 0,
            "the server's own error": True,
        }
        if not is_true.get(outcome, False):
            lies.append(f"{call} was told {outcome} and ran {times} times")
        if times > (2 if call["tool"] == HARMLESS else 1):
            doubles.append(f"{call} ran {times} times")
    return Report(seen, lies, doubles)


def main() -> int:
    count, seed = int(os.environ.get("FAULT_CALLS", "20000")), int(os.environ.get("FAULT_SEED", "0"))
    random.seed(seed)
    report = uvloop.run(run(count))
    for (kind, outcome), times in sorted(report.told.items()):
        print(f"{times:6} {kind:48} {outcome}")
    print(*report.lies, *report.doubles, sep="\n")
    kinds = len({kind for kind, _ in report.told})
    print(f"{count} calls, {kinds} kinds of fault by server (seed {seed}): ", end="")
    print(f"{len(report.lies)} lies, {len(report.doubles)} ran too often")
    return 1 if report.lies or report.doubles else 0


if __name__ == "__main__":
    sys.exit(main())
