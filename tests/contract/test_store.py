"""Every store keeps what it was given, as long as it was told to, whoever else writes; and the one on disk outlives
its process, its faults and its file."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from toolgate import state as stores
from toolgate.core.clock import SystemClock
from toolgate.state import backups
from toolgate.state.base import NEWS, UNREAD, Connection, NotKept, Store
from toolgate.state.memory import MemoryStore
from toolgate.state.migrations import KEPT, MIGRATIONS, Migration
from toolgate.state.opening import Unusable
from toolgate.state.sqlite import BATCH, FILE, SqliteStore


class WallClock(SystemClock):
    """What the wall says is what the test says."""

    time = 1_000_000.0

    def wall(self) -> float:
        return self.time


class Place:
    """Where a store is: each `open` is one more user of the same."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.clock = WallClock()
        self.folder = folder
        self._memory = MemoryStore(self.clock) if kind == "memory" else None

    def open(self) -> Store:
        return self._memory or SqliteStore(self.folder, self.clock)


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def keep(key: str) -> Callable[[Connection], str]:
    def work(connection: Connection) -> str:
        connection.execute("INSERT INTO task_session VALUES (?, ?, ?, ?)", (key, "s", "worked_on", "now"))
        return key

    return work


def found_tasks(connection: Connection) -> list[str]:
    return [key for [key] in connection.execute("SELECT task_id FROM task_session ORDER BY task_id").fetchall()]


# What every store promises.


async def test_what_is_put_is_there_until_it_is_deleted(place: Place) -> None:
    store = place.open()
    assert store.get("a", "key") is None
    await store.put("a", "key", b"one")
    await store.put("a", "key", b"two\0\xff")
    assert store.get("a", "key") == b"two\0\xff"
    await store.delete("a", "key")
    await store.delete("a", "key")
    assert store.get("a", "key") is None
    await store.close()


async def test_tables_are_changed_as_a_whole_or_not_at_all(place: Place) -> None:
    store = place.open()

    def half(connection: Connection) -> None:
        keep("t-2")(connection)
        raise LookupError("not today")

    done = await asyncio.gather(
        *(store.transact(work) for work in (keep("t-1"), half, keep("t-3"))), return_exceptions=True
    )
    assert [str(each) for each in done] == ["t-1", "not today", "t-3"]
    assert await store.query(found_tasks) == ["t-1", "t-3"]
    await store.close()


async def test_who_listens_hears_of_what_was_changed_in_the_tables(place: Place) -> None:
    store = place.open()
    before = store.items(NEWS)
    await store.transact(keep("t-1"), "tasks")
    assert (told := store.items(NEWS)).keys() == {"tasks"} != before.keys()
    await store.transact(keep("t-2"), "tasks")
    assert store.items(NEWS) != told
    await store.close()


async def test_who_listens_hears_of_a_value_in_the_write_that_changes_it(place: Place) -> None:
    store = place.open()
    assert not await store.compare_and_set("a", "key", b"another", b"one", tells=["keys"])
    assert not store.items(NEWS)
    assert await store.compare_and_set("a", "key", None, b"one", tells=["keys"])
    assert (told := store.items(NEWS)).keys() == {"keys"}
    await store.delete("a", "key", ["keys"])
    assert (store.get("a", "key"), store.items(NEWS) == told) == (None, False)
    await store.close()


async def test_a_store_that_is_closed_refuses_work_on_its_tables(place: Place) -> None:
    store = place.open()
    await store.close()
    for work in (store.query(found_tasks), store.transact(keep("t-1"))):
        with pytest.raises(NotKept, match="closed"):
            await work


async def test_the_end_waits_for_no_search_and_begins_none(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, SystemClock())
    begun, searches = threading.Semaphore(0), list[asyncio.Task[Any]]()

    def endless(connection: Any) -> Any:
        connection.create_function("begin_it", 0, lambda: begun.release() or 1)
        numbers = "WITH RECURSIVE n(i) AS (SELECT begin_it() UNION ALL SELECT i + 1 FROM n LIMIT 20000000)"
        return connection.execute(f"{numbers} SELECT count(*) FROM n").fetchall()

    for _ in range(5):
        searches.append(asyncio.create_task(store.query(endless)))
    assert await asyncio.to_thread(lambda: [begun.acquire(timeout=60) for _ in range(2)]) == [True, True]
    await store.close()
    ended = await asyncio.gather(*searches, return_exceptions=True)
    assert sorted(str(each).partition(";")[0] for each in ended) == [
        *2 * ["the store cannot be read: interrupted"],
        *3 * ["the store is closed"],
    ]


