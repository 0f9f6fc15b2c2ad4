"""The files of other tools, and of the seeds: how each is recognised, where its servers stand, and what differs.

`DIALECTS` is all that toolgate knows of them: whoever adds one adds a row. The rules this file keeps: a file is
recognised by what it holds, and by its name only where several tools write the same; keys of a tool that ask nothing
of a gateway have the row None; all other keys that are not understood are warned of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, TypeAlias, cast

import msgspec

from toolgate.config import keys, manifests, shapes, values, variables
from toolgate.config.keys import Key, Later, Row
from toolgate.config.manifests import ManifestEntry
from toolgate.config.values import Finding, Wrong, wrong
from toolgate.config.variables import Reference, Style, as_variable

Table: TypeAlias = dict[str, Any]
Rows: TypeAlias = Mapping[str, Row | None]


OURS = keys.SECTIONS.keys() | keys.ROOT.keys()  # keys of a root that no other tool has


class File(msgspec.Struct, frozen=True):
    """Where a text comes from: what a dialect may need to know besides the text."""

    path: str
    environ: Mapping[str, str]
    is_named: bool = True  # else it was found, and may be a stranger's

    @property
    def name(self) -> str:
        return PurePath(self.path).name.lower()

    @property
    def within(self) -> str:
        """The folder that it lies in, by name."""
        return PurePath(self.path).parent.name.lower()

    @property
    def folder(self) -> Path:
        return Path(os.path.abspath(self.path.replace("\0", ""))).parent


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One way to write servers down. `fits` is asked in the order of `DIALECTS`. `rows` are the keys of a server,
    `defaults` the fields that are other than ours. `strict`: what is unknown is an error. `whole`: the file is a
    tool's own, so that other keys of its root are of no concern here."""

    name: str
    title: str
    fits: Callable[[File, object], bool]
    entries: Callable[[File, Any], Iterable[ManifestEntry]]
    containers: tuple[str, ...] = ("mcpServers",)  # keys of the root that hold servers
    rows: Rows = {}
    style: Style = variables.EDITOR
    defaults: Mapping[str, Any] = {}
    surface: str = ""
    strict: bool = False
    whole: bool = False
    inputs: Callable[[Any], Mapping[str, Reference]] = lambda tree: {}
    passed_over: Callable[[Table], str] = lambda table: ""


# Looking into a file of which nothing is known yet.


def at(tree: object, *path: str) -> Table:
    """The table at a place, or an empty one."""
    for key in path:
        tree = cast(Table, tree).get(key) if isinstance(tree, dict) else None
    return cast(Table, tree) if isinstance(tree, dict) else {}


def has(*path: str) -> Callable[[File, object], bool]:
    *above, last = path
    return lambda file, tree: isinstance(at(tree, *above).get(last), dict)


def servers_of(tree: object, *path: str) -> list[Table]:
    return [cast(Table, server) for server in at(tree, *(path or ("mcpServers",))).values() if isinstance(server, dict)]


def speaks(*words: str, named: str = "", within: str = "") -> Callable[[File, object], bool]:
    """It is called so; or it has `mcpServers`, nothing of ours beside them, and one of them has one of these keys."""

    def fits(file: File, tree: object) -> bool:
        if (named and file.name == named) or (within and file.within == within):
            return True
        own = at(tree).keys() & OURS or not file.name.endswith((".json", ".jsonc"))
        return not own and any(word in server for server in servers_of(tree) for word in words)

    return fits


def _is_native(file: File, tree: object) -> bool:
    """By its name; or it says more than another tool's file would, or in another format."""
    if _is_named_ours(file, tree):
        return True
    if not isinstance(tree, dict):
        return not isinstance(tree, list)
    others = cast(Table, tree).keys() - {"mcpServers"} - keys.PASSED_OVER
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
    return tokens or speaks("transport", "include_tags", "exclude_tags")(file, tree)


def _is_registry(file: File, tree: object) -> bool:
    described = at(tree, "server") or at(tree)
    return any(isinstance(described.get(key), list) for key in ("packages", "remotes")) and "name" in described


# Where the servers stand.


