"""What code of one client costs the others: its calls take turns, it never has the last place, what it leaves behind is
let go of, and what it prints answers no guess at a secret."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from inmemory import Json, Scripted, Visitor, gateway, said, tools
from scripted_engine import Process, Shop
from scripted_engine import Scripted as Processes
from virtualtime import FakeClock, settle, soon

from toolgate.app import App
from toolgate.config import Audit, Config
from toolgate.config.access import KnownClient, Permissions
from toolgate.core.bodies import MOST_OF_ONE
from toolgate.core.concurrency import Shared
from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.core.redaction import Redactor
from toolgate.frontends.guards import Headers
from toolgate.frontends.scheduling import Scheduler
from toolgate.sandbox import bridge
from toolgate.sandbox.limits import Limits
from toolgate.sandbox.pool import Pool
from toolgate.sandbox.run import Ran
from toolgate.sandbox.worker import Engine
from toolgate.state.audit import Trail
from toolgate.state.memory import MemoryStore

SECRET = "tg-Zk3vR9wQ7xL2mN8pB4sD"
CODE = {"mcp_execute": {"code": "…"}, "execute_code": {"code": "…"}}
DATASET = {"data": [1, 2], "operation": "double", "parameters": {"code": "…"}}
BOTH = Config(clients=(KnownClient(id="loud", name="loud"), KnownClient(id="quiet", name="quiet")))


async def by_header(headers: Headers, address: str, path: str) -> Principal:
    return Principal(headers["x-who"], client=headers["x-who"])


def of(processes: Processes) -> Any:
    return {language: lambda *_: Engine("scripted", processes.start) for language in ("javascript", "python")}


def there(**more: Any) -> Scripted:
    return Scripted(tools_list=tools("t", "u"), tools_call=more.get("tools_call", lambda params: said("z" * 100_000)))


async def ask(visitor: Visitor, tool: str, arguments: Any) -> Any:
    reply = await visitor.ask_modern("tools/call", {"mcp-name": tool}, name=tool, arguments=arguments)
    return reply.last


# Turns.


def calls(count: int, tool: str = "t", server: str = "there") -> Callable[[Process, Json], None]:
    """Code that makes so many calls at once, and ends when all are answered."""
    left = [count]

    def play(process: Process, told: Json) -> None:
        if "run" in told:
            process.calls(*[tool] * count, server=server)
            return
        left[0] -= 1
        if not left[0]:
            process.says({"done": {"value": 1}})

    return play


@pytest.mark.promise("b.attacks.code")
@pytest.mark.parametrize(
    ("tool", "server"), [("t", "there"), ("nope", "there"), ("t", "nowhere")], ids=["calls", "misses", "no server"]
)
async def test_each_call_of_code_waits_for_a_turn_of_its_client(tool: str, server: str) -> None:
    asked: list[str] = []
    begun, ended = [0], [0]
    turns = asyncio.Semaphore(0)

    async def turn(whose: str) -> Callable[[], None]:
        asked.append(whose)
        await turns.acquire()
        begun[0] += 1

        def is_over() -> None:
            ended[0] += 1

        return is_over

    processes = Processes(calls(100, tool, server))
    script = there()
    async with gateway(
        config=BOTH, scripts={"there": script}, engines=of(processes), identify=by_header, clock=FakeClock()
    ) as app:
        assert app.sandbox._slots.take_turn == app.http.scheduler.turn
        app.sandbox.take_turns(turn)
        run = asyncio.ensure_future(ask(Visitor(app, x_who="loud"), "mcp_execute", {"code": "…"}))
        await settle()
        assert asked == ["loud"] * Limits().in_flight and not begun[0]
        for count in (1, 3):
            for _ in range(count):
                turns.release()
            await settle()
        assert begun == ended == [4]
        assert len([each for each in script.requests if each["method"] == "tools/call"]) <= 4
        for _ in range(96):
            turns.release()
        await soon(run)
    assert begun == ended == [100]


async def test_a_turn_that_is_over_lets_the_next_one_start_and_one_that_is_given_up_is_none() -> None:
    scheduler = Scheduler(FakeClock())
    for who in ("loud", "quiet"):
        (await scheduler.turn(who))()
    order: list[str] = []

    async def one(who: str) -> None:
        is_over = await scheduler.turn(who)
        order.append(who)
        is_over()

    waiting = [asyncio.ensure_future(one(who)) for who in (*["loud"] * 50, "quiet", "quiet")]
    await asyncio.sleep(0)
    given_up = asyncio.ensure_future(one("quiet"))
    await asyncio.sleep(0)
    given_up.cancel()
    await soon(asyncio.gather(*waiting))
    assert [place for place, who in enumerate(order) if who == "quiet"][-1] <= 5 and len(order) == 52
    scheduler.close()


# Places.


def waits(process: Process, told: Json) -> None:
    """Code that never ends by itself."""


def begin(pool: Pool, whose: str) -> asyncio.Task[Ran]:
    return asyncio.get_running_loop().create_task(pool.run("…", Shop().host, whose=whose))


async def over(pool: Pool, runs: list[asyncio.Task[Ran]]) -> None:
    for run in runs:
        run.cancel()
    await asyncio.wait(runs)
    await pool.close()


@pytest.mark.promise("b.attacks.code")
async def test_a_client_with_endless_code_leaves_places_to_the_next_ones() -> None:
    processes = Processes(waits)
    pool = processes.pool(Limits(warm=0, runs=8))
    runs = [begin(pool, "mallory") for _ in range(60)]
    await settle()
    assert len(processes.processes) == 4
    for number, who in enumerate(("ann", "bob", "cid")):
        runs += [begin(pool, who)]
        await settle()
        assert len(processes.processes) == 5 + number, f"{who} has a place at once"
    await over(pool, runs)


async def test_of_two_clients_with_endless_code_neither_has_what_a_third_needs() -> None:
    processes = Processes(waits)
    pool = processes.pool(Limits(warm=0, runs=8))
    runs = [begin(pool, who) for who in ("mallory", "trudy") for _ in range(20)]
    await settle()
    before = len(processes.processes)
    runs.append(begin(pool, "ann"))
    await settle()
    assert len(processes.processes) == before + 1 <= 8
    await over(pool, runs)


async def test_a_place_that_is_free_again_goes_to_who_has_fewest() -> None:
    shared, order = Shared(4), list[str]()

    async def one(who: str) -> None:
        await shared.turn(who)
        order.append(who)

    waiting = [asyncio.ensure_future(one(who)) for who in (*["mallory"] * 9, "ann", "bob", "cid")]
    await settle()
    assert order == ["mallory", "mallory", "ann", "bob"]
    shared.give_back("mallory")
    await settle()
    assert order[-1] == "cid"
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


async def test_who_is_refused_a_place_is_told_when_to_try_again() -> None:
    pool = Processes(waits).pool(Limits(warm=0, runs=2, queued=1))
    runs = [begin(pool, "mallory") for _ in range(2)]
    await settle()
    with pytest.raises(Fault) as raised:
        await soon(begin(pool, "mallory"))
    assert (raised.value.code, raised.value.extra) == ("RATE_LIMITED", {"retryAfter": 1.0})
    assert "try again in 1 s" in raised.value.hint
    await over(pool, runs)


async def test_code_with_large_data_that_waits_is_bounded_by_bytes() -> None:
    processes = Processes(waits)
    pool = processes.pool(Limits(warm=0, runs=2))
    data = b'"' + b"x" * (MOST_OF_ONE // 4) + b'"'
    runs = [
        asyncio.ensure_future(pool.run("…", Shop().host, whose=who, data=data)) for who in ["mallory"] * 8 + ["ann"]
    ]
    await settle()
    refused = [run for run in runs if run.done()]
    assert len(refused) == 5 and runs[-1] not in refused
    for run in refused:
        assert isinstance(error := run.exception(), Fault) and error.code == "RATE_LIMITED"
    await over(pool, [run for run in runs if not run.done()])


async def test_large_data_is_written_for_what_has_a_place_and_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    written, order, in_threads, to_thread = list[int](), bridge.order, list[Any](), asyncio.to_thread

    def noted(code: str, servers: Any, limits: Limits, data: bytes | None, strict: bool) -> bytes:
        written.append(len(data or b""))
        return order(code, servers, limits, data, strict)

    async def in_thread(work: Callable[..., Any], *given: Any) -> Any:
        in_threads.append(work)
        return await to_thread(work, *given)

    monkeypatch.setattr(bridge, "order", noted)
    monkeypatch.setattr(asyncio, "to_thread", in_thread)
    pool = Processes(waits).pool(Limits(warm=0, runs=2))
    large = b'"%b"' % (b"x" * 1_000_000)
    runs = [
        asyncio.ensure_future(pool.run("…", Shop().host, whose=whose, data=data))
        for whose, data in [("mallory", large), ("ann", b"1"), ("mallory", large), ("ann", large)]
    ]
    await settle()
    assert sorted(written) == [1, len(large)] and in_threads == [noted]
    await over(pool, runs)


async def test_runs_that_print_without_end_are_not_read_beyond_what_one_client_may_have_kept() -> None:
    printed = 8 * 1024 * 1024

    def prints(process: Process, told: Json) -> None:
        for _ in range(printed // 65_536):
            process.says({"log": "x" * 65_536})

    pool = Processes(prints).pool(Limits(warm=0, runs=32, output=10 * 1024 * 1024))
    runs = [begin(pool, "mallory") for _ in range(16)]
    await settle()
    assert pool._slots.held._kept <= MOST_OF_ONE + 2 * printed
    await over(pool, runs)
    assert not pool._slots.held._by


# What is left behind.


@contextmanager
def no_collection() -> Generator[list[Any]]:
    """What only the garbage collector would free of what is done inside."""
    found: list[Any] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


LARGE = "y" * 100_000
ENDS: dict[str, Callable[[Process], None]] = {
    "a value": lambda process: process.says({"done": {"value": LARGE}}),
    "an error": lambda process: process.says({"failed": {"name": "E", "message": LARGE[:1000]}}),
    "garbage": lambda process: process.says({"log": LARGE[:60_000]}, b"garbage"),
    "its death": lambda process: process.dies("was killed"),
    "calls": lambda process: process.calls(*["t"] * 4, server="there"),
    "calls of no tool": lambda process: process.calls(*["nope"] * 4, server="there"),
    "calls of no server": lambda process: process.calls(*["t"] * 4, server="nowhere"),
    "calls that are refused": lambda process: process.calls(*["t"] * 4, server="there", arguments={"wrong": LARGE}),
}


@pytest.mark.promise("b.attacks.code")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("tool", [*CODE, "process_large_dataset"])
async def test_what_a_run_has_held_is_let_go_of_at_its_end(tool: str, end: str) -> None:
    answered = 0

    def play(process: Process, told: Json) -> None:
        nonlocal answered
        if "run" in told:
            answered = 0
            ENDS[end](process)
            return
        answered += 1
        if answered == 4:
            process.says({"done": {"value": LARGE}})

    processes = Processes(play)
    async with gateway(scripts={"there": there()}, engines=of(processes), clock=FakeClock()) as app:
        visitor = Visitor(app)

        async def run() -> None:
            await ask(visitor, tool, CODE.get(tool, DATASET))
            await settle()
            processes.processes.clear()

        for _ in range(3):
            await run()
        with no_collection() as left:
            await run()
        assert not left
        assert not app.sandbox.held._by, "bytes that are still counted"


async def test_what_a_run_has_printed_counts_until_its_client_has_it() -> None:
    def play(process: Process, told: Json) -> None:
        process.says(*[{"log": "x" * 100_000}] * 10, {"done": {"absent": True}})

    processes = Processes(play)
    async with gateway(scripts={"there": there()}, engines=of(processes), clock=FakeClock()) as app:
        in_turns, visitor = app.gateway._views.in_turns.of(1_000_000), Visitor(app)
        await in_turns.turn("somebody else")
        asked = asyncio.create_task(ask(visitor, "execute_code", CODE["execute_code"]))
        await settle()
        assert in_turns.waiting
        assert app.sandbox.held._kept > 1_000_000
        in_turns.give_back("somebody else")
        assert "x" * 100_000 in str(await asked)
        del asked
        await settle()
        assert not app.sandbox.held._by


# Guesses at secrets.


def secretive(play: Callable[[Process, Json], None], **more: Any) -> Any:
    return gateway(scripts={"there": there(**more)}, engines=of(Processes(play)), clock=FakeClock())


def knows(app: App) -> None:
    app.redactor.learn([SECRET])


@pytest.mark.promise("b.attacks.code")
@pytest.mark.parametrize(
    "words",
    [
        lambda guess: [{"done": {"value": guess}}],
        lambda guess: [{"done": {"value": {"guesses": [guess]}}}],
        lambda guess: [{"log": guess}, {"done": {"absent": True}}],
        lambda guess: [{"failed": {"name": "Error", "message": guess}}],
        lambda guess: [{"failed": {"name": "Error", "message": "x" * 12_000, "stack": "y" * 12_000 + guess}}],
        lambda guess: [{"log": guess}, {"failed": {"name": guess, "message": ""}}],
    ],
    ids=["value", "object", "console", "error", "long error", "name of an error"],
)
@pytest.mark.parametrize("tool", [*CODE, "process_large_dataset"])
async def test_what_code_says_itself_is_shown_as_it_is_whatever_it_guesses(tool: str, words: Any) -> None:
    said: list[str] = [""]

    def play(process: Process, told: Json) -> None:
        process.says(*words(said[0]))

    async with secretive(play) as app:
        knows(app)
        shown = set[str]()
        for said[0] in (SECRET, SECRET[::-1]):
            answer = await ask(Visitor(app), tool, CODE.get(tool, DATASET))
            answer.pop("id", None)
            text = json.dumps(answer)
            assert "[secret]" not in text
            shown.add(text.replace(said[0], "<guess>").replace(said[0].replace('"', '\\"'), "<guess>"))
        assert len(shown) == 1


async def test_what_a_server_says_to_code_has_no_secrets_when_it_comes_in() -> None:
    heard: list[Json] = []

    def play(process: Process, told: Json) -> None:
        if "run" in told:
            process.calls("t", server="there")
        else:
            heard.append(told)
            process.says({"done": {"value": told.get("value")}})

    async with secretive(play, tools_call=lambda _: said(f"the key is {SECRET}")) as app:
        knows(app)
        answer = await ask(Visitor(app), "mcp_execute", CODE["mcp_execute"])
        assert SECRET not in json.dumps([answer, heard]) and "[secret]" in heard[0]["value"]


# Code by another name.


def ends_at_once(process: Process, told: Json) -> None:
    process.says({"done": {"value": [1]}})


def allowed(**tools: Any) -> Config:
    verdicts = {f"toolgate__{name}": verdict for name, verdict in tools.items()}
    return Config(clients=(KnownClient(id="loud", name="loud", permissions=Permissions(tools=verdicts)),))


@pytest.mark.promise("b.attacks.code")
@pytest.mark.parametrize("verdict", ["off", "ask"])
async def test_code_for_data_is_code_that_its_caller_must_be_allowed_to_run(verdict: Any) -> None:
    processes = Processes(ends_at_once)
    config = allowed(execute_code=verdict)
    async with gateway(config=config, engines=of(processes), identify=by_header, clock=FakeClock()) as app:
        loud = Visitor(app, x_who="loud")
        refused = await ask(loud, "process_large_dataset", DATASET)
        assert not [each for each in processes.processes if each.told], "nothing has run"
        assert refused["result"]["isError"] and ("Access denied" in str(refused) or "execute_code" in str(refused))


async def test_code_for_data_runs_for_who_may_run_code_and_is_told_as_before() -> None:
    processes = Processes(ends_at_once)
    config = allowed(execute_code="allow")
    async with gateway(config=config, engines=of(processes), identify=by_header, clock=FakeClock()) as app:
        answer = await ask(Visitor(app, x_who="loud"), "process_large_dataset", DATASET)
    told = json.loads(answer["result"]["content"][0]["text"])
    assert told["method"] == "code" and told["result"] == [1] and told["original_size"] == 2
    [run] = [each["run"] for process in processes.processes for each in process.told]
    assert run["data"] == [1, 2]


async def test_code_for_data_is_in_the_audit_as_code_and_names_what_it_came_through(tmp_path: Path) -> None:
    clock = FakeClock()
    trail = Trail(tmp_path / "audit.jsonl", clock, MemoryStore(clock), Redactor())
    config = Config(audit=Audit(enabled=True))
    async with gateway(config=config, engines=of(Processes(ends_at_once)), clock=clock, audit=trail) as app:
        await ask(Visitor(app), "process_large_dataset", DATASET)
        await trail.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    calls = [(each["target"], each.get("via")) for each in lines if each["event"] == "call"]
    assert ("execute_code", "process_large_dataset") in calls and ("process_large_dataset", None) in calls
