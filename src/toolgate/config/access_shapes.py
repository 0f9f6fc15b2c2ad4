"""What a file may say of access: clients, permissions, rates, OAuth.

The rule this file keeps: a slip never opens anything: an unknown word, a
name that means nothing and a key that is too short are refused, each with its fix.
"""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any, cast

from toolgate.config import values
from toolgate.config.values import Finding, Kind, Wrong, either, kind, mapping, record, wrong

SHORTEST_KEY = 24  # characters
ACCESS = ("none", "all")

_client_id = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_webhook = re.compile(r"(?:https?://|\$\{)[!-~]+")  # a variable may hold it all
_hashed = re.compile(r"sha256:[0-9a-f]{64}")
verdict = values.choice("allow", "ask", "off")


@kind(either({"type": "string", "pattern": f"^{_webhook.pattern}$"}, {"type": "array", "items": {"type": "string"}}))
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


def _read_verdicts(value: object) -> dict[str, str]:
    found = mapping(verdict)(value)
    for name in found:
        values.filled(name)
    return found


verdicts = Kind(_read_verdicts, mapping(verdict).schema)


def _read_only(value: object) -> str:
    return "ask" if value == "ask" else "off" if values.flag(value) else ""


def _written_read_only(found: str, masked: bool) -> bool | str:
    return found == "off" if found != "ask" else "ask"


read_only = Kind(_read_only, lambda: either({"type": "boolean"}, {"const": "ask"}), _written_read_only)


@kind(
    either(
        {"enum": list(ACCESS)},
        {"type": "array", "items": {"type": "string"}},
        {**values.closed({"specific": {"type": "array", "items": {"type": "string"}}}), "required": ["specific"]},
    )
)
def server_access(value: object) -> str | tuple[str, ...]:
    """`none`, `all`, a list of servers or `{specific: [...]}`."""
    if isinstance(value, dict):
        found = record(specific=values.many(values.filled))(cast(object, value))
        if "specific" not in found:
            raise wrong("must be a list of servers, or a table with `specific`")
        return cast("tuple[str, ...]", found["specific"])
    if isinstance(value, list):
        return cast("tuple[str, ...]", values.many(values.filled)(cast(object, value)))
    if (word := values.text(value)) not in ACCESS:
        raise wrong('must be "all", "none" or a list of servers', f"for one server write [{json.dumps(word)}]")
    return word


@kind({"type": "string", "pattern": f"^{_client_id.pattern}$"})
def client_id(value: object) -> str:
    if not _client_id.fullmatch(values.filled(value)):
        raise wrong("is not a valid client id", "use lower-case letters, digits, `_` and `-`, at most 64")
    return values.text(value)


@kind({"type": "object", "minProperties": 1})
def claims(value: object) -> dict[str, Any]:
    found = mapping(values.plain)(value)
    if not found:
        raise wrong("is empty, so any token would match", "name a claim, such as `sub`, or remove it")
    return found


def sound_key(value: Any) -> None:
    """What a client's key must be once variables are in."""
    if value.startswith("sha256:"):
        if not _hashed.fullmatch(value):
            raise wrong(
                "is not a hash of a key", "write `sha256:` and 64 hex digits, as printed by `toolgate keys hash`"
            )
    elif len(value) < SHORTEST_KEY:
        raise wrong(
            f"is too short: it must have at least {SHORTEST_KEY} characters", "create one with `toolgate keys create`"
        )
    elif not value.isascii() or not value.isprintable() or " " in value:
        raise wrong("must be printable ASCII without spaces, to fit in a header")


@kind(either({"type": "string"}, {"type": "array", "items": {"type": "string"}}))
def scopes(value: object) -> tuple[str, ...]:
    """A list of them, or one text with spaces between them."""
    listed = value.split() if isinstance(value, str) else value
    found = cast("tuple[str, ...]", values.many(values.filled)(cast(object, listed)))
    if strange := [scope for scope in found if re.search(r'[\s"\\]|[^\x21-\x7e]', scope)]:
        raise wrong(f"has an invalid scope: {strange[0]!r}")
    return found


@kind(scopes.schema())
def _needed(value: object) -> tuple[str, ...]:
    if not (found := scopes(value)):
        raise wrong("names no scope, so nothing more would be needed", "name one, or leave out the tool")
    return found


step_up = mapping(_needed)


@kind({"type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://"})
def base_url(value: object) -> str:
    """`https://host[:port]`, without a slash at its end."""
    written = values.filled(value).rstrip("/")
    if not re.fullmatch(r"https?://[^/?#@\s]+(?:/[^?#\s]*)?", written, re.IGNORECASE):
        raise wrong("must be a URL that starts with https:// (or http:// on this machine)")
    return written


_never = re.compile(
    r"authorization|proxy-.*|cookie2?|set-cookie|host|origin|referer|mcp-.*|last-event-id|sec-.*"  # who, and where
    r"|content-.*|accept.*|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect",  # of this hop
    re.IGNORECASE,
)


@kind({"type": "array", "items": {"type": "string"}})
def forwarded(value: object) -> tuple[str, ...]:
    """Names of headers of clients that a server gets; never those that say who a client is, or that carry the hop."""
    found = cast("tuple[str, ...]", values.many(values.filled)(value))
    for index, name in enumerate(found):
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            raise Wrong(Finding("is not a valid header name", "", (index,)))
        if _never.fullmatch(name):
            raise Wrong(Finding("is never passed on", "put the server's own credentials into its `headers`", (index,)))
    return tuple(name.lower() for name in found)


@kind({"type": "string"})
def network(value: object) -> str:
    """An address or a network, and not all there are."""
    written = values.filled(value)
    try:
        found = ipaddress.ip_network(written, strict=False)
    except ValueError:
        raise values.wrong("must be an IP address or a network", 'such as "127.0.0.1" or "10.1.0.0/16"') from None
    if not found.prefixlen:
        raise values.wrong("must not be every address", "name the proxies alone: anybody else could forge the headers")
    return written


@kind({"type": "string"})
def host_or_network(value: object) -> str:
    written = values.filled(value)
    try:
        ipaddress.ip_network(written, strict=False)
    except ValueError:
        values.host_port(written)
    return written
