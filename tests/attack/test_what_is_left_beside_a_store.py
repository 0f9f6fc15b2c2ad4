"""What is left beside a store that is gone (a log, a journal) does not get into the backup that takes its place."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from toolgate.core.clock import SystemClock
from toolgate.state import backups
from toolgate.state.migrations import MIGRATIONS
from toolgate.state.opening import open_file
from toolgate.state.sqlite import FILE, SqliteStore


@pytest.mark.parametrize("times", [1, 2])
def test_a_log_that_was_left_of_another_store_is_not_taken_for_that_of_the_backup(tmp_path: Path, times: int) -> None:
    folder, backup = tmp_path / "state", tmp_path / "backup.db"
    asyncio.run(_kept(folder, b"then"))
    backups.back_up(folder / FILE, backup)
    log = tmp_path / "log"
    asyncio.run(_kept(folder, b"later", log))

    aside: list[Path] = []
    for _ in range(times):
        (folder / FILE).unlink()  # by an operator
        shutil.copy(log, folder / f"{FILE}-wal")
        aside += backups.restore(folder / FILE, backup).aside

    assert asyncio.run(_kept(folder)) == b"then"
    assert len(set(aside)) == times
    assert all(Path(f"{each}-wal").exists() for each in aside)


def test_a_journal_that_was_left_goes_aside_with_its_store(tmp_path: Path) -> None:
    folder, backup = tmp_path / "state", tmp_path / "backup.db"
    folder.mkdir(mode=0o700)
    _make_store(folder / FILE)
    backups.back_up(folder / FILE, backup)
    (folder / FILE).unlink()
    (folder / f"{FILE}-journal").touch(mode=0o600)

    [aside] = backups.restore(folder / FILE, backup).aside

    assert Path(f"{aside}-journal").exists()
    assert not (folder / f"{FILE}-journal").exists()


async def _kept(folder: Path, value: bytes = b"", log: Path | None = None) -> bytes | None:
    """What a store has, after this was put there; and the log as SIGKILL would leave it."""
    store = SqliteStore(folder, SystemClock())
    if value:
        await store.put("space", "key", value)
    if log:
        shutil.copy(folder / f"{FILE}-wal", log)
    found = store.get("space", "key")
    await store.close()
    return found


def _make_store(file: Path) -> None:
    for connection in open_file(file, MIGRATIONS):
        connection.close()
