"""What can be worked on is listed by urgency, and what waits with what it waits for."""

from __future__ import annotations

import pytest
from workroom import Json, Workroom

from toolgate.workspace import tasks


@pytest.fixture
def room() -> Workroom:
    return Workroom()


async def test_ready_tasks_are_listed_by_priority_then_age(room: Workroom) -> None:
    low, old, new, top = [await room.task(priority=priority) for priority in (3, 1, 1, 0)]
    told = await room.do("list_ready_tasks")
    assert [task["id"] for task in told["tasks"]] == [top, old, new, low]
    assert all(tuple(task) == tasks.BRIEF for task in told["tasks"])
    assert (await room.do("list_ready_tasks", limit=3))["has_more"] is True


@pytest.mark.parametrize("status", ["open", "in_progress", "failed", "escalated"])
async def test_a_task_is_blocked_by_whatever_is_not_closed(room: Workroom, status: str) -> None:
    task, blocker = await room.task(), await room.task("first")
    await room.after(task, blocker)
    await room.do("update_task", task_id=blocker, status=status)
    told = await room.do("list_blocked_tasks")
    [blocked] = told["tasks"]
    assert list(blocked) == [*tasks.BRIEF, "blockers"]
    assert (blocked["id"], blocked["blockers"]) == (task, [{"id": blocker, "title": "first", "status": status}])
    assert task not in await room.listed("list_ready_tasks")
    await room.do("close_task", task_id=blocker, reason="wont_fix")
    assert (await room.do("list_blocked_tasks"))["tasks"] == []
    assert await room.listed("list_ready_tasks") == [task]
    await room.do("update_task", task_id=blocker, status="open")
    assert await room.listed("list_blocked_tasks") == [task]


@pytest.mark.parametrize("status", ["in_progress", "failed", "escalated", "closed"])
async def test_what_is_not_open_is_neither_ready_nor_blocked(room: Workroom, status: str) -> None:
    free, waiting, blocker = [await room.task() for _ in range(3)]
    await room.after(waiting, blocker)
    for id in (free, waiting):
        await room.do("update_task", task_id=id, status=status)
    assert await room.listed("list_ready_tasks") == [blocker]
    assert await room.listed("list_blocked_tasks") == []


async def test_a_blocker_that_is_no_task_here_blocks_nothing(room: Workroom) -> None:
    task = await room.task()
    await room.run("INSERT INTO task_dependency VALUES (?, 'gt-elsewhere', 'blocks', '')", task)
    assert await room.listed("list_ready_tasks") == [task]


async def test_filters_of_what_is_ready_combine(room: Workroom) -> None:
    parent = await room.task()
    hit = await room.task(priority=1, task_type="bug", parent_task_id=parent)
    await room.do("update_task", task_id=hit, assignee="ann")
    await room.task()
    filters: Json = {"priority": 1, "task_type": "bug", "assignee": "ann", "parent_task_id": parent}
    others: Json = {"priority": 2, "task_type": "epic", "assignee": "bob", "parent_task_id": hit}
    assert await room.listed("list_ready_tasks", **filters) == [hit]
    for name in filters:
        assert await room.listed("list_ready_tasks", **{name: filters[name]}) == [hit]
        assert await room.listed("list_ready_tasks", **filters | {name: others[name]}) == []


async def test_what_is_blocked_below_one_task_is_listed(room: Workroom) -> None:
    parent, blocker = await room.task(), await room.task()
    child, other = await room.task(parent_task_id=parent), await room.task()
    for task in (child, other):
        await room.after(task, blocker)
    assert await room.listed("list_blocked_tasks", parent_task_id=parent) == [child]
    assert await room.listed("list_blocked_tasks", limit=1) == [child]
    assert (await room.do("list_blocked_tasks", limit=1))["has_more"] is True
