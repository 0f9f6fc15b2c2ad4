"""What a configuration allows or turns off, each in a sentence for the user who is to trust it.

What is said of a field stands beside it (`config/allowing.py`); here are sentences of several fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from toolgate.config import Config, Server, allowing
from toolgate.config.access import KnownClient

_DEFAULT = Config()
_DEFAULT_SERVER = Server(id="", name="", type="stdio")


def of_config(config: Config) -> Iterator[str]:
    for sentence, value in allowing.widenings(config, _DEFAULT):
        yield sentence.format(_written(value))
    for client in config.clients:
        if client.enabled:
            yield _of_client(client)


def of_server(server: Server) -> Iterator[str]:
    for sentence, value in allowing.widenings(server, _DEFAULT_SERVER):
        yield "  " + sentence.format(_written(value), server=server.name)
    if server.auth and server.auth.shared:
        yield f"  let all clients use one sign-in at {server.name}"


def _of_client(client: KnownClient) -> str:
    by = " by a key in this file" if client.key else f" by tokens with {_written(client.claims)}"
    is_shown = bool(client.key or client.claims)
    as_what = ", as an administrator, who may add commands that run as you" if client.admin else ""
    adds = f", with add_servers = {client.add_servers}" if client.add_servers in ("allow", "ask") else ""
    permissions = {name: each for name, each in msgspec.structs.asdict(client.permissions).items() if each}
    allowed = f", with permissions {_written(permissions)}" if permissions else ""
    servers = "by its permissions" if client.servers is None else _written(client.servers)
    return f"let in the client {client.id}{by if is_shown else ''}{as_what}{adds}, to servers: {servers}{allowed}"


def _written(value: Any) -> str:
    """As a person reads it; of overlays the whole, since they decide what a tool is called with."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list) and all(isinstance(each, str) for each in value):  # pyright: ignore
        return ", ".join(value)  # pyright: ignore
    return msgspec.json.encode(value).decode()
