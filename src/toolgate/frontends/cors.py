"""Which web pages may use the gateway from a browser, and how browsers are told so (the Fetch standard: CORS).

The rule this file keeps: only an origin that is in `http.allowed_origins` is told anything, and only its own name:
never `*`, and never that a browser may send what it keeps for the gateway by itself, such as cookies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping
from typing import Any, TypeAlias

from toolgate.eras.headers import LAST_EVENT, METHOD, MIRRORED, NAME, SESSION, VERSION

_Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

VARY = (b"vary", b"Origin")
_READABLE = b"Mcp-Session-Id, WWW-Authenticate"
_METHODS = b"GET, POST, DELETE"
_SENDABLE = ("authorization", "content-type", "accept", SESSION, VERSION, METHOD, NAME, LAST_EVENT)
_MAX_AGE = b"7200"  # seconds; browsers keep an answer no longer
_mirrored = re.compile(rf"{MIRRORED}[a-z0-9!#$%&'*+.^_`|~-]+")  # browsers write these names in lower case


class Cors:
    """That of the origins which are allowed."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._headers: dict[bytes, _Headers] = {
            origin.encode(): (
                (b"access-control-allow-origin", origin.encode()),
                (b"access-control-expose-headers", _READABLE),
                VARY,
            )
            for origin in origins
        }

    def headers(self, scope: MutableMapping[str, Any]) -> _Headers:
        """What every answer to this request has; nothing where no page sends it, or one that is not allowed."""
        return self._headers.get(dict(scope["headers"]).get(b"origin", b""), ())


def preflight(scope: MutableMapping[str, Any]) -> _Headers | None:
    """What a browser is told that asks whether a page may send a request; None where it does not ask that."""
    asked = dict(scope["headers"])
    if scope["method"] != "OPTIONS" or b"access-control-request-method" not in asked:
        return None
    wanted = asked.get(b"access-control-request-headers", b"").decode("latin-1")
    names = (*_SENDABLE, *(name for name in map(str.strip, wanted.split(",")) if _mirrored.fullmatch(name)))
    return (
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", ", ".join(names).encode()),
        (b"access-control-max-age", _MAX_AGE),
    )
