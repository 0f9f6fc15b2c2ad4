"""The audit: who did what, and what became of it, in a file that only grows, each line bound to the one before.

A line is JSON: `seq` and `prev` first, `hash` last, which is the SHA-256 of all that stands before it. What is noted is
encoded where it happens; one thread hashes and writes it, in batches, and several gateways share a file. The rules this
file keeps: nobody waits for the disk; that nothing can be written is said, and known to who asks (`problem`); what is
missing stays missed: a line that was once written and is gone is never covered by a later one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import pwd
import re
import stat
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar

import msgspec
from msgspec import Meta

from toolgate.config import Config, ownership, state_folder
from toolgate.config.edits import make_folder
from toolgate.core import jsonrpc
from toolgate.core.clock import Clock, Timer
from toolgate.core.model import Principal
from toolgate.core.redaction import Redactor
from toolgate.state.base import NotKept, Store
from toolgate.state.pacing import Pacing, Write

log = logging.getLogger(__name__)

FILE = "audit.jsonl"
SPACE = "audit"  # of the store: the last line of each file
GATHER = 0.2  # seconds in which what is noted becomes one batch
RETRY = 1.0  # seconds after which a disk that took nothing is tried again
ANCHOR = 1.0  # seconds between two notes of the last line in the store
PATIENCE = 5.0  # seconds that one gateway waits for another's batch
MOST_WAITING = 32 * 1024 * 1024  # bytes that wait for the disk
LONGEST = 2000  # characters of a text that is noted
TOLD_EACH = 4096  # lines, whoever waits for their verification
ROTATED = "audit.rotated"  # the first line of a file that goes on where another ends
LOST = "audit.lost"

_TAIL = 1024 * 1024  # bytes in which the last whole line is looked for
LONGEST_LINE = _TAIL // 2  # bytes; of what is longer, long members are noted by their hashes
_LONG = 8 * 1024  # bytes of such a member
_WHOLE = re.compile(rb'\{"seq":(\d{1,18}),"prev":"([0-9a-f]{64})",.*(,"hash":"([0-9a-f]{64})"\})', re.DOTALL)

Value = TypeVar("Value")


def _by_hashes(line: bytes) -> dict[str, Any]:
    """A record with what is long in it by its hash."""

    def shown(raw: msgspec.Raw) -> Any:
        size = len(memoryview(raw))
        return raw if size <= _LONG else {"bytes": size, "sha256": hashlib.sha256(raw).hexdigest()}

    members = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    return {name[:100]: shown(raw) for name, raw in members.items()}


class Head(msgspec.Struct, frozen=True, array_like=True):
    """A line, by its number and its hash. The first line follows on `NOTHING`."""

    seq: int = 0
    hash: str = "0" * 64


NOTHING = Head()


def is_on(config: Config) -> bool:
    return not config.is_open if config.audit.enabled is None else config.audit.enabled


def place(config: Config, environ: Mapping[str, str]) -> Path:
    """Where a configuration's audit is: always the same path, by which its last line is known in the store."""
    folder = Path(config.source).parent if config.audit.path else state_folder(config, environ)
    return Path(os.path.abspath(folder / Path(config.audit.path or FILE).expanduser()))


@asynccontextmanager
async def opened(
    config: Config,
    environ: Mapping[str, str],
    clock: Clock,
    store: Store,
    redactor: Redactor | None = None,
    *,
    of_calls: bool = False,
) -> AsyncGenerator[Trail]:
    """The audit of a configuration, closed when the block is left: what was noted is written then, if it can be.
    `of_calls`: nothing else is noted."""
    made = TrailOfCalls if of_calls else Trail
    trail = made(place(config, environ), clock, store, redactor or Redactor())
    trail.use(config)
    try:
        yield trail
    finally:
        await trail.close()


