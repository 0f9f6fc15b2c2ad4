"""`toolgate serve --workers 2`: processes that share a port, and one that owns what has state."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import websockets
from ground import (
    LEGACY,
    Client,
    Gateway,
    Json,
    alive,
    carrying,
    child,
    guards,
    home,
    offspring,
    read_response,
    real,
    shut,
    started,
    toolgate,
    until,
)
from scripted_http import Request, ScriptedServer, scripted

from toolgate.cli import workers

COUNT = 2


async def answers(request: Request) -> None:
    request.whole(request.answer())


class Kept(Client):
    """A modern client that keeps its connection."""

    def __init__(self, port: int, key: str = "") -> None:
        super().__init__(port)
        self.headers = [f"Authorization: Bearer {key}"] if key else []
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def request(self, method: str, params: Json | None = None, accept: str = "application/json") -> bytes:
        return super().request(method, params, accept).replace(b"Connection: close\r\n", b"")

    async def send(self, data: bytes) -> asyncio.StreamReader:
        self._streams = self._streams or await asyncio.open_connection("127.0.0.1", self.port)
        self._streams[1].write(data)
        return self._streams[0]

    async def answer(self, method: str, params: Json | None = None) -> tuple[int, Json]:
        reader = await self.send(self.request(method, params))
        async with asyncio.timeout(30):
            status, _, body = await read_response(reader)
        return status, json.loads(body)

    async def ask(self, method: str, params: Json | None = None) -> Json:
        return (await self.answer(method, params))[1]["result"]

    async def close(self) -> None:
        if self._streams:
            await shut(self._streams[1])


@asynccontextmanager
async def kept(port: int, number: int, key: str = "") -> AsyncGenerator[list[Kept]]:
    clients = [Kept(port, key) for _ in range(number)]
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()


@asynccontextmanager
async def served(script: ScriptedServer, environ: dict[str, str], **more: Any) -> AsyncGenerator[Gateway]:
    there = {"there": {"url": f"http://127.0.0.1:{script.port}/mcp"}, **more.pop("servers", {})}
    command = ("serve", "--port", "0", "--workers", str(COUNT))
    async with toolgate(*command, config=there, environ=environ, **more) as gateway:
        await gateway.until_it_serves()
        yield gateway


def workers_of(gateway: Gateway) -> list[int]:
    """The processes that carry the command line of the gateway, too."""
    return [pid for pid in offspring(gateway.process.pid) if pid in carrying("serve")]


async def until_answered_by_workers(gateway: Gateway, clients: list[Kept], tool: str = "there__act") -> None:
    """Each connection's calls are, from now on: they are while the owner stands still."""
    for client in clients:
        assert await client.call(tool) == "ok"
    async with asyncio.timeout(60):
        while not await all_answered_without_the_owner(gateway, clients, tool):
            await asyncio.sleep(0.2)


async def all_answered_without_the_owner(gateway: Gateway, clients: list[Kept], tool: str) -> bool:
    gateway.process.send_signal(signal.SIGSTOP)
    calls = [asyncio.ensure_future(client.call(tool)) for client in clients]
    try:
        done, _ = await asyncio.wait(calls, timeout=3.0)
    finally:
        gateway.process.send_signal(signal.SIGCONT)
    assert [await call for call in calls] == ["ok"] * len(clients)
    return len(done) == len(calls)


@pytest.mark.promise("b.workers.alone")
@real
async def test_a_warm_call_of_a_modern_server_needs_no_owner() -> None:
    async with scripted(answers, modern=True) as script:
        with home() as environ:
            async with served(script, environ) as gateway, kept(gateway.port, 8) as clients:
                assert len(workers_of(gateway)) == COUNT
                await until_answered_by_workers(gateway, clients)


@pytest.mark.promise("b.workers.owned")
@real
async def test_what_has_state_is_its_owners_whichever_worker_it_comes_to() -> None:
    async with scripted(answers, modern=True) as script:
        with home() as environ:
            servers = {"counting": child("counting")}
            async with served(script, environ, servers=servers) as gateway:
                legacy = Client(gateway.port, LEGACY)
                await legacy.open()
                found = [await legacy.call("counting__pid") for _ in range(8)]  # each on a connection of its own
                found += [await Client(gateway.port).call("counting__pid") for _ in range(8)]
                assert {int(pid) for pid in found} == set(started(gateway.process.pid))
                assert len(set(found)) == 1
                assert [pid for worker in workers_of(gateway) for pid in offspring(worker)] == []
                await legacy.end()