def under(*path: str) -> Callable[[File, Any], Iterator[ManifestEntry]]:
    """In a table: name → server."""

    def entries(file: File, tree: Table) -> Iterator[ManifestEntry]:
        found: object = tree
        for depth, key in enumerate(path):
            found = _table(found, path[:depth]).get(key)
        for name, server in _table({} if found is None else found, path).items():
            yield ManifestEntry((*path, name), name, server)

    return entries


def _table(value: object, path: tuple[str | int, ...]) -> Table:
    try:
        return values.table(value)
    except Wrong as error:
        raise Wrong(*(Finding(each.message, each.fix, (*path, *each.path)) for each in error.findings)) from None


def listed(path: tuple[str | int, ...], servers: list[object]) -> Iterator[ManifestEntry]:
    """In a list of servers that name themselves."""
    for index, server in enumerate(servers):
        table = dict(_table(server, (*path, index)))
        name = next((table.pop(key) for key in ("name", "server_id", "id") if key in table), None)
        if not isinstance(name, str):
            raise Wrong(Finding("needs a `name`", "", (*path, index)))
        yield ManifestEntry((*path, index), name, table)


CONTAINERS = ("mcpServers", "mcp_servers", "mcp-servers", "children")


def of_children(file: File, tree: Any) -> Iterator[ManifestEntry]:
    if isinstance(tree, list):
        yield from listed((), cast("list[object]", tree))
        return
    table = _table({} if tree is None else tree, ())
    written = [key for key in CONTAINERS if key in table]
    for key in written:
        found = table[key]
        yield from listed((key,), cast("list[object]", found)) if isinstance(found, list) else under(key)(file, table)
    if not written:
        yield from (
            ManifestEntry((name,), name, cast(object, server))
            for name, server in table.items()
            if isinstance(server, dict) and cast(Table, server).keys() & {"command", "url"}
        )


def of_claude(file: File, tree: Table) -> Iterator[ManifestEntry]:
    """The user's servers, and those of the project that this is started in, which come first."""
    here = file.environ.get("PWD", "")
    own = list(under("projects", here, "mcpServers")(file, tree)) if at(tree, "projects", here) else []
    yield from own
    names = {entry.name for entry in own}
    yield from (entry for entry in under("mcpServers")(file, tree) if entry.name not in names)


def of_gemini(file: File, tree: Table) -> Iterator[ManifestEntry]:
    allowed, excluded = at(tree, "mcp").get("allowed"), at(tree, "mcp").get("excluded")
    for entry in under("mcpServers")(file, tree):
        off = isinstance(excluded, list) and entry.name in excluded
        off = off or (isinstance(allowed, list) and entry.name not in allowed)
        yield msgspec.structs.replace(entry, defaults={"enabled": False} if off else {})


def of_vs_code(file: File, tree: Table) -> Iterator[ManifestEntry]:
    return under("servers")(file, tree) if "servers" in tree else under("mcp", "servers")(file, tree)


def of_opencode(file: File, tree: Table) -> Iterator[ManifestEntry]:
    """One that says only whether it is enabled overrides another file's."""
    for entry in under("mcp")(file, tree):
        table: object = entry.table
        if not (isinstance(table, dict) and cast(Table, table).keys() == {"enabled"}):
            yield entry


# What the tools ask people for. toolgate asks nobody: it looks for a variable with the same name.


def vs_code_inputs(tree: Any) -> dict[str, Reference]:
    written = at(tree).get("inputs", at(tree, "mcp").get("inputs"))
    inputs = (
        [cast(Table, each) for each in cast("list[object]", written) if isinstance(each, dict)]
        if (isinstance(written, list))
        else []
    )
    return {
        each["id"]: Reference(
            as_variable(each["id"]), default if isinstance(default := each.get("default"), str) else None
        )
        for each in inputs
        if isinstance(each.get("id"), str)
    }


def places(file: File) -> dict[str, str]:
    """What tools know of themselves. A project is the folder above the tool's own one."""
    folder, home = file.folder, file.environ.get("HOME", "")
    project = folder.parent if folder.name.startswith(".") and file.name == "mcp.json" else folder
    return {
        "__dirname": str(folder),
        "workspaceFolder": str(project),
        "workspaceFolderBasename": project.name,
        "userHome": home,
        "HOME": home,
        **{name.upper(): os.path.join(home, name) for name in ("Desktop", "Documents", "Downloads")},
        "pathSeparator": os.sep,
        "/": os.sep,
    }


