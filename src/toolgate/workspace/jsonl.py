"""The lines of a project's file of tasks: one task each, all 33 fields and what it waits for (behaviour.md, "004 task
registry").

Pure: bytes to tasks and back. The rules this file keeps: what is written and read again is the same, whatever stands in
its texts; what a file has beyond that is told, not lost in silence; and a file that is not sound, or in the middle of a
merge of git, is refused as a whole, each fault with its line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Raw

from toolgate.core import counting, jsonrpc
from toolgate.workspace import tasks
from toolgate.workspace.tasks import FIELDS, Status, Task, Type

LARGEST = 256 * 1024 * 1024  # bytes of a file: 100,000 tasks with much to say
LONGEST_LINE = 2 * 1024 * 1024  # bytes; all texts of a task at their longest are less
MOST = 150_000  # lines of a file
MOST_DEPENDENCIES = 250_000  # of a file
MOST_OF_ONE = 5_000  # dependencies of a line: what some clones together have added, each as many as the tools take
MOST_VALUES = 30_000  # of a line: what has more takes long to read
LAST_YEAR = 9998  # of a time: the change after it is later, and still a time
MOST_SAID = 10  # faults that are named, and keys that are not known
LONGEST_FAULT = 300  # characters of what is said of one; it may quote what stands in the file

DepType: TypeAlias = Literal["blocks", "discovered-from", "related"]
# It goes into what agents and people read, where a line of it would be a line of its own.
Id: TypeAlias = Annotated[str, Meta(pattern=r"^[!-~]{1,64}\Z")]
_Number: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]  # what a column takes


class Dependency(msgspec.Struct, frozen=True):
    """What a task waits for, comes from, or has to do with."""

    depends_on: Id
    dep_type: DepType = "blocks"
    created_at: str = ""


class Entry(NamedTuple):
    """A line."""

    task: Task
    dependencies: tuple[Dependency, ...]


class Unreadable(Exception):
    """A file that cannot be imported: `str()` names its faults, each with its line."""


# Writing.


def line(row: Sequence[Any], dependencies: Sequence[Dependency]) -> bytes:
    """Of a row of the table `task`, with its line feed; `dependencies` in the order in which they are to stand."""
    values: dict[str, Any] = dict(zip(FIELDS, row, strict=True))
    values["project_id"] = values["project_id"] or None
    values["labels"], values["commits"] = Raw(values["labels"].encode()), Raw(values["commits"].encode())
    values["use_external_validator"] = values["use_external_validator"] == 1
    values["dependencies"] = dependencies
    return jsonrpc.encode(values) + b"\n"


# Reading.


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line as `line` writes it, but that older files may leave much of it out. `null` is what has no value. What
    stands in lists and indexes is as short as the tools take it."""

    id: Id
    title: Annotated[str, Meta(max_length=tasks.LONGEST_TITLE)]
    created_at: str = ""
    updated_at: str = ""
    project_id: str | None = None
    status: Status = "open"
    priority: Annotated[int, Meta(ge=0, le=3)] = 2
    type: Type = "task"
    description: str | None = None
    parent_task_id: Id | None = None
    created_in_session_id: str | None = None
    closed_in_session_id: str | None = None
    closed_commit_sha: str | None = None
    closed_at: str | None = None
    assignee: Annotated[str, Meta(max_length=tasks.LONGEST_NAME)] | None = None
    labels: Annotated[list[str], Meta(max_length=tasks.MOST_LABELS)] | None = None
    closed_reason: str | None = None
    validation_status: str | None = None
    validation_feedback: str | None = None
    test_strategy: str | None = None
    complexity_score: _Number | None = None
    estimated_subtasks: _Number | None = None
    expansion_context: str | None = None
    validation_criteria: str | None = None
    use_external_validator: bool | None = False
    validation_fail_count: _Number | None = 0
    validation_override_reason: str | None = None
    workflow_name: str | None = None
    verification: str | None = None
    sequence_order: _Number | None = None
    commits: Annotated[list[str], Meta(max_length=tasks.MOST_COMMITS)] | None = None
    escalated_at: str | None = None
    escalation_reason: str | None = None
    dependencies: Annotated[list[Dependency], Meta(max_length=MOST_OF_ONE)] = []


_KNOWN = frozenset(_Line.__struct_fields__)
# What older files call a field: of a task, and of its `validation`.
_RENAMED = {"parent_id": "parent_task_id", "task_type": "type"}
_VALIDATION = {
    "status": "validation_status",
    "feedback": "validation_feedback",
    "criteria": "validation_criteria",
    "fail_count": "validation_fail_count",
    "override_reason": "validation_override_reason",
    "use_external": "use_external_validator",
    "test_strategy": "test_strategy",
}
_marker = re.compile(rb"(<{7}|\|{7}|={7}|>{7})(\s|$)")
_exact = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_line_reader = jsonrpc.Decoder(_Line)


class _OnlyId(msgspec.Struct):
    id: str = ""


def id_of(written: bytes) -> str:
    """Of a line, without reading the rest; empty where it cannot be seen like that."""
    try:
        return msgspec.json.decode(written, type=_OnlyId).id
    except jsonrpc.UNREADABLE:
        return ""