@asynccontextmanager
async def held_by_workers(clients: int) -> AsyncGenerator[tuple[Gateway, list[asyncio.Task[str]], list[Request]]]:
    """Warm calls, of which the owner knows nothing."""
    held: list[Request] = []

    async def holds(request: Request) -> None:
        if request.message["params"]["arguments"]:
            held.append(request)
        else:
            await answers(request)

    async with scripted(holds, modern=True) as script:
        with home() as environ:
            async with served(script, environ, drain="5m") as gateway, kept(gateway.port, clients) as callers:
                await until_answered_by_workers(gateway, callers)
                calls = [asyncio.ensure_future(each.call("there__act", held=True)) for each in callers]
                await until(lambda: len(held) == len(calls))
                yield gateway, calls, held


@pytest.mark.promise("b.workers.ends")
@real
async def test_a_worker_that_is_killed_takes_its_own_calls_with_it_and_is_started_again() -> None:
    async with held_by_workers(12) as (gateway, calls, held):
        one, other = workers_of(gateway)
        os.kill(one, signal.SIGKILL)
        await until(lambda: any(call.done() for call in calls))
        await gateway.until_it_says(b"is started again")
        for request in held:
            await answers(request)
        found = await asyncio.gather(*calls, return_exceptions=True)
        lost = [each for each in found if isinstance(each, BaseException)]
        assert {each for each in found if isinstance(each, str)} == {"ok"}
        assert 0 < len(lost) < len(calls)
        assert all(isinstance(each, asyncio.IncompleteReadError | IndexError | OSError) for each in lost)
        await until(lambda: len(workers_of(gateway)) == COUNT)
        assert other in workers_of(gateway)
        async with kept(gateway.port, 8) as others:
            await until_answered_by_workers(gateway, others)


def sockets_of(pid: int) -> set[str]:
    """What its open sockets are known by to the kernel: a copy in another process is known by the same. Its standard
    input, output and error do not count."""
    found, standard = set[str](), set[str]()
    with contextlib.suppress(OSError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            (standard if each.name in ("0", "1", "2") else found).add(os.readlink(each))
    return {name for name in found - standard if name.startswith("socket:")}


@pytest.mark.promise("b.workers.ends")
@real
async def test_no_program_that_starts_later_inherits_a_connection_that_was_passed_on() -> None:
    async with scripted(answers, modern=True) as script:
        with home() as environ:
            servers = {"counting": child("counting")}
            async with served(script, environ, servers=servers) as gateway:
                first = Client(gateway.port)
                await first.tools()
                passed = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(8)]
                for reader, writer in passed:  # each is joined to the owner from now on
                    writer.write(first.request("tools/list").replace(b"Connection: close\r\n", b""))
                    async with asyncio.timeout(30):
                        await read_response(reader)
                os.kill(workers_of(gateway)[0], signal.SIGKILL)
                await gateway.until_it_says(b"is started again")
                await first.call("counting__pid")

                def shared(pid: int) -> int:
                    return len(sockets_of(gateway.process.pid) & sockets_of(pid))

                # each worker has its listener; one that is just forked still has all
                await until(lambda: [shared(pid) for pid in workers_of(gateway)] == [1] * COUNT)
                assert not any(map(shared, [*guards(gateway.process.pid), *started(gateway.process.pid)]))
                for _, writer in passed:
                    await shut(writer)


@pytest.mark.promise("b.workers.ends")
@real
async def test_a_worker_that_stands_still_is_killed_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Standing(workers.Workers):
        def __init__(self) -> None:
            self.shared = workers.Shared(2)

    monkeypatch.setattr(workers, "SILENT", 0.2)
    monkeypatch.setattr(workers, "LISTEN", 0.05)
    worker = workers._Worker(Standing(), 1)  # pyright: ignore[reportPrivateUsage]
    worker.is_ready.set()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(1000)")
    worker.process = process
    assert await worker._ended(process) == -signal.SIGKILL  # pyright: ignore[reportPrivateUsage]


@real
async def test_status_says_how_many_workers_are_missing() -> None:
    shared = workers.Shared(3)
    assert shared.problem() == "0 of 2 workers are running"
    shared.running = 2
    assert shared.problem() == ""


@pytest.mark.promise("b.workers.ends")
@real
async def test_workers_end_with_their_owner() -> None:
    async with scripted(answers, modern=True) as script:
        with home() as environ:
            async with served(script, environ) as gateway:
                workers = workers_of(gateway)
                gateway.process.kill()
                await until(lambda: not any(alive(pid) for pid in workers))


