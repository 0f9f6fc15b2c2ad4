"""A project's tasks stand in its file as they are, and come from it as they were."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from virtualtime import FakeClock

from toolgate.config import Config, Tasks
from toolgate.core.fault import Fault
from toolgate.state.base import Connection
from toolgate.state.memory import MemoryStore
from toolgate.workspace import comparing, importing, jsonl, syncing, tasks
from toolgate.workspace.circles import circular
from toolgate.workspace.projects import Project, project_of
from toolgate.workspace.tasks import FIELDS, Task, put, row_of, task_of
from toolgate.workspace.workspace import Workspace

AT = "2026-11-24T08:30:00.000000Z"
LATER = "2026-11-24T09:30:00.000000Z"


class Clone:
    """A folder with a project, and a store of its own."""

    def __init__(self, folder: Path, id: str = "p-1", store: MemoryStore | None = None, **config: Any) -> None:
        (folder / ".gobby").mkdir(parents=True, exist_ok=True)
        (folder / ".gobby" / "project.json").write_text(json.dumps({"id": id}))
        found = project_of(folder)
        assert found
        self.project: Project = found
        self.file = folder / ".gobby" / "tasks.jsonl"
        self.workspace = Workspace(
            store or MemoryStore(FakeClock()), FakeClock(), Config(tasks=Tasks(**config)), folder
        )

    async def put(self, *tasks: Task, **waits: str) -> None:
        """Tasks, and by the id of each (with `_`) what it waits for."""

        def work(connection: Connection) -> None:
            for task in tasks:
                task = Task(**{name: getattr(task, name) for name in FIELDS} | {"project_id": self.project.id})
                connection.execute("DELETE FROM task WHERE id = ?", (task.id,))
                put(connection, [row_of(task)])
            for id, depends_on in waits.items():
                row = (id.replace("_", "-"), depends_on, "blocks", AT)
                connection.execute("INSERT INTO task_dependency VALUES (?, ?, ?, ?)", row)

        await self.workspace.transact(work, "tasks")

    async def all(self) -> tuple[list[Task], list[Any]]:
        def work(connection: Connection) -> tuple[list[Task], list[Any]]:
            tasks = connection.execute(f"SELECT {', '.join(FIELDS)} FROM task ORDER BY id").fetchall()
            waits = connection.execute(
                "SELECT * FROM task_dependency ORDER BY task_id, depends_on, dep_type"
            ).fetchall()
            return [task_of(row) for row in tasks], waits

        return await self.workspace.query(work)

    async def sync(self, direction: str = "both") -> dict[str, Any]:
        imports, exports = direction != "export", direction != "import"
        return await syncing.synced(self.workspace, self.project, imports, exports)

    async def automatically(self) -> None:
        await syncing.automatically(self.workspace, self.project)

    async def status(self) -> dict[str, Any]:
        return await syncing.status(self.workspace, self.project)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_bytes().splitlines()]


@pytest.fixture
def clone(tmp_path: Path) -> Callable[..., Clone]:
    return lambda name="a", **more: Clone(tmp_path / name, **more)


def task(id: str = "gt-1", updated_at: str = AT, **more: Any) -> Task:
    return Task(id=id, title=more.pop("title", id), created_at=AT, updated_at=updated_at, **more)


@pytest.mark.promise("b.tasks.files")
async def test_tasks_stand_in_the_file_sorted_and_come_from_it_as_they_were(clone: Callable[..., Clone]) -> None:
    one, other = clone("a"), clone("b")
    await one.put(task("gt-2", labels=["x"], description="é\n\u2028"), task("gt-1"), gt_2="gt-1", gt_1="gt-gone")
    assert (await one.sync("export"))["export"]["tasks"] == 2
    assert [line["id"] for line in one.lines()] == ["gt-1", "gt-2"]
    assert one.lines()[1]["dependencies"] == [{"depends_on": "gt-1", "dep_type": "blocks", "created_at": AT}]
    other.file.write_bytes(one.file.read_bytes())
    done = (await other.sync("import"))["import"]
    assert (done["tasks"], done["created"], done["dependencies_added"]) == (2, 2, 2)
    assert await other.all() == await one.all()
    before = other.file.stat().st_ino
    assert (await other.sync())["export"]["written"] is False
    assert other.file.stat().st_ino == before


@pytest.mark.promise("b.tasks.files")
async def test_the_note_has_the_hash_and_the_time_of_the_export(clone: Callable[..., Clone]) -> None:
    one = clone()
    assert (await one.status())["status"] == "synced"  # nothing here, nothing there
    await one.put(task())
    told = await one.status()
    assert (told["status"], told["synced"], told["hash"], told["last_exported"]) == (
        "never_exported",
        False,
        None,
        None,
    )
    done = (await one.sync("export"))["export"]
    note = json.loads(one.file.with_name("tasks_meta.json").read_text())
    assert note == {"content_hash": done["hash"], "last_exported": done["last_exported"]}
    told = await one.status()
    assert (told["status"], told["synced"], told["hash"]) == ("synced", True, done["hash"])
    await one.put(task("gt-2"))
    assert (await one.status())["status"] == "out_of_date"


@pytest.mark.promise("b.tasks.files")
async def test_the_newest_change_wins_on_either_side(clone: Callable[..., Clone]) -> None:
    one, other = clone("a"), clone("b")
    await one.put(task("gt-1", LATER, title="newer"), task("gt-2", title="older"), task("gt-3"))
    await one.sync("export")
    await other.put(task("gt-1", title="older"), task("gt-2", LATER, title="newer"), task("gt-4"))
    other.file.write_bytes(one.file.read_bytes())
    done = await other.sync()
    assert {key: done["import"][key] for key in ("created", "updated", "kept", "unchanged")} == {
        "created": 1,
        "updated": 1,
        "kept": 1,
        "unchanged": 0,
    }
    assert [(line["id"], line["title"]) for line in other.lines()] == [
        ("gt-1", "newer"),
        ("gt-2", "newer"),
        ("gt-3", "gt-3"),
        ("gt-4", "gt-4"),
    ]


async def test_of_two_changes_at_one_time_the_same_is_kept_everywhere(clone: Callable[..., Clone]) -> None:
    one, other = clone("a"), clone("b")
    await one.put(task(title="this"))
    await other.put(task(title="that"))
    await one.sync("export")
    await other.sync("export")
    mine, theirs = one.file.read_bytes(), other.file.read_bytes()
    one.file.write_bytes(theirs)
    other.file.write_bytes(mine)
    await one.sync()
    await other.sync()
    assert one.file.read_bytes() == other.file.read_bytes()


async def test_it_is_told_how_far_a_sync_is_through_all_that_it_does(
    clone: Callable[..., Clone], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress only grows: what does not is not told to a client."""
    monkeypatch.setattr(comparing, "LINES", 2)
    monkeypatch.setattr(importing, "PIECE", 2)
    one, other = clone("one"), clone("other")
    await one.put(*(task(f"gt-{number}") for number in range(6)), gt_1="gt-2", gt_2="gt-3", gt_3="gt-4")
    await one.sync()
    other.file.write_bytes(one.file.read_bytes())
    await other.put(task("gt-7"), task("gt-8"))
    told: list[tuple[float, float | None, str]] = []
    shown: list[str] = []

    def tell(done: float, total: float | None = None, message: str = "") -> None:
        told.append((done, total, message))
        shown.extend(other.workspace.syncs.values())

    await syncing.synced(other.workspace, other.project, True, True, tell)
    await asyncio.sleep(0)
    assert "2 of 6 written" in shown and other.workspace.syncs == {}
    assert [message for _, _, message in told] == [
        *["read"] * 3, *["written"] * 3, *["dependencies written"] * 2, *["exported"] * 4
    ]  # fmt: skip
    assert [done for done, _, _ in told] == sorted({done for done, _, _ in told})
    assert all(total is None or done <= total for done, total, _ in told)


