"""Large bodies: out of memory while they come, looked at a piece at a time, and written without being joined.

The rules this file keeps: what has come beyond `IN_MEMORY` bytes is in a file without a name, which goes with its last
holder, however that ends; where there is no room for a file, it stays in memory; and of a body in a file no more is in
memory than whoever looks at it holds. Such a body is a `memoryview`, which is what bytes are to all who do not look
for more: `bytes(body)` has it whole.
"""

from __future__ import annotations

import io
import logging
import mmap
import tempfile
from collections.abc import Generator, Iterator
from typing import IO, TypeAlias, TypeVar, cast

from msgspec import Raw

IN_MEMORY = 1024 * 1024  # bytes
PIECE = 256 * 1024  # bytes that are looked at, or written, in one go

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class Mapped(mmap.mmap):
    """A body in a file. Parts of it are bytes; `let_go` gives back the memory that looking at it has taken."""

    def let_go(self) -> None:
        self.madvise(mmap.MADV_DONTNEED)


Whole: TypeAlias = "bytes | Mapped"
"""A body as it has come. Both have a length and parts that are bytes, and nothing else: whatever else bytes can do,
`bytes(body)` can, which is a copy of what is in a file."""


class Gathering:
    """What comes of one body, in chunks that may be of one byte. `taken` is all of it, once."""

    def __init__(self, first: bytes | bytearray) -> None:
        self._size = len(first)
        self._memory = io.BytesIO()
        self._memory.write(first)
        self._file: IO[bytes] | None = None
        self._most = IN_MEMORY  # bytes that are kept in memory before they go to the file; -1: there is none

    def __len__(self) -> int:
        return self._size

    def __del__(self) -> None:
        if self._file:
            self._file.close()

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._memory.write(chunk)
        if self._memory.tell() > self._most >= 0:
            self._store()

    def taken(self) -> Whole:
        """All of it, `Mapped` where it is in a file."""
        if self._file:
            self._store()
        if not self._file:
            return self._memory.getvalue()  # which is no copy
        with self._file as file:
            self._file = None
            try:
                return Mapped(file.fileno(), 0, access=mmap.ACCESS_READ)
            except OSError:  # as many are mapped as may be
                file.seek(0)
                return file.read()

    def _store(self) -> None:
        try:
            self._file = self._file or tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  it outlives this
            _write(self._file, self._memory.getbuffer())
            self._memory, self._most = io.BytesIO(), PIECE
        except OSError as error:
            log.warning("a large answer stays in memory: %s", error)
            self._back_to_memory()

    def _back_to_memory(self) -> None:
        rest, self._most = self._memory, -1
        if self._file:
            with self._file as file:
                size = file.tell()
                file.seek(0)
                self._memory = io.BytesIO(file.read(size))
                self._memory.seek(0, io.SEEK_END)
            self._memory.write(rest.getbuffer())
            self._file = None


def _write(file: IO[bytes], data: memoryview) -> None:
    """All of it, or nothing, of which `OSError` tells."""
    start = file.tell()
    left = data
    try:
        while left:
            left = left[file.write(left) :]
    except OSError:
        file.seek(start)
        raise
    finally:
        left.release()
        data.release()


def part(body: Whole, start: int, end: int) -> bytes:
    """A part of a body: of what is large no copy, but what holds all of it."""
    return body[start:end] if len(body) <= IN_MEMORY else cast("bytes", memoryview(body)[start:end])


def sparing(body: Whole, steps: Generator[None, None, Result]) -> Generator[None, None, Result]:
    """The same steps of a look at a body, which is not in memory any longer than each takes."""
    if not isinstance(body, Mapped):
        return (yield from steps)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        finally:
            body.let_go()
        yield


def pieces(body: Raw | bytes, size: int = PIECE, overlap: int = 0) -> Iterator[bytes]:
    """All of it; with each goes the beginning of the next one, of so many bytes."""
    view = memoryview(body)
    for start in range(0, len(view), size):
        yield bytes(view[start : start + size + overlap])
        let_go(body)


def let_go(body: object) -> None:
    """Give back the memory that looking at a body has taken, if it is in a file."""
    if isinstance(body, memoryview) and isinstance(body.obj, Mapped):
        body.obj.let_go()


def is_view(body: object) -> bool:
    """Whether to have it as bytes means to copy it."""
    return isinstance(body, memoryview)


def as_bytes(body: Raw | bytes) -> bytes | Joined:
    """What can be written of it, which is no copy where it is large."""
    return Joined(body) if is_view(body) else bytes(body)


def holds_any(body: Raw | bytes, *sought: bytes) -> bool:
    """Whether any of these stands in it."""
    if not is_view(body):
        whole = bytes(body)
        return any(whole.find(each) >= 0 for each in sought)
    overlap = max(map(len, sought)) - 1
    return any(piece.find(each) >= 0 for piece in pieces(body, overlap=overlap) for each in sought)


class Joined:
    """A message made of parts, each of which stays where it is. `of` is a body that some of them are parts of, where
    they do not tell."""

    def __init__(self, *parts: Part, of: object = None) -> None:
        self._parts: list[memoryview] = []
        self._bodies: list[memoryview] = [of] if isinstance(of, memoryview) else []  # that may be in files
        for each in parts:
            if isinstance(each, Joined):
                self._parts += each._parts
                self._bodies += each._bodies
            else:
                self._parts.append(memoryview(each))
                self._bodies += [each] if isinstance(each, memoryview) else []
        self._size = sum(map(len, self._parts))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        try:
            return b"".join(self._parts)
        finally:
            self._let_go()

    @property
    def is_in_file(self) -> bool:
        """Whether none of it is in memory that is large."""
        in_memory = any(len(each) > PIECE and isinstance(each.obj, bytes) for each in self._parts)
        return not in_memory and any(isinstance(each.obj, Mapped) for each in self._bodies)

    def read(self, start: int, size: int) -> bytes:
        """So much from there on, or less at its end."""
        found: list[memoryview] = []
        for each in self._parts:
            if size > 0 and start < len(each):
                found.append(each[start : start + size])
                size -= len(found[-1])
            start = max(0, start - len(each))
        try:
            return b"".join(found)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        for each in self._bodies:
            let_go(each)


Part: TypeAlias = "Raw | bytes | memoryview | Joined"