@real
async def test_a_gateway_with_workers_ends_when_its_calls_have() -> None:
    held: list[Request] = []

    async def holds(request: Request) -> None:
        held.append(request)

    async with scripted(holds, modern=True) as script:
        with home() as environ:
            async with served(script, environ) as gateway, kept(gateway.port, 4) as clients:
                workers = workers_of(gateway)
                calls = [asyncio.ensure_future(client.call("there__act")) for client in clients]
                await until(lambda: len(held) == len(clients))
                gateway.process.terminate()
                await gateway.until_it_says(b"calls in progress: 4")
                for request in held:
                    await answers(request)
                assert await asyncio.gather(*calls) == ["ok"] * 4
                assert await gateway.ended() == 0
                assert not any(alive(pid) for pid in workers)


@pytest.mark.promise("b.workers.ends")
@real
async def test_calls_that_workers_have_begun_by_themselves_get_their_time_when_the_gateway_is_told_to_end() -> None:
    async with held_by_workers(6) as (gateway, calls, held):
        gateway.process.terminate()
        await until(lambda: gateway.errors.count(b"shutting down; calls in progress") == COUNT + 1)
        await gateway.until_it_says(b"drained after")  # the owner, which has none
        for request in held:
            await answers(request)
        assert await asyncio.gather(*calls) == ["ok"] * len(calls)
        assert await gateway.ended() == 0
        assert b"calls cancelled: 0" in gateway.errors and b"calls cancelled: 1" not in gateway.errors


@pytest.mark.promise("b.workers.ends")
@real
async def test_a_second_signal_ends_what_workers_have_begun_at_once() -> None:
    async with held_by_workers(4) as (gateway, calls, _held):
        gateway.process.terminate()
        await until(lambda: gateway.errors.count(b"shutting down; calls in progress") == COUNT + 1)
        gateway.process.terminate()
        assert await gateway.ended() == 0
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert found and "ok" not in found


@pytest.mark.promise("b.workers.reload")
@real
async def test_a_worker_that_is_started_again_serves_what_its_owner_does_and_not_what_stands_in_the_file() -> None:
    async with scripted(answers, modern=True) as script:
        with home() as environ:
            async with served(script, environ) as gateway, kept(gateway.port, 8) as clients:
                await until_answered_by_workers(gateway, clients)
                Path(environ["HOME"], "toolgate.json").write_text('{"mcpServers": ')
                await gateway.until_it_says(b"still serving the previous one")
                before = workers_of(gateway)
                for pid in before:
                    os.kill(pid, signal.SIGKILL)
                await until(lambda: len(set(workers_of(gateway)) - set(before)) == COUNT)
                async with kept(gateway.port, 8) as others:
                    await until_answered_by_workers(gateway, others)