class Reading:
    """One file, line by line. `unknown` counts the keys that no task has: they stand in the file only."""

    def __init__(self) -> None:
        self.unknown: Counter[str] = Counter()
        self._faults: list[str] = []
        self._dependencies = 0

    def entries(self, lines: Iterable[bytes]) -> Iterator[Entry]:
        """The tasks, as far as they are sound; all have to be taken back where this raises `Unreadable` at the end."""
        for number, written in enumerate(lines, 1):
            if entry := self.entry(number, written):
                yield entry
        self.finish()

    def entry(self, number: int, written: bytes) -> Entry | None:
        """The task of a line; None for one that is empty or has a fault. Raises `Unreadable` where these are many."""
        if number > MOST:
            self._faults.append(f"line {number}: a file can have {MOST:,} lines at most")
            self.finish()
        elif len(written) > LONGEST_LINE:
            self._faults.append(f"line {number}: it is longer than {LONGEST_LINE:,} bytes")
        elif _marker.match(written):
            self._faults.append(_said_of_marker(number, written))
        elif written := written.strip():
            try:
                return self._entry(written)
            except (ValueError, *jsonrpc.UNREADABLE) as error:
                self._faults.append(f"line {number}: {_shortened(str(error))}")
        if len(self._faults) >= MOST_SAID:
            self.finish()
        return None

    def finish(self) -> None:
        """Raises `Unreadable` where a line had a fault."""
        if self._faults:
            raise Unreadable("; ".join(self._faults))

    def _entry(self, written: bytes) -> Entry:
        if counting.has_more_values(written, MOST_VALUES):
            raise ValueError(f"it has more than {MOST_VALUES:,} values")
        try:
            found = _line_reader.decode(written)
        except msgspec.ValidationError:
            found = msgspec.convert(self._modernised(jsonrpc.read(written, dict[str, Any])), _Line)
        except UnicodeDecodeError:
            raise ValueError("it is not UTF-8") from None
        if b"\\u0000" in written and any("\0" in each for each in _texts(found)):
            raise ValueError("a text contains a NUL character: remove it")
        if sum(map(len, found.labels or ())) > tasks.LONGEST_LABELS:
            raise ValueError(f"labels have at most {tasks.LONGEST_LABELS:,} characters together")
        self._dependencies += len(found.dependencies)
        if self._dependencies > MOST_DEPENDENCIES:
            raise ValueError(f"a file can have {MOST_DEPENDENCIES:,} dependencies at most")
        created = time(found.created_at or found.updated_at, "created_at")
        values = {name: value for name in FIELDS if (value := getattr(found, name)) is not None}
        values |= {"created_at": created, "updated_at": time(found.updated_at or created, "updated_at")}
        for name in ("closed_at", "escalated_at"):
            if values.get(name):
                values[name] = time(values[name], name)
        dependencies = {(each.depends_on, each.dep_type): each for each in reversed(found.dependencies)}
        if any(found.id == depends_on for depends_on, _ in dependencies):
            raise ValueError(f"{found.id} depends on itself")
        if found.id == found.parent_task_id:
            raise ValueError(f"{found.id} is its own parent")
        dated = (
            Dependency(each.depends_on, each.dep_type, time(each.created_at or created, "dependencies"))
            for _, each in sorted(dependencies.items())
        )
        return Entry(Task(**values), tuple(dated))

    def _modernised(self, found: dict[str, Any]) -> dict[str, Any]:
        """With the keys of today; those that none has are counted. A key of today goes before one of old."""
        values: dict[str, Any] = {_RENAMED[key]: found[key] for key in _RENAMED if found.get(key) is not None}
        validation = msgspec.convert(found.pop("validation", None) or {}, dict[str, Any])
        for key, value in validation.items():
            if key in _VALIDATION:
                values[_VALIDATION[key]] = value
            else:
                self._count(f"validation.{key}")
        before = msgspec.convert(found.pop("deps_on", None) or [], list[str])
        if "dependencies" not in found:
            values["dependencies"] = [{"depends_on": each} for each in before]
        for key in found.keys() - _KNOWN - _RENAMED.keys():
            self._count(key)
        return values | {key: value for key, value in found.items() if key in _KNOWN and value is not None}

    def _count(self, key: str) -> None:
        if key in self.unknown or len(self.unknown) < MOST_SAID:
            self.unknown[key[:100]] += 1


def _shortened(said: str) -> str:
    return said if len(said) <= LONGEST_FAULT else f"{said[:LONGEST_FAULT]}..."


def _texts(found: _Line) -> Iterator[str]:
    values: Sequence[Any] = msgspec.structs.astuple(found)
    for value in values:
        if isinstance(value, str):
            yield value
    yield from (*(found.labels or ()), *(found.commits or ()))
    yield from (each.depends_on for each in found.dependencies)


def look_for_markers(lines: Iterable[bytes]) -> None:
    """Raises `Unreadable` for a file in the middle of a merge."""
    for number, written in enumerate(lines, 1):
        if _marker.match(written):
            raise Unreadable(_said_of_marker(number, written))


def _said_of_marker(number: int, written: bytes) -> str:
    said = written[:7].decode(errors="replace")
    return f"line {number}: git conflict marker {said}: finish the merge, and sync again"


def time(written: str, key: str) -> str:
    """As the tables have it: UTC, `2026-11-24T08:30:00.000000Z`. Raises `ValueError`, also for one that no change could
    follow: its version of a task would be kept for ever."""
    try:
        found = datetime.fromisoformat(written)
        if found.year <= LAST_YEAR and _exact.fullmatch(written):
            return written
        in_utc = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        if in_utc.year <= LAST_YEAR:
            return f"{in_utc.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"`{key}` is not a time such as 2026-11-24T08:30:00Z, before the year {LAST_YEAR + 1}")


def lines(file: BinaryIO, found: Any) -> Iterator[bytes]:
    """Those of a file, each told to the hash `found`."""
    while line := file.readline(LONGEST_LINE + 2):
        found.update(line)
        yield line
