"""A component that is started by command: on a port of its own, with its first use, and ended with the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import HTTPServer
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import pytest
from processes.ground import CHILDREN, Served, alive, failure, gateway, real, started, until

from toolgate.config import Config, Server
from toolgate.core.fault import Reached
from toolgate.core.model import Call, Client, Done, Event
from toolgate.upstreams.links import http1

PROGRAM = str(CHILDREN / "component.py")


def local(behaviour: str = "well", **more: Any) -> Server:
    """A component of the children; `url` has the port that is chosen for it."""
    told: dict[str, Any] = {"command": sys.executable, "args": ("-S", PROGRAM, behaviour)}
    told |= {"url": "http://127.0.0.1:{port}/", "env": {"COLOUR": "blue"}}
    return Server(id="own", name="own", type="component", **(told | more))


@asynccontextmanager
async def behind(server: Server) -> AsyncIterator[Served]:
    async with gateway(Config(servers=(server,))) as served:
        yield served


async def own_pid(served: Served) -> int:
    return int(await served.client().call("own__pid"))


def programs() -> list[int]:
    """The processes of this test that run the component."""
    return [pid for pid in started() if PROGRAM.encode() in _command(pid)]


def _command(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


@real
async def test_it_starts_with_the_gateway_and_ends_with_it() -> None:
    async with behind(local()) as served:
        await until(lambda: served.status("own").state == "ready")
        pid = await own_pid(served)
        assert (served.status("own").pid, served.status("own").error) == (pid, "")
    assert not alive(pid)


@real
async def test_one_that_says_so_starts_with_its_first_use() -> None:
    async with behind(local(start="lazy")) as served:
        assert served.status("own").state == "configured" and served.status("own").pid is None
        client = served.client()
        assert await client.call("own__echo", message="hi") == "hi"
        pid = await own_pid(served)
        status = served.status("own")
        assert (status.state, status.pid, status.error) == ("ready", pid, "")
        assert "it behaves well" in status.stderr
        assert await client.call("own__setting", name="COLOUR") == "blue"
    assert not alive(pid)


@real
async def test_however_many_want_it_at_once_it_is_started_once() -> None:
    async with behind(local()) as served:
        assert len(set(await asyncio.gather(*(own_pid(served) for _ in range(8))))) == 1


@real
async def test_its_port_stands_in_its_arguments_where_they_want_it() -> None:
    code = f"import os, sys; assert sys.argv[2] == os.environ['PORT']; exec(open({PROGRAM!r}).read())"
    async with behind(local(args=("-S", "-c", code, "well", "{port}"))) as served:
        assert await served.client().call("own__echo", message="hi") == "hi"


@real
async def test_a_crash_fails_the_call_and_the_next_starts_it_again() -> None:
    async with behind(local()) as served:
        client = served.client()
        before = await own_pid(served)
        error = await failure(client.call("own__crash"))
        assert error.message.startswith("Tool execution failed: ")
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        assert "own exited with status 3: it behaves well" in error.message
        after = await own_pid(served)
        assert after != before and not alive(before)
        assert served.status("own").pid == after


@real
async def test_a_call_that_is_judged_once_more_while_its_process_ends_goes_to_the_next_one() -> None:
    async with behind(local()) as served:
        before, checked = await own_pid(served), 0

        async def ends(call: Call) -> Call:
            nonlocal checked
            checked += 1
            if checked == 1:
                os.kill(before, signal.SIGKILL)
                await until(lambda: served.status("own").state == "failed")
            return call

        upstream = served.app.gateway.snapshot.upstreams["own"]
        call = Call("tools/call", "pid", Client(), server="own", reached=Reached(recheck=ends))
        outcome = await upstream.invoke(call)
        after = await own_pid(served)
        assert isinstance(outcome, Done) and str(after).encode() in bytes(outcome.body)
        assert after != before and checked == 2


@real
async def test_one_that_takes_no_connection_now_goes_on_with_what_it_works_on(tmp_path: Path) -> None:
    """It takes one call after the other, and its queue is full of those of another client."""
    async with behind(local()) as served:
        before = await own_pid(served)
        ann = asyncio.ensure_future(served.client().call("own__wait", file=str(tmp_path / "go")))
        await until(lambda: served.app.gateway.snapshot.upstreams["own"].calls)
        with mock.patch.object(http1, "CONNECT_TIMEOUT", 0.2):
            bobs = [asyncio.ensure_future(served.client().call("own__echo", message="x")) for _ in range(12)]
            done, _ = await asyncio.wait(bobs, return_when=asyncio.FIRST_COMPLETED)
            assert all("Cannot reach" in str(bob.exception()) for bob in done) and not ann.done()
            (tmp_path / "go").touch()
            assert await ann == "done"
            await asyncio.gather(*bobs, return_exceptions=True)
        assert await own_pid(served) == before


@real
async def test_one_that_hangs_is_replaced_when_it_takes_no_connection_and_nothing_is_under_way() -> None:
    async with behind(local()) as served:
        before = await own_pid(served)
        upstream: Any = served.app.gateway.snapshot.upstreams["own"]
        os.kill(before, signal.SIGSTOP)
        with contextlib.ExitStack() as waiting, mock.patch.object(http1, "CONNECT_TIMEOUT", 0.5):
            for _ in range(2 * HTTPServer.request_queue_size):
                connection = waiting.enter_context(socket.socket())
                connection.setblocking(False)
                connection.connect_ex(("127.0.0.1", urlsplit(upstream._line.url).port))
            assert await served.client().call("own__echo", message="again") == "again"
        assert not alive(before)


@real
async def test_its_exit_is_seen_though_nobody_calls_it() -> None:
    async with behind(local()) as served:
        os.kill(await own_pid(served), signal.SIGKILL)
        await until(lambda: served.status("own").state == "failed")
        status = served.status("own")
        assert status.error.startswith("own was killed by signal SIGKILL") and status.pid is None
        assert "toolgate doctor --server own" in status.hint and "it behaves well" in status.stderr
        assert await served.client().call("own__echo", message="again") == "again"
        assert served.status("own").state == "ready"


@real
async def test_one_that_ends_at_once_says_why() -> None:
    async with behind(local("dying")) as served:
        error = await failure(served.client().tools())
        assert "Server not started: own exited with status 1: no database here" in error.message
        status = served.status("own")
        assert status.state == "failed" and status.pid is None and "no database here" in status.stderr


@real
async def test_one_that_never_listens_is_ended_in_its_time() -> None:
    async with behind(local("mute", start_timeout=0.5)) as served:
        error = await failure(served.client().tools())
        assert "no answer at http://127.0.0.1:" in error.message and "after 0.5 s" in error.message
        assert "PORT" in served.status("own").hint
        assert programs() == []


@real
async def test_a_command_that_is_not_there_is_named() -> None:
    async with behind(local(command="no-such-program")) as served:
        error = await failure(served.client().tools())
        assert "Server not started: Command not found: no-such-program" in error.message
        assert served.status("own").hint.startswith("install no-such-program")


@real
async def test_one_that_is_stopped_is_gone_and_the_next_use_starts_another() -> None:
    async with behind(local()) as served:
        before = await own_pid(served)
        upstream: Any = served.app.gateway.snapshot.upstreams["own"]
        await upstream.stop()
        assert not alive(before)
        assert (upstream.status().state, upstream.status().pid, upstream.calls) == ("stopped", None, 0)
        assert await own_pid(served) != before


@real
async def test_one_that_is_stopped_while_it_starts_is_gone() -> None:
    async with behind(local("mute")) as served:
        upstream: Any = served.app.gateway.snapshot.upstreams["own"]
        opening = asyncio.ensure_future(upstream.open())
        await until(lambda: "it behaves mute" in upstream.status().stderr)
        assert upstream.status().state == "starting"
        await upstream.stop()
        await opening
        assert programs() == [] and upstream.status().state == "stopped"


@pytest.mark.parametrize("closing", ["stdin", "stdout"])
@real
async def test_one_that_closes_its_pipes_lives_on(closing: str) -> None:
    number = ["stdin", "stdout"].index(closing)
    code = f"import os, sys; os.close({number}); os.open('/dev/null', os.O_RDWR); exec(open({PROGRAM!r}).read())"
    async with behind(local(args=("-S", "-c", code, "well"))) as served:
        first = await own_pid(served)
        await asyncio.gather(*(served.client().call("own__echo", message="x") for _ in range(5)))
        assert await own_pid(served) == first


@real
async def test_what_it_has_when_it_comes_again_is_told_if_it_is_other_than_before(tmp_path: Path) -> None:
    code = (
        f"import os, sys; text = open({PROGRAM!r}).read()\n"
        "if os.path.exists(sys.argv[2]): text = text.replace('\"echo\"', '\"shout\"')\n"
        "open(sys.argv[2], 'w').close()\nexec(text)"
    )
    async with behind(local(args=("-S", "-c", code, "well", str(tmp_path / "been here")))) as served:
        events: list[Event] = []
        served.app.events.listen(events.append)
        assert "own__echo" in await served.client().tools()
        await failure(served.client().call("own__crash"))
        await own_pid(served)
        await until(lambda: events)
        assert "own__shout" in await served.client().tools()