# Kinds that only other tools have.


def named_variables(value: object) -> dict[str, Reference]:
    """Variables of the environment to pass on where they are set."""
    return {name: Reference(name, optional=True) for name in _variable_names(value)}


def needed_variables(value: object) -> dict[str, Reference]:
    return {name: Reference(name) for name in _variable_names(value)}


def _variable_names(value: object) -> tuple[str, ...]:
    return values.many(lambda each: _variable_name(cast(Table, each).get("name") if isinstance(each, dict) else each))(
        value
    )


def _variable_name(value: object) -> str:
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", values.text(value)):
        raise wrong("is not a valid variable name")  # not quoted: it may be the token itself
    return values.text(value)


def header_variables(value: object) -> dict[str, Reference]:
    return {header: Reference(_variable_name(name)) for header, name in values.headers(value).items()}


def bearer_variable(value: object) -> dict[str, Reference]:
    return {"Authorization": Reference(_variable_name(value), before="Bearer ")}


def bearer(value: object) -> dict[str, str]:
    return {"Authorization": f"Bearer {values.filled(value)}"}


def command_line(value: object) -> Table:
    """The fields `command` and `args` of one list."""
    words = values.many(values.text)(value)
    if not words:
        raise wrong("must not be empty")
    return {"command": words[0], "args": words[1:]}


def zed_command(value: object) -> Table:
    """A program, or the table that older files have."""
    if isinstance(value, str):
        return {"command": values.filled(value)}
    read = shapes.record(
        path=values.filled,
        args=values.many(values.text),
        env=values.optional(values.environment),
        settings=shapes.plain,
    )(value)
    if "path" not in read:
        raise wrong("needs `path`")
    return {"command": read["path"], "args": read.get("args", ()), "env": read.get("env") or {}}


def loose_environment(value: object) -> dict[str, str]:
    """Numbers too, and null for what is not set."""
    pairs = values.table(value)
    words = {
        name: str(each) if type(each) in (int, float) else each for name, each in pairs.items() if each is not None
    }
    return values.environment(words)


def milliseconds_from_a_second(value: object) -> Any:
    """Less than a second is passed over, as its tools do."""
    seconds = values.milliseconds(value)
    return seconds if seconds >= 1 else msgspec.UNSET


def transformed_tools(value: object) -> Table:
    """FastMCP's transforms, as an overlay."""
    argument = shapes.record(
        name=values.optional(values.filled), description=values.optional(values.text), default=shapes.plain,
        hide=values.flag, required=values.flag, type=shapes.plain, examples=shapes.plain,
    )  # fmt: skip
    tool = shapes.record(
        name=values.optional(values.filled), title=values.optional(values.text), tags=shapes.plain,
        description=values.optional(values.text), enabled=values.flag, arguments=shapes.mapping(argument),
        meta=shapes.plain, annotations=shapes.plain,
    )  # fmt: skip
    found: Table = shapes.mapping(tool)(value)
    return shapes.overlays({name: _transformed(each) for name, each in found.items()})


def _transformed(tool: Table) -> Table:
    parameters = {name: _transformed_argument(each) for name, each in tool.get("arguments", {}).items()}
    return {
        **{key: tool[key] for key in ("name", "title", "description") if tool.get(key) is not None},
        **({"hidden": True} if tool.get("enabled") is False else {}),
        **({"parameters": parameters} if parameters else {}),
    }


def _transformed_argument(argument: Table) -> Table:
    hidden = bool(argument.get("hide"))
    default = {"fixed" if hidden else "default": argument["default"]} if "default" in argument else {}
    words = {key: argument[key] for key in ("name", "description") if argument.get(key) is not None}
    return {**words, **default, **({"hidden": True} if hidden else {})}


def _oauth_word(value: object) -> Later | None:
    return None if isinstance(value, str) and value != "oauth" else keys.NO_OAUTH


def _oauth_table(value: object) -> Later | None:
    asks = value is True or (isinstance(value, dict) and cast(Table, value).get("enabled", True) is not False)
    return keys.NO_OAUTH if asks else None


# The rows.


def quiet(*names: str) -> dict[str, None]:
    return dict.fromkeys(names)


def _env(kind: values.Kind = values.environment) -> Key:
    return Key(kind, field="env", only=keys.STARTED, sound=variables.sound_environment)