class Trail:
    """Where all that is to be audited is noted. Without a file, nothing is. It is used in one event loop; the file is
    made when there is something to write."""

    def __init__(self, file: Path | None, clock: Clock, store: Store | None, redactor: Redactor) -> None:
        self.file = file
        self.is_on = self.notes_changes = file is not None
        self.problem = ""  # why nothing can be written now
        self._clock = clock
        self._redactor = redactor
        self._loop: asyncio.AbstractEventLoop | None = None
        self._anchors = Anchors(store, str(file), clock) if store and file else None
        self._chain = Chain(file, self._anchors.known() if self._anchors else NOTHING) if file else None
        self._waiting: deque[bytes] = deque()
        self._is_some = threading.Event()  # there may be something in it
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._put = self._written = 0  # bytes: the one counted in the loop, the other in the thread
        self._lost = self._told_lost = 0  # lines
        self._lost_at = ""
        self._pacing = Pacing(clock)
        self._second, self._shown = -1, ""  # the last one, written
        self._is_closed = False

    # In the event loop.

    def use(self, config: Config) -> None:
        """Note what this configuration wants noted."""
        self.is_on, self.notes_changes = is_on(config), config.audit.enabled is not False

    @property
    def redactor(self) -> Redactor:
        return self._redactor

    def lines(self, number: int, holding: bytes = b"", before: Mark | None = None) -> tuple[list[bytes], Mark | None]:
        """The last lines that are in the file, or are before a mark of it, as JSON; those alone that hold these bytes,
        as far as a search goes; and the mark before which to go on, if there is more. A line that is not as it was
        written is a text. Reads the disk. Raises `OSError`, and `LookupError` for a mark of another file."""
        if not self.file or not self.file.exists():
            return [], None
        with ownership.open_anyones(self.file) as opened:
            found = os.fstat(opened.fileno())
            if before and (before.file != found.st_ino or before.at > found.st_size):
                raise LookupError
            end = before.at if before else found.st_size
            lines, at = lines_before(opened, end, number, holding, LONGEST_SEARCH)
        told = [line if read_line(line) else jsonrpc.encode(line.decode(errors="replace")) for line in lines]
        return told, Mark(found.st_ino, at) if at else None

    def verified(self) -> AuditVerdict:
        """Reads the disk. Raises `OSError`."""
        anchor = self._anchors.known() if self._anchors else NOTHING
        if not self.file or not (self.file.exists() or anchor.seq):
            return AuditVerdict(NOTHING, 0, remark="nothing has been noted yet")
        return verify([self.file], anchor)

    def note(self, event: str, who: Principal | str = "", **about: Any) -> None:
        """Note what is no call: `note("keys.create", "cli:ann", client="ci")`, `note("login", decision="deny",
        reason="expired", address=...)`. `event` and the names in `about` are short; values are what JSON has, and never
        secrets that the redactor does not know."""
        if self.is_on:
            self._note(event, who, about)

    def note_change(self, event: str, who: Principal | str = "", **about: Any) -> None:
        """The same for who may come in and what is served. It is noted where calls are not, too: that nobody must show
        who they are is no reason to forget what was started for them."""
        if self.notes_changes:
            self._note(event, who, about)

    def _note(self, event: str, who: Principal | str, about: Mapping[str, Any], time: str = "") -> None:
        whose = {"who": who.id, "client": who.client, "address": who.address} if isinstance(who, Principal) else {}
        named = {"who": who} if isinstance(who, str) else whose
        said = {**named, **{name: self._bounded(value) for name, value in about.items()}}
        told = {
            "time": time or self.time(),
            "event": event,
            **{name: each for name, each in said.items() if each != ""},
        }
        self._put_line(msgspec.Raw(self._redactor.body(jsonrpc.encode(told))))

    def _bounded(self, value: Any) -> Any:
        return self._redactor.text(value)[:LONGEST] if isinstance(value, str) else value

    def note_of_strangers(self, event: str, *, by: str, kind: str, **about: Any) -> None:
        """Note what anybody can bring about as often as they like; see `pacing`. `by` is who brings it about, `kind`
        what makes two lines alike."""
        now = self.time()
        self._pacing.put(self._later(event, about, now), now, by, kind)

    def note_of_server(self, event: str, *, server: str, **about: Any) -> None:
        """The same of what a server brings about."""
        now = self.time()
        self._pacing.put_of_server(self._later(event, {"server": server, **about}, now), now, server, event)

    def _later(self, event: str, about: Mapping[str, Any], time: str) -> Write:
        def write(not_noted: int, since: str) -> None:
            more = {"not_noted": not_noted, "not_noted_since": since} if not_noted else {}
            if self.is_on:
                self._note(event, "", {**about, **more}, time)

        return write

    def put_refused(self, record: Any, by: str, kind: str) -> bool:
        """Note a record of something that was refused, which anybody can bring about as often as they like. It has
        `time`, and gets `not_noted` and `not_noted_since`. Whether it was noted now, and is not kept."""

        def write(not_noted: int, since: str) -> None:
            record.not_noted, record.not_noted_since = not_noted, since
            self.put(record)

        return self._pacing.put(write, record.time, by, kind)

    def time(self) -> str:
        """What time it is, to the microsecond, as RFC 3339 has it."""
        now = self._clock.wall()
        second = int(now)
        if second != self._second:
            self._second, self._shown = second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._shown}.{int((now - second) * 1e6):06d}Z"

    def put(self, record: Any) -> None:
        """Note a record, which is encoded now: an object with at least one member, and without secrets."""
        if self.is_on:
            self._put_line(record)

    def _put_line(self, record: Any) -> None:
        if not self._chain:
            return
        line = jsonrpc.encode(record)
        if len(line) > LONGEST_LINE:
            line = jsonrpc.encode(_by_hashes(line))
        if self._is_closed or self._put - self._written + len(line) > MOST_WAITING:
            self._lost, self._lost_at = self._lost + 1, self.time()
            self.problem = self.problem or f"the audit log grows faster than it can be written: {self.file}"
            return
        self._put += len(line)
        self._waiting.append(line)
        if not self._is_some.is_set():  # the thread is woken once for a batch, and not for a line
            self._is_some.set()
        if not self._thread:
            self._begin()

    def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write_what_comes, name="toolgate audit", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """When all that was noted is written, or cannot be."""
        if self._is_closed:
            return
        self._pacing.close()
        self._is_closed = True
        if self._thread:
            self._hurry.set()
            self._is_some.set()
            self._thread.join()
        if self._anchors and self._chain:
            await self._anchors.close(self._chain.head)

    # In the thread that writes.

    def _write_what_comes(self) -> None:
        unwritten: list[bytes] = []
        is_last = False
        while not is_last:
            self._is_some.wait(RETRY if unwritten else None)
            self._hurry.wait(GATHER)
            self._is_some.clear()  # first: what comes from now on is of this batch, or wakes for the next
            is_last = self._hurry.is_set()
            unwritten += [self._waiting.popleft() for _ in range(len(self._waiting))]
            if unwritten and self._is_written(unwritten):
                unwritten = []
        if self._chain:
            self._chain.close()

    def _is_written(self, lines: Sequence[bytes]) -> bool:
        assert self._chain
        lost = self._lost
        gap = [self._gap(lost - self._told_lost)] if lost > self._told_lost else []
        try:
            head = self._chain.append([*lines, *gap])
        except Exception as error:  # noqa: BLE001  the pump: what cannot be written now is tried again
            self._complain((isinstance(error, OSError) and error.strerror) or str(error))
            return False
        self._told_lost = lost
        self._written += sum(map(len, lines))
        if self.problem:
            log.warning("the audit log can be written again: %s", self.file)
            self.problem = ""
        if self._anchors and self._loop:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._anchors.note, head)
        return True

    def _gap(self, count: int) -> bytes:
        return msgspec.json.encode({"time": self._lost_at, "event": LOST, "lines": count})

    def _complain(self, why: str) -> None:
        """Once, until it goes well again."""
        if not self.problem:
            log.error("cannot write the audit log: %s: %s", self.file, why)
        self.problem = f"cannot write the audit log: {self.file}: {why}"


