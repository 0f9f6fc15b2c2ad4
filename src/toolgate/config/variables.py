"""`${VAR}` and `${VAR:-default}` in the strings of a server, and what must hold of them once the variables are in.

The rules this file keeps: no `${` of a file goes to a server as it stands; what stands in a variable is put in once
and never read as a pattern itself; and, as in `values`, no value is ever quoted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, cast

from toolgate.config.values import Key, Kind, gather, wrong

_variable = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-((?:(?!\$\{)[^}])*))?\}")
_not_understood = re.compile(r"\$\0*\{")  # \0 stands where a variable was; no text of a file holds one
_control = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_url = re.compile(
    r"(?:http|ws)s?://(?:[^/?#@\s]*@)?(?:\[[0-9A-Fa-f:.]+\]|[^/?#@:\s\[\]]+)(?::[0-9]{1,5})?(?:[/?#]\S*)?",
    re.IGNORECASE,
)


class Expansion:
    """Puts variables into the strings of one server, and remembers what it could not put in."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.missing: list[str] = []

    def expand(self, value: Any) -> Any:
        """`value` is a string, a tuple or a table of what can be expanded; anything else stays. Raises `Wrong` for
        a `${` that is no variable: none may be sent upstream as it stands."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, tuple):
            return tuple(gather(enumerate(cast("tuple[object, ...]", value)), self.expand).values())
        if isinstance(value, dict):
            return gather(cast("dict[Key, object]", value).items(), self.expand)
        return value

    def _text(self, text: str) -> str:
        if _not_understood.search(_variable.sub("\0\\2", text)):  # a default may join with what stands beside it
            raise wrong("holds a `${` that is no variable", "write ${NAME} or ${NAME:-default}")
        return _variable.sub(self._value, text)

    def _value(self, found: re.Match[str]) -> str:
        name, default = found.groups()
        value = self._environ.get(name)
        if default is not None:
            return value or default  # as in a shell, empty counts as unset here
        if value is None:
            self.missing.append(name)
        return value or ""


# What must hold once the variables are in. Each raises `Wrong`.


def sound_text(value: str) -> None:
    try:
        strange = b"\0" in os.fsencode(value)
    except UnicodeEncodeError:
        strange = True
    if strange:
        raise wrong("holds a character that no program can take")


def sound_command(value: str) -> None:
    sound_text(value)
    if not value.strip():
        raise wrong("must not be empty")


def sound_url(value: str) -> None:
    _sound_url(value, "http", "ws")


def sound_http_url(value: str) -> None:
    _sound_url(value, "http")


def sound_ws_url(value: str) -> None:
    _sound_url(value, "ws")


def is_websocket(url: str) -> bool:
    return url.lower().startswith(("ws://", "wss://"))


def _sound_url(value: str, *schemes: str) -> None:
    sound_text(value)
    if not _url.fullmatch(value) or not value.lower().startswith(schemes):
        *others, last = (each for scheme in schemes for each in (f"{scheme}://", f"{scheme}s://"))
        raise wrong(f"must be a URL that begins with {', '.join(others)} or {last}")


def sound_texts(value: tuple[str, ...]) -> None:
    gather(enumerate(value), cast(Kind, sound_text))


def sound_environment(value: Mapping[str, str]) -> None:
    gather(value.items(), cast(Kind, sound_text))


def sound_headers(value: Mapping[str, str]) -> None:
    gather(value.items(), cast(Kind, _sound_header))


def sound_roots(value: tuple[tuple[str, str], ...]) -> None:
    gather(((index, uri) for index, (uri, _) in enumerate(value)), cast(Kind, _sound_root))


def _sound_header(value: str) -> None:
    sound_text(value)
    if _control.search(value):
        raise wrong("holds a line break or another control character")


def _sound_root(value: str) -> None:
    sound_text(value)
    if not value.startswith("file:///") and not os.path.isabs(value):
        raise wrong("must be an absolute path or a file:/// URI")
