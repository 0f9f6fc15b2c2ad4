"""What these tests stand on: gateways in this process and as processes, clients on raw sockets, and a look at /proc.

The rules this file keeps: every wait is bounded and looks for something, none is for a time; a test leaves no process,
no task and no open file behind, and an error that only the event loop saw fails it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from toolgate import config as configs
from toolgate.app import App, running
from toolgate.auth.access import THE_OPERATOR
from toolgate.cli.gateways import Running
from toolgate.config import Config
from toolgate.core.model import Principal
from toolgate.frontends.server import bind, serving

Json = dict[str, Any]

CHILDREN = Path(__file__).parent / "children"
PYTHON = [sys.executable, "-I", "-S", "-X", "utf8"]
WAIT = 60.0  # seconds; far more than anything here takes, on a machine that does much else
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
PREFIX = "io.modelcontextprotocol/"
STREAM = "application/json, text/event-stream"


def real(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that runs in an event loop of its own, the one that the gateway uses."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def bounded() -> None:
            seen: list[Json] = []
            asyncio.get_running_loop().set_exception_handler(lambda _loop, context: seen.append(context))
            async with asyncio.timeout(1.5 * WAIT):
                await test(*args, **kwargs)
            assert not seen

        before = set(offspring())
        uvloop.run(bounded())
        assert not until_gone(set(offspring()) - before)

    return run


async def until(condition: Callable[[], object], seconds: float = WAIT) -> None:
    """Look until it holds. The one place that looks again and again."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


# Processes.


def offspring(parent: int | None = None) -> list[int]:
    """The living children of a process."""
    return [pid for pid, (_, state, above) in _processes().items() if above == (parent or os.getpid()) and state != "Z"]


def started(parent: int | None = None) -> list[int]:
    """The living programs that a gateway has started, by its guard and their keepers: servers, components, commands."""
    found = [pid for guard in guards(parent) for keeper in offspring(guard) for pid in offspring(keeper)]
    return [pid for pid in found if pid not in carrying("guard.py")]


def carrying(word: str) -> list[int]:
    """The living processes that have this on their command line."""
    found: list[int] = []
    for pid, (_, state, _) in _processes().items():
        if state not in "ZX" and pid != os.getpid():
            with contextlib.suppress(OSError):
                if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
    return found


def alive(pid: int) -> bool:
    return _processes().get(pid, ("", "X", 0))[1] not in "ZX"


def guards(gateway: int | None = None) -> list[int]:
    """The guard processes of a gateway's process; without one, of this process."""
    return [pid for pid in carrying("guard.py") if pid in offspring(gateway)]


def keepers(gateway: int | None = None) -> list[int]:
    """What the guard has started for each program."""
    return [keeper for guard in guards(gateway) for keeper in offspring(guard)]


def until_gone(pids: set[int], seconds: float = 5.0) -> set[int]:
    """Wait until they are gone; those that are not by then."""

    async def gone() -> None:
        await until(lambda: not any(alive(pid) for pid in pids), seconds)

    with contextlib.suppress(TimeoutError):
        asyncio.run(gone())
    return {pid for pid in pids if alive(pid)}


