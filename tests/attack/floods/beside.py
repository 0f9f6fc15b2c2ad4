"""A gateway as a process, a client that calls one server now and then, and a flood by another client or another server
meanwhile: what the calls beside it take, and the memory that is left of it.

The rule this file keeps: whoever floods is a process of its own, and what is measured is whole calls over a socket.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from processes.ground import child

HERE = Path(__file__).parent
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
ENVELOPE = {META + "protocolVersion": MODERN, META + "clientInfo": {"name": "quiet", "version": "1"}}
ENVELOPE[META + "clientCapabilities"] = {}
QUIET, LOUD = "one-of-two-keys-for-a-quiet-client", "another-key-for-the-client-that-floods"
CALLS = 100  # at least that are looked at
PAUSE = 0.005  # seconds between two calls
BOUND = 100.0  # seconds for whatever is waited for


class Quiet:
    """A client that makes a call at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), BOUND)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        params = {"name": "calm__release", "arguments": {}, "_meta": ENVELOPE}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n"
            f"Content-Type: application/json\r\nMCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\n"
            f"Mcp-Name: calm__release\r\nAuthorization: Bearer {QUIET}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._message = head.encode() + body

    def call(self) -> float:
        """How long it took, in seconds."""
        begun = time.perf_counter()
        self._socket.sendall(self._message)
        seen = b""
        while b"released" not in seen:
            part = self._socket.recv(65536)
            assert part, seen
            seen += part
        return time.perf_counter() - begun

    def close(self) -> None:
        self._socket.close()


class Beside:
    """A gateway, and whoever is beside the flood."""

    def __init__(self, port: int, process: subprocess.Popen[str]) -> None:
        self.port = port
        self.process = process
        self.quiet = Quiet(port)

    def worst(self) -> float:
        """Of so many calls without a flood, in seconds."""
        return max(self._calls(CALLS))

    def _calls(self, count: int) -> Iterator[float]:
        for _ in range(count):
            yield self.quiet.call()
            time.sleep(PAUSE)

    def worst_beside(self, kind: str | list[str], seconds: float = 2.0) -> tuple[float, dict[str, Any]]:
        """The same while a client floods, and what that client says of it."""
        command = [sys.executable, "-I", "-S", str(HERE / "client.py"), kind] if isinstance(kind, str) else kind
        command = [*command, str(self.port), LOUD, str(seconds)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flood:
            assert flood.stdin and flood.stdout
            flood.stdout.readline()
            flood.stdin.write("\n")
            flood.stdin.flush()
            took: list[float] = []
            while len(took) < CALLS or flood.poll() is None:
                took += self._calls(1)
            return max(took), json.loads(flood.stdout.readline())

    def resident(self) -> int:
        """MB of the gateway."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) // 1024

    def peak(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) // 1024


@contextlib.contextmanager
def over_http(wild: str) -> Iterator[dict[str, Any]]:
    """A server that floods over HTTP in the way `wild`, as it stands in a configuration."""
    command = [sys.executable, "-I", "-S", str(HERE / "http_server.py"), wild]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        yield {"url": f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"}
        process.stdin.close()
        process.wait(timeout=BOUND)


@contextlib.contextmanager
def large(carrier: str, shape: str, size: int, era: str) -> Iterator[dict[str, Any]]:
    """A server with large results (see `large_server.py`), as it stands in a configuration."""
    command = [sys.executable, "-I", str(HERE / "large_server.py"), carrier, shape, str(size), era]
    if carrier == "stdio":
        yield {"command": command[0], "args": command[1:]}
        return
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        port = int(process.stdout.readline())
        url = f"{'ws' if carrier == 'ws' else 'http'}://127.0.0.1:{port}/mcp"
        yield {"url": url} | ({"type": carrier} if carrier in ("sse", "component") else {})
        process.stdin.close()
        process.wait(timeout=BOUND)


def asking(carrier: str, way: str) -> list[str]:
    """A client that asks for large results (see `large_client.py`)."""
    return [sys.executable, "-I", str(HERE / "large_client.py"), carrier, way]


@contextlib.contextmanager
def gateway(folder: Path, wild: str | dict[str, Any] = "", **config: Any) -> Iterator[Beside]:
    """With a calm server and one that floods in the way `wild`."""
    attacker = (
        wild
        if isinstance(wild, dict)
        else {"command": sys.executable, "args": ["-I", "-S", str(HERE / "server.py"), wild]}
    )
    keys = {"quiet": QUIET, "loud": LOUD}
    clients = [{"id": id, "key": key, "mcp_server_access": "all"} for id, key in keys.items()]
    written = {"mcpServers": {"calm": child("counting"), "wild": attacker}, "clients": clients, "state": "state"}
    file = folder / "toolgate.json"
    file.write_text(json.dumps(written | config))
    file.chmod(0o600)
    command = [sys.executable, "-m", "toolgate", "serve", "--port", "0", "--config", str(file)]
    log = (folder / "log").open("w+")
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stderr=log, text=True) as process:
        try:
            beside = Beside(_port(folder / "log", process), process)
            yield beside
            beside.quiet.close()
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
            process.kill()
            log.close()


def _port(log: Path, process: subprocess.Popen[str]) -> int:
    end = time.monotonic() + BOUND
    while time.monotonic() < end and process.poll() is None:
        if "listening on " in (text := log.read_text()):
            return int(text.partition("listening on http://127.0.0.1:")[2].partition("/")[0])
        time.sleep(0.02)
    raise AssertionError(log.read_text())


LONGEST = 0.25  # seconds that a call may wait longer beside a flood
MOST_LEFT = 64  # MB
MINUTE = 60.0
TRIES = 3  # since whatever else the machine does hits the worst of a hundred calls


def check(folder: Path, wild: str | dict[str, Any], kind: str | list[str], **config: Any) -> None:
    """That calls on another server wait no longer, and that the memory is given back."""
    with gateway(folder, wild, **config) as beside:
        before = (beside.worst(), beside.resident())[1]
        longer: list[float] = []
        while len(longer) < TRIES and (not longer or longer[-1] > LONGEST):
            without = beside.worst()
            longer.append(beside.worst_beside(kind)[0] - without)
        assert min(longer) <= LONGEST, longer
        end = time.monotonic() + MINUTE
        while beside.resident() > before + MOST_LEFT and time.monotonic() < end:
            time.sleep(0.5)
        assert beside.resident() <= before + MOST_LEFT
