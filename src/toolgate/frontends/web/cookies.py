"""The cookies that a browser sends, as far as they are ours.

The rule this file keeps: it takes no longer than the header is long. That of the standard library takes the square of
that to take a quoted value apart, and ours have no quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_PART = re.compile(r"(?:^|;)[ \t]*([A-Za-z0-9-]{1,100})=([A-Za-z0-9_.-]{1,200})(?=[ \t]*(?:;|$))")


def held(headers: Mapping[str, str], name: str) -> str:
    """The value of the cookie of this name; of several the last; empty where there is none that we have set."""
    header, found = headers.get("cookie", ""), ""
    for part in _PART.finditer(header) if f"{name}=" in header else ():
        found = part[2] if part[1] == name else found
    return found