def command(environ: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "toolgate", *arguments, "--config", str(Path(environ["HOME"], "toolgate.json"))],
        env=environ,
        cwd=environ["HOME"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


async def until_all_are(wanted: int, clients: list[Kept]) -> None:
    """The status of a call of each."""

    async def statuses() -> set[int]:
        return {(await each.answer("tools/call", {"name": "there__act", "arguments": {}}))[0] for each in clients}

    async with asyncio.timeout(60):
        while await statuses() != {wanted}:
            await asyncio.sleep(0.1)


CI: Json = {"clients": [{"id": "ci", "mcp_server_access": "all"}]}


@pytest.mark.promise("b.workers.audit")
@pytest.mark.promise("b.workers.reload")
@real
async def test_a_revoked_key_opens_no_worker_and_one_chain_has_the_calls_of_all() -> None:
    async with scripted(answers, modern=True) as script:
        with home() as environ:
            async with served(script, environ, **CI) as gateway:
                key = await asyncio.to_thread(command, environ, "keys", "create", "ci")
                async with kept(gateway.port, 8, key) as clients:
                    await until_all_are(200, clients)
                    await until_answered_by_workers(gateway, clients)
                    await asyncio.to_thread(command, environ, "keys", "revoke", key.split("_")[1])
                    await until_all_are(401, clients)
                gateway.process.terminate()
                assert await gateway.ended() == 0
                assert "Traceback" not in gateway.errors.decode()
            verdict = await asyncio.to_thread(command, environ, "audit", "verify")
            log = Path(environ["HOME"], ".local/state/toolgate/audit.jsonl").read_text()
            lines = [json.loads(line) for line in log.splitlines()]
            assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
            called = [line for line in lines if line.get("method") == "tools/call" and line["decision"] == "allow"]
            assert len(called) == len(script.calls), verdict


async def over_websocket(port: int, key: str, **message: Any) -> Json:
    """The answer to one request of a modern client; of an opening that is refused, its status."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with websockets.connect(
            f"ws://127.0.0.1:{port}/mcp",
            subprotocols=[websockets.Subprotocol("mcp")],
            additional_headers=headers,
        ) as socket:
            await socket.send(Client(port).request(**message).partition(b"\r\n\r\n")[2].decode())
            return json.loads(await asyncio.wait_for(socket.recv(), 30))
    except websockets.InvalidStatus as refused:
        return {"status": refused.response.status_code}


@pytest.mark.promise("b.workers.owned")
@real
@pytest.mark.parametrize("count", [1, COUNT])
async def test_a_websocket_needs_a_key_and_has_its_rights_as_it_does_without_workers(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "COUNT", count)
    few: Json = {"id": "few", "mcp_permissions": {"tools": {"there__act": "off"}}, "mcp_server_access": ["there"]}
    call: Json = {"method": "tools/call", "params": {"name": "there__act", "arguments": {}}}
    async with scripted(answers, modern=True) as script:
        with home() as environ:
            async with served(script, environ, clients=[*CI["clients"], few]) as gateway:
                ci, little = [
                    await asyncio.to_thread(command, environ, "keys", "create", client) for client in ("ci", "few")
                ]
                for nobody in ("", "tg_0123_wrong"):
                    assert await over_websocket(gateway.port, nobody, **call) == {"status": 401}
                refused = await over_websocket(gateway.port, little, **call)
                assert refused["error"]["data"]["code"] == "ACCESS_DENIED" and script.calls == []
                assert (await over_websocket(gateway.port, ci, **call))["result"]["content"][0]["text"] == "ok"
                async with websockets.connect(
                    f"ws://127.0.0.1:{gateway.port}/mcp",
                    subprotocols=[websockets.Subprotocol("mcp")],
                    additional_headers={"Authorization": f"Bearer {ci}"},
                ) as open_one:
                    await asyncio.to_thread(command, environ, "keys", "revoke", ci.split("_")[1])
                    async with asyncio.timeout(30):
                        await open_one.wait_closed()
                gateway.process.terminate()
                assert await gateway.ended() == 0
            log = Path(environ["HOME"], ".local/state/toolgate/audit.jsonl").read_text()
            lines = [json.loads(line) for line in log.splitlines()]
            assert {line["client"] for line in lines if line.get("method") == "tools/call"} == {"ci", "few"}


@pytest.mark.promise("b.workers.limits")
@real
async def test_a_rate_holds_for_all_workers_together() -> None:
    async with scripted(answers, modern=True) as script:
        with home() as environ:
            limits: Json = {"limits": {"rates": {"server": "200/h"}}}
            async with served(script, environ, **limits) as gateway, kept(gateway.port, 8) as clients:
                await until_answered_by_workers(gateway, clients)
                act: tuple[str, Json] = ("tools/call", {"name": "there__act", "arguments": {}})
                refused = 0
                for _ in range(40):
                    answered = await asyncio.gather(*(client.answer(*act) for client in clients))
                    refused += sum("error" in answer for _, answer in answered)
                assert refused > 0
                assert len(script.calls) == 200


@pytest.mark.promise("b.workers.limits")
@real
async def test_so_many_calls_at_once_are_those_of_all_workers_and_of_none_that_was_killed() -> None:
    held: list[Request] = []

    async def holds(request: Request) -> None:
        if request.message["params"]["arguments"]:
            held.append(request)
        else:
            await answers(request)

    async with scripted(holds, modern=True) as script:
        with home() as environ:
            limits: Json = {"limits": {"concurrency": {"server": 9}}}
            async with served(script, environ, **limits) as gateway, kept(gateway.port, 12) as clients:
                await until_answered_by_workers(gateway, clients[:9])
                hold = ("tools/call", {"name": "there__act", "arguments": {"held": True}})
                calls = [asyncio.ensure_future(client.answer(*hold)) for client in clients]
                await until(lambda: len(held) == 9 and sum(call.done() for call in calls) == 3)
                assert all("error" in call.result()[1] for call in calls if call.done())
                os.kill(workers_of(gateway)[0], signal.SIGKILL)
                await gateway.until_it_says(b"is started again")
                await until(lambda: any(call.done() and call.exception() for call in calls))
                lost = sum(1 for call in calls if call.done() and call.exception())
                assert lost
                again = [asyncio.ensure_future(Client(gateway.port).call("there__act", held=True)) for _ in range(12)]
                # A refusal can be back before what was let through has come to the server.
                await until(lambda: sum(call.done() for call in again) == 12 - lost and len(held) == 9 + lost)
                for request in held:
                    await answers(request)
                found = await asyncio.gather(*again, return_exceptions=True)
                assert sum(each == "ok" for each in found) == lost
                await asyncio.gather(*calls, return_exceptions=True)


FILES = 256  # that a process may open


def give_few_files(*pids: int) -> None:
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (FILES, FILES))


@asynccontextmanager
async def stranger(port: int, asks: bytes = b"") -> AsyncGenerator[list[asyncio.StreamReader]]:
    """Has opened more connections than there may be, one after the other, and was answered where it asks."""
    async with AsyncExitStack() as at_last:
        opened: list[asyncio.StreamReader] = []
        for _ in range(COUNT * FILES):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            at_last.push_async_callback(shut, writer)
            opened.append(reader)
            if asks:
                writer.write(asks)
                async with asyncio.timeout(30):
                    assert (await read_response(reader))[0] == 200
        yield opened


async def is_closed(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(30):
            return await reader.read() == b""
    return True


@pytest.mark.promise("b.attacks.connections")
@real
async def test_connections_of_a_stranger_end_none_over_which_a_worker_has_passed_on_somebody_who_was_let_in() -> None:
    held: list[Request] = []

    async def holds(request: Request) -> None:
        held.append(request)

    async with scripted(holds, modern=True) as script:
        with home() as environ:
            owned = {"there": {"url": f"http://127.0.0.1:{script.port}/mcp", "concurrency": 8}}
            async with served(script, environ, servers=owned, **CI) as gateway:
                key = await asyncio.to_thread(command, environ, "keys", "create", "ci")
                async with kept(gateway.port, 8, key) as clients:
                    calls = [asyncio.ensure_future(each.call("there__act")) for each in clients]
                    await until(lambda: len(held) == len(calls))
                    give_few_files(gateway.process.pid, *workers_of(gateway))
                    async with stranger(gateway.port) as opened:
                        assert await is_closed(opened[0])
                        for request in held:
                            await answers(request)
                        assert await asyncio.gather(*calls) == ["ok"] * len(calls)


@pytest.mark.promise("b.attacks.connections")
@real
async def test_a_worker_has_files_left_to_pass_on_each_of_many_connections() -> None:
    async with scripted(answers, modern=True) as script:
        with home() as environ:
            async with served(script, environ) as gateway:
                give_few_files(*workers_of(gateway))  # the owner has enough for those of all
                async with stranger(gateway.port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") as opened:
                    assert await is_closed(opened[0])


@pytest.mark.promise("b.workers.reload")
@real
async def test_a_configuration_is_read_by_all() -> None:
    async with scripted(answers, modern=True) as script, scripted(answers, modern=True) as next:
        with home() as environ:
            async with served(script, environ) as gateway, kept(gateway.port, 8) as clients:
                await until_answered_by_workers(gateway, clients)
                file = Path(environ["HOME"], "toolgate.json")
                file.write_text(file.read_text().replace(str(script.port), str(next.port)))
                async with asyncio.timeout(60):
                    while await called_in_one_round(clients, script):
                        await asyncio.sleep(0.1)
                await until_answered_by_workers(gateway, clients)


async def called_in_one_round(clients: list[Kept], script: ScriptedServer) -> int:
    """How many calls come to a server when each of these calls twice."""
    before = len(script.calls)
    for _ in range(2):
        await asyncio.gather(*(client.call("there__act") for client in clients))
    return len(script.calls) - before


@pytest.mark.promise("b.workers.counted")
@real
async def test_what_workers_have_answered_is_counted_once() -> None:
    async with scripted(answers, modern=True) as script:
        with home() as environ:
            clients = [{"id": "ci", "mcp_server_access": "all", "admin": True}]
            async with served(script, environ, telemetry={"usage": True}, clients=clients) as gateway:
                key = await asyncio.to_thread(command, environ, "keys", "create", "ci")
                async with kept(gateway.port, 8, key) as callers:
                    await until_all_are(200, callers)
                    await until_answered_by_workers(gateway, callers)
                    async with asyncio.timeout(60):
                        while await counted(gateway.port, key) != len(script.calls):
                            await asyncio.sleep(0.2)


async def counted(port: int, key: str) -> int:
    """The calls that `/metrics` tells of."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())
    _, _, body = await read_response(reader)
    await shut(writer)
    lines = [line for line in body.decode().splitlines() if line.startswith("toolgate_calls_total{")]
    return sum(int(float(line.split()[-1])) for line in lines)


@pytest.mark.promise("b.workers.alone")
@real
async def test_bytes_pass_through_a_worker_as_they_are() -> None:
    async with scripted(answers, modern=True) as script:
        with home() as environ:
            async with served(script, environ) as gateway, kept(gateway.port, 1) as [client]:
                await until_answered_by_workers(gateway, [client])
                asked = client.request("tools/list") + client.request("tools/call", {"name": "there__act"})
                reader = await client.send(asked + client.request("server/discover"))
                answered = [await read_response(reader) for _ in range(3)]
                assert [status for status, _, _ in answered] == [200] * 3
                assert [json.loads(body)["id"] for _, _, body in answered] == [
                    *range(client.last_id - 2, client.last_id + 1)
                ]
                assert await client.call("there__act", text="x" * 300_000) == "ok"
                assert script.calls[-1].message["params"]["arguments"] == {"text": "x" * 300_000}
                reader = await client.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1x\r\n\r\n")
                assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
                async with websockets.connect(f"ws://127.0.0.1:{gateway.port}/mcp") as socket:
                    await socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
                    assert json.loads(await socket.recv())["result"] == {}


@real
async def test_a_worker_that_cannot_read_its_owners_store_passes_all_on() -> None:
    async with scripted(answers, modern=True) as script:
        with home() as environ:
            Path(environ["HOME"], "file").write_text("")
            async with served(script, environ, state="file") as gateway, kept(gateway.port, 4) as clients:
                for _ in range(4):
                    assert await asyncio.gather(*(client.call("there__act") for client in clients)) == ["ok"] * 4
                assert not await all_answered_without_the_owner(gateway, clients, "there__act")
                assert gateway.errors.decode().count("data is not kept") == 1


@real
async def test_a_port_that_another_program_has_is_not_shared_with_it() -> None:
    async with scripted(answers, modern=True) as script:
        with home() as environ:
            async with served(script, environ) as gateway:
                again = ("serve", "--port", str(gateway.port), "--workers", "2")
                with home() as other:
                    async with toolgate(*again, config={"one": child("counting")}, environ=other) as second:
                        assert await second.ended() != 0
                        assert b"Cannot listen on" in second.errors


def listen_beside(port: int) -> list[str]:
    """Where a program of the same user can listen, too, by whatever a socket has for that."""
    found: list[str] = []
    for host in ("127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1"):
        for option in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)):
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as ours:
                if ours.family == socket.AF_INET6:
                    ours.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                for each in option:
                    ours.setsockopt(socket.SOL_SOCKET, each, 1)
                with contextlib.suppress(OSError):
                    ours.bind((host, port))
                    ours.listen()
                    found.append(f"{host} {option}")
    return found


