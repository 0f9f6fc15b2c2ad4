"""The types of servers, and what must hold of a server's strings once variables are in them.

A check takes a value as it came out and raises `Wrong`. As in `values`, no value is ever quoted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from toolgate.config.values import Finding, Wrong, gather, wrong

# What `type` may say, and the key that it then needs.
TYPES = {"stdio": "command", "http": "url", "sse": "url", "ws": "url", "component": "url"}
BOTH = ("component",)  # started here, and reached by its URL
STARTED = (*(type for type, key in TYPES.items() if key == "command"), *BOTH)
REACHED = tuple(type for type, key in TYPES.items() if key == "url")
SPOKEN_TO = ("stdio", "http", "ws")  # in either era of the protocol

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


SOUND_URLS: Mapping[str, Callable[[str], None]] = {
    "http": sound_http_url,
    "sse": sound_http_url,
    "ws": sound_ws_url,
    "component": sound_component_url,
}
