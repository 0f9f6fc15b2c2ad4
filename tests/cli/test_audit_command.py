"""`toolgate audit`: what it prints of the file, and how it ends where the file is not as it was written."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from toolgate import state as stores
from toolgate.cli import app, progress
from toolgate.core.clock import SystemClock
from toolgate.core.redaction import Redactor
from toolgate.state import audit
from toolgate.state.audit import Trail, verify


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("TOOLGATE_CONFIG", "toolgate.toml")
    (tmp_path / "toolgate.toml").write_text('state = "kept"\n[audit]\nenabled = true\n')
    return tmp_path / "kept" / "audit.jsonl"


def note(file: Path, *events: str, anchored: bool = True) -> None:
    async def work() -> None:
        async with stores.opened(file.parent) as store:
            trail = Trail(file, SystemClock(), store if anchored else None, Redactor())
            for event in events:
                trail.note(event, "ann", number=1)
            await trail.close()

    asyncio.run(work())


def toolgate(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["audit", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_what_was_written_is_as_it_was_written(file: Path) -> None:
    note(file, "one", "two")
    ended = toolgate("verify")
    assert ended.exit_code == 0
    assert ended.stdout == f"2 lines, intact; last line: 2:{verify([file]).head.hash}\n"


def test_a_file_that_is_not_there_yet_is_said_to_be_so(file: Path) -> None:
    ended = toolgate("tail")
    assert ended.exit_code == 1 and "nothing has been recorded yet" in ended.stderr


def test_a_reader_that_has_had_enough_is_no_fault_of_the_file(file: Path) -> None:
    note(file, *["one"] * 2000)
    command = [sys.executable, "-m", "toolgate", "audit", "export"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as export:
        assert export.stdout and export.stderr
        assert export.stdout.readline()
        export.stdout.close()
        assert (export.stderr.read(), export.wait(60)) == (b"", 0)


def test_a_changed_byte_is_found_and_named(file: Path) -> None:
    note(file, "one", "two")
    file.write_bytes(file.read_bytes().replace(b"ann", b"bob", 1))
    ended = toolgate("verify")
    assert ended.exit_code == 1
    assert "audit.jsonl:1: this line was altered" in ended.stderr


def test_a_missing_end_is_found_by_the_store(file: Path) -> None:
    note(file, "one", "two", "three")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]))
    ended = toolgate("verify")
    assert ended.exit_code == 1
    assert "it ends at line 2, but line 3 was written" in ended.stderr
    file.unlink()
    assert toolgate("verify").exit_code == 1


def test_a_line_that_was_kept_elsewhere_must_be_there(file: Path) -> None:
    note(file, "one", "two", anchored=False)
    head = verify([file]).head
    assert "no known last line" in toolgate("verify").stdout
    assert toolgate("verify", "--head", f"{head.seq}:{head.hash}").exit_code == 0
    assert toolgate("verify", "--head", f"{head.seq}:{'0' * 64}").exit_code == 1
    assert toolgate("verify", "--head", "nonsense").exit_code == 2


def test_nothing_was_noted_yet(file: Path) -> None:
    ended = toolgate("verify")
    assert ended.exit_code == 0 and "nothing has been recorded yet" in ended.stdout
    assert not file.parent.exists(), "a question makes nothing"
    assert toolgate("tail").exit_code == 1


def test_the_last_lines_are_shown_for_people_or_as_they_are(file: Path) -> None:
    note(file, "one", "two\x1b[2J", "three")
    ended = toolgate("tail", "-n", "2")
    first, second = ended.stdout.splitlines()
    assert "two\\x1b[2J  ann  number=1" in first and "three" in second
    assert [json.loads(line)["event"] for line in toolgate("tail", "--json").stdout.splitlines()][2] == "three"
    assert toolgate("tail", "-n", "0").stdout == ""


def test_a_file_is_followed_also_into_the_next_one(file: Path) -> None:
    note(file, "one")
    command = [sys.executable, "-m", "toolgate", "audit", "tail", "-f", "--json"]
    following = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={"TOOLGATE_CONFIG": "toolgate.toml", "HOME": "/nowhere", "PYTHONUNBUFFERED": "1"},
    )
    bound = threading.Timer(60, following.kill)
    bound.start()
    try:
        assert following.stdout
        heard = [json.loads(following.stdout.readline())["event"]]
        note(file, "two")
        heard.append(json.loads(following.stdout.readline())["event"])
        assert toolgate("rotate", "old.jsonl").exit_code == 0
        note(file, "three")
        heard += [json.loads(following.stdout.readline())["event"] for _ in range(2)]
        assert heard == ["one", "two", "audit.rotated", "three"]
    finally:
        bound.cancel()
        following.kill()
        following.communicate()
    assert toolgate("verify", "old.jsonl", str(file)).exit_code == 0
    alone = toolgate("verify")
    assert alone.exit_code == 0 and "lines 1 to 2 are in files that were rotated" in alone.stdout


@pytest.mark.promise("b.operator.waits")
def test_who_waits_for_an_export_sees_how_far_it_is(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int, int]] = []

    class Watched(progress.Wait):
        def is_at(self, done: int, of: int) -> None:
            told.append((self._what, done, of))

    monkeypatch.setattr(progress, "waiting", lambda what: nullcontext(Watched(what)))
    monkeypatch.setattr(audit, "TOLD_EACH", 2)
    note(file, "one", "two", "three", "four", "five")
    ends = [len(b"".join(file.read_bytes().splitlines(keepends=True)[:number])) for number in (2, 4)]
    assert toolgate("export").stdout.encode() == file.read_bytes()
    assert told == [("exporting the audit log", end, file.stat().st_size) for end in ends]


def test_all_of_it_is_exported_as_lines_or_for_a_spreadsheet(file: Path) -> None:
    note(file, "=cmd()", "two")
    assert toolgate("export").stdout.encode() == file.read_bytes()
    rows = list(csv.DictReader(io.StringIO(toolgate("export", "--format", "csv").stdout)))
    assert [row["event"] for row in rows] == ["'=cmd()", "two"]
    assert rows[0]["more"] == '{"number": 1}'
    assert toolgate("export", "--format", "xml").exit_code == 2


def test_what_callers_wrote_ends_no_export(file: Path) -> None:
    note(file, "one", "a\ud800b", "three")
    rows = list(csv.DictReader(io.StringIO(toolgate("export", "--format", "csv").stdout)))
    assert [row["event"] for row in rows] == ["one", "a\\ud800b", "three"]


@pytest.mark.parametrize("line", [b"{", b"[" * 5000 + b"]" * 5000, b"7"])
def test_a_line_that_cannot_be_read_is_not_left_out(file: Path, line: bytes) -> None:
    note(file, "one")
    file.write_bytes(line + b"\n" + file.read_bytes())
    for only in ([], ["--since", "2080-01-01"]):
        exported = toolgate("export", *only).stdout.encode()
        assert exported.startswith(line + b"\n")
        assert "(unreadable)" in toolgate("export", "--format", "csv", *only).stdout


def test_what_is_of_a_time_is_exported(file: Path) -> None:
    note(file, "one")
    assert toolgate("export", "--since", "2020-01-01").stdout
    assert not toolgate("export", "--until", "2020-01-01").stdout
    assert not toolgate("export", "--since", "2080-01-01").stdout


def test_doctor_looks_whether_it_can_be_written(file: Path, tmp_path: Path) -> None:
    (tmp_path / "toolgate.toml").write_text(
        '[audit]\nenabled = true\npath = "toolgate.toml/a"\n[mcpServers.none]\ncommand = "true"\nenabled = false\n'
    )
    ended = CliRunner().invoke(app, ["doctor"])
    assert ended.exit_code == 1
    assert "toolgate.toml cannot be written to" in ended.stdout
