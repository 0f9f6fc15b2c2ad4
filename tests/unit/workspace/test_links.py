"""Tasks and sessions are linked, and found from either side."""

from __future__ import annotations

import pytest
from workroom import Workroom

from toolgate.workspace import links, tasks


@pytest.fixture
def room() -> Workroom:
    return Workroom()


async def test_a_link_is_found_from_both_sides_the_newest_first(room: Workroom) -> None:
    task, other = await room.task(), await room.task()
    told = await room.do("link_task_to_session", task_id=task, session_id="s-1")
    assert told == {"linked": True, "task_id": task, "session_id": "s-1", "action": "worked_on"}
    await room.clock.sleep(1)
    await room.do("link_task_to_session", task_id=other, session_id="s-1", action="mentioned")
    told = await room.do("get_session_tasks", session_id="s-1")
    assert [(each["task"]["id"], each["action"]) for each in told["tasks"]] == [
        (other, "mentioned"),
        (task, "worked_on"),
    ]
    assert all(list(each) == ["task", "action", "link_created_at"] for each in told["tasks"])
    assert tuple(told["tasks"][0]["task"]) == tasks.BRIEF and told["session_id"] == "s-1"
    told = await room.do("get_task_sessions", task_id=task)
    [session] = told["sessions"]
    assert (told["task_id"], session["session_id"], session["action"]) == (task, "s-1", "worked_on")
    assert session["link_created_at"].endswith("Z") and session["status"] == "active"


async def test_the_same_link_is_kept_once_and_another_beside_it(room: Workroom) -> None:
    task = await room.task()
    for action in ("worked_on", "worked_on", "closed"):
        await room.do("link_task_to_session", task_id=task, session_id="s-1", action=action)
    told = await room.do("get_task_sessions", task_id=task)
    assert sorted(each["action"] for each in told["sessions"]) == ["closed", "worked_on"]


async def test_what_a_session_does_links_it(room: Workroom) -> None:
    room.as_client("mcp-1")
    task = await room.task(session_id="s-1")
    for tool, given in (("update_task", {"priority": 0}), ("close_task", {})):
        await room.clock.sleep(1)
        await room.do(tool, task_id=task, **given)
    told = await room.do("get_session_tasks", session_id="s-1")
    assert [each["action"] for each in told["tasks"]] == ["closed", "worked_on", "discovered"]


async def test_a_session_that_is_not_known_is_registered_on_the_fly_but_not_by_asking(room: Workroom) -> None:
    assert await room.do("get_session_tasks", session_id="s-1") == {"session_id": "s-1", "tasks": []}
    assert await room.run("SELECT id FROM session_record") == []
    await room.do("link_task_to_session", task_id=await room.task(), session_id="s-1")
    [record] = await room.run("SELECT external_id, principal, cwd, status FROM session_record")
    assert record == ("s-1", "local@", "", "active")


async def test_a_session_goes_by_the_id_of_its_record_and_by_that_of_its_program(room: Workroom) -> None:
    task = await room.task()
    await room.do("link_task_to_session", task_id=task, session_id="s-1")
    await room.run("UPDATE session_record SET external_id = 'claude-1'")
    told = await room.do("link_task_to_session", task_id=task, session_id="claude-1", action="mentioned")
    assert told["session_id"] == "s-1"
    assert len((await room.do("get_session_tasks", session_id="claude-1"))["tasks"]) == 2


async def test_of_links_so_many_are_shown_and_no_more(room: Workroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MOST_SHOWN", 2)
    task = await room.task()
    for number in range(3):
        await room.do("link_task_to_session", task_id=task, session_id=f"s-{number}")
    assert len((await room.do("get_task_sessions", task_id=task))["sessions"]) == 2
