"""What looks like a secret in native tables of servers, taken out of them: a reference stands in its place.

The rules this file keeps: a value that is a secret stands in one place afterwards, the one that its reference names; a
name is taken twice only for the same value; and what holds a variable already is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast

from toolgate.config import fields, masking
from toolgate.config.server import ServerAuth
from toolgate.config.variables import ENVIRONMENT_PREFIX, has_pattern
from toolgate.core.names import slug

Table: TypeAlias = dict[str, Any]

HIDDEN = {key for key, row in fields.keys(ServerAuth).items() if row.secret}

MOST_COMPARED = 100  # secrets of one server's arguments with which the ends of all others are compared

_variable = re.compile(rf"\$\{{{ENVIRONMENT_PREFIX}([A-Z0-9_]{{1,150}})(?::-)?\}}")
_scheme = re.compile(r"(?:Bearer|Basic|Token) +", re.IGNORECASE)
_query = re.compile(r"(?<=[?&])([^=&#]{1,200})=([^&#]+)")
_password = re.compile(r"://[^/?#@\s:]*:[^/?#@\s]+@")
_user = re.compile(r"(?<=://)([^/?#@\s]+)(?=@)")


class Extraction:
    """Gathers in `found` the secrets of all servers that it is given, by name. `known` are those that there are;
    `is_taken` says of a name whether it stands, or may stand, for another one elsewhere."""

    def __init__(self, known: Mapping[str, str], is_taken: Callable[[str], bool] = lambda name: False) -> None:
        self._known, self._is_taken = known, is_taken
        self.found: dict[str, str] = {}
        self._tried: dict[str, int] = {}  # numbers of a name that are taken, and by which values
        self._called: dict[tuple[str, str], str] = {}

    def of(self, name: str, server: Mapping[str, Any]) -> Table:
        """The same server with references."""
        table: Table = {key: with_secrets_named(value) for key, value in server.items()}
        if env := table.get("env"):
            table["env"] = {key: self._variable(name, key, value) for key, value in env.items()}
        if headers := table.get("headers"):
            table["headers"] = {key: self._header(name, key, value) for key, value in headers.items()}
        if args := table.get("args"):
            table["args"] = list(self._arguments(name, args))
        if url := table.get("url"):
            table["url"] = self._url(name, url)
        if isinstance(auth := table.get("auth"), dict):
            written = cast(Table, auth)
            table["auth"] = {
                key: self._kept(name, key, each) if key in HIDDEN else each for key, each in written.items()
            }
        return table

    def _variable(self, server: str, name: str, value: str) -> str:
        is_secret = masking.is_secret_name(name) or masking.looks_secret(value)
        if _password.search(value) or (is_secret and not _is_plain(value)):
            return self._kept(server, name, value)
        return value

    def _header(self, server: str, name: str, value: str) -> str:
        if not masking.is_secret_name(name) and not masking.looks_secret(value):
            return value
        scheme = _scheme.match(value)
        before = scheme[0] if scheme else ""
        return before + self._kept(server, "token" if scheme else name, value.removeprefix(before))

    def _arguments(self, server: str, args: list[str]) -> Iterator[str]:
        secrets = list(dict.fromkeys(masking.secrets_of(args))) if not has_pattern(args) else []
        whole, few = frozenset(secrets), secrets[:MOST_COMPARED]
        before = ""
        for argument in args:
            secret = argument if argument in whole else self._end(argument, few)
            if secret and (secret == argument or masking.arguments([argument]) != [argument]):
                option = argument.removesuffix(secret) or (before if before.startswith("-") else "")
                yield argument.removesuffix(secret) + self._kept(server, slug(option) or "argument", secret)
            else:
                yield self._url(server, argument) if "://" in argument else argument
            before = argument

    def _end(self, argument: str, secrets: list[str]) -> str:
        """The secret at its end: one of these, or what looks like one itself."""
        found = next((each for each in secrets if argument.endswith(each)), "")
        return found or next(masking.secrets_of([argument]), "")

    def _url(self, server: str, url: str) -> str:
        if has_pattern(url):
            return url

        def value(found: re.Match[str]) -> str:
            is_secret = masking.is_secret_name(found[1]) or masking.looks_secret(found[2])
            return f"{found[1]}={self._kept(server, found[1], found[2]) if is_secret else found[2]}"

        url = _user.sub(lambda found: self._kept(server, "user", found[1]), url)
        address, mark, rest = url.partition("?")
        return address + _query.sub(value, mark + rest)

    def _kept(self, server: str, name: str, value: str) -> str:
        if not value or has_pattern(value):
            return value
        own, whose = slug(name) or "secret", slug(server) or "server"
        base = own if own.startswith(f"{whose}-") else f"{whose}-{own}"
        called = self._called.get((base[:150], value)) or self._free(base[:150], value)
        return f"${{secret:{called}}}" if called else value

    def _free(self, base: str, value: str) -> str:
        """A name that is free, or has this value already; none where there are a thousand. Each is tried once."""
        for number in range(self._tried.get(base, 0) + 1, 1000):
            called = base if number == 1 else f"{base}-{number}"
            there = self.found.get(called, self._known.get(called))
            if there is None and not self._is_taken(called):
                there = self.found[called] = value
            self._tried[base] = number
            if there is not None:
                self._called.setdefault((base, there), called)
            if there == value:
                return called
        return ""


_plain = re.compile(r"(?:true|false|yes|no|on|off|none|null|\d{1,6})?", re.IGNORECASE)


def _is_plain(value: str) -> bool:
    """It says too little to be a secret, whatever its name."""
    return bool(_plain.fullmatch(value)) or value.startswith(("/", "./", "~/", "http://", "https://"))


def with_secrets_named(value: Any) -> Any:
    """A variable that toolgate has written for a secret is that secret again."""
    if isinstance(value, str):
        return _variable.sub(lambda found: f"${{secret:{slug(found[1])}}}", value)
    if isinstance(value, Mapping):
        return {key: with_secrets_named(each) for key, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [with_secrets_named(each) for each in cast("list[Any]", value)]
    return value
