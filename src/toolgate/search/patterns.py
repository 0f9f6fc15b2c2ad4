"""Search by regular expression, in bounded time: Python's `re` cannot be stopped once it has begun.

The rule this file keeps: a pattern that could take long is refused before it is tried. So nothing that repeats may hold
choices or repetitions, the ways in which a pattern can match are few, each text is matched in pieces, and all of them
within a budget that is looked at between two pieces.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator

from toolgate.search.documents import Document, Unsearchable

_LONGEST = 200
_PIECE = 300  # characters of a line that are matched at once
_MOST_WAYS = 1.1 * _PIECE**2
_MOST_TIMES = 1000  # of one exact count
_MOST_OF_GROUPS = 100  # of those of groups, multiplied: what matches nothing is tried as often wherever it stands
_BUDGET = 0.1  # seconds
_MOST_TEXT = 5_000

_ENDS = re.compile(r"^(?:\.\*)+|(?<!\\)(?:\.\*)+$")  # say nothing, where a match may stand anywhere
_TOKEN = re.compile(
    r"""
    (?P<escape>\\.) | (?P<class>\[\^?\]?(?:\\.|[^\]\\])*\]) | (?P<flags>\(\?[aiLmsux]+\))
    | (?P<open>\((?:\?:|\?P<\w+>|\?(?P<odd>.)?)?) | (?P<close>\))
    | (?P<repeat>[*+]|\{(?P<least>\d*)(?P<comma>,)?(?P<most>\d*)\})[?+]? | (?P<maybe>\?)\??
    | (?P<choice>\|) | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def search(pattern: str, documents: Iterable[Document]) -> list[tuple[Document, float]]:
    """What matches, and how well: a name counts more than a title, and that more than a description.
    Raises `Unsearchable`."""
    matcher = compiled(pattern)
    end = time.monotonic() + _BUDGET
    found: list[tuple[Document, float]] = []
    for document in documents:
        relevance = 0.0
        for worth, text in ((4, document.name), (2, document.title), (1, document.description)):
            relevance += worth * _matches(matcher, text, end)
        if relevance:
            found.append((document, relevance))
    return sorted(found, key=lambda each: (-each[1], each[0].server, each[0].name))


def _matches(matcher: re.Pattern[str], text: str, end: float) -> bool:
    for piece in _pieces(text):
        if time.monotonic() > end:
            raise Unsearchable("The pattern takes too long: make it simpler, or search with mode bm25")
        if matcher.search(piece):
            return True
    return False


def _pieces(text: str) -> Iterator[str]:
    """Its lines; of a long one, pieces that overlap by half."""
    for line in text[:_MOST_TEXT].splitlines():
        yield from (line[at : at + _PIECE] for at in range(0, max(1, len(line) - _PIECE // 2), _PIECE // 2))


def compiled(pattern: str) -> re.Pattern[str]:
    """Ready to match, upper and lower case alike. Raises `Unsearchable`."""
    if len(pattern) > _LONGEST:
        raise Unsearchable(f"The pattern is too long: the limit is {_LONGEST} characters")
    pattern = _ENDS.sub("", pattern)
    _refuse_what_takes_long(pattern)
    try:
        matcher = re.compile(pattern, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        raise Unsearchable(f"Not a regular expression: {error}") from None
    if matcher.flags & re.VERBOSE:
        raise Unsearchable("A pattern must not use the flag x")
    return matcher


def _refuse_what_takes_long(pattern: str) -> None:
    """Counts the ways in which it can match one text: along a sequence they multiply, between choices they add."""
    groups = [_Ways()]
    closed = 1.0  # the ways of the group that has just ended
    times = 1  # that a group is tried, if all counts of groups stand around each other
    is_behind_group = False
    for token in _TOKEN.finditer(pattern):
        if token["odd"] or (token["escape"] or "")[1:].isdigit():
            raise Unsearchable("A pattern must not use lookaround or back-references")
        if token["repeat"] and closed > 1:
            raise Unsearchable("A pattern must not repeat a group that has repetitions or alternatives")
        if (count := int(token["least"] or 0)) > _MOST_TIMES:
            raise Unsearchable(f"A pattern must not repeat anything more than {_MOST_TIMES:,} times")
        times *= max(1, count) if is_behind_group else 1
        if times > _MOST_OF_GROUPS:
            raise Unsearchable(f"A pattern must not repeat groups more than {_MOST_OF_GROUPS} times, counts multiplied")
        is_behind_group = bool(token["close"])
        closed = 1.0
        if token["open"]:
            groups.append(_Ways())
        elif token["close"] and len(groups) > 1:
            closed = groups.pop().all
            groups[-1].along *= closed
        elif token["choice"]:
            groups[-1] = _Ways(groups[-1].all)
        else:
            groups[-1].along *= _ways(token)
        if max(group.all for group in groups) * times > _MOST_WAYS:
            raise Unsearchable("A pattern must not have more than two unbounded repetitions, such as * or +")


class _Ways:
    def __init__(self, before: float = 0.0) -> None:
        self.before = before
        self.along = 1.0

    @property
    def all(self) -> float:
        return self.before + self.along


def _ways(token: re.Match[str]) -> float:
    if token["maybe"]:
        return 2
    if not token["repeat"]:
        return 1
    least, most = int(token["least"] or 0), int(token["most"] or _PIECE)
    return 1 if token["least"] and not token["comma"] else max(1, min(most, _PIECE) - least + 1)
