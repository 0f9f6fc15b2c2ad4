"""What a file may say of access: clients, permissions, rates, OAuth.

As in `values`, a kind is a plain function. The rule this file keeps: a slip never opens anything: an unknown word, a
name that means nothing and a key that is too short are refused, each with its fix.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from typing import Any, cast

from toolgate.config import shapes, values
from toolgate.config.values import Finding, Kind, Wrong, wanted, wrong

SHORTEST_KEY = 24  # characters
ACCESS = ("none", "all")

_client_id = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_webhook = re.compile(r"(?:https?://|\$\{)[!-~]+")  # a variable may hold it all
_hashed = re.compile(r"sha256:[0-9a-f]{64}")
_rate = re.compile(r"([1-9][0-9]{0,8}) ?/ ?(?:([0-9]{1,6}) ?)?(s|m|h|d)")
_seconds = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

verdict = values.choice("allow", "ask", "off")


def rate(value: object) -> tuple[int, float]:
    """`"60/m"`, `"5/10s"`: (count, seconds)."""
    found = _rate.fullmatch(values.text(value))
    if not found:
        raise wrong('must be a rate such as "60/m", "5/s" or "1000/h"')
    return int(found[1]), int(found[2] or 1) * _seconds[found[3]]


def notified(value: object) -> str | tuple[str, ...]:
    """A command, as a list of its words, or the URL of a webhook."""
    if isinstance(value, str):
        if not _webhook.fullmatch(value):
            raise wrong('must be the URL of a webhook, or a command as a list: ["notify-send", "toolgate"]')
        return value
    command: tuple[str, ...] = values.many(values.text)(value)
    if command and not command[0].strip():
        raise wrong("must start with the program")
    return command


def _pattern(value: object) -> str:
    return values.filled(value)


def _verdicts(value: object) -> dict[str, str]:
    found = shapes.mapping(verdict)(value)
    for name in found:
        _pattern(name)
    return found


_permissions = shapes.record(
    **{"global": verdict},
    servers=_verdicts,
    tools=_verdicts,
    resources=_verdicts,
    prompts=_verdicts,
    read_only=lambda value: value if value == "ask" else "off" if values.flag(value) else "",
)


def permissions(value: object) -> dict[str, Any]:
    found = _permissions(value)
    if "global" in found:
        found["everything"] = found.pop("global")
    return found


def server_access(value: object) -> str | tuple[str, ...]:
    """`none`, `all`, a list of servers or `{specific: [...]}`."""
    if isinstance(value, dict):
        found = shapes.record(specific=values.many(values.filled))(cast(object, value))
        if "specific" not in found:
            raise wrong("must be a list of servers, or have `specific`")
        return cast("tuple[str, ...]", found["specific"])
    if isinstance(value, list):
        return cast("tuple[str, ...]", values.many(values.filled)(cast(object, value)))
    if (word := values.text(value)) not in ACCESS:
        raise wrong('must be "all", "none" or a list of servers', f"for one server write [{json.dumps(word)}]")
    return word


def _id(value: object) -> str:
    if not _client_id.fullmatch(values.filled(value)):
        raise wrong("is not a valid client id", "lower-case letters, digits, `_` and `-`, at most 64")
    return values.text(value)


def _claims(value: object) -> dict[str, Any]:
    found = shapes.mapping(shapes.plain)(value)
    if not found:
        raise wrong("is empty, so any token would match", "name a claim, such as `sub`, or remove it")
    return found


bounds = shapes.record(rate=rate, concurrency=values.whole(1))


def _client(surfaces: tuple[str, ...]) -> Kind:
    return shapes.record(
        id=_id,
        name=values.filled,
        enabled=values.flag,
        key=values.filled,
        claims=_claims,
        surface=values.choice(*surfaces),
        admin=values.flag,
        add_servers=verdict,
        mcp_server_access=server_access,
        mcp_permissions=permissions,
        limits=bounds,
    )


def clients(surfaces: tuple[str, ...]) -> Kind:
    """A list of them, or a table by id. Their keys are not judged yet: variables go in first."""

    def read(value: object) -> list[dict[str, Any]]:
        if isinstance(value, dict):
            table = values.table(cast(object, value))
            value = [{"id": id, **values.table(each)} for id, each in table.items()]
        if not isinstance(value, list):
            raise wanted("a list of clients", value)
        if not value:
            raise wrong("is empty, so every request would be refused", "add a client, or remove the key")
        found = values.many(_client(surfaces))(cast(object, value))
        ids: set[str] = set()
        for index, each in enumerate(found):
            if "id" not in each:
                raise Wrong(Finding("needs `id`", "add a short name, such as `ci`", (index,)))
            if each["id"] in ids:
                raise Wrong(Finding(f"has the id `{each['id']}` a second time", "rename one of the two", (index,)))
            ids.add(each["id"])
        return list(found)

    return read


def sound_key(value: Any) -> None:
    """What a client's key must be once variables are in."""
    if value.startswith("sha256:"):
        if not _hashed.fullmatch(value):
            raise wrong("is not a hash of a key", "`sha256:` and 64 hex digits, as `toolgate keys hash` prints it")
    elif len(value) < SHORTEST_KEY:
        raise wrong(f"is too short: {SHORTEST_KEY} characters at least", "let `toolgate keys create` make one")
    elif not value.isascii() or not value.isprintable() or " " in value:
        raise wrong("must be printable ASCII without spaces, to fit in a header")


