"""A child that goes takes its own calls with it and nothing else; the next call starts it again."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
from pathlib import Path

import pytest
from processes.ground import (
    WAIT,
    Client,
    Failed,
    Json,
    alive,
    child,
    failure,
    gateway,
    guards,
    keepers,
    open_files,
    read_response,
    real,
    settings,
    shut,
    started,
    until,
)

from toolgate.core.clock import SystemClock
from toolgate.core.fault import Fault
from toolgate.core.inflow import IntakeQueue
from toolgate.upstreams.links.stdio import StdioLink
from toolgate.upstreams.process import supervisor as supervisors
from toolgate.upstreams.process.supervisor import Supervisor


async def counts(client: Client, server: str) -> Json:
    return json.loads(await client.call(f"{server}__counts"))


@pytest.mark.promise("b.lifecycle.crash", "b.lifecycle.own-group", "b.rulings.04-outcome")
@real
async def test_a_child_killed_in_the_middle_of_a_call_fails_that_call_only() -> None:
    async with gateway(settings(one=child("counting"), two=child("counting"))) as served:
        client = served.client()
        first = int(await client.call("one__pid"))
        lost = asyncio.create_task(failure(client.call("one__hold")))
        kept = asyncio.create_task(client.call("two__hold", say="still here"))
        while (await counts(client, "one"))["now"] < 1 or (await counts(client, "two"))["now"] < 1:
            pass
        os.kill(first, signal.SIGKILL)
        error = await lost
        assert error.code == -32603
        assert error.data["code"] == "SERVER_FAILED"
        assert error.data["outcome"] == "sent_unknown"
        assert error.data["server"] == "one"
        assert error.data["retryable"] is True
        assert "SIGKILL" in error.message
        assert not kept.done()
        await client.call("two__release")
        assert await kept == "still here"
        assert int(await client.call("one__pid")) != first


@real
async def test_every_call_in_flight_on_a_killed_child_ends() -> None:
    async with gateway(settings(one=child("counting"))) as served:
        client = served.client()
        lost = [asyncio.create_task(failure(client.call("one__hold"))) for _ in range(10)]
        while (await counts(client, "one"))["now"] < 10:
            pass
        os.kill(int(await client.call("one__pid")), signal.SIGKILL)
        assert {(error.data["code"], error.data["outcome"]) for error in await asyncio.gather(*lost)} == {
            ("SERVER_FAILED", "sent_unknown")
        }
        assert await client.call("one__slow", say="back") == "back"


@pytest.mark.promise("b.lifecycle.crash")
@real
async def test_a_child_that_exits_by_itself_is_told_with_its_status() -> None:
    async with gateway(settings(one=child("leaving"))) as served:
        client = served.client()
        error = await failure(client.call("one__crash"))
        assert "status 3" in error.message
        assert error.data["outcome"] == "sent_unknown"
        assert served.status("one").state == "failed"
        assert await client.call("one__pid")
        assert served.status("one").state == "ready"


@pytest.mark.promise("b.lifecycle.crash-told")
@real
async def test_every_call_that_a_crash_ends_is_told_the_status_and_the_last_line() -> None:
    """Also while other calls come, which meet a child that is on its way out."""
    async with gateway(settings(one=child("leaving"))) as served:
        client = served.client()
        for _ in range(5):
            await client.call("one__pid")
            said = [await client.start("tools/call", {"name": f"one__{tool}"}) for tool in ["complain"] + ["pid"] * 9]
            told = [json.loads((await read_response(reader))[2]) for reader, _ in said]
            for _, writer in said:
                await shut(writer)
            assert "error" in told[0]
            for error in [each["error"] for each in told if "error" in each]:
                assert error["message"] == "one exited with status 3: out of memory"
                assert error["data"]["outcome"] == "sent_unknown"


@pytest.mark.promise("b.lifecycle.crash-told")
def test_a_call_that_comes_while_a_child_dies_does_not_change_what_it_died_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On asyncio's own event loop, which sees at once that a pipe is closed."""
    monkeypatch.setattr(supervisors, "PATIENCE", WAIT)
    go_on = tmp_path / "go on"

    async def die() -> None:
        (server,) = settings(one=child("leaving")).servers
        supervisor, receiver = Supervisor(SystemClock(), os.environ), Recorder()
        link = StdioLink(server, receiver, SystemClock(), IntakeQueue())
        await link.connect(supervisor)
        (found,) = supervisor._children
        params = json.dumps({"name": "fade", "arguments": {"until": str(go_on)}}).encode()
        await link.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % params)
        await until(found._ending.is_set)  # it has closed its pipes, and has not exited
        late = asyncio.create_task(link.send(b'{"jsonrpc":"2.0","id":2,"method":"ping"}'))
        await asyncio.sleep(0)
        go_on.touch()
        with pytest.raises(Fault) as refused:
            await late
        assert refused.value.reach == "not_sent"
        assert [fault.told().message for fault in receiver.over] == ["one exited with status 3: out of memory"]
        await supervisor.close()

    asyncio.run(asyncio.wait_for(die(), WAIT))


@real
async def test_an_answer_written_just_before_the_exit_is_not_lost() -> None:
    async with gateway(settings(one=child("leaving"))) as served:
        client = served.client()
        for length in (1, 100, 300_000, 1, 300_000):
            pid = int(await client.call("one__pid"))
            assert len(await client.call("one__last_words", length=length)) == length
            # A list that is looked at just then starts it again.
            await until(lambda pid=pid: served.status("one").state == "failed" or served.status("one").pid != pid)


