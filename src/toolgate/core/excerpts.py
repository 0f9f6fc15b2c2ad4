"""Showing the beginning and the end of a text that is too long.

The rules this file keeps: only `head` gives the first ones, only `tail` the last, both the two with a line `...`
between; a text no longer than that is given whole (seed 000). A line is what `\\n` or `\\r\\n` ends; a character is
never parted from the marks that belong to it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, AnyStr, Literal, TypeAlias

import msgspec

from toolgate.core.fault import Fault

GAP = "..."

Unit: TypeAlias = Literal["lines", "chars"]


class Excerpt(msgspec.Struct, frozen=True):
    """What is shown of a text: `first` units of its beginning, `last` of its end, of `total` in all."""

    text: str
    is_truncated: bool
    total: int
    first: int
    last: int
    unit: Unit = "lines"

    def members(self) -> dict[str, Any]:
        """What a reply says of it."""
        return {"truncated": self.is_truncated, f"total_{self.unit}": self.total}


class Ends(msgspec.Struct, frozen=True):
    """How much of a text is wanted. None: nothing was said of that side."""

    head: int | None = None
    tail: int | None = None
    unit: Unit = "lines"

    def cut(self, text: str) -> Excerpt:
        return _UNITS[self.unit](text, self.head, self.tail)


def read_ends(found: Mapping[str, Any]) -> Ends:
    """What a caller's `head` and `tail`, or `head_chars` and `tail_chars`, say. Raises `Fault` INVALID_ARGS."""
    lines = Ends(_count(found, "head"), _count(found, "tail"))
    chars = Ends(_count(found, "head_chars"), _count(found, "tail_chars"), "chars")
    if _is_said(lines) and _is_said(chars):
        raise Fault("INVALID_ARGS", "Invalid arguments: cut a text by lines or by characters, not both")
    return chars if _is_said(chars) else lines


def _is_said(ends: Ends) -> bool:
    return ends.head is not None or ends.tail is not None


