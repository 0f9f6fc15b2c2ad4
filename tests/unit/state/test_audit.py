"""The audit's file: what it holds, who shares it, what is found of it, and a disk that takes nothing."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import pwd
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from virtualtime import FakeClock

from toolgate.config import Audit, Auth, Config, KnownClient
from toolgate.core.clock import SystemClock
from toolgate.core.model import Principal
from toolgate.core.redaction import Redactor
from toolgate.state import audit
from toolgate.state.audit import Chain, Head, Mark, Trail, verify
from toolgate.state.memory import MemoryStore
from toolgate.state.pacing import MOST, MOST_OF_SERVER


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
    until_now(is_so)


def until_now(is_so: Callable[[], bool]) -> None:
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


def test_whoever_waits_for_a_verification_is_told_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "TOLD_EACH", 2)
    files, sizes = [tmp_path / "old.jsonl", tmp_path / "audit.jsonl"], list[int]()
    for file in files:
        chain = Chain(file)
        chain.append([b'{"event":"one"}', b'{"event":"two"}', b'{"event":"three"}'])
        chain.close()
        sizes.append(file.stat().st_size)
    heard: list[tuple[int, int]] = []
    audit.verify(files, Head(0, ""), lambda done, of: heard.append((done, of)))
    last = [len(file.read_bytes().splitlines(keepends=True)[-1]) for file in files]
    assert heard == [(sizes[0] - last[0], sum(sizes)), (sum(sizes) - last[1], sum(sizes))]
    assert audit.verify(files).lines == 6  # nobody waits


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
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", f"cannot write the audit log: {file}: No space left on device"),
        ("WARNING", f"the audit log can be written again: {file}"),
    ]


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
    for number in range(MOST + 5):
        there.note_of_strangers("login", by="a", kind="expired", decision="deny", number=number)
    await there.close()
    found = lines(file)
    assert len(found) == MOST + 1
    assert (found[-1]["not_noted"], found[-1]["number"]) == (4, MOST + 4)
    assert found[-1]["not_noted_since"] <= found[-1]["time"]


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


# What is noted.


async def test_who_is_noted_with_what_is_known_of_them_and_nothing_that_is_empty(tmp_path: Path) -> None:
    there = trail(tmp_path / "audit.jsonl")
    there.note("one", Principal("bob", client="ci"), reason="", number=0, list=["x" * 3000], flag=False)
    there.note("two", reason="x" * audit.LONGEST)
    there.note("three", "cli:ann", reason="x" * (audit.LONGEST + 1))
    await there.close()
    one, two, three = (
        {name: value for name, value in line.items() if name not in ("seq", "prev", "hash", "time")}
        for line in lines(tmp_path / "audit.jsonl")
    )
    assert one == {"event": "one", "who": "bob", "client": "ci", "number": 0, "list": ["x" * 3000], "flag": False}
    assert two == {"event": "two", "reason": "x" * audit.LONGEST}
    assert three == {"event": "three", "who": "cli:ann", "reason": "x" * audit.LONGEST}


async def test_secrets_are_taken_out_before_a_text_is_cut_and_out_of_what_is_deeper(tmp_path: Path) -> None:
    secret = "canary-0123456789"
    there = trail(tmp_path / "audit.jsonl", None, secret)
    assert there.redactor.text(secret) == "[secret]"
    there.note("one", reason="x" * (audit.LONGEST - 5) + " " + secret, deep={"er": secret})
    await there.close()
    (line,) = lines(tmp_path / "audit.jsonl")
    assert line["deep"] == {"er": "[secret]"} and line["reason"].startswith("x") and "canary" not in line["reason"]


async def test_changes_are_noted_where_calls_are_not_unless_nothing_is_to_be(tmp_path: Path) -> None:
    ann = (KnownClient(id="ann", name="ann"),)
    wanted = {
        "calls, changes": Config(clients=ann),
        "changes": Config(),
        "all of it": Config(audit=Audit(enabled=True)),
        "": Config(clients=ann, audit=Audit(enabled=False)),
    }
    noted: dict[str, list[str]] = {}
    for name, config in wanted.items():
        file = tmp_path / (name or "none")
        there = trail(file)
        assert there.is_on and there.notes_changes
        there.use(config)
        there.note("call")
        there.note_change("change", "cli:ann", client="ci")
        there.put({"event": "put"})
        if there.is_on:
            there.note_change("nobody's")
        await there.close()
        noted[name] = [line["event"] for line in lines(file)] if file.exists() else []
    assert noted == {
        "calls, changes": ["call", "change", "put", "nobody's"],
        "changes": ["change"],
        "all of it": ["call", "change", "put", "nobody's"],
        "": [],
    }
    (change,) = lines(tmp_path / "changes")
    assert (change["who"], change["client"]) == ("cli:ann", "ci")
    assert "who" not in lines(tmp_path / "all of it")[-1]


async def test_where_there_is_no_file_nothing_is_noted() -> None:
    there = audit.nowhere(FakeClock())
    assert not there.is_on and not there.notes_changes and there.file is None
    there.use(Config(audit=Audit(enabled=True)))
    there.note("one")
    there.put({"event": "two"})
    await there.close()
    assert there.problem == ""
    redactor = Redactor()
    assert audit.nowhere(FakeClock(), redactor).redactor is redactor


@pytest.mark.parametrize(
    ("wall", "shown"),
    [
        (1_800_000_000.0, "2027-01-15T08:00:00.000000Z"),
        (1_800_000_000.25, "2027-01-15T08:00:00.250000Z"),
        (1_800_000_000.999999, "2027-01-15T08:00:00.999999Z"),
        (1_800_000_001.000015, "2027-01-15T08:00:01.000015Z"),
        (0.0, "1970-01-01T00:00:00.000000Z"),
        (1.5, "1970-01-01T00:00:01.500000Z"),
    ],
)
def test_the_time_is_told_to_the_microsecond_wherever_it_is(
    wall: float, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class At(FakeClock):
        def wall(self) -> float:
            return wall

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    there = audit.nowhere(At())
    assert there.time() == there.time() == shown
    monkeypatch.undo()
    time.tzset()


async def test_a_stranger_holds_back_no_line_of_another_nor_of_a_server(tmp_path: Path) -> None:
    there = trail(tmp_path / "audit.jsonl")
    for _ in range(MOST + 1):
        there.note_of_strangers("login", by="a", kind="expired", who="a")
    there.note_of_strangers("login", by="a", kind="unknown", who="a")
    there.note_of_strangers("login", by="b", kind="expired", who="b")
    for _ in range(MOST + 1):
        there.note_of_server("stderr", server="s", line="x")
    await there.close()
    told = [(line["event"], line.get("who"), line.get("server")) for line in lines(there.file or Path())][MOST:]
    a, b, server = ("login", "a", None), ("login", "b", None), ("stderr", None, "s")
    assert told == [a, b, *[server] * (MOST + 1), a]


async def test_a_line_has_the_time_of_what_it_tells_and_not_that_of_its_writing(tmp_path: Path) -> None:
    clock = FakeClock()
    there = Trail(tmp_path / "audit.jsonl", clock, MemoryStore(clock), Redactor())
    there.note("plain")
    await clock.advance(1)
    came = there.time()
    for _ in range(MOST + 2):
        there.note_of_strangers("login", by="a", kind="expired")
    for _ in range(MOST_OF_SERVER + 2):
        there.note_of_server("stderr", server="s")
    await clock.advance(60)
    await there.close()
    plain, *others = lines(tmp_path / "audit.jsonl")
    assert plain["time"] < came and plain["time"][:4].isdigit()
    assert {line["time"] for line in others} == {came}
    assert [line["not_noted_since"] for line in others if "not_noted" in line] == [came, came]


async def test_lines_of_one_server_hold_back_none_of_another_nor_of_another_kind(tmp_path: Path) -> None:
    there = trail(tmp_path / "audit.jsonl")
    for _ in range(MOST_OF_SERVER):
        there.note_of_server("stderr", server="s")
    for _ in range(2):
        there.note_of_server("stderr", server="t")
        there.note_of_server("restart", server="s")
    await there.close()
    found = lines(tmp_path / "audit.jsonl")
    assert len(found) == MOST_OF_SERVER + 4 and not any("not_noted" in line for line in found)


async def test_where_nothing_is_noted_what_was_held_back_is_not_either(tmp_path: Path) -> None:
    there = trail(tmp_path / "audit.jsonl")
    for _ in range(MOST + 1):
        there.note_of_strangers("login", by="a", kind="expired")
    there.is_on = False
    await there.close()
    assert len(lines(tmp_path / "audit.jsonl")) == MOST


async def test_of_a_line_that_is_too_long_long_members_are_noted_by_their_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = trail(tmp_path / "audit.jsonl")
    longest = audit.LONGEST_LINE - len('{"event":""}')
    there.put({"event": "x" * longest})
    there.put({"event": "x" * (longest + 1), "kept": "y" * 8190, "long": "y" * 8191, "n" * 101: 7, "deep": [1]})
    await there.close()
    whole, by_hash = lines(tmp_path / "audit.jsonl")
    assert len(whole["event"]) == longest
    text = json.dumps("x" * (longest + 1)).encode()
    assert by_hash["event"] == {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    assert len(by_hash["kept"]) == 8190 and by_hash["long"]["bytes"] == 8193
    assert by_hash["n" * 100] == 7 and by_hash["deep"] == [1]


# What waits, and what is lost.


async def test_as_much_waits_as_may_and_what_is_lost_is_told_with_its_time_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = {"event": "12345"}
    monkeypatch.setattr(audit, "MOST_WAITING", 2 * len(json.dumps(record, separators=(",", ":"))))
    monkeypatch.setattr(audit, "GATHER", 60.0)
    file = tmp_path / "audit.jsonl"
    there = trail(file)
    there.put(record)
    there.put(record)
    assert there.problem == ""
    there.put(record)
    assert there.problem == f"the audit log grows faster than it can be written: {file}"
    await asyncio.sleep(5)
    there.put(record)
    when = there.time()
    await there.close()
    assert [line["event"] for line in lines(file)] == ["12345", "12345", "audit.lost"]
    assert (lines(file)[2]["lines"], lines(file)[2]["time"]) == (2, when)
    assert there.problem == ""


async def test_what_comes_after_the_end_is_lost(tmp_path: Path) -> None:
    there = trail(tmp_path / "audit.jsonl")
    there.note("one")
    await there.close()
    there.note("two")
    await there.close()
    assert [line["event"] for line in lines(tmp_path / "audit.jsonl")] == ["one"]
    assert there.problem


async def test_what_is_written_waits_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MOST_WAITING", 100)
    monkeypatch.setattr(audit, "GATHER", 0.0)
    there = trail(tmp_path / "audit.jsonl")
    for number in range(1, 6):
        there.put({"event": "x" * 50})
        assert there.problem == ""
        await until(lambda number=number: there._written == 62 * number)
    await there.close()


async def test_what_was_lost_before_is_not_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MOST_WAITING", 100)
    file = tmp_path / "audit.jsonl"
    there = trail(file)
    for _ in range(2):
        for _ in range(10):
            there.put({"event": "x" * 50})
        await until(lambda: not there._waiting and not there.problem)
    await there.close()
    lost = [line["lines"] for line in lines(file) if line["event"] == audit.LOST]
    assert sum(lost) == 20 - sum(line["event"] != audit.LOST for line in lines(file))


async def test_a_failure_is_told_in_the_words_of_the_system_or_in_those_of_whoever_refuses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "audit.jsonl"
    for error, why in ((OSError(errno.EIO, "Input/output error", "x"), "Input/output error"), (OSError("odd"), "odd")):

        def fails(*_: Any, error: OSError = error) -> Any:
            raise error

        caplog.clear()
        monkeypatch.setattr(Chain, "append", fails)
        there = trail(file)
        there.note("one")
        await there.close()
        assert there.problem == f"cannot write the audit log: {file}: {why}"
        assert [record.getMessage() for record in caplog.records] == [there.problem]
    assert not file.exists()


# The thread that writes.


class Waits(threading.Event):
    """How long it was waited for, each time."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.told.append(timeout)
        return super().wait(timeout)


