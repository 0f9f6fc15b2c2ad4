"""`toolgate audit`: what the audit says, whether it is as it was written, and how it is handed on."""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NoReturn, cast

import typer

from toolgate import state as stores
from toolgate.cli import common, printing, progress
from toolgate.cli.progress import Wait
from toolgate.config import Config, ownership, state_folder
from toolgate.core.clock import SystemClock
from toolgate.core.spelling import INVISIBLE
from toolgate.policy.audit import AuditEntry
from toolgate.state import audit as trails
from toolgate.state.audit import NOTHING, Anchors, AuditVerdict, Chain, Head
from toolgate.state.sqlite import FILE as STORE

app = typer.Typer(add_completion=False, help="View, verify, export and rotate the audit log.")

LOOK = 0.5  # seconds between looks at a file that is followed

Files = Annotated[list[Path] | None, typer.Argument(help="Audit files, oldest first. Default: the configured one.")]


@app.command(help="Print the last lines; with -f, also new ones as they arrive.")
def tail(
    config: common.ConfigPath = None,
    number: Annotated[int, typer.Option("-n", min=0, help="Number of lines.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the lines exactly as in the file.")] = False,
) -> None:
    file = _place(common.load_config(config))
    try:
        for line in _followed(file, number) if follow else trails.last_lines(file, number):
            printing.say(line.decode(errors="replace") if as_json else shown(line))
    except OSError as error:
        _ended(file, error)
    except KeyboardInterrupt:
        raise typer.Exit from None


@app.command(help="Check that no line is missing or changed. Exits with 1 if one is.")
def verify(
    files: Files = None,
    config: common.ConfigPath = None,
    head: Annotated[
        str | None, typer.Option(help="A line that must be present, as SEQ:HASH printed earlier by this command.")
    ] = None,
) -> None:
    settings = common.load_config(config)
    own = _place(settings)
    examined = files or [own]
    anchor = _parsed(head) if head else common.run(_anchor(settings, own)) if _is_among(own, examined) else NOTHING
    try:
        with progress.waiting("verifying the audit log") as wait:
            found = trails.verify(examined, anchor, wait.is_at)
    except OSError as error:
        if not (isinstance(error, FileNotFoundError) and not anchor.seq):
            _ended(Path(error.filename or own), error)
        typer.echo(f"{own}: nothing has been recorded yet")
        raise typer.Exit from None
    _print(found, anchor)
    raise typer.Exit(bool(found.wrong))


@app.command(help="Print the whole log, or a period of it, to standard output.")
def export(
    files: Files = None,
    config: common.ConfigPath = None,
    format: Annotated[str, typer.Option(help="jsonl or csv.")] = "jsonl",
    since: Annotated[
        datetime | None, typer.Option(help="Start time in UTC, inclusive: 2026-11-01 or 2026-11-01T08:30:00.")
    ] = None,
    until: Annotated[datetime | None, typer.Option(help="End time, exclusive, in the same format.")] = None,
) -> None:
    if format not in ("jsonl", "csv"):
        printing.fail(f"unknown format {format}: choose jsonl or csv", 2)
    examined = files or [_place(common.load_config(config))]
    try:
        with nullcontext(Wait("")) if sys.stdout.isatty() else progress.waiting("exporting the audit log") as wait:
            found = _told(_all_lines(examined, bool(files)), sum(os.stat(file).st_size for file in examined), wait)
            chosen = (line for line in found if _is_of(line, since, until))
            _write_csv(chosen) if format == "csv" else _write_lines(chosen)
    except OSError as error:
        _ended(Path(error.filename or examined[0]), error)


@app.command(help="Rename the file and start a new one that continues it. Running gateways switch to the new file.")
def rotate(
    to: Annotated[Path, typer.Argument(help="New path of the old file; must be on the same file system.")],
    config: common.ConfigPath = None,
) -> None:
    settings = common.load_config(config)
    file = _place(settings)
    if not file.exists():
        printing.fail(f"{file}: nothing has been recorded yet")
    chain = Chain(file, common.run(_anchor(settings, file)))
    now = _written(datetime.now(UTC).replace(tzinfo=None)) + "Z"
    about = {"time": now, "event": trails.ROTATED, "who": trails.operator(), "to": str(to)}
    try:
        head = chain.rotate(to, json.dumps(about, separators=(",", ":")).encode())
    except OSError as error:
        printing.fail(f"{file} was not moved: {error.strerror or error}")
    finally:
        chain.close()
    typer.echo(f"{to} ends with line {head.seq - 1}; {file} continues with line {head.seq}")


# Where it is, and how it must end.


def _place(config: Config) -> Path:
    return trails.place(config, os.environ)


def _is_among(own: Path, files: list[Path]) -> bool:
    return own.resolve() in [file.resolve() for file in files]


async def _anchor(config: Config, file: Path) -> Head:
    """What the store knows of its last line. Nothing is made for the question."""
    where = state_folder(config, os.environ)
    if not (where / STORE).exists():
        return NOTHING
    clock = SystemClock()
    async with stores.opened(where, clock) as store:
        return Anchors(store, str(file), clock).known()


