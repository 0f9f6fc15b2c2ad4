"""A client that may use tasks and nothing else makes as much of them as it may, and asks for all of it at once: others
write and read all the same, and no answer is without a bound."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from processes.ground import real
from virtualtime import FakeClock, settle
from workroom import Json, Workroom

from toolgate.core import bodies, mcp
from toolgate.core.bodies import FREE
from toolgate.core.model import Call, Client, Principal
from toolgate.state.base import Connection
from toolgate.state.sqlite import HOLD, SqliteStore
from toolgate.upstreams.inprocess.tools import EncodedResult
from toolgate.workspace import circles, dependencies, tasks, workspace

LONG = "😀" * tasks.LONGEST_TITLE


@pytest.fixture
def room() -> Workroom:
    return Workroom()


class Writes:
    """What is written in a store: noted, and `before` each of them something is done."""

    def __init__(self, room: Workroom, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.before: Any = None
        transact = room.store.transact

        async def noted(work: Any, *tells: Any) -> Any:
            self.count += 1
            if self.before:
                await self.before(transact)
            return await transact(work, *tells)

        monkeypatch.setattr(room.store, "transact", noted)
        monkeypatch.setattr(room.store, "query", transact)


# Who writes waits for no search.


async def test_what_would_close_a_circle_is_refused_before_anybody_waits_to_write(
    room: Workroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await room.task(), await room.task()
    await room.after(first, second)
    writes = Writes(room, monkeypatch)
    assert "cannot wait for" in (await room.refused("add_dependency", task_id=second, depends_on=first)).message
    assert writes.count == 0


@pytest.mark.parametrize("at_once", [dependencies.MOST_AT_ONCE, 0])
async def test_two_writers_close_no_circle_together(
    room: Workroom, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Where little is behind it, it is looked at again in the turn to write; where much is, before the next one."""
    monkeypatch.setattr(dependencies, "MOST_AT_ONCE", at_once)
    first, second = await room.task(), await room.task()
    writes = Writes(room, monkeypatch)

    async def other(transact: Any) -> None:
        def work(connection: Connection) -> None:
            dependencies.add(connection, second, first, "blocks", "")
            circles.changed(connection)

        writes.before = None
        await transact(work)

    writes.before = other
    assert "cannot wait for" in (await room.refused("add_dependency", task_id=first, depends_on=second)).message
    assert writes.count == 1


async def test_who_is_always_overtaken_is_told_so_in_the_end(room: Workroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "MOST_AT_ONCE", 0)
    first, second, third = [await room.task() for _ in range(3)]
    await room.after(third, first)
    await room.after(second, third)
    await room.do("remove_dependency", task_id=second, depends_on=third)
    await room.after(second, await room.task())
    writes = Writes(room, monkeypatch)

    async def other(transact: Any) -> None:
        await transact(circles.changed)

    writes.before = other
    fault = await room.refused("add_dependency", task_id=first, depends_on=second)
    assert (fault.code, writes.count) == ("RATE_LIMITED", dependencies.TRIES)


async def test_a_new_task_makes_nobody_look_again(room: Workroom) -> None:
    first = await room.task()
    await room.after(first, await room.task())
    before = await room.store.query(circles.version)
    await room.task(blocks=[first])
    assert before is not None and await room.store.query(circles.version) == before


async def test_principals_take_turns_to_write(room: Workroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "MOST_WAITING", 20)
    go, begun = asyncio.Event(), list[str]()

    async def store_of(whose: str) -> None:
        begun.append(whose)
        await go.wait()

    room = Workroom()
    limit = room.workspace._writes
    theirs = [asyncio.create_task(limit.during("eve", lambda: store_of("eve"))) for _ in range(20)]
    await settle()
    mine = asyncio.create_task(limit.during("ann", lambda: store_of("ann")))
    await settle()
    assert begun == ["eve"] * workspace.WRITES
    more = [asyncio.create_task(limit.during("eve", lambda: store_of("eve"))) for _ in range(workspace.WRITES + 1)]
    await settle()
    refused = [each for each in more if each.done()]
    assert [getattr(each.exception(), "code", "") for each in refused] == ["RATE_LIMITED"]
    go.set()
    await asyncio.gather(mine, *theirs, *more, return_exceptions=True)
    assert begun.index("ann") <= workspace.WRITES + 1


