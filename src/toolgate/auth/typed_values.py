"""What servers make of values in a URI that they read as numbers or truth values: `note:02`, `note: 2` and `note:2.0`
are `note:2` to a template whose parameter is an integer (pydantic, and so the official SDK for Python), and `flag:on`
is `flag:true`.

The rule this file keeps: whole numbers and truth values only. `1.10` is no other spelling of `1.1`: where a URI has
such a thing, it is the number of a version more often than it is a fraction.
"""

from __future__ import annotations

import re

_LONGEST = 1000  # characters of a number: the interpreter reads some more
_blanks = re.compile(r"\s+")  # `int()` takes a number out of them, a no-break space too
_number = re.compile(
    r"(?<!\w)\+?(?:(?P<digits>\d[\d_]*)(?:\.0*(?!\w))?|(?P<based>0(?:[xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)))(?!\w)"
)
_truth = re.compile(
    r"(?<![^/:=&;,?#])(?:(?P<yes>true|t|yes|y|on)|(?P<no>false|f|no|n|off))(?![^/:=&;,?#])", re.IGNORECASE
)


def as_values(uri: str) -> str:
    """A URI as whoever reads its values has it; the same for all that may be the same to a server. Of names, it may be
    the same for what is not: it is for permissions that close something."""
    return _truth.sub(_bit, _number.sub(_whole, _blanks.sub("", uri)))


def _whole(found: re.Match[str]) -> str:
    if len(found[0]) > _LONGEST:
        return found[0]
    if found["based"]:
        return str(int(found["based"], 0))
    return str(int(found["digits"].replace("_", "")))  # of any writing's digits


def _bit(found: re.Match[str]) -> str:
    return "1" if found["yes"] else "0"