def _parsed(head: str) -> Head:
    seq, _, hash = head.partition(":")
    if not seq.isdecimal() or len(hash) != len(NOTHING.hash):
        printing.fail(f"{head} is not SEQ:HASH, as printed by `toolgate audit verify`", 2)
    return Head(int(seq), hash)


def _print(found: AuditVerdict, anchor: Head) -> None:
    for wrong in found.wrong:
        typer.echo(wrong, err=True)
    if found.remark:
        typer.echo(found.remark)
    if not anchor.seq:
        typer.echo("no known last line: missing lines at the end cannot be detected")
    state = "damaged" if found.wrong else "intact"
    typer.echo(f"{found.lines:,} lines, {state}; last line: {found.head.seq}:{found.head.hash}")


def _ended(file: Path, error: OSError) -> NoReturn:
    """The end of a command that could not read. Who has read enough (`| head`) is told nothing."""
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is not written at the exit either
        raise typer.Exit from None
    if isinstance(error, FileNotFoundError):
        printing.fail(
            f"{file} not found: nothing has been recorded yet. Auditing starts with `clients`, `auth` or "
            "`audit.enabled = true`"
        )
    printing.fail(f"{file} cannot be read: {error.strerror or error}")


# Lines.


def _all_lines(files: Sequence[Path], are_named: bool) -> Iterator[bytes]:
    """With their ends. Who names a file may name a pipe."""
    for file in files:
        with file.open("rb") if are_named else ownership.open_anyones(file) as opened:
            yield from opened


def _told(lines: Iterable[bytes], size: int, wait: Wait) -> Iterator[bytes]:
    """Without their ends. Who waits is told from time to time how many bytes there were of so many."""
    done = 0
    for number, line in enumerate(lines, 1):
        yield line.rstrip(b"\n")
        done += len(line)
        if number % trails.TOLD_EACH == 0:
            wait.is_at(done, size)


def _followed(file: Path, number: int) -> Iterator[bytes]:
    """Also into the file that stands there when this one was moved away."""
    opened = ownership.open_anyones(file)
    try:
        yield from trails.end_of(opened, number)
        rest = b""
        while True:
            *whole, rest = (rest + opened.read()).split(b"\n")
            yield from whole
            if not whole and _was_replaced(opened, file):
                opened.close()
                opened, rest = ownership.open_anyones(file), b""
            elif not whole:
                time.sleep(LOOK)
    finally:
        opened.close()


def _was_replaced(opened: BinaryIO, file: Path) -> bool:
    try:
        return not os.path.samestat(os.fstat(opened.fileno()), os.stat(file))
    except FileNotFoundError:
        return False


_UNREADABLE: Mapping[str, Any] = {"event": "(unreadable)"}


def _decoded(line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else _UNREADABLE


def _is_of(line: bytes, since: datetime | None, until: datetime | None) -> bool:
    if not since and not until:
        return True
    found = _decoded(line)
    if found is _UNREADABLE:
        return True  # nobody knows when it was: it is not left out
    when = str(found.get("time", ""))
    return (not since or when >= _written(since)) and (not until or when < _written(until))


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


# How lines are shown.

_SHOWN_FIRST = ("time", "event", "who", "method", "server", "target", "decision", "outcome", "code")
_CHAIN = ("seq", "prev", "hash")
_COLUMNS = ("seq", *AuditEntry.__struct_fields__, "more", "prev", "hash")


def shown(line: bytes) -> str:
    """For people: what matters first, then what else there is. Control characters are shown, not sent."""
    found = _decoded(line)
    first = [str(found[key]) for key in _SHOWN_FIRST if found.get(key)]
    rest = [f"{key}={_plain(each)}" for key, each in found.items() if key not in (*_SHOWN_FIRST, *_CHAIN)]
    return _escaped("  ".join([*first, *rest]))


def _escaped(text: str) -> str:
    return "".join(each if each.isprintable() and not INVISIBLE.match(each) else ascii(each)[1:-1] for each in text)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_lines(lines: Iterable[bytes]) -> None:
    """As they are in the file; on a terminal with control characters escaped, since strangers choose names."""
    is_terminal = sys.stdout.isatty()
    for line in lines:
        sys.stdout.buffer.write((_escaped(line.decode("utf-8", "replace")).encode() if is_terminal else line) + b"\n")
    sys.stdout.buffer.flush()


class _Utf8:
    """Standard output, wherever it goes. What is no character (a lone surrogate) is written as its escape."""

    def write(self, text: str) -> int:
        return sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))


def _write_csv(lines: Iterable[bytes]) -> None:
    writer = csv.writer(_Utf8())
    writer.writerow(_COLUMNS)
    for line in lines:
        found = dict(_decoded(line))
        row = {key: found.pop(key, "") for key in _COLUMNS}
        row["more"] = found or ""
        writer.writerow([_cell(row[key]) for key in _COLUMNS])
    sys.stdout.buffer.flush()


def _cell(value: Any) -> str:
    """A spreadsheet must not take it for a formula."""
    text = _escaped(_plain(value))
    return "'" + text if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
