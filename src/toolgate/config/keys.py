"""The keys of a configuration: what each may hold, and which of them this version does not have yet.

These tables are all that toolgate knows of its own keys; those of other tools stand in `dialects`. The rule they
keep: a key that is not understood or not done is told, never passed over; a key of a later version is accepted only
with a value that asks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from toolgate.config import access_shapes as access
from toolgate.config import shapes, values, variables
from toolgate.config.values import Kind


class Key(msgspec.Struct, frozen=True):
    """A key that works. `field` is the struct's field where it has another name; with `spread` the value is a table
    of fields; `only` are the types of server that it is for; `means` the type that follows from it. `sound` says that
    variables are put in, and raises `Wrong` for what must not come out of that. `later` judges values that this
    version does not have."""

    kind: Kind
    field: str = ""
    only: tuple[str, ...] = ()
    sound: Callable[[Any], None] | None = None
    spread: bool = False
    means: str = ""
    later: Callable[[object], Later | None] | None = None


class Later(msgspec.Struct, frozen=True):
    """A key whose subject this version does not have. `accepted` asks for nothing: the documented default.

    `says` is what is so meanwhile. `grave`: the server must not run without it, even where another tool's file says
    so.
    """

    accepted: Any = msgspec.UNSET
    says: str = ""
    fix: str = "remove it"
    kind: Kind | None = None
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
        "tls": Later(says="put a TLS proxy in front"),
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
        "first_wait": Key(values.duration),
        "page_size": Key(values.whole(1)),
        "grace": Key(values.duration_or_none),
        "items": Key(values.whole(1)),
        "bytes": Key(values.size),
    },
    "pool": {
        "max_live": Key(values.whole(1)),
        "idle": Key(values.duration),
    },
    "virtual_search": {
        "enabled": Key(values.flag),
        "threshold": Key(values.whole(1)),
        "threshold_tokens": Key(values.whole(1)),
        "mode": Key(values.choice("bm25", "regex", "semantic")),
    },
    "limits": {
        "result_limit": Key(values.size),
        "result_tokens": Key(values.whole(1)),
        "truncate": Key(shapes.truncation, spread=True),
        "argument_limit": Key(values.size),
        "values": Key(values.whole(shapes.LEAST_VALUES)),
        "rates": Key(shapes.record(principal=access.rate, server=access.rate, tool=access.rate)),
        "concurrency": Key(shapes.record(principal=values.whole(1), server=values.whole(1), tool=values.whole(1))),
    },
    "auth": {
        "issuer": Key(access.base_url),
        "audience": Key(access.base_url),
        "scopes": Key(access.scopes),
        "step_up": Key(access.step_up),
        "client": Key(values.filled),
    },
    "approvals": {
        "by": Key(values.many(values.choice("client", "operator"))),
        "wait": Key(values.duration_or_none),
        "ttl": Key(values.duration),
        "notify": Key(access.notified),
    },
    "guard": {
        "pinning": Key(values.choice("off", "warn", "quarantine")),
        "descriptions": Key(values.choice("off", "warn", "quarantine")),
        "scrub": Key(values.choice("off", "known", "patterns")),
        "allow_hosts": Key(values.many(access.host_or_network)),
    },
    "audit": {
        "enabled": Key(values.flag),
        "path": Key(values.filled),
        "arguments": Key(values.choice("hash", "full", "none")),
        "on_failure": Key(values.choice("warn", "block")),
    },
    "secrets": {
        "backends": Key(values.many(values.choice("env", "file", "systemd", "keyring", "vault"))),
        "file": Key(values.filled),
        "service": Key(values.filled),
        "public": Key(values.many(values.filled)),
        "vault": Key(
            shapes.record(
                **dict.fromkeys(("address", "token", "role_id", "secret_id", "namespace"), values.filled),
                mount=values.filled,
                path=values.text,
            )
        ),
    },
    # Nothing but defaults from here on.
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

SURFACES = ("aggregate", "children", "meta", "components", "daemon", "all")

ROOT: Mapping[str, Row] = {
    "surface": Key(values.choice(*SURFACES)),
    "bundles": Key(shapes.bundles),
    "validate_arguments": Key(shapes.word_or_flag),
    "state": Key(values.filled),
    "drain": Key(values.duration_or_none),
    "tool_components": Key(shapes.components),
    "component_url": Key(shapes.template),
    "clients": Key(access.clients(SURFACES)),
    "add_servers": Key(access.verdict),
    "log": Later(),
    "telemetry": Later(),
    "cluster": Later(),
}

_in_headers = (
    'in a file of toolgate\'s own, `auth = "oauth"` signs in; here, put a fixed token into `headers`, such as '
    'Authorization = "Bearer ${TOKEN}"'
)

# What `type` may say, and the key that it then needs.
TYPES = {"stdio": "command", "http": "url", "sse": "url", "ws": "url", "component": "url"}
BOTH = ("component",)  # started here, and reached by its URL
STARTED = (*(type for type, key in TYPES.items() if key == "command"), *BOTH)
REACHED = tuple(type for type, key in TYPES.items() if key == "url")
SPOKEN_TO = ("stdio", "http", "ws")  # in either era of the protocol
SOUND_URLS = {
    "http": variables.sound_http_url,
    "sse": variables.sound_http_url,
    "ws": variables.sound_ws_url,
    "component": variables.sound_component_url,
}

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
    "lifecycle": Key(shapes.lifecycle, spread=True),
    "criticality": Key(values.choice("vital", "optional")),
    "scope": Key(values.choice("shared", "principal", "session")),
    "era": Key(values.choice("auto", "legacy", "modern"), only=SPOKEN_TO),
    "concurrency": Key(values.optional(values.whole(1))),
    "description": Key(values.text),
    "validate_arguments": Key(shapes.word_or_flag),
    "result_limit": Key(values.size),
    "result_tokens": Key(values.whole(1)),
    "tools": Key(shapes.overlays),
    "new_privileges": Key(values.flag, only=STARTED),
    "compat": Key(shapes.requirement, only=("stdio",)),
    "auth": Key(access.server_auth, only=("http", "sse"), sound=access.sound_server_auth),
    "forward_headers": Key(access.forwarded, only=("http",)),
    "rate": Key(access.rate),
    "pinning": Key(values.choice("off", "warn", "quarantine")),
    "by_operator": Key(values.flag),
}

NO_OAUTH = Later(says=_in_headers, grave=True)

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
FOREIGN: Mapping[str, Row] = {
    "transport": Key(values.filled, field="type"),
    "transportType": Key(values.filled, field="type"),
    "httpUrl": Key(values.filled, field="url", only=REACHED, sound=variables.sound_url, means="http"),
    "serverUrl": Key(values.filled, field="url", only=REACHED, sound=variables.sound_url),
    "disabled": Key(values.unless, field="enabled"),
    "oauth": NO_OAUTH,
}
FIXES = {
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

PASSED_OVER = frozenset({"$schema"})  # for editors
