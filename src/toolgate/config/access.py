"""Who may do what, as configured: clients and their permissions, tokens, approval, limits, the guard, the audit.

Frozen values; the kinds of what a file may say for them stand in `access_shapes`. `None`, where a number may be, is no
limit.
"""

# No annotation is deferred here: `fields.rows` reads them. A kind has another name than each field of its struct.

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, cast

import msgspec

from toolgate.config import access_shapes, allowing, fields, private, shapes
from toolgate.config.access_shapes import base_url, verdict, verdicts
from toolgate.config.allowing import Allows
from toolgate.config.fields import Key
from toolgate.config.shapes import Rate
from toolgate.config.values import (
    Finding,
    Kind,
    Wrong,
    choice,
    duration,
    duration_or_none,
    filled,
    flag,
    many,
    record,
    size,
    table,
    wanted,
    whole,
    wrong,
)
from toolgate.core import mcp

Verdict = Literal["allow", "ask", "off"]
"""What a permission says: call it, ask a person first, or as if it did not exist."""


class Permissions(msgspec.Struct, frozen=True):
    """`mcp_permissions`. The finest one holds: of the thing itself, of its server, `everything` (in files `global`).
    Names of things are those of surface `aggregate` (`github__delete_repo`, `docs+file:///a`), and may hold `*`.
    `read_only`: tools that do not say that they only read are off, or to be asked for."""

    everything: Annotated[
        Verdict | None,
        Key(verdict, '`"allow"`, `"ask"` or `"off"` for everything that is not named below', name="global"),
    ] = None
    servers: Annotated[Mapping[str, Verdict], Key(verdicts, "the same by server")] = {}
    tools: Annotated[
        Mapping[str, Verdict], Key(verdicts, "the same by tool, such as `docs__search` or `docs__delete_*`")
    ] = {}
    resources: Annotated[Mapping[str, Verdict], Key(verdicts, "the same by resource, such as `docs+file:///a`")] = {}
    prompts: Annotated[Mapping[str, Verdict], Key(verdicts, "the same by prompt")] = {}
    read_only: Annotated[
        Literal["", "off", "ask"],
        Key(
            access_shapes.read_only,
            '`true`: tools that are not marked as read-only are off; `"ask"`: they need approval',
            default="`false`",
        ),
    ] = ""

    @property
    def things(self) -> Mapping[str, Mapping[str, Verdict]]:
        """What is said of things by name, by the keys of `mcp.SECTIONS`."""
        return {section: getattr(self, section) for section in mcp.SECTIONS}

    @property
    def verdicts(self) -> Iterator[Verdict]:
        """All that are said of anything, but `read_only`."""
        yield from (self.everything,) if self.everything else ()
        for said in (self.servers, *self.things.values()):
            yield from said.values()


class Bounds(msgspec.Struct, frozen=True):
    """How many calls in a while, and how many at once."""

    rate: Annotated[
        Rate | None, Key(shapes.rate, 'the maximum rate of calls, such as `"60/m"`', default="no limit")
    ] = None
    concurrency: Annotated[
        int | None, Key(whole(1), "the maximum number of calls at the same time", default="no limit")
    ] = None


def _permissions_to_show(client: "KnownClient") -> Permissions | None:
    """Without a word on servers, permissions stand for themselves, and are shown even where they say nothing."""
    return client.permissions if client.servers is None or client.permissions != Permissions() else None


_permissions = fields.table(Permissions)


