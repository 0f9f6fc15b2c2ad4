"""What is stopped leaves nothing behind: no process, no grandchild, no session at a server. No call fails over it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from processes.ground import (
    Json,
    alive,
    child,
    failure,
    family_of,
    gateway,
    real,
    settings,
    started,
    until,
)
from processes.scripted_http import Request, ScriptedServer, scripted

from toolgate.config import Config, PoolLimits, Server
from toolgate.upstreams.base import Upstream
from toolgate.upstreams.process import supervisor

VAIN = 0.2  # seconds


def to(server: ScriptedServer) -> Config:
    return settings(one={"url": f"http://127.0.0.1:{server.port}/mcp"})


async def whole(request: Request) -> None:
    request.whole(request.answer())


def living(config: Config, pool: PoolLimits | None = None, **lives: Json) -> Config:
    """The configuration with other lives for its servers."""

    def other(server: Server) -> Server:
        return msgspec.structs.replace(server, **lives.get(server.id, {}))

    servers = tuple(other(server) for server in config.servers)
    return msgspec.structs.replace(config, servers=servers, pool=pool or PoolLimits())


def upstream(served: Any, id: str) -> Upstream:
    return served.app.gateway.snapshot.upstreams[id]


def family(tmp_path: Path, name: str, *modes: str) -> Json:
    return child("family", str(tmp_path / name), *modes)


async def gone(tmp_path: Path, name: str) -> None:
    pids = family_of(tmp_path / name)
    assert len(pids) == 2
    await until(lambda: not any(alive(pid) for pid in pids))


@pytest.fixture(params=[(), ("setsid",), ("setsid", "stubborn")], ids=["plain", "setsid", "stubborn"])
def modes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """How a family ends. One that ends neither with its stdin nor when it is told to is waited for in vain."""
    if "stubborn" in request.param:
        monkeypatch.setattr(supervisor, "PATIENCE", VAIN)
    return request.param


@real
async def test_an_idle_server_is_stopped_with_its_grandchildren(tmp_path: Path, modes: tuple[str, ...]) -> None:
    config = living(settings(one=family(tmp_path, "one", *modes)), one={"idle": 0.2})
    async with gateway(config) as served:
        assert await served.client().call("one__echo", say="hi") == "hi"
        await until(lambda: served.status("one").state == "stopped")
        await gone(tmp_path, "one")
        assert (served.status("one").stopped_by, served.status("one").pid) == ("idle", None)
        assert await served.client().call("one__echo", say="again") == "again"


@pytest.mark.promise("b.002.pool")
@real
async def test_a_server_that_gives_way_takes_its_grandchildren_along(tmp_path: Path, modes: tuple[str, ...]) -> None:
    config = settings(one=family(tmp_path, "one", *modes), two=family(tmp_path, "two", *modes))
    async with gateway(living(config, PoolLimits(max_live=1))) as served:
        client = served.client()
        assert await client.call("one__echo", say="one") == "one"
        first = family_of(tmp_path / "one")
        assert await client.call("two__echo", say="two") == "two"
        assert not any(alive(pid) for pid in first)  # before the other was started
        assert served.status("one").stopped_by == "pool"


@real
async def test_an_ephemeral_server_leaves_no_process(tmp_path: Path, modes: tuple[str, ...]) -> None:
    config = living(settings(one=family(tmp_path, "one", *modes)), one={"lifecycle": "ephemeral"})
    async with gateway(config) as served:
        assert await served.client().call("one__echo", say="hi") == "hi"
        await gone(tmp_path, "one")
        await until(lambda: served.status("one").stopped_by == "ephemeral")


@real
async def test_stop_leaves_no_process(tmp_path: Path, modes: tuple[str, ...]) -> None:
    async with gateway(settings(one=family(tmp_path, "one", *modes))) as served:
        client = served.client()
        await client.tools()
        lost = asyncio.create_task(failure(client.call("one__hang")))
        await until(lambda: upstream(served, "one").calls == 1)
        await upstream(served, "one").stop()
        await until(
            lambda: not any(alive(pid) for pid in family_of(tmp_path / "one"))
        )  # a killed grandchild takes a moment
        error = await lost
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        assert served.status("one").state == "stopped"
        assert await client.call("one__echo", say="back") == "back"


@real
async def test_stop_in_the_middle_of_a_start_leaves_no_process(tmp_path: Path) -> None:
    silent = tmp_path / "silent.py"
    silent.write_text("import sys\nfor line in sys.stdin: pass\n")
    python = child("counting")["command"]
    async with gateway(settings(one={"command": python, "args": ["-S", str(silent)]})) as served:
        before = set(started())
        lost = asyncio.create_task(failure(served.client().call("one__anything")))
        await until(lambda: served.status("one").pid)
        pid = served.status("one").pid
        await upstream(served, "one").stop()
        assert not alive(pid) and pid not in before
        assert (await lost).data["outcome"] == "not_sent"
        assert served.status("one").state == "stopped"


@pytest.mark.parametrize("seed", range(3))
@real
async def test_no_call_fails_that_races_with_a_stop(seed: int) -> None:
    """Servers are stopped for want of use, of room, and after each call, at just the time at which calls come."""
    lives: dict[str, Json] = {
        "a": {"idle": 0.02},
        "b": {"idle": 0.05},
        "c": {"lifecycle": "ephemeral"},
        "d": {"idle": 0.0},
    }
    config = living(settings(**{id: child("counting") for id in lives}), PoolLimits(max_live=2), **lives)
    pids: set[int] = set()
    async with gateway(config) as served:

        async def visit(random: Random) -> None:
            for _ in range(20):
                pids.add(int(await served.client().call(f"{random.choice('abcd')}__pid")))
                await asyncio.sleep(random.choice([0.0, 0.0, 0.02, 0.03, 0.05, 0.06, 0.1]))

        await asyncio.gather(*(visit(Random(f"{seed}/{number}")) for number in range(6)))
        assert len(pids) > 4, "nobody was stopped"
        await until(lambda: not any(alive(pid) for pid in pids))


@pytest.mark.parametrize("session", [True, False], ids=["with a session", "without"])
@real
async def test_an_idle_server_over_http_is_told_that_its_session_is_over(session: bool) -> None:
    async with (
        scripted(whole, session=session) as server,
        gateway(living(to(server), one={"idle": 0.2})) as served,
    ):
        client = served.client()
        assert await client.call("one__act") == "ok"
        await until(lambda: served.status("one").stopped_by == "idle")
        if session:
            await until(lambda: [each for each in server.requests if each.verb == "DELETE"])
        assert await client.call("one__act") == "ok"
        assert [request.method for request in server.requests].count("initialize") == 2


@pytest.mark.promise("b.002.breaker")
@real
async def test_a_server_that_cannot_be_reached_is_left_alone_after_five_tries() -> None:
    async with scripted(whole) as server, gateway(to(server)) as served:
        client = served.client()
        assert await client.call("one__act") == "ok"
        await server.stop()
        codes = [(await failure(client.call("one__act"))).data["code"] for _ in range(7)]
        assert codes == ["SERVER_FAILED"] * 5 + ["CIRCUIT_OPEN"] * 2
        status = served.status("one")
        assert status.state == "failed"
        assert "Cannot reach" in status.error and "next try in" in status.hint


@pytest.mark.parametrize(("kind", "scheme"), [("http", "http"), ("sse", "http"), ("ws", "ws"), ("component", "http")])
@real
async def test_what_is_secret_in_a_url_is_not_told_where_it_cannot_be_reached(kind: str, scheme: str) -> None:
    url = f"{scheme}://ann:hush-pw@127.0.0.1:1/mcp?api_key=hush-key"
    async with gateway(settings(one={"type": kind, "url": url})) as served:
        error = await failure(served.client().call("one__anything"))
        status = served.status("one")
        told = f"{error.message} {error.data} {status}"
        assert "127.0.0.1:1" in told and "hush" not in told


@real
async def test_a_command_that_there_is_not_is_told_as_a_shell_would() -> None:
    async with gateway(settings(one={"command": "npx-that-there-is-not"})) as served:
        error = await failure(served.client().call("one__anything"))
        status = served.status("one")
        assert status.state == "failed"
        assert status.error == "Command not found: npx-that-there-is-not"
        assert status.stderr == "/bin/sh: npx-that-there-is-not: command not found\n"
        assert error.message == "Server not started: Command not found: npx-that-there-is-not"
        assert "install npx-that-there-is-not" in status.hint and status.hint in error.data["hint"]


@real
async def test_the_status_of_a_failed_server_has_the_mend_of_its_cause() -> None:
    """The crash is that of a server made for mcp 1.x, under 2."""
    said = "AttributeError: 'Server' object has no attribute 'list_resources'"
    one = {"command": child("counting")["command"], "args": ["-S", "-c", f"raise SystemExit({said!r})"]}
    async with gateway(settings(one=one)) as served:
        error = await failure(served.client().call("one__anything"))
        assert "mcp<2" in served.status("one").hint
        assert "mcp<2" in error.data["hint"] and "doctor" in error.data["hint"]
