"""The soak: one gateway under everything at once, for minutes, and what is left of it afterwards (`make soak`).

64 clients of both eras call, stream, ask, cancel, subscribe, run tasks, read large results, slowly too, and vanish,
over HTTP with connections that they keep and with new ones, the transport of 2024-11-05 and WebSocket. Servers are
programs, or reached over HTTP and over the transport of 2024-11-05. Programs and workers are killed, and the
configuration is edited, meanwhile. Then all leave. It fails where an answer is not that of its own call, a question is
lost, a call was executed twice, a process, a call or an open file is left, or the gateway's resident memory, a while
after all have left, is more than it was within the first minute and some.

    SOAK_SECONDS (900) how long; a call may be refused because its server was killed, and is then counted.
    SOAK_WORKERS (1)   processes that take connections; from 2 on, what a killed one was doing may be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import signal
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import websockets
from processes.ground import LEGACY, MODERN, PREFIX, STREAM, Failed, Gateway, Json, alive, read_response

CHUNK_LINE = re.compile(rb"\r\n[0-9a-f]+\r\n")
SECONDS = float(os.environ.get("SOAK_SECONDS", "900"))
WORKERS = int(os.environ.get("SOAK_WORKERS", "1"))
FIRST = min(60.0, SECONDS / 2)  # seconds in which memory is looked at for the first time
AFTER = min(300.0, SECONDS / 3)  # seconds between the end of all work and the last look
GROWTH = (
    15.0 if SECONDS >= 600 else 30.0
)  # MB, of each process; a short run keeps most of what is kept for five minutes
MORE_FILES = 8  # that each process may have open at last, beside
FILES_OF_A_SERVER = 4  # those of each server that still runs: its pipes, and the socket of what started it
KILL_EVERY, EDIT_EVERY, VANISH_EVERY, KILL_WORKER_EVERY = 4.0, 5.0, 0.25, 20.0  # seconds
LOST_WITHIN = 10.0  # seconds after a worker was killed in which its clients may find out
KEPT = 15  # clients of each era that keep their connections to one server
LARGE = 2_000_000  # bytes
PAUSE = 0.05  # seconds between a client's operations: the load is bounded
WAIT = 60.0

SERVER = Path(__file__).with_name("server.py")
URI = "soak://watched"
KEYS = {"ada": "key-of-ada-for-the-soak-only", "bob": "key-of-bob-for-the-soak-only"}
WATCHER = "key-of-who-reads-metrics-for-the-soak"
FAULTS = {"SERVER_FAILED", "SESSION_ERROR", "CIRCUIT_OPEN", "TIMEOUT"}  # what a killed server may cost its calls
QUESTION: Json = {"elicitation": {"form": {}}}

numbers = itertools.count(1)


class Wrong(Exception):
    """What must not be."""


class Ended(Wrong):
    """A connection has ended before its answer: it may where a worker was killed."""


class Tally:
    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.problems: list[str] = []
        self.executed: dict[int, str] = {}  # each call of `once` that was made, and how it ended

    def wrong(self, what: str) -> None:
        self.problems.append(what)
        print("WRONG:", what, file=sys.stderr, flush=True)


class Client:
    """A client with a connection for each request."""

    def __init__(self, port: int, who: str, era: str) -> None:
        self.port, self.who, self.era = port, who, era
        self.session = ""
        self.capabilities: Json = QUESTION

    async def open(self) -> Client:
        self.session = ""
        if self.era != MODERN:
            info = {"name": "soak", "version": "1"}
            hello = {"protocolVersion": self.era, "capabilities": {"elicitation": {}}, "clientInfo": info}
            _, headers, _ = await self.raw(self.message("initialize", hello))
            self.session = headers[b"mcp-session-id"].decode()
            await self.raw({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def message(self, method: str, params: Json) -> Json:
        if self.era == MODERN:
            params = {
                **params,
                "_meta": params.get("_meta", {})
                | {PREFIX + "protocolVersion": MODERN, PREFIX + "clientCapabilities": self.capabilities}
                | {PREFIX + "clientInfo": {"name": "soak", "version": "1"}},
            }
        return {"jsonrpc": "2.0", "id": next(numbers), "method": method, "params": params}

    def request(self, message: Json, verb: str, connection: str) -> bytes:
        body = json.dumps(message).encode() if verb == "POST" else b""
        lines = [f"{verb} /mcp HTTP/1.1", "Host: localhost", f"Accept: {STREAM}", f"Connection: {connection}"]
        lines += [f"Authorization: Bearer {KEYS[self.who]}", "Content-Type: application/json"]
        if self.era == MODERN:
            lines += [f"MCP-Protocol-Version: {MODERN}", f"Mcp-Method: {message['method']}"]
            lines += [f"Mcp-Name: {message['params']['name']}"] if "name" in message["params"] else []
        elif self.session:
            lines += [f"MCP-Protocol-Version: {self.era}", f"Mcp-Session-Id: {self.session}"]
        lines += [f"Content-Length: {len(body)}"] if body else []
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    async def send(self, message: Json, verb: str = "POST") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=16 * 1024 * 1024)
        writer.write(self.request(message, verb, "close"))
        return reader, writer

    async def raw(self, message: Json, verb: str = "POST") -> tuple[int, dict[bytes, bytes], bytes]:
        reader, writer = await self.send(message, verb)
        try:
            async with asyncio.timeout(WAIT):
                return await read_response(reader)
        finally:
            await shut(writer)

    async def ask(self, method: str, **params: Any) -> Json:
        """The result. Raises `Failed`."""
        message = self.message(method, params)
        status, _, body = await self.raw(message)
        return result_of(json.loads(body), message["id"], status)

    async def call(self, tool: str, **arguments: Any) -> str:
        return text_of(await self.ask("tools/call", name=tool, arguments=arguments))

    async def end(self) -> None:
        if self.session:
            status, _, _ = await self.raw({}, "DELETE")
            if status != 204:
                raise Wrong(f"a session's end was answered with {status}")


class Kept(Client):
    """A client that keeps its connection, and makes another where that has ended."""

    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def raw(self, message: Json, verb: str = "POST") -> tuple[int, dict[bytes, bytes], bytes]:
        async with asyncio.timeout(WAIT):
            if self.connection is None:
                self.connection = await asyncio.open_connection("127.0.0.1", self.port, limit=16 * 1024 * 1024)
            reader, writer = self.connection
            try:
                writer.write(self.request(message, verb, "keep-alive"))
                found = await one_response(reader)
            except BaseException:
                await self.leave()
                raise
        if found[1].get(b"connection") == b"close":
            await self.leave()
        return found

    async def leave(self) -> None:
        if self.connection:
            _, writer = self.connection
            self.connection = None
            writer.transport.abort()

    async def end(self) -> None:
        try:
            await super().end()
        finally:
            await self.leave()


async def one_response(reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes], bytes]:
    """That of a connection on which others follow."""
    if not (first := await reader.readline()):
        raise asyncio.IncompleteReadError(b"", None)
    headers: dict[bytes, bytes] = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    if headers.get(b"transfer-encoding") == b"chunked":
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get(b"content-length", 0)))
    if headers.get(b"content-type", b"").startswith(b"text/event-stream"):
        body = [line for line in body.split(b"\n") if line.startswith(b"data: ")][-1].removeprefix(b"data: ")
    return int(first.split()[1]), headers, body


def result_of(answer: Json, id: int, status: int = 200) -> Json:
    if "error" in answer:
        if answer.get("id") not in (id, None):
            raise Wrong(f"{answer} is the answer to {id}")
        raise Failed(answer["error"])
    if status != 200 or answer.get("id") != id:
        raise Wrong(f"status {status}, {answer} is the answer to {id}")
    return answer["result"]


def text_of(result: Json) -> str:
    if result.get("isError"):
        raise Wrong(f"an error inside a result: {result}")
    return "".join(block["text"] for block in result["content"])


def same(found: object, wanted: object) -> None:
    if found != wanted:
        raise Wrong(f"{found!r:.300}, and not {wanted!r}")


async def shut(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def reset(writer: asyncio.StreamWriter) -> None:
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Soak:
    def __init__(self, port: int, gateway: int, config: Path, notes: Path) -> None:
        self.port, self.gateway, self.config, self.notes = port, gateway, config, notes
        self.tally = Tally()
        self.until = time.monotonic() + SECONDS
        self.worker_killed = -LOST_WITHIN
        self.chance = random.Random(7)

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.until

    def client(self, who: str, era: str) -> Client:
        return Client(self.port, who, era)

    @contextlib.asynccontextmanager
    async def opened(self, client: Client) -> AsyncIterator[Client]:
        """With its session, which ends with it."""
        for _ in range(3):
            if await self.one("beginning", client.open):
                break
        else:
            self.tally.wrong("a client could not begin")
        yield client
        await self.one("end", client.end)

    # What clients do.

    async def calls(self, who: str, era: str, server: str) -> None:
        async with self.opened(self.client(who, era)) as client:
            for turn in itertools.count():
                if not self.goes_on:
                    break
                number = next(numbers)
                if turn % 4 == 0:
                    await self.one("once", lambda: self.once(client, server, number))
                elif turn % 4 == 1:
                    await self.one("slow", lambda: self.says(client, f"{server}__slow", number))
                elif turn % 4 == 2:
                    await self.one("progress", lambda: self.progress(client, server, number))
                else:
                    await self.one("echo", lambda: self.says(client, f"{server}__echo", number))

    async def keeps_calling(self, who: str, era: str, server: str) -> None:
        """One call after another on one connection: the shortest way through the gateway."""
        async with self.opened(Kept(self.port, who, era)) as client:
            while self.goes_on:
                number = next(numbers)
                await self.one(f"echo of {server}, kept", lambda: self.says(client, f"{server}__echo", number))

    async def reads_large(self, who: str, era: str, server: str) -> None:
        async with self.opened(self.client(who, era)) as client:
            for turn in itertools.count():
                if not self.goes_on:
                    break
                number = next(numbers)
                read = self.large if turn % 3 else self.large_slowly
                await self.one("large result", lambda: read(client, server, number))

    async def large(self, client: Client, server: str, number: int) -> None:
        said = await client.call(f"{server}__large", say=str(number), bytes=LARGE)
        word = f"{number}, "
        same((len(said), said == (word * (LARGE // len(word) + 1))[:LARGE]), (LARGE, True))

    async def large_slowly(self, client: Client, server: str, number: int) -> None:
        """Reads a part, waits, and reads on; or leaves."""
        call = {"name": f"{server}__large", "arguments": {"say": str(number), "bytes": LARGE}}
        message = client.message("tools/call", call)
        reader, writer = await client.send(message)
        async with asyncio.timeout(WAIT):
            first = await reader.read(65536)
            await asyncio.sleep(0.5)
            if number % 2:
                reset(writer)
                return
            whole = first + await reader.read()
        await shut(writer)
        said = CHUNK_LINE.sub(b"", whole)  # of a stream, whose chunks end anywhere
        words, most = said.count(f"{number}, ".encode()), LARGE // len(f"{number}, ")
        if words < most - 1 and b'"error"' not in whole:
            raise Ended(f"{len(whole)} bytes of a large result, with {words} words of {most}: {whole[:400]!r}")

    async def says(self, client: Client, tool: str, number: int) -> None:
        same(await client.call(tool, say=f"say {number}"), f"say {number}")

    async def once(self, client: Client, server: str, number: int) -> None:
        self.tally.executed[number] = "unknown"
        try:
            same(await client.call(f"{server}__once", number=number), str(number))
            self.tally.executed[number] = "answered"
        except Failed as error:
            self.tally.executed[number] = str(error.data.get("outcome"))
            raise

    async def progress(self, client: Client, server: str, number: int) -> None:
        call = {"name": f"{server}__steps", "arguments": {"say": f"say {number}"}, "_meta": {"progressToken": number}}
        message = client.message("tools/call", call)
        reader, writer = await client.send(message)
        try:
            seen: list[Any] = []
            async for event in events(reader):
                if event.get("method") == "notifications/progress":
                    same((event["params"]["progressToken"], event["params"]["message"]), (number, f"say {number}"))
                    seen.append(event["params"]["progress"])
                elif "method" not in event:
                    same(text_of(result_of(event, message["id"])), f"say {number}")
                    same(seen, [1, 2, 3, 4, 5])
                    return
            raise Ended("a stream ended without an answer")
        finally:
            await shut(writer)

    async def questions(self, who: str, era: str, server: str) -> None:
        async with self.opened(self.client(who, era)) as client:
            while self.goes_on:
                number = next(numbers)
                ask = self.asked_modern if era == MODERN else self.asked
                await self.one("question", lambda: ask(client, f"{server}__ask", number))

    async def asked(self, client: Client, tool: str, number: int) -> None:
        message = client.message("tools/call", {"name": tool, "arguments": {"say": f"ask {number}"}})
        reader, writer = await client.send(message)
        try:
            async for event in events(reader):
                if event.get("method") == "elicitation/create":
                    answer = self.answer(event["params"]["message"], number)
                    status, _, _ = await client.raw({"jsonrpc": "2.0", "id": event["id"], "result": answer})
                    same(status, 202)
                elif "method" not in event:
                    said = text_of(result_of(event, message["id"]))
                    same(said, f"ask {number}: accept word-{number}")
                    return
            raise Ended("a question's stream ended without an answer")
        finally:
            await shut(writer)

    async def asked_modern(self, client: Client, tool: str, number: int) -> None:
        call: Json = {"name": tool, "arguments": {"say": f"ask {number}"}}
        result = await client.ask("tools/call", **call)
        while questions := result.get("inputRequests"):
            answers = {key: self.answer(asked["params"]["message"], number) for key, asked in questions.items()}
            given = {"requestState": result["requestState"], "inputResponses": answers}
            result = await client.ask("tools/call", **call, **given)
        same(text_of(result), f"ask {number}: accept word-{number}")

    def answer(self, question: str, number: int) -> Json:
        """Its own call's. Where an answer was lost with a worker, its server's call ends without, and the question may
        then be a later call's of the same client, for all that the gateway knows."""
        asked = question.splitlines()[-1]
        if asked != f"> ask {number}" and not self.tally.faults["a worker was killed"]:
            raise Wrong(f"{asked!r} is asked of call {number}")
        return {"action": "accept", "content": {"word": asked.replace("> ask ", "word-")}}

    async def cancels(self, who: str, era: str, server: str) -> None:
        async with self.opened(self.client(who, era)) as client:
            while self.goes_on:
                await self.one("cancellation", lambda: self.cancelled(client, server))

    async def cancelled(self, client: Client, server: str) -> None:
        message = client.message("tools/call", {"name": f"{server}__hold", "arguments": {}})
        reader, writer = await client.send(message)
        await asyncio.sleep(0.1)
        if client.era == MODERN:
            reset(writer)
            return
        told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": message["id"]}}
        await client.raw(told)
        async with asyncio.timeout(WAIT):
            await read_response(reader)
        await shut(writer)

    async def watches(self, who: str, server: str) -> None:
        """A modern client hears of a resource, in every round on another stream."""
        client = self.client(who, MODERN)
        while self.goes_on:
            await self.one("subscription", lambda: self.watched(client, server))

    async def watched(self, client: Client, server: str) -> None:
        uri = f"{server}+{URI}"
        message = client.message("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})
        reader, writer = await client.send(message)
        try:
            async for event in events(reader):
                if event.get("method") == "notifications/subscriptions/acknowledged":
                    if uri not in event["params"]["notifications"].get("resourceSubscriptions", ()):
                        raise Failed({"code": 0, "message": "not watched", "data": {"code": "SERVER_FAILED"}})
                    await client.call(f"{server}__touch")
                elif event.get("method") == "notifications/resources/updated":
                    same(event["params"]["uri"], uri)
                    return
                elif "error" in event:
                    result_of(event, message["id"])
            raise Ended("a subscription ended without a word")
        except TimeoutError:  # its server was killed between the two
            raise Failed({"code": 0, "message": "not told", "data": {"code": "TIMEOUT"}}) from None
        finally:
            await shut(writer)

    async def runs_tasks(self, who: str, server: str) -> None:
        async with self.opened(self.client(who, LEGACY)) as client:
            while self.goes_on:
                number = next(numbers)
                await self.one("task", lambda: self.task(client, f"{server}__work", number))

    async def task(self, client: Client, tool: str, number: int) -> None:
        made = await client.ask("tools/call", name=tool, arguments={"say": f"work {number}"}, task={"ttl": 60_000})
        try:
            await client.ask("tasks/get", taskId=made["task"]["taskId"])
            result = await client.ask("tasks/result", taskId=made["task"]["taskId"])
        except Failed as error:  # a server that was killed has forgotten its tasks
            raise Failed({"code": 0, "message": error.message, "data": {"code": "SERVER_FAILED"}}) from None
        same(text_of(result), f"work {number}")

    async def speaks_sse(self, who: str, server: str) -> None:
        while self.goes_on:
            await self.one("a connection of 2024-11-05", lambda: self.sse(who, server))

    async def sse(self, who: str, server: str) -> None:
        shown = f"Authorization: Bearer {KEYS[who]}"
        head = f"GET /mcp/sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{shown}"
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=16 * 1024 * 1024)
        try:
            writer.write(head.encode() + b"\r\n\r\n")
            async with asyncio.timeout(WAIT):
                while not (line := await reader.readline()).startswith(b"data: "):
                    if not line:
                        raise Ended("no stream of 2024-11-05")
            place = line.removeprefix(b"data: ").strip().decode()

            async def post(message: Json) -> None:
                body = json.dumps(message).encode()
                its_reader, its_writer = await asyncio.open_connection("127.0.0.1", self.port)
                its_writer.write(
                    f"POST {place} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{shown}\r\n"
                    f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                    + body
                )
                async with asyncio.timeout(WAIT):
                    status, _, _ = await read_response(its_reader)
                await shut(its_writer)
                if status == 404:
                    raise Ended("the stream of 2024-11-05 is gone")
                same(status, 202)

            said = events(reader)
            for _ in range(10):
                number = next(numbers)
                message = {"jsonrpc": "2.0", "id": number, "method": "tools/call"}
                await post({**message, "params": {"name": f"{server}__echo", "arguments": {"say": f"say {number}"}}})
                answer = await anext(said, None)
                if answer is None:
                    raise Ended("the stream of 2024-11-05 has ended")
                with self.may_fail():
                    same(text_of(result_of(answer, number)), f"say {number}")
                    self.tally.done["echo over 2024-11-05"] += 1
            await said.aclose()
        finally:
            await shut(writer)

    async def speaks_websocket(self, who: str, server: str) -> None:
        while self.goes_on:
            await self.one("a WebSocket", lambda: self.websocket(who, server))

    async def websocket(self, who: str, server: str) -> None:
        told = {"Authorization": f"Bearer {KEYS[who]}"}
        url = f"ws://127.0.0.1:{self.port}/mcp"
        opening = websockets.connect(
            url, additional_headers=told, subprotocols=[websockets.Subprotocol("mcp")], open_timeout=WAIT
        )
        async with opening as ws:
            for _ in range(10):
                waiting: dict[int, str] = {}
                for _ in range(5):
                    number = next(numbers)
                    waiting[number] = f"say {number}"
                    call = {"name": f"{server}__echo", "arguments": {"say": f"say {number}"}}
                    await ws.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}))
                while waiting:
                    async with asyncio.timeout(WAIT):
                        answer = json.loads(await ws.recv())
                    if "method" in answer:
                        continue
                    wanted = waiting.pop(answer["id"])
                    with self.may_fail():
                        same(text_of(result_of(answer, answer["id"])), wanted)
                        self.tally.done["echo over WebSocket"] += 1

    async def vanishes(self) -> None:
        while self.goes_on:
            await asyncio.sleep(VANISH_EVERY)
            who, era = self.chance.choice(list(KEYS)), self.chance.choice((MODERN, LEGACY))
            client = self.client(who, era)
            with contextlib.suppress(OSError):
                tool = self.chance.choice(("alpha__hold", "beta__slow", "alpha__steps", "own__echo"))
                message = client.message("tools/call", {"name": tool, "arguments": {"say": "gone"}})
                _, writer = await client.send(message)
                await asyncio.sleep(self.chance.uniform(0, 0.2))
                reset(writer)
                self.tally.done["vanished clients"] += 1

    # What befalls them.

    async def kills(self) -> None:
        while self.goes_on:
            await asyncio.sleep(KILL_EVERY)
            if victims := servers_of(self.gateway):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.chance.choice(victims), signal.SIGKILL)
                    self.tally.done["killed servers"] += 1

    async def kills_workers(self) -> None:
        while self.goes_on:
            await asyncio.sleep(KILL_WORKER_EVERY)
            if WORKERS > 1 and self.goes_on and (victims := workers_of(self.gateway)):
                self.worker_killed = time.monotonic()
                os.kill(self.chance.choice(victims), signal.SIGKILL)
                self.tally.done["killed workers"] += 1

    def may_be_lost(self, begun: float) -> bool:
        """Whether what began then may have been a killed worker's."""
        return begun - LOST_WITHIN < self.worker_killed

    async def edits(self) -> None:
        for edit in itertools.count():
            await asyncio.sleep(EDIT_EVERY)
            if not self.goes_on:
                break
            write_config(self.config, self.notes, edit)
            self.tally.done["edits"] += 1
            if edit % 2 == 0:
                client = self.client("ada", MODERN)
                await self.one("call of what was added", lambda: self.added(client, edit))
        write_config(self.config, self.notes)

    async def added(self, client: Client, edit: int) -> None:
        async with asyncio.timeout(WAIT):
            while True:
                try:
                    await self.says(client, f"extra-{edit}__echo", edit)
                    return
                except Failed as error:  # until the file is looked at
                    if error.data.get("code") in FAULTS:
                        raise
                    await asyncio.sleep(0.1)

    @contextlib.contextmanager
    def may_fail(self) -> Any:
        try:
            yield
        except Failed as error:
            code = str(error.data.get("code"))
            if code not in FAULTS:
                raise Wrong(f"refused: {error}") from None
            self.tally.faults[code] += 1

    async def one(self, name: str, work: Callable[[], Awaitable[Any]]) -> bool:
        """One operation, and whether it was done. A killed server may cost it its answer, and nothing else."""
        begun, done = time.monotonic(), False
        try:
            with self.may_fail():
                await work()
                self.tally.done[name] += 1
                done = True
        except TimeoutError:
            self.tally.wrong(f"{name}: no answer within {WAIT:g} s")
        except (Wrong, OSError, EOFError, IndexError, KeyError, ValueError, websockets.WebSocketException) as error:
            if self.may_be_lost(begun) and not (isinstance(error, Wrong) and not isinstance(error, Ended)):
                self.tally.faults["a worker was killed"] += 1
            else:
                self.tally.wrong(f"{name}: {error!r}")
        await asyncio.sleep(PAUSE)
        return done

    async def run(self) -> None:
        both = (MODERN, LEGACY)
        async with asyncio.TaskGroup() as together:
            work = [
                *(self.calls(who, era, server) for who in KEYS for era in both for server in ("alpha", "beta", "far")),
                *(self.calls(who, LEGACY, server) for who in KEYS for server in ("own", "mine")),
                *(
                    self.keeps_calling(who, era, "far")
                    for _, who in zip(range(KEPT), itertools.cycle(KEYS))
                    for era in both
                ),
                *(self.keeps_calling("bob", era, server) for era in both for server in ("alpha", "old")),
                *(self.reads_large("ada", era, server) for era in both for server in ("beta", "far")),
                *(self.questions(who, LEGACY, "own") for who in KEYS),
                self.questions("ada", MODERN, "asker"),
                *(self.cancels("bob", era, "alpha") for era in both),
                self.watches("ada", "beta"),
                self.runs_tasks("bob", "alpha"),
                self.speaks_sse("ada", "beta"),
                self.speaks_websocket("bob", "alpha"),
                self.vanishes(),
                self.kills(),
                self.kills_workers(),
                self.edits(),
            ]
            for each in work:
                together.create_task(each)

    def check_executed(self) -> None:
        """Nothing twice; what was answered, once; what is said not to have been sent, never."""
        written = Counter(map(int, self.notes.read_text().split()))
        for number, ending in self.tally.executed.items():
            times = written[number]
            if times > 1 or (ending == "answered" and times != 1) or (ending == "not_sent" and times):
                self.tally.wrong(f"call {number}, {ending}, was executed {times} times")


