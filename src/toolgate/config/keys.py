"""The keys of a configuration: what each may hold, and which of them this version does not have yet.

These tables are all that toolgate knows of keys. The rule they keep: a key that is not understood or not done is
told, never passed over; a key of a later version is accepted only with a value that asks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from toolgate.config import values, variables
from toolgate.config.values import Kind


class Key(msgspec.Struct, frozen=True):
    """A key that works. `field` is the struct's field where it has another name; `only` the types of server that
    it is for; `sound` says that `${VAR}` is put in, and raises `Wrong` for what must not come out of that."""

    kind: Kind
    field: str = ""
    only: tuple[str, ...] = ()
    sound: Callable[[Any], None] | None = None


class Later(msgspec.Struct, frozen=True):
    """A key whose subject this version does not have. `accepted` asks for nothing: the documented default.

    `says` is what is so meanwhile. `hollow`: the default too is a promise that is not kept yet, so it is a warning.
    `grave`: the server must not run without it, even where another tool's file says so.
    """

    accepted: Any = msgspec.UNSET
    says: str = ""
    mend: str = "remove it"
    kind: Kind | None = None
    hollow: bool = False
    grave: bool = False

    def accepts(self, value: object) -> bool:
        if self.accepted is msgspec.UNSET:
            return False
        if self.kind and isinstance(value, int | float | str):
            try:
                return bool(self.kind(value) == self.kind(self.accepted))
            except values.Wrong:
                return False
        return type(value) is type(self.accepted) and value == self.accepted


Row: TypeAlias = Key | Later

SECTIONS: Mapping[str, Mapping[str, Row]] = {
    "http": {
        "host": Key(values.host),
        "port": Key(values.whole(0, 65535)),
        "body_limit": Key(values.size),
        "allowed_origins": Key(values.many(values.origin)),
        "allowed_hosts": Key(values.many(values.host_port)),
        "tls": Later(says="put a proxy that does TLS in front"),
    },
    "sessions": {
        "idle": Key(values.duration),
        "max": Key(values.whole(1)),
        "implicit": Key(values.flag),
    },
    "parking": {
        "ttl": Key(values.duration),
        "per_principal": Key(values.whole(1)),
        "max": Key(values.whole(1)),
    },
    "catalog": {
        "ttl": Key(values.duration),
        "list_timeout": Key(values.duration),
        "page_size": Key(values.whole(1)),
        "grace": Later(),
    },
    # Nothing but defaults from here on.
    "pool": {
        "max_live": Later(20, "servers that were started stay up", hollow=True),
        "idle": Later("5m", "servers that were started stay up", kind=values.duration, hollow=True),
    },
    "virtual_search": {
        "enabled": Later(False),
        "threshold": Later(40),
        "threshold_tokens": Later(10000),
        "mode": Later("bm25"),
    },
    "provision": {
        "auto": Later(False),
        "trusted": Later(["@modelcontextprotocol/*"]),
        "minimum_age": Later("7d", kind=values.duration),
        "registries": Later(),
    },
    "sandbox": {
        "require_os_confinement": Later("auto"),
        "strict_globals": Later(False),
    },
    "tasks": {
        "require_session_id": Later(False),
        "jsonl": Later(".gobby/tasks.jsonl"),
        "sync": Later(),
    },
}

ROOT: Mapping[str, Later] = {
    "clients": Later(says="the gateway is open on loopback"),
    "auth": Later(says="the gateway is open on loopback"),
    "limits": Later(),
    "validate_arguments": Later(True, "each server judges its own arguments", hollow=True),
    "secrets": Later(says="use ${VAR} in a server's strings"),
    "audit": Later(),
    "log": Later(),
    "telemetry": Later(),
    "state": Later(),
    "cluster": Later(),
    "tool_components": Later(),
    "component_url": Later("http://{name}.spin.internal/"),
}

_in_headers = 'a fixed token can stand in `headers`, such as Authorization = "Bearer ${TOKEN}"'

# What `type` may say, and the key that it then needs.
TYPES = {"stdio": "command", "http": "url", "sse": "url", "ws": "url"}
LATER_TYPES = frozenset({"component"})
LATER_TYPE = Later(mend="give the server's stdio or http form", grave=True)
STARTED = tuple(type for type, key in TYPES.items() if key == "command")
REACHED = tuple(type for type, key in TYPES.items() if key == "url")
SOUND_URLS = {"http": variables.sound_http_url, "sse": variables.sound_http_url, "ws": variables.sound_ws_url}

SERVER: Mapping[str, Row] = {
    "type": Key(values.filled),  # judged by TYPES
    "command": Key(values.filled, only=STARTED, sound=variables.sound_command),
    "args": Key(values.many(values.text), only=STARTED, sound=variables.sound_texts),
    "env": Key(values.environment, only=STARTED, sound=variables.sound_environment),
    "cwd": Key(values.optional(values.filled), only=STARTED, sound=variables.sound_command),
    "url": Key(values.filled, only=REACHED, sound=variables.sound_url),
    "headers": Key(values.headers, only=REACHED, sound=variables.sound_headers),
    "roots": Key(values.many(values.root), sound=variables.sound_roots),
    "enabled": Key(values.flag),
    "timeout": Key(values.duration),
    "timeoutMs": Key(values.milliseconds, field="timeout"),
    "start_timeout": Key(values.duration),
    "start": Key(values.choice("lazy", "eager")),
    "scope": Key(values.choice("shared", "principal", "session")),
    "concurrency": Key(values.optional(values.whole(1))),
    "auth": Later(says=_in_headers, grave=True),
    "lifecycle": Later("lazy", "a server starts on first use and stays"),
    "criticality": Later("vital"),
    "tools": Later(says="all tools of the server are shown as they are", grave=True),
    "validate_arguments": Later(True, "each server judges its own arguments", hollow=True),
    "compat": Later(says="name the versions in `args`"),
    "forward_headers": Later(says="headers of clients stay here", grave=True),
}

# Other tools' words, understood in their files and mended in ours.
FOREIGN_TYPES = {
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "websocket": "ws",
}
FOREIGN: Mapping[str, Row] = {
    "transport": Key(values.filled, field="type"),
    "transportType": Key(values.filled, field="type"),
    "httpUrl": Key(values.filled, field="url", only=REACHED, sound=variables.sound_url),
    "serverUrl": Key(values.filled, field="url", only=REACHED, sound=variables.sound_url),
    "disabled": Key(values.unless, field="enabled"),
    "oauth": Later(says=_in_headers, grave=True),
}
MENDS = {
    "transport": "type",
    "transportType": "type",
    "httpUrl": "url",
    "serverUrl": "url",
    "disabled": "enabled",
    "mcp_servers": "mcpServers",
    "servers": "mcpServers",
    "context_servers": "mcpServers",
    "environment": "env",
    "envs": "env",
    "cmd": "command",
    "uri": "url",
    "startup_timeout_sec": "start_timeout",
    "tool_timeout_sec": "timeout",
    "http_headers": "headers",
}

FOREIGN_FILES = frozenset({".mcp.json", "mcp.json", "claude_desktop_config.json", "mcp_config.json"})
PASSED_OVER = frozenset({"$schema"})  # for editors