async def test_one_principal_does_not_read_with_all_threads(room: Workroom) -> None:
    go, begun = asyncio.Event(), list[str]()

    async def reads(whose: str) -> None:
        begun.append(whose)
        await go.wait()

    limit = room.workspace._reads
    all = [asyncio.create_task(limit.during(whose, lambda w=whose: reads(w))) for whose in ("eve", "eve", "eve", "ann")]
    await settle()
    assert begun == ["eve", "ann"]
    go.set()
    await asyncio.gather(*all)


class Slow(FakeClock):
    """Each look at the time is a hold later."""

    def now(self) -> float:
        self.looked = getattr(self, "looked", 0.0) + HOLD
        return self.looked


@real
async def test_the_store_is_let_go_of_between_writes_that_take_long(tmp_path: Path) -> None:
    """A command of the operator writes in another process, which waits for the file."""
    store = SqliteStore(tmp_path, Slow())
    try:
        commits: list[str] = []
        store._writer.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        held = threading.Event()
        first = store.write(lambda _connection: held.wait(60))
        all = [store.write(lambda connection, n=n: n) for n in range(5)]
        held.set()
        assert await asyncio.gather(first, *all) == [True, *range(5)]
        assert len(commits) == 6
    finally:
        await store.close()


# No answer is without a bound.


async def test_of_a_blocked_task_a_few_blockers_are_shown_and_the_others_are_counted(room: Workroom) -> None:
    waiting, other = await room.task("waiting", priority=0), await room.task("other")
    blockers = [await room.task(blocks=[waiting]) for _ in range(25)]
    await room.after(other, blockers[0])
    first, second = (await room.do("list_blocked_tasks", limit=None))["tasks"]
    assert [each["id"] for each in first["blockers"]] == blockers[:20]
    assert (first["more_blockers"], "more_blockers" in second) == (5, False)
    await room.do("close_task", task_id=blockers[3])
    [first, _] = (await room.do("list_blocked_tasks"))["tasks"]
    assert first["more_blockers"] == 4 and blockers[3] not in str(first["blockers"])


async def _much(room: Workroom) -> str:
    """The id of a task that forty tasks with long titles wait for, which wait for forty others, all of one session."""
    middle = await room.task(LONG, session_id="s")
    for _ in range(40):
        await room.task(LONG, session_id="s", blocks=[middle])
        await room.after(await room.task(LONG, session_id="s"), middle)
    return middle


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("list_tasks", {"limit": None}, "has_more"),
        ("list_tasks", {"limit": None, "title_like": "😀"}, "has_more"),
        ("list_ready_tasks", {"limit": None}, "has_more"),
        ("list_blocked_tasks", {"limit": None}, "has_more"),
        ("get_session_tasks", {"session_id": "s"}, "truncated"),
        ("get_dependency_tree", {}, "truncated"),
        ("get_task", {}, "truncated"),
    ],
)
async def test_an_answer_has_as_much_as_fits_and_says_so(
    room: Workroom, monkeypatch: pytest.MonkeyPatch, tool: str, given: Json, says: str
) -> None:
    most = 64 * 1024
    middle = await _much(room)
    if tool in ("get_dependency_tree", "get_task"):
        given = {"task_id": middle}
    whole = await _written(room, tool, given)
    monkeypatch.setattr(tasks, "MOST_BYTES", most)
    answer = await _written(room, tool, given)
    assert most < len(answer.body) < 2 * most + 20_000 < len(whole.body)
    told = await room.do(tool, **given)
    assert told.get("dependencies", told)[says] is True
    if says == "has_more":
        assert told["count"] == len(told["tasks"]) > 0 and "filter" in told["hint"]


async def _written(room: Workroom, tool: str, given: Json) -> EncodedResult:
    call = Call(mcp.CALL, tool, room.client, Raw(json.dumps(given).encode()), "gobby-tasks")
    answer = await room.tools.answer(call, None)  # type: ignore[arg-type]  # nothing is asked
    assert isinstance(answer, EncodedResult)
    return answer


async def test_an_answer_counts_until_its_client_has_it(room: Workroom, monkeypatch: pytest.MonkeyPatch) -> None:
    await _much(room)
    small = await _written(room, "list_tasks", {"limit": 1})
    large = await _written(room, "list_tasks", {"limit": None})
    results = room.workspace._results
    assert (small.kept, results._kept) == (None, len(large.body)) and len(large.body) > FREE
    monkeypatch.setattr(bodies, "MOST_OF_ONE", len(large.body))
    next = asyncio.create_task(_written(room, "list_tasks", {"limit": None}))
    await settle()
    assert not next.done()
    eve, room.client = room.client, Client(Principal("ann", counted_as="ann"))
    await _written(room, "list_tasks", {"limit": 1})
    room.client = eve
    del large
    assert (await next).kept
