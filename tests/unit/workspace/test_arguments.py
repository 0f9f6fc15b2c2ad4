"""Every tool of `gobby-tasks` with good and bad arguments: what is good is done, what is bad is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from workroom import Json, Workroom

from toolgate.core.fault import Fault
from toolgate.workspace import dependencies, links, ready, syncing, task_tools, tasks

LONG = tasks.LONGEST_TEXT
A, B, CLOSED, PARENT, CHILD = "gt-00000a", "gt-00000b", "gt-00000c", "gt-00000d", "gt-00000e"
NONE = "gt-ffffff"
BAD_TYPES = (7, True, ["x"], {"x": 1})  # instead of a text

# A tool, its arguments, and what the refusal says; empty where it is done.
Case = tuple[str, Json, str]


def _ids(tool: str, name: str, **more: Any) -> list[Case]:
    """What an argument that is the id of a task takes, and what not."""
    return [
        (tool, {**more, name: NONE}, f"Task not found: {NONE}"),
        (tool, {**more, name: "no id; DROP TABLE task"}, "Task not found: no id; DROP TABLE task"),
        (tool, {**more, name: ""}, "length >= 1"),
        (tool, {**more, name: "x" * 65}, "length <= 64"),
        *((tool, {**more, name: wrong}, f"$.{name}") for wrong in BAD_TYPES),
        (tool, more, f"missing required field `{name}`"),
    ]


def _limits(tool: str) -> list[Case]:
    good: list[Case] = [(tool, {"limit": limit}, "") for limit in (1, 7, 10_000, None)]
    bad = [(0, ">= 1"), (-1, ">= 1"), (10_001, "<= 10000"), ("5", "$.limit"), (1.5, "$.limit"), (True, "$.limit")]
    return good + [(tool, {"limit": limit}, said) for limit, said in bad]


def _texts(tool: str, name: str, longest: int, **more: Any) -> list[Case]:
    return [
        (tool, {**more, name: "é" * longest}, ""),
        (tool, {**more, name: "x" * (longest + 1)}, f"length <= {longest}"),
        (tool, {**more, name: 7}, f"$.{name}"),
        (tool, {**more, name: "a\0"}, "NUL"),
    ]


def _choices(tool: str, name: str, values: tuple[Any, ...], wrong: tuple[Any, ...], **more: Any) -> list[Case]:
    good: list[Case] = [(tool, {**more, name: value}, "") for value in values]
    return good + [(tool, {**more, name: value}, f"$.{name}") for value in wrong]


TYPES, WRONG_TYPES = ("task", "bug", "feature", "epic", "chore"), ("story", "", 1)
STATUSES, WRONG_STATUSES = ("open", "in_progress", "closed", "failed", "escalated"), ("done", "OPEN", "", 1)
PRIORITIES, WRONG_PRIORITIES = (0, 1, 2, 3), (-1, 4, 1.5, "1", "high", True)
NEW: Json = {"title": "x"}
IT: Json = {"task_id": A}
TWO: Json = {"task_id": A, "depends_on": B}

CASES: list[Case] = [
    ("create_task", {"title": "x"}, ""),
    ("create_task", {"title": "x", "labels": [], "blocks": [], "description": None}, ""),
    ("create_task", {"title": "x", "parent_task_id": PARENT, "blocks": [A, B]}, ""),
    ("create_task", {"title": "x", "parent_task_id": ""}, ""),
    ("create_task", {}, "missing required field `title`"),
    ("create_task", {"title": None}, "$.title"),
    ("create_task", {"title": ""}, "length >= 1"),
    ("create_task", {"title": " \n\t"}, "$.title"),
    ("create_task", {**NEW, "status": "open"}, "unknown field `status`"),
    ("create_task", {**NEW, "parent_task_id": NONE}, f"Task not found: {NONE}"),
    ("create_task", {**NEW, "parent_task_id": "x" * 65}, "length <= 64"),
    ("create_task", {**NEW, "blocks": [NONE]}, f"Task not found: {NONE}"),
    ("create_task", {**NEW, "blocks": A}, "$.blocks"),
    ("create_task", {**NEW, "blocks": [1]}, "$.blocks[0]"),
    ("create_task", {**NEW, "blocks": [A] * 101}, "length <= 100"),
    ("create_task", {**NEW, "labels": ["x" * 100] * 100}, ""),
    ("create_task", {**NEW, "labels": ["x"] * 101}, "length <= 100"),
    ("create_task", {**NEW, "labels": ["x" * 101]}, "length <= 100"),
    ("create_task", {**NEW, "labels": [""]}, "length >= 1"),
    ("create_task", {**NEW, "labels": [f"{number:0100}" for number in range(10)]}, ""),
    ("create_task", {**NEW, "labels": [f"{number:0100}" for number in range(11)]}, "1,000 characters together"),
    ("update_task", {**IT, "labels": [f"{number:0100}" for number in range(11)]}, "1,000 characters together"),
    ("create_task", {**NEW, "labels": "x"}, "$.labels"),
    ("create_task", {**NEW, "labels": ["\ud83d"]}, "lone surrogate"),
    ("create_task", {**NEW, "session_id": ""}, "length >= 1"),
    *_texts("create_task", "title", 500),
    *_texts("create_task", "description", 64 * 1024, **NEW),
    *_texts("create_task", "test_strategy", LONG, **NEW),
    *_texts("create_task", "validation_criteria", LONG, **NEW),
    *_texts("create_task", "session_id", 200, **NEW),
    *_choices("create_task", "priority", PRIORITIES, (*WRONG_PRIORITIES, None), **NEW),
    *_choices("create_task", "task_type", TYPES, (*WRONG_TYPES, None), **NEW),
    ("get_task", {"task_id": A}, ""),
    ("get_task", {"task_id": CLOSED}, ""),
    ("get_task", {"task_id": A, "id": A}, "unknown field `id`"),
    *_ids("get_task", "task_id"),
    ("update_task", {"task_id": A}, "no change given"),
    ("update_task", {"task_id": A, "title": None}, "no change given"),
    ("update_task", {**IT, "title": ""}, "length >= 1"),
    ("update_task", {**IT, "created_at": "now"}, "unknown field `created_at`"),
    ("update_task", {**IT, "parent_task_id": PARENT}, ""),
    ("update_task", {**IT, "parent_task_id": A}, "cannot be a child of itself"),
    ("update_task", {**IT, "parent_task_id": NONE}, f"Task not found: {NONE}"),
    ("update_task", {"task_id": PARENT, "parent_task_id": CHILD}, f"cannot be a child of {CHILD}"),
    ("update_task", {"task_id": PARENT, "status": "closed"}, f"its children {CHILD} are not closed"),
    ("update_task", {"task_id": CLOSED, "status": "open"}, ""),
    ("update_task", {**IT, "labels": ["x"] * 101}, "length <= 100"),
    ("update_task", {**IT, "labels": []}, ""),
    ("update_task", {**IT, "sequence_order": 2**31}, "$.sequence_order"),
    ("update_task", {**IT, "sequence_order": -(2**31)}, ""),
    ("update_task", {**IT, "sequence_order": 10**40}, "$.sequence_order"),
    ("update_task", {**IT, "sequence_order": "1"}, "$.sequence_order"),
    *_ids("update_task", "task_id", priority=1),
    *_texts("update_task", "title", 500, **IT),
    *_texts("update_task", "description", 64 * 1024, **IT),
    *_texts("update_task", "assignee", 100, **IT),
    *_texts("update_task", "validation_criteria", LONG, **IT),
    *_texts("update_task", "test_strategy", LONG, **IT),
    *_texts("update_task", "workflow_name", 100, **IT),
    *_texts("update_task", "verification", LONG, **IT),
    *_choices("update_task", "status", STATUSES, WRONG_STATUSES, **IT),
    *_choices("update_task", "priority", PRIORITIES, WRONG_PRIORITIES, **IT),
    ("close_task", {"task_id": A}, ""),
    ("close_task", {"task_id": CLOSED}, f"{CLOSED} is closed already"),
    ("close_task", {"task_id": PARENT}, f"its children {CHILD} are not closed"),
    ("close_task", {"task_id": PARENT, "reason": "obsolete"}, ""),
    ("close_task", {**IT, "reason": ""}, "length >= 1"),
    ("close_task", {**IT, "reason": " "}, "$.reason"),
    ("close_task", {**IT, "skip_validation": "yes"}, "$.skip_validation"),
    ("close_task", {**IT, "skip_validation": True, "override_justification": "urgent"}, ""),
    ("close_task", {**IT, "validated": True}, "unknown field `validated`"),
    *_ids("close_task", "task_id"),
    *_texts("close_task", "reason", 1000, **IT),
    *_texts("close_task", "changes_summary", LONG, **IT),
    *_texts("close_task", "override_justification", LONG, **IT),
    *_texts("close_task", "session_id", 200, **IT),
    ("delete_task", {"task_id": A}, ""),
    ("delete_task", {"task_id": PARENT}, f"{PARENT} has children: {CHILD}"),
    ("delete_task", {"task_id": PARENT, "cascade": True}, ""),
    ("delete_task", {"task_id": A, "cascade": 1}, "$.cascade"),
    ("delete_task", {"task_id": A, "force": True}, "unknown field `force`"),
    *_ids("delete_task", "task_id"),
    ("list_tasks", {}, ""),
    ("list_tasks", {"status": None, "label": None, "title_like": None}, ""),
    ("list_tasks", {"parent_task_id": NONE}, ""),
    ("list_tasks", {"offset": 5}, "unknown field `offset`"),
    *_limits("list_tasks"),
    *_texts("list_tasks", "assignee", 100),
    *_texts("list_tasks", "label", 100),
    *_texts("list_tasks", "title_like", 100),
    *_choices("list_tasks", "status", STATUSES, WRONG_STATUSES),
    *_choices("list_tasks", "priority", PRIORITIES, WRONG_PRIORITIES),
    *_choices("list_tasks", "task_type", TYPES, WRONG_TYPES),
    ("add_dependency", TWO, ""),
    ("add_dependency", {"task_id": A, "depends_on": A}, f"{A} cannot depend on itself"),
    ("add_dependency", {"task_id": A, "depends_on": A, "dep_type": "related"}, f"{A} cannot depend on itself"),
    ("add_dependency", {"task_id": CLOSED, "depends_on": CHILD}, f"{CLOSED} cannot wait for {CHILD}"),
    ("add_dependency", {"task_id": CLOSED, "depends_on": CHILD, "dep_type": "related"}, ""),
    ("add_dependency", {"task_id": CHILD, "depends_on": CLOSED}, ""),
    *_ids("add_dependency", "task_id", depends_on=B),
    *_ids("add_dependency", "depends_on", task_id=A),
    *_choices("add_dependency", "dep_type", ("blocks", "discovered-from", "related"), ("block", None, 1), **TWO),
    ("remove_dependency", TWO, ""),
    ("remove_dependency", {"task_id": CHILD, "depends_on": CLOSED}, ""),
    *_ids("remove_dependency", "task_id", depends_on=B),
    *_ids("remove_dependency", "depends_on", task_id=A),
    ("get_dependency_tree", {"task_id": CHILD}, ""),
    *_ids("get_dependency_tree", "task_id"),
    *_choices("get_dependency_tree", "direction", ("blockers", "blocking", "both"), ("up", None, 1), **IT),
    ("check_dependency_cycles", {}, ""),
    ("check_dependency_cycles", {"task_id": A}, "unknown field `task_id`"),
    ("list_ready_tasks", {}, ""),
    ("list_ready_tasks", {"status": "closed"}, "unknown field `status`"),
    *_limits("list_ready_tasks"),
    *_texts("list_ready_tasks", "assignee", 100),
    *_choices("list_ready_tasks", "priority", PRIORITIES, WRONG_PRIORITIES),
    *_choices("list_ready_tasks", "task_type", TYPES, WRONG_TYPES),
    ("list_blocked_tasks", {"parent_task_id": PARENT}, ""),
    ("list_blocked_tasks", {"priority": 1}, "unknown field `priority`"),
    *_limits("list_blocked_tasks"),
    ("link_task_to_session", {**IT, "session_id": "s"}, ""),
    ("link_task_to_session", IT, "`session_id` is missing, and your session is not known"),
    *_ids("link_task_to_session", "task_id", session_id="s"),
    *_texts("link_task_to_session", "session_id", 200, **IT),
    *_choices(
        "link_task_to_session",
        "action",
        ("worked_on", "discovered", "mentioned", "closed"),
        ("made", "", None),
        **IT,
        session_id="s",
    ),
    ("get_session_tasks", {"session_id": "nobody"}, ""),
    ("get_session_tasks", {}, "missing required field `session_id`"),
    *_texts("get_session_tasks", "session_id", 200),
    ("get_task_sessions", {"task_id": A}, ""),
    *_ids("get_task_sessions", "task_id"),
    ("sync_tasks", {}, ""),
    *_choices("sync_tasks", "direction", ("import", "export", "both"), ("up", "", None, 1)),
    ("sync_tasks", {"file": "x"}, "unknown field `file`"),
    ("get_sync_status", {}, ""),
    ("get_sync_status", {"task_id": A}, "unknown field `task_id`"),
]


async def staged(folder: Path) -> Workroom:
    """Five tasks of a project; the child waits for the one that is closed."""
    (folder / ".gobby").mkdir()
    (folder / ".gobby" / "project.json").write_text('{"id": "p-1"}')
    room = Workroom(folder)
    for id in (A, B, CLOSED, PARENT, CHILD):
        made = await room.task(parent_task_id=PARENT if id == CHILD else None)
        await room.run("UPDATE task SET id = ? WHERE id = ?", id, made)
    await room.after(CHILD, CLOSED)
    await room.do("close_task", task_id=CLOSED)
    return room


def test_there_are_cases_enough_of_every_tool() -> None:
    assert len(CASES) >= 150
    of = {tool for tool, _, _ in CASES}
    assert of == {tool.name for each in (task_tools, dependencies, ready, links, syncing) for tool in each.TOOLS}
    assert len(of) == 17
    assert of == {tool for tool, _, said in CASES if said} == {tool for tool, _, said in CASES if not said}


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    CASES,
    ids=[f"{n}-{tool}-{said[:30] or 'done'}" for n, (tool, _, said) in enumerate(CASES)],
)
async def test_good_arguments_are_taken_and_bad_ones_refused_by_name(
    tool: str, given: Json, said: str, tmp_path: Path
) -> None:
    room = await staged(tmp_path)
    before = await room.run("SELECT * FROM task ORDER BY id")
    try:
        await room.do(tool, **given)
    except Fault as fault:
        assert said and said in fault.message, fault.message
        assert fault.code == ("RESOURCE_NOT_FOUND" if said.startswith("Task not found") else "INVALID_ARGS")
        assert fault.reach == "not_sent" or fault.code == "INVALID_ARGS"
        assert await room.run("SELECT * FROM task ORDER BY id") == before
    else:
        assert not said, f"it was done, without a word of {said}"
