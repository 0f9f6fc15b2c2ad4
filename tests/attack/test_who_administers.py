"""Who administers an open gateway: nobody who comes over TCP, wherever from and whoever has opened the connection."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys

import msgspec
import pytest
from inmemory import GREETER, THE_SOCKET, Visitor
from inmemory import gateway as in_memory
from processes.ground import Json, child, gateway, home, over_the_socket, real, settings, shut, toolgate

from toolgate.config.access import Approvals
from toolgate.frontends import peers

NOBODY = 65534
UNDECIDED = msgspec.structs.replace(settings(), approvals=Approvals(wait=0))  # nobody waits for the operator
ADD: Json = {"name": "own", "transport": "stdio", "command": "true"}
AS_NOBODY = f"""
import os, socket, struct, sys
port, family, taken, request = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4].encode()
if os.geteuid() == 0:
    os.setgid({NOBODY}); os.setuid({NOBODY})
client = socket.socket(socket.AF_INET6 if family == "mapped" else socket.AF_INET)
client.settimeout(30)
if taken:  # the same local port as a connection of the gateway's user has; the kernel allows it to another address
    client.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
    client.setsockopt(socket.IPPROTO_IP, 51, struct.pack("=I", taken | taken << 16))  # IP_LOCAL_PORT_RANGE
client.connect(("::ffff:127.0.0.1" if family == "mapped" else "127.0.0.1", port))
assert not taken or client.getsockname()[1] == taken
client.sendall(request)
while data := client.recv(65536):
    sys.stdout.write(data.decode())
"""


def http(method: str, path: str, body: Json | None, *headers: str) -> str:
    data = json.dumps(body) if body is not None else ""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        "Accept: application/json",
        "Connection: close",
        *headers,
        f"Content-Length: {len(data)}",
    ]
    return "\r\n".join(lines) + "\r\n\r\n" + data


def calling(tool: str, arguments: Json) -> str:
    call = {"name": tool, "arguments": arguments}
    return http("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})


async def as_another_user(port: int, family: str, taken: int, request: str) -> str:
    command = [sys.executable, "-c", AS_NOBODY, str(port), family, str(taken), request]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("family", ["mapped", "plain"])
@real
async def test_another_user_with_the_local_port_of_a_connection_of_ours_starts_no_program(family: str) -> None:
    async with gateway(UNDECIDED) as served:
        with socket.create_server(("127.0.0.1", 0)) as other, socket.create_connection(other.getsockname()) as ours:
            taken = ours.getsockname()[1]
            said = await as_another_user(served.port, family, taken, calling("add_mcp_server", ADD))
        assert "needs approval" in said and not served.app.gateway.snapshot.config.servers


STEERING: list[tuple[str, str, Json | None]] = [
    ("GET", "/admin/servers", None),
    ("GET", "/admin/status", None),
    ("POST", "/admin/servers", {"name": "own", "command": "true"}),
    ("DELETE", "/admin/servers/own", None),
    ("POST", "/admin/reload", {}),
    ("POST", "/admin/call", {"tool": "greeter__greet"}),
    ("POST", "/admin/list", {}),
]


@real
async def test_not_even_a_program_of_the_same_user_administers_over_tcp() -> None:
    config = msgspec.structs.replace(settings(one=child("counting")), approvals=UNDECIDED.approvals)
    async with gateway(config) as served:
        for method, path, body in STEERING:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(http(method, path, body).encode())
            async with asyncio.timeout(30):
                said = (await reader.read()).decode()
            await shut(writer)
            assert said.startswith("HTTP/1.1 403") and "toolgate servers" in said, (path, said)
        for tool, given in (("add_mcp_server", ADD), ("remove_mcp_server", {"name": "one"})):
            assert "needs approval" in await served.client().call(tool, **given)
        assert [server.id for server in served.app.gateway.snapshot.config.servers] == ["one"]


@pytest.mark.parametrize("client", [("127.0.0.1", 5), ("::1", 0), ("", 0), None, ["", 0], THE_SOCKET])
async def test_only_what_came_over_the_socket_is_the_operator(client: object) -> None:
    """Whatever an address looks like: a proxy, another server or a header cannot make one."""
    forged = {"x-forwarded-for": "127.0.0.1", "forwarded": "for=unix:", "x-real-ip": "", "x-remote-user": "root"}
    async with in_memory(GREETER) as app:
        asked = Visitor(app).begin("GET", path="/admin/servers", headers=forged, client=client)
        assert (await asked.response()).status == (200 if client is THE_SOCKET else 403)


@real
async def test_the_operator_adds_calls_removes_and_reloads_over_the_socket() -> None:
    with home() as environ:
        config, undecided = {"one": child("counting")}, {"approvals": {"wait": 0}}
        async with toolgate("serve", "--port", "0", config=config, environ=environ, **undecided) as running:
            client = await running.until_it_serves()
            await over_the_socket(environ, "GET", "/status")

            async def command(*args: str) -> tuple[int, str]:
                process = await asyncio.create_subprocess_exec(
                    *[sys.executable, "-m", "toolgate", *args, "--config", f"{environ['HOME']}/toolgate.json"],
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    env=environ,
                )
                async with asyncio.timeout(60):
                    said, _ = await process.communicate()
                return process.returncode or 0, said.decode()

            assert "needs approval" in await client.call("add_mcp_server", **ADD)
            code, said = await command("servers", "add", "Two", json.dumps(child("counting")))
            assert (code, "added Two" in said) == (0, True), said
            assert await client.call("two__counts")
            code, said = await command("servers", "add", "Two", json.dumps(child("counting")))
            assert (code, "INVALID_ARGS" in said) == (1, True), said
            assert (await command("servers", "add", "Three", "[]"))[0] == 2
            code, said = await command("reload")
            assert (code, "servers: one, two" in said) == (0, True), said
            code, said = await command("servers", "remove", "two")
            assert (code, "removed two" in said) == (0, True), said
            code, said = await command("servers", "remove", "one")
            assert code == 1 and "toolgate.json" in said, said


def test_who_is_another_user_on_the_socket_is_nobody_and_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    class Transport(asyncio.Transport):
        is_aborted = False

        def abort(self) -> None:
            self.is_aborted = True

    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        transport = Transport({"socket": here})
        assert peers.met(transport) and not transport.is_aborted
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
        monkeypatch.setattr(peers, "_ROOT", 4243)
        assert peers.met(transport) is None and transport.is_aborted
