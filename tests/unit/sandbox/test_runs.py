"""One run, on an engine in memory and by a clock that jumps."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest
from scripted_engine import Json, Process, Scripted, Shop
from virtualtime import settle, soon

from toolgate.core.fault import Fault
from toolgate.sandbox import bridge
from toolgate.sandbox.limits import Limits
from toolgate.sandbox.run import Rests, SandboxError

NONE_READY = Limits(warm=0)


def at_the_order(*lines: Json | bytes) -> Scripted:
    return Scripted(lambda process, told: process.says(*lines) if "run" in told else None)


async def failure(scripted: Scripted, limits: Limits = NONE_READY, shop: Shop | None = None) -> SandboxError:
    pool = scripted.pool(limits)
    with pytest.raises(SandboxError) as raised:
        await pool.run("code", (shop or Shop()).host)
    await pool.close()
    return raised.value


async def test_a_run_has_a_value_and_what_it_logged() -> None:
    pool = at_the_order({"log": "one"}, {"log": "two"}, {"done": {"value": {"a": 1}}}).pool(NONE_READY)
    ran = await soon(pool.run("```js\ncode\n```", Shop().host, data=b"[1]"))
    assert (ran.value, ran.logs, ran.engine) == (b'{"a": 1}', "one\ntwo", "scripted 1")
    await pool.close()


async def test_its_worker_is_told_the_order_once_and_killed_at_the_end() -> None:
    scripted = at_the_order({"done": {"absent": True}})
    pool = scripted.pool(NONE_READY)
    ran = await soon(pool.run("```js\ncode\n```", Shop(buy=lambda _: 1).host, data=b"[1]", strict=True))
    (process,) = scripted.processes
    (told,) = process.told
    assert ran.value is None and process.is_killed
    assert told["run"] | {"limits": None} == {
        "code": "code",
        "servers": {"shop": ["buy"]},
        "data": [1],
        "limits": None,
        "strict": True,
    }
    await pool.close()


async def test_calls_are_answered() -> None:
    def play(process: Process, told: Json) -> None:
        if "run" in told:
            process.calls("buy", "sell", "lose", "break")
        elif len(process.told) == 5:
            process.says({"done": {"value": 1}})

    def lose(_rests: Rests) -> None:
        raise Fault("TOOL_NOT_FOUND", "no tool lose", hint="did you mean sell?")

    def break_(_rests: Rests) -> None:
        raise ZeroDivisionError

    scripted = Scripted(play)
    pool = scripted.pool(NONE_READY)
    shop = Shop(buy=lambda _: {"n": 1}, sell=lambda _: "x", lose=lose, **{"break": break_})
    await soon(pool.run("code", shop.host))
    answers = sorted(scripted.processes[0].told[1:], key=lambda answer: answer["answer"])
    assert answers == [
        {"answer": 1, "value": {"n": 1}},
        {"answer": 2, "value": "x"},
        {"answer": 3, "error": {"message": "no tool lose\ndid you mean sell?", "code": "TOOL_NOT_FOUND"}},
        {"answer": 4, "error": {"message": "internal error", "code": "INTERNAL"}},
    ]
    await pool.close()


async def test_what_the_code_throws_is_told_with_the_logs() -> None:
    said = await failure(
        at_the_order({"log": "hello"}, {"failed": {"name": "TypeError", "message": "x", "stack": "at"}})
    )
    assert (str(said), said.logs) == ("Sandbox error: TypeError: x\nat", "hello")


async def test_of_much_that_it_has_logged_the_beginning_and_the_end_are_told() -> None:
    lines = [{"log": f"{number} " + "🙂" * 5_000} for number in range(10)]
    said = await failure(at_the_order(*lines, {"failed": {"name": "TypeError", "message": "x"}}))
    assert said.logs.startswith("0 🙂") and said.logs.endswith("🙂") and "9 🙂" in said.logs
    assert "🙂\n[134,493 bytes are left out]\n🙂" in said.logs and len(said.logs.encode()) < 66_000


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"deadlock": True}, "the code waits for something that can never happen"),
        ({"log": "x" * 200}, "output limit exceeded"),
        (b"garbage", "the sandbox failed: its process wrote what cannot be read"),
    ],
)
async def test_other_ends_are_sandbox_errors(line: Json | bytes, said: str) -> None:
    error = await failure(at_the_order({"log": "hello"}, line), Limits(warm=0, output=100))
    assert str(error).startswith(f"Sandbox error: {said}") and error.logs == "hello"


async def test_a_worker_that_dies_ends_the_run_with_its_last_words() -> None:
    def play(process: Process, told: Json) -> None:
        process.says({"log": "hello"})
        process.dies("memory limit exceeded")

    error = await failure(Scripted(play))
    assert (error.message, error.logs) == ("memory limit exceeded", "hello")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere nobody knows how much memory it has")
async def test_a_worker_has_so_much_memory() -> None:
    """Ours stands for its own."""
    scripted = Scripted(lambda process, told: process.says({"log": "hello"}), pid=os.getpid())
    error = await failure(scripted, Limits(warm=0, resident=1024))
    assert error.message == "memory limit exceeded"
    error = await failure(scripted, Limits(warm=0, resident=1 << 40))
    assert error.message.startswith("execution timed out")


async def test_a_run_has_so_much_time() -> None:
    error = await failure(at_the_order({"log": "hello"}))
    assert (error.message, error.logs, error.seconds) == ("execution timed out after 120000ms", "hello", 120.0)


async def test_time_stands_still_while_a_call_waits_for_a_person() -> None:
    async def ask(rests: Rests) -> str:
        rests(True)
        await asyncio.sleep(1000)
        rests(False)
        await asyncio.sleep(100)
        return "yes"

    def play(process: Process, told: Json) -> None:
        if "run" in told:
            process.calls("ask")
        else:
            process.says({"done": {"value": told["value"]}})

    pool = Scripted(play).pool(NONE_READY)
    ran = await pool.run("code", Shop(ask=ask).host)
    assert ran.value == b'"yes"' and ran.seconds == pytest.approx(100)
    await pool.close()


async def test_time_goes_on_after_the_person() -> None:
    async def ask(rests: Rests) -> None:
        rests(True)
        await asyncio.sleep(1000)
        rests(False)
        await asyncio.sleep(1000)

    scripted = Scripted(lambda process, told: process.calls("ask"))
    error = await failure(scripted, shop=(shop := Shop(ask=ask)))
    assert error.message == "execution timed out after 120000ms" and shop.ended == ["ask"]


async def test_a_large_call_is_a_call_as_any_other_and_so_is_what_is_wrong_with_it() -> None:
    large, many = {"a": "x" * bridge.LARGE}, {"a": [1] * bridge.LARGE}

    def play(process: Process, told: Json) -> None:
        if "run" in told:
            process.calls("buy", arguments=large)
            process.calls("buy", begin=2, arguments=many)
        elif len(process.told) == 3:
            process.says({"done": {"value": [each.get("error", {}).get("message") for each in process.told[1:]]}})

    pool, shop = Scripted(play).pool(NONE_READY), Shop(buy=lambda _: 1)
    ran = await soon(pool.run("code", shop.host))
    assert sorted(json.loads(ran.value or b""), key=str) == [
        None,
        "the arguments have more than 100,000 JSON values (limits.values)",
    ]
    assert [json.loads(arguments) for _, _, arguments, _ in shop.called] == [large]
    await pool.close()


async def test_a_large_call_that_cannot_be_read_ends_the_run() -> None:
    error = await failure(at_the_order(b'{"call":1,' + b"x" * bridge.LARGE), shop=(shop := Shop()))
    assert error.message == "the sandbox failed: its process wrote what cannot be read" and not shop.called


async def test_the_end_cancels_the_calls_that_nobody_waits_for() -> None:
    def play(process: Process, told: Json) -> None:
        process.calls(*["wait"] * 100)
        process.says({"done": {"value": 1}})

    pool, shop = Scripted(play).pool(NONE_READY), Shop(wait=lambda _: asyncio.sleep(1000))
    await soon(pool.run("code", shop.host))
    assert shop.at_once == 0 and len(shop.called) <= 64
    await pool.close()


@pytest.mark.parametrize("rests_first", [False, True])
async def test_a_cancelled_run_leaves_no_call_and_no_worker(rests_first: bool) -> None:
    async def wait(rests: Rests) -> None:
        if rests_first:
            rests(True)
        await asyncio.sleep(1000)

    scripted = Scripted(lambda process, told: process.calls("wait", "wait"))
    pool, shop = scripted.pool(NONE_READY), Shop(wait=wait)
    run = asyncio.ensure_future(pool.run("code", shop.host))
    await asyncio.sleep(1)
    assert shop.at_once == 2
    run.cancel()
    await asyncio.wait([run])
    assert run.cancelled() and shop.at_once == 0 and scripted.processes[0].is_killed
    await pool.close()


async def test_calls_at_once_have_a_limit_and_the_others_wait() -> None:
    def play(process: Process, told: Json) -> None:
        if "run" in told:
            process.calls(*["wait"] * 200)
        elif len(process.told) == 201:
            process.says({"done": {"value": 1}})

    pool, shop = Scripted(play).pool(NONE_READY), Shop(wait=lambda _: asyncio.sleep(1))
    await pool.run("code", shop.host)
    assert len(shop.called) == 200 and shop.most_at_once == 64
    await pool.close()


async def test_a_result_beyond_the_limit_is_an_error_that_can_be_caught() -> None:
    def play(process: Process, told: Json) -> None:
        if "run" in told:
            process.calls("much")
        else:
            process.says({"done": {"value": told["error"]["message"]}})

    pool = Scripted(play).pool(Limits(warm=0, result=100))
    ran = await soon(pool.run("code", Shop(much=lambda _: "x" * 200).host))
    assert ran.value == b'"the result of much has 202 bytes: the limit is 100"'
    await pool.close()


async def test_answers_that_nobody_reads_are_not_kept_without_end() -> None:
    def play(process: Process, told: Json) -> None:
        if "run" in told:
            process.calls(*["much"] * 30)
            asyncio.get_running_loop().call_later(0.5, process.worker.full)  # its pipe, when all have begun
        elif len(process.told) == 31:
            process.says({"done": {"value": sum("error" in told for told in process.told)}})

    scripted = Scripted(play)
    pool = scripted.pool(NONE_READY)

    async def much(_rests: Rests) -> str:
        await asyncio.sleep(1)
        return "x" * 1_000_000

    ran = await pool.run("code", Shop(much=much).host)
    assert ran.value == b"5"
    await pool.close()


async def test_answers_that_wait_for_a_person_are_not_kept_without_end_and_count() -> None:
    def play(process: Process, told: Json) -> None:
        if "run" in told:
            process.calls("ask", *["much"] * 30)
        elif len(process.told) == 32:
            process.says({"done": {"value": sum("error" in each for each in process.told)}})

    answered = asyncio.Event()

    async def ask(rests: Rests) -> None:
        rests(True)
        await answered.wait()
        rests(False)

    scripted = Scripted(play)
    pool, shop = scripted.pool(NONE_READY), Shop(ask=ask, much=lambda _: "x" * 1_000_000)
    run = asyncio.ensure_future(pool.run("code", shop.host))
    await settle()
    assert 25_000_000 < pool._slots.held._kept < 26_000_000 and len(scripted.processes[0].told) == 1
    answered.set()
    assert (await soon(run)).value == b"5"
    assert not pool._slots.held._kept
    await pool.close()


async def test_a_run_is_read_on_when_it_has_read_its_answers_whatever_the_others_of_its_principal_keep() -> None:
    printed, answers = 9 * 1024 * 1024, 12

    def play(process: Process, told: Json) -> None:
        if process in scripted.processes[:6]:
            process.says(*[{"log": "x" * 64_000}] * (printed // 64_000))
        elif "run" in told:
            process.calls(*["much"] * answers)
            asyncio.get_running_loop().call_later(0.5, process.worker.full)  # when all have begun
        elif len(process.told) == 1 + answers:
            process.worker.room()
            process.says({"done": {"value": 1}})

    async def much(_rests: Rests) -> str:
        await asyncio.sleep(1)
        return "x" * 1_500_000

    scripted = Scripted(play)
    pool, shop = scripted.pool(Limits(warm=0, runs=64)), Shop(much=much)
    others = [asyncio.ensure_future(pool.run("code", shop.host, whose="ann")) for _ in range(6)]
    await asyncio.sleep(5)
    assert (await pool.run("code", shop.host, whose="ann")).value == b"1"
    assert not any(other.done() for other in others)
    for other in others:
        other.cancel()
    await asyncio.wait(others)
    await pool.close()


async def test_no_call_begins_while_nobody_reads_the_answers() -> None:
    def play(process: Process, told: Json) -> None:
        if "run" in told:
            process.worker.full()
            process.calls("buy")
            asyncio.get_running_loop().call_later(50, process.worker.room)
        else:
            process.says({"done": {"value": 1}})

    pool = Scripted(play).pool(NONE_READY)
    ran = await pool.run("code", Shop(buy=lambda _: 1).host)
    assert ran.seconds == pytest.approx(50)
    await pool.close()


async def test_a_run_that_was_killed_hears_no_more() -> None:
    scripted = at_the_order({"done": {"value": 1}}, {"log": "late"}, {"call": 1, "server": "shop", "tool": "buy"})
    pool, shop = scripted.pool(NONE_READY), Shop()
    await soon(pool.run("code", shop.host))
    scripted.processes[0].says({"call": 1, "server": "shop", "tool": "buy", "arguments": {}})
    await asyncio.sleep(1)
    assert shop.called == []
    await pool.close()


async def test_a_name_with_dots_and_spaces_comes_as_it_was_written() -> None:
    names: dict[str, Any] = {"server": "a b/‮\u0000", "tool": "__proto__"}

    def play(process: Process, told: Json) -> None:
        process.says(
            {"call": 1, **names, "arguments": {"x": 1}, "raw": True} if "run" in told else {"done": {"value": 1}}
        )

    pool, shop = Scripted(play).pool(NONE_READY), Shop()
    await soon(pool.run("code", shop.host))
    assert shop.called == [(names["server"], names["tool"], b'{"x": 1}', True)]
    await pool.close()