class TrailOfCalls(Trail):
    """Notes calls alone: what else happens to be known to a process beside others, those note."""

    def note(self, event: str, who: Principal | str = "", **about: Any) -> None: ...

    def note_change(self, event: str, who: Principal | str = "", **about: Any) -> None: ...

    def note_of_strangers(self, event: str, *, by: str, kind: str, **about: Any) -> None: ...

    def note_of_server(self, event: str, *, server: str, **about: Any) -> None: ...


def operator() -> str:
    """Who works at the command line, as the system knows them."""
    try:
        return f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"cli:{os.getuid()}"


def nowhere(clock: Clock, redactor: Redactor | None = None) -> Trail:
    """Where nothing is noted."""
    return Trail(None, clock, None, redactor or Redactor())


class Anchors:
    """The last line of a file, noted in the store, so that a file that was cut off is known by it. Of several gateways
    the one that is furthest holds. In the event loop."""

    def __init__(self, store: Store, key: str, clock: Clock) -> None:
        self._store = store
        self._key = key
        self._clock = clock
        self._latest = NOTHING
        self._timer: Timer | None = None
        self._noting: asyncio.Future[None] | None = None
        self._is_closed = False

    def known(self) -> Head:
        return _decoded(self._store.get(SPACE, self._key))

    def note(self, head: Head) -> None:
        """Soon; all that comes meanwhile is noted at once."""
        if head.seq > self._latest.seq:
            self._latest = head
        if not self._timer and not self._is_closed:
            self._timer = self._clock.call_later(ANCHOR, self._due)

    def _due(self) -> None:
        self._timer = None
        if not self._noting or self._noting.done():
            self._noting = asyncio.ensure_future(self._note())

    async def close(self, head: Head) -> None:
        self._is_closed = True
        if self._timer:
            self._timer.cancel()
        if self._noting:
            await asyncio.wait([self._noting])
        if head.seq > self._latest.seq:
            self._latest = head
        await self._note()

    async def _note(self) -> None:
        while True:
            latest, kept = self._latest, self._store.get(SPACE, self._key)
            if _decoded(kept).seq >= latest.seq:
                return
            try:
                if await self._store.compare_and_set(SPACE, self._key, kept, msgspec.msgpack.encode(latest)):
                    return
            except NotKept:
                return  # the store itself says so


