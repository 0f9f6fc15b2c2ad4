"""How many values JSON holds, counted before it is read: a value of two bytes takes fifty times as much to read and to
keep as it takes to send. And how deep they are nested: readers that call themselves have an end to that, each another.

The rules this file keeps: what is too short to hold too many is not looked at; what does is looked at no further than
that far; and of what is looked at a piece at a time is, so that other threads get their turn in between.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from itertools import accumulate

from msgspec import Raw

PIECE = 64 * 1024  # bytes that are looked at in one go: about 1 ms at most
LARGE, MANY = 1024 * 1024, 100_000  # bytes and values: what has more of both takes longer than others should wait
LONG = 32  # bytes outside of texts that are counted as a value at least: no usual number has as many
_SPACE = b" \t\r\n"


def has_more_values(data: bytes | memoryview, most: int) -> bool:
    """Whether JSON has more than so many values, members of objects and elements of arrays at all depths among them.
    What is no JSON may have any number; numbers without end count as several values, since they take as long."""
    if len(data) < 2 * most:  # each takes a byte, and one that sets it apart
        return False
    count, quotes, size, last = 1, 0, 0, b""
    for structure, ends in _outside_of_texts(data):
        quotes += ends
        if quotes > 4 * most:  # a value has two of them, and its name two more
            return True
        size += len(structure)
        # A value is the first one in an array or object, or stands behind a comma.
        count += structure.count(b",") + structure.count(b"[") + structure.count(b"{")
        structure = last + structure
        count -= structure.count(b"[]") + structure.count(b"{}")
        last = structure[-1:]
        if count > most + 1 or size > LONG * most:  # an array whose end comes next may have nothing in it
            break
    return count > most or size > LONG * most


def is_deeper(data: bytes, most: int, is_left: bool = False) -> bool:
    """Whether JSON is nested deeper than so many levels. Of what is longer than a piece, up to `_LEAVES` levels fewer
    may be too many, and so may be a million lists of lists of lists. `is_left`: it is left as it is where it is too
    much, and then not looked at either."""
    if data.count(b"[") + data.count(b"{") <= most:
        return False
    depth = looked_at = values = 0
    for structure, _ in _outside_of_texts(data):
        nested = structure.translate(_AS_ARRAYS, _NO_BRACKETS)
        values += structure.count(b",") + nested.count(b"[") - nested.count(b"[]") - 1  # at least
        if is_left and values > MANY and len(data) > LARGE:
            return False
        if depth + nested.count(b"[") > most:
            rest = nested
            for _ in range(_LEAVES):  # most of what is nested is not deep: this is ten times as fast as to follow it
                rest = rest.replace(b"[]", b"")
            looked_at += len(rest)
            deepest = max(accumulate(memoryview(rest.translate(_STEPS)).cast("b"), initial=depth))
            if deepest + _LEAVES > most or looked_at > _MOST_FOLLOWED:
                return True
        depth += nested.count(b"[") - nested.count(b"]")
    return False


_LEAVES = 4  # levels of what has no more below it
_MOST_FOLLOWED = 2 * LARGE  # brackets: about 50 ms
_AS_ARRAYS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(each for each in range(256) if each not in b"[]{}")
_STEPS = bytes.maketrans(b"[]", b"\x01\xff")  # as signed numbers


def _outside_of_texts(data: bytes | memoryview) -> Iterator[tuple[bytes, int]]:
    """What stands outside of texts, with a quote for each of these and without white space, a piece at a time; and how
    many quotes there were. What is no JSON may be parted anywhere."""
    start, is_in_text = 0, False
    while start < len(data):
        piece = bytes(data[start : start + PIECE])
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # what is escaped goes with its backslash
            piece = bytes(data[start : start + PIECE + 1])
        if isinstance(data, memoryview) and isinstance(data.obj, mmap.mmap):
            data.obj.madvise(mmap.MADV_DONTNEED)  # see `large`
        start += len(piece)
        if is_in_text and b'"' not in piece:
            continue  # a long text, whose escapes would take most of the time
        if b"\\\\" in piece:
            piece = piece.replace(b"\\\\", b"")
        if is_in_text and piece.count(b'"') == piece.count(b'\\"'):
            continue  # one with JSON in it
        if b"\\" in piece:
            piece = piece.replace(b'\\"', b"")
        parts = piece.split(b'"')
        quotes = len(parts) - 1
        if is_in_text:
            parts.insert(0, b"")
        is_in_text = len(parts) % 2 == 0
        yield b'"'.join(parts[::2]).translate(None, _SPACE), quotes  # one quote for each text


def size_in_text(data: bytes | memoryview) -> int:
    """How many bytes UTF-8 takes where it stands in a text of JSON."""
    return _size_with(data, quote=2, space=2, control=6)


def size_in_inner_text(data: bytes | memoryview) -> int:
    """The same in a text of JSON that is a text of JSON itself."""
    return _size_with(data, quote=4, space=3, control=7)


def _size_with(data: bytes | memoryview, quote: int, space: int, control: int) -> int:
    size = len(data)
    for start in range(0, len(data), PIECE):
        piece = bytes(data[start : start + PIECE])
        left = _count(piece, _ESCAPED)
        for characters, written in ((_QUOTES, quote), (_SPACES, space)):
            if left:  # a look takes as long as the piece, and most have nothing or one sort
                found = _count(piece, characters)
                size += found * (written - 1)
                left -= found
        size += left * (control - 1)
    return size


def _count(piece: bytes, characters: bytes) -> int:
    return len(piece) - len(piece.translate(None, characters))


_QUOTES, _SPACES = b'"\\', b"\b\t\n\f\r"
_ESCAPED = _QUOTES + bytes(range(0x20))


def is_too_much(body: Raw | bytes) -> bool:
    """Whether a result has so many values that it is left as it is, rather than looked into."""
    return memoryview(body).nbytes > LARGE and has_more_values(memoryview(body), MANY)