@real
async def test_no_program_of_the_same_user_listens_beside_workers() -> None:
    async with scripted(answers, modern=True) as script:
        with home() as environ:
            async with served(script, environ) as gateway:
                assert listen_beside(gateway.port) == []
                os.kill(workers_of(gateway)[0], signal.SIGKILL)
                assert listen_beside(gateway.port) == []
                await gateway.until_it_says(b"is started again")
                assert listen_beside(gateway.port) == []


@real
async def test_no_program_of_the_same_user_listens_beside_one_process() -> None:
    with home() as environ:
        async with toolgate("serve", "--port", "0", config={"one": child("counting")}, environ=environ) as gateway:
            await gateway.until_it_serves()
            assert listen_beside(gateway.port) == []


@real
async def test_who_listened_there_before_keeps_workers_away() -> None:
    with home() as environ, socket.socket() as theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        theirs.bind(("127.0.0.1", 0))
        theirs.listen()
        there = ("serve", "--port", str(theirs.getsockname()[1]), "--workers", "2")
        async with toolgate(*there, config={"one": child("counting")}, environ=environ) as gateway:
            assert await gateway.ended() != 0
            assert b"Cannot listen on" in gateway.errors


@pytest.mark.parametrize("number", ["0", "65"])
def test_there_are_one_to_64_workers(number: str) -> None:
    ran = [sys.executable, "-m", "toolgate", "serve", "--workers", number]
    done = subprocess.run(ran, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "1<=x<=64" in done.stderr
