"""Clients, permissions, tokens, limits of calls → native tables: the part of `render` that says who may do what.

The rule is that of `render`: what is masked can still be read as a native file, and what stands there for a key lets
nobody in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from toolgate.config.access import (
    Approvals,
    Audit,
    Bounds,
    Concurrency,
    KnownClient,
    Permissions,
    Rate,
    Rates,
    ServerAuth,
)

Table: TypeAlias = dict[str, Any]

NO_KEY = "sha256:" + "0" * 64  # in place of a key: the hash of none that anybody knows

_units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def client(found: KnownClient) -> Table:
    written = {
        "id": found.id,
        "name": found.name,
        "enabled": found.enabled,
        "key": found.key if found.key.startswith("sha256:") else NO_KEY if found.key else "",
        "claims": dict(found.claims),
        "surface": found.surface,
        "admin": found.admin,
        "add_servers": found.add_servers,
        "mcp_server_access": list(found.servers) if isinstance(found.servers, tuple) else found.servers,
        "limits": bounds(found.limits),
    }
    kept = {key: value for key, value in written.items() if value not in ("", None, {})}
    has_permissions = found.servers is None or found.permissions != Permissions()
    return kept | ({"mcp_permissions": permissions(found.permissions)} if has_permissions else {})


def permissions(found: Permissions) -> Table:
    read_only = {"": False, "off": True, "ask": "ask"}[found.read_only]
    named = {key: dict(getattr(found, key)) for key in ("servers", "tools", "resources", "prompts")}
    return {
        **({"global": found.everything} if found.everything else {}),
        **{key: value for key, value in named.items() if value},
        "read_only": read_only,
    }


def rate(found: Rate) -> str:
    """`"60/m"`, `"5/10s"`: in the largest unit that has a whole number of it."""
    unit, length = next((unit, length) for unit, length in _units if not found.seconds % length)
    number = int(found.seconds // length)
    return f"{found.count}/{number if number > 1 else ''}{unit}"


def bounds(found: Bounds) -> Table:
    given = {"rate": rate(found.rate) if found.rate else None, "concurrency": found.concurrency}
    return {key: value for key, value in given.items() if value is not None}


def rates(found: Rates) -> Table:
    return {key: rate(each) for key, each in msgspec.structs.asdict(found).items() if each}


def concurrency(found: Concurrency) -> Table:
    return {key: each for key, each in msgspec.structs.asdict(found).items() if each is not None}


def auth(found: Any) -> Table:
    """Of clients' tokens. Nothing, where none are taken."""
    table = msgspec.structs.asdict(found) | {"scopes": list(found.scopes)}
    table["step_up"] = {pattern: list(scopes) for pattern, scopes in found.step_up.items()}
    return {key: value for key, value in table.items() if value not in ("", [], {})}


def server_auth(found: ServerAuth, mask: str) -> Table:
    """How the gateway signs in at a server. `mask`, where it is one, stands in the place of its secrets."""
    table = msgspec.structs.asdict(found) | {"scopes": list(found.scopes)}
    given = {key: value for key, value in table.items() if value not in ("", [])}
    return given | dict.fromkeys(given.keys() & {"client_secret", "private_key"} if mask else (), mask)


def approvals(found: Approvals, mask: str) -> Table:
    """A webhook's path may be all that somebody needs to use it. `mask`, where it is one, stands in its place."""
    notify = list(found.notify) if not isinstance(found.notify, str) else found.notify
    if mask and isinstance(notify, str):
        notify = "/".join((*notify.split("/")[:3], mask))
    table = msgspec.structs.asdict(found) | {"by": list(found.by)}
    return {key: value for key, value in table.items() if key != "notify"} | ({"notify": notify} if notify else {})


def audit(found: Audit) -> Mapping[str, Any]:
    return {key: value for key, value in msgspec.structs.asdict(found).items() if value not in ("", None)}
