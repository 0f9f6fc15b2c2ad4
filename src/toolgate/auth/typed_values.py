"""What servers make of values in a URI that they read as numbers or truth values: `note:02`, `note: 2` and `note:2.0`
are `note:2` to a template whose parameter is an integer (pydantic, and so the official SDK for Python), and `flag:on`
is `flag:true`.

The rule this file keeps: whole numbers wherever they stand, and truth values at the end of what has a name. `1.10` is
no other spelling of `1.1`: where a URI has such a thing, it is the number of a version more often than it is a
fraction. What stands beside a `*` or a `{name}` of a pattern is a part of something, and stays.
"""

from __future__ import annotations

import re
import unicodedata

_LONGEST = 3500  # characters of a number with another base: in decimal the interpreter writes 4,300 digits
_blanks = re.compile(r"\s+")  # `int()` takes a number out of them, a no-break space too
_number = re.compile(
    r"(?:(?<!\w)(?:\+|-(?=0+(?:\.0*)?(?![\w.]))))?"
    r"(?<![\d*}])(?:(?P<based>0(?:[xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)(?!\w))"
    r"|(?P<digits>\d+(?:_\d+)*)(?:\.0*(?![\w*{]|\.\d))?)(?![\d*{])"
)
_truth = re.compile(r"(?<![^/:=&;,?#])(?:(?P<yes>true|t|yes|y|on)|(?P<no>false|f|no|n|off))(?![^&;,?#])", re.IGNORECASE)


def as_values(uri: str) -> str:
    """A URI, or a pattern of some, as a server that reads its values has it: the same for all that may be the same to a
    server. What is not the same to a server may be here, so it is for permissions that close something."""
    return _truth.sub(_bit, _number.sub(_whole, _blanks.sub(_within, uri)))


def _within(blanks: re.Match[str]) -> str:
    """Those between words, and beside a wildcard, are of a name."""
    before, after = (
        blanks.string[max(0, blanks.start() - 1) : blanks.start()],
        blanks.string[blanks.end() : blanks.end() + 1],
    )
    is_of_name = (_is_word(before) and _is_word(after)) or {before, after} & {"*", "{", "}"}
    return blanks[0] if is_of_name else ""


def _is_word(each: str) -> bool:
    return each == "_" or each.isalnum()


def _whole(found: re.Match[str]) -> str:
    if found["based"]:
        return str(int(found["based"], 0)) if len(found["based"]) <= _LONGEST else found[0]
    digits = found["digits"].replace("_", "")
    if not digits.isascii():  # any writing's
        digits = "".join(str(unicodedata.decimal(each)) for each in digits)
    return digits.lstrip("0") or "0"


def _bit(found: re.Match[str]) -> str:
    return "1" if found["yes"] else "0"
