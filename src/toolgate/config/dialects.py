"""The files of other tools, and of the seeds: how each is recognised, where its servers stand, and what differs.

`DIALECTS` is all that toolgate knows of them: to add one, add a row. The rules this file keeps: a file is
recognised by what it holds, and by its name only where several tools write the same; keys of a tool that ask nothing
of a gateway have the row None; all other keys that are not understood are warned of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import msgspec

from toolgate.config import fields, foreign_kinds, manifests, shapes, values, variables
from toolgate.config import server_types as types
from toolgate.config.containers import (
    CONTAINERS,
    PASSED_OVER,
    File,
    at,
    has,
    of_children,
    of_claude,
    of_gemini,
    of_opencode,
    of_vs_code,
    servers_of,
    under,
)
from toolgate.config.dialect import Dialect
from toolgate.config.fields import Key, Later, Rows
from toolgate.config.server import Server, read_tools
from toolgate.config.server_types import REACHED, STARTED

Table: TypeAlias = dict[str, Any]

SERVER: Rows = fields.rows(Server)


# How a file is recognised.


def speaks(*words: str, named: str = "", within: str = "") -> Callable[[File, object], bool]:
    """It is called so; or it has `mcpServers`, nothing of ours beside them, and one of them has one of these keys."""

    def fits(file: File, tree: object) -> bool:
        if (named and file.name == named) or (within and file.within == within):
            return True
        return not _is_in_our_words(file, tree) and any(word in server for server in servers_of(tree) for word in words)

    return fits


def _is_in_our_words(file: File, tree: object) -> bool:
    """It has keys of ours beside its servers, or a format that those tools do not read."""
    return bool(at(tree).keys() & file.own_keys) or not file.name.endswith((".json", ".jsonc"))


def _is_native(file: File, tree: object) -> bool:
    """By its name; or it says more than another tool's file would, or in another format."""
    if _is_named_ours(file, tree):
        return True
    if not isinstance(tree, dict):
        return not isinstance(tree, list)
    others = cast(Table, tree).keys() - {"mcpServers"} - PASSED_OVER
    return not file.name.endswith((".json", ".jsonc")) or bool(others) or "mcpServers" not in tree


def _is_named_ours(file: File, tree: object) -> bool:
    return file.name.startswith("toolgate.")


def _is_children(file: File, tree: object) -> bool:
    if isinstance(tree, list) or file.name.startswith("children_config."):
        return True
    lists = any(isinstance(at(tree).get(key), list) for key in ("mcp_servers", "mcp-servers", "children"))
    return lists or "mcp-servers" in at(tree) or _is_bare(tree)


def _is_bare(tree: object) -> bool:
    """A map of servers, and nothing else."""
    tables = list(at(tree).values())
    return bool(tables) and all(isinstance(table, dict) and ("command" in table or "url" in table) for table in tables)


def _is_opencode(file: File, tree: object) -> bool:
    local = [server.get("type") in ("local", "remote") or "enabled" in server for server in servers_of(tree, "mcp")]
    return (any(local) and "servers" not in at(tree, "mcp")) or file.name in ("opencode.json", "opencode.jsonc")


def _is_goose(file: File, tree: object) -> bool:
    return any("type" in extension or "cmd" in extension for extension in servers_of(tree, "extensions"))


def _is_gemini(file: File, tree: object) -> bool:
    settings = file.name == "settings.json" and "mcpServers" in at(tree)
    return settings or speaks("httpUrl", "includeTools", "excludeTools", "trust")(file, tree)


def _is_fastmcp(file: File, tree: object) -> bool:
    tokens = any(isinstance(server.get("auth"), str) for server in servers_of(tree))
    return (tokens and not _is_in_our_words(file, tree)) or speaks("transport", "include_tags", "exclude_tags")(
        file, tree
    )


def _is_registry(file: File, tree: object) -> bool:
    described = at(tree, "server") or at(tree)
    return any(isinstance(described.get(key), list) for key in ("packages", "remotes")) and "name" in described


# The rows.

NO_OAUTH = Later(
    says='in a file of toolgate\'s own, `auth = "oauth"` signs in; here, put a fixed token into `headers`, such as '
    'Authorization = "Bearer ${TOKEN}"',
    grave=True,
)


def _oauth_word(value: object) -> Later | None:
    return None if isinstance(value, str) and value != "oauth" else NO_OAUTH


def _oauth_table(value: object) -> Later | None:
    asks = value is True or (isinstance(value, dict) and cast(Table, value).get("enabled", True) is not False)
    return NO_OAUTH if asks else None


def quiet(*names: str) -> dict[str, None]:
    return dict.fromkeys(names)


def _env(kind: values.Read = values.environment) -> Key:
    return Key(kind, field="env", only=STARTED, sound=types.sound_environment)


def _headers(kind: values.Read = values.headers) -> Key:
    return Key(kind, field="headers", only=REACHED, sound=types.sound_headers)


def _url(means: str = "") -> Key:
    return Key(values.filled, field="url", only=REACHED, sound=types.sound_url, means=means)


def _kept(value: Any) -> Any:
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


