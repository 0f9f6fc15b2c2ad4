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
# Default_Ignorable_Code_Point, which Python does not tell; and the blank of Braille.
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
LONGEST_SEEN = 256  # visible characters of a name that are read as people see them: no server's id has as many
_unseen = re.compile(rf"[\x00-\x1f\x7f-\x9f{INVISIBLE.pattern[1:-1]}]+")
_other_i = re.compile("\u0131|i\u0307+")
_arabic_ligatures = re.compile("[\ufb50-\ufdff]+")  # of up to 18 letters each, none of them ours
_accents = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+")
_low_line = re.compile("[\u02cd\u07fa\u203f\u2040\u2054\u2581\u23bd]| [\u0320\u0331\u0332]")  # once decomposed
_double_low_line = re.compile(" [\u0333\u0347]")
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
        visible = with_plain_i(INVISIBLE.sub("", visible))
    return folded if visible == folded else normalized(visible)


def with_plain_i(folded: str) -> str:
    """The dotless `i`, and the one that keeps its dot, are `i` to who compares in capitals, or letter by letter."""
    return folded if folded.isascii() else _other_i.sub("i", folded)


def as_seen(name: str) -> tuple[str, ...]:
    """What else a name is taken for by who sees it: in plain letters without accents, without what is not seen, with
    `_` for what looks like it; with blanks and without. Letters of other scripts that look like ours stay."""
    if name.isascii() and name.isprintable() and " " not in name:
        return ()
    visible = _unseen.sub("", name, LONGEST_SEEN)[:LONGEST_SEEN]
    plain = unicodedata.normalize("NFKD", _arabic_ligatures.sub("-", visible))[:LONGEST_SEEN].casefold()
    plain = _accents.sub("", _double_low_line.sub("__", _low_line.sub("_", plain)))
    if not plain.isprintable():
        plain = "".join(filter(str.isprintable, plain))
    return plain, plain.replace(" ", "")


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