def _decoded(kept: bytes | None) -> Head:
    try:
        return msgspec.msgpack.decode(kept or b"\x90", type=Head)
    except (msgspec.DecodeError, ValueError):
        return NOTHING


class Chain:
    """The file, as it is appended to. All methods wait for the disk: they are called in a thread."""

    def __init__(self, file: Path, head: Head = NOTHING) -> None:
        self.head = head  # the last line that is known to have been written, here or by the process that anchored it
        self._file = file
        self._open = -1
        self._size: int  # of the file after our own last line; -1: it has none since it was opened

    def append(self, lines: Iterable[bytes]) -> Head:
        """All of them, or none: then it raises `OSError`."""
        with self._alone() as descriptor:
            size = os.fstat(descriptor).st_size
            if size != self._size:
                self._catch_up(descriptor, size)
            data, head = chained(self.head, lines)
            if size != self._size and size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data  # what was torn stays for all to see
            _written(descriptor, data, size)
            self.head, self._size = head, size + len(data)
        return self.head

    def rotate(self, aside: Path, about: bytes) -> Head:
        """Move the file away, and begin another, whose first line says so and is bound to the last of this one."""
        with self._alone() as descriptor:
            self._catch_up(descriptor, os.fstat(descriptor).st_size)
            data, head = chained(self.head, [about])
            fresh = self._file.with_name(f".{self._file.name}.{os.getpid()}")
            beginning = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _written(beginning, data, 0)
                os.link(self._file, aside)
                fresh.replace(self._file)
            finally:
                os.close(beginning)
                fresh.unlink(missing_ok=True)  # it is there where it could not take the name
        return head

    def close(self) -> None:
        if self._open >= 0:
            os.close(self._open)
            self._open = -1

    def _catch_up(self, descriptor: int, size: int) -> None:
        """Go on after what others wrote; but never before what is known to have been there: where that is gone, its
        numbers stay missing."""
        found = _last(os.pread(descriptor, min(size, _TAIL), max(0, size - _TAIL)))
        if found.seq > self.head.seq:
            self.head = found

    @contextlib.contextmanager
    def _alone(self) -> Generator[int]:
        """The file that has the name now, locked."""
        while True:
            descriptor = self._descriptor()
            _lock(descriptor)
            try:
                if _is_same(descriptor, self._file):
                    self._refuse_strange(descriptor)
                    yield descriptor
                    return
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            self.close()

    def _descriptor(self) -> int:
        if self._open < 0:
            self._size = -1
            if not self._file.parent.is_dir():
                make_folder(self._file.parent)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            self._open = os.open(self._file, flags, 0o600)
        return self._open

    def _refuse_strange(self, descriptor: int) -> None:
        """Others could have made the file, or a link to one that is not meant. A rotation gives it a second name for a
        moment, but keeps the lock meanwhile."""
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return
        if found.st_nlink > 1:
            raise ownership.NotOurs(self._file, "has another hard link: remove one of them")
        if why := ownership.problem(found):
            raise ownership.NotOurs(self._file, why)
        if found.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)


