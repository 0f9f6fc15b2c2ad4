"""The request headers of MCP over HTTP: of revision 2026-07-28 the values of the body that intermediaries may read, of
the older ones the session.

Spec: basic/transports/streamable-http, "Request Metadata". A value that is no plain ASCII is written as
`=?base64?…?=`, canonical base64 of UTF-8.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from toolgate.core import surrogates
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Message
from toolgate.core.mcp import Revision

VERSION = "mcp-protocol-version"
METHOD = "mcp-method"
NAME = "mcp-name"
SESSION = "mcp-session-id"
LAST_EVENT = "last-event-id"
MIRRORED = "mcp-param-"  # before the name of an argument
HOST = "host"
_OF_THE_PAGE = frozenset({"origin", "content-type"})  # some clients say the same of these twice
ONCE = _OF_THE_PAGE | {HOST}  # by these it is decided whether a request is let in
_ROUTING = frozenset({VERSION, METHOD, NAME, HOST})
MOST_REPEATED, LONGEST_REPEATED = 512, 2048  # headers that are remembered as they were read, and bytes of one

_SENTINEL = "=?base64?"
_sentinel = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)


def encode_value(value: str) -> str:
    """A header value that reads back as `value`."""
    is_plain = value.isascii() and value.isprintable() and value == value.strip()
    if is_plain and not (value.startswith(_SENTINEL) and _sentinel.fullmatch(value)):
        return value
    return _SENTINEL + base64.b64encode(surrogates.shown(value).encode()).decode() + "?="


def decode_value(text: str) -> str | None:
    """The value; None for a sentinel whose content is not canonical base64 of UTF-8."""
    found = _sentinel.fullmatch(text) if text.startswith(_SENTINEL) else None
    if not found:
        return text
    try:
        raw = base64.b64decode(found[1], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == found[1] else None
    except (binascii.Error, ValueError):
        return None


def read(pairs: Collection[tuple[bytes, bytes]]) -> tuple[Mapping[str, str], str | None]:
    """The headers of a request, and a routing header that stands there twice: readers of the first and of the last
    would disagree. One of `ONCE` is told before all else. Of others several lines are one list (RFC 9110 5.3)."""
    try:
        found = dict(map(_known.__getitem__, pairs))
        if len(found) == len(pairs):
            return found, None
    except (_Long, TypeError):  # some servers make lists of them
        pass
    return _read_with_care(pairs)


class _Long(Exception):
    """What is not to be remembered."""


class _Known(dict[tuple[bytes, bytes], tuple[str, str]]):
    """Headers as they were read before: a client sends nearly all of them with each request."""

    def __missing__(self, pair: tuple[bytes, bytes]) -> tuple[str, str]:
        if len(pair[0]) + len(pair[1]) > LONGEST_REPEATED:
            raise _Long
        if len(self) >= MOST_REPEATED:
            self.clear()
        self[pair] = found = pair[0].decode("latin-1"), pair[1].decode("latin-1").strip(" \t")
        return found


_known = _Known()


def _read_with_care(pairs: Iterable[tuple[bytes, bytes]]) -> tuple[Mapping[str, str], str | None]:
    found: dict[str, dict[str, None]] = {}  # what each says: of two lines that say the same there is one
    twice: str | None = None
    for raw, value in pairs:
        name = raw.decode("latin-1")
        text = value.decode("latin-1").strip(" \t")  # which is no part of it (RFC 9110 5.5)
        if name in found and twice not in ONCE:
            differs = name in _OF_THE_PAGE and text not in found[name]
            twice = name if differs or name in _ROUTING or name.startswith(MIRRORED) else twice
        found.setdefault(name, {})[text] = None
    return {name: ", ".join(texts) for name, texts in found.items()}, twice


def check(headers: Mapping[str, str], message: Message, version: str, target: str | None) -> None:
    """Hold the headers against the body. Raises `Fault` HEADER_MISMATCH. `target` is the value of `Mcp-Name`."""
    for name, expected in ((VERSION, version), (METHOD, message.method), (NAME, target)):
        if expected is None:
            continue
        found = headers.get(name)
        if found is None:
            raise Fault("HEADER_MISMATCH", f"Header mismatch: the header {name} is missing")
        if found == expected and not found.startswith(_SENTINEL):
            continue
        # Whoever writes UTF-8 has no word for a lone surrogate.
        if (said := decode_value(found)) != expected and said != surrogates.shown(expected):
            raise Fault("HEADER_MISMATCH", f"Header mismatch: the header {name} differs from the body")


def for_request(revision: Revision, method: str, target: str | None) -> tuple[tuple[bytes, bytes], ...]:
    """The headers that a request to a modern server of this revision carries."""
    return _for_request(revision.date, method, target)


@lru_cache(maxsize=256)  # the same for each call of a tool
def _for_request(date: str, method: str, target: str | None) -> tuple[tuple[bytes, bytes], ...]:
    named = ((b"Mcp-Name", encode_value(target).encode()),) if target is not None else ()
    return (b"MCP-Protocol-Version", date.encode()), (b"Mcp-Method", encode_value(method).encode()), *named
