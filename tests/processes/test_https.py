"""A gateway that serves HTTPS by itself, with a certificate that the test has made."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import re
import shutil
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import certificates
import pytest
import uvloop
import websockets
from processes.ground import (
    WAIT,
    Client,
    Gateway,
    child,
    home,
    over_the_socket,
    read_response,
    real,
    shut,
    toolgate,
    until,
)

from toolgate.app import App, running
from toolgate.config import Config
from toolgate.core import encrypted
from toolgate.frontends import connections, tls
from toolgate.frontends.server import bind, serving
from toolgate.frontends.tls import Certificate


class Encrypted(Client):
    """`Client` over TLS."""

    def __init__(self, port: int, *trusted: Path) -> None:
        super().__init__(port)
        self.context = certificates.trusting(*trusted)

    async def start(self, method: str, params: Any = None, accept: str = "application/json") -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context)
        writer.write(self.request(method, params, accept))
        await writer.drain()
        return reader, writer


@asynccontextmanager
async def over_tls(
    folder: Path, *more: str, server: str = "counting"
) -> AsyncIterator[tuple[Gateway, int, Path, Path]]:
    certificate, key = certificates.make(folder)
    files = {"certificate": str(certificate), "key": str(key)}
    environ = {"HOME": str(folder), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    servers = {"one": child(server)}
    command = ("serve", "--port", "0", *more)
    async with toolgate(*command, config=servers, environ=environ, http={"tls": files}) as process:
        yield process, (await process.until_it_serves()).port, certificate, key
        process.process.terminate()
        assert await process.ended() == 0
        assert b"Traceback" not in process.errors, process.errors.decode()


@real
async def test_clients_call_tools_over_https_and_websocket() -> None:
    with home() as environ:
        async with over_tls(Path(environ["HOME"])) as (process, port, certificate, _):
            assert f"https://127.0.0.1:{port}/mcp".encode() in process.errors
            client = Encrypted(port, certificate)
            assert await client.tools()
            context = certificates.trusting(certificate)
            async with websockets.connect(f"wss://127.0.0.1:{port}/mcp", ssl=context) as socket:
                await socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
                assert json.loads(await socket.recv())["result"] == {}


@real
async def test_results_and_arguments_of_any_size_come_through() -> None:
    """A result of more than 256 KiB stopped there, unless its client was slow."""
    with home() as environ:
        async with over_tls(Path(environ["HOME"]), server="wordy") as (_, port, certificate, _):
            client = Encrypted(port, certificate)
            for length in (200_000, 300_000, 1_000_000, 5_000_000):
                assert len(await client.call("one__talk", length=length)) == length
                assert await client.call("one__listen", say="x" * length) == str(length)


@real
async def test_workers_have_the_handshakes_of_their_own_connections() -> None:
    with home() as environ:
        async with over_tls(Path(environ["HOME"]), "--workers", "2") as (_, port, certificate, _):
            clients = [Encrypted(port, certificate) for _ in range(8)]
            assert all(await asyncio.gather(*(client.tools() for client in clients)))


@real
async def test_a_browser_is_told_to_keep_its_session_to_https() -> None:
    with home() as environ:
        async with over_tls(Path(environ["HOME"])) as (_, port, certificate, _):
            _, said = await over_the_socket(environ, "GET", "/status")
            assert json.loads(said)["url"] == f"https://127.0.0.1:{port}"
            _, said = await over_the_socket(environ, "POST", "/links")
            link = json.loads(said)["url"]
            assert link.startswith(f"https://127.0.0.1:{port}/")
            context = certificates.trusting(certificate)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            path = link.removeprefix(f"https://127.0.0.1:{port}")
            head = [
                f"POST {path} HTTP/1.1",
                *(f"Host: 127.0.0.1:{port}", f"Origin: https://127.0.0.1:{port}", "Connection: close"),
                *("Content-Length: 0", "Content-Type: application/x-www-form-urlencoded"),
            ]
            writer.write(("\r\n".join(head) + "\r\n\r\n").encode())
            answer = (await asyncio.wait_for(reader.read(), WAIT)).decode()
            assert (cookie := re.search(r"^set-cookie: (.*)\r$", answer, re.M)), answer
            assert "; Secure" in cookie[1]
            await shut(writer)


@real
async def test_what_is_no_tls_and_what_is_too_old_is_refused_and_logged() -> None:
    with home() as environ:
        async with over_tls(Path(environ["HOME"])) as (process, port, certificate, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            await shut(writer)
            await process.until_it_says(b"a TLS handshake with 127.0.0.1 failed: it sent plain HTTP")
            old = certificates.trusting(certificate)
            old.set_ciphers("ALL:@SECLEVEL=0")
            with pytest.warns(DeprecationWarning):
                old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection("127.0.0.1", port, ssl=old)
            assert await Encrypted(port, certificate).tools()


@real
async def test_another_certificate_is_shown_without_a_restart_and_connections_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tls, "LOOK", 0.02)
    with home() as environ:
        folder = Path(environ["HOME"])
        files, others = certificates.make(folder), certificates.make(folder, "other")
        certificate, listener = Certificate(*files), bind("127.0.0.1", 0)
        async with running(Config(), environ=environ) as app, serving(app.http, listener, certificate):
            client = Encrypted(listener.getsockname()[1], files[0])
            first = certificate.context
            open_before = await asyncio.open_connection("127.0.0.1", client.port, ssl=client.context)
            for new, old in zip(others, files, strict=True):
                shutil.copy(new, old)
            await until(lambda: certificate.context is not first)
            with pytest.raises(ssl.SSLCertVerificationError):
                await client.tools()
            assert await Encrypted(client.port, others[0]).tools() == []
            open_before[1].write(client.request("tools/list"))
            status, _, _ = await read_response(open_before[0])
            assert status == 200
            await shut(open_before[1])


@real
async def test_a_gateway_whose_certificate_cannot_be_used_says_so_and_ends() -> None:
    files = {"certificate": "none.pem", "key": "none.key"}
    async with toolgate("serve", "--port", "0", config={}, http={"tls": files}) as process:
        assert await process.ended() == 2
        assert b"http.tls: the TLS certificate" in process.errors and b"No such file" in process.errors


@real
async def test_connections_without_a_handshake_count_and_the_oldest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_files", lambda: 20.0)
    with home() as environ:
        files = certificates.make(Path(environ["HOME"]))
        listener = bind("127.0.0.1", 0)
        async with running(Config(), environ=environ) as app, serving(app.http, listener, Certificate(*files)):
            port = listener.getsockname()[1]
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
            async with asyncio.timeout(WAIT):
                for reader, _ in silent[:20]:  # 10 of one address are left
                    with contextlib.suppress(ConnectionError):
                        assert await reader.read() == b""
            assert await Encrypted(port, files[0]).tools() == []
            for _, writer in silent:
                await shut(writer)
            await until(lambda: not app.http.connections._by)


@real
async def test_a_gateway_that_ends_waits_for_no_handshake() -> None:
    with home() as environ:
        listener = bind("127.0.0.1", 0)
        async with running(Config(), environ=environ) as app:
            async with serving(app.http, listener, Certificate(*certificates.make(Path(environ["HOME"])))):
                _, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
                await until(lambda: app.http.connections._by)
            assert not app.http.connections._by
            await shut(writer)


def kept_for_tls() -> int:
    gc.collect()
    return sum(issubclass(type(each), ssl.SSLObject) for each in gc.get_objects())  # weak proxies may be of nothing


@asynccontextmanager
async def serving_tls(folder: Path) -> AsyncIterator[tuple[App, int, Path]]:
    files, listener = certificates.make(folder), bind("127.0.0.1", 0)
    async with (
        running(Config(), environ={"HOME": str(folder)}) as app,
        serving(app.http, listener, Certificate(*files)),
    ):
        yield app, listener.getsockname()[1], files[0]


async def closed(readers: Iterable[asyncio.StreamReader]) -> None:
    """Wait until the gateway has closed them all."""
    async with asyncio.timeout(WAIT):
        for reader in readers:
            with contextlib.suppress(ConnectionError):
                await reader.read()


def told_in(loop: Any) -> Any:
    """A test that runs in a loop of this kind."""

    def decorated(test: Any) -> Any:
        async def bounded(folder: Path) -> None:
            async with asyncio.timeout(1.5 * WAIT):
                await test(folder)

        return lambda folder: loop(bounded(folder))

    return decorated


LOOPS = pytest.mark.parametrize("loop", [uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01"


@LOOPS
def test_a_connection_that_says_nothing_costs_no_tls_and_is_closed_soon(
    tmp_path: Path, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "FIRST_BYTES", 0.5)

    @told_in(loop)
    async def tries(folder: Path) -> None:
        before = kept_for_tls()
        async with serving_tls(folder) as (app, port, certificate):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
            gone = silent.pop()
            await shut(gone[1])
            await until(lambda: app.http.connections._by.total() == 39)
            assert kept_for_tls() == before
            assert await Encrypted(port, certificate).tools() == []
            await closed(reader for reader, _ in silent)
            await until(lambda: not app.http.connections._by)
            for _, writer in silent:
                await shut(writer)

    tries(tmp_path)


@LOOPS
def test_a_connection_whose_records_carry_next_to_nothing_is_closed(
    tmp_path: Path, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key updates, of 27 bytes each, kept calls of others waiting for as long as they came."""
    monkeypatch.setattr(encrypted, "AROUND_NOTHING", 4096)
    monkeypatch.setattr(encrypted, "AROUND_A_BYTE", 2)

    @told_in(loop)
    async def tries(folder: Path) -> None:
        async with serving_tls(folder) as (app, port, certificate):
            context = certificates.trusting(certificate)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(b"POST /mcp HTTP/1.1\r\nx-long: ")
            for _ in range(2000):
                writer.write(b"a")  # a record of 23 bytes
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            await shut(writer)
            await until(lambda: not app.http.connections._by)
            assert await Encrypted(port, certificate).tools() == []

    tries(tmp_path)


