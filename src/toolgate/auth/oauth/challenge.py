"""`WWW-Authenticate` as a server of MCP means it: RFC 9110 11.6.1, RFC 6750 3, RFC 9728 5.1.

The rule this file keeps: what cannot be read says nothing, and is no failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

LONGEST = 16 * 1024  # characters that are read
LONGEST_URL = 2048
MOST_SCOPES = 64

_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_part = re.compile(rf'({_TOKEN})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))|({_TOKEN})')
_scope = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")


class Challenge(msgspec.Struct, frozen=True):
    """What a server wants to see. `scopes` are those that it says the operation needs; None where it does not say."""

    resource_metadata: str = ""
    scopes: tuple[str, ...] | None = None
    error: str = ""


def read(header: str) -> Challenge:
    """The first challenge for a bearer token; an empty one where there is none."""
    for scheme, found in _challenges(header[:LONGEST]):
        if scheme.lower() == "bearer":
            written = found.get("scope")
            return Challenge(
                found.get("resource_metadata", "") if len(found.get("resource_metadata", "")) <= LONGEST_URL else "",
                None if written is None else scopes(written),
                found.get("error", ""),
            )
    return Challenge()


def scopes(written: str) -> tuple[str, ...]:
    """The scopes of a list of them, without what cannot be one. Of a longer list than anybody reads, the first."""
    read = written if len(written) <= LONGEST else written[:LONGEST].rpartition(" ")[0]  # none that is cut
    return usable(read.split(" "))


def usable(named: Iterable[str]) -> tuple[str, ...]:
    """Of what somebody calls scopes those that can be asked for, in a list that spaces divide (RFC 6749 3.3)."""
    return tuple(dict.fromkeys(each for each in named if _scope.fullmatch(each)))[:MOST_SCOPES]


def united(*several: tuple[str, ...] | None) -> tuple[str, ...]:
    """Each scope once, as it came."""
    return tuple(dict.fromkeys(scope for each in several for scope in each or ()))[:MOST_SCOPES]


def _challenges(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    scheme, found = "", dict[str, str]()
    for name, quoted, plain, other in _part.findall(header):
        if other:
            if scheme:
                yield scheme, found
            scheme, found = other, {}
        else:
            found.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted else plain)
    if scheme:
        yield scheme, found
