"""nginx and Caddy, configured as docs/proxy.md has it, in front of a gateway. Each is skipped where it is not here."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import certificates
import pytest
import websockets
from processes.ground import STREAM, WAIT, Client, failure, gateway, home, read_events, real, shut, until
from virtualtime import FakeClock

from toolgate import config as configs
from toolgate.app import App
from toolgate.auth import keys
from toolgate.state.memory import MemoryStore

PAGE = (Path(__file__).parents[2] / "docs" / "proxy.md").read_text()
EXAMPLE, _ = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)
HOST = "gate.example.com"
CLIENT = "127.0.0.2"
FORGED = ["X-Forwarded-For: 198.51.100.1", "X-Forwarded-Proto: http", "Forwarded: for=198.51.100.2"]


def nginx(folder: Path, port: int, upstream: int) -> list[str]:
    """The page's `location` in a server that has a certificate."""
    [location] = re.findall(r"^```nginx\n(.*?)^```", PAGE, re.M | re.S)
    location = location.replace("127.0.0.1:8765", f"127.0.0.1:{upstream}")
    certificate, key = certificates.make(folder)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{places}\nserver {{\nlisten 127.0.0.1:{port} ssl;\nserver_name {HOST};\n"
        f"ssl_certificate {certificate};\nssl_certificate_key {key};\n{location}\n}}\n}}\n"
    )
    return ["-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, port: int, upstream: int) -> list[str]:
    """The page's site, but for what needs the internet: its certificate, and the port of HTTP."""
    [site] = re.findall(r"^```text Caddyfile\n(.*?)^```", PAGE, re.M | re.S)
    certificate, key = certificates.make(folder)
    site = site.replace("127.0.0.1:8765", f"127.0.0.1:{upstream}")
    site = site.replace(f"{HOST} {{", f"https://{HOST}:{port} {{\nbind 127.0.0.1\ntls {certificate} {key}")
    (folder / "Caddyfile").write_text(f"{{\nadmin off\nauto_https off\n}}\n{site}")
    return ["run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


PROXIES: list[tuple[str, Callable[[Path, int, int], list[str]]]] = [("nginx", nginx), ("caddy", caddy)]


class Outside(Client):
    """A client that knows the proxy alone, and has a key."""

    def __init__(self, port: int, certificate: Path, key: str, app: App) -> None:
        super().__init__(port)
        self.app = app
        self.context = certificates.trusting(certificate)
        self.headers = [f"Authorization: Bearer {key}", *FORGED]

    def seen_as(self) -> set[str]:
        """The addresses of those whose requests are under way."""
        return {each.principal.address for each in self.app.http._active_requests.all}  # pyright: ignore[reportPrivateUsage]

    async def start(self, method: str, params: Any = None, accept: str = "application/json") -> Any:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.context, server_hostname=HOST, local_addr=(CLIENT, 0)
        )
        writer.write(self.request(method, params, accept).replace(b"Host: localhost", f"Host: {HOST}".encode()))
        await writer.drain()
        return reader, writer


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def behind(name: str, arguments: Callable[[Path, int, int], list[str]]) -> AsyncIterator[Outside]:
    program = shutil.which(name)
    assert program
    example = EXAMPLE.replace('command = "python"', f"command = {json.dumps(sys.executable)}")
    found = configs.read(example, file="toolgate.toml", environ={}, format="toml")
    store = MemoryStore(FakeClock())
    _, key = await keys.create(store, "ann", 0.0)
    with home() as environ, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.close()
        folder = Path(environ["HOME"])
        async with gateway(found, store=store) as served:
            command = [program, *arguments(folder, port, served.port)]
            pipe = asyncio.subprocess.PIPE
            proxy = await asyncio.create_subprocess_exec(*command, env=environ, stderr=pipe, stdout=pipe)
            try:
                await until(lambda: proxy.returncode is not None or _listens(port))
                assert proxy.returncode is None, (await proxy.communicate())[1].decode()
                yield Outside(port, folder / "gate.pem", key, served.app)
            finally:
                if proxy.returncode is None:
                    proxy.kill()
                await asyncio.wait_for(proxy.communicate(), WAIT)


@pytest.mark.parametrize(("name", "arguments"), PROXIES, ids=[name for name, _ in PROXIES])
def test_a_client_beyond_the_proxy_calls_subscribes_and_opens_a_websocket(
    name: str, arguments: Callable[[Path, int, int], list[str]]
) -> None:
    if not shutil.which(name):
        pytest.skip(f"{name} is not here")

    @real
    async def conversation() -> None:
        async with behind(name, arguments) as client:
            assert "notes__list_notes" in await client.tools()
            large = {"name": "notes__list_notes", "arguments": {"filler": "x" * 3 * 1024 * 1024}}
            refused = await failure(client.ask("tools/call", large))  # by the gateway: all of it came through
            assert refused.data["code"] == "INVALID_ARGS"

            reader, writer = await client.start("subscriptions/listen", {"notifications": {}}, STREAM)
            assert b" 200 " in await asyncio.wait_for(reader.readline(), WAIT)
            async for event in read_events(reader):  # before the response ends
                assert "subscriptions" in event["method"]
                assert client.seen_as() == {CLIENT}
                break
            await shut(writer)

            url = f"wss://{HOST}/mcp"
            extra = {"Authorization": client.headers[0].partition(": ")[2]}
            connecting = websockets.connect(
                url,
                additional_headers=extra,
                host="127.0.0.1",
                port=client.port,
                ssl=client.context,
                local_addr=(CLIENT, 0),
                proxy=None,
            )
            async with connecting as opened:
                await opened.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
                assert json.loads(await asyncio.wait_for(opened.recv(), WAIT))["result"] == {}
                assert client.seen_as() == {CLIENT}

    conversation()
