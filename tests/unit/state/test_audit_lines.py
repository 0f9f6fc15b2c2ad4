"""The lines of the audit's file by themselves: what they are, what `verify` finds of them, and who may append to them.
What is noted, and when, is in `test_audit.py`."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from toolgate.config import ownership
from toolgate.state import audit
from toolgate.state.audit import NOTHING, AuditVerdict, Chain, Head, chained, read_line, trouble, verify

ONE, TWO, THREE = b'{"event":"one"}', b'{"event":"two"}', b'{"event":"three"}'
ROTATED = b'{"time":"now","event":"audit.rotated"}'


def lines(*records: bytes, after: Head = NOTHING) -> list[bytes]:
    return chained(after, records)[0].splitlines(keepends=True)


def head(*records: bytes, after: Head = NOTHING) -> Head:
    return chained(after, records)[1]


def found(tmp_path: Path, *files: Sequence[bytes], anchor: Head = NOTHING) -> AuditVerdict:
    """What `verify` says of files that hold these lines; they are named 1, 2 and so on."""
    paths = [tmp_path / str(number) for number in range(1, len(files) + 1)]
    for path, each in zip(paths, files, strict=True):
        path.write_bytes(b"".join(each))
    return verify(paths, anchor)


# What a line is.


def test_a_line_is_bound_to_the_one_before_and_ends_with_the_hash_of_all_that_stands_before_it() -> None:
    data, last = chained(Head(6, "a" * 64), [ONE, TWO])
    first, second, rest = data.split(b"\n")
    assert rest == b""
    said = first[: first.index(b',"hash"')]
    assert said == b'{"seq":7,"prev":"%b","event":"one"' % (b"a" * 64)
    assert json.loads(first)["hash"] == hashlib.sha256(said).hexdigest() == json.loads(second)["prev"]
    assert last == Head(8, json.loads(second)["hash"])
    assert chained(last, []) == (b"", last)


def test_a_line_that_is_as_it_was_written_says_which_it_is() -> None:
    (line,) = lines(ONE, after=Head(6, "a" * 64))
    read = read_line(line[:-1])
    assert read and (read.seq, read.prev) == (7, "a" * 64)
    assert read.head == head(ONE, after=Head(6, "a" * 64))


@pytest.mark.parametrize(
    "altered",
    [b"", b"{}", ONE, b" %b", b"%b ", b'{"x":1,"seq%b'],
)
def test_a_line_that_is_not_as_it_was_written_is_none(altered: bytes) -> None:
    (line,) = lines(ONE)
    assert read_line(altered.replace(b"%b", line[:-1])) is None
    assert read_line(line[:-1].replace(b"one", b"two")) is None
    assert read_line(line[:-1].replace(b'"seq":1', b'"seq":2')) is None


# What is found of files.


def test_files_that_hold_every_line_are_right_up_to_the_last(tmp_path: Path) -> None:
    last = head(ONE, TWO, THREE)
    one, two, three = lines(ONE, TWO, THREE)
    assert found(tmp_path, [one, two, three]) == AuditVerdict(last, 3, (), "")
    assert found(tmp_path, [one], [two, three], anchor=last) == AuditVerdict(last, 3)
    assert found(tmp_path, [one, two, three], anchor=head(ONE, TWO)) == AuditVerdict(last, 3)
    assert found(tmp_path, []) == AuditVerdict(NOTHING, 0)


@pytest.mark.parametrize("altered", [b"torn\n", b"\n", b'{"seq":2}\n'])
def test_an_altered_line_is_named_and_those_behind_it_are_right(tmp_path: Path, altered: bytes) -> None:
    one, _, three = lines(ONE, TWO, THREE)
    verdict = found(tmp_path, [one, altered, three])
    assert verdict == AuditVerdict(head(ONE, TWO, THREE), 3, ("1:2: this line was altered",))


def test_two_altered_lines_are_two_numbers(tmp_path: Path) -> None:
    one, *_, four = lines(ONE, TWO, THREE, ONE)
    wrong = ("1:2: this line was altered", "1:3: this line was altered")
    assert found(tmp_path, [one, b"x\n", b"y\n", four]).wrong == wrong
    assert found(tmp_path, [one, b"x\n", b"y\n"]).head == Head(3, "")


def test_a_line_without_its_end_is_altered(tmp_path: Path) -> None:
    one, two = lines(ONE, TWO)
    assert found(tmp_path, [one, two[:-1]]).wrong == ("1:2: this line was altered",)
    assert found(tmp_path, [one, two[:-1] + b" "]).wrong == ("1:2: this line was altered",)


def test_a_line_that_is_gone_is_missed(tmp_path: Path) -> None:
    one, _, three = lines(ONE, TWO, THREE)
    assert found(tmp_path, [one, three]).wrong == ("1:2: line 3 comes after line 1",)
    assert found(tmp_path, [one], [three]).wrong == ("2:1: line 3 comes after line 1",)


def test_a_line_in_the_place_of_another_does_not_continue_the_one_before(tmp_path: Path) -> None:
    one, two, three = lines(ONE, TWO, THREE)
    (other,) = lines(TWO, after=Head(1, "f" * 64))
    wrong = tuple(f"1:{number}: line {number} does not continue the previous line" for number in (2, 3))
    assert found(tmp_path, [one, other, three]).wrong == wrong
    assert found(tmp_path, [one, two, three, three]).wrong == ("1:4: line 3 comes after line 3",)


def test_where_the_first_line_is_not_the_first_that_is_said(tmp_path: Path) -> None:
    _, two, three = lines(ONE, TWO, THREE)
    assert found(tmp_path, [two, three]) == AuditVerdict(head(ONE, TWO, THREE), 2, ("1:1: it starts with line 2",))
    (other,) = lines(ONE, after=Head(0, "f" * 64))
    assert found(tmp_path, [other]).wrong == ("1:1: it starts with line 1",)
    assert found(tmp_path, [b"x\n", two]).wrong == ("1:1: this line was altered", "1:2: it starts with line 2")


def test_a_file_that_goes_on_where_another_ends_says_which_lines_are_elsewhere(tmp_path: Path) -> None:
    before = head(ONE, TWO)
    verdict = found(tmp_path, lines(ROTATED, THREE, after=before))
    remark = "lines 1 to 2 are in files that were rotated: give those files first"
    assert verdict == AuditVerdict(head(ROTATED, THREE, after=before), 2, (), remark)
    assert found(tmp_path, lines(ONE, TWO), lines(ROTATED, after=before)).remark == ""
    arguments = b'{"event":"call","arguments":{"event":"audit.rotated"}}'
    assert found(tmp_path, lines(arguments, after=before)).wrong == ("1:1: it starts with line 3",)
    for unreadable in (b'{"event":7}', b'{"event":"\xff"}', b'{"event":' + b"[" * 9000 + b"]" * 9000 + b"}"):
        assert found(tmp_path, lines(unreadable, after=before)).wrong == ("1:1: it starts with line 3",)


def test_an_anchor_says_what_was_written_at_least(tmp_path: Path) -> None:
    whole = lines(ONE, TWO)
    short = found(tmp_path, whole, anchor=Head(3, "f" * 64))
    assert short.wrong == ("it ends at line 2, but line 3 was written",)
    other = found(tmp_path, whole, anchor=Head(2, "f" * 64))
    assert other.wrong == ("line 2 is not the one that was written",)
    nothing = found(tmp_path, [], anchor=Head(1, "f" * 64))
    assert nothing == AuditVerdict(NOTHING, 0, ("it ends at line 0, but line 1 was written",))
    torn = found(tmp_path, [whole[0], b"x\n"], anchor=head(ONE, TWO))
    assert torn.wrong == ("1:2: this line was altered", "line 2 is not the one that was written")


def test_of_what_is_wrong_the_first_twenty_are_named(tmp_path: Path) -> None:
    wrong = found(tmp_path, [b"x\n"] * 30).wrong
    assert wrong == tuple(f"1:{number}: this line was altered" for number in range(1, 21))


def test_lines_that_are_longer_than_what_is_read_at_once_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_TAIL", 10)
    whole = lines(ONE, TWO, THREE)
    assert found(tmp_path, whole) == AuditVerdict(head(ONE, TWO, THREE), 3)
    assert found(tmp_path, [*whole, b"rest"]).wrong == ("1:4: this line was altered",)


def test_what_is_written_while_it_is_verified_is_left_for_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = tmp_path / "file", os.read
    file.write_bytes(b"".join(lines(ONE)))

    def meanwhile(descriptor: int, size: int) -> bytes:
        with file.open("ab") as more:
            more.write(b"half of")
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", meanwhile)
    assert verify([file]) == AuditVerdict(head(ONE), 1)


# Who appends.


def test_what_others_have_appended_is_gone_on_from(tmp_path: Path) -> None:
    file = tmp_path / "file"
    one, other = Chain(file), Chain(file)
    assert one.append([ONE]) == head(ONE) == one.head
    assert other.append([TWO]) == head(ONE, TWO)
    assert one.append([THREE]) == head(ONE, TWO, THREE)
    assert verify([file]) == AuditVerdict(head(ONE, TWO, THREE), 3)
    one.close()
    one.close()
    assert one.append([ONE]) == head(ONE, TWO, THREE, ONE)


def test_a_line_may_hold_any_white_space(tmp_path: Path) -> None:
    odd = b'{"event":"a b\x0b\x85"}'
    Chain(tmp_path / "file").append([odd])
    assert Chain(tmp_path / "file").append([ONE]) == head(odd, ONE)


def test_a_file_that_nobody_else_has_written_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain(tmp_path / "file")
    chain.append([ONE])
    monkeypatch.setattr(os, "pread", None)
    assert chain.append([TWO]) == head(ONE, TWO)
    assert chain.append([THREE]) == head(ONE, TWO, THREE)


def test_a_line_is_looked_for_in_the_end_of_a_long_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x\n" * 5000 + b"".join(lines(ONE, TWO)) + b"torn")
    size, pread = file.stat().st_size, os.pread
    monkeypatch.setattr(audit, "_TAIL", 500)
    asked: list[tuple[int, int]] = []

    def counted(descriptor: int, most: int, start: int) -> bytes:
        asked.append((most, start))
        return pread(descriptor, most, start)

    monkeypatch.setattr(os, "pread", counted)
    assert Chain(file).append([THREE]) == head(ONE, TWO, THREE)
    assert asked == [(500, size - 500), (1, size - 1)]
    assert file.read_bytes().endswith(b"torn\n" + lines(ONE, TWO, THREE)[2])


@pytest.mark.parametrize("torn", [b"x", b"xx", b"x\n"])
def test_what_was_torn_at_the_very_beginning_stays_for_all_to_see(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "file").write_bytes(torn)
    Chain(tmp_path / "file").append([ONE])
    assert (tmp_path / "file").read_bytes() == torn.removesuffix(b"\n") + b"\n" + lines(ONE)[0]


def test_nothing_goes_before_what_is_known_to_have_been_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"".join(lines(ONE)))
    assert Chain(file, Head(5, "a" * 64)).append([TWO]).seq == 6
    assert Chain(file, head(ONE)).append([TWO]).seq == 7
    other = tmp_path / "other"
    other.write_bytes(b"".join(lines(ONE)))
    known = Head(1, "f" * 64)
    assert Chain(other, known).append([TWO]) == head(TWO, after=known)  # it is seen that line 1 was another


def test_it_is_kept_for_its_owner_alone_and_reopened_where_it_was_moved(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "file"
    chain = Chain(file)
    chain.append([ONE])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.rename(tmp_path / "aside")
    chain.append([TWO])
    assert file.read_bytes() == lines(ONE, TWO)[1]
    assert (tmp_path / "aside").read_bytes() == lines(ONE)[0]
    for mode in (0o640, 0o610, 0o604, 0o601):
        file.chmod(mode)
        chain.append([THREE])
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_may_be_anothers_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch(0o600)
    os.link(file, tmp_path / "other")
    with pytest.raises(ownership.NotOurs) as raised:
        Chain(file).append([ONE])
    assert (raised.value.why, raised.value.filename) == ("has another hard link: remove one of them", str(file))
    (tmp_path / "other").unlink()
    link = tmp_path / "link"
    link.symlink_to(file)
    with pytest.raises(OSError, match="Too many levels"):
        Chain(link).append([ONE])
    monkeypatch.setattr(ownership, "problem", lambda _found: "belongs to another user")
    with pytest.raises(ownership.NotOurs, match="belongs to another user") as raised:
        Chain(file).append([ONE])
    assert raised.value.filename == str(file)
    assert file.read_bytes() == b""


def test_a_device_takes_lines_too(tmp_path: Path) -> None:
    assert Chain(Path("/dev/null")).append([ONE]) == head(ONE)


def test_where_the_disk_takes_a_part_only_the_rest_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    file = tmp_path / "file"
    Chain(file).append([ONE, TWO])
    assert file.read_bytes() == b"".join(lines(ONE, TWO))


def test_what_is_written_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    chain = Chain(tmp_path / "file")
    chain.append([ONE])
    assert synced == [chain._open]
    Chain(Path("/dev/null")).append([ONE])
    assert len(synced) == 1


def test_a_disk_that_fails_altogether_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    chain = Chain(tmp_path / "file")
    chain.append([ONE])
    monkeypatch.setattr(os, "write", fails)
    monkeypatch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EROFS, "no cut either")))
    with pytest.raises(OSError, match="Input/output error"):
        chain.append([TWO])
    monkeypatch.undo()
    assert chain.append([TWO]) == head(ONE, TWO)


def test_a_pipe_takes_no_lines_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(OSError, match="Illegal seek"):
        Chain(tmp_path / "pipe").append([ONE])


def test_it_is_open_to_others_at_no_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fchmod", None)
    before = os.umask(0)
    try:
        Chain(tmp_path / "file").append([ONE])
        Chain(tmp_path / "file").rotate(tmp_path / "aside", ROTATED)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("file", "aside")] == [0o600, 0o600]


# Turns.


def test_another_that_keeps_its_lock_is_waited_for_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch(0o600)
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += 2.5

    monkeypatch.setattr(audit.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(audit.time, "sleep", sleep)
    with file.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(OSError, match=r"^another process has locked it$"):
            Chain(file).append([ONE])
    assert slept == [0.005] * 3  # until 5 seconds are over
    assert Chain(file).append([ONE]) == head(ONE)


def test_whoever_appends_lets_go_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    chain = Chain(file)
    chain.append([ONE])
    os.link(file, tmp_path / "other")
    with pytest.raises(ownership.NotOurs):
        chain.append([TWO])
    assert verify([file]).lines == 1
    with file.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


# Rotation.


def test_the_next_file_is_bound_to_the_last_line_of_the_one_before(tmp_path: Path) -> None:
    file, aside = tmp_path / "file", tmp_path / "aside"
    Chain(file).append([ONE, TWO])
    last = Chain(file).rotate(aside, ROTATED)
    assert aside.read_bytes() == b"".join(lines(ONE, TWO))
    assert file.read_bytes() == lines(ONE, TWO, ROTATED)[2]
    assert last == head(ONE, TWO, ROTATED)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["aside", "file"]


def test_a_file_is_not_moved_over_another_and_nothing_is_left_of_the_attempt(tmp_path: Path) -> None:
    file, aside = tmp_path / "file", tmp_path / "aside"
    aside.write_bytes(b"theirs")
    chain = Chain(file)
    chain.append([ONE])
    with pytest.raises(FileExistsError):
        chain.rotate(aside, ROTATED)
    assert aside.read_bytes() == b"theirs" and file.read_bytes() == lines(ONE)[0]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["aside", "file"]
    assert chain.append([TWO]) == head(ONE, TWO)


def test_what_has_the_name_of_the_next_file_is_not_taken_for_it(tmp_path: Path) -> None:
    file, theirs = tmp_path / "file", tmp_path / f".file.{os.getpid()}"
    Chain(file).append([ONE])
    theirs.write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        Chain(file).rotate(tmp_path / "aside", ROTATED)
    assert theirs.read_bytes() == b"theirs" and file.read_bytes() == lines(ONE)[0]


# Before anything is made.


def test_trouble_is_told_without_making_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    assert trouble(tmp_path / "new" / "file") == trouble(file) == ""
    assert list(tmp_path.iterdir()) == []
    file.touch()
    assert trouble(file) == ""
    assert trouble(tmp_path) == f"{tmp_path} cannot be appended to"
    assert trouble(file / "below") == f"{file} cannot be written to"
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    assert trouble(file) == f"{file} cannot be appended to"
    assert trouble(tmp_path / "new") == f"{tmp_path} cannot be written to"


class Grows(io.BytesIO):
    """Another gateway appends to it as soon as its end was looked for."""

    lowest = sys.maxsize

    def seek(self, offset: int, whence: int = 0, /) -> int:
        place = super().seek(offset, whence)
        if whence == os.SEEK_END:
            self.write(b"later\n")
            super().seek(place)
        self.lowest = min(self.lowest, place)
        return place


def test_the_last_lines_are_those_there_were_and_no_more_is_read_than_holds_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit, "BLOCK", 2)
    opened = Grows(b"a\nb\nc\nd\n")
    assert audit.end_of(opened, 1) == [b"d"] and opened.lowest == 5, "from the end of the line before"
    assert audit.end_of(Grows(b"a\nb\nc\nd\n"), 3) == [b"b", b"c", b"d"]
    assert audit.lines_before(Grows(b"a\nb\nc\nd\n"), 8, 9, most=4) == ([b"c", b"d"], 4)