def _count(found: Mapping[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if not is_whole or value < 0:
        raise Fault("INVALID_ARGS", f'Invalid arguments: "{name}" must be a non-negative integer')
    return int(value)


def count_lines(text: AnyStr) -> int:
    """What follows the last line break is a line, if it is anything."""
    end = _line_end(text)
    return text.count(end) + (not text.endswith(end) and bool(text))


def after_lines(text: AnyStr, count: int) -> int:
    """The place behind the first lines. Halves what is to be counted, so that millions of lines take no loop."""
    end = _line_end(text)
    low, high = 0, len(text)
    while high - low > _FEW:
        middle = (low + high) // 2
        there = text.count(end, low, middle)
        low, high, count = (low, middle, count) if there >= count else (middle, high, count - there)
    for _ in range(count):
        low = text.find(end, low) + 1 or len(text)
    return low


_FEW = 4096


def _line_end(text: AnyStr) -> AnyStr:
    if isinstance(text, str):
        return "\n"
    return b"\n"


def by_lines(text: str, head: int | None, tail: int | None) -> Excerpt:
    total = count_lines(text)
    first, last = _shares(total, head, tail)
    if first + last >= total:
        return Excerpt(text, False, total, total, 0)
    shown = _joined(_first_lines(text, first), _last_lines(text, last, total), head is not None and tail is not None)
    return Excerpt(shown, True, total, first, last)


def by_chars(text: str, head: int | None, tail: int | None) -> Excerpt:
    total = len(text)
    first, last = _shares(total, head, tail)
    if first + last >= total:
        return Excerpt(text, False, total, total, 0, "chars")
    up_to, since = boundary_before(text, first), boundary_after(text, total - last)
    gap = "" if head is None or tail is None else f"\n{GAP}\n"
    return Excerpt(text[:up_to] + gap + text[since:], True, total, up_to, total - since, "chars")


_UNITS = {"lines": by_lines, "chars": by_chars}


def _shares(total: int, head: int | None, tail: int | None) -> tuple[int, int]:
    if head is None and tail is None:
        return total, 0
    return min(head or 0, total), min(tail or 0, total)


def _first_lines(text: str, count: int) -> str:
    return text[: after_lines(text, count)]


def _last_lines(text: str, count: int, total: int) -> str:
    return text[after_lines(text, total - count) :]


def _joined(first: str, last: str, is_both: bool) -> str:
    """`first` and `last` are whole lines."""
    if not is_both:
        return first.removesuffix("\n").removesuffix("\r" if first.endswith("\r\n") else "") + last
    end = "\r\n" if first.endswith("\r\n") else "\n"
    return f"{first}{GAP}{end}{last}" if last else f"{first}{GAP}"


# Characters and what belongs to them.

_JOINER = "\u200d"


MOST_TOGETHER = 256  # characters: no letter has as many marks, and what has more is parted anywhere


def boundary_before(text: str, place: int) -> int:
    """The last place up to this one where a text may be parted."""
    for found in range(place, max(place - MOST_TOGETHER, 0), -1):
        if found >= len(text) or not _belong_together(text[found - 1], text[found]):
            return found
    return max(place, 0) if place > MOST_TOGETHER else 0


def boundary_after(text: str, place: int) -> int:
    """The first place from this one on where a text may be parted."""
    for found in range(max(place, 0), min(place + MOST_TOGETHER, len(text))):
        if not found or not _belong_together(text[found - 1], text[found]):
            return found
    return min(place, len(text)) if place + MOST_TOGETHER < len(text) else len(text)


def _belong_together(before: str, after: str) -> bool:
    if before < "\u0300" and after < "\u0300":
        return before == "\r" and after == "\n"
    return _JOINER in (before, after) or _is_mark(after) or (_is_flag(before) and _is_flag(after))


def _is_mark(char: str) -> bool:
    """Combining marks, variation selectors, and the tones of toolset surface."""
    return unicodedata.category(char)[0] == "M" or "\U0001f3fb" <= char <= "\U0001f3ff"


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


# A text that must fit into a number of bytes.


def to_fit(text: str, budget: int, head: int | None = None, tail: int | None = None) -> Excerpt:
    """Of the wanted lines of a text, those that fit into this many bytes; of a line that is alone too long, those
    characters that do. Nothing said: as much of the beginning as fits. What says that something is missing adds a few.
    """
    data = text.encode()
    if len(data) <= budget:
        return by_lines(text, head, tail)
    wants_first, wants_last = head != 0 and (head is not None or tail is None), bool(tail)
    share = budget // 2 if wants_first and wants_last else budget
    first = _beginning(data, share, head) if wants_first else ""
    last = _end(data, budget - len(first.encode()), tail) if wants_last else ""
    is_both = head is not None and tail is not None
    if bool(first) != wants_first or bool(last) != wants_last:
        return _characters(text, data, share if wants_first else 0, share if wants_last else 0, is_both)
    return Excerpt(_joined(first, last, is_both), True, count_lines(text), count_lines(first), count_lines(last))


def _beginning(data: bytes, budget: int, most: int | None) -> str:
    """Whole lines only."""
    whole = data[: data.rfind(b"\n", 0, budget) + 1].decode()
    return _first_lines(whole, most) if most is not None and most < count_lines(whole) else whole


def _end(data: bytes, budget: int, most: int | None) -> str:
    before = data.find(b"\n", max(0, len(data) - budget - 1), len(data) - 1)
    whole = data[before + 1 :].decode() if before >= 0 else ""
    there = count_lines(whole)
    return _last_lines(whole, most, there) if most is not None and most < there else whole


def _characters(text: str, data: bytes, head: int, tail: int, is_both: bool) -> Excerpt:
    """As many as these bytes make."""
    up_to = boundary_before(text, len(data[:head].decode(errors="ignore")))
    since = boundary_after(text, len(text) - len(data[len(data) - tail :].decode(errors="ignore")))
    gap = f"\n{GAP}\n" if is_both else ""
    return Excerpt(text[:up_to] + gap + text[since:], True, len(text), up_to, len(text) - since, "chars")