async def test_of_a_dependency_that_two_have_added_the_older_date_is_kept_in_both(
    clone: Callable[..., Clone],
) -> None:
    one, other = clone("one"), clone("other")
    for each, at in ((one, LATER), (other, AT)):
        await each.put(task("gt-1"), task("gt-2"), gt_1="gt-2")
        await each.workspace.transact(lambda db, at=at: db.execute("UPDATE task_dependency SET created_at = ?", (at,)))
        await each.sync()
    for mine, theirs in ((one, other), (other, one)):
        mine.file.write_bytes(theirs.file.read_bytes())
        await mine.automatically()
        assert (await mine.all())[1] == [("gt-1", "gt-2", "blocks", AT)]
        assert (await mine.status())["synced"] is True
    assert one.file.read_bytes() == other.file.read_bytes()


async def test_a_file_that_lacks_what_a_task_waits_for_here_is_written_again(clone: Callable[..., Clone]) -> None:
    one = clone("one")
    await one.put(task("gt-1"), task("gt-2"), gt_1="gt-2")
    await one.sync()
    lines = one.file.read_text().splitlines(keepends=True)
    changed = json.loads(lines[0]) | {"title": "changed elsewhere", "updated_at": LATER, "dependencies": []}
    one.file.write_text(json.dumps(changed) + "\n" + lines[1])
    for _ in range(2):
        await one.automatically()
    assert (await one.status())["synced"] is True
    assert json.loads(one.file.read_text().splitlines()[0])["dependencies"]


