"""The outline of JSON of megabytes, found a piece at a time: a reader that takes all of it in one go keeps every other
thread waiting meanwhile.

The rules this file keeps: what has an outline is JSON, as strictly as the usual reader sees it, since that reads each
piece, with what is open around it; and no piece takes longer than some milliseconds.
"""

from __future__ import annotations

import codecs
import mmap
import re
from collections.abc import Generator, Iterator
from itertools import accumulate
from typing import TypeAlias

import msgspec

PIECE = 64 * 1024  # bytes that are read in one go
MOST_APART = 1024 * 1024  # bytes without a comma outside of texts: white space or a number, of no use to anybody
_LEAVES = 4  # levels of what has nothing below it, which are not followed one by one
_OPEN, _CLOSE, _SPACE = b"{[", b"}]", b" \t\r\n"
_NO_BRACKETS = bytes(each for each in range(256) if each not in _OPEN + _CLOSE)
_STEPS = bytes(1 if each in _OPEN else 255 if each in _CLOSE else 0 for each in range(256))  # as signed numbers
_object = re.compile(rb"\s*\{")
_key = re.compile(rb'\s*"((?:[^"\\]|\\.){0,400}+)"\s*:\s*', re.DOTALL)
_joint = re.compile(b"[,{}]")
_INSIDE = 2  # levels
_AS_CLOSED = bytes.maketrans(b"{[", b"}]")
_is_json = msgspec.json.Decoder(msgspec.Raw).decode
_text = msgspec.json.Decoder(str).decode


Data: TypeAlias = bytes | mmap.mmap  # see `large.Whole`


class TooDeep(msgspec.DecodeError):
    """It is nested deeper than was asked for."""


class Wanted(msgspec.Struct, frozen=True):
    """The members of an object that are looked for, and those of one of them, `inner`, where it is an object."""

    members: frozenset[str]
    inner: str
    of_inner: frozenset[str]


class Span(msgspec.Struct, frozen=True):
    """Where a member's value stands."""

    start: int
    end: int

    def of(self, data: Data) -> bytes:
        return data[self.start : self.end]


class Outline(msgspec.Struct):
    """The members that were wanted; of a name that is there twice the last one counts. `inside` is how many
    `inner` has, whatever their names."""

    members: dict[str, Span]
    of_inner: dict[str, Span]
    inside: int = 0


def reading(data: Data, wanted: Wanted, deepest: int) -> Generator[None, None, Outline]:
    """Finds the outline of an object, piece by piece. Raises `msgspec.DecodeError` for what is none, `TooDeep` for what
    is nested deeper than that, or some levels less, and `UnicodeDecodeError`."""
    yield from _check_letters(data)
    reading = _Reading(data, wanted, deepest)
    yield from reading.pieces()
    return reading.found


def _check_letters(data: Data) -> Iterator[None]:
    if type(data) is bytes and data.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(data), PIECE):
        decoder.decode(data[start : start + PIECE])
        yield
    decoder.decode(b"", final=True)