def _headers(kind: values.Kind = values.headers) -> Key:
    return Key(kind, field="headers", only=keys.REACHED, sound=variables.sound_headers)


def _url(means: str = "") -> Key:
    return Key(values.filled, field="url", only=keys.REACHED, sound=variables.sound_url, means=means)


_command = Key(values.filled, field="command", only=keys.STARTED, sound=variables.sound_command)
_line = Key(command_line, field="command", only=keys.STARTED, sound=variables.sound_fields, spread=True)
_env_file = Key(values.filled, only=keys.STARTED, sound=variables.sound_text)
_timeout = Key(milliseconds_from_a_second)
_only = Key(shapes.only_these, field="tools")
_all_but = Key(shapes.all_but_these, field="tools")
_oauth = Key(lambda value: msgspec.UNSET, later=_oauth_table)

_APPROVALS = quiet("autoApprove", "alwaysAllow", "trust")
PLAIN: Rows = {
    **keys.SERVER,
    **keys.FOREIGN,
    "envFile": _env_file,
    "oauth": _oauth,
    "disabledTools": _all_but,
    **quiet("icon", "title", "displayName"),
}
EDITORS: Rows = {**PLAIN, **_APPROVALS}
CLAUDE: Rows = {**PLAIN, "timeout": _timeout, **quiet("alwaysLoad")}
VS_CODE: Rows = {**EDITORS, "env": _env(loose_environment), **quiet("dev", "gallery", "version", "sandboxEnabled")}
GEMINI: Rows = {
    "httpUrl": keys.FOREIGN["httpUrl"],  # comes first, as it does there
    **EDITORS,
    "url": _url("sse"),
    "timeout": Key(values.milliseconds),
    "includeTools": _only,
    "excludeTools": _all_but,
    "authProviderType": keys.NO_OAUTH,
    **quiet("extension"),
}
CODEX: Rows = {
    **keys.SERVER,
    "env_vars": _env(named_variables),
    "http_headers": _headers(),
    "env_http_headers": _headers(header_variables),
    "bearer_token_env_var": _headers(bearer_variable),
    "startup_timeout_sec": Key(values.duration, field="start_timeout"),
    "startup_timeout_ms": Key(values.milliseconds, field="start_timeout"),
    "tool_timeout_sec": Key(values.duration, field="timeout"),
    "enabled_tools": _only,
    "disabled_tools": _all_but,
    **quiet("required", "tools", "default_tools_approval_mode", "supports_parallel_tool_calls"),
}
ZED: Rows = {
    **PLAIN,
    "command": msgspec.structs.replace(_line, kind=zed_command),
    "env": _env(values.optional(values.environment)),
    **quiet("source", "settings", "remote"),
}
GOOSE: Rows = {
    **keys.SERVER,
    "cmd": _command,
    "envs": _env(),
    "env_keys": _env(needed_variables),
    "uri": _url(),
    "timeout": Key(values.optional(values.duration)),
    "available_tools": Key(shapes.only_these_if_any, field="tools"),
    **quiet("name", "display_name", "bundled", "description"),
}
OPENCODE: Rows = {
    **keys.SERVER,
    "command": _line,
    "environment": _env(),
    "timeout": Key(values.milliseconds),
    "oauth": _oauth,
}
FASTMCP: Rows = {
    **PLAIN,
    "auth": msgspec.structs.replace(_headers(bearer), later=_oauth_word),
    "timeout": _timeout,
    "tools": Key(transformed_tools),
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
    name="native", title="toolgate", fits=_is_native, entries=under("mcpServers"), rows=keys.SERVER,
    style=variables.SHELL, strict=True,
)  # fmt: skip
CHILDREN = Dialect(
    name="children", title="children config", fits=_is_children, entries=of_children, rows=PLAIN,
    style=variables.SHELL, surface="children", containers=CONTAINERS,
    defaults={"start": "eager", "lifecycle": "keep-alive", "concurrency": 1},
)  # fmt: skip
COMPONENTS = Dialect(
    name="components", title="tool components of a Spin manifest", strict=True,
    fits=lambda file, tree: bool(manifests.spin_variables(tree)), entries=lambda file, tree: (),
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
        rows=manifests.ROWS, style=variables.LITERAL, whole=True,
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
        inputs=vs_code_inputs,
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
