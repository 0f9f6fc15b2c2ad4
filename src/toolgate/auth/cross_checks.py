"""What is wrong with a configuration's clients and tokens together, which no key alone shows.

The rule this file keeps: where it is not clear who would come in, nobody is served.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from toolgate.auth.keys import Ring
from toolgate.auth.safe_net import LOOPBACK
from toolgate.config import Auth, Config, Problem


def problems(config: Config) -> tuple[Problem, ...]:
    return tuple(Problem(config.source, key, message) for key, message in (*_of_keys(config), *_of_tokens(config)))


def _of_keys(config: Config) -> Iterator[tuple[str, str]]:
    ring: dict[str, str] = {}
    for client in config.clients:
        for hash in Ring((client,), {}).configured:
            if hash in ring:
                yield "clients", f"{ring[hash]} and {client.id} have the same key: run `toolgate keys create`"
            ring[hash] = client.id


def _of_tokens(config: Config) -> Iterator[tuple[str, str]]:
    auth = config.auth
    if not auth.issuer:
        if auth != Auth():
            yield "auth", "has no `issuer`, so no token is valid: add its URL, or remove `auth`"
        if any(client.claims for client in config.clients):
            yield (
                "clients",
                "have `claims`, but no `auth.issuer` issues tokens: add one, or remove them",
            )
        return
    parts = urlsplit(auth.issuer)
    if parts.scheme.lower() != "https" and (parts.hostname or "") not in LOOPBACK:
        yield "auth.issuer", "must start with https:// unless it is on this machine"
    if auth.audience and auth.pages.client_id.startswith(auth.audience):
        yield "auth.pages.client_id", "is an endpoint of this gateway: ID tokens would be tokens for it"
    if not auth.audience:
        yield "auth.audience", "is missing: set this gateway's URL as clients see it, such as https://gate.example"
    known = [client.id for client in config.clients]
    if auth.client and auth.client not in known:
        yield "auth.client", f"client not found: {auth.client}; available: {', '.join(known) or 'none'}"
    if not auth.client and not any(client.claims for client in config.clients):
        yield "auth", "admits no client: set a `client` for its tokens, or give clients `claims`"
