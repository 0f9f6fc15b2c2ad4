"""A copy of the store is what the store was; and it takes the store's place only where that harms nobody."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from toolgate.core.clock import SystemClock
from toolgate.state import backups
from toolgate.state.base import Connection, NotKept
from toolgate.state.migrations import KEPT, MIGRATIONS, Migration
from toolgate.state.sqlite import FILE, SqliteStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / FILE


def opened(file: Path, migrations: tuple[Migration, ...] = MIGRATIONS) -> SqliteStore:
    return SqliteStore(file.parent, SystemClock(), migrations)


def keep(key: str) -> Callable[[Connection], None]:
    def work(connection: Connection) -> None:
        connection.execute("INSERT INTO task_session VALUES (?, ?, ?, ?)", (key, "s", "worked_on", "now"))

    return work


def count(connection: Connection) -> int:
    return connection.execute("SELECT count(*) FROM task_session").fetchone()[0]


async def test_what_was_kept_is_there_again(file: Path, tmp_path: Path) -> None:
    store = opened(file)
    await store.put("a", "key", b"1")
    await store.transact(keep("t-1"))
    assert backups.back_up(file, tmp_path / "backup") > 0  # while it is open
    await store.transact(keep("t-2"))
    await store.close()
    restored = backups.restore(file, tmp_path / "backup")
    assert [each.name for each in restored.aside] == [f"{FILE}.before-restore-1"]
    store = opened(file)
    assert (store.get("a", "key"), await store.query(count)) == (b"1", 1)
    await store.close()
    aside = sqlite3.connect(restored.aside[0])
    assert aside.execute("SELECT count(*) FROM task_session").fetchone() == (2,)
    aside.close()


async def test_a_copy_is_private_one_file_and_overwrites_nothing(file: Path, tmp_path: Path) -> None:
    await opened(file).close()
    to = tmp_path / "backups" / "one"
    with pytest.raises(backups.Refused, match=rf"cannot be copied to {to}: there is no folder {to.parent}$"):
        backups.back_up(file, to)
    to.parent.mkdir()
    backups.back_up(file, to)
    assert [each.name for each in to.parent.iterdir()] == ["one"]
    assert to.stat().st_mode & 0o777 == 0o600
    with pytest.raises(backups.Refused, match="--force"):
        backups.back_up(file, to)
    backups.back_up(file, to, force=True)
    with pytest.raises(backups.Refused, match="no store"):
        backups.back_up(tmp_path / "none", tmp_path / "two")


async def test_nothing_is_restored_under_a_gateway_that_has_it_open(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "PATIENCE", 0.01)
    store = opened(file)
    await store.put("a", "key", b"1")
    backups.back_up(file, tmp_path / "backup")
    with pytest.raises(backups.Refused, match="is in use: end the gateways"):
        backups.restore(file, tmp_path / "backup")
    await store.put("a", "key", b"2")
    assert store.get("a", "key") == b"2"
    await store.close()
    assert sorted(each.name for each in file.parent.iterdir()) == [FILE, f"{FILE}.lock"]
    backups.restore(file, tmp_path / "backup")


async def test_a_restore_decides_what_becomes_of_a_damaged_store(file: Path, tmp_path: Path) -> None:
    store = opened(file)
    await store.transact(keep("t-1"))
    await store.close()
    backups.back_up(file, tmp_path / "backup")
    file.write_bytes(b"no database" * 1000)
    store = opened(file)
    with pytest.raises(NotKept, match="toolgate state restore"):
        await store.query(count)
    await store.close()
    assert any("an earlier store was damaged" in each for each in backups.check(file).problems)
    restored = backups.restore(file, tmp_path / "backup")
    assert [each.name for each in restored.aside] == [f"{FILE}.before-restore-1", f"{FILE}.was-damaged-1"]
    store = opened(file)
    assert await store.query(count) == 1
    await store.close()
    assert backups.check(file).problems == []


async def test_a_damaged_store_can_be_replaced_before_any_gateway_has_seen_it(file: Path, tmp_path: Path) -> None:
    await opened(file).close()
    backups.back_up(file, tmp_path / "backup")
    file.write_bytes(b"no database" * 1000)
    assert backups.restore(file, tmp_path / "backup").aside[0].read_bytes().startswith(b"no database")


async def test_an_older_backup_is_restored_and_gets_its_tables(file: Path, tmp_path: Path) -> None:
    store = opened(file, (KEPT,))
    await store.put("a", "key", b"1")
    await store.close()
    backups.back_up(file, tmp_path / "backup")
    backups.restore(file, tmp_path / "backup")
    store = opened(file)
    assert (store.get("a", "key"), await store.query(count)) == (b"1", 0)
    await store.close()


def made(path: Path, *statements: str) -> Path:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.executescript(statement)
    connection.close()
    return path


async def test_what_is_no_store_of_ours_is_refused(file: Path, tmp_path: Path) -> None:
    store = opened(file)
    await store.put("a", "key", b"1")
    await store.close()
    backups.back_up(file, tmp_path / "good")
    whole = (tmp_path / "good").read_bytes()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_bytes(b"no database" * 1000)
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "newer").write_bytes(whole)
    made(tmp_path / "newer", f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    made(tmp_path / "other", "CREATE TABLE a (b); PRAGMA user_version = 1")
    (tmp_path / "triggered").write_bytes(whole)
    made(tmp_path / "triggered", "CREATE TRIGGER t AFTER INSERT ON kept BEGIN DELETE FROM kept; END")
    (tmp_path / "folder").mkdir()
    for name, why in {
        "empty": "not a store",
        "text": "not a store",
        "cut": "not a store|damaged",
        "newer": "newer toolgate",
        "other": "not a store",
        "triggered": "not a store",
        "folder": "not a regular file",
        "missing": "No such file",
    }.items():
        with pytest.raises(backups.Refused, match=why):
            backups.restore(file, tmp_path / name)
    assert sorted(each.name for each in file.parent.iterdir()) == [FILE, f"{FILE}.lock"]
    store = opened(file)
    assert store.get("a", "key") == b"1"
    await store.close()


async def test_a_check_says_what_is_there_and_what_is_wrong(file: Path, tmp_path: Path) -> None:
    with pytest.raises(backups.Refused, match="no store"):
        backups.check(file)
    store = opened(file)
    await store.transact(keep("t-1"))
    found = backups.check(file)
    assert (found.version, found.problems, found.counts["task_session"]) == (len(MIGRATIONS), [], 1)
    assert FILE in found.sizes
    await store.transact(lambda connection: connection.execute("CREATE TABLE more (x)") and None)
    [strange] = backups.check(file).problems
    assert strange.startswith(f"its tables are not those of version {len(MIGRATIONS)}")
    await store.transact(lambda connection: connection.execute("DROP TABLE more") and None)
    await store.close()
    file.chmod(0o644)
    assert backups.check(file).problems == [f"{file} can be read by other users: chmod go-rwx"]
    file.chmod(0o666)
    assert any("can be written by other users" in each for each in backups.check(file).problems)
    file.chmod(0o600)
    whole = bytearray(file.read_bytes())
    for place in range(40_000, len(whole), 100):
        whole[place] ^= 0xFF
    file.write_bytes(whole)
    assert any("damaged" in each or "cannot be read" in each for each in backups.check(file).problems)
    with pytest.raises(backups.Refused, match=r"damaged|cannot be copied"):
        backups.back_up(file, tmp_path / "backup")