def waiting(there: Trail) -> tuple[Waits, Waits]:
    there._is_some, there._hurry = some, hurry = Waits(), Waits()
    return some, hurry


async def test_the_thread_sleeps_until_something_is_noted_and_gathers_what_follows(tmp_path: Path) -> None:
    there = trail(tmp_path / "audit.jsonl")
    some, hurry = waiting(there)
    there.note("one")
    thread = there._thread
    assert thread and thread.daemon and thread.name == "toolgate audit"  # it keeps no process from ending
    there.note("two")
    assert there._thread is thread
    await there.close()
    assert not thread.is_alive()
    assert (some.told, hurry.told) == ([None], [audit.GATHER])


async def test_while_something_could_not_be_written_the_thread_wakes_every_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", _full)
    there = trail(tmp_path / "audit.jsonl")
    some, _ = waiting(there)
    there.note("one")
    await until(lambda: len(some.told) == 2)
    monkeypatch.undo()
    await there.close()
    assert some.told == [None, audit.RETRY]
    assert [line["event"] for line in lines(tmp_path / "audit.jsonl")] == ["one"]


async def test_without_a_store_a_trail_writes_all_the_same(tmp_path: Path) -> None:
    there = Trail(tmp_path / "audit.jsonl", FakeClock(), None, Redactor())
    there.note("one")
    await there.close()
    assert [line["seq"] for line in lines(tmp_path / "audit.jsonl")] == [1]


