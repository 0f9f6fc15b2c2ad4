"""The types of servers, `TYPES`, and what must hold of a server's strings once variables are in them.

A check takes a value as it came out and raises `Wrong`. As in `values`, no value is ever quoted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from toolgate.config.values import Finding, Wrong, gather, wrong

# Other tools' words, understood in their files and corrected in ours.
FOREIGN_TYPES = {
    "local": "stdio",
    "remote": "http",
    "custom": "stdio",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "websocket": "ws",
}

_control = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_url = re.compile(
    r"(?:http|ws)s?://(?:[^/?#@\s]*@)?(?:\[[0-9A-Fa-f:.]+\]|[^/?#@:\s\[\]]+)(?::[0-9]{1,5})?(?:[/?#]\S*)?",
    re.IGNORECASE,
)


def sound_text(value: Any) -> None:
    try:
        strange = b"\0" in os.fsencode(value)
    except UnicodeEncodeError:
        strange = True
    if strange:
        raise wrong("contains a NUL character or a lone surrogate")


def sound_command(value: str) -> None:
    sound_text(value)
    if not value.strip():
        raise wrong("must not be empty")


def sound_url(value: str) -> None:
    _sound_url(value, "http", "ws")


def sound_component_url(value: str) -> None:
    """`{port}` may stand where a port does."""
    _sound_url(value.replace(":{port}", ":1"), "http")


def sound_http_url(value: str) -> None:
    _sound_url(value, "http")


def sound_ws_url(value: str) -> None:
    _sound_url(value, "ws")


def is_url(value: str) -> bool:
    return bool(_url.fullmatch(value))


def is_websocket(url: str) -> bool:
    return url.lower().startswith(("ws://", "wss://"))


def _sound_url(value: str, *schemes: str) -> None:
    sound_text(value)
    if not _url.fullmatch(value) or not value.lower().startswith(schemes):
        *others, last = (each for scheme in schemes for each in (f"{scheme}://", f"{scheme}s://"))
        raise wrong(f"must be a URL that starts with {', '.join(others)} or {last}")


def sound_fields(value: Mapping[str, Any]) -> None:
    """What one key says of a program: `command`, `args`, `env`."""
    sound_command(value["command"])
    sound_texts(value.get("args", ()))
    sound_environment(value.get("env", {}))


def sound_texts(value: tuple[str, ...]) -> None:
    gather(enumerate(value), sound_text)


def sound_environment(value: Mapping[str, str]) -> None:
    gather(value.items(), sound_text)


def sound_headers(value: Mapping[str, str]) -> None:
    gather(value.items(), _sound_header)


def sound_roots(value: tuple[tuple[str, str], ...]) -> None:
    gather(((index, uri) for index, (uri, _) in enumerate(value)), _sound_root)


def _sound_header(value: Any) -> None:
    sound_text(value)
    if _control.search(value):
        raise wrong("contains a line break or another control character")


def _sound_root(value: Any) -> None:
    sound_text(value)
    if not value.startswith("file:///") and not os.path.isabs(value):
        raise wrong("must be an absolute path or a file:/// URI")


def sound_server_auth(value: Any) -> None:
    for key in ("client_id", "client_secret"):
        if re.search(r"[^\x20-\x7e]", getattr(value, key)):
            raise Wrong(Finding("contains a character that OAuth does not allow here", "", (key,)))


class ServerType(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a word of `type`. `when`: what else says so, where something does. `needs` is the key that it
    cannot be without. `is_started`: toolgate may start its program, also where it is reached by a URL. `is_spoken_to`:
    in either era of the protocol. `sound_url` judges a URL of it, as the other checks here.

    `template` is the root's key by which one is reached that names no URL; `{name}` goes in. `names` is the root's key
    that lists those of which nothing is said but their names, `surface` what `/mcp` shows where there are no others.
    `has_bare_names`: of its tools, on that surface. `is_eager`: starts with the gateway unless `start` says otherwise.
    """

    needs: Literal["command", "url"]
    when: str = ""
    is_started: bool = False
    is_spoken_to: bool = False
    sound_url: Callable[[str], None] | None = None
    template: str = ""
    names: str = ""
    surface: str = ""
    has_bare_names: bool = False
    is_eager: bool = False


Type: TypeAlias = Literal["stdio", "http", "sse", "ws", "component", "registry"]

TYPES: Mapping[str, ServerType] = {  # what a file may say of them
    "stdio": ServerType(needs="command", when="if there is a `command`", is_started=True, is_spoken_to=True),
    "http": ServerType(needs="url", when="if there is a `url`", is_spoken_to=True, sound_url=sound_http_url),
    "sse": ServerType(needs="url", sound_url=sound_http_url),
    "ws": ServerType(needs="url", when="if that begins with `ws`", is_spoken_to=True, sound_url=sound_ws_url),
    "component": ServerType(
        needs="url",
        is_started=True,
        sound_url=sound_component_url,
        template="component_url",
        names="tool_components",
        surface="components",
        has_bare_names=True,
        is_eager=True,
    ),
}
STARTED = tuple(type for type, row in TYPES.items() if row.is_started)
REACHED = tuple(type for type, row in TYPES.items() if row.needs == "url")
SPOKEN_TO = tuple(type for type, row in TYPES.items() if row.is_spoken_to)
EAGER = tuple(type for type, row in TYPES.items() if row.is_eager)
TEMPLATES = tuple(row.template for row in TYPES.values() if row.template)


def told() -> str:
    """How `type` is written, and what says the same."""
    said = [f'`"{type}"` {row.when}' for type, row in TYPES.items() if row.when]
    others = [f'`"{type}"`' for type, row in TYPES.items() if not row.when]
    return f"{', '.join(said)}; {', '.join(others)}"