async def events(reader: asyncio.StreamReader) -> Any:
    """The messages of a response, a stream or one body."""
    async with asyncio.timeout(WAIT):
        head = b""
        if not (first := await reader.readline()).startswith(b"HTTP"):
            head = first
        else:
            while (line := await reader.readline()).strip():
                head += line
    if b"application/json" in head:
        async with asyncio.timeout(WAIT):
            yield json.loads(await reader.read())
        return
    while True:
        async with asyncio.timeout(WAIT):
            line = await reader.readline()
        if not line:
            return
        if line.startswith(b"data: ") and line.strip() != b"data:":
            yield json.loads(line.removeprefix(b"data: "))


def family(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                parent = int(Path(f"/proc/{entry}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def servers_of(pid: int) -> list[int]:
    """The server processes below a gateway."""
    return [each for each in family(pid) if str(SERVER).encode() in command_of(each)]


def workers_of(pid: int) -> list[int]:
    """The processes that take its connections: they are told what it was."""
    return [each for each in family(pid) if b"\0serve\0" in command_of(each)]


def files_of(pid: int) -> Counter[str]:
    """How many open files of each kind: sockets, pipes, or their names."""
    found: Counter[str] = Counter()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found[os.readlink(each).partition(":[")[0]] += 1
    return found


def command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


class Look(NamedTuple):
    """What a gateway's processes have: the owner's, and the most of a worker's."""

    resident: float  # MB
    files: int

    @staticmethod
    def at(pid: int) -> Look:
        seen: list[Look] = []
        for each in [pid, *workers_of(pid)]:
            with contextlib.suppress(OSError, ValueError):
                [line] = [x for x in Path(f"/proc/{each}/status").read_text().splitlines() if x.startswith("VmRSS:")]
                seen.append(Look(int(line.split()[1]) * 1024 / 1e6, len(os.listdir(f"/proc/{each}/fd"))))
        return Look(max(look.resident for look in seen), max(look.files for look in seen))


def entry(notes: Path, **more: Any) -> Json:
    return {"command": sys.executable, "args": ["-S", str(SERVER), str(notes)], "timeout": "20s", **more}


far: Json = {}


def write_config(path: Path, notes: Path, edit: int | None = None) -> None:
    """That of the start, or with the servers of this edit."""
    servers = {
        "alpha": entry(notes),
        "beta": entry(notes),
        "asker": entry(notes),
        "own": entry(notes, scope="session"),
        "mine": entry(notes, scope="principal"),
        "far": far,
        "old": {"type": "sse", "url": f"{far['url']}/sse"},
    }
    if edit is not None:
        servers[f"extra-{edit // 2 * 2}"] = entry(notes, env={"EDIT": str(edit)})
    clients: list[Json] = [{"id": who, "key": key, "mcp_server_access": "all"} for who, key in KEYS.items()]
    clients.append({"id": "watcher", "key": WATCHER, "admin": True})
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"mcpServers": servers, "clients": clients}))
    fresh.chmod(0o600)
    fresh.replace(path)


