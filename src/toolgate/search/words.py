"""Text as the terms that are searched: identifiers split, accents and endings off, words that say nothing left out.

The rule this file keeps: documents and queries go through the same steps, save that a document keeps a compound both
whole and in parts ("GitHub" is `github`, `git`, `hub`), and a query chooses what the index knows.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from toolgate.core.spelling import normalized

_COMPOUND = re.compile(r"\w+(?:['’]\w+)*")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_LONGEST = 40  # what is longer is no word: a key, a hash, base64

STOP_WORDS = frozenset(
    """
    a about after again all also am an and another any are as at be because been before being but by can cannot could
    did do does doing done down each either else etc every few for from further had has have having he her here hers
    him his how however i if in into is it its itself just let like may me might mine more most much must my myself
    need needs no nor not now of off on once one only onto or other our ours out over own per please s same shall she
    should so some such t than that the their them then there these they this those through thus to too under until up
    upon us very via want wants was we were what whatever when where whether which while who whom whose why will with
    within without would yes yet you your yours
    i'd i'll i'm i've you're you'd we're we'd let's it's that's what's don't can't doesn't isn't
    help looking able assist certainly kindly thank thanks tell give show
    use used uses using interact interacting interaction
    """.split()  # noqa: SIM905 -- a table that is read as text
)


def split(compound: str) -> list[str]:
    """The parts of an identifier: `browser_takeScreenshot` is browser, take, Screenshot."""
    return _PART.findall(compound)


def compounds(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each word of a text as it stands whole, and its parts; a word of one part has none."""
    for word in _COMPOUND.findall(text if text.isascii() else _without_accents(text)):
        if len(word) <= _LONGEST:
            yield from _compound(word)


@lru_cache(8192)
def _compound(word: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not word.isascii() and (found := _IDEOGRAPHS.findall(word)):
        return tuple((pair, ()) for run in found for pair in _pairs(run))
    lower = word.lower().replace("’", "'")
    if lower in STOP_WORDS:
        return ()
    lower = lower.partition("'")[0]
    found = split(word.partition("'")[0])
    if found == [lower] and lower not in STOP_WORDS:
        return ((stem(lower), ()),)
    parts = tuple(stem(part.lower()) for part in found if part.lower() not in STOP_WORDS)
    if len(parts) < 2:
        return ((parts[0], ()),) if parts else ()
    return ((stem(lower.replace("_", "")), parts),)


def terms(text: str) -> list[str]:
    """The terms of a document's text."""
    found: list[str] = []
    for whole, parts in compounds(text):
        found.append(whole)
        found += parts
    return found


def _pairs(run: str) -> Iterator[str]:
    """Scripts without spaces are searched by pairs of characters."""
    yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))


def _without_accents(text: str) -> str:
    return "".join(c for c in normalized(text, "NFKD") if not unicodedata.combining(c)).replace("đ", "d")


_ENDINGS = (
    ("ization", "iz"), ("isation", "iz"), ("ational", "at"), ("fulness", "ful"), ("iveness", "iv"),
    ("ations", "at"), ("ation", "at"), ("ments", ""), ("ment", ""), ("ions", ""), ("ion", ""), ("ings", ""),
    ("ing", ""), ("ers", ""), ("ors", ""), ("er", ""), ("or", ""), ("edly", ""), ("ied", "y"), ("ed", ""), ("ies", "y"),
    ("sses", "ss"), ("ally", ""), ("ly", ""), ("als", ""), ("al", ""), ("es", ""), ("s", ""), ("e", ""),
)  # fmt: skip

_BY_LAST_LETTER = {
    last: tuple(each for each in _ENDINGS if each[0][-1] == last) for last in {e[-1] for e, _ in _ENDINGS}
}


@lru_cache(16384)
def stem(word: str) -> str:
    """A light stem: one ending off, if enough is left of the word."""
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-3] + "y" if word.endswith("ies") and len(word) > 4 else word[:-1]
    for ending, instead in _BY_LAST_LETTER.get(word[-1], ()):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)] + instead
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "sle" else word