_command = Key(values.filled, field="command", only=STARTED, sound=types.sound_command)
_line = Key(foreign_kinds.command_line, field="command", only=STARTED, sound=types.sound_fields, spread=True)
_env_file = Key(values.filled, only=STARTED, sound=types.sound_text)
_timeout = Key(foreign_kinds.milliseconds_from_a_second)


def _tools(kind: values.Read) -> Key:
    return Key(kind, field="tools", put_in=lambda expansion, found: expansion.expand_overlays(found))


_only = _tools(shapes.only_these)
_all_but = _tools(shapes.all_but_these)
_oauth = Key(lambda value: msgspec.UNSET, later=_oauth_table)

_transformed_tools = _tools(lambda value: read_tools(foreign_kinds.transformed_tools(value)))

FOREIGN: Rows = {
    "transport": Key(values.filled, field="type"),
    "transportType": Key(values.filled, field="type"),
    "httpUrl": _url("http"),
    "serverUrl": _url(),
    "disabled": Key(values.unless, field="enabled"),
    "oauth": NO_OAUTH,
}
# The values come as references where they are variables.
MANIFEST: Rows = {
    **SERVER,
    "args": Key(_kept, only=STARTED, sound=types.sound_texts),
    "env": _env(_kept),
    "url": Key(_kept, only=REACHED, sound=types.sound_url),
    "headers": _headers(_kept),
}
_APPROVALS = quiet("autoApprove", "alwaysAllow", "trust")
PLAIN: Rows = {
    **SERVER,
    **FOREIGN,
    "envFile": _env_file,
    "oauth": _oauth,
    "disabledTools": _all_but,
    **quiet("icon", "title", "displayName"),
}
EDITORS: Rows = {**PLAIN, **_APPROVALS}
CLAUDE: Rows = {**PLAIN, "timeout": _timeout, **quiet("alwaysLoad")}
VS_CODE: Rows = {
    **EDITORS,
    "env": _env(foreign_kinds.loose_environment),
    **quiet("dev", "gallery", "version", "sandboxEnabled"),
}
GEMINI: Rows = {
    "httpUrl": FOREIGN["httpUrl"],  # comes first, as it does there
    **EDITORS,
    "url": _url("sse"),
    "timeout": Key(values.milliseconds),
    "includeTools": _only,
    "excludeTools": _all_but,
    "authProviderType": NO_OAUTH,
    **quiet("extension"),
}
CODEX: Rows = {
    **SERVER,
    "env_vars": _env(foreign_kinds.named_variables),
    "http_headers": _headers(),
    "env_http_headers": _headers(foreign_kinds.header_variables),
    "bearer_token_env_var": _headers(foreign_kinds.bearer_variable),
    "startup_timeout_sec": Key(values.duration, field="start_timeout"),
    "startup_timeout_ms": Key(values.milliseconds, field="start_timeout"),
    "tool_timeout_sec": Key(values.duration, field="timeout"),
    "enabled_tools": _only,
    "disabled_tools": _all_but,
    **quiet("required", "tools", "default_tools_approval_mode", "supports_parallel_tool_calls"),
}
ZED: Rows = {
    **PLAIN,
    "command": msgspec.structs.replace(_line, kind=foreign_kinds.zed_command),
    "env": _env(values.optional(values.environment)),
    **quiet("source", "settings", "remote"),
}
GOOSE: Rows = {
    **SERVER,
    "cmd": _command,
    "envs": _env(),
    "env_keys": _env(foreign_kinds.needed_variables),
    "uri": _url(),
    "timeout": Key(values.optional(values.duration)),
    "available_tools": _tools(shapes.only_these_if_any),
    **quiet("name", "display_name", "bundled", "description"),
}
OPENCODE: Rows = {
    **SERVER,
    "command": _line,
    "environment": _env(),
    "timeout": Key(values.milliseconds),
    "oauth": _oauth,
}
FASTMCP: Rows = {
    **PLAIN,
    "auth": msgspec.structs.replace(_headers(foreign_kinds.bearer), later=_oauth_word),
    "timeout": _timeout,
    "tools": _transformed_tools,
    "include_tags": Later(says="`tools` of a server can hide them", grave=True),
    "exclude_tags": Later(says="`tools` of a server can hide them", grave=True),
    **quiet("keep_alive", "authentication"),
}


def _not_outside_goose(table: Table) -> str:
    type = table.get("type")
    inside = isinstance(type, str) and type in ("builtin", "platform", "frontend", "inline_python")
    return "is built into Goose" if inside else ""


def _not_outside_zed(table: Table) -> str:
    is_extension = table.get("source") == "extension" or not {"command", "url"} & table.keys()
    return "belongs to a Zed extension" if is_extension else ""