@LOOPS
def test_a_request_of_one_byte_in_each_record_is_answered(tmp_path: Path, loop: Any) -> None:
    @told_in(loop)
    async def tries(folder: Path) -> None:
        async with serving_tls(folder) as (_, port, certificate):
            client = Encrypted(port, certificate)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client.context)
            for byte in client.request("tools/list", {"padding": "x" * 5000}, "application/json"):
                writer.write(bytes((byte,)))
            status, _, body = await read_response(reader)
            assert status == 200, body
            await shut(writer)

    tries(tmp_path)


@LOOPS
def test_of_handshakes_that_do_not_end_few_go_on_and_a_client_gets_its_place(
    tmp_path: Path, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "MOST", 8)
    monkeypatch.setattr(tls, "STANDS_STILL", 0.05)

    @told_in(loop)
    async def tries(folder: Path) -> None:
        before = kept_for_tls()
        async with serving_tls(folder) as (app, port, certificate):
            begun = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
            for _, writer in begun:
                writer.write(HALF_A_HELLO)
            await until(lambda: kept_for_tls() > before)
            assert await Encrypted(port, certificate).tools() == []
            assert kept_for_tls() <= before + 9
            for _, writer in begun:
                await shut(writer)
            await until(lambda: not app.http.connections._by)

    tries(tmp_path)


@real
async def test_who_waits_for_a_place_has_it_when_another_handshake_ends_or_has_had_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tls, "MOST", 1)
    monkeypatch.setattr(tls, "PATIENCE", 0.5)
    monkeypatch.setattr(tls, "STANDS_STILL", 1000.0)
    with home() as environ:
        async with serving_tls(Path(environ["HOME"])) as (app, port, certificate):
            begun = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            for _, writer in begun:
                writer.write(HALF_A_HELLO)
            await until(lambda: app.http.connections._by.total() == 2)
            await closed(reader for reader, _ in begun)
            assert await Encrypted(port, certificate).tools() == []
            for _, writer in begun:
                await shut(writer)
