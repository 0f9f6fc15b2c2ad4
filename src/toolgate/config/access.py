"""Who may do what, as configured: clients and their permissions, tokens, approval, limits, the guard, the audit.

Frozen values; what a file may say for them stands in `access_shapes`. `None`, where a number may be, is no limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Verdict = Literal["allow", "ask", "off"]
"""What a permission says: call it, ask a person first, or as if it did not exist."""


class Permissions(msgspec.Struct, frozen=True):
    """`mcp_permissions`. The finest one holds: of the thing itself, of its server, `everything` (in files `global`).
    Names of things are those of surface `aggregate` (`github__delete_repo`, `docs+file:///a`), and may hold `*`.
    `read_only`: tools that do not say that they only read are off, or to be asked for."""

    everything: Verdict | None = None
    servers: Mapping[str, Verdict] = {}
    tools: Mapping[str, Verdict] = {}
    resources: Mapping[str, Verdict] = {}
    prompts: Mapping[str, Verdict] = {}
    read_only: Literal["", "off", "ask"] = ""


class Rate(msgspec.Struct, frozen=True):
    """`count` calls in `seconds`; as many at once where none came before."""

    count: int
    seconds: float


class Bounds(msgspec.Struct, frozen=True):
    """How many calls in a while, and how many at once."""

    rate: Rate | None = None
    concurrency: int | None = None


class KnownClient(msgspec.Struct, frozen=True, kw_only=True):
    """A client as configured. It shows itself by `key` (`sha256:` and its hash, or the key itself; empty: by keys that
    `toolgate keys` makes), or by a token with these `claims`. `servers` are those that it may reach, by id or name;
    None: what `permissions` say alone. `add_servers`: whether its tool calls may add servers, and remove them; only an
    administrator's may at all."""

    id: str
    name: str
    enabled: bool = True
    key: str = ""
    claims: Mapping[str, Any] = {}
    surface: str = ""  # empty: that of the gateway
    admin: bool = False
    add_servers: Verdict | None = None  # None: as the configuration says of all
    servers: Literal["all", "none"] | tuple[str, ...] | None = "none"
    permissions: Permissions = Permissions()
    limits: Bounds = Bounds()

    def __repr__(self) -> str:
        return f"<KnownClient {self.id}>"


class Auth(msgspec.Struct, frozen=True):
    """Tokens that clients may come with. `audience` is the URL that they reach the gateway by, without a path: a token
    must be for it plus the path of the endpoint. `scopes` each token needs; `step_up` are those that it needs beside
    them for certain tools, by name patterns. `client` is whose permissions a token has that matches no client's
    `claims`; empty: it is refused."""

    issuer: str = ""
    audience: str = ""
    scopes: tuple[str, ...] = ()
    step_up: Mapping[str, tuple[str, ...]] = {}
    client: str = ""


class ServerAuth(msgspec.Struct, frozen=True, kw_only=True):
    """How the gateway itself shows who it is to a server, by OAuth. Each principal signs in for itself, unless
    `shared`, or where the gateway has credentials of its own (`client_credentials`). `issuer` binds what was
    registered beforehand to one authorization server."""

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    client_id: str = ""
    client_secret: str = ""
    private_key: str = ""  # PEM, for `private_key_jwt`
    algorithm: str = "ES256"
    scopes: tuple[str, ...] = ()
    shared: bool = False
    issuer: str = ""

    def __repr__(self) -> str:
        return f"<ServerAuth {self.grant}>"


class Rates(msgspec.Struct, frozen=True):
    """For each principal, for each server, for each tool of a server."""

    principal: Rate | None = None
    server: Rate | None = None
    tool: Rate | None = None


class Concurrency(msgspec.Struct, frozen=True):
    """Calls at once; the same three."""

    principal: int | None = None
    server: int | None = None
    tool: int | None = None


class Audit(msgspec.Struct, frozen=True):
    """`enabled` None: where clients or tokens are configured. `path` empty: `audit.jsonl` in the state folder.
    `on_failure`: what becomes of calls while it cannot be written."""

    enabled: bool | None = None
    path: str = ""
    arguments: Literal["hash", "full", "none"] = "hash"
    on_failure: Literal["warn", "block"] = "warn"


class Approvals(msgspec.Struct, frozen=True):
    """Who may approve a call: the `client`'s own user where it can be asked, or an `operator` at the command line.
    `wait` is how long a call waits for the operator, `ttl` how long one may decide; seconds. `notify` is a command, or
    the URL of a webhook, that is told of each call which waits for an operator; empty: nobody is."""

    by: tuple[Literal["client", "operator"], ...] = ("client", "operator")
    wait: float = 50.0
    ttl: float = 900.0
    notify: str | tuple[str, ...] = ()


class Guard(msgspec.Struct, frozen=True):
    """`pinning`: what becomes of tools that change once they are known; `descriptions`: of those that try to give the
    model orders; `scrub`: which secrets are taken out of results. `allow_hosts` are hosts, addresses and networks that
    a URL may lead to although the operator has not written it."""

    pinning: Literal["off", "warn", "quarantine"] = "warn"
    descriptions: Literal["off", "warn", "quarantine"] = "warn"
    scrub: Literal["off", "known", "patterns"] = "known"
    allow_hosts: tuple[str, ...] = ()