class KnownClient(msgspec.Struct, frozen=True, kw_only=True):
    """A client as configured. It shows itself by `key` (`sha256:` and its hash, or the key itself; empty: by keys that
    `toolgate keys` makes), or by a token with these `claims`. `servers` are those that it may reach, by id or name;
    None: what `permissions` say alone. `add_servers`: whether its tool calls may add servers, and remove them; only an
    administrator's may at all."""

    id: Annotated[
        str,
        Key(
            access_shapes.client_id,
            "lower-case letters, digits, `_` and `-`; required",
            needed="add a short name, such as `ci`",
        ),
        allowing.TOLD,
    ]
    name: Annotated[str, Key(filled, "a name for people to read", default="the id"), allowing.LOOKS]
    enabled: Annotated[bool, Key(flag, "`false`: the client is refused"), allowing.TOLD] = True
    key: Annotated[
        str,
        Key(
            filled,
            "a key of at least 24 characters, or its hash as `sha256:…`. Keys made by `toolgate keys` are valid too",
            secret=private.CLIENT_KEY,
        ),
        allowing.TOLD,
    ] = ""
    claims: Annotated[
        Mapping[str, Any],
        Key(access_shapes.claims, "the claims of this client's tokens; needs `auth`"),
        allowing.TOLD,
    ] = {}
    surface: Annotated[
        str,
        Key(
            choice(*shapes.SURFACES),
            "what `/mcp` shows this client. An edit ends its sessions",
            default="`surface` at the root",
        ),
        allowing.LOOKS,
    ] = ""
    admin: Annotated[bool, Key(flag, "`true`: the client may add and remove servers"), allowing.TOLD] = False
    add_servers: Annotated[
        Verdict | None,
        Key(
            verdict,
            'whether its tool calls may do this: `"allow"`, `"ask"` or `"off"`',
            default="`add_servers` at the root",
        ),
        allowing.TOLD,
    ] = None
    servers: Annotated[
        Literal["all", "none"] | tuple[str, ...] | None,
        Key(
            access_shapes.server_access,
            'the servers that it may use: `"all"`, `"none"` or a list',
            name="mcp_server_access",
            default='`"none"`; with `mcp_permissions`: the servers that they allow',
        ),
        allowing.TOLD,
    ] = "none"
    permissions: Annotated[
        Permissions,
        Key(
            _permissions,
            "what it may use on these servers ([permissions.md](permissions.md))",
            name="mcp_permissions",
            of=_permissions_to_show,
        ),
        allowing.TOLD,
    ] = Permissions()
    limits: Annotated[Bounds, Key(fields.table(Bounds), "limits for each of its principals"), allowing.LESS] = Bounds()

    def __repr__(self) -> str:
        return f"<KnownClient {self.id}>"


_client = fields.table(KnownClient)


def _read_client(value: object) -> KnownClient:
    """Permissions without a word on servers stand for themselves; neither of them opens nothing."""
    found = fields.read(KnownClient, value)
    if "permissions" in found:
        found.setdefault("servers", None)
    return KnownClient(**{"name": found["id"], **found})


def _read_clients(value: object) -> tuple[KnownClient, ...]:
    """A list of them, or a table by id. Their keys are not judged yet: variables go in first."""
    if isinstance(value, dict):
        by_id = table(cast(object, value))
        value = [{"id": id, **table(each)} for id, each in by_id.items()]
    if not isinstance(value, list):
        raise wanted("a list of clients", value)
    if not value:
        raise wrong("is empty, so every request would be refused", "add a client, or remove the key")
    found = cast("tuple[KnownClient, ...]", many(_read_client)(cast(object, value)))
    ids: set[str] = set()
    for index, each in enumerate(found):
        if each.id in ids:
            raise Wrong(Finding(f"has the same id `{each.id}` as another client", "rename one of the two", (index,)))
        ids.add(each.id)
    return found


def _schema_of_clients() -> Mapping[str, Any]:
    one = _client.schema()
    by_id = {key: each for key, each in one.items() if key != "required"}
    return {
        "anyOf": [
            {"type": "array", "items": one, "minItems": 1},
            {"type": "object", "additionalProperties": by_id, "minProperties": 1},
        ]
    }


clients = Kind(_read_clients, _schema_of_clients, many(_client).write, KnownClient)


class PagesClient(msgspec.Struct, frozen=True):
    """The gateway as a client of the issuer, so that administrators sign in to its pages there. Without a secret it is
    a public one; `scopes` are asked for beside `openid`."""

    client_id: Annotated[
        str, Key(filled, "the id that the issuer has for the gateway", default="nobody signs in there"), allowing.TOLD
    ] = ""
    client_secret: Annotated[
        str,
        Key(filled, "its secret, best as `${secret:NAME}`", default="a public client", secret=private.TEXT),
        allowing.TOLD,
    ] = ""
    scopes: Annotated[
        tuple[str, ...],
        Key(access_shapes.scopes, "the scopes to request in addition to `openid`, if claims need them"),
        allowing.TOLD,
    ] = ()

    def __repr__(self) -> str:
        return f"<PagesClient {self.client_id}>"