async def test_spaces_know_nothing_of_each_other_and_list_their_own_in_order(place: Place) -> None:
    store = place.open()
    for space, key in (("a", "2"), ("a", "1"), ("b", "1"), ("a", "é/\n")):
        await store.put(space, key, f"{space}{key}".encode())
    assert list(store.items("a").items()) == [("1", b"a1"), ("2", b"a2"), ("é/\n", "aé/\n".encode())]
    assert store.items("b") == {"1": b"b1"}
    assert store.items("c") == {}
    await store.close()


async def test_what_has_a_time_is_gone_when_it_is_over(place: Place) -> None:
    store = place.open()
    await store.put("a", "short", b"1", ttl=10)
    await store.put("a", "long", b"2", ttl=100)
    await store.put("a", "ever", b"3")
    place.clock.time += 9.9
    assert list(store.items("a")) == ["ever", "long", "short"]
    place.clock.time += 0.2
    assert store.get("a", "short") is None
    assert list(store.items("a")) == ["ever", "long"]
    assert await store.compare_and_set("a", "short", None, b"anew", ttl=1)
    await store.put("a", "long", b"2")
    place.clock.time += 1000
    assert store.items("a") == {"ever": b"3", "long": b"2"}
    await store.close()


async def test_what_is_over_takes_no_room(place: Place) -> None:
    store = place.open()
    for number in range(10):
        await store.put("a", str(number), b"", ttl=10)
    place.clock.time += 100
    await store.put("b", "x", b"")
    if isinstance(store, SqliteStore):
        assert store.read("SELECT count(*) FROM kept") == [(1,)]
    elif isinstance(store, MemoryStore):
        assert list(store._spaces) == ["b"]
    await store.close()


async def test_a_value_is_set_only_where_the_one_before_stands(place: Place) -> None:
    store = place.open()
    assert not await store.compare_and_set("a", "key", b"x", b"one")
    assert await store.compare_and_set("a", "key", None, b"one")
    assert not await store.compare_and_set("a", "key", None, b"two")
    assert not await store.compare_and_set("a", "key", b"two", b"three")
    assert await store.compare_and_set("a", "key", b"one", b"two")
    assert store.get("a", "key") == b"two"
    assert await store.compare_and_set("a", "key", b"two", None)
    assert store.get("a", "key") is None
    await store.close()


async def test_writes_that_nobody_waits_for_are_done_in_order(place: Place) -> None:
    store = place.open()
    for number in range(2500):
        store.put("a", "key", b"%d" % number)
    last = store.put("a", "last", b"")
    store.delete("a", "key")
    store.put("a", "key", b"end")
    await last
    await store.put("a", "after", b"")
    assert store.get("a", "key") == b"end"
    await store.close()


async def test_after_the_end_nothing_is_kept_and_whoever_waits_is_told(place: Place) -> None:
    store = place.open()
    store.put("a", "before", b"1")
    await store.close()
    await store.close()
    store.put("a", "key", b"1")
    with pytest.raises(NotKept):
        await store.put("a", "key", b"1")
    with pytest.raises(NotKept):
        await store.compare_and_set("a", "key", None, b"1")


async def counted(store: Store, times: int) -> None:
    """Add one, so often that others are in between."""
    for _ in range(times):
        while True:
            old = store.get("a", "count")
            if await store.compare_and_set("a", "count", old, b"%d" % (int(old or 0) + 1)):
                break


async def test_of_several_that_set_a_value_at_once_one_wins_each_time(place: Place) -> None:
    store = place.open()
    await asyncio.gather(*(counted(store, 20) for _ in range(5)))
    assert store.get("a", "count") == b"100"
    won = await asyncio.gather(*(store.compare_and_set("a", "mine", None, b"%d" % each) for each in range(50)))
    assert won.count(True) == 1
    await store.close()


