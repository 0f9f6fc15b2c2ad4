"""About how many tokens of a model a text is, without its vocabulary.

Fitted to what `o200k_base` makes of 527 real tools, each as JSON and its description alone: the sum over all is within
3 %, a single tool is off by 7 % in the mean. It takes about 50 ns a character, and no more than `MOST_COUNTED` of them:
a longer text is judged by that many, taken from all over it.
"""

from __future__ import annotations

import re

_WORD, _LETTER_BEYOND, _THREE_DIGITS, _OTHER_CHARACTER, _MARKS = 0.908, 0.165, 1.885, 0.745, 1.21
# Counted in C, each by itself: an object for each piece of a text would take twenty times as long.
_word = re.compile("[A-Za-z]+")
_beyond = re.compile("(?<![A-Za-z])[A-Za-z]{7}([A-Za-z]+)")  # of a long word
_three_digits = re.compile("[0-9]{1,3}")
_marks = re.compile(r"[^\sA-Za-z0-9\x80-\U0010ffff]+")

LONGEST = 32  # characters that count as one token at least, whatever they are
MOST_COUNTED = 256 * 1024  # characters
_SLICE = 16 * 1024


def estimate(text: str | bytes) -> int:
    """The tokens of a text, or of JSON as it is sent."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    found = _counted(text) if len(text) <= MOST_COUNTED else _inferred(text)
    return max(round(found), len(text) // LONGEST)


def has_more(text: str, most: int) -> bool:
    """Whether a text has more tokens than that. What is far too long is not counted."""
    return len(text) // LONGEST > most or estimate(text) > most


def _inferred(text: str) -> float:
    """Of a long text, by slices of it."""
    slices = MOST_COUNTED // _SLICE
    step = (len(text) - _SLICE) / (slices - 1)
    starts = [round(step * each) for each in range(slices)]
    return sum(_counted(text[start : start + _SLICE]) for start in starts) * len(text) / MOST_COUNTED


def _counted(text: str) -> float:
    return (
        _WORD * len(_word.findall(text))
        + _LETTER_BEYOND * sum(map(len, _beyond.findall(text)))
        + _THREE_DIGITS * len(_three_digits.findall(text))
        + _OTHER_CHARACTER * (len(text) - len(text.encode("ascii", "ignore")))
        + _MARKS * len(_marks.findall(text))
    )
