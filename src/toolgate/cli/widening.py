"""What a configuration allows or turns off, each in a sentence for the user who is to trust it.

The rule this file keeps: a field of the configuration is shown here or in `trusting`, or stands in `HARMLESS` with the
reason; `tests/attack/test_trust_shows_all.py` finds one that was forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from toolgate.config import Config, Server
from toolgate.config.access import KnownClient

# Path of a field → what it does with a value that is not the default; {} is the value.
SETTINGS: Mapping[str, str] = {
    "add_servers": "let clients add servers, which are commands that run as you: add_servers = {}",
    "http.allowed_origins": "let pages of other sites use it in your browser: {}",
    "http.allowed_hosts": "answer under other host names: {}",
    "http.body_limit": "take messages of up to {} bytes",
    "guard.allow_hosts": "connect to internal addresses that servers and clients name: {}",
    "guard.scrub": "take secrets out of what servers say: {}",
    "guard.pinning": "watch for tools that change: {}",
    "guard.descriptions": "watch for suspicious descriptions: {}",
    "audit.enabled": "record calls in the audit: {}",
    "audit.arguments": "record arguments of calls: {}",
    "approvals.by": "let calls be approved by: {}",
    "auth.audience": "accept tokens for {}",
    "auth.client": "let in everybody with a token of the issuer, as the client {}",
    "limits.values": "take messages of up to {} values",
    "validate_arguments": "check the arguments of calls: {}",
    "secrets.service": "look up secrets in the keyring under {}",
    "secrets.public": "show the values of these secrets: {}",
    "component_url": "contact components at {}",
}
OF_A_SERVER: Mapping[str, str] = {
    "new_privileges": "let {0} gain privileges (sudo, setuid)",
    "pinning": "watch for tools of {0} that change: {1}",
    "validate_arguments": "check the arguments of calls of {0}: {1}",
    "forward_headers": "pass these headers of clients on to {0}: {1}",
    "roots": "tell {0} of the folders {1}",
    "tools": "show or call these tools of {0} otherwise than it says: {1}",
    "concurrency": "send {0} up to {1} calls at once",
}
STRONGER = {"guard.pinning": ("quarantine",), "guard.descriptions": ("quarantine",), "guard.scrub": ("patterns",)} | {
    "pinning": ("quarantine", "warn"),
    "add_servers": ("off",),
    "approvals.by": (("operator",),),
    "audit.enabled": (True,),
    "audit.arguments": ("none",),
}

_MEMORY = "how much is kept and for how long: who is let in uses more or less memory"
_PACE = "how fast it works"
_LOOKS = "how tools are shown; which may be used is said elsewhere"
_LESS = "it allows less than the default, or as much"
_MADE = "made by toolgate, in no file"
_REFUSED = "refused in a file that was found"
HARMLESS: Mapping[str, str] = {
    **dict.fromkeys(("source", "dialect", "warnings", "has_secrets", "known"), _MADE),
    **dict.fromkeys(("state", "secrets.file"), _REFUSED),
    **dict.fromkeys(("sessions", "parking", "pool", "catalog"), _MEMORY),
    **dict.fromkeys(("drain", "approvals.wait", "approvals.ttl"), _PACE),
    **dict.fromkeys(("surface", "bundles", "virtual_search"), _LOOKS),
    **dict.fromkeys(("limits.result_limit", "limits.result_tokens", "limits.head", "limits.tail"), _LESS),
    **dict.fromkeys(("limits.argument_limit", "limits.rates", "limits.concurrency"), _LESS),
    **dict.fromkeys(("auth.scopes", "auth.step_up", "audit.on_failure"), _LESS),
    "secrets.backends": "which of the user's own places are asked for a secret; each secret is named",
    "http.port": "a port without rights",
    **dict.fromkeys((f"servers.{each}" for each in ("id", "type", "description")), "a name for what is shown"),
    **dict.fromkeys((f"servers.{each}" for each in ("timeout", "start_timeout", "start", "lifecycle", "idle")), _PACE),
    **dict.fromkeys((f"servers.{each}" for each in ("criticality", "era", "scope")), "how it is spoken to"),
    **dict.fromkeys((f"servers.{each}" for each in ("result_limit", "result_tokens", "rate")), _LESS),
    **dict.fromkeys((f"servers.{each}" for each in ("private_args", "by_operator", "missing")), _MADE),
    **dict.fromkeys((f"clients.{each}" for each in ("name", "surface")), _LOOKS),
    "clients.limits": _LESS,
}
# What `trusting` shows of its own, and what is told of a client here.
TOLD = frozenset(
    (
        *("http.host", "approvals.notify", "auth.issuer", "secrets.vault", "audit.path"),
        *(f"servers.{each}" for each in ("name", "command", "args", "env", "cwd", "url", "headers", "auth", "enabled")),
        *("servers.problem", "clients.id", "clients.enabled", "clients.key", "clients.claims", "clients.admin"),
        *("clients.add_servers", "clients.servers", "clients.permissions"),
    )
)
_DEFAULT = Config()
_DEFAULT_SERVER = Server(id="", name="", type="stdio")


def of_config(config: Config) -> Iterator[str]:
    for path, sentence in SETTINGS.items():
        value, usual = (_at(each, path) for each in (config, _DEFAULT))
        if value != usual and value not in STRONGER.get(path, ()):
            yield sentence.format(_written(value))
    for client in config.clients:
        if client.enabled:
            yield _of_client(client)


def of_server(server: Server) -> Iterator[str]:
    for name, sentence in OF_A_SERVER.items():
        value = getattr(server, name)
        if value != getattr(_DEFAULT_SERVER, name) and value not in STRONGER.get(name, ()):
            yield "  " + sentence.format(server.name, _written(value))
    if server.auth and server.auth.shared:
        yield f"  let all clients use one sign-in at {server.name}"


def _of_client(client: KnownClient) -> str:
    by = " by a key that stands in this file" if client.key else f" by tokens with {_written(client.claims)}"
    is_shown = bool(client.key or client.claims)
    as_what = ", as an administrator, who may add commands that run as you" if client.admin else ""
    adds = f", with add_servers = {client.add_servers}" if client.add_servers in ("allow", "ask") else ""
    permissions = {name: each for name, each in msgspec.structs.asdict(client.permissions).items() if each}
    allowed = f", with permissions {_written(permissions)}" if permissions else ""
    servers = "by its permissions" if client.servers is None else _written(client.servers)
    return f"let in the client {client.id}{by if is_shown else ''}{as_what}{adds}, to servers: {servers}{allowed}"


def _at(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name)
    return config


def _written(value: Any) -> str:
    """As a person reads it; of overlays the whole, since they decide what a tool is called with."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list) and all(isinstance(each, str) for each in value):  # pyright: ignore
        return ", ".join(value)  # pyright: ignore
    return msgspec.json.encode(value).decode()
