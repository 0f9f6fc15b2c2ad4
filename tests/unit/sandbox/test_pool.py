"""Whose turn it is, and workers that are ready, on an engine in memory and by a clock that jumps."""

from __future__ import annotations

import asyncio
import logging

import pytest
from scripted_engine import Json, Process, Scripted, Shop
from virtualtime import settle, soon

from toolgate.core.fault import Fault
from toolgate.sandbox.limits import Limits
from toolgate.sandbox.pool import Pool
from toolgate.sandbox.run import Ran, Rests, SandboxError
from toolgate.sandbox.worker import Engine, Worker


def done(process: Process, told: Json) -> None:
    process.says({"done": {"value": 1}})


def calls_one(process: Process, told: Json) -> None:
    if "run" in told:
        process.calls("wait")
    else:
        process.says({"done": {"value": 1}})


def begin(pool: Pool, shop: Shop, whose: str = "") -> asyncio.Task[Ran]:
    return asyncio.get_running_loop().create_task(pool.run("code", shop.host, whose=whose))


async def test_code_has_a_limit_in_bytes() -> None:
    scripted = Scripted(done)
    pool = scripted.pool()
    with pytest.raises(Fault) as raised:
        await pool.run("é" * 25_601, Shop().host)
    assert raised.value.message == "code exceeds 51200 bytes" and not scripted.processes
    await soon(pool.run("é" * 25_600, Shop().host))
    await pool.close()


async def test_workers_are_ready_before_they_are_needed_and_each_is_used_once() -> None:
    scripted = Scripted(done)
    pool = scripted.pool(Limits(warm=2))
    pool.prepare()
    await settle()
    assert len(scripted.processes) == 2
    for _ in range(5):
        await soon(pool.run("code", Shop().host))
        await settle()
    assert len(scripted.processes) == 7 and all(len(each.told) <= 1 for each in scripted.processes)
    assert sum(not each.is_killed for each in scripted.processes) == 2
    await pool.close()
    assert all(each.is_killed for each in scripted.processes)


async def test_a_worker_that_died_while_it_was_ready_is_not_used() -> None:
    scripted = Scripted(done)
    pool = scripted.pool(Limits(warm=1))
    pool.prepare()
    await settle()
    scripted.processes[0].dies("was killed by signal SIGKILL")
    await settle()
    assert (await soon(pool.run("code", Shop().host))).value == b"1"
    await pool.close()


async def test_a_worker_that_speaks_before_it_is_asked_is_not_used() -> None:
    scripted = Scripted(done)
    pool = scripted.pool(Limits(warm=1))
    pool.prepare()
    await settle()
    scripted.processes[0].says({"done": {"value": "forged"}})
    assert (await soon(pool.run("code", Shop().host))).value == b"1"
    await pool.close()


async def test_nothing_is_kept_ready_where_nobody_runs_anything() -> None:
    scripted = Scripted(done)
    pool = scripted.pool(Limits(warm=2, idle=300))
    await soon(pool.run("code", Shop().host))
    await asyncio.sleep(301)
    assert all(each.is_killed for each in scripted.processes)
    await pool.close()


async def test_a_missing_engine_is_an_error_that_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    scripted = Scripted(done)
    scripted.failure = Fault("SERVER_FAILED", "not installed", hint="pip install it")
    pool = scripted.pool()
    with caplog.at_level(logging.ERROR), pytest.raises(Fault) as raised:
        await soon(pool.run("code", Shop().host))
    assert raised.value.hint == "pip install it"
    scripted.failure = None
    assert (await soon(pool.run("code", Shop().host))).value == b"1"
    await pool.close()


async def test_an_engine_that_does_not_start_is_given_up() -> None:
    scripted = Scripted(done, is_ready=False)
    pool = scripted.pool(Limits(warm=0))
    with pytest.raises(Fault) as raised:
        await pool.run("code", Shop().host)
    assert raised.value.message == "The sandbox for scripted did not start in 30 s"
    assert scripted.processes[0].is_killed
    await pool.close()


async def test_runs_at_once_have_a_limit_and_the_others_wait_for_their_turn() -> None:
    scripted, shop = Scripted(calls_one), Shop(wait=lambda _: asyncio.sleep(10))
    pool = scripted.pool(Limits(warm=0, runs=2))
    runs = [begin(pool, shop, str(number)) for number in range(6)]
    await asyncio.gather(*runs)
    assert shop.most_at_once == 2 and len(shop.called) == 6
    await pool.close()


async def test_who_waits_too_long_for_a_turn_is_told_that_all_are_busy() -> None:
    scripted, shop = Scripted(calls_one), Shop(wait=lambda _: asyncio.sleep(100))
    pool = scripted.pool(Limits(warm=0, runs=1, patience=30))
    first = begin(pool, shop)
    await settle()
    with pytest.raises(Fault) as raised:
        await pool.run("code", shop.host)
    assert (raised.value.message, raised.value.code) == ("busy", "RATE_LIMITED")
    await first
    await pool.close()