def scopes(value: object) -> tuple[str, ...]:
    """A list of them, or one text with spaces between them."""
    listed = value.split() if isinstance(value, str) else value
    found = cast("tuple[str, ...]", values.many(values.filled)(cast(object, listed)))
    if strange := [scope for scope in found if re.search(r'[\s"\\]|[^\x21-\x7e]', scope)]:
        raise wrong(f"has an invalid scope: {strange[0]!r}")
    return found


def step_up(value: object) -> dict[str, tuple[str, ...]]:
    return cast("dict[str, tuple[str, ...]]", shapes.mapping(scopes)(value))


def base_url(value: object) -> str:
    """`https://host[:port]`, without a slash at its end."""
    written = values.filled(value).rstrip("/")
    if not re.fullmatch(r"https?://[^/?#@\s]+(?:/[^?#\s]*)?", written, re.IGNORECASE):
        raise wrong("must be a URL that starts with https:// (or http:// on this machine)")
    return written


_server_auth = shapes.record(
    type=values.choice("oauth"),
    grant=values.choice("authorization_code", "client_credentials"),
    client_id=values.filled,
    client_secret=values.filled,
    private_key=values.filled,
    algorithm=values.choice("ES256", "ES384", "RS256", "PS256", "EdDSA"),
    scopes=scopes,
    shared=values.flag,
    issuer=base_url,
)


def server_auth(value: object) -> dict[str, Any]:
    """`"oauth"`, or a table."""
    if isinstance(value, str):
        values.choice("oauth")(value)
        return {}
    found = _server_auth(value)
    found.pop("type", None)
    if found.get("grant") == "client_credentials" and "client_id" not in found:
        raise wrong("uses the grant client_credentials and needs `client_id`")
    return found


def sound_server_auth(value: Mapping[str, Any]) -> None:
    for key in ("client_id", "client_secret"):
        if re.search(r"[^\x20-\x7e]", value.get(key, "")):
            raise Wrong(Finding("contains a character that OAuth does not allow here", "", (key,)))


_never = re.compile(
    r"authorization|proxy-.*|cookie2?|set-cookie|host|origin|referer|mcp-.*|last-event-id|sec-.*"  # who, and where
    r"|content-.*|accept.*|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect",  # of this hop
    re.IGNORECASE,
)


def forwarded(value: object) -> tuple[str, ...]:
    """Names of headers of clients that a server gets; never those that say who a client is, or that carry the hop."""
    found = cast("tuple[str, ...]", values.many(values.filled)(value))
    for index, name in enumerate(found):
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            raise Wrong(Finding("is not a valid header name", "", (index,)))
        if _never.fullmatch(name):
            raise Wrong(Finding("is never passed on", "put the server's own credentials into its `headers`", (index,)))
    return found


def host_or_network(value: object) -> str:
    written = values.filled(value)
    try:
        ipaddress.ip_network(written, strict=False)
    except ValueError:
        values.host_port(written)
    return written