async def test_dependencies_are_added_and_none_is_taken_away(clone: Callable[..., Clone]) -> None:
    one, other = clone("a"), clone("b")
    await one.put(task("gt-1"), task("gt-2"), gt_1="gt-2")
    await one.sync("export")
    await other.put(task("gt-1"), task("gt-2"), gt_1="gt-3")
    other.file.write_bytes(one.file.read_bytes())
    await other.sync()
    assert [each["depends_on"] for each in other.lines()[0]["dependencies"]] == ["gt-2", "gt-3"]


@pytest.mark.promise("b.tasks.files")
async def test_a_circle_is_refused_and_named(clone: Callable[..., Clone]) -> None:
    one, other = clone("a"), clone("b")
    await one.put(task("gt-1", parent_task_id="gt-2"), task("gt-2"), task("gt-3"), gt_1="gt-2", gt_2="gt-3")
    await one.sync("export")
    await other.put(task("gt-1"), task("gt-2", LATER, parent_task_id="gt-1"), task("gt-3"), gt_3="gt-1")
    other.file.write_bytes(one.file.read_bytes())
    await other.put(task("gt-1", "2020"))
    done = (await other.sync("import"))["import"]
    assert any("gt-1 would wait for itself through gt-2" in each for each in done["refused"])
    assert any("would be part of itself" in each for each in done["refused"])
    _, waits = await other.all()
    assert [row[:2] for row in waits] == [("gt-3", "gt-1")]


@pytest.mark.promise("b.tasks.files")
async def test_a_file_in_the_middle_of_a_merge_is_neither_imported_nor_written(clone: Callable[..., Clone]) -> None:
    one = clone()
    await one.put(task("gt-1"))
    await one.sync("export")
    merging = b'<<<<<<< HEAD\n{"id": "gt-2"}\n=======\n>>>>>>> other\n'
    one.file.write_bytes(one.file.read_bytes() + merging)
    await one.put(task("gt-3"))
    for direction in ("import", "export", "both"):
        with pytest.raises(Fault, match=r"tasks\.jsonl: line 2: git conflict marker"):
            await one.sync(direction)
    with pytest.raises(Fault, match="line 2"):
        await one.automatically()
    assert one.file.read_bytes().endswith(merging)
    assert [each.id for each in (await one.all())[0]] == ["gt-1", "gt-3"]
    told = await one.status()
    assert (told["status"], told["synced"]) == ("unusable", False) and "line 2" in told["problem"]


async def test_an_export_takes_in_first_what_others_have_written(clone: Callable[..., Clone]) -> None:
    one, other = clone("a"), clone("b")
    await other.put(task("gt-2"))
    await other.sync("export")
    await one.put(task("gt-1"))
    await one.sync("export")
    one.file.write_bytes(other.file.read_bytes())
    done = await one.sync("export")
    assert done["import"]["created"] == 1
    assert [line["id"] for line in one.lines()] == ["gt-1", "gt-2"]


