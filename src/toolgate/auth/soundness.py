"""What is wrong with a configuration's clients and tokens together, which no key alone shows.

The rule this file keeps: where it is not clear who would come in, nobody is served.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from toolgate.auth.issuer import LOOPBACK
from toolgate.auth.keys import Ring
from toolgate.config import Auth, Config, Problem


def problems(config: Config) -> tuple[Problem, ...]:
    return tuple(Problem(config.source, key, message) for key, message in (*_of_keys(config), *_of_tokens(config)))


def _of_keys(config: Config) -> Iterator[tuple[str, str]]:
    ring: dict[str, str] = {}
    for client in config.clients:
        for hash in Ring((client,), {}).configured:
            if hash in ring:
                yield "clients", f"{ring[hash]} and {client.id} have the same key"
            ring[hash] = client.id


def _of_tokens(config: Config) -> Iterator[tuple[str, str]]:
    auth = config.auth
    if not auth.issuer:
        if auth != Auth():
            yield "auth", "has no `issuer`, so that no token is ever good"
        if any(client.claims for client in config.clients):
            yield "clients", "have `claims`, and there is no `auth.issuer` whose tokens could have them"
        return
    parts = urlsplit(auth.issuer)
    if parts.scheme.lower() != "https" and (parts.hostname or "") not in LOOPBACK:
        yield "auth.issuer", "must begin with https:// where it is not on this machine"
    if not auth.audience:
        yield "auth.audience", "is missing: the URL that clients reach this gateway by, such as https://gate.example"
    if auth.client and auth.client not in {client.id for client in config.clients}:
        yield "auth.client", f"names no client: {auth.client}"
    if not auth.client and not any(client.claims for client in config.clients):
        yield "auth", "lets nobody in: name a `client` for its tokens, or give clients their `claims`"