async def test_several_threads_lose_nothing(place: Place) -> None:
    async def one() -> None:
        store = place.open()
        await counted(store, 25)
        if isinstance(store, SqliteStore):
            await store.close()

    failed: list[BaseException] = []
    threads = [threading.Thread(target=_run, args=(one, failed)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert not failed
    assert place.open().get("a", "count") == b"100"


def _run(work: Callable[[], Coroutine[Any, Any, None]], failed: list[BaseException]) -> None:
    try:
        asyncio.run(work())
    except BaseException as error:
        failed.append(error)


# What the one on disk promises besides.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "some" / "state"


def opened(folder: Path, *more: Migration) -> SqliteStore:
    return SqliteStore(folder, WallClock(), (KEPT, *more) if more else MIGRATIONS)


async def test_it_is_there_after_a_restart(folder: Path) -> None:
    store = opened(folder)
    store.put("a", "key", b"1")
    store.put("a", "gone", b"1", ttl=1)
    await store.close()
    again = SqliteStore(folder, clock := WallClock())
    clock.time += 2
    assert again.items("a") == {"key": b"1"}
    await again.close()


async def test_it_is_there_after_a_kill(folder: Path) -> None:
    script = (
        "import asyncio, os, sys; from pathlib import Path\n"
        "from toolgate.core.clock import SystemClock; from toolgate.state.sqlite import SqliteStore\n"
        "async def main():\n"
        "    store = SqliteStore(Path(sys.argv[1]), SystemClock())\n"
        "    await store.put('a', 'key', b'1')\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    ended = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script, str(folder)])
    assert ended.returncode == -9
    store = opened(folder)
    assert store.get("a", "key") == b"1"
    await store.close()


async def test_two_processes_share_it_and_lose_nothing(folder: Path) -> None:
    """Both make the file, and both count in it."""
    script = (
        "import asyncio, sys; from pathlib import Path\n"
        "from toolgate.core.clock import SystemClock; from toolgate.state.sqlite import SqliteStore\n"
        "async def main():\n"
        "    store = SqliteStore(Path(sys.argv[1]), SystemClock())\n"
        "    await store.put('seen', sys.argv[2], b'1')\n"
        "    for _ in range(100):\n"
        "        while True:\n"
        "            old = store.get('a', 'count')\n"
        "            if await store.compare_and_set('a', 'count', old, b'%d' % (int(old or 0) + 1)):\n"
        "                break\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-W", "error", "-c", script, str(folder)]
    both = [await asyncio.create_subprocess_exec(*command, str(number)) for number in range(2)]
    assert [await each.wait() for each in both] == [0, 0]
    store = opened(folder)
    assert store.get("a", "count") == b"200"
    assert list(store.items("seen")) == ["0", "1"]
    await store.close()


async def test_its_folder_and_files_are_their_users_own(folder: Path) -> None:
    before = os.umask(0)
    try:
        store = opened(folder)
        await store.put("a", "key", b"1")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        assert {FILE, f"{FILE}-wal"} <= modes.keys()
        assert set(modes.values()) == {0o600}
        await store.close()
    finally:
        os.umask(before)


async def test_what_is_queued_shares_a_transaction(folder: Path) -> None:
    store = opened(folder)
    hold, commits = threading.Event(), []
    store._writer.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    store.write(lambda _connection: hold.wait() and None)
    for number in range(BATCH):
        last = store.put("a", str(number), b"")
    hold.set()
    await last
    assert len(commits) <= 3
    assert len(store.items("a")) == BATCH
    await store.close()


async def test_one_write_that_fails_spoils_no_other(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(folder)
    hold = threading.Event()
    store.write(lambda _connection: hold.wait() and None)
    before = store.put("a", "before", b"")
    bad = store.write(lambda connection: connection.execute("INSERT INTO kept VALUES (NULL, NULL, NULL, NULL)"))
    bug = store.write(lambda _connection: 1 / 0)
    after = store.put("a", "after", b"")
    hold.set()
    await before
    with pytest.raises(sqlite3.IntegrityError):
        await bad
    with pytest.raises(ZeroDivisionError):
        await bug
    await after
    assert list(store.items("a")) == ["after", "before"]
    assert not caplog.records
    await store.close()


async def test_a_full_disk_is_said_once_and_told_to_whoever_waits(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(folder)
    await store.put("a", "key", b"1")
    await store.write(lambda connection: connection.execute("PRAGMA max_page_count = 1") and None)
    for _ in range(3):
        store.put("a", "unwaited", bytes(100_000))
        with pytest.raises(NotKept, match="full"):
            await store.put("a", "big", bytes(100_000))
    assert store.get("a", "key") == b"1"
    [record] = caplog.records
    assert "database or disk is full" in record.getMessage()
    await store.write(lambda connection: connection.execute("PRAGMA max_page_count = 10000") and None)
    await store.put("a", "big", bytes(100_000))
    await store.close()


async def test_a_disk_that_may_only_be_read_is_said_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(folder)
    await store.put("a", "key", b"1")
    await store.write(lambda connection: connection.execute("PRAGMA query_only = ON") and None)
    for _ in range(3):
        with pytest.raises(NotKept, match="readonly"):
            await store.compare_and_set("a", "key", b"1", b"2")
    assert store.get("a", "key") == b"1"
    assert len(caplog.records) == 1
    await store.close()


@pytest.mark.parametrize("where", ["file", "/proc/nowhere"])
async def test_where_nothing_can_be_written_the_gateway_works_and_forgets(
    where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    async with stores.opened(tmp_path / where) as store:
        await store.put("a", "key", b"1")
        assert store.get("a", "key") == b"1"
    [record] = caplog.records
    assert "data is not kept for the next start" in record.getMessage() and "another folder" in record.getMessage()


async def test_a_file_that_is_none_is_kept_aside_and_a_new_one_begun(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir(parents=True)
    for number in (1, 2):
        (folder / FILE).write_bytes(b"no database at all" * 1000)
        async with stores.opened(folder) as store:
            await store.put("a", "key", b"1")
        assert (folder / f"{FILE}.damaged-{number}").read_bytes().startswith(b"no database")
        assert f"{FILE}.damaged-{number}" in caplog.records[-1].getMessage()
    store = opened(folder)
    assert store.get("a", "key") == b"1"
    await store.close()


async def test_no_fresh_file_passes_for_one_that_was_damaged_until_somebody_has_decided(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / FILE).write_bytes(b"no database at all" * 1000)
    store = opened(folder)
    for work in (store.query(found_tasks), store.transact(keep("t-1"))):
        with pytest.raises(NotKept, match="toolgate state restore"):
            await work
    (folder / f"{FILE}.damaged-1").unlink()
    await store.transact(keep("t-1"))
    assert await store.query(found_tasks) == ["t-1"]
    await store.close()


async def test_what_cannot_be_read_is_told_from_what_is_not_there(folder: Path) -> None:
    store = SqliteStore(folder, WallClock())
    assert store.items("keys") == {} and store.items("keys") is not UNREAD
    with sqlite3.connect(folder / FILE) as other:
        other.execute("ALTER TABLE kept RENAME TO elsewhere")
    assert store.items("keys") is UNREAD and store.get("keys", "a") is None
    await store.close()


async def test_what_cannot_be_read_of_a_table_is_told_with_how_to_look_at_it(folder: Path) -> None:
    store = opened(folder)
    with pytest.raises(NotKept, match="toolgate state check"):
        await store.query(lambda connection: connection.execute("SELECT nonsense FROM task").fetchone())
    await store.close()


async def test_what_cannot_be_written_to_a_table_is_told_with_how_to_mend_it(folder: Path) -> None:
    store = opened(folder)
    await store.put("a", "key", b"1")
    await store.write(lambda connection: connection.execute("PRAGMA query_only = ON") and None)
    with pytest.raises(NotKept, match=r"cannot be written: .*; see `toolgate state check`"):
        await store.transact(keep("t-1"))
    await store.close()
    store = opened(folder)
    await store.write(lambda connection: connection.execute("PRAGMA max_page_count = 1") and None)
    with pytest.raises(NotKept, match=r"cannot be written: .*full; make room on its disk"):
        await store.put("a", "big", bytes(100_000))
    await store.close()


async def test_a_file_that_another_program_holds_is_waited_for_once_by_all_that_is_to_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolgate.state.opening.BUSY", 0.01)
    store, begun, tries, hold = opened(folder), list[str](), threading.Event(), threading.Event()

    def at_each(statement: str) -> None:
        begun.append(statement)
        tries.set()
        assert hold.wait(30)

    await store.write(lambda connection: connection.set_trace_callback(at_each) or hold.set())
    for each in (hold, tries, begun):
        each.clear()
    other = sqlite3.connect(folder / FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    queued = [store.put("a", "first", b"")]
    await asyncio.to_thread(tries.wait, 30)
    queued += [store.put("a", str(number), b"") for number in range(20)]
    hold.set()
    found = await asyncio.gather(*queued, return_exceptions=True)
    other.execute("ROLLBACK")
    assert all("another program holds it" in str(each) for each in found), found
    assert begun == ["BEGIN IMMEDIATE"] * 2  # of the first, and of all others
    await store.put("a", "key", b"1")
    other.close()
    await store.close()


async def test_a_long_look_at_a_table_holds_up_no_write_and_no_other_look(folder: Path) -> None:
    store, reads, ends = opened(folder), threading.Event(), threading.Event()

    def long(connection: Connection) -> list[str]:
        before = found_tasks(connection)
        reads.set()
        assert ends.wait(30)
        return before + found_tasks(connection)

    looked = asyncio.ensure_future(store.query(long))
    await asyncio.to_thread(reads.wait, 30)
    await store.transact(keep("t-1"))
    assert await store.query(found_tasks) == ["t-1"]
    ends.set()
    assert await looked == []  # as it was when the look began
    await store.close()


async def test_a_file_of_a_newer_toolgate_is_left_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    more = Migration(len(MIGRATIONS) + 1, "CREATE TABLE more (x)")
    newer = SqliteStore(folder, WallClock(), (*MIGRATIONS, more))
    await newer.put("a", "key", b"1")
    await newer.close()
    with pytest.raises(Unusable, match=r"newer toolgate .*; use the newer one"):
        opened(folder)
    async with stores.opened(folder) as store:
        assert isinstance(store, MemoryStore)
        with pytest.raises(NotKept, match="use the newer one"):
            await store.query(lambda connection: connection.execute("SELECT 1").fetchone())
    assert "newer" in caplog.text and caplog.text.count("data is not kept") == 1
    again = SqliteStore(folder, WallClock(), (*MIGRATIONS, more))
    assert again.get("a", "key") == b"1"
    await again.close()


async def test_an_older_file_is_kept_as_it_was_for_who_goes_back(folder: Path) -> None:
    older = SqliteStore(folder, WallClock(), (KEPT,))
    await older.put("a", "key", b"1")
    await older.close()
    assert not list(folder.glob("*.version-*"))
    more = Migration(2, "DELETE FROM kept; CREATE TABLE two (x)")
    for _ in range(2):
        await opened(folder, more).close()
    kept = folder / f"{FILE}.version-1"
    assert list(folder.glob("*.version-*")) == [kept] and kept.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Unusable, match="newer toolgate"):
        SqliteStore(folder, WallClock(), (KEPT,))
    backups.restore(folder / FILE, kept)
    again = SqliteStore(folder, WallClock(), (KEPT,))
    assert again.get("a", "key") == b"1"
    await again.close()


async def test_an_older_file_gets_the_tables_that_are_new(folder: Path) -> None:
    first = SqliteStore(folder, WallClock(), (KEPT,))
    await first.put("a", "key", b"1")
    await first.close()
    tables = Migration(3, "CREATE TABLE three (x); INSERT INTO three VALUES (3)"), Migration(2, "CREATE TABLE two (x)")
    for _ in range(2):
        store = opened(folder, *tables)
        await store.write(lambda connection: connection.execute("INSERT INTO two SELECT x FROM three") and None)
        assert store.get("a", "key") == b"1"
        await store.close()
    store = opened(folder, *tables)
    assert store.read("SELECT x FROM two") == [(3,), (3,)]
    await store.close()


async def test_migrations_leave_no_gap(folder: Path) -> None:
    with pytest.raises(ValueError, match="in a row"):
        opened(folder, Migration(3, "CREATE TABLE three (x)"))


async def test_a_step_that_fails_is_undone(folder: Path) -> None:
    with pytest.raises(Unusable, match="syntax"):
        opened(folder, Migration(2, "CREATE TABLE two (x); CREATE NONSENSE"))
    store = opened(folder, Migration(2, "CREATE TABLE two (x)"))
    assert store.read("SELECT * FROM two") == []
    await store.close()


async def test_an_upgrade_is_whole_or_not_at_all_and_says_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    older = SqliteStore(folder, WallClock(), (KEPT,))
    await older.put("a", "key", b"1")
    await older.close()
    steps = Migration(2, "DELETE FROM kept"), Migration(3, "INSERT INTO nowhere VALUES (1)")
    with pytest.raises(Unusable, match=r"cannot be upgraded from version 1 \(no such table.*was not changed"):
        opened(folder, *steps)
    again = SqliteStore(folder, WallClock(), (KEPT,))
    assert again.get("a", "key") == b"1" and "upgraded" not in caplog.text
    await again.close()
    caplog.set_level("INFO")
    await opened(folder, Migration(2, "CREATE TABLE two (x)")).close()
    assert "was upgraded from version 1; a copy of that is kept as toolgate.db.version-1" in caplog.text


def test_sqlite_is_imported_only_when_a_store_is_opened() -> None:
    script = "import sys, toolgate.app, toolgate.state, toolgate.cli.serve; sys.exit('sqlite3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_the_log_of_this_room_is_the_gateways() -> None:
    assert stores.log is logging.getLogger("toolgate.state")