async def test_unknown_keys_are_told(clone: Callable[..., Clone]) -> None:
    one = clone()
    line = {"id": "gt-1", "title": "T", "created_at": AT, "mood": "good"}
    one.file.write_text(json.dumps(line))
    assert (await one.sync())["import"]["unknown_keys"] == {"mood": 1}


async def test_half_characters_are_replaced_and_told(clone: Callable[..., Clone]) -> None:
    one = clone()
    one.file.write_text('{"id": "gt-1", "title": "\\ud83d", "created_at": "2026-11-24"}\n')
    done = (await one.sync("import"))["import"]
    assert done["refused"] == ["line 1: lone surrogates in it were replaced by U+FFFD"]
    assert (await one.all())[0][0].title == "\ufffd"


async def test_a_task_of_another_project_is_not_taken_over(clone: Callable[..., Clone]) -> None:
    store = MemoryStore(FakeClock())
    one, other = clone("a", store=store), clone("b", id="p-2", store=store)
    await one.put(task("gt-1"))
    other.file.write_text(json.dumps({"id": "gt-1", "title": "mine now", "created_at": LATER}))
    done = (await other.sync("import"))["import"]
    assert done["refused"] == ["gt-1: a task of another project has this id"]
    assert (await one.all())[0][0].title == "gt-1"


# By itself.


async def test_by_itself_only_what_has_changed_is_read_or_written(clone: Callable[..., Clone]) -> None:
    one = clone()
    await one.automatically()
    assert not one.file.exists()
    await one.put(task("gt-1"))
    await one.automatically()
    first = one.file.stat()
    await one.automatically()
    assert one.file.stat().st_mtime_ns == first.st_mtime_ns
    await one.put(task("gt-1", LATER, title="again"))
    await one.automatically()
    assert one.lines()[0]["title"] == "again"
    one.file.write_text(json.dumps({"id": "gt-2", "title": "theirs", "created_at": AT}) + "\n")
    await one.automatically()
    assert [each.id for each in (await one.all())[0]] == ["gt-1", "gt-2"]


async def test_an_older_file_is_read_and_left_as_it_is(clone: Callable[..., Clone]) -> None:
    one = clone()
    one.file.write_text(json.dumps({"id": "gt-2", "title": "theirs", "created_at": AT, "deps_on": ["gt-1"]}) + "\n")
    before = one.file.read_bytes()
    await one.automatically()
    await one.automatically()
    assert one.file.read_bytes() == before
    assert [each.id for each in (await one.all())[0]] == ["gt-2"]


# Whose the file is.


async def test_links_are_not_followed(clone: Callable[..., Clone], tmp_path: Path) -> None:
    one = clone()
    await one.put(task())
    aside = tmp_path / "aside"
    aside.write_text("precious")
    one.file.symlink_to(aside)
    with pytest.raises(Fault, match="symbolic link"):
        await one.sync()
    one.file.unlink()
    os.rename(one.file.parent, tmp_path / "elsewhere")
    one.file.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Fault, match="links are not followed"):
        await one.sync()
    assert aside.read_text() == "precious"
    assert not (tmp_path / "elsewhere" / "tasks.jsonl").exists()


async def test_a_folder_that_others_can_write_is_not_used(clone: Callable[..., Clone]) -> None:
    one = clone()
    await one.put(task())
    one.file.parent.chmod(0o777)
    with pytest.raises(Fault, match="chmod go-w"):
        await one.sync()


async def test_another_file_is_used_where_the_configuration_says_so(clone: Callable[..., Clone]) -> None:
    one = clone(jsonl="work/tasks/all.jsonl")
    await one.put(task())
    with pytest.raises(Fault, match="No such file"):
        await one.sync()
    (one.project.folder / "work" / "tasks").mkdir(parents=True)
    await one.sync()
    assert [each.name for each in sorted((one.project.folder / "work" / "tasks").iterdir())] == [
        "all.jsonl",
        "all_meta.json",
    ]


