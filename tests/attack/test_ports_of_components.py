"""A component is told its port, and everybody on the machine may read it: whoever is there first gets nothing."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from processes.ground import Served, failure, gateway, real, until

from toolgate.config import Config, Server
from toolgate.upstreams import bounds
from toolgate.upstreams.bounds import Bounds
from toolgate.upstreams.component import owner

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel tells whose a port is")

NOBODY = 65534
OWN = Server(id="own", name="own", type="component")
COMPONENT = """
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
class Component(BaseHTTPRequestHandler):
    def do_GET(self): self.say({"name": "greet", "description": "honest", "inputSchema": {"type": "object"}})
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.say({"content": [{"type": "text", "text": "honest"}]})
    def say(self, value): self.send_response(200); self.end_headers(); self.wfile.write(json.dumps(value).encode())
    def log_message(self, *_): pass
folder, port = sys.argv[1], sys.argv[2]
with open(folder + "/new", "w") as file: file.write(port)
os.rename(folder + "/new", folder + "/port")
while not os.path.exists(folder + "/go"): time.sleep(0.01)
HTTPServer(("127.0.0.1", int(port)), Component).serve_forever()
"""
RIVAL = """
import os, socket, sys
if sys.argv[2] != "0": os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listens", flush=True)
while True:
    connection, _ = listener.accept()
    connection.settimeout(30)
    print(repr(connection.recv(65536)), flush=True)
    connection.close()
"""


def component(folder: Path) -> Server:
    args = ("-S", "-c", COMPONENT, str(folder), "{port}")
    headers = {"Authorization": "Bearer of-the-component"}
    url = "http://127.0.0.1:{port}/"
    return Server(id="own", name="own", type="component", command=sys.executable, args=args, url=url, headers=headers)


@asynccontextmanager
async def rival(port: int, user: int = 0) -> AsyncGenerator[asyncio.subprocess.Process]:
    command = (sys.executable, "-S", "-c", RIVAL, str(port), str(user))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    assert await asyncio.wait_for(process.stdout.readline(), 20) == b"listens\n"
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def heard(process: asyncio.subprocess.Process) -> bytes:
    """What the rival was sent, until it is ended."""
    assert process.stdout
    process.kill()
    return await asyncio.wait_for(process.stdout.read(), 20)


@asynccontextmanager
async def starting(folder: Path) -> AsyncGenerator[tuple[Served, int]]:
    """A gateway whose component has its port, and does not listen yet."""
    async with gateway(Config(servers=(component(folder),))) as served:
        await until(lambda: (folder / "port").exists())
        yield served, int((folder / "port").read_text())


@pytest.mark.promise("b.attacks.user")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@real
async def test_another_user_who_takes_the_port_of_a_component_gets_nothing(tmp_path: Path) -> None:
    async with starting(tmp_path) as (served, port), rival(port, NOBODY) as other:
        error = await failure(served.client().tools())
        assert f"a program of the user {NOBODY} listens on port {port}, where own should" in error.message
        assert set((await heard(other)).split()) <= {b"b''"}  # connections, and not a byte
        (tmp_path / "go").touch()
        assert await served.client().call("own__greet") == "honest"


@pytest.mark.promise("b.attacks.user")
@real
async def test_another_server_that_takes_the_port_of_a_component_gets_nothing(tmp_path: Path) -> None:
    """It is a program of this process that is not below the component's keeper."""
    async with starting(tmp_path) as (served, port), rival(port) as other:
        error = await failure(served.client().tools())
        assert f"another program of this gateway (process {other.pid}) listens on port {port}" in error.message
        assert set((await heard(other)).split()) <= {b"b''"}


@real
async def test_a_component_may_have_another_process_listen(tmp_path: Path) -> None:
    """A supervisor of workers, or a shell that stays, or a daemon whose parent has gone."""
    (tmp_path / "go").touch()
    own = component(tmp_path)
    inner = shlex.join([own.command, *own.args])
    for script in (f"{inner}; true", f"{inner} & wait", f"({inner} &) & sleep 600"):
        told = msgspec.structs.replace(own, command="/bin/sh", args=("-c", script))
        async with gateway(Config(servers=(told,))) as served:
            assert await served.client().call("own__greet") == "honest"


@real
async def test_where_who_listens_changes_while_a_connection_is_made_it_is_not_used() -> None:
    """One that listened for a moment has the connection that it was given then."""
    before = socket.create_server(("127.0.0.1", 0))
    port = before.getsockname()[1]
    later: list[socket.socket] = []

    async def dial(host: str, port: int) -> socket.socket:
        connection = socket.create_connection((host, port))
        before.close()
        later.append(socket.create_server((host, port)))
        return connection

    with pytest.raises(ConnectionRefusedError):
        await owner.dialling_own(dial, OWN, os.getpid(), Bounds())("127.0.0.1", port)
    later[0].close()


@real
async def test_where_nobody_of_this_machine_listens_the_kernel_leads_elsewhere_and_that_is_used() -> None:
    ours, theirs = socket.socketpair()

    async def dial(host: str, port: int) -> socket.socket:
        return ours

    with theirs, await owner.dialling_own(dial, OWN, os.getpid(), Bounds())("127.0.0.1", 1) as connection:
        assert connection is ours


@real
async def test_others_go_on_while_it_is_looked_through_what_a_component_has_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Very many files, as far as it takes longer than a moment to look at them."""
    monkeypatch.setattr(bounds, "MOMENT", -1.0)
    rounds = 0
    dialled: list[int] = []

    async def others() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    async def dial(host: str, port: int) -> socket.socket:
        dialled.append(rounds)
        return socket.create_connection((host, port))

    working = asyncio.ensure_future(others())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with await owner.dialling_own(dial, OWN, os.getpid(), Bounds())("127.0.0.1", port):
            assert 0 < dialled[0] < rounds
    working.cancel()