class _Reading:
    def __init__(self, data: Data, wanted: Wanted, deepest: int) -> None:
        self.found = Outline({}, {})
        self._data = data
        self._wanted = wanted
        names = [re.escape(name.encode()) for name in wanted.members | wanted.of_inner]
        self._may_name = re.compile(b"|".join([rb"\\", *names]))
        self._deepest = deepest
        self._open = bytearray()  # brackets
        self._names = ["", ""]  # of the members that are being read, outside and inside, where they are wanted
        self._starts = [0, 0]  # of their values
        self._is_in_inner = False

    def pieces(self) -> Iterator[None]:
        """One after the other. Each begins behind a comma, or where a long text has ended."""
        data, at, before = self._data, 0, b""
        if not _object.match(data):
            raise msgspec.ValidationError("Expected `object`")
        while True:
            end, stand_in = self._end_of_piece(at)
            self._check_commas(at, end, before, stand_in)
            self._read(at, end, before, stand_in)
            yield
            if stand_in:
                before = b'"":""' if stand_in == b'""' and self._open.endswith(b"{") else b'""'
                at = yield from self._behind_text(end)
            elif end == len(data):
                break
            else:
                before, at = b"", end + 1
                if not self._open:
                    raise msgspec.DecodeError(f"JSON is malformed: unexpected comma (byte {end})")
                self._next(end, len(self._open))
        if self._open:
            raise msgspec.DecodeError("Input data was truncated")

    def _end_of_piece(self, at: int) -> tuple[int, bytes]:
        """Before the last comma that is in no text; or before a text that goes on, and then what stands for it."""
        data, size = self._data, PIECE
        while True:
            window = _piece(data, at, size)
            parts = _without_escapes(window).split(b'"')
            is_in_text, is_last = len(parts) % 2 == 0, at + len(window) == len(data)
            if is_last and not is_in_text:
                return len(data), b""
            end = at + len(window)
            for number in range(len(parts) - 1, -1, -1):
                end -= len(parts[number])
                if number % 2 == 0 and (comma := parts[number].rfind(b",")) >= 0:
                    return end + comma, b""
                end -= 1  # the quote before it
            if is_in_text:
                start = at + len(window) - len(parts[-1]) - 1
                return start, self._stand_in(data[at:start])
            if size >= MOST_APART or is_last:
                raise msgspec.DecodeError(f"JSON is malformed: no comma in {size} bytes (byte {at})")
            size *= 2

    def _check_commas(self, at: int, end: int, before: bytes, stand_in: bytes) -> None:
        """The one before a piece, and the one behind it, stand between two values: the reader sees neither."""
        plain = self._data[at:end].strip(_SPACE)
        if at > 0 and not before and (plain[:1] in (b",", b"]", b"}") or not (plain or stand_in)):
            raise msgspec.DecodeError(f"JSON is malformed: unexpected comma (byte {at - 1})")
        if end < len(self._data) and not stand_in and plain[-1:] in (b"[", b"{"):
            raise msgspec.DecodeError(f"JSON is malformed: unexpected comma (byte {end})")

    def _stand_in(self, piece: bytes) -> bytes:
        """For a text behind this, which is a name or a value."""
        last = piece.rstrip(_SPACE)[-1:]
        is_name = last == b"{" or (not last and self._open.endswith(b"{"))
        return b'"":0' if is_name else b'""'

    def _read(self, at: int, end: int, before: bytes, stand_in: bytes) -> None:
        piece = self._data[at:end]
        parts = _without_escapes(piece).split(b'"')
        structure = b'"'.join(parts[::2]).translate(None, _SPACE)
        opened, depth = _opened(self._open, before), len(self._open)
        lowest = self._follow(structure)
        _is_json(b"".join((opened, piece, stand_in, _closed(self._open))))
        if lowest <= _INSIDE:
            self._note(at, piece, parts, depth)

    def _follow(self, structure: bytes) -> int:
        """What is open behind it. Returns how few were open on the way."""
        brackets = structure.translate(None, _NO_BRACKETS)
        for _ in range(_LEAVES):
            brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        lowest = len(self._open)
        for each in brackets:
            if each in _OPEN:
                self._open.append(each)
                if len(self._open) + _LEAVES > self._deepest:
                    raise TooDeep
            elif self._open:
                self._open.pop()
                lowest = min(lowest, len(self._open))
            else:
                raise msgspec.DecodeError("JSON is malformed: more is closed than was opened")
        return lowest

    # The members.

    def _note(self, at: int, piece: bytes, parts: list[bytes], depth: int) -> None:
        """Those that begin or end in a piece."""
        parts[1::2] = [b" " * len(text) for text in parts[1::2]]
        plain = b'"'.join(parts)
        depths = list(accumulate(memoryview(plain.translate(_STEPS)).cast("b"), initial=depth))
        may_name = self._may_name.search(piece) is not None
        for joint in _joint.finditer(plain):
            place = joint.start()
            before, behind, sign = depths[place], depths[place + 1], joint[0]
            if sign == b",":
                if before <= _INSIDE:
                    self._next(at + place, before, may_name)
            elif sign == b"{":
                if behind == _INSIDE:
                    self._is_in_inner = self._names[0] == self._wanted.inner
                    self.found.inside += self._is_in_inner
                if behind <= _INSIDE:
                    self._begins(at + place + 1, behind)
            elif before <= _INSIDE:
                self._ends(at + place, before)
                self._is_in_inner = False

    def _next(self, comma: int, depth: int, may_name: bool = True) -> None:
        if depth <= _INSIDE:
            self._ends(comma, depth)
            self.found.inside += depth == _INSIDE and self._is_in_inner
            if may_name:
                self._begins(comma + 1, depth)

    def _begins(self, place: int, depth: int) -> None:
        if depth == _INSIDE and not self._is_in_inner:
            return
        if named := _key.match(self._data, place):
            written = named[1]
            name = _text(b'"%b"' % written) if b"\\" in written else written.decode()
            if name in (self._wanted.members, self._wanted.of_inner)[depth - 1]:
                self._names[depth - 1], self._starts[depth - 1] = name, named.end()
                if depth == 1 and name == self._wanted.inner:
                    self.found.of_inner.clear()
                    self.found.inside = 0

    def _ends(self, place: int, depth: int) -> None:
        name, self._names[depth - 1] = self._names[depth - 1], ""
        if name:
            while self._data[place - 1] in _SPACE:
                place -= 1
            spans = (self.found.members, self.found.of_inner)[depth - 1]
            spans[name] = Span(self._starts[depth - 1], place)

    def _behind_text(self, start: int) -> Generator[None, None, int]:
        """Where it ends that begins with this quote."""
        data, at = self._data, start + 1
        while piece := _piece(data, at, PIECE):
            end = _without_escapes(piece).find(b'"')
            _is_json(b'"%b"' % (piece if end < 0 else piece[:end]))
            if end >= 0:
                return at + end + 1
            at += len(piece)
            yield
        raise msgspec.DecodeError("Input data was truncated")


def _piece(data: Data, at: int, size: int) -> bytes:
    """So much from there on, without an escape at its end, or half a character, that may go on behind it."""
    piece = data[at : at + size]
    if b"\\" not in piece[-_ESCAPE:] or at + size >= len(data):
        return piece
    plain = piece.replace(b"\\\\", b"__")
    escape = plain.rfind(b"\\")
    end = escape if escape > len(piece) - _ESCAPE else len(piece)
    return piece[: end - _ESCAPE] if _high.match(plain, max(0, end - _ESCAPE), end) else piece[:end]


_ESCAPE = len("\\u0041")
_high = re.compile(rb"\\u[dD][89abAB]..")  # the first half of a character


def _without_escapes(piece: bytes) -> bytes:
    """With something else in place of what is escaped: each quote begins or ends a text."""
    if b"\\" not in piece:
        return piece
    return piece.replace(b"\\\\", b"__").replace(b'\\"', b"__")


def _opened(open: bytes | bytearray, before: bytes) -> bytes:
    """What opens these, for a piece that goes on behind it."""
    if not open:
        return b""
    last = b"{" if open[-1:] == b"{" else b"["
    return bytes(open[:-1]).replace(b"{", b'{"":') + last + before


def _closed(open: bytes | bytearray) -> bytes:
    return bytes(reversed(open)).translate(_AS_CLOSED)