class Auth(msgspec.Struct, frozen=True):
    """Tokens that clients may come with. `audience` is the URL that they reach the gateway by, without a path: a token
    must be for it plus the path of the endpoint. `scopes` each token needs; `step_up` are those that it needs beside
    them for certain tools, by name patterns. `client` is whose permissions a token has that matches no client's
    `claims`; empty: it is refused. `pages`: how administrators sign in with a browser."""

    issuer: Annotated[str, Key(base_url, "the URL of the issuer of the tokens"), allowing.TOLD] = ""
    audience: Annotated[
        str, Key(base_url, "the URL by which clients reach the gateway, without a path"), Allows("accept tokens for {}")
    ] = ""
    scopes: Annotated[
        tuple[str, ...], Key(access_shapes.scopes, "the scopes that each token must have"), allowing.LESS
    ] = ()
    step_up: Annotated[
        Mapping[str, tuple[str, ...]],
        Key(access_shapes.step_up, "additional scopes, by tool"),
        allowing.LESS,
    ] = {}
    client: Annotated[
        str,
        Key(filled, "the client for tokens that match no client's `claims`", default="such tokens are refused"),
        Allows("let in anyone with a token from the issuer, as the client {}"),
    ] = ""
    pages: Annotated[
        PagesClient,
        Key(fields.table(PagesClient), "sign-in to the operator's pages at the issuer ([pages.md](pages.md#sign-in))"),
        allowing.TOLD,
    ] = PagesClient()


class Rates(msgspec.Struct, frozen=True):
    """For each principal, for each server, for each tool of a server."""

    principal: Annotated[
        Rate | None, Key(shapes.rate, 'calls of each principal, such as `"60/m"`', default="no limit")
    ] = None
    server: Annotated[Rate | None, Key(shapes.rate, "calls to each server", default="no limit")] = None
    tool: Annotated[Rate | None, Key(shapes.rate, "calls of each tool", default="no limit")] = None


class Concurrency(msgspec.Struct, frozen=True):
    """Calls at once; the same three."""

    principal: Annotated[int | None, Key(whole(1), "calls of each principal at the same time", default="no limit")] = (
        None
    )
    server: Annotated[int | None, Key(whole(1), "calls to each server at the same time", default="no limit")] = None
    tool: Annotated[int | None, Key(whole(1), "calls of each tool at the same time", default="no limit")] = None


_lines = record(head=whole(0), tail=whole(0))


def _lines_to_show(limits: "Limits") -> dict[str, int]:
    return {key: lines for key in ("head", "tail") if (lines := getattr(limits, key)) is not None}


class Limits(msgspec.Struct, frozen=True):
    """`result_limit` in bytes, `result_tokens` in estimated tokens of a result's text, None: no limit. `head` and
    `tail` are lines that are kept of a text that is over a limit. `argument_limit` in bytes, of a call's arguments.
    `values`: how many JSON values a request may have; a tool may be given more."""

    result_limit: Annotated[
        int | None, Key(size, "the maximum size of a result", default="no limit"), allowing.LESS
    ] = None
    result_tokens: Annotated[
        int | None,
        Key(whole(1), "the maximum size of a result's text, in estimated tokens", default="no limit"),
        allowing.LESS,
    ] = None
    head: Annotated[
        int | None,
        Key(
            _lines,
            "`{ head, tail }`: how many lines of a longer text are kept, from its beginning and from its end",
            default="as in [results.md](results.md)",
            name="truncate",
            spread=True,
            of=_lines_to_show,
        ),
        allowing.LESS,
    ] = None
    tail: Annotated[int | None, allowing.LESS] = None
    argument_limit: Annotated[
        int | None, Key(size, "the maximum size of the arguments of a call", default="no limit"), allowing.LESS
    ] = None
    values: Annotated[
        int,
        Key(shapes.value_count, "the maximum number of JSON values in a request"),
        Allows("take messages of up to {} values"),
    ] = 100_000
    rates: Annotated[Rates, Key(fields.table(Rates), "rates of calls"), allowing.LESS] = Rates()
    concurrency: Annotated[Concurrency, Key(fields.table(Concurrency), "calls at the same time"), allowing.LESS] = (
        Concurrency()
    )