async def started(folder: Path, name: str, config: Path, *more: str) -> Gateway:
    home = folder / name
    home.mkdir()
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "toolgate", "serve", "--port", "0", "--config", str(config), *more],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={"HOME": str(home), "TMPDIR": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        | {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
        cwd=home,
        start_new_session=True,
    )
    found = Gateway(process)
    await found.until_it_serves()
    return found


async def ended(gateway: Gateway, tally: Tally) -> None:
    """TERM; nothing may be left of it."""
    left = family(gateway.process.pid)
    gateway.process.terminate()
    same(await gateway.ended(), 0)
    until = time.monotonic() + 10
    while any(map(alive, left)) and time.monotonic() < until:
        await asyncio.sleep(0.1)
    if still := [pid for pid in left if alive(pid)]:
        tally.wrong(f"processes are left: {still}")


async def looks(pid: int, seen: list[float], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        seen.append(Look.at(pid).resident)
        await asyncio.sleep(1)


async def calls_left(port: int) -> list[str]:
    """The servers that still have calls, as the gateway counts them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                 f"Authorization: Bearer {WATCHER}\r\n\r\n".encode())  # fmt: skip
    async with asyncio.timeout(WAIT):
        status, _, body = await read_response(reader)
    await shut(writer)
    same(status, 200)
    counted = [line for line in body.decode().splitlines() if line.startswith("toolgate_server_calls{")]
    if not counted:
        raise Wrong("the metrics count no calls")
    return [line for line in counted if not line.endswith(" 0")]


async def main() -> int:
    with tempfile.TemporaryDirectory(prefix="toolgate-soak-") as temporary:
        folder = Path(temporary)
        notes, config, behind = folder / "executed", folder / "toolgate.json", folder / "behind.json"
        notes.touch()
        behind.write_text(json.dumps({"mcpServers": {"there": entry(notes)}}))
        gateways = [await started(folder, "behind", behind)]
        far["url"] = f"http://127.0.0.1:{gateways[0].port}/mcp/servers/there"
        write_config(config, notes)
        gateways.append(await started(folder, "gateway", config, *["--workers", str(WORKERS)] * (WORKERS > 1)))
        gateway = gateways[-1]
        pid = gateway.process.pid
        before = Look.at(pid)
        soak = Soak(gateway.port, pid, config, notes)
        first: list[float] = []
        try:
            looking = asyncio.create_task(looks(pid, first, FIRST))
            await soak.run()
            await looking
            busy = Look.at(pid)
            print(f"all have left after {SECONDS:g} s; now {AFTER:g} s of nothing", flush=True)
            await asyncio.sleep(AFTER)
            last, left = Look.at(pid), [dict(files_of(each)) for each in [pid, *workers_of(pid)]]
            may_be_open = before.files + MORE_FILES + FILES_OF_A_SERVER * len(servers_of(pid))
            soak.check_executed()
            for line in await calls_left(gateway.port):
                soak.tally.wrong(f"calls are left: {line}")
        finally:
            for each in reversed(gateways):
                await ended(each, soak.tally)
    operations = sum(soak.tally.done.values())
    print(f"{operations} operations: {dict(soak.tally.done)}")
    print(f"calls that a killed server cost: {dict(soak.tally.faults)}")
    print(f"resident: {max(first):.1f} MB in the first {FIRST:g} s, {busy.resident:.1f} at the end, "
          f"{last.resident:.1f} at last; open files: {before.files}, {busy.files} and {last.files}")  # fmt: skip
    if last.resident > max(first) + GROWTH:
        soak.tally.wrong(f"memory has grown by {last.resident - max(first):.1f} MB, and may by {GROWTH:g}")
    if last.files > may_be_open:
        soak.tally.wrong(f"{last.files} files are open, {may_be_open} may be, and {before.files} were: {left}")
    if soak.tally.problems:
        print(f"FAILED: {len(soak.tally.problems)} problems; the gateway said at last:", file=sys.stderr)
        print(gateway.errors[-3000:].decode(errors="replace"), file=sys.stderr)
    else:
        print("ok: no wrong answer, no lost question, nothing executed twice, no process left")
    return bool(soak.tally.problems)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
