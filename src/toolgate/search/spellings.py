"""How alike two texts are written: what they share of sequences of three letters, whatever their words are.

So `geocode` and "geographic coordinates", `screenshots` and "screen capture" have something in common that no stem and
no synonym shows. The sequences of a text are the bits of one number: a comparison is one `and`.
"""

from __future__ import annotations

import math

from toolgate.search import words

_BITS = 8191  # of a text; prime, so that no letter has a place of its own


def of(text: str) -> int:
    written = f" {' '.join(words.split(text))} ".lower()
    found = {
        (ord(first) * 961 + ord(second) * 31 + ord(third)) % _BITS
        for first, second, third in zip(written, written[1:], written[2:], strict=False)
    }
    bits = bytearray(_BITS // 8 + 1)
    for place in found:
        bits[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(bits, "little")


def likeness(one: int, other: int) -> float:
    """From 0 to 1: the cosine of the two."""
    whole = one.bit_count() * other.bit_count()
    return (one & other).bit_count() / math.sqrt(whole) if whole else 0