async def test_a_principal_waits_with_so_many_runs_only() -> None:
    scripted, shop = Scripted(calls_one), Shop(wait=lambda _: asyncio.sleep(5))
    pool = scripted.pool(Limits(warm=0, runs=1, queued=2))
    runs = [begin(pool, shop, "ann") for _ in range(4)] + [begin(pool, shop, "bob")]
    ends = await asyncio.gather(*runs, return_exceptions=True)
    assert [getattr(end, "message", "") for end in ends] == ["", "", "", "busy", ""]
    await pool.close()


async def test_a_run_that_waits_for_a_person_lets_others_run() -> None:
    answered = asyncio.Event()

    async def wait(rests: Rests) -> None:
        if not answered.is_set():
            rests(True)
            await answered.wait()
            rests(False)

    scripted, shop = Scripted(calls_one), Shop(wait=wait)
    pool = scripted.pool(Limits(warm=0, runs=1))
    first = begin(pool, shop)
    await settle()
    answered.set()
    answered.clear()
    second = begin(pool, shop)
    await settle()
    assert len(shop.called) == 2
    answered.set()
    await asyncio.gather(first, second)
    await pool.close()


async def test_it_goes_on_only_when_it_has_a_turn_again() -> None:
    answered = asyncio.Event()

    async def ask(rests: Rests) -> None:
        rests(True)
        await answered.wait()
        rests(False)

    first_shop, second_shop = Shop(wait=ask), Shop(wait=lambda _: asyncio.sleep(100))
    pool = Scripted(calls_one).pool(Limits(warm=0, runs=1))
    first = begin(pool, first_shop, "ann")
    await settle()
    second = begin(pool, second_shop, "bob")
    await settle()
    answered.set()
    await settle()
    assert second_shop.at_once == 1 and not first.done()
    await second
    assert (await first).value == b"1" and first.result().seconds < 1
    await pool.close()


async def test_a_principal_waits_for_people_with_so_many_runs_only() -> None:
    refused: list[Fault] = []

    async def ask(rests: Rests) -> None:
        try:
            rests(True)
        except Fault as fault:
            refused.append(fault)
            raise
        await asyncio.sleep(500)
        rests(False)

    scripted = Scripted(calls_one)
    pool, shop = scripted.pool(Limits(warm=0, runs=2, waiting=3, patience=1000)), Shop(wait=ask)
    runs = [begin(pool, shop, "ann") for _ in range(4)] + [begin(pool, shop, "bob")]
    await asyncio.gather(*runs)
    assert [fault.message for fault in refused] == ["3 runs wait for a person already"]
    assert not pool._slots.resting
    await pool.close()


async def test_turns_are_given_back_however_a_run_ends() -> None:
    def play(process: Process, told: Json) -> None:
        process.says(b"garbage")

    scripted = Scripted(play)
    pool = scripted.pool(Limits(warm=0, runs=1))
    for _ in range(3):
        with pytest.raises(SandboxError):
            await soon(pool.run("code", Shop().host))
    cancelled = begin(pool, Shop())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    with pytest.raises(SandboxError):
        await soon(pool.run("code", Shop().host))
    await pool.close()


async def test_a_cancelled_run_that_waited_for_a_person_is_forgotten() -> None:
    async def ask(rests: Rests) -> None:
        rests(True)
        await asyncio.sleep(1000)

    pool, shop = Scripted(calls_one).pool(Limits(warm=0, runs=1)), Shop(wait=ask)
    for _ in range(3):
        run = begin(pool, shop, "ann")
        await settle()
        run.cancel()
        await asyncio.wait([run])
    assert not pool._slots.resting
    assert shop.at_once == 0
    await pool.close()


async def test_closing_ends_what_runs() -> None:
    scripted, shop = Scripted(calls_one), Shop(wait=lambda _: asyncio.sleep(1000))
    pool = scripted.pool(Limits(warm=1))
    run = begin(pool, shop)
    await settle()
    await pool.close()
    with pytest.raises(SandboxError):
        await soon(run)
    assert all(each.is_killed for each in scripted.processes) and shop.at_once == 0


async def test_a_shorter_time_is_kept_and_a_longer_one_is_not() -> None:
    pool = Scripted(lambda process, told: None).pool(Limits(warm=0))
    for wanted, kept in ((5, 5), (1000, 120)):
        with pytest.raises(SandboxError) as raised:
            await pool.run("code", Shop().host, wall=wanted)
        assert raised.value.seconds == pytest.approx(kept)
    await pool.close()


async def test_a_worker_that_starts_while_the_limits_change_runs_nothing_and_leaves_nothing_behind() -> None:
    old, new, goes_on, told = Scripted(done), Scripted(done), asyncio.Event(), list[str]()

    async def slow(worker: Worker) -> None:
        await goes_on.wait()
        await old.start(worker)
        told.append("started")

    async def closed() -> None:
        told.append("closed")

    pool = old.pool(Limits(warm=1))
    pool.engine = Engine("scripted", slow, close=closed)
    pool.prepare()
    await settle()
    pool.use(Engine("scripted", new.start), Limits(warm=1))
    await settle()
    goes_on.set()
    await settle()
    assert [each.is_killed for each in old.processes] == [True] and told == ["started", "closed"]
    await soon(pool.run("code", Shop().host))
    assert new.processes[0].told and not old.processes[0].told
    await pool.close()
