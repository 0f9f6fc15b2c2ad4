"""Tasks are found by parts of their titles and by labels as they are now, whichever way is the shorter one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from virtualtime import play
from workroom import Json, Workroom

from toolgate.core.clock import SystemClock
from toolgate.state import letters
from toolgate.state.migrations import KEPT, MIGRATIONS, PLACES, WORKSPACE
from toolgate.state.sqlite import SqliteStore
from toolgate.workspace import tasks


@pytest.fixture
def room() -> Workroom:
    return Workroom()


TITLES = ["", "a", "abc", "ABC", "cab", "b c", "é", "É", "%_", "a long title of many letters: the quick brown fox"]
titles = st.sampled_from(TITLES[1:])
edits = st.lists(
    st.tuples(st.just("create"), titles)
    | st.tuples(st.just("change"), st.integers(0, 9), titles)
    | st.tuples(st.just("delete"), st.integers(0, 9)),
    max_size=12,
)


@example([("create", "abc"), ("delete", 0), ("create", "cab")])  # at the place of the one that is gone
@example([("create", "abc"), ("create", "a"), ("change", 0, "cab"), ("delete", 1)])
@settings(deadline=None)
@given(edits)
def test_whatever_was_written_is_found_by_what_it_says_now(steps: Sequence[tuple[str, ...]]) -> None:
    play(_written(steps))


async def _written(steps: Sequence[tuple[str, ...]]) -> None:
    room = Workroom()
    said: dict[str, str] = {}
    for kind, *what in steps:
        if kind == "create":
            said[await room.task(str(what[0]), labels=[what[0]])] = str(what[0])
        elif said and kind == "change":
            id = list(said)[int(what[0]) % len(said)]
            said[id] = str(what[1])
            await room.do("update_task", task_id=id, title=what[1], labels=[what[1]])
        elif said:
            id = list(said)[int(what[0]) % len(said)]
            del said[id]
            await room.do("delete_task", task_id=id)
    for text in TITLES[1:]:
        found = [id for id, title in said.items() if _lower(text) in _lower(title)]
        assert sorted(await room.listed("list_tasks", title_like=text)) == sorted(found)
        labelled = [id for id, title in said.items() if text == title]
        assert sorted(await room.listed("list_tasks", label=text)) == sorted(labelled)


def _lower(text: str) -> str:
    return "".join(each.lower() if each.isascii() else each for each in text)


@pytest.mark.parametrize("most", [letters.MOST_FOUND, 1])
async def test_tasks_are_found_by_either_way(room: Workroom, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "MOST_FOUND", most)
    parent = await room.task("another one")
    ids = [await room.task(f"one {number}", labels=["one"], parent_task_id=parent) for number in range(3)]
    await room.do("update_task", task_id=ids[1], status="failed", assignee="ann")
    assert await room.listed("list_tasks", title_like="one") == [*ids[::-1], parent]
    for text in ({"title_like": "one"}, {"label": "one"}, {"title_like": "NE", "label": "one"}):
        filters: Json = {**text, "parent_task_id": parent}
        assert await room.listed("list_tasks", **filters) == ids[::-1]
        assert await room.listed("list_tasks", **filters, limit=1) == ids[2:]
        assert await room.listed("list_tasks", **filters, status="failed", assignee="ann") == [ids[1]]
        assert await room.listed("list_tasks", **filters, status="failed", assignee="bob") == []


async def test_a_block_that_has_no_task_any_more_is_not_kept(room: Workroom) -> None:
    parent = await room.task()
    for _ in range(letters.BITS):
        await room.do("create_task", title="below", parent_task_id=parent)
    last = await room.task("of the second block")
    assert await room.run("SELECT block FROM task_letters ORDER BY block") == [(0,), (1,)]
    await room.do("delete_task", task_id=parent, cascade=True)
    assert await room.run("SELECT block FROM task_letters") == [(1,)]
    assert await room.listed("list_tasks", title_like="second block") == [last]
    await room.do("delete_task", task_id=last)
    assert await room.run("SELECT * FROM task_letters") == await room.run("SELECT * FROM task_place") == []


def test_the_tasks_of_an_older_file_are_found(tmp_path: Path) -> None:
    """As a file of before has them, more than a block."""
    asyncio.run(_migrated(tmp_path))


async def _migrated(tmp_path: Path) -> None:
    older = SqliteStore(tmp_path, SystemClock(), (KEPT, WORKSPACE, PLACES))
    names = (*tasks.FIELDS, "title_letters", "label_letters")
    insert = f"INSERT INTO task ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    rows = []
    for number in range(2 * letters.BITS):
        title, labels = f"number {number} in words", [f"label {number % 5}"]
        task = tasks.Task(id=f"t{number}", title=title, created_at="a", updated_at="a", labels=labels)
        bits = letters.letters(title), letters.letters(json.dumps(labels))
        rows.append((*tasks.row_of(task), *bits))
    await older.transact(lambda connection: connection.executemany(insert, rows) and None)
    await older.close()
    store = SqliteStore(tmp_path, SystemClock(), MIGRATIONS)

    def kept(connection: letters.Connection) -> list[list[tuple[int, ...]]]:
        orders = ("task_place ORDER BY place", "task_letters ORDER BY block")
        return [connection.execute(f"SELECT * FROM {each}").fetchall() for each in orders]

    migrated = await store.query(kept)
    assert len(migrated[1]) == 2
    assert await store.query(lambda db: letters.places(db, letters.letters("number 77 in"), 0)) is not None

    def again(connection: letters.Connection) -> None:
        for table in ("task_place", "task_letters"):
            connection.execute(f"DELETE FROM {table}")
        order = {id: place for place, id in migrated[0]}
        tasks.put(connection, sorted((row[:-2] for row in rows), key=lambda row: order[row[0]]))

    await store.transact(again)
    assert await store.query(kept) == migrated
    await store.close()