NATIVE = Dialect(
    name="native", title="toolgate", fits=_is_native, entries=under("mcpServers"), rows=SERVER,
    style=variables.SHELL, strict=True,
)  # fmt: skip
CHILDREN = Dialect(
    name="children", title="children config", fits=_is_children, entries=of_children, rows=PLAIN,
    style=variables.SHELL, surface="children", containers=CONTAINERS, may_be_list=True,
    defaults={"start": "eager", "lifecycle": "keep-alive", "concurrency": 1},
)  # fmt: skip
COMPONENTS = Dialect(
    name="components", title="tool components of a Spin manifest", strict=True,
    fits=lambda file, tree: bool(manifests.spin_variables(tree)), entries=lambda file, tree: (),
    spin_variables=manifests.spin_variables,
)  # fmt: skip
OTHER = Dialect(
    name="mcp-servers", title="a file with mcpServers", fits=lambda file, tree: True, entries=under("mcpServers"),
    rows=EDITORS,
)  # fmt: skip

# The first that fits is it.
DIALECTS: tuple[Dialect, ...] = (
    COMPONENTS,
    msgspec.structs.replace(NATIVE, fits=_is_named_ours),
    Dialect(
        name="server-json", title="server.json of a registry", fits=_is_registry, entries=manifests.of_registry,
        rows=MANIFEST, style=variables.LITERAL, whole=True,
    ),
    Dialect(
        name="mcpb", title="manifest.json of an MCPB bundle", fits=has("server", "mcp_config"), whole=True,
        entries=manifests.of_bundle, rows=EDITORS, style=variables.BUNDLE, inputs=manifests.bundle_inputs,
    ),
    CHILDREN,
    Dialect(
        name="codex", title="Codex (config.toml)", fits=has("mcp_servers"), entries=under("mcp_servers"), rows=CODEX,
        style=variables.LITERAL, whole=True,
    ),
    Dialect(
        name="zed", title="Zed (settings.json)", fits=has("context_servers"), entries=under("context_servers"),
        rows=ZED, style=variables.LITERAL, whole=True, passed_over=_not_outside_zed,
    ),
    Dialect(
        name="vscode", title="VS Code (.vscode/mcp.json)", entries=of_vs_code, rows=VS_CODE, whole=True,
        fits=lambda file, tree: has("servers")(file, tree) or has("mcp", "servers")(file, tree),
        inputs=foreign_kinds.vs_code_inputs,
    ),
    Dialect(
        name="opencode", title="opencode (opencode.json)", fits=_is_opencode, entries=of_opencode, rows=OPENCODE,
        style=variables.BRACES, whole=True,
    ),
    Dialect(
        name="goose", title="Goose (config.yaml)", fits=_is_goose, entries=under("extensions"), rows=GOOSE,
        style=variables.SHELL, whole=True, passed_over=_not_outside_goose,
    ),
    Dialect(
        name="claude-user", title="Claude Code (~/.claude.json)", entries=of_claude, rows=CLAUDE, whole=True,
        fits=lambda file, tree: file.name == ".claude.json" or {"projects", "mcpServers"} <= at(tree).keys(),
        style=variables.SHELL,
    ),
    Dialect(
        name="claude-desktop", title="Claude Desktop (claude_desktop_config.json)", rows=CLAUDE,
        fits=speaks(named="claude_desktop_config.json"), entries=under("mcpServers"), style=variables.LITERAL,
    ),
    Dialect(
        name="claude-code", title="Claude Code (.mcp.json)", fits=speaks(named=".mcp.json"), rows=CLAUDE,
        entries=under("mcpServers"), style=variables.SHELL,
    ),
    Dialect(
        name="cursor", title="Cursor (.cursor/mcp.json)", fits=speaks("envFile", within=".cursor"), rows=EDITORS,
        entries=under("mcpServers"),
    ),
    Dialect(
        name="lm-studio", title="LM Studio (mcp.json)", fits=speaks(within=".lmstudio"), entries=under("mcpServers"),
        rows={**EDITORS, "timeout": _timeout},
    ),
    Dialect(
        name="windsurf", title="Windsurf (mcp_config.json)", rows=EDITORS, entries=under("mcpServers"),
        fits=speaks("serverUrl", "disabledTools", named="mcp_config.json", within="windsurf"),
    ),
    Dialect(
        name="cline", title="Cline (cline_mcp_settings.json)", rows=EDITORS, entries=under("mcpServers"),
        fits=speaks("autoApprove", "alwaysAllow", named="cline_mcp_settings.json"),
    ),
    Dialect(
        name="gemini", title="Gemini CLI (settings.json)", fits=_is_gemini, entries=of_gemini, rows=GEMINI,
        style=variables.BARE, whole=True,
    ),
    Dialect(
        name="fastmcp", title="FastMCP", fits=_is_fastmcp, entries=under("mcpServers"), rows=FASTMCP,
    ),
    msgspec.structs.replace(OTHER, fits=speaks(named="mcp.json")),
    NATIVE,
    OTHER,
)  # fmt: skip


def recognised(file: File, tree: object) -> Dialect:
    return next(dialect for dialect in DIALECTS if dialect.fits(file, tree))


def native(file: File, tree: object) -> Dialect:
    return COMPONENTS if COMPONENTS.fits(file, tree) else NATIVE


def foreign(file: File, tree: object) -> Dialect:
    """Another tool's, whatever it looks like."""
    found = recognised(file, tree)
    return OTHER if found.strict else found


def named(name: str) -> Dialect:
    return next(dialect for dialect in DIALECTS if dialect.name == name)
