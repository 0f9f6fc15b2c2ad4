"""About how many tokens of a model a text is, without its vocabulary.

Fitted to what `o200k_base` makes of 527 real tools, each as JSON and its description alone: the sum over all is within
3 %, a single tool is off by 7 % in the mean.
"""

from __future__ import annotations

import re

_PIECE = re.compile(r"([A-Za-z]+)|(\d+)|([^\x00-\x7f]+)|[^\sA-Za-z\d]+")
_WORD, _LETTER_BEYOND, _LETTERS = 0.908, 0.165, 7
_THREE_DIGITS, _OTHER_CHARACTER, _MARKS = 1.885, 0.745, 1.21


def estimate(text: str | bytes) -> int:
    """The tokens of a text, or of JSON as it is sent."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return round(sum(map(_tokens, _PIECE.finditer(text))))


def _tokens(piece: re.Match[str]) -> float:
    length = piece.end() - piece.start()
    if piece[1]:
        return _WORD + _LETTER_BEYOND * max(0, length - _LETTERS)
    if piece[2]:
        return _THREE_DIGITS * -(-length // 3)
    return _OTHER_CHARACTER * length if piece[3] else _MARKS
