"""How an endpoint is written down for programs that look for one: its URL, its name in reverse DNS.

The rule this file keeps: two endpoints of one gateway never have one name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolgate.auth.resource import ENDPOINT
from toolgate.config import Config

SERVERS = ENDPOINT + "/servers/"
LONGEST_DESCRIPTION = 100  # characters, by the schemas of cards and of registries


class Endpoint:
    """How an endpoint is written down: `base` is the URL of the gateway without a path."""

    def __init__(self, base: str, config: Config) -> None:
        self.base = base
        self._needs_key = not config.is_open
        host = re.sub(r":\d+\Z", "", base.partition("://")[2]).strip("[]").lower()
        is_name = re.fullmatch(r"[a-z0-9.-]+", host) and not re.fullmatch(r"[0-9.]+", host)
        self._labels = host.split(".") if is_name else ["localhost"]

    @property
    def namespace(self) -> str:
        return ".".join(reversed(self._labels))

    def name(self, path: str) -> str:
        """In reverse DNS. An id has no dot, so that no server's endpoint is called as another one."""
        if path.startswith(SERVERS):
            return f"{self.namespace}/{path.removeprefix(SERVERS)}"
        more = path.removeprefix(ENDPOINT).replace("/", ".")
        return f"{self.namespace}/toolgate{re.sub(r'[^A-Za-z0-9._-]', '-', more)}"

    def urn(self, path: str) -> str:
        return f"urn:air:{'.'.join(self._labels)}:mcp:{self.name(path).partition('/')[2]}"

    def remote(self, path: str) -> dict[str, Any]:
        key = {"name": "Authorization", "description": "Bearer and a key or token", "isRequired": True}
        headers = {"headers": [{**key, "isSecret": True}]} if self._needs_key else {}
        return {"type": "streamable-http", "url": self.base + path, **headers}


def endpoint_of(scope: Mapping[str, Any], config: Config) -> Endpoint:
    """The gateway as who asks has reached it, where the configuration does not say how it is reached. The guards have
    seen that host."""
    if config.auth.audience:
        return Endpoint(config.auth.audience.rstrip("/"), config)
    host = next((value for name, value in scope["headers"] if name == b"host"), b"localhost").decode("latin-1")
    return Endpoint(f"{scope.get('scheme') or 'http'}://{host}", config)


def described(description: str, name: str) -> str:
    """In so many characters as the schemas allow."""
    text = " ".join(description.split()) or f"{name}, served by toolgate"
    return text if len(text) <= LONGEST_DESCRIPTION else text[: LONGEST_DESCRIPTION - 1] + "…"
