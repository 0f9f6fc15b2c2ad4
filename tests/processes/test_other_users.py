"""Other users of the machine: they reach loopback as the operator does, and are not the operator."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys

import msgspec
import pytest
from processes.ground import Json, gateway, real, settings

from toolgate.config.access import Approvals
from toolgate.frontends.owners import Peer

NOBODY = 65534
ADD: Json = {"name": "own", "transport": "stdio", "command": "true"}
AS_NOBODY = f"""
import os, socket, sys
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
client.close()
os.setgid({NOBODY}); os.setuid({NOBODY})
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=30)
body = sys.argv[2].encode()
head = "POST /mcp HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nContent-Type: application/json\\r\\nConnection: close\\r\\n"
client.sendall((head + f"Accept: application/json\\r\\nContent-Length: {{len(body)}}\\r\\n\\r\\n").encode() + body)
while data := client.recv(65536):
    sys.stdout.write(data.decode())
"""


def test_a_connection_is_of_whoever_has_it_open() -> None:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.create_server((host, 0), family=family) as server:
            client = socket.create_connection(server.getsockname()[:2])
            accepted, address = server.accept()
            with accepted:
                with client:
                    assert Peer(address[:2]).is_ours
                assert not Peer(address[:2]).is_ours, "it is closed, and nobody's"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@real
async def test_another_user_of_the_machine_does_not_administer_an_open_gateway() -> None:
    call = {"name": "add_mcp_server", "arguments": ADD}
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    config = msgspec.structs.replace(settings(), approvals=Approvals(wait=0))
    async with gateway(config) as served:
        command = [sys.executable, "-c", AS_NOBODY, str(served.port), request]
        ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
        assert "needs approval" in ended.stdout, ended.stdout + ended.stderr
        assert not served.app.gateway.snapshot.servers
