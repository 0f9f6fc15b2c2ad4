"""Servers in the words of other tools: a native table → the table that a dialect has for it.

The rules this file keeps: what a tool cannot be told is reported by its key and left out, and a server that would be
another one without it is not written at all; no variable is put in unless its value was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import msgspec

from toolgate.config.formats import Format
from toolgate.config.server_types import TYPES
from toolgate.config.shapes import EVERY
from toolgate.config.values import Wrong, wrong
from toolgate.config.variables import SHELL, variable_of_secret

Table: TypeAlias = dict[str, Any]


# Variables. A secret becomes a variable, which its reader takes for that secret again.

_reference = cast("re.Pattern[str]", SHELL.pattern)


class Words(msgspec.Struct, frozen=True):
    """How a tool writes variables; one without `write` expands none. `strange` is what it would take for a variable
    although it is none. `are_values`: the variables are in already, so that none stands there any more."""

    write: Callable[[str, str | None], str] | None = None
    strange: str = ""
    has_defaults: bool = False
    are_values: bool = False

    def __call__(self, text: str) -> str:
        rest = text if self.are_values else _reference.sub("", text)
        if self.strange and re.search(self.strange, rest):
            raise wrong("contains what the program would take for a variable")
        return text if self.are_values else _reference.sub(self._one, text)

    def _one(self, found: re.Match[str]) -> str:
        if self.write is None:
            raise wrong("has a variable, and the program expands none")
        if found["default"] and not self.has_defaults:
            raise wrong("has a variable with a default, which the program does not have")
        return self.write(found["name"] or variable_of_secret(found["secret"]), found["default"])


def _shell(name: str, default: str | None) -> str:
    return f"${{{name}}}" if default is None else f"${{{name}:-{default}}}"


shell = Words(_shell, r"\$\{", has_defaults=True)
bare = Words(_shell, r"\$[{A-Za-z_]", has_defaults=True)
editor = Words(lambda name, _: f"${{env:{name}}}", r"\$\{")
braces = Words(lambda name, _: f"{{env:{name}}}", r"\{(?:env|file):")
literal = Words()
native = Words(are_values=True)  # variables stand there as we write them ourselves


def alone(text: str) -> str | None:
    """The variable that is all of a text, without a default."""
    found = _reference.fullmatch(text)
    if not found or found["default"]:
        return None
    return found["name"] or variable_of_secret(found["secret"])


# What a tool has for one of our keys.

Put: TypeAlias = Callable[[Any, Words], Table]


def said(value: Any, words: Words) -> Any:
    """A value with all of its texts in the tool's words."""
    if isinstance(value, str):
        return words(value)
    if isinstance(value, list):
        return [said(each, words) for each in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        return {key: said(each, words) for key, each in cast("Mapping[str, Any]", value).items()}
    return value


def as_it_is(key: str) -> Put:
    return lambda value, words: {key: said(value, words)}


def _number(value: float) -> float:
    return int(value) if value == int(value) else value


def seconds(key: str) -> Put:
    return lambda value, words: {key: _number(value)}


def milliseconds(key: str) -> Put:
    return lambda value, words: {key: _number(round(value * 1000, 6))}


def only_where_off(key: str) -> Put:
    return lambda value, words: {} if value else {key: True}


def only_tools(shown: str, hidden: str = "") -> Put:
    """Lists of tools to show and to hide, where no more is other about them."""

    def put(value: Mapping[str, Mapping[str, Any]], words: Words) -> Table:
        names = [name for name in value if name != EVERY]
        if shown and value.get(EVERY) == {"hidden": True} and not any(value[name] for name in names):
            return {shown: names}
        if hidden and all(value[name] == {"hidden": True} for name in names) and EVERY not in value:
            return {hidden: names}
        raise wrong("changes tools in a way that the program does not have")

    return put


# Codex has keys for variables, and no way to write them into a text.


def codex_environment(value: Mapping[str, str], words: Words) -> Table:
    passed = [name for name, text in value.items() if text in (f"${{{name}}}", f"${{{name}:-}}")]
    fixed = {name: words(text) for name, text in value.items() if name not in passed}
    return {**({"env": fixed} if fixed else {}), **({"env_vars": passed} if passed else {})}


def codex_headers(value: Mapping[str, str], words: Words) -> Table:
    found: Table = {}
    for name, text in value.items():
        bearer = alone(text.removeprefix("Bearer ")) if text.startswith("Bearer ") else None
        if name == "Authorization" and bearer:
            found["bearer_token_env_var"] = bearer
        elif variable := alone(text):
            found.setdefault("env_http_headers", {})[name] = variable
        else:
            found.setdefault("http_headers", {})[name] = words(text)
    return found


def goose_environment(value: Mapping[str, str], words: Words) -> Table:
    """It asks its own store of secrets for what `env_keys` names."""
    needed = [name for name, text in value.items() if text == f"${{{name}}}"]
    fixed = {name: words(text) for name, text in value.items() if name not in needed}
    return {**({"envs": fixed} if fixed else {}), **({"env_keys": needed} if needed else {})}


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """How a tool's file says a server. `root` is where its servers stand; `types` are the keys that say how it is
    reached, by our words: what is not there, the tool does not have. `keys` are ours that it has; without them it has
    all. `words` writes a text, `finish` has the last word."""

    root: tuple[str, ...] = ("mcpServers",)
    format: Format = "json"
    types: Mapping[str, Mapping[str, Any]]
    keys: Mapping[str, Put] | None = None
    words: Words = shell
    finish: Callable[[str, Table], Table] = lambda name, table: table


def with_values(writer: Writer) -> Writer:
    """For tables whose variables are in already: what looks like one is none, and would become one."""
    strange = r"\$\{" if writer.words is native else writer.words.strange
    return msgspec.structs.replace(
        writer, words=msgspec.structs.replace(writer.words, strange=strange, are_values=True)
    )


class Told(msgspec.Struct, frozen=True):
    """What became of one server: `table` is None where it cannot be written, and `left_out` says why, or what is
    missing of it."""

    name: str
    table: Table | None
    left_out: tuple[str, ...] = ()


VITAL = frozenset({"command", "args", "env", "url", "headers", "cwd"})  # without one of these it is another server


def written(writer: Writer, name: str, server: Mapping[str, Any]) -> Told:
    """A native table whose variables are references, as `configs.tables` has them, in the words of a tool."""
    type = server["type"]
    if type not in writer.types:
        return Told(name, None, (f"the program has no servers of type {type}",))
    keys = writer.keys if writer.keys is not None else {key: as_it_is(key) for key in server}
    if not server.get("enabled", True) and "enabled" not in keys:
        return Told(name, None, ("it is disabled, and the program cannot be told that",))
    table, faults, is_whole = dict(writer.types[type]), list[str](), True
    for key, value in server.items():
        if key == "type":
            continue
        try:
            if not (put := keys.get(key)):
                raise wrong("is not known to the program")
            table.update(put(value, writer.words))
        except Wrong as error:
            faults.append(f"`{key}` {error.findings[0].message}")
            is_whole = is_whole and key not in VITAL
    return Told(name, writer.finish(name, table) if is_whole else None, tuple(faults))


# The parts that many share.

STARTED: Mapping[str, Put] = {key: as_it_is(key) for key in ("command", "args", "env")}
REACHED: Mapping[str, Put] = {key: as_it_is(key) for key in ("url", "headers")}
BOTH: Mapping[str, Put] = {**STARTED, **REACHED}
DISABLED: Put = only_where_off("disabled")
FOLDER: Put = as_it_is("cwd")


def typed(**words: str) -> Mapping[str, Mapping[str, Any]]:
    """Types that are told by the key `type`; where the word is empty, by their other keys."""
    return {type: {"type": word} if word else {} for type, word in words.items()}


CLAUDE = Writer(
    types=typed(stdio="stdio", http="http", sse="sse", ws="ws"), keys={**BOTH, "timeout": milliseconds("timeout")}
)
CLAUDE_DESKTOP = Writer(types=typed(stdio=""), keys=STARTED, words=literal)
CURSOR = Writer(types=typed(stdio="", http="", sse="sse"), keys=BOTH, words=editor)
LM_STUDIO = Writer(
    types=typed(stdio="", http="", sse="sse"), keys={**BOTH, "timeout": milliseconds("timeout")}, words=editor
)
VS_CODE = Writer(
    root=("servers",),
    types=typed(stdio="stdio", http="http", sse="sse"),
    keys={**BOTH, "cwd": FOLDER},
    words=editor,
)
CODEX = Writer(
    root=("mcp_servers",),
    format="toml",
    types=typed(stdio="", http=""),
    keys={
        **BOTH,
        "env": codex_environment,
        "headers": codex_headers,
        "cwd": FOLDER,
        "enabled": as_it_is("enabled"),
        "start_timeout": seconds("startup_timeout_sec"),
        "timeout": seconds("tool_timeout_sec"),
        "tools": only_tools("enabled_tools", "disabled_tools"),
    },
    words=literal,
)


def _sse_has_the_url(name: str, table: Table) -> Table:
    """Gemini CLI: `url` is SSE, and `httpUrl` all else."""
    is_sse = table.pop("type", "") == "sse"
    return {"httpUrl" if key == "url" and not is_sse else key: value for key, value in table.items()}


GEMINI = Writer(
    types=typed(stdio="", http="", sse="sse"),
    keys={
        **BOTH,
        "cwd": FOLDER,
        "timeout": milliseconds("timeout"),
        "tools": only_tools("includeTools", "excludeTools"),
        "description": as_it_is("description"),
    },
    words=bare,
    finish=_sse_has_the_url,
)
WINDSURF = Writer(
    types=typed(stdio="", http="", sse="sse"),
    keys={
        **BOTH,
        "url": as_it_is("serverUrl"),
        "enabled": DISABLED,
        "tools": only_tools("", "disabledTools"),
    },
    words=editor,
)
ZED = Writer(
    root=("context_servers",),
    types=typed(stdio="", http=""),
    keys={**BOTH, "enabled": as_it_is("enabled")},
    words=literal,
)
CLINE = Writer(
    types=typed(stdio="stdio", http="streamableHttp", sse="sse"),
    keys={**BOTH, "cwd": FOLDER, "timeout": seconds("timeout"), "enabled": DISABLED},
    words=editor,
)


def _of_goose(name: str, table: Table) -> Table:
    return {"enabled": True, "name": name, **({"args": []} if "cmd" in table else {}), **table}


GOOSE = Writer(
    root=("extensions",),
    format="yaml",
    types=typed(stdio="stdio", http="streamable_http", sse="sse"),
    keys={
        "command": as_it_is("cmd"),
        "args": as_it_is("args"),
        "env": goose_environment,
        "url": as_it_is("uri"),
        "headers": as_it_is("headers"),
        "timeout": seconds("timeout"),
        "enabled": as_it_is("enabled"),
        "tools": only_tools("available_tools"),
    },
    finish=_of_goose,
)


def _of_opencode(name: str, table: Table) -> Table:
    """The program and its arguments are one list."""
    line = [table.pop("command"), *table.pop("args", [])] if "command" in table else []
    return {"type": table.pop("type"), **({"command": line} if line else {}), "enabled": True, **table}


OPENCODE = Writer(
    root=("mcp",),
    types=typed(stdio="local", http="remote"),
    keys={
        **BOTH,
        "env": as_it_is("environment"),
        "timeout": milliseconds("timeout"),
        "enabled": as_it_is("enabled"),
    },
    words=braces,
    finish=_of_opencode,
)
FASTMCP = Writer(
    types={type: {"transport": type} for type in ("stdio", "http", "sse")},
    keys={**BOTH, "cwd": FOLDER, "timeout": milliseconds("timeout"), "description": as_it_is("description")},
    words=editor,
)
PLAIN = Writer(types=typed(stdio="", http="http", sse="sse"), keys={**BOTH, "cwd": FOLDER, "enabled": DISABLED})


NATIVE = Writer(
    format="toml", types={type: {} if row.when else {"type": type} for type, row in TYPES.items()}, words=native
)

# By the name of the dialect (`dialects.DIALECTS`). Files that describe one server have none: their makers write them.
WRITERS: Mapping[str, Writer] = {
    "native": NATIVE,
    "children": NATIVE,
    "mcp-servers": PLAIN,
    "codex": CODEX,
    "zed": ZED,
    "vscode": VS_CODE,
    "opencode": OPENCODE,
    "goose": GOOSE,
    "claude-user": CLAUDE,
    "claude-desktop": CLAUDE_DESKTOP,
    "claude-code": CLAUDE,
    "cursor": CURSOR,
    "lm-studio": LM_STUDIO,
    "windsurf": WINDSURF,
    "cline": CLINE,
    "gemini": GEMINI,
    "fastmcp": FASTMCP,
}
