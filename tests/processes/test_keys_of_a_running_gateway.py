"""Keys that the command line makes and revokes while a gateway serves on a socket."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BOUND = 60  # seconds; far more than anything here takes
PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A gateway with one client, in a folder of its own: the folder, and the URL."""
    config: dict[str, Any] = {
        "mcpServers": {"greeter": {"type": "component", "url": "http://127.0.0.1:9"}},
        "clients": [{"id": "ci", "mcp_server_access": "all"}],
        "state": "state",
    }
    (tmp_path / "toolgate.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "toolgate", "serve", "--port", "0", "--config", "toolgate.json"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr
        try:
            line = next(line for line in child.stderr if "listening on" in line)
            yield tmp_path, line.split()[-1]
        finally:
            child.terminate()
            rest = child.stderr.read()
            child.wait(timeout=BOUND)
            assert "Traceback" not in rest, rest


def keys(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "toolgate", "keys", *arguments, "--config", "toolgate.json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BOUND, check=True)
    return done.stdout.strip()


def status(url: str, key: str = "") -> int:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    headers |= {"authorization": f"Bearer {key}"} if key else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, PING, headers), timeout=BOUND) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def becomes(wanted: int, url: str, key: str) -> None:
    end = time.monotonic() + BOUND
    while status(url, key) != wanted:
        assert time.monotonic() < end, f"never {wanted}"


def stream(url: str, key: str) -> socket.socket:
    """A stream of the transport of 2024-11-05, once it has begun."""
    host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
    connection = socket.create_connection((host, int(port)), timeout=BOUND)
    asked = f"GET /mcp/sse HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\nAuthorization: Bearer {key}\r\n\r\n"
    connection.sendall(asked.encode())
    assert b"200" in connection.recv(1000).partition(b"\r\n")[0]
    return connection


def test_a_key_opens_a_running_gateway_until_it_is_revoked(served: tuple[Path, str]) -> None:
    folder, url = served
    assert status(url) == 401
    key = keys(folder, "create", "ci")
    assert status(url, key) == 200, "it works once the command has ended"
    with stream(url, key) as listening:
        keys(folder, "revoke", key.split("_")[1])
        heard = b""
        while not heard.endswith(b"0\r\n\r\n"):  # the end of a chunked body
            part = listening.recv(10000)
            assert part, heard
            heard += part
    becomes(401, url, key)
