"""Tasks are made, shown, changed, closed, deleted and listed; what is wrong is refused with what to do."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from workroom import Json, Workroom

from toolgate.state.base import Connection
from toolgate.workspace import deleting, task_tools, tasks

FIELDS = """
    id project_id title status priority type created_at updated_at description parent_task_id created_in_session_id
    closed_in_session_id closed_commit_sha closed_at assignee labels closed_reason validation_status
    validation_feedback test_strategy complexity_score estimated_subtasks expansion_context validation_criteria
    use_external_validator validation_fail_count validation_override_reason workflow_name verification sequence_order
    commits escalated_at escalation_reason
""".split()  # noqa: SIM905  as behaviour.md has them


@pytest.fixture
def room() -> Workroom:
    return Workroom()


# Made and shown.


async def test_a_task_has_its_fields_in_their_order_and_says_what_it_was_given(room: Workroom) -> None:
    given = {
        "description": "All of *it*.\n",
        "priority": 0,
        "labels": ["b", "a", "b"],
        "test_strategy": "by hand",
        "validation_criteria": "it works",
    }
    made = await room.do("create_task", title="Fix it", task_type="bug", **given)
    assert list(made) == FIELDS
    assert made == made | given | {"title": "Fix it", "type": "bug", "status": "open", "labels": ["b", "a"]}
    assert made["created_at"] == made["updated_at"] and made["created_at"].endswith("Z")
    shown = await room.do("get_task", task_id=made["id"])
    assert list(shown) == [*FIELDS, "dependencies"]
    assert shown == made | {"dependencies": {"blocked_by": [], "blocking": []}}


async def test_a_task_of_which_only_the_title_is_said_has_defaults(room: Workroom) -> None:
    made = await room.do("create_task", title="Fix it")
    assert (made["priority"], made["type"], made["labels"], made["commits"]) == (2, "task", [], [])
    assert {made[name] for name in ("description", "parent_task_id", "assignee", "closed_at")} == {None}


async def test_ids_are_short_and_no_two_tasks_have_one(room: Workroom, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(["aaaaaa", "aaaaaa", "aaaaaa", "bbbbbb"])
    monkeypatch.setattr(tasks.secrets, "token_hex", lambda size: next(drawn))
    ids = [await room.task(), await room.task()]
    assert ids == ["gt-aaaaaa", "gt-bbbbbb"]
    monkeypatch.undo()
    assert re.fullmatch("gt-[0-9a-f]{6}", await room.task())


async def test_a_new_task_blocks_those_that_it_names(room: Workroom) -> None:
    first, second = await room.task(), await room.task()
    new = await room.do("create_task", title="before both", blocks=[first, second, first])
    assert await room.listed("list_ready_tasks") == [new["id"]]
    shown = await room.do("get_task", task_id=new["id"])
    assert [each["id"] for each in shown["dependencies"]["blocking"]] == [first, second]


async def test_of_a_task_that_blocks_one_which_is_not_there_nothing_is_made(room: Workroom) -> None:
    first = await room.task()
    fault = await room.refused("create_task", title="x", blocks=[first, "gt-000000"], session_id="s")
    assert fault.message == "Task not found: gt-000000"
    assert await room.listed("list_tasks") == [first]
    assert await room.run("SELECT id FROM session_record") == []


# Changed.


async def test_what_is_left_out_or_null_stays_and_an_empty_text_takes_a_value_away(room: Workroom) -> None:
    parent = await room.task()
    task = await room.task(description="long", labels=["a"], parent_task_id=parent)
    await room.clock.sleep(1)
    changed = await room.do("update_task", task_id=task, assignee="ann", description=None, priority=None)
    assert (changed["assignee"], changed["description"], changed["labels"]) == ("ann", "long", ["a"])
    assert changed["updated_at"] > changed["created_at"]
    changed = await room.do("update_task", task_id=task, assignee="", description="", labels=[], parent_task_id="")
    assert [changed[name] for name in ("assignee", "description", "labels", "parent_task_id")] == [None, None, [], None]


async def test_every_field_that_can_be_changed_is(room: Workroom) -> None:
    task, parent = await room.task(), await room.task()
    changes: Json = {
        "title": "other",
        "description": "d",
        "status": "in_progress",
        "priority": 0,
        "assignee": "ann",
        "labels": ["x"],
        "validation_criteria": "v",
        "parent_task_id": parent,
        "test_strategy": "t",
        "workflow_name": "w",
        "verification": "ok",
        "sequence_order": -3,
    }
    changed = await room.do("update_task", task_id=task, **changes)
    assert changed == changed | changes
    assert changes.keys() | {"task_id"} == set(task_tools.UpdateTask.__struct_fields__)


async def test_a_change_is_later_than_the_one_before_whatever_the_clock_says(room: Workroom) -> None:
    task = await room.task()
    for before, after in (
        ("2099-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000001Z"),
        ("2099-01-01T00:00:00Z", "2099-01-01T00:00:00.000001Z"),
        ("2099-01-01T02:00:00+02:00", "2099-01-01T00:00:00.000001Z"),
    ):
        await room.run("UPDATE task SET updated_at = ? WHERE id = ?", before, task)
        assert (await room.do("update_task", task_id=task, priority=1))["updated_at"] == after
    for nonsense in ("9999-12-31T23:59:59.999999Z", "yesterday"):
        await room.run("UPDATE task SET updated_at = ? WHERE id = ?", nonsense, task)
        assert (await room.do("update_task", task_id=task, priority=1))["updated_at"] == room.workspace.now()


async def test_an_escalated_task_says_since_when(room: Workroom) -> None:
    task = await room.task()
    first = await room.do("update_task", task_id=task, status="escalated")
    assert first["escalated_at"] == first["updated_at"]
    await room.clock.sleep(1)
    again = await room.do("update_task", task_id=task, status="escalated")
    assert again["escalated_at"] == first["escalated_at"] < again["updated_at"]
    assert (await room.do("update_task", task_id=task, status="open"))["escalated_at"] == first["escalated_at"]


async def test_no_task_is_below_itself(room: Workroom) -> None:
    top = await room.task()
    middle = await room.task(parent_task_id=top)
    low = await room.task(parent_task_id=middle)
    for task, parent in ((top, low), (top, middle), (middle, low), (low, low)):
        fault = await room.refused("update_task", task_id=task, parent_task_id=parent)
        assert f"{task} cannot be a child of" in fault.message
    assert (await room.do("update_task", task_id=low, parent_task_id=top))["parent_task_id"] == top


async def test_a_tree_of_tasks_has_so_many_levels_and_no_more(room: Workroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MOST_ABOVE", 3)
    parent = await room.task()
    for _ in range(3):
        parent = await room.task(parent_task_id=parent)
    fault = await room.refused("create_task", title="x", parent_task_id=parent)
    assert "at most 3 others above it" in fault.message


async def test_nor_has_one_that_is_put_below_another(room: Workroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MOST_ABOVE", 3)
    top = await room.task()
    second = await room.task(parent_task_id=top)
    high, low = await room.task(), await room.task()
    await room.task(parent_task_id=high)
    await room.task(parent_task_id=await room.task(parent_task_id=high))
    await room.task(parent_task_id=low)
    fault = await room.refused("update_task", task_id=high, parent_task_id=second)
    has = f"{high} has 2 levels of tasks below it and would have 2 tasks above it"
    assert fault.message.endswith(f"{has}, and a task has at most 3 others above it")
    assert fault.hint == "choose a parent higher up"
    for task, parent in ((high, top), (low, second)):
        assert (await room.do("update_task", task_id=task, parent_task_id=parent))["parent_task_id"] == parent
    fault = await room.refused("update_task", task_id=second, parent_task_id=low)
    assert "cannot be a child of" in fault.message


async def test_a_tree_that_is_too_deep_already_can_be_edited_and_taken_apart(
    room: Workroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = await room.task()
    child = await room.task(parent_task_id=top)
    await room.task(parent_task_id=await room.task(parent_task_id=child))
    monkeypatch.setattr(tasks, "MOST_ABOVE", 1)
    same = await room.do("update_task", task_id=child, parent_task_id=top, title="another")
    assert (same["parent_task_id"], same["title"]) == (top, "another")
    assert (await room.do("update_task", task_id=child, parent_task_id=""))["parent_task_id"] is None


async def test_a_task_with_endless_others_below_it_is_not_put_elsewhere(
    room: Workroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MOST_BELOW", 3)
    wide, top = await room.task(), await room.task()
    for _ in range(3):
        await room.task(parent_task_id=wide)
    await room.do("update_task", task_id=wide, parent_task_id=top)
    await room.task(parent_task_id=wide)
    fault = await room.refused("update_task", task_id=wide, parent_task_id=await room.task())
    assert "more than 3 tasks below it" in fault.message


# Closed.


async def test_a_closed_task_says_when_why_and_by_whom(room: Workroom) -> None:
    task = await room.task()
    closed = await room.do("close_task", task_id=task, reason="wont_fix", session_id="s-1")
    assert closed == closed | {
        "status": "closed",
        "closed_reason": "wont_fix",
        "closed_in_session_id": "s-1",
        "closed_commit_sha": None,
        "validated": False,
    }
    assert closed["closed_at"] == closed["updated_at"]
    fault = await room.refused("close_task", task_id=task)
    assert f"{task} is closed already (wont_fix)" in fault.message and "status open" in fault.message


async def test_a_task_that_is_opened_again_says_nothing_of_its_end(room: Workroom) -> None:
    task = await room.task()
    await room.do("close_task", task_id=task, session_id="s-1")
    opened = await room.do("update_task", task_id=task, status="open")
    assert {opened[name] for name in ("closed_at", "closed_reason", "closed_in_session_id")} == {None}
    again = await room.do("update_task", task_id=task, status="closed")
    assert (again["closed_reason"], again["closed_at"]) == ("completed", again["updated_at"])


@pytest.mark.parametrize("tool", ["close_task", "update_task"])
async def test_a_task_with_open_children_is_not_closed(room: Workroom, tool: str) -> None:
    parent = await room.task()
    children = [await room.task(parent_task_id=parent) for _ in range(12)]
    given = {"status": "closed"} if tool == "update_task" else {}
    fault = await room.refused(tool, task_id=parent, **given)
    assert f"its children {', '.join(children[:10])} and more are not closed" in fault.message
    assert "wont_fix or obsolete" in fault.hint
    await room.do("update_task", task_id=children[0], status="in_progress")
    for child in children[1:]:
        await room.do("close_task", task_id=child)
    assert children[0] in (await room.refused(tool, task_id=parent, **given)).message
    await room.do("close_task", task_id=children[0])
    assert (await room.do(tool, task_id=parent, **given))["status"] == "closed"


@pytest.mark.parametrize("reason", ["duplicate", "already_implemented", "wont_fix", "obsolete"])
async def test_for_some_reasons_a_task_is_closed_before_its_children(room: Workroom, reason: str) -> None:
    parent = await room.task()
    await room.task(parent_task_id=parent)
    assert (await room.do("close_task", task_id=parent, reason=reason))["closed_reason"] == reason


@pytest.mark.parametrize(
    ("criteria", "given", "validated", "status"),
    [
        (None, {"changes_summary": "did it"}, False, None),
        ("works", {}, False, None),
        ("works", {"changes_summary": "it works"}, True, "valid"),
        ("works", {"changes_summary": "it works", "skip_validation": True}, False, "skipped"),
        ("works", {"override_justification": "urgent"}, False, "skipped"),
    ],
)
async def test_a_task_is_validated_where_it_has_criteria_and_its_caller_says_how_they_are_met(
    room: Workroom, criteria: str | None, given: Json, validated: bool, status: str | None
) -> None:
    task = await room.task(validation_criteria=criteria)
    closed = await room.do("close_task", task_id=task, **given)
    assert (closed["validated"], closed["validation_status"]) == (validated, status)
    assert closed["validation_feedback"] == given.get("changes_summary")
    assert closed["validation_override_reason"] == given.get("override_justification")


async def test_a_task_of_a_project_is_closed_at_the_commit_of_its_checkout(tmp_path: Path) -> None:
    (tmp_path / ".gobby").mkdir()
    (tmp_path / ".gobby" / "project.json").write_text('{"id": "p-1"}')
    (tmp_path / ".git").mkdir()
    room = Workroom(tmp_path)
    task, other = await room.task(), await room.task()
    await room.run("UPDATE task SET project_id = 'p-2' WHERE id = ?", other)
    for commit in ("1" * 40, "2" * 40):
        (tmp_path / ".git" / "HEAD").write_text(commit + "\n")
        closed = await room.do("close_task", task_id=task)
        assert closed["closed_commit_sha"] == commit
        await room.do("update_task", task_id=task, status="open")
    assert (await room.do("update_task", task_id=task, status="closed"))["commits"] == ["1" * 40, "2" * 40]
    assert (await room.do("close_task", task_id=other))["closed_commit_sha"] is None


# Deleted.


async def test_a_task_is_deleted_with_what_it_was_tied_to(room: Workroom) -> None:
    second, first = await room.task(), await room.task(session_id="s")
    await room.after(second, first)
    await room.after(first, second, "related")
    assert await room.do("delete_task", task_id=first) == {"deleted": True, "task_id": first, "count": 1}
    assert await room.listed("list_ready_tasks") == [second]
    assert await room.run("SELECT * FROM task_dependency") == await room.run("SELECT * FROM task_session") == []
    assert (await room.refused("get_task", task_id=first)).code == "RESOURCE_NOT_FOUND"


async def test_a_task_with_children_is_deleted_with_all_that_is_below_it_or_not(room: Workroom) -> None:
    top = await room.task()
    middle = await room.task(parent_task_id=top)
    await room.task(parent_task_id=middle)
    fault = await room.refused("delete_task", task_id=top)
    assert f"{top} has children: {middle}" in fault.message and "cascade" in fault.hint
    assert (await room.do("delete_task", task_id=top, cascade=True))["count"] == 3
    assert await room.listed("list_tasks") == []


async def test_what_is_below_a_task_may_be_too_much_to_be_deleted_at_once(
    room: Workroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "MOST", 2)
    top = await room.task()
    for _ in range(2):
        await room.task(parent_task_id=top)
    assert "more than 2 tasks" in (await room.refused("delete_task", task_id=top, cascade=True)).message
    assert len(await room.listed("list_tasks")) == 3


class _Between:
    """What is done after each transaction of a deletion, and how many tasks each has taken away."""

    def __init__(
        self, room: Workroom, monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], Awaitable[object]]
    ) -> None:
        self.deleted: list[int] = []
        self._room = room
        self._steps = iter(steps)
        self._transact = room.workspace.transact
        monkeypatch.setattr(room.workspace, "transact", self._then)

    async def _then(self, work: Callable[[Connection], Any], *tells: Any, whose: str = "") -> Any:
        def whole(connection: Connection) -> Any:
            [before] = connection.execute("SELECT count(*) FROM task").fetchone()
            result = work(connection)
            self.deleted.append(before - connection.execute("SELECT count(*) FROM task").fetchone()[0])
            return result

        done = await self._transact(whole, *tells, whose=whose)
        await self._room.whole()
        if step := next(self._steps, None):
            await step()
        return done


async def test_what_is_below_a_task_is_deleted_in_pieces_and_each_leaves_a_whole(
    room: Workroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    top, last = await room.task(), await room.task()
    for _ in range(5):
        middle = await room.task(parent_task_id=top, labels=["one"], session_id="s")
        for _ in range(10):
            await room.after(last, await room.task(parent_task_id=middle))

    between = _Between(room, monkeypatch)
    assert (await room.do("delete_task", task_id=top, cascade=True))["count"] == sum(between.deleted) == 56

    assert max(between.deleted) == deleting.AT_ONCE == 20
    assert await room.listed("list_tasks") == await room.listed("list_ready_tasks") == [last]


async def test_a_few_tasks_are_deleted_as_a_whole(room: Workroom, monkeypatch: pytest.MonkeyPatch) -> None:
    top = await room.task()
    for _ in range(deleting.AT_ONCE - 1):
        await room.task(parent_task_id=top)
    between = _Between(room, monkeypatch)
    await room.do("delete_task", task_id=top, cascade=True)
    assert between.deleted == [deleting.AT_ONCE]


async def test_a_deletion_that_was_ended_between_two_pieces_is_done_again(
    room: Workroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "AT_ONCE", 2)
    top = await room.task()
    middle = await room.task(parent_task_id=top)
    for _ in range(3):
        await room.task(parent_task_id=middle)

    async def ended() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as until_then:
        _Between(room, until_then, ended)
        with pytest.raises(KeyboardInterrupt):
            await room.do("delete_task", task_id=top, cascade=True)
    assert len(await room.listed("list_tasks")) == 3
    assert (await room.do("delete_task", task_id=top, cascade=True))["count"] == 3
    assert await room.listed("list_tasks") == []


async def test_what_others_do_between_two_pieces_of_a_deletion_is_as_if_it_were_before(
    room: Workroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "AT_ONCE", 1)
    top, elsewhere = await room.task("top"), await room.task("elsewhere")
    moved = await room.task("moved", parent_task_id=top)
    below = [await room.task(f"below {number}", parent_task_id=moved) for number in range(2)]
    other = await room.task("other", parent_task_id=top)

    async def others() -> None:
        monkeypatch.undo()
        monkeypatch.setattr(deleting, "AT_ONCE", 1)
        await room.do("update_task", task_id=moved, parent_task_id=elsewhere)
        await room.task("new", parent_task_id=other)

    _Between(room, monkeypatch, others)
    done = await room.do("delete_task", task_id=top, cascade=True)

    assert done["count"] == 4  # one that was below `moved`, `new`, `other` and `top`
    left = await room.listed("list_tasks")
    assert len(set(left) & set(below)) == 1 and {*left} - {*below} == {elsewhere, moved}


async def test_two_who_delete_the_same_task_both_see_it_gone(room: Workroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleting, "AT_ONCE", 2)
    top = await room.task()
    for _ in range(4):
        await room.task(parent_task_id=top)

    async def another() -> None:
        monkeypatch.undo()
        assert (await room.do("delete_task", task_id=top, cascade=True))["count"] == 3

    _Between(room, monkeypatch, another)
    assert (await room.do("delete_task", task_id=top, cascade=True))["count"] == 2


async def test_a_task_below_which_others_make_tasks_again_and_again_is_not_deleted_for_ever(
    room: Workroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = await room.task()
    await room.task(parent_task_id=top)
    monkeypatch.setattr(deleting, "AT_ONCE", 1)
    query = room.workspace.query

    async def then_another(work: Any, whose: str = "") -> Any:
        found = await query(work, whose)
        monkeypatch.setattr(room.workspace, "query", query)
        await room.task("another", parent_task_id=top)
        monkeypatch.setattr(room.workspace, "query", then_another)
        return found

    monkeypatch.setattr(room.workspace, "query", then_another)
    fault = await room.refused("delete_task", task_id=top, cascade=True)
    assert fault.code == "RATE_LIMITED" and fault.reach == "executed" and "deleted" in fault.message


# Listed.


async def test_lists_are_brief_the_newest_first_and_say_whether_there_is_more(room: Workroom) -> None:
    ids = [await room.task(f"task {number}") for number in range(60)]
    told = await room.do("list_tasks")
    assert (told["count"], told["has_more"]) == (50, True)
    assert [task["id"] for task in told["tasks"]] == ids[:9:-1]
    assert all(tuple(task) == tasks.BRIEF for task in told["tasks"])
    everything = await room.do("list_tasks", limit=None)
    assert (everything["count"], everything["has_more"]) == (60, False)
    assert (await room.do("list_tasks", limit=60))["has_more"] is False


async def test_filters_combine(room: Workroom) -> None:
    parent = await room.task("the parent")
    wanted: Json = {"task_type": "bug", "priority": 1, "parent_task_id": parent, "labels": ["x", "y"]}
    hit = await room.task("Half of it", **wanted)
    await room.do("update_task", task_id=hit, assignee="ann", status="failed")
    filters: Json = {
        "status": "failed",
        "priority": 1,
        "task_type": "bug",
        "assignee": "ann",
        "label": "y",
        "parent_task_id": parent,
        "title_like": "half OF",
    }
    others: Json = {
        "status": "open",
        "priority": 2,
        "task_type": "task",
        "assignee": "bob",
        "label": "z",
        "parent_task_id": hit,
        "title_like": "other",
    }
    assert await room.listed("list_tasks", **filters) == [hit]
    for name in filters:
        assert await room.listed("list_tasks", **{name: filters[name]}) == [hit]
        assert await room.listed("list_tasks", **filters | {name: others[name]}) == []


@pytest.mark.parametrize(
    ("part", "found"),
    [("%", ["100% of it"]), ("_", ["a_b"]), ("\\", ["c:\\temp"]), ("A", ["a_b", "aab"]), ("' OR", []), ("%%", [])],
)
async def test_a_part_of_a_title_is_taken_as_it_is_written(room: Workroom, part: str, found: list[str]) -> None:
    for title in ("100% of it", "a_b", "aab", "c:\\temp"):
        await room.task(title)
    told = await room.do("list_tasks", title_like=part)
    assert sorted(task["title"] for task in told["tasks"] if part != "A" or task["title"][0] == "a") == found


@pytest.mark.parametrize("label", ["b", 'a"b', "a,b", 'a","b', "[", "\\", "é", '"'])
async def test_a_label_is_found_as_a_whole_and_no_other(room: Workroom, label: str) -> None:
    names = ["b", 'a"b', "a,b", 'a","b', "[", "\\", "é", '"', "B", "ab", "bb"]
    of = {name: await room.task(labels=["first", name, "last"]) for name in names}
    assert await room.listed("list_tasks", label=label) == [of[label]]
    only = await room.task(labels=[label])
    assert await room.listed("list_tasks", label=label) == [only, of[label]]


async def test_tasks_are_listed_for_the_project_of_the_call_and_found_by_id_in_any(tmp_path: Path) -> None:
    here = Workroom(tmp_path)
    await here.task("in none")
    (tmp_path / ".gobby").mkdir()
    (tmp_path / ".gobby" / "project.json").write_text('{"id": "p-1"}')
    inside = await here.task("in one")
    assert await here.listed("list_tasks") == await here.listed("list_ready_tasks") == [inside]
    assert (await here.do("get_task", task_id=inside))["project_id"] == "p-1"
    (tmp_path / ".gobby" / "project.json").write_text('{"id": "p-2"}')
    assert await here.listed("list_tasks") == []
    assert (await here.do("get_task", task_id=inside))["title"] == "in one"
    child = await here.task("below it", parent_task_id=inside)
    assert await here.listed("list_tasks", parent_task_id=inside) == [child]


# Sessions.


async def test_the_session_of_a_task_is_that_of_its_caller_unless_said_otherwise(room: Workroom) -> None:
    room.as_client("mcp-1")
    assert (await room.do("create_task", title="x"))["created_in_session_id"] is None
    assert (await room.do("create_task", title="x", session_id="s-1"))["created_in_session_id"] == "s-1"
    task = await room.do("create_task", title="x")
    assert task["created_in_session_id"] == "s-1"
    room.as_client("mcp-2")
    await room.do("create_task", title="x", session_id="s-2")
    room.as_client("mcp-1")
    assert (await room.do("close_task", task_id=task["id"]))["closed_in_session_id"] == "s-1"
    room.as_client("mcp-3")
    assert (await room.do("create_task", title="x"))["created_in_session_id"] is None  # it may be either


async def test_who_has_no_mcp_session_has_the_only_active_one_of_its_principal(room: Workroom) -> None:
    await room.do("create_task", title="x", session_id="s-1")
    assert (await room.do("create_task", title="x"))["created_in_session_id"] == "s-1"
    room.as_client("", "another")
    assert (await room.do("create_task", title="x"))["created_in_session_id"] is None
    room.as_client("")
    await room.do("create_task", title="x", session_id="s-2")
    assert (await room.do("create_task", title="x"))["created_in_session_id"] is None


async def test_a_session_may_be_required_for_what_is_created_and_closed() -> None:
    room = Workroom(require_session_id=True)
    room.as_client("mcp-1")
    fault = await room.refused("create_task", title="x")
    assert "`session_id` is missing" in fault.message and "tasks.require_session_id" in fault.message
    task = await room.task(session_id="s-1")
    assert "`session_id` is missing" in (await room.refused("close_task", task_id=task)).message
    assert (await room.do("close_task", task_id=task, session_id="s-1"))["status"] == "closed"


async def test_what_was_remembered_of_many_sessions_is_forgotten_the_oldest_first(
    room: Workroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolgate.workspace.workspace.MOST_BOUND", 2)
    for number in range(3):
        room.as_client(f"mcp-{number}")
        await room.do("create_task", title="x", session_id=f"s-{number}")
    sessions: list[Any] = []
    for number in range(3):
        room.as_client(f"mcp-{number}")
        sessions.append((await room.do("create_task", title="x"))["created_in_session_id"])
    assert sessions == [None, "s-1", "s-2"]


async def test_those_who_change_tasks_at_once_lose_nothing(room: Workroom) -> None:
    task = await room.task()
    await asyncio.gather(*(room.do("link_task_to_session", task_id=task, session_id=f"s-{n}") for n in range(20)))
    assert len((await room.do("get_task_sessions", task_id=task))["sessions"]) == 20


async def test_a_text_that_no_table_keeps_is_refused(room: Workroom) -> None:
    for title in ("a\0b", "half \ud83d"):
        fault = await room.refused("create_task", title=title)
        assert "a lone surrogate" in fault.message and json.dumps(fault.extra["schema"])
    assert (await room.do("create_task", title="whole 😀"))["title"] == "whole 😀"
