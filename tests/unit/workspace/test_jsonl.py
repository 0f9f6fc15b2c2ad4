"""A line of the file of tasks is a task and what it waits for; what is written is read again as it was."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from toolgate.workspace import jsonl
from toolgate.workspace.jsonl import Dependency, Entry, Reading, Unreadable
from toolgate.workspace.tasks import FIELDS, Task, row_of

AT = "2026-11-24T08:30:00.000000Z"

any_character = some.characters(exclude_categories=(), exclude_characters="\0")  # half ones too
texts = some.text(any_character, max_size=40)
ids = some.text("".join(map(chr, range(0x21, 0x7F))), min_size=1, max_size=64)
times = some.datetimes(max_value=datetime(jsonl.LAST_YEAR, 12, 31)).map(
    lambda at: at.isoformat(timespec="microseconds") + "Z"
)
maybe = some.none() | texts
numbers = some.integers(-(2**31), 2**31 - 1)
dependencies = some.lists(
    some.builds(Dependency, ids, some.sampled_from(("blocks", "discovered-from", "related")), times),
    max_size=4,
    unique_by=lambda each: (each.depends_on, each.dep_type),
).map(lambda found: tuple(sorted(found, key=lambda each: (each.depends_on, each.dep_type))))
special = {
    "id": ids,
    "parent_task_id": some.none() | ids,
    "project_id": texts,
    "title": texts,
    "status": some.sampled_from(("open", "in_progress", "closed", "failed", "escalated")),
    "priority": some.integers(0, 3),
    "type": some.sampled_from(("task", "bug", "feature", "epic", "chore")),
    "labels": some.lists(some.text(some.characters(codec="utf-8", exclude_characters="\0"), max_size=40), max_size=3),
    "commits": some.lists(some.text(some.characters(codec="utf-8", exclude_characters="\0"), max_size=40), max_size=3),
    "complexity_score": some.none() | numbers,
    "estimated_subtasks": some.none() | numbers,
    "sequence_order": some.none() | numbers,
    "validation_fail_count": numbers,
    "use_external_validator": some.booleans(),
    "created_at": times,
    "updated_at": times,
    "closed_at": some.none() | times,
    "escalated_at": some.none() | times,
}
tasks = some.builds(Task, **{name: special.get(name, maybe) for name in FIELDS})


def read(*lines: bytes | str | dict[str, Any]) -> tuple[list[Entry], Reading]:
    reading = Reading()
    as_bytes = [json.dumps(each).encode() if isinstance(each, dict) else each for each in lines]
    return list(reading.entries([each.encode() if isinstance(each, str) else each for each in as_bytes])), reading


def brief(id: str = "gt-1", **more: Any) -> dict[str, Any]:
    return {"id": id, "title": "T", "created_at": AT, "updated_at": AT, **more}


@given(tasks, dependencies)
@pytest.mark.promise("b.tasks.files")
def test_what_is_written_is_read_again_as_it_was(task: Task, waits: tuple[Dependency, ...]) -> None:
    waits = tuple(each for each in waits if each.depends_on != task.id)
    if task.parent_task_id == task.id:
        task.parent_task_id = None
    line = jsonl.line(row_of(task), waits)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert [*json.loads(line)] == [*FIELDS, "dependencies"]
    [entry], reading = read(line)
    assert (entry.task, entry.dependencies, reading.unknown) == (task, waits, {})


def test_an_older_file_with_fewer_keys_is_read() -> None:
    line = {
        **brief(),
        "updated_at": "2026-11-24T09:30:00+01:00",
        "project_id": "p",
        "status": "closed",
        "parent_id": "gt-0",
        "deps_on": ["gt-3", "gt-2"],
        "commits": None,
        "validation": {"status": "valid", "feedback": "good", "fail_count": 2, "criteria": "it works", "by": "me"},
        "closed_reason": "completed",
    }
    [entry], reading = read(line)
    assert (entry.task.parent_task_id, entry.task.status, entry.task.updated_at) == ("gt-0", "closed", AT)
    assert (entry.task.validation_status, entry.task.validation_feedback) == ("valid", "good")
    assert (entry.task.validation_fail_count, entry.task.validation_criteria) == (2, "it works")
    assert entry.dependencies == (Dependency("gt-2", "blocks", AT), Dependency("gt-3", "blocks", AT))
    assert reading.unknown == {"validation.by": 1}


def test_keys_that_no_task_has_are_counted() -> None:
    entries, reading = read(brief("gt-1", mood="good"), brief("gt-2", mood="bad", when="now"), brief("gt-3"))
    assert [entry.task.id for entry in entries] == ["gt-1", "gt-2", "gt-3"]
    assert reading.unknown == {"mood": 2, "when": 1}


def test_empty_lines_and_other_ends_of_lines_are_passed_over() -> None:
    entries, _ = read(b"\n", json.dumps(brief()).encode() + b"\r\n", b"  \n")
    assert len(entries) == 1


@pytest.mark.promise("b.tasks.files")
@pytest.mark.parametrize("marker", ["<<<<<<< HEAD", "||||||| base", "=======", ">>>>>>> other\n"])
def test_a_conflict_marker_of_git_is_named_with_its_line(marker: str) -> None:
    with pytest.raises(Unreadable, match=r"line 2: git conflict marker .{7}: finish the merge"):
        read(brief(), marker, brief("gt-2"))
    with pytest.raises(Unreadable, match="line 1: git conflict"):
        jsonl.look_for_markers([marker.encode()])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: "),
        ("[]", "line 2: .*object"),
        (b'{"id": "\xff"}', "line 2: "),
        ({"id": "gt-1"}, r"line 2: .*`title`"),
        (brief(id=""), r"line 2: .*\$\.id"),
        (brief(id="x" * 65), r"line 2: .*\$\.id"),
        (brief(status="done"), r"line 2: .*'done'"),
        (brief(priority=4), r"line 2: .*priority"),
        (brief(sequence_order=2**31), r"line 2: .*sequence_order"),
        (brief(labels="x"), r"line 2: .*labels"),
        (brief(updated_at="soon"), "line 2: `updated_at` is not a time"),
        (brief(closed_at="soon"), "line 2: `closed_at` is not a time"),
        ({"id": "gt-1", "title": "T"}, "line 2: `created_at` is not a time"),
        (brief(parent_task_id="gt-1"), "line 2: gt-1 is its own parent"),
        (brief(deps_on=["gt-1"]), "line 2: gt-1 depends on itself"),
        (brief(deps_on=[1]), "line 2: "),
        (brief(deps_on=5), "line 2: "),
        (brief(validation=[1]), "line 2: "),
        (brief(dependencies=[{"depends_on": "gt-2", "dep_type": "needs"}]), r"line 2: .*'needs'"),
        (brief(labels=["\0"]), "line 2: a text contains a NUL"),
        (b"[" * 100_000, "line 2: "),
        (b'"%b"' % (b"x" * jsonl.LONGEST_LINE), "line 2: it is longer than 2,097,152 bytes"),
    ],
)
def test_a_line_that_is_no_task_is_named(line: bytes | str | dict[str, Any], said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        read(brief("gt-9"), line)


def test_of_many_faults_the_first_ten_are_named() -> None:
    with pytest.raises(Unreadable) as refused:
        read(*["{"] * 100)
    assert str(refused.value).count("line ") == 10


def test_a_dependency_that_stands_twice_is_one() -> None:
    twice = [{"depends_on": "gt-2", "created_at": AT}, {"depends_on": "gt-2"}]
    [entry], _ = read(brief(dependencies=twice))
    assert entry.dependencies == (Dependency("gt-2", "blocks", AT),)


@given(some.lists(some.binary(max_size=60) | some.sampled_from([b'{"id":"a"', b"<<<<<<<", b"{}", b"null"]), max_size=5))
def test_whatever_stands_in_a_file_is_read_or_refused(lines: list[bytes]) -> None:
    try:
        list(Reading().entries(lines))
    except Unreadable as refused:
        assert str(refused).startswith("line ")