def _lock(descriptor: int) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise OSError("another process has locked it") from None
            time.sleep(0.005)


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of a line: in which file (its inode), and at which byte."""

    file: Annotated[int, Meta(ge=0)]
    at: Annotated[int, Meta(ge=0)]


class _Event(msgspec.Struct):
    event: str = ""


def _event(line: bytes) -> str:
    """What a line is about, by its own member: a caller's arguments may hold another one."""
    try:
        return msgspec.json.decode(line, type=_Event).event
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _is_same(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(file))
    except FileNotFoundError:
        return False


def _written(descriptor: int, data: bytes, size: int) -> None:
    """To the disk. Where that fails, as if it had not begun."""
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fdatasync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


# What lines are.


def chained(head: Head, records: Iterable[bytes]) -> tuple[bytes, Head]:
    """The lines for these records (objects with members), and the last of them."""
    lines: list[bytes] = []
    seq, prev = head.seq, head.hash.encode()
    for record in records:
        seq += 1
        body = b'{"seq":%d,"prev":"%b",%b' % (seq, prev, record[1:-1])
        prev = hashlib.sha256(body).hexdigest().encode()
        lines.append(b'%b,"hash":"%b"}\n' % (body, prev))
    return b"".join(lines), Head(seq, prev.decode())


class AuditLine(msgspec.Struct, frozen=True):
    """A line that is what its hash says."""

    seq: int
    prev: str
    hash: str

    @property
    def head(self) -> Head:
        return Head(self.seq, self.hash)


def read_line(line: bytes) -> AuditLine | None:
    """None for one that is not as it was written."""
    found = _WHOLE.fullmatch(line)
    if not found or hashlib.sha256(line[: found.start(3)]).hexdigest().encode() != found[4]:
        return None
    return AuditLine(int(found[1]), found[2].decode(), found[4].decode())


def _last(tail: bytes) -> Head:
    """The last whole line in the end of a file."""
    for line in reversed(tail.split(b"\n")):
        if found := read_line(line):
            return found.head
    return NOTHING


def trouble(file: Path) -> str:
    """Why nothing can be appended to this file; empty where it can be, or where it would be made. Makes nothing."""
    there = next(path for path in (file, *file.parents) if path.exists() or path == path.parent)
    if there != file:
        return "" if there.is_dir() and os.access(there, os.W_OK) else f"{there} cannot be written to"
    return "" if os.access(there, os.W_OK) and there.is_file() else f"{there} cannot be appended to"


class AuditVerdict(msgspec.Struct, frozen=True):
    """What is found of files: their last line, how many lines, what is wrong (the first of it), and what cannot be
    told."""

    head: Head
    lines: int
    wrong: tuple[str, ...] = ()
    remark: str = ""


MOST_NAMED = 20
BLOCK = 64 * 1024
LONGEST_SEARCH = 8 * 1024 * 1024  # bytes from the end of a file in which lines are looked for


def last_lines(file: Path, number: int) -> list[bytes]:
    """Raises `OSError`."""
    with ownership.open_anyones(file) as opened:
        return end_of(opened, number)


def end_of(opened: BinaryIO, number: int) -> list[bytes]:
    """The last lines of a file, read from its end; then it stands there."""
    end = opened.seek(0, os.SEEK_END)
    lines, _ = lines_before(opened, end, number)
    opened.seek(end)
    return lines