def _processes() -> dict[int, tuple[str, str, int]]:
    """Name, state and parent by process id."""
    found: dict[int, tuple[str, str, int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                head, _, tail = Path(f"/proc/{entry}/stat").read_text(errors="replace").rpartition(")")
                state, parent = tail.split()[:2]
                found[int(entry)] = (head.partition("(")[2], state, int(parent))
    return found


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def family_of(file: Path) -> list[int]:
    """The process ids that `children/family.py` wrote."""
    return [int(word) for word in file.read_text().split()]


# Configurations.


def child(script: str, *args: str, **more: Any) -> Json:
    """The entry of a scripted child in `mcpServers`."""
    return {"command": PYTHON[0], "args": ["-S", str(CHILDREN / f"{script}.py"), *args], **more}


WHOLE_LISTS: Json = {"catalog": {"first_wait": "10s"}}  # what is listed first must not depend on how busy a machine is


def settings(environ: Mapping[str, str] | None = None, **servers: Json) -> Config:
    text = json.dumps({"mcpServers": servers, **WHOLE_LISTS})
    return configs.read(text, file="toolgate.json", environ=environ or {}, format="json")


@contextlib.contextmanager
def home() -> Iterator[dict[str, str]]:
    """The environment of a user who has nothing yet. With `TOOLGATE_WORKERS` gateways that serve have so many."""
    workers = {name: os.environ[name] for name in ("TOOLGATE_WORKERS",) if name in os.environ}
    with tempfile.TemporaryDirectory() as folder:
        yield {"HOME": folder, "TMPDIR": folder, "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **workers}


# Gateways.


class Served:
    """A gateway in this process, on a socket."""

    def __init__(self, app: App, port: int) -> None:
        self.app = app
        self.port = port

    def client(self, era: str = MODERN) -> Client:
        return Client(self.port, era)

    def status(self, server: str) -> Any:
        return self.app.gateway.snapshot.upstreams[server].status().told()


@asynccontextmanager
async def gateway(config: Config, **injected: Any) -> AsyncIterator[Served]:
    listener = bind("127.0.0.1", 0)
    with home() as environ:
        async with running(config, environ=environ, **injected) as app, serving(app.http, listener):
            yield Served(app, listener.getsockname()[1])
            await app.sessions.close()


async def an_operator(_headers: Any, _address: str, _path: str) -> Principal:
    """Takes every client for the operator: an `identify` for a gateway in this process."""
    return THE_OPERATOR


async def over_the_socket(environ: Mapping[str, str], method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """What the operator of a gateway process is answered at its admin door; `path` is that behind /admin."""
    folder = Path(environ["HOME"], ".local", "state", "toolgate", "run")
    await until(lambda: list(folder.glob("*.sock")))
    [place] = folder.glob("*.sock")
    async with asyncio.timeout(WAIT):
        return await Running(str(place)).ask(method, path, body)


class Gateway:
    """`python -m toolgate` as a process in a group of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.errors = bytearray()
        self.port = 0
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stderr
        while chunk := await self.process.stderr.read(65536):
            self.errors += chunk

    async def until_it_says(self, words: bytes) -> None:
        await until(lambda: words in self.errors or self._reading.done())
        assert words in self.errors, self.errors.decode()

    async def until_it_serves(self) -> Client:
        await self.until_it_says(b"/mcp")
        self.port = int(self.errors.partition(b"127.0.0.1:")[2].partition(b"/mcp")[0])
        return Client(self.port)

    def signal_group(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    async def ended(self) -> int:
        """The exit code, when its stderr is read to the end too (so nobody holds it any more)."""
        async with asyncio.timeout(WAIT):
            await self._reading
            return await self.process.wait()


@asynccontextmanager
async def toolgate(
    *args: str,
    config: Json,
    stdin: int = asyncio.subprocess.DEVNULL,
    stdout: int = asyncio.subprocess.PIPE,
    environ: dict[str, str] | None = None,
    **more: Any,
) -> AsyncIterator[Gateway]:
    """`environ` is that of a user who may have been there before; `more` stands in the configuration beside servers."""
    with contextlib.nullcontext(environ) if environ else home() as environ:
        file = Path(environ["HOME"], "toolgate.json")
        file.write_text(json.dumps({"mcpServers": config, **WHOLE_LISTS, **more}))
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-W", "error", "-m", "toolgate", *args, "--config", str(file)],
            stdin=stdin,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
            env=environ,
            cwd=environ["HOME"],
            start_new_session=True,
        )
        found = Gateway(process)
        try:
            yield found
        finally:
            if process.returncode is None:
                process.kill()
            await found.ended()
            # stdout may be noticed to have ended only after that: where the last who held it was a worker, for example
            process._transport.close()  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]


# Clients.


class Failed(Exception):
    """A JSON-RPC error."""

    def __init__(self, error: Json) -> None:
        super().__init__(error)
        self.code = error["code"]
        self.message = error["message"]
        self.data = error.get("data") or {}


class Client:
    """A client with a socket for each request. A legacy one keeps the session that it is given."""

    def __init__(self, port: int, era: str = MODERN) -> None:
        self.port = port
        self.era = era
        self.capabilities: Json = {}  # of a modern client
        self.headers: list[str] = []  # of each request, beside its own
        self._ids = itertools.count(1)
        self.last_id = 0
        self.session: bytes | None = None

    async def call(self, tool: str, **arguments: Any) -> str:
        """The text of the result. Raises `Failed`."""
        result = await self.ask("tools/call", {"name": tool, "arguments": arguments})
        return "".join(block["text"] for block in result["content"])

    async def tools(self) -> list[str]:
        return [tool["name"] for tool in (await self.ask("tools/list"))["tools"]]

    async def open(self, **capabilities: Any) -> None:
        """The handshake, for a legacy client."""
        info = {"name": "test", "version": "1"}
        await self.ask("initialize", {"protocolVersion": self.era, "capabilities": capabilities, "clientInfo": info})

    async def ask(self, method: str, params: Json | None = None) -> Json:
        reader, writer = await self.start(method, params)
        try:
            async with asyncio.timeout(WAIT):
                _, headers, body = await read_response(reader)
        finally:
            await shut(writer)
        self.session = self.session or headers.get(b"mcp-session-id")
        message = json.loads(body)
        if "error" in message:
            raise Failed(message["error"])
        return message["result"]

    async def reply(self, id: Any, result: Json) -> None:
        """The answer to a question of the gateway."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()
        head = (
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"Accept: {STREAM}\r\nMcp-Session-Id: {(self.session or b'').decode()}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        async with asyncio.timeout(WAIT):
            status, _, _ = await read_response(reader)
        await shut(writer)
        assert status == 202

    async def end(self) -> None:
        """End the session."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(
            b"DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Session-Id: %b\r\nConnection: close\r\n\r\n"
            % (self.session or b"")
        )
        async with asyncio.timeout(WAIT):
            status, _, _ = await read_response(reader)
        await shut(writer)
        assert status == 204

    async def start(
        self, method: str, params: Json | None = None, accept: str = "application/json"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request, and leave it to the caller to read the answer, or not to."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=64 * 1024 * 1024)
        writer.write(self.request(method, params, accept))
        await writer.drain()
        return reader, writer

    def request(self, method: str, params: Json | None = None, accept: str = "application/json") -> bytes:
        params = dict(params or {})
        lines = [
            "POST /mcp HTTP/1.1",
            "Host: localhost",
            "Content-Type: application/json",
            f"Accept: {accept}",
            "Connection: close",
            *self.headers,
        ]
        if self.era == MODERN:
            params["_meta"] = params.get("_meta", {}) | {
                PREFIX + "protocolVersion": MODERN,
                PREFIX + "clientCapabilities": self.capabilities,
                PREFIX + "clientInfo": {"name": "test", "version": "1"},
            }
            lines += [f"MCP-Protocol-Version: {MODERN}", f"Mcp-Method: {method}"]
            lines += [f"Mcp-Name: {params['name']}"] if "name" in params else []
        elif self.session:
            lines += [f"MCP-Protocol-Version: {self.era}", f"Mcp-Session-Id: {self.session.decode()}"]
        self.last_id = next(self._ids)
        body = json.dumps({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}).encode()
        head = "\r\n".join([*lines, "Content-Type: application/json", f"Content-Length: {len(body)}"])
        return head.encode() + b"\r\n\r\n" + body


async def read_response(reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers, and the body: the last event's data where it is a stream."""
    status = int((await reader.readline()).split()[1])
    headers: dict[bytes, bytes] = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    if b"content-length" in headers:
        body = await reader.readexactly(int(headers[b"content-length"]))
    else:
        body = _unchunked(await reader.read())
    if headers.get(b"content-type", b"").startswith(b"text/event-stream"):
        body = [line for line in body.split(b"\n") if line.startswith(b"data: ")][-1].removeprefix(b"data: ")
    return status, headers, body


async def read_events(reader: asyncio.StreamReader) -> AsyncIterator[Json]:
    """The messages of a streamed response, as they come."""
    async with asyncio.timeout(WAIT):
        while line := await reader.readline():
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def _unchunked(rest: bytes) -> bytes:
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


async def shut(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def failure(work: Awaitable[Any]) -> Failed:
    """The error that it ends with."""
    try:
        found = await work
    except Failed as error:
        return error
    raise AssertionError(f"it did not fail: {found!r:.200}")
