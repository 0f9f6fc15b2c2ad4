"""The audit's file: what it holds, who shares it, what is found of it, and a disk that takes nothing."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from virtualtime import FakeClock

from toolgate.config import Audit, Auth, Config, KnownClient
from toolgate.core.model import Principal
from toolgate.core.redaction import Redactor
from toolgate.state import audit
from toolgate.state.audit import Chain, Head, Trail, verify
from toolgate.state.memory import MemoryStore


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def trail(file: Path, store: MemoryStore | None = None, *secrets: str) -> Trail:
    clock = FakeClock()
    return Trail(file, clock, store or MemoryStore(clock), Redactor(secrets))


async def noted(file: Path, *events: str, store: MemoryStore | None = None) -> None:
    there = trail(file, store)
    for event in events:
        there.note(event)
    await there.close()


async def until(is_so: Callable[[], bool]) -> None:
    """What a thread does, it does in real time: at most a minute."""
    for _ in range(6000):
        if is_so():
            return
        threading.Event().wait(0.01)
    raise TimeoutError


async def test_what_is_noted_stands_in_the_file_line_by_line_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "state" / "audit.jsonl"
    there = trail(file)
    there.note("keys.create", "cli:ann", client="ci")
    there.note("login", Principal("bob", "10.0.0.7", client="ci"), decision="deny", reason="expired")
    await there.close()
    first, second = lines(file)
    assert list(first) == ["seq", "prev", "time", "event", "who", "client", "hash"]
    assert (first["seq"], first["who"], first["client"]) == (1, "cli:ann", "ci")
    assert (second["seq"], second["prev"], second["address"]) == (2, first["hash"], "10.0.0.7")
    assert second["reason"] == "expired"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert verify([file]) == audit.AuditVerdict(Head(2, second["hash"]), 2)


async def test_a_file_that_others_could_read_is_theirs_no_more(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.touch(0o644)
    file.chmod(0o644)
    await noted(file, "one")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_the_chain_goes_on_after_a_restart(tmp_path: Path) -> None:
    file, store = tmp_path / "audit.jsonl", MemoryStore(FakeClock())
    await noted(file, "one", "two", store=store)
    await noted(file, "three", store=store)
    assert [line["event"] for line in lines(file)] == ["one", "two", "three"]
    assert verify([file], audit.Anchors(store, str(file), FakeClock()).known()).wrong == ()


async def test_nothing_is_written_where_nothing_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    await noted(file)
    off = trail(file)
    off.is_on = False
    off.note("one")
    await off.close()
    assert not file.exists()


async def test_known_secrets_and_endless_texts_are_not_noted(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    there = trail(file, None, "canary-0123456789")
    there.note("login", decision="deny", reason="canary-0123456789 is not known", told="x" * 10_000)
    await there.close()
    (line,) = lines(file)
    assert line["reason"] == "[secret] is not known"
    assert len(line["told"]) == audit.LONGEST


async def test_several_gateways_share_a_file_and_its_chain(tmp_path: Path) -> None:
    file, store = tmp_path / "audit.jsonl", MemoryStore(FakeClock())
    several = [trail(file, store) for _ in range(3)]
    for number in range(30):
        several[number % 3].note("one", number=number)
    for each in several:
        await each.close()
    assert sorted(line["number"] for line in lines(file)) == list(range(30))
    assert [line["seq"] for line in lines(file)] == list(range(1, 31))
    assert verify([file], audit.Anchors(store, str(file), FakeClock()).known()).wrong == ()


def test_several_processes_share_a_file_and_its_chain(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    code = (
        "import sys; from pathlib import Path; from toolgate.state.audit import Chain\n"
        "chain = Chain(Path(sys.argv[1]))\n"
        'for number in range(50): chain.append([b\'{"event":"one"}\', b\'{"event":"two"}\'])'
    )
    several = [subprocess.Popen([sys.executable, "-c", code, str(file)]) for _ in range(3)]
    assert [each.wait(60) for each in several] == [0, 0, 0]
    assert verify([file]).lines == 300
    assert verify([file]).wrong == ()


async def test_a_file_that_was_cut_off_stays_wrong_whatever_is_written_behind(tmp_path: Path) -> None:
    file, store = tmp_path / "audit.jsonl", MemoryStore(FakeClock())
    await noted(file, "one", "two", "three", store=store)
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    anchor = audit.Anchors(store, str(file), FakeClock()).known()
    assert verify([file], anchor).wrong == ("it ends at line 1, but line 3 was written",)
    await noted(file, "four", store=store)
    assert verify([file]).wrong == ("audit.jsonl:2: line 4 comes after line 1",)


async def test_a_file_that_was_removed_stays_missed(tmp_path: Path) -> None:
    file, store = tmp_path / "audit.jsonl", MemoryStore(FakeClock())
    there = trail(file, store)
    there.note("one")
    await until(file.exists)
    await until(lambda: bool(file.read_bytes()))
    file.unlink()
    there.note("two")
    await there.close()
    assert verify([file]).wrong == ("audit.jsonl:1: it starts with line 2",)


async def test_a_line_that_was_torn_stays_for_all_to_see_and_the_next_are_whole(tmp_path: Path) -> None:
    file, store = tmp_path / "audit.jsonl", MemoryStore(FakeClock())
    await noted(file, "one", "two", store=store)
    file.write_bytes(file.read_bytes()[:-20])
    await noted(file, "three", store=store)
    assert verify([file]).wrong == ("audit.jsonl:2: this line was altered",)


async def test_a_file_is_moved_away_and_the_next_one_goes_on_where_it_ends(tmp_path: Path) -> None:
    file, aside, store = tmp_path / "audit.jsonl", tmp_path / "old.jsonl", MemoryStore(FakeClock())
    there = trail(file, store)
    there.note("one")
    await until(lambda: file.exists() and bool(file.read_bytes()))
    other = Chain(file)
    other.rotate(aside, b'{"event":"audit.rotated"}')
    other.close()
    there.note("two")
    await there.close()
    assert [line["event"] for line in lines(aside)] == ["one"]
    assert [line["event"] for line in lines(file)] == ["audit.rotated", "two"]
    anchor = audit.Anchors(store, str(file), FakeClock()).known()
    assert verify([aside, file], anchor) == audit.AuditVerdict(anchor, 3)
    alone = verify([file], anchor)
    assert alone.wrong == () and "lines 1 to 1" in alone.remark
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def _full(_descriptor: int, _data: bytes) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_full_disk_is_said_once_and_what_waited_is_written_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "audit.jsonl"
    there = trail(file)
    monkeypatch.setattr(os, "write", _full)
    there.note("one")
    await until(lambda: bool(there.problem))
    assert "No space left on device" in there.problem
    there.note("two")
    monkeypatch.undo()
    await until(lambda: not there.problem)
    await there.close()
    assert [line["event"] for line in lines(file)] == ["one", "two"]
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 2 and "cannot write the audit log" in said[0] and "can be written again" in said[1]


async def test_a_batch_that_fills_the_disk_leaves_nothing_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "audit.jsonl"
    await noted(file, "one")
    before, write = file.read_bytes(), os.write

    def half(descriptor: int, data: Any) -> int:
        if len(data) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[: len(data) // 2])

    chain = Chain(file)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space"):
            chain.append([b'{"event":"two"}'])
    assert file.read_bytes() == before
    chain.append([b'{"event":"two"}'])
    chain.close()
    assert verify([file]).lines == 2 and verify([file]).wrong == ()


async def test_what_is_read_only_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(audit.os, "open", refuse)
    there = trail(tmp_path / "audit.jsonl")
    there.note("one")
    await until(lambda: bool(there.problem))
    assert "Read-only file system" in there.problem
    await there.close()


async def test_a_folder_that_cannot_be_made_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    there = trail(tmp_path / "file" / "audit.jsonl")
    there.note("one")
    await there.close()
    assert "File exists" in there.problem


async def test_what_waits_for_the_disk_is_bounded_and_what_is_lost_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MOST_WAITING", 1000)
    file = tmp_path / "audit.jsonl"
    file.symlink_to("/dev/full")
    there = trail(file)
    for _ in range(100):
        there.note("one")
    assert there.problem
    file.unlink()
    await there.close()
    *kept, last = lines(file)
    assert 0 < len(kept) < 100
    assert (last["event"], last["lines"]) == ("audit.lost", 100 - len(kept))


async def test_the_last_line_is_anchored_while_the_gateway_runs(tmp_path: Path) -> None:
    file, store = tmp_path / "audit.jsonl", MemoryStore(FakeClock())
    there = trail(file, store)
    there.note("one")
    await until(lambda: there._written > 0)
    await asyncio.sleep(audit.ANCHOR + 0.1)
    await asyncio.sleep(audit.ANCHOR + 0.1)
    assert audit.Anchors(store, str(file), FakeClock()).known() == verify([file]).head
    await there.close()


async def test_an_anchor_never_goes_back(tmp_path: Path) -> None:
    store = MemoryStore(FakeClock())
    ahead, behind = (audit.Anchors(store, "file", FakeClock()) for _ in range(2))
    await ahead.close(Head(7, "7" * 64))
    await behind.close(Head(5, "5" * 64))
    assert ahead.known() == Head(7, "7" * 64)


def test_it_is_on_where_somebody_has_to_show_who_they_are() -> None:
    known = (KnownClient(id="ci", name="ci"),)
    assert not audit.is_on(Config())
    assert audit.is_on(Config(clients=known))
    assert audit.is_on(Config(auth=Auth(issuer="https://id.example")))
    assert audit.is_on(Config(audit=Audit(enabled=True)))
    assert not audit.is_on(Config(clients=known, audit=Audit(enabled=False)))


async def test_what_strangers_bring_about_is_noted_so_often_and_the_rest_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    there = trail(file)
    await asyncio.sleep(60 - FakeClock().now() % 60)
    for _ in range(audit.MOST_OF_STRANGERS + 5):
        there.note_of_strangers("login", decision="deny")
    await asyncio.sleep(60)
    there.note_of_strangers("login", decision="deny")
    await there.close()
    found = lines(file)
    assert len(found) == audit.MOST_OF_STRANGERS + 1
    assert found[-1]["not_noted"] == 5


async def test_a_very_long_line_breaks_no_chain_that_several_gateways_write(tmp_path: Path) -> None:
    """Names are bounded where calls are read; whatever else may grow long is to be so here as well."""
    file, store = tmp_path / "audit.jsonl", MemoryStore(FakeClock())
    one, other = trail(file, store), trail(file, store)
    other.note("first")
    await until(lambda: file.is_file() and bool(verify([file]).lines))
    one.put({"time": one.time(), "event": "call", "target": "z" * 2_000_000})
    await until(lambda: verify([file]).lines == 2)
    other.note("last")
    await one.close()
    await other.close()
    assert verify([file]).wrong == ()
