"""Showing the beginning and the end of a text that is too long.

The rules this file keeps: only `head` gives the first ones, only `tail` the last, both the two with a line `...`
between; a text no longer than that is given whole (seed 000). A line is what `\\n` or `\\r\\n` ends; a character is
never parted from the marks that belong to it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from toolgate.model import Fault

GAP = "..."

Unit: TypeAlias = Literal["lines", "chars"]


class Cut(msgspec.Struct, frozen=True):
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

    def cut(self, text: str) -> Cut:
        return _UNITS[self.unit](text, self.head, self.tail)


def read_ends(found: Mapping[str, Any]) -> Ends:
    """What a caller's `head` and `tail`, or `head_chars` and `tail_chars`, say. Raises `Fault` INVALID_ARGS."""
    lines = Ends(_count(found, "head"), _count(found, "tail"))
    chars = Ends(_count(found, "head_chars"), _count(found, "tail_chars"), "chars")
    if _is_said(lines) and _is_said(chars):
        raise Fault("INVALID_ARGS", "Invalid arguments: a text is cut by lines or by characters, not by both")
    return chars if _is_said(chars) else lines


def _is_said(ends: Ends) -> bool:
    return ends.head is not None or ends.tail is not None


def _count(found: Mapping[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if not is_whole or value < 0:
        raise Fault("INVALID_ARGS", f'Invalid arguments: "{name}" must be an integer that is not negative')
    return int(value)


def count_lines(text: str) -> int:
    """What follows the last line break is a line, if it is anything."""
    return text.count("\n") + (not text.endswith("\n") and text != "")


def by_lines(text: str, head: int | None, tail: int | None) -> Cut:
    total = count_lines(text)
    first, last = _shares(total, head, tail)
    if first + last >= total:
        return Cut(text, False, total, total, 0)
    gap = "" if head is None or tail is None else f"{GAP}{_line_end(text)}"
    beginning = text[: _end_of_line(text, first)]
    end = text[_start_of_line(text, last) :]
    return Cut(beginning + gap + end if gap else _without_end(beginning) + end, True, total, first, last)


def by_chars(text: str, head: int | None, tail: int | None) -> Cut:
    total = len(text)
    first, last = _shares(total, head, tail)
    if first + last >= total:
        return Cut(text, False, total, total, 0, "chars")
    up_to, since = boundary_before(text, first), boundary_after(text, total - last)
    gap = "" if head is None or tail is None else f"\n{GAP}\n"
    return Cut(text[:up_to] + gap + text[since:], True, total, up_to, total - since, "chars")


_UNITS = {"lines": by_lines, "chars": by_chars}


def _shares(total: int, head: int | None, tail: int | None) -> tuple[int, int]:
    if head is None and tail is None:
        return total, 0
    return min(head or 0, total), min(tail or 0, total)


def _end_of_line(text: str, count: int) -> int:
    """Where the first `count` lines end, of a text that has more."""
    place = 0
    for _ in range(count):
        place = text.index("\n", place) + 1
    return place


def _start_of_line(text: str, count: int) -> int:
    """Where the last `count` lines begin, of a text that has more."""
    if not count:
        return len(text)
    place = len(text) - text.endswith("\n")
    for _ in range(count):
        place = text.rindex("\n", 0, place)
    return place + 1


def _line_end(text: str) -> str:
    """The line end of this text, which has one."""
    return "\r\n" if text[: text.index("\n") + 1].endswith("\r\n") else "\n"


def _without_end(text: str) -> str:
    return re.sub(r"\r?\n\Z", "", text)


# Characters and what belongs to them.

_JOINER = "\u200d"


def boundary_before(text: str, place: int) -> int:
    """The last place up to this one where a text may be parted."""
    while 0 < place < len(text) and _belong_together(text[place - 1], text[place]):
        place -= 1
    return max(place, 0)


def boundary_after(text: str, place: int) -> int:
    """The first place from this one on where a text may be parted."""
    while 0 < place < len(text) and _belong_together(text[place - 1], text[place]):
        place += 1
    return min(place, len(text))


def _belong_together(before: str, after: str) -> bool:
    if before < "\u0300" and after < "\u0300":
        return before == "\r" and after == "\n"
    return _JOINER in (before, after) or _is_mark(after) or (_is_flag(before) and _is_flag(after))


def _is_mark(char: str) -> bool:
    """Combining marks, variation selectors, and the tones of skin."""
    return unicodedata.category(char)[0] == "M" or "\U0001f3fb" <= char <= "\U0001f3ff"


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


# A text that must fit into a number of bytes.


def to_fit(text: str, budget: int, head: int | None = None, tail: int | None = None) -> Cut:
    """Of the wanted lines, those that fit into this many bytes; of a line that is alone too long, characters that do.

    Nothing said: as much of the beginning as fits.
    """
    if len(text.encode()) <= budget:
        return by_lines(text, head, tail)
    total = count_lines(text)
    has_head, has_tail = head is not None or tail is None, tail is not None
    share = budget // 2 if has_head and has_tail else budget
    first = _first_lines(text, min(share, budget), head) if has_head else ""
    last = _last_lines(text, budget - len(first.encode()), tail) if has_tail else ""
    lines = Cut("", True, total, count_lines(first), count_lines(last))
    if (head == 0 or first or not has_head) and (tail == 0 or last or not has_tail):
        return msgspec.structs.replace(lines, text=_joined(first, last, has_head and has_tail))
    return _characters_to_fit(text, share, has_head, has_tail)


def _joined(first: str, last: str, is_both: bool) -> str:
    if not is_both:
        return _without_end(first) + last
    return f"{first}{'' if first.endswith(chr(10)) or not first else chr(10)}{GAP}\n{last}"


def _first_lines(text: str, budget: int, most: int | None) -> str:
    """Whole lines only."""
    fitting = text.encode()[:budget].decode(errors="ignore")
    whole = fitting[: fitting.rfind("\n") + 1]
    return by_lines(whole, most, None).text + "\n" if most is not None and count_lines(whole) > most else whole


def _last_lines(text: str, budget: int, most: int | None) -> str:
    data = text.encode()
    fitting = data[max(0, len(data) - budget) :]
    whole = fitting[fitting.find(b"\n", 0, len(fitting) - 1) + 1 :] if b"\n" in fitting[:-1] else b""
    return by_lines(whole.decode(), None, most).text if most is not None else whole.decode()


def _characters_to_fit(text: str, share: int, has_head: bool, has_tail: bool) -> Cut:
    data = text.encode()
    first = data[: share if has_head else 0].decode(errors="ignore")
    last = data[len(data) - share if has_tail else len(data) :].decode(errors="ignore")
    up_to = boundary_before(text, len(first))
    since = boundary_after(text, len(text) - len(last))
    gap = f"\n{GAP}\n" if has_head and has_tail else ""
    return Cut(text[:up_to] + gap + text[since:], True, len(text), up_to, len(text) - since, "chars")
