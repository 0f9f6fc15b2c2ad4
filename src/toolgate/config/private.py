"""What in a configuration is a secret, so that it can be taken out of whatever is shown.

The rule this file keeps: what `${secret:…}` brings in, keys, and what goes by the name of a secret are secrets
whatever they look like; of the rest of `env`, headers, queries and variables all is, but for what is plainly a word, a
number, a path, a host or a short name, or is named in `secrets.public`. What stands in the clear is a secret of its own
server: of others only if it goes by the name of one and looks like a token. In names of members it is one only if it
goes by the name of one and can hardly be the name of any member: else its server's schemas would break.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Set
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from toolgate.config import masking
from toolgate.config.masking import MASK, Secret
from toolgate.core.redaction import MOST_SURE, InTheClear, looks_like_token

NO_KEY = "sha256:" + "0" * 64  # in place of a key: the hash of none that anybody knows
SHORTEST = 8  # characters; what is shorter stands in too many harmless texts
# Characters besides blanks, as many as tokens have. What is shorter, such as `$skiptoken`, `user[password]`,
# `OAuth2Token` or an account's number, may be a setting (`TOKEN_PARAM`), and so the name of a member as well.
SHORTEST_AS_NAME = 16

_path = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\][^\s?&=]*")
_word = "(?:[A-Z]?[a-z]{1,24}|[A-Z]{1,24})"
_piece = "(?:[a-z]+[0-9]{0,2}[a-z]{0,2}|[0-9]{1,2}[a-z]{0,2}|20[0-9]{6})"
_plain = re.compile(
    rf"{_word}(?:[ _.,:;/-]{{1,2}}{_word})*(?:-[0-9]{{1,2}})?"
    r"|[0-9.,:+-]+[A-Za-z]{0,3}"  # numbers, versions, times
    r"|[A-Za-z0-9-]+(?:\.[A-Za-z][A-Za-z0-9-]*)+(?::[0-9]{1,5})?"  # hosts
    rf"|(?=.{{1,32}}\Z){_piece}(?:[-_.]{_piece})*"  # eu-central-1, gpt-4o-mini
)
_LONGEST_PLAIN = 200
_name = re.compile(
    r"[^\W\d_]+(?:[_.:/-]{1,2}[^\W\d_]+)*"
)  # of words, as in `clientCredentials`, `aws_secret_access_key`
_names_a_file = re.compile(r"(?:FILE|PATH|DIR|FOLDER)\Z", re.IGNORECASE)
_FOLDERS = ("PWD", "OLDPWD")  # every shell says so where it is; `pwd` is short for a password, too
_counts = re.compile(r"TOKENS|TOKENI[ZS]", re.IGNORECASE)
_url = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://\S+")
_scheme = re.compile(r"(?:Bearer|Basic|Token|ApiKey|Digest) +(\S.*)", re.IGNORECASE | re.DOTALL)
_unsecret_headers = frozenset({"accept", "accept-language", "content-type", "user-agent"})

# Of the environment: what every shell has, and what only says where things are.
_ordinary = re.compile(r"HOME|PATH|PWD|OLDPWD|USER|LOGNAME|SHELL|TERM|LANG|TZ|TMPDIR|HOSTNAME|(?:LC|XDG)_.*")


class Private:
    """Gathers them. `public`: names whose values are none."""

    def __init__(self, public: Iterable[str] = ()) -> None:
        self._found: dict[str, bool] = {}  # and whether it goes by the name of a secret
        self._public = {name.lower() for name in public}

    @property
    def values(self) -> Set[str]:
        return self._found.keys()

    def in_the_clear(self) -> InTheClear:
        """What stands there for one server."""
        named = [value for value, is_named in self._found.items() if is_named]
        sure = [value for value in named if looks_like_token(value) and not _is_plain(value)][-MOST_SURE:]
        others = [value for value in self._found if len("".join(value.split())) >= SHORTEST]  # not of blanks
        kept = set(sure)
        guessed = sorted((each for each in others if each not in kept), key=self._found.__getitem__)
        return InTheClear(sure, guessed, [each for each in guessed if self._found[each] and not _may_be_a_name(each)])

    def add(self, value: str, is_named: bool = True) -> None:
        if len(value) >= SHORTEST:
            self._found[value] = is_named or self._found.get(value, False)

    def named(self, name: str, value: str) -> None:
        """One of `env`, of headers, of variables, of a query."""
        if name.lower() in self._public or len(value) < SHORTEST:
            return
        if "://" in value:
            self.url(value)
        elif (is_named := _goes_as_secret(name, value)) or not _is_plain(value):
            self.header(value, is_named)

    def header(self, value: str, is_named: bool = True) -> None:
        """With a scheme before it, or without; of `Basic …` the password as well."""
        self.add(value, is_named)
        if found := _scheme.fullmatch(value):
            self.add(found[1])
            self._basic(found[1])

    def _basic(self, encoded: str) -> None:
        try:
            self.add(base64.b64decode(encoded, validate=True).decode().partition(":")[2])
        except (binascii.Error, UnicodeDecodeError, ValueError):
            pass

    def url(self, text: str) -> None:
        """Who it is, the query, and what looks random on the way."""
        try:
            parts = urlsplit(text)
            user, password = parts.username or "", parts.password or ""
        except ValueError:
            return
        for written in (password, user if masking.looks_secret(user) or not password else ""):
            self.add(written)
            self.add(unquote(written))
        for pair in (*parts.query.split("&"), *parts.fragment.split("&")):
            name, is_named, value = pair.partition("=")
            for each in {value, unquote(value)} if is_named else {name}:
                self.named(name if is_named else "", each)
        for segment in filter(masking.looks_secret, parts.path.split("/")):
            self.add(segment, is_named=False)

    def arguments(self, args: Iterable[str]) -> None:
        for secret in masking.secrets_of(args):
            self.add(secret)
        for argument in args:
            for found in _url.findall(argument):
                self.url(found)

    def headers(self, headers: Mapping[str, str]) -> None:
        for name, value in headers.items():
            if name.lower() not in _unsecret_headers:
                self.named(name, value)
            if name.lower() == "cookie":
                for each in value.split(";"):
                    self.named("cookie", each.partition("=")[2].strip())

    def lines(self, value: str) -> None:
        """All of it, and each line of a key, as it may be quoted."""
        self.add(value)
        for line in value.splitlines():
            if not line.startswith("-----"):
                self.add(line)

    def fixed(self, name: str, value: Any) -> None:
        if isinstance(value, str):
            self.named(name, value)
        elif isinstance(value, Mapping):
            for inner, each in cast("Mapping[str, Any]", value).items():
                self.fixed(inner, each)

    def environment(self, environ: Mapping[str, str]) -> None:
        """That of the gateway, whatever of it is used: its children could read it."""
        for name, value in environ.items():
            if "://" in value:
                self.url(value)
            elif len(value) >= SHORTEST and name.lower() not in self._public and _goes_as_secret(name, value):
                self.add(value)

    def variables(self, put_in: Iterable[tuple[str, str]]) -> None:
        for name, value in put_in:
            if not _ordinary.fullmatch(name):
                self.named(name, value)


# Of fields: how each is masked, and what of it is secret.


def _masked(value: Any, struct: Any) -> str:
    return MASK


def _masked_values(value: Mapping[str, str], struct: Any) -> dict[str, str]:
    return dict.fromkeys(value, MASK)


def _masked_webhook(value: Any, struct: Any) -> Any:
    """Its path may be all that somebody needs to use it. A command stays."""
    return "/".join((*value.split("/")[:3], MASK)) if isinstance(value, str) else list(value)


def _named(private: Private, name: str, value: Mapping[str, str]) -> None:
    for each, text in value.items():
        private.named(each, text)


ARGUMENTS = Secret(
    lambda value, server: masking.arguments(value, server.private_args),
    lambda private, name, value: private.arguments(value),
)
CLIENT_KEY = Secret(
    lambda value, client: value if value.startswith("sha256:") else NO_KEY,
    lambda private, name, value: private.add("" if value.startswith("sha256:") else value),
)
ENVIRONMENT = Secret(_masked_values, _named)
FIXED = Secret(_masked, lambda private, name, value: private.fixed(name, value))
HEADERS = Secret(_masked_values, lambda private, name, value: private.headers(value))
TEXT = Secret(_masked, lambda private, name, value: private.lines(value))
UNKNOWN_YET = Secret(_masked)  # a variable may still stand there
URL = Secret(lambda value, server: masking.url(value), lambda private, name, value: private.url(value))
WEBHOOK = Secret(_masked_webhook, lambda private, name, value: private.url(value) if isinstance(value, str) else None)


def _goes_as_secret(name: str, value: str) -> bool:
    if not masking.is_secret_name(name):
        return False
    if name in _FOLDERS and value.startswith("/"):
        return False
    is_number = value.isdecimal() and _counts.search(name)
    return not is_number and not (_path.fullmatch(value) and _names_a_file.search(name))


def _is_plain(value: str) -> bool:
    if len(value) > _LONGEST_PLAIN:
        return False
    return bool(_plain.fullmatch(value) or (_path.fullmatch(value) and not _has_secret_part(value)))


def _may_be_a_name(value: str) -> bool:
    """Whether a member may be called so, or have it in its name. A setting may be such a name, too: `AUTH_TYPE`."""
    if len("".join(value.split())) < SHORTEST_AS_NAME:
        return True
    is_one_word = not any(map(str.isspace, value)) and not value.isdecimal()
    return is_one_word and len(value) <= _LONGEST_PLAIN and bool(_name.fullmatch(value) or _is_plain(value))


def _has_secret_part(path: str) -> bool:
    return any(map(masking.looks_secret, re.split(r"[/\\]", path)))
