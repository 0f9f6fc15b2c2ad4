"""Text in one spelling, in time that grows as the text does.

Combining characters that follow each other are put in order by insertion, which takes the square of how many there are:
30,000 of them keep the interpreter for half a minute, in whatever thread. The rule this file keeps: of a run of them
the first are taken, as many as any writing needs (UAX 15, "Stream-Safe Text Format").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

MOST_MARKS = 30  # in a row
LONGEST_NAMES, MOST_SPELLED = 64 * 1024, 4096  # characters of a caller's names, and of those beyond ASCII; see below

# Letters that are in most texts, none of which combines with what stands before it.
LETTERS = (
    r"\u0000-\u02ff\u0391-\u03ff\u0400-\u0482\u048a-\u052f\u0621-\u064a"
    r"\u3041-\u3096\u30a1-\u30fa\u3400-\u9fff\uac00-\ud7a3"
)

# Characters that nobody sees, letters and marks among them, which fold to nothing (NFKC_Casefold): Unicode's
# Default_Ignorable_Code_Point, which Python does not tell.
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_long_runs = re.compile(rf"[^{LETTERS}]{{{MOST_MARKS + 1},}}")


def normalized(text: str, form: Literal["NFKC", "NFKD"] = "NFKC") -> str:
    """What characters look like is what they are: of full width, ligatures, accents apart."""
    if text.isascii():
        return text
    return unicodedata.normalize(form, _long_runs.sub(lambda run: _with_few_marks(run[0]), text))


def as_a_lenient_reader(name: str) -> str:
    """What servers that mind neither case, width, nor white space and invisible characters take a name for."""
    folded = normalized(normalized(name).casefold())
    visible = folded if folded.isprintable() else "".join(filter(str.isprintable, folded))
    visible = visible.replace(" ", "")  # the one space that is printable
    if not visible.isascii():
        visible = INVISIBLE.sub("", visible)
    return folded if visible == folded else normalized(visible)


def are_too_long(names: Iterable[str]) -> bool:
    """Whether it would take too long to compare names that a caller chose in all their spellings: one character may
    become eighteen. No names that mean anything are as long; and what is not compared must not go on."""
    every, beyond = 0, 0
    for name in names:
        every += len(name)
        beyond += 0 if name.isascii() else len(name)
    return every > LONGEST_NAMES or beyond > MOST_SPELLED


def _with_few_marks(run: str) -> str:
    kept: list[str] = []
    marks = 0
    for each in run:
        marks = marks + 1 if _is_mark(each) else 0
        if marks <= MOST_MARKS:
            kept.append(each)
    return "".join(kept)


@lru_cache(4096)
def _is_mark(each: str) -> bool:
    """Whether it combines with what stands before it, or becomes what does."""
    return bool(unicodedata.combining(each) or unicodedata.combining(unicodedata.normalize("NFKD", each)[0]))
