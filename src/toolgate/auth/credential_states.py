"""How each credential is: until when it is good, and since when it fails.

The rule this file keeps: nothing here is a credential, or holds one.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from toolgate.auth import keys
from toolgate.config import Server
from toolgate.state.base import NotKept, Store

LONGEST = 16_384  # characters of a token that is looked at
MOST = 1_000  # that are shown
SOON = 7 * 24 * 3600.0  # seconds before the end of one that is not renewed, at which somebody should know


class CredentialState(msgspec.Struct, frozen=True, omit_defaults=True):
    """`credential` says what it is: `sign-in`, `client_credentials`, `key:ID`, or where it was written. `server` is
    empty for what clients show us, `principal` for the gateway's own. Times in seconds since 1970; `expires` None: it
    does not, or nobody has said so. `renews`: the gateway gets another one by itself."""

    credential: str
    server: str = ""
    principal: str = ""
    expires: float | None = None
    renews: bool = False
    failing_since: float | None = None
    problem: str = ""


def of_keys(store: Store) -> Iterator[CredentialState]:
    """Of the keys that were made for clients, those that end, as far as they can be read."""
    try:
        made = keys.records(store)
    except NotKept:
        return
    for id, record in made.items():
        if record.expires is not None:
            yield CredentialState(f"key:{id}", principal=f"client:{record.client}", expires=record.expires)


def of_servers(servers: Iterable[Server]) -> Iterator[CredentialState]:
    """Of the tokens that stand in the configuration of servers, those that say when they end."""
    for server in servers:
        for kind, table in (("header", server.headers), ("variable", server.env)):
            for name, value in table.items():
                if ends := end_of(value.removeprefix("Bearer ")):
                    yield CredentialState(f"{kind}:{name}", server.id, expires=ends)


def end_of(token: str) -> float | None:
    """When a JWT ends, in seconds since 1970; None for what does not say so, or is none. Nothing is verified."""
    parts = token.split(".", 3)
    if len(parts) != 3 or len(token) > LONGEST or not token.startswith("eyJ"):
        return None
    try:
        said: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        ends = float(said["exp"])
        return ends if 0 < ends < float("inf") else None
    except (ValueError, KeyError, TypeError, binascii.Error, OverflowError, RecursionError):
        return None