def test_what_was_noted_is_written_where_the_loop_has_ended_since(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    made: list[Trail] = []

    async def noted() -> None:
        made.append(Trail(file, SystemClock(), MemoryStore(SystemClock()), Redactor()))
        made[0].note("one")

    asyncio.run(noted())
    until_now(lambda: file.exists() and bool(file.read_bytes()))
    made[0]._put_line({"event": "two"})
    made[0]._hurry.set()
    thread = made[0]._thread
    assert thread
    thread.join(60)
    assert [line["event"] for line in lines(file)] == ["one", "two"]


# The last line, in the store.


async def test_last_lines_are_anchored_together_and_not_more_often_than_every_second() -> None:
    store, written = MemoryStore(FakeClock()), list[float]()
    begun = FakeClock().now()

    class Counted(MemoryStore):
        def compare_and_set(self, *args: Any, **more: Any) -> Any:
            written.append(FakeClock().now() - begun)
            return super().compare_and_set(*args, **more)

    store = Counted(FakeClock())
    anchors = audit.Anchors(store, "file", FakeClock())
    assert anchors.known() == audit.NOTHING
    for number in (1, 3, 2):
        anchors.note(Head(number, f"{number}" * 64))
        await asyncio.sleep(0.3)
    await asyncio.sleep(0.2)
    assert anchors.known() == Head(3, "3" * 64)
    anchors.note(Head(4, "4" * 64))
    await asyncio.sleep(1.1)
    assert written == pytest.approx([1.0, 2.1])
    anchors.note(Head(4, "x" * 64))  # nothing new
    await asyncio.sleep(1.1)
    await anchors.close(Head(4, "4" * 64))
    assert len(written) == 2
    assert store.get("audit", "file") == msgspec.msgpack.encode(Head(4, "4" * 64))


async def test_at_the_end_the_last_line_is_anchored_at_once_and_none_after_it() -> None:
    store = MemoryStore(FakeClock())
    anchors = audit.Anchors(store, "file", FakeClock())
    anchors.note(Head(1, "1" * 64))
    await anchors.close(Head(2, "2" * 64))
    assert anchors.known() == Head(2, "2" * 64)
    anchors.note(Head(3, "3" * 64))
    await asyncio.sleep(5)
    assert anchors.known() == Head(2, "2" * 64)
    silent = audit.Anchors(store, "silent", FakeClock())
    await silent.close(Head(2, "2" * 64))
    silent.note(Head(3, "3" * 64))
    await asyncio.sleep(5)
    assert silent.known() == Head(2, "2" * 64)
    older = audit.Anchors(store, "other", FakeClock())
    older.note(Head(2, "2" * 64))
    await older.close(Head(1, "1" * 64))
    assert older.known() == Head(2, "2" * 64)


async def test_an_anchor_is_written_again_where_another_gateway_came_first() -> None:
    class Raced(MemoryStore):
        """Another gateway is furthest in between, the first time."""

        async def compare_and_set(self, space: str, key: str, old: Any, new: Any, ttl: Any = None) -> bool:  # type: ignore[override]
            if old is None:
                await self.put(space, key, msgspec.msgpack.encode(other))
            return await MemoryStore.compare_and_set(self, space, key, old, new, ttl)

    for other, last in ((Head(1, "1" * 64), Head(2, "2" * 64)), (Head(3, "3" * 64), Head(3, "3" * 64))):
        anchors = audit.Anchors(Raced(FakeClock()), "file", FakeClock())
        await anchors.close(Head(2, "2" * 64))
        assert anchors.known() == last


async def test_the_end_waits_for_an_anchor_that_is_being_written() -> None:
    class Slow(MemoryStore):
        async def compare_and_set(self, *args: Any, **more: Any) -> bool:  # type: ignore[override]
            await asyncio.sleep(10)
            return await MemoryStore.compare_and_set(self, *args, **more)

    store = Slow(FakeClock())
    anchors = audit.Anchors(store, "file", FakeClock())
    anchors.note(Head(1, "1" * 64))
    await asyncio.sleep(2)
    anchors.note(Head(2, "2" * 64))
    await asyncio.sleep(2)  # due again, while the first is under way
    await anchors.close(Head(2, "2" * 64))
    assert anchors.known() == Head(2, "2" * 64)


async def test_a_store_that_keeps_nothing_or_something_else_ends_nothing() -> None:
    store = MemoryStore(FakeClock())
    anchors = audit.Anchors(store, "file", FakeClock())
    for kept in (b"\xc1", b"", msgspec.msgpack.encode("x"), msgspec.msgpack.encode(["x"])):
        await store.put("audit", "file", kept)
        assert anchors.known() == audit.NOTHING
    await store.close()
    await anchors.close(Head(1, "1" * 64))


async def test_a_trail_goes_on_after_what_is_anchored(tmp_path: Path) -> None:
    file, store = tmp_path / "audit.jsonl", MemoryStore(FakeClock())
    await store.put("audit", str(file), msgspec.msgpack.encode(Head(7, "7" * 64)))
    await noted(file, "one", store=store)
    assert [line["seq"] for line in lines(file)] == [8]
    assert audit.Anchors(store, str(file), FakeClock()).known() == verify([file]).head


# Where it is, and whose.


def test_the_file_stands_beside_the_configuration_or_in_the_state(tmp_path: Path) -> None:
    source, state = str(tmp_path / "conf" / "toolgate.toml"), str(tmp_path / "state")
    assert audit.place(Config(source=source, state=state), {}) == tmp_path / "state" / "audit.jsonl"
    beside = Config(source=source, state=state, audit=Audit(path="../conf/logs/a.jsonl"))
    assert audit.place(beside, {}) == tmp_path / "conf" / "logs" / "a.jsonl"
    near = Config(source=source, state=state, audit=Audit(path="a.jsonl"))
    assert audit.place(near, {}) == tmp_path / "conf" / "a.jsonl"
    assert audit.place(Config(source=source, audit=Audit(path="/var/log/a.jsonl")), {}) == Path("/var/log/a.jsonl")


def test_at_home_the_file_stands_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert audit.place(Config(source="/etc/toolgate.toml", audit=Audit(path="~/a.jsonl")), {}) == tmp_path / "a.jsonl"


def test_who_works_at_the_command_line_has_a_name_or_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert audit.operator() == f"cli:{pwd.getpwuid(os.getuid()).pw_name}"

    def unknown(_uid: int) -> Any:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert audit.operator() == f"cli:{os.getuid()}"


# What is read back.


def test_of_a_long_file_only_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a"
    monkeypatch.setattr(audit, "BLOCK", 8)
    written = [b"line-%d" % number for number in range(20)]
    file.write_bytes(b"".join(line + b"\n" for line in written))
    for number in range(23):
        assert audit.last_lines(file, number) == (written[-number:] if number else [])
    with file.open("rb") as opened:
        assert audit.end_of(opened, 2) == written[-2:]
        assert opened.tell() == file.stat().st_size


def test_every_line_is_reached_portion_by_portion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a"
    monkeypatch.setattr(audit, "BLOCK", 8)
    written = [b"line-%d %s" % (number, b"odd" if number % 2 else b"even") for number in range(50)]
    file.write_bytes(b"".join(line + b"\n" for line in written))
    with file.open("rb") as opened:
        for holding, number, most in ((b"", 7, None), (b"odd", 3, 40), (b"", 50, 13), (b"nothing", 1, 20)):
            at, found = file.stat().st_size, list[bytes]()
            while at:
                lines, before = audit.lines_before(opened, at, number, holding, most)
                assert before < at and len(lines) <= number
                at, found = before, [*lines, *found]
            assert found == [line for line in written if holding in line]


async def test_a_mark_is_good_for_the_file_that_it_was_made_for(tmp_path: Path) -> None:
    file = tmp_path / "a"
    await noted(file, "one", "two", "three")
    found, mark = trail(file).lines(2)
    assert [json.loads(line)["event"] for line in found] == ["two", "three"] and mark
    found, end = trail(file).lines(2, before=mark)
    assert [json.loads(line)["event"] for line in found] == ["one"] and end is None
    data = file.read_bytes()
    assert trail(file).lines(2, before=Mark(file.stat().st_ino, len(data))) == trail(file).lines(2)
    file.rename(tmp_path / "aside")
    file.write_bytes(data)
    for strange in (mark, Mark(file.stat().st_ino, len(data) + 1)):
        with pytest.raises(LookupError):
            trail(file).lines(2, before=strange)


def test_no_more_than_so_many_bytes_are_read_of_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a"
    monkeypatch.setattr(audit, "BLOCK", 4)
    file.write_bytes(b"one\ntwo\nthree\n")
    with file.open("rb") as opened:
        assert audit.lines_before(opened, 14, 10, most=6) == ([b"three"], 8)
        assert audit.lines_before(opened, 14, 10, most=7) == ([b"three"], 8), "a line that begins before is left"
        assert audit.lines_before(opened, 14, 10, most=10) == ([b"two", b"three"], 4)
        assert audit.lines_before(opened, 14, 10, most=1000) == ([b"one", b"two", b"three"], 0)
        assert audit.lines_before(opened, 14, 10, most=3) == ([b"ee"], 11), "but for what is left of a longer one"
        assert audit.end_of(opened, 10) == [b"one", b"two", b"three"]
    file.write_bytes(b"long\n\n")
    with file.open("rb") as opened:
        assert audit.lines_before(opened, 6, 10, most=2) == ([b""], 5), "an empty line is one"
    file.write_bytes(b"")
    assert audit.last_lines(file, 3) == []


async def test_the_last_lines_are_json_whatever_became_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    there = trail(file)
    assert there.lines(3)[0] == []
    assert trail(file).verified().remark == "nothing has been noted yet"
    for event in ("one", "two", "three"):
        there.note(event)
    await there.close()
    assert [json.loads(line)["event"] for line in there.lines(2)[0]] == ["two", "three"]
    assert [json.loads(line)["event"] for line in there.lines(5, b'"event":"t')[0]] == ["two", "three"]
    assert [json.loads(line)["event"] for line in there.lines(1, b'"event":"o')[0]] == ["one"]
    assert there.lines(2)[0] == file.read_bytes().splitlines()[-2:]
    with file.open("ab") as appended:
        appended.write(b'half of a line \xff"\n')
    assert json.loads(there.lines(1)[0][0]) == 'half of a line \ufffd"'


async def test_a_search_looks_at_a_portion_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "audit"
    monkeypatch.setattr(audit, "LONGEST_SEARCH", 600)
    there = trail(file)
    for number in range(40):
        there.note("one" if number % 2 else "two")
    await there.close()
    found, mark = there.lines(40, b'"event":"one"')
    whole = [json.loads(line) for line in found]
    assert 0 < len(whole) < 5 and all(line["event"] == "one" for line in whole)
    assert mark, "it can go on"


async def test_a_trail_verifies_its_own_file_by_what_the_store_knows(tmp_path: Path) -> None:
    file, store = tmp_path / "audit", MemoryStore(FakeClock())
    await noted(file, "one", "two", store=store)
    verdict = trail(file, store).verified()
    assert (verdict.wrong, verdict.lines, verdict.head.seq) == ((), 2, 2)
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    assert trail(file, store).verified().wrong
    assert not trail(file).verified().wrong
    file.unlink()
    with pytest.raises(OSError):
        trail(file, store).verified()


async def test_what_a_server_or_a_stranger_brings_about_has_the_time_when_it_was(tmp_path: Path) -> None:
    file, clock = tmp_path / "audit", FakeClock()
    there = Trail(file, clock, MemoryStore(clock), Redactor())
    for _ in range(2 * MOST_OF_SERVER):
        there.note_of_server("asked", server="there", what="a thing")
        there.note_of_strangers("login", by="192.0.2.1", kind="unknown", decision="deny")
    came = there.time()
    await clock.advance(100_000)
    there.note_of_server("asked", server="other")
    await there.close()
    written = lines(file)
    assert {line["time"] for line in written[:-1] if "not_noted" not in line} == {came}
    first = next(line for line in written if line["event"] == "asked")
    assert "who" not in first and first["server"] == "there" and "not_noted" not in first
    more = [line for line in written if "not_noted" in line]
    assert sum(line["not_noted"] for line in more) + len(written) - 1 == 4 * MOST_OF_SERVER
    assert all(line["not_noted_since"] == came for line in more)


async def test_nothing_is_noted_yet_where_there_is_no_file(tmp_path: Path) -> None:
    for there in (audit.nowhere(FakeClock()), trail(tmp_path / "none")):
        verdict = there.verified()
        assert (verdict.remark, verdict.lines, verdict.head) == ("nothing has been noted yet", 0, audit.NOTHING)
        assert there.lines(5)[0] == []
