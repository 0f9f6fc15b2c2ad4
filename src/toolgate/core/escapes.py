"""A text as those read it who read the JSON in it, and the JSON in texts of that: layer by layer, with the way back.

The rules this file keeps: a layer is read exactly as a reader of JSON reads it, so that whatever such a reader ends up
with stands in one of them; behind the last of them backslashes mean nothing, however many there are; it takes a time
that is linear, in short steps; and what is found in a layer is known by its place in the text as it came.

Characters beyond the first plane are two units where `has_astral` says that they matter: each may be an escape.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

LAYERS = 3  # of JSON: a message, a text in it, a text in that
LONGEST = 6**LAYERS  # characters that write one unit, if all that write it are escapes themselves
BLOCK = 16_384  # characters that are read in one step
PLACE = 8  # looks that finding the way back takes, besides those at escapes

# What stands for a backslash that stays one, for one that begins no escape, and for one that begins `\uXXXX`.
_KEPT, _IDLE, _BEGINS = "\0", "\1", "\2"
_NONE = "\3"  # for these, where they are in a text
_SHORT = tuple(zip(('\\"', "\\/", *(f"\\{letter}" for letter in "bfnrt")), '"/\b\f\n\r\t', strict=True))
_broken = re.compile(r"\\u(?![0-9a-fA-F]{4})")
_once = re.compile(r'(\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt]))')
_loose = re.compile(r"""(\\+(?:u[0-9a-fA-F]{4}|["/])?)""")
_astral = re.compile("([\U00010000-\U0010ffff])")


class TooMuch(Exception):
    """More is in something than can be looked at in bounded time."""


class Looks:
    """How often one may still look at an escape."""

    def __init__(self, left: int) -> None:
        self._left = left

    def take(self, many: int) -> None:
        """Raises `TooMuch`."""
        self._left -= many
        if self._left < 0:
            raise TooMuch


class _Way(NamedTuple):
    """How a text is read: a block of it at once, which may end where `end` says; what in it is not read as it stands,
    and as how many characters that is."""

    read: Callable[[str], str]
    end: Callable[[str, int, int], int]
    pattern: re.Pattern[str]
    size: Callable[[str], int]


class _Reading:
    """A text, read in one way."""

    def __init__(self, source: str, way: _Way, looks: Looks) -> None:
        self._source, self._way, self._looks = source, way, looks
        self._starts, self._read_starts, parts = [0], [0], list[str]()
        while (start := self._starts[-1]) < len(source):
            end = min(len(source), start + BLOCK)
            end = way.end(source, start, end) if end < len(source) else end
            parts.append(way.read(source[start:end]))
            self._starts.append(end)
            self._read_starts.append(self._read_starts[-1] + len(parts[-1]))
        self.text = "".join(parts)
        self._maps: dict[int, tuple[list[int], list[int]]] = {}

    def source_of(self, start: int, stop: int) -> tuple[int, int]:
        """Where what is read from one place to another stands in the source. An escape goes as a whole, with those
        before it that are read as nothing. Raises `TooMuch`."""
        self._looks.take(PLACE)
        block = bisect.bisect_right(self._read_starts, start) - 1
        ends, read_ends = self._map(block)
        at = start - self._read_starts[block]
        part = bisect.bisect_right(read_ends, at)
        before = at - (read_ends[part - 1] if part else 0)
        first = (ends[part - 1] if part else 0) + (0 if part % 2 else before)
        if part and not before and read_ends[part - 1] == (read_ends[part - 2] if part > 1 else 0):
            first = ends[part - 2] if part > 1 else 0  # of a line break, for example
        first += self._starts[block]
        block = bisect.bisect_left(self._read_starts, stop) - 1
        ends, read_ends = self._map(block)
        at = stop - self._read_starts[block]
        part = bisect.bisect_left(read_ends, at)
        return first, self._starts[block] + ends[part] - (0 if part % 2 else read_ends[part] - at)

    def _map(self, block: int) -> tuple[list[int], list[int]]:
        if block not in self._maps:
            # Every second one is not read as it stands.
            parts = self._way.pattern.split(self._source[self._starts[block] : self._starts[block + 1]])
            self._looks.take(len(parts))
            sizes = [self._way.size(part) if number % 2 else len(part) for number, part in enumerate(parts)]
            self._maps[block] = [*itertools.accumulate(map(len, parts))], [*itertools.accumulate(sizes)]
        return self._maps[block]


class _Bytes(_Reading):
    """A text with a character for each byte of UTF-8."""

    def __init__(self, source: str, looks: Looks) -> None:
        super().__init__(source, _Way(_decoded, _end_of_bytes, _astral, len), looks)

    def source_of(self, start: int, stop: int) -> tuple[int, int]:
        self._looks.take(PLACE)
        return self._before(start), self._before(stop)

    def _before(self, at: int) -> int:
        block = min(bisect.bisect_right(self._read_starts, at) - 1, len(self._starts) - 2)
        before = self.text[self._read_starts[block] : at]
        return self._starts[block] + len(before.encode(errors="surrogateescape"))


def _decoded(block: str) -> str:
    return block.encode("latin-1").decode(errors="surrogateescape")


def _end_of_bytes(source: str, start: int, end: int) -> int:
    for at in range(end, end - 4, -1):
        if not "\x80" <= source[at] <= "\xbf":
            return at
    return end


def _end_once(source: str, start: int, end: int) -> int:
    """A backslash behind an even number of others begins an escape."""
    at = source.rfind("\\", end - 5, end)
    if at < 0:
        return end
    before = source[start : at + 1]
    return at if (len(before) - len(before.rstrip("\\"))) % 2 else end


def _end_loose(source: str, start: int, end: int) -> int:
    at = source.find("\\", end - 6, end)
    return at if at >= 0 else end


def _read_once(block: str) -> str:
    if "\\" not in block:
        return block
    block = _without_signs(block).replace("\\\\", _KEPT)
    for escape, letter in _SHORT:
        block = block.replace(escape, letter)
    return _read_units(block, rb"\\") if "\\u" in block else block.replace(_KEPT, "\\")


def _read_loose(block: str) -> str:
    """Without backslashes; and line breaks and the like are what stands behind a backslash for them."""
    read = _read_units(_without_signs(block), b"").replace("\\", "") if "\\" in block else block
    for control, letter in zip("\b\f\n\r\t", "bfnrt", strict=True):
        read = read.replace(control, letter)
    return read


def _without_signs(block: str) -> str:
    return block.replace(_KEPT, _NONE).replace(_IDLE, _NONE).replace(_BEGINS, _NONE)


def _read_units(block: str, idle: bytes) -> str:
    """`idle` is what is written for a backslash that begins no escape."""
    try:
        return _all_units(block, idle)
    except UnicodeDecodeError:  # an escaped backslash, and a `u`, for example
        return _all_units(_broken.sub(f"{_IDLE}u", block), idle)


def _all_units(block: str, idle: bytes) -> str:
    ascii = block.replace("\\u", _BEGINS).replace("\\", _IDLE).encode("ascii", "backslashreplace")
    ascii = ascii.replace(_KEPT.encode(), rb"\\").replace(_IDLE.encode(), idle).replace(_BEGINS.encode(), rb"\u")
    return ascii.decode("unicode_escape")


def _size_loose(written: str) -> int:
    return 0 if written[-1] == "\\" or written[-4:].lower() == "005c" else 1


def units(text: str) -> str:
    """What is beyond the first plane as two units."""
    return _astral.sub(lambda found: _two_units(found[0]), text)


def _two_units(letter: str) -> str:
    code = ord(letter) - 0x10000
    return chr(0xD800 + (code >> 10)) + chr(0xDC00 + (code & 0x3FF))


def loosely(text: str) -> str:
    """As the last layer has it."""
    return _read_loose(text)


def _size_once(written: str) -> int:
    return 1


def _size_units(written: str) -> int:
    return 2


def _end_anywhere(source: str, start: int, end: int) -> int:
    return end


_ONCE = _Way(_read_once, _end_once, _once, _size_once)
_LOOSE = _Way(_read_loose, _end_loose, _loose, _size_loose)
_UNITS = _Way(units, _end_anywhere, _astral, _size_units)


class Layer(NamedTuple):
    text: str
    is_loose: bool  # the last one, without backslashes
    source_of: Callable[[int, int], tuple[int, int]]


def layers(shown: str, is_bytes: bool, has_astral: bool, looks: Looks) -> Iterator[Layer]:
    """All in which something is read. The ways back raise `TooMuch`."""
    readings = list[_Reading]()

    def source_of(start: int, stop: int) -> tuple[int, int]:
        for reading in reversed(readings):
            start, stop = reading.source_of(start, stop)
        return start, stop

    def read(way: _Way) -> str:
        readings.append(_Reading(text, way, looks))
        return readings[-1].text

    text = shown
    if is_bytes and not shown.isascii():
        readings.append(_Bytes(shown, looks))
        text = readings[-1].text
    if has_astral:
        text = read(_UNITS)
    for _ in range(LAYERS):
        if "\\" not in text:
            return
        if (once := read(_ONCE)) == text:
            break
        yield Layer(text := once, False, source_of)
    if "\\" in text:
        yield Layer(read(_LOOSE), True, source_of)