def lines_before(
    opened: BinaryIO, end: int, number: int, holding: bytes = b"", most: int | None = None
) -> tuple[list[bytes], int]:
    """The last lines before a byte at which one begins, those alone that hold these bytes; and where the first of them
    begins, or the first that was looked at, where they are fewer than wanted. `most` bytes at most are looked at: what
    is left of a longer line is a line."""
    first = 0 if most is None else max(0, end - most)
    place, size, at = end, BLOCK, end
    found: list[bytes] = []
    while place > first and len(found) < number:  # what was read before is read again: twice in all, by doubling
        place, size = max(first, end - size), 2 * size
        lines, begins = _whole_lines(opened, place, end)
        found, at = [], end
        for line in reversed(lines):
            at -= len(line)
            if holding in line:
                found.append(line.removesuffix(b"\n"))
            if len(found) == number:
                break
        else:
            at = begins
    return found[::-1], at


def _whole_lines(opened: BinaryIO, place: int, end: int) -> tuple[list[bytes], int]:
    """With their ends, those that begin at a byte or behind it; and where the first begins."""
    start = max(0, place - 1)
    opened.seek(start)
    data = opened.read(end - start)
    cut = data.find(b"\n", 0, len(data) - 1) + 1 if place else 0  # the end of a line that begins before
    cut = cut or place - start
    return data[cut:].splitlines(keepends=True), start + cut


def verify(
    files: Sequence[Path], anchor: Head = NOTHING, is_at: Callable[[int, int], object] | None = None
) -> AuditVerdict:
    """Whether these files, in order, hold every line that was written, as it was, up to the anchor at least. `is_at` is
    told from time to time how many bytes were looked at, and how many there are. Raises `OSError`."""
    checking = _Checking(anchor)
    done, of = 0, sum(os.stat(file).st_size for file in files) if is_at else 0
    for file in files:
        with ownership.open_anyones(file) as opened:
            for number, line in enumerate(_lines_of(opened.fileno()), 1):
                checking.line(f"{file.name}:{number}", line)
                done += len(line)
                if is_at and number % TOLD_EACH == 0:
                    is_at(done, of)
    return checking.verdict()


def _lines_of(descriptor: int) -> Iterator[bytes]:
    """With their ends; as many as there are while nobody writes."""
    _lock(descriptor)
    left = os.fstat(descriptor).st_size
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    rest = b""
    while left and (data := os.read(descriptor, min(left, _TAIL))):
        left -= len(data)
        *whole, rest = (rest + data).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


class _Checking:
    def __init__(self, anchor: Head) -> None:
        self._anchor = anchor
        self._is_anchored = anchor.seq == 0
        self._before: Head | None = None
        self._wrong: list[str] = []
        self._lines = 0
        self._remark = ""

    def line(self, where: str, line: bytes) -> None:
        self._lines += 1
        found = read_line(line[:-1]) if line.endswith(b"\n") else None
        if not found:
            self._say(f"{where}: this line was altered")
        elif self._before is None:
            self._first(where, found, line)
        elif found.seq != self._before.seq + 1:
            self._say(f"{where}: line {found.seq} comes after line {self._before.seq}")
        elif found.prev != self._before.hash and self._before.hash:
            self._say(f"{where}: line {found.seq} does not continue the previous line")
        self._before = found.head if found else self._skipped()
        if found and found.head == self._anchor:
            self._is_anchored = True

    def _first(self, where: str, found: AuditLine, line: bytes) -> None:
        if found.seq == 1 and found.prev == NOTHING.hash:
            return
        if _event(line) == ROTATED:
            self._remark = f"lines 1 to {found.seq - 1} are in files that were rotated: give those files first"
        else:
            self._say(f"{where}: it starts with line {found.seq}")

    def _say(self, wrong: str) -> None:
        if len(self._wrong) < MOST_NAMED:
            self._wrong.append(wrong)

    def _skipped(self) -> Head | None:
        """After a line that cannot be read the next is held against what came before that: its number is missing."""
        return self._before and Head(self._before.seq + 1, "")

    def verdict(self) -> AuditVerdict:
        head = self._before or NOTHING
        wrong = self._wrong
        if not self._is_anchored:
            if head.seq < self._anchor.seq:
                wrong = [*wrong, f"it ends at line {head.seq}, but line {self._anchor.seq} was written"]
            else:
                wrong = [*wrong, f"line {self._anchor.seq} is not the one that was written"]
        return AuditVerdict(head, self._lines, tuple(wrong), self._remark)