async def test_what_a_process_has_left_that_was_ended_is_swept_up(clone: Callable[..., Clone]) -> None:
    one = clone()
    left = one.file.with_name(".tasks.jsonl.0123abcd.part")
    left.write_text("half")
    await one.put(task())
    await one.sync()
    assert sorted(each.name for each in one.file.parent.iterdir()) == ["project.json", "tasks.jsonl", "tasks_meta.json"]


async def test_a_file_that_is_too_large_is_refused(
    clone: Callable[..., Clone], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = clone()
    one.file.write_bytes(b"\n" * 100)
    monkeypatch.setattr("toolgate.workspace.jsonl.LARGEST", 99)
    with pytest.raises(Fault, match="larger than 99 bytes"):
        await one.sync()
    monkeypatch.undo()
    monkeypatch.setattr("toolgate.workspace.jsonl.LONGEST_LINE", 100)
    await one.put(task())
    with pytest.raises(Fault, match="gt-1 is too long for a line"):
        await one.sync()


MANY = [f"gt-2{number:05}" for number in range(jsonl.MOST_OF_ONE)]


@pytest.mark.parametrize(
    ("bound", "tasks", "waits", "said"),
    [
        (("LONGEST_LINE", 3000), [task(description="x" * 3000)], {}, "gt-1 is too long for a line of 3,000 bytes"),
        (None, [task()], {"gt-1": [*MANY, "gt-3"]}, "gt-1 has 5,001 dependencies, of which a line can have 5,000"),
        (None, [task(updated_at="9999-01-01T00:00:00.000000Z")], {}, "`updated_at` of gt-1 is after the year 9998"),
        (None, [task(closed_at="9999-01-01T00:00:00.000000Z")], {}, "`closed_at` of gt-1 is after the year 9998"),
        (("MOST", 1), [task(), task("gt-2")], {}, "with gt-2 it would have more than 1 tasks"),
        (("LARGEST", 1500), [task(), task("gt-2")], {}, "with gt-2 it would be larger than 1,500 bytes"),
        (("MOST_DEPENDENCIES", 2), [task(), task("gt-2")], {"gt-1": ["a", "b"], "gt-2": ["c"]}, "with gt-2 it would"),
    ],
)
async def test_what_could_not_be_read_again_is_not_written(
    clone: Callable[..., Clone],
    monkeypatch: pytest.MonkeyPatch,
    bound: tuple[str, int] | None,
    tasks: list[Task],
    waits: dict[str, list[str]],
    said: str,
) -> None:
    """And what stood there stays."""
    one = clone()
    await one.put(task("gt-0"))
    await one.sync()
    before = one.file.read_bytes()
    await one.put(*tasks)
    rows = [(id, end, "blocks", AT) for id, ends in waits.items() for end in ends]
    insert = "INSERT INTO task_dependency VALUES (?, ?, ?, ?)"
    await one.workspace.transact(lambda connection: connection.execute("DELETE FROM task WHERE id = 'gt-0'"))
    await one.workspace.transact(lambda connection: connection.executemany(insert, rows))
    if bound:
        monkeypatch.setattr(jsonl, *bound)

    with pytest.raises(Fault) as caught:
        await one.sync("export")

    assert said in caught.value.message and "Nothing was imported or written" in caught.value.message
    assert one.file.read_bytes() == before
    assert said in (await one.status())["problem"]


async def test_a_task_with_as_much_as_it_may_have_comes_back_as_it_was(clone: Callable[..., Clone]) -> None:
    one, other = clone("a"), clone("b")
    texts = ("test_strategy", "validation_criteria", "verification", "validation_feedback", "closed_reason")
    lists = {"labels": ["é" * 10] * tasks.MOST_LABELS, "commits": ["c" * 40] * tasks.MOST_COMMITS}
    most = dict.fromkeys(texts, "\x01" * tasks.LONGEST_TEXT) | {"description": "\x01" * tasks.LONGEST_DESCRIPTION}
    await one.put(task(title="\x01" * tasks.LONGEST_TITLE, **lists, **most))
    rows = [("gt-1", each, "blocks", AT) for each in MANY]
    insert = "INSERT INTO task_dependency VALUES (?, ?, ?, ?)"
    await one.workspace.transact(lambda connection: connection.executemany(insert, rows))

    await one.sync("export")
    other.file.write_bytes(one.file.read_bytes())
    await other.sync("import")

    assert await other.all() == await one.all()


# In pieces.


def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "PIECE", 1)
    monkeypatch.setattr(importing, "PAUSE", 0)