class Audit(msgspec.Struct, frozen=True):
    """`enabled` None: where clients or tokens are configured. `path` empty: `audit.jsonl` in the state folder.
    `on_failure`: what becomes of calls while it cannot be written."""

    enabled: Annotated[
        bool | None,
        Key(flag, "whether the audit log is written", default="`true` if clients or tokens are configured"),
        Allows("record calls in the audit log: {}", stronger=(True,)),
    ] = None
    path: Annotated[
        str,
        Key(filled, "the file of the audit log", "gateway", default="`audit.jsonl` in the state folder"),
        allowing.TOLD,
    ] = ""
    arguments: Annotated[
        Literal["hash", "full", "none"],
        Key(choice("hash", "full", "none"), 'how arguments are recorded: `"hash"`, `"full"` or `"none"`'),
        Allows("record the arguments of calls: {}", stronger=("none",)),
    ] = "hash"
    on_failure: Annotated[
        Literal["warn", "block"],
        Key(
            choice("warn", "block"),
            '`"warn"`: calls continue while the log cannot be written; `"block"`: they are refused',
        ),
        allowing.LESS,
    ] = "warn"


class Approvals(msgspec.Struct, frozen=True):
    """Who may approve a call: the `client`'s own user where it can be asked, or an `operator` at the command line.
    `wait` is how long a call waits for the operator, `ttl` how long one may decide; seconds. `notify` is a command, or
    the URL of a webhook, that is told of each call which waits for an operator; empty: nobody is."""

    by: Annotated[
        tuple[Literal["client", "operator"], ...],
        Key(
            many(choice("client", "operator")),
            "who may decide: the client's user, if the client supports forms; an operator at the command line; or both",
        ),
        Allows("let calls be approved by: {}", stronger=(("operator",),)),
    ] = ("client", "operator")
    wait: Annotated[
        float, Key(duration_or_none, "how long a call waits for an operator; `0`: it does not wait"), allowing.PACE
    ] = 50.0
    ttl: Annotated[
        float,
        Key(duration, "how long a person has to decide; a client's own user has no longer than `parking.ttl`"),
        allowing.PACE,
    ] = 900.0
    notify: Annotated[
        str | tuple[str, ...],
        Key(
            access_shapes.notified,
            "a command, as a list, to run when a call waits for an operator; or the URL of a webhook",
            default="only the log",
            secret=private.WEBHOOK,
        ),
        allowing.TOLD,
    ] = ()


class Guard(msgspec.Struct, frozen=True):
    """`pinning`: what becomes of tools that change once they are known; `descriptions`: of those that try to give the
    model orders; `scrub`: which secrets are taken out of results. `allow_hosts` are hosts, addresses and networks that
    a URL may lead to although the operator has not written it."""

    pinning: Annotated[
        Literal["off", "warn", "quarantine"],
        Key(
            choice("off", "warn", "quarantine"), 'what happens to tools that change: `"off"`, `"warn"`, `"quarantine"`'
        ),
        Allows("watch for tools that change: {}", stronger=("quarantine",)),
    ] = "warn"
    descriptions: Annotated[
        Literal["off", "warn", "quarantine"],
        Key(
            choice("off", "warn", "quarantine"),
            'what happens to tools with suspicious descriptions: `"off"`, `"warn"`, `"quarantine"`',
        ),
        Allows("watch for suspicious descriptions: {}", stronger=("quarantine",)),
    ] = "warn"
    scrub: Annotated[
        Literal["off", "known", "patterns"],
        Key(
            choice("off", "known", "patterns"),
            'which secrets are removed from results: `"off"`, `"known"`, `"patterns"`',
        ),
        Allows("remove secrets from the output of servers: {}", stronger=("patterns",)),
    ] = "known"
    allow_hosts: Annotated[
        tuple[str, ...],
        Key(
            many(access_shapes.host_or_network),
            "internal hosts and networks to which URLs from servers and clients may lead",
        ),
        Allows("connect to internal addresses that servers and clients name: {}"),
    ] = ()