class Recorder:
    """What a link says to its receiver."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.over: list[Fault] = []

    def received(self, data: bytes, origin: int | None) -> None:
        self.messages.append(data)

    def failed(self, origin: int, fault: Fault) -> None:
        raise AssertionError("a pipe cannot tell whose failure it is")

    def retired(self, fault: Fault) -> None:
        raise AssertionError("a pipe is there or it is not")

    def closed(self, fault: Fault) -> None:
        self.over.append(fault)


@real
async def test_a_message_for_a_child_on_its_way_out_is_refused_when_it_is_gone() -> None:
    """So that whoever sends it again, since nothing was sent, finds the next child and not this one once more."""
    (server,) = settings(one=child("leaving")).servers
    supervisor, receiver = Supervisor(SystemClock(), os.environ), Recorder()
    link = StdioLink(server, receiver, SystemClock(), IntakeQueue())
    await link.connect(supervisor)
    closing = asyncio.create_task(link.close())
    await asyncio.sleep(0)
    with pytest.raises(Fault) as refused:
        await link.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    assert (refused.value.code, refused.value.reach) == ("SESSION_ERROR", "not_sent")
    assert len(receiver.over) == 1
    await closing
    await supervisor.close()


def test_a_child_that_reads_no_more_is_ended_when_it_is_spoken_to() -> None:
    """On asyncio's own event loop; `tests/attack` has it on the one that is used."""

    async def speak() -> None:
        (server,) = settings(one=child("leaving")).servers
        supervisor, receiver = Supervisor(SystemClock(), os.environ), Recorder()
        link = StdioLink(server, receiver, SystemClock(), IntakeQueue())
        await link.connect(supervisor)
        call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"deaf"}}'
        await link.send(call)
        await until(lambda: receiver.messages)
        with pytest.raises(Fault) as refused:
            while True:  # until the loop has noticed
                await link.send(call)
                await asyncio.sleep(0)
        assert (refused.value.code, refused.value.reach) == ("SESSION_ERROR", "not_sent")
        assert len(receiver.over) == 1
        await supervisor.close()

    asyncio.run(asyncio.wait_for(speak(), WAIT))


@real
async def test_what_a_child_has_begun_to_say_goes_with_it() -> None:
    """31 MB of it stayed each time, until garbage was collected."""
    (server,) = settings(one=child("leaving")).servers
    link = StdioLink(server, Recorder(), SystemClock(), IntakeQueue())
    link._output(b"x" * 1_000_000)
    await until(lambda: link._lines.pending == 1_000_000)
    link._exited("it ended")
    await until(lambda: link._lines.pending == 0)


@real
async def test_the_guard_is_started_again_when_it_is_killed() -> None:
    async with gateway(settings(one=child("counting"), two=child("counting"))) as served:
        client = served.client()
        await client.call("one__pid")
        (first,) = guards()
        os.kill(first, signal.SIGKILL)
        await until(lambda: guards() and guards() != [first])
        await client.call("two__pid")
        assert len(guards()) == 1


@real
async def test_a_gateway_whose_guard_was_killed_closes_as_ever() -> None:
    async with gateway(settings(one=child("counting"))) as served:
        client = served.client()
        pid = int(await client.call("one__pid"))
        for guard in guards():
            os.kill(guard, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: pid not in started())
        with contextlib.suppress(Failed):  # which may come before its end is noticed
            await client.call("one__pid")
        assert await client.call("one__pid")
        for guard in guards():
            os.kill(guard, signal.SIGKILL)


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="there are no real-time signals here")
@real
async def test_a_child_ended_by_a_signal_without_a_name_is_replaced_too() -> None:
    async with gateway(settings(one=child("counting"))) as served:
        client = served.client()
        first = int(await client.call("one__pid"))
        lost = asyncio.create_task(failure(client.call("one__hold")))
        while (await counts(client, "one"))["now"] < 1:
            pass
        os.kill(first, signal.SIGRTMIN + 5)
        assert "killed by signal" in (await lost).message
        assert int(await client.call("one__pid")) != first


@pytest.mark.promise("b.memory.calls")
@real
async def test_of_a_child_that_is_gone_no_handle_is_kept() -> None:
    def handles() -> int:
        gc.collect()
        return sum(type(each).__name__ == "WriteUnixTransport" for each in gc.get_objects())

    async with gateway(settings(one=child("counting"))) as served:
        client = served.client()
        before = None
        for _ in range(4):
            pid = int(await client.call("one__pid"))
            before = before or handles()
            os.kill(pid, signal.SIGKILL)
            # A call that is sent before the gateway hears of the end is lost with it.
            await until(lambda pid=pid: not alive(pid) and served.status("one").pid != pid)
        assert int(await client.call("one__pid")) != pid
        await until(lambda: handles() <= before)


@real
async def test_a_start_that_is_given_up_at_any_moment_leaves_nothing_and_touches_nobody_elses_files() -> None:
    supervisor = Supervisor(SystemClock(), os.environ)
    supervisor.prepare()
    files = 0
    for turns in [1000, *range(40)]:  # the first one is not given up, and shows what a start leaves open
        start = asyncio.create_task(
            supervisor.start("one", "/bin/cat", [], {}, None, lambda _: None, lambda _: None, lambda: None)
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        start.cancel()
        mine = [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]  # would get the number of what is closed twice
        (found,) = await asyncio.gather(start, return_exceptions=True)
        if isinstance(found, supervisors.Child):
            found.end()
            await found.ended()
        await until(lambda: not keepers())
        for each in mine:
            os.close(each)  # an error where somebody else has closed it
        files = files or open_files()
    await until(lambda: open_files() == files)
    await supervisor.close()