class Between:
    """A store in which something is done after each of so many changes: a number stands for the process's end."""

    def __init__(self, clone: Clone) -> None:
        self.changes = 0
        self.ends_after = 10_000
        self.then: dict[int, Any] = {}
        self._transact = clone.workspace.transact
        clone.workspace.transact = self.transact  # type: ignore[method-assign]

    async def transact(self, work: Any, *tells: Any) -> Any:
        if self.changes == self.ends_after:
            raise RuntimeError("killed")
        self.changes += 1
        done = await self._transact(work, *tells)
        if change := self.then.pop(self.changes, None):
            await change()
        return done


@pytest.mark.promise("b.tasks.files")
async def test_an_import_that_was_ended_is_done_again_wherever_it_ended(
    clone: Callable[..., Clone], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_pieces(monkeypatch)
    one = clone("one")
    family = [task(f"gt-{number}", parent_task_id=f"gt-{number + 1}") for number in range(4)]
    await one.put(*family, task("gt-4"), gt_0="gt-1", gt_1="gt-2", gt_2="gt-3")
    await one.sync("export")
    for ends_after in range(9):
        other = clone(f"other-{ends_after}")
        # The other way round: before all is written, a part of the new beside a part of the old would be a circle.
        await other.put(task("gt-2", "2020", parent_task_id="gt-1"), task("gt-1", "2020", parent_task_id="gt-0"))
        other.file.write_bytes(one.file.read_bytes())
        between = Between(other)
        between.ends_after = ends_after
        with pytest.raises(RuntimeError, match="killed"):
            await other.sync("import")
        found, _ = await other.all()
        assert not circular({each.id: [each.parent_task_id] for each in found if each.parent_task_id})
        assert (await other.status())["last_exported"] is None
        between.ends_after = 10_000
        await other.automatically()
        assert await other.all() == await one.all()
        assert other.file.read_bytes() == one.file.read_bytes()


@pytest.mark.promise("b.tasks.files")
async def test_what_is_changed_between_two_pieces_is_kept_and_closes_no_circle(
    clone: Callable[..., Clone], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_pieces(monkeypatch)
    one, other = clone("a"), clone("b")
    await one.put(task("gt-1"), task("gt-2", parent_task_id="gt-1"), task("gt-3"), gt_2="gt-1", gt_3="gt-2")
    await one.sync("export")
    other.file.write_bytes(one.file.read_bytes())
    between = Between(other)

    async def edit() -> None:
        await other.put(task("gt-3", LATER, title="newer"), task("gt-1", LATER, parent_task_id="gt-2"), gt_1="gt-3")

    between.then = {1: edit}
    done = (await other.sync("import"))["import"]
    found = {each.id: each for each in (await other.all())[0]}
    assert found["gt-3"].title == "newer" and done["kept"] == 1
    assert not circular({each.id: [each.parent_task_id] for each in found.values() if each.parent_task_id})
    _, waits = await other.all()
    assert len(waits) == 2 and ("gt-1", "gt-3", "blocks", AT) in waits
    assert sum("would wait for itself" in each for each in done["refused"]) == 1
    assert any("would be part of itself" in each for each in done["refused"])
    await other.automatically()  # what was changed meanwhile is not believed to be in the file
    assert other.lines()[2]["title"] == "newer"


async def test_what_is_made_between_two_pieces_is_written_by_itself(
    clone: Callable[..., Clone], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_pieces(monkeypatch)
    one, other = clone("a"), clone("b")
    await one.put(task("gt-1"), task("gt-2"))
    await one.sync("export")
    other.file.write_bytes(one.file.read_bytes())
    Between(other).then = {1: lambda: other.put(task("gt-3"))}
    await other.automatically()
    await other.automatically()
    assert [line["id"] for line in other.lines()] == ["gt-1", "gt-2", "gt-3"]
