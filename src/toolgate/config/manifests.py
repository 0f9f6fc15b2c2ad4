"""Files that describe one server to be installed, or one fragment of a larger manifest: server.json of the registry,
manifest.json of an MCPB bundle, the variables of a Spin component.

The rule this file keeps: what a description asks for becomes arguments in a list, never a line for a shell, and a
name that could be read as an option is refused.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, TypeAlias, cast

from toolgate.config import values
from toolgate.config.containers import ManifestEntry
from toolgate.config.server_types import FOREIGN_TYPES
from toolgate.config.values import Finding, Wrong, wrong
from toolgate.config.variables import Joined, Reference, as_variable

Table: TypeAlias = dict[str, Any]
Value: TypeAlias = str | Reference | Joined

_identifier = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@/:._-]*")
_version = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
_placeholder = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
_hump = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


# server.json: packages to start, remotes to reach. Keys are read in both of their spellings.


def of_registry(file: object, tree: Table) -> Iterator[ManifestEntry]:
    described, path = (tree["server"], ("server",)) if isinstance(tree.get("server"), dict) else (tree, ())
    read = cast(Table, _snake_keys(described))
    name = values.filled(read.get("name")).rpartition("/")[2]
    places = [(kind, index, each) for kind in ("packages", "remotes") for index, each in enumerate(_tables(read, kind))]
    for kind, index, each in places:
        try:
            table = _package(each) if kind == "packages" else _remote(each)
        except Wrong as error:
            raise Wrong(*(finding.under(index).under(kind) for finding in error.findings)) from None
        if table:
            if isinstance(description := read.get("description"), str):
                table["description"] = description
            yield ManifestEntry((*path, kind, index), name, table)
            return
    raise Wrong(Finding("has no package with the stdio transport, and no remote", "", path))


def _snake_keys(value: object) -> object:
    if isinstance(value, list):
        return [_snake_keys(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        return {_hump.sub("_", key).lower() if isinstance(key, str) else key: _snake_keys(each) for key, each in pairs}
    return value


def _tables(table: Table, key: str) -> list[Table]:
    found = table.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in cast("list[object]", found)):
        raise Wrong(Finding("must be a list of tables", "", (key,)))
    return cast("list[Table]", found)


def _text(table: Table, *names: str) -> str:
    return next((values.text(table[name]) for name in names if table.get(name) is not None), "")


def _package(package: Table) -> Table | None:
    """None for one that is no matter of ours."""
    transport = package.get("transport")
    if isinstance(transport, dict) and cast(Table, transport).get("type", "stdio") != "stdio":
        return None
    start = _STARTS.get(_text(package, "registry_type", "registry_name"))
    if start is None:
        return None
    identifier, version = _text(package, "identifier", "name"), _text(package, "version")
    if not _identifier.fullmatch(identifier) or not (not version or _version.fullmatch(version)):
        raise wrong("has an invalid `identifier` or `version`")
    env = {_named(each): _value(each) for each in _tables(package, "environment_variables")}
    before, after = (_arguments(_tables(package, f"{kind}_arguments")) for kind in ("runtime", "package"))
    command, *args = start(identifier, version, before, list(env))
    return {"command": command, "args": [*args, *after], "env": env}


def _npm(identifier: str, version: str, before: list[Value], env: list[str]) -> list[Any]:
    yes = [] if "-y" in before or "--yes" in before else ["-y"]
    return ["npx", *before, *yes, f"{identifier}@{version}" if version else identifier]


def _pypi(identifier: str, version: str, before: list[Value], env: list[str]) -> list[Any]:
    return ["uvx", *before, f"{identifier}=={version}" if version else identifier]


def _oci(identifier: str, version: str, before: list[Value], env: list[str]) -> list[Any]:
    tagged = ":" in identifier.rpartition("/")[2] or not version
    passed = [part for name in env for part in ("-e", name)]
    return ["docker", "run", "-i", "--rm", *passed, *before, identifier if tagged else f"{identifier}:{version}"]


def _nuget(identifier: str, version: str, before: list[Value], env: list[str]) -> list[Any]:
    return ["dnx", *before, f"{identifier}@{version}" if version else identifier, "--yes", "--"]


_STARTS = {"npm": _npm, "pypi": _pypi, "oci": _oci, "docker": _oci, "nuget": _nuget}


def _remote(remote: Table) -> Table:
    headers = {_named(each): _value(each) for each in _tables(remote, "headers")}
    type = _text(remote, "type", "transport_type")
    url = _filled_in(_text(remote, "url"), remote.get("variables"))
    return {"type": FOREIGN_TYPES.get(type, type or "http"), "url": url, "headers": headers}


def _named(written: Table) -> str:
    return values.filled(written.get("name"))


def _value(written: Table) -> Value:
    """What an input is: what is written, or a variable of its own name."""
    if written.get("value") is not None:
        return _filled_in(_text(written, "value"), written.get("variables"))
    return _input(_named(written), written)


def _input(name: str, described: Table) -> Reference:
    default = described.get("default")
    shown = str(default).lower() if isinstance(default, bool) else None if default is None else str(default)
    plain = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)
    required = described.get("is_required", described.get("required")) is True
    return Reference(name if plain else as_variable(name), shown, optional=not required)


def _filled_in(text: str, described: object) -> Value:
    known = cast(Table, described) if isinstance(described, dict) else {}
    pieces = _placeholder.split(text)  # text, name, text, name, … text
    if len(pieces) == 1:
        return text
    parts = (
        piece
        if index % 2 == 0
        else _input(as_variable(piece), known[piece])
        if isinstance(known.get(piece), dict)
        else f"{{{piece}}}"
        for index, piece in enumerate(pieces)
    )
    return Joined(tuple(parts))


def _arguments(described: list[Table]) -> list[Value]:
    """Those that have a value, and those that need one."""
    found: list[Value] = []
    for index, each in enumerate(described):
        try:
            found += _argument(each)
        except Wrong as error:
            raise Wrong(*(finding.under(index) for finding in error.findings)) from None
    return found


def _argument(described: Table) -> list[Value]:
    name = _text(described, "name")
    given = any(described.get(key) is not None for key in ("value", "default"))
    needed = described.get("is_required") is True
    if _text(described, "type") == "named":
        is_flag = not described.keys() & {"description", "format", "value_hint"}
        return [name, _value(described)] if given or needed else [name] if name and is_flag else []
    if not given and not needed:
        return []
    hint = _text(described, "value_hint") or name or "argument"
    return [_value({**described, "name": as_variable(hint)})]


# MCPB: the server lies beside its manifest.


def of_bundle(file: object, tree: Table) -> Iterator[ManifestEntry]:
    if not isinstance(_at(_at(tree, "server"), "mcp_config"), dict):
        raise Wrong(Finding("must be a table with the command that starts the server", "", ("server", "mcp_config")))
    written = values.table(tree["server"]["mcp_config"])
    table = {key: value for key, value in written.items() if key != "platform_overrides"}
    overrides = written.get("platform_overrides")
    if isinstance(overrides, dict) and isinstance(here := cast(Table, overrides).get(sys.platform), dict):
        table |= cast(Table, here)
    if isinstance(arguments := table.get("args"), list):
        table["args"] = [each for argument in cast("list[object]", arguments) for each in _several(tree, argument)]
    if isinstance(tree.get("description"), str):
        table["description"] = tree["description"]
    yield ManifestEntry(("server", "mcp_config"), values.filled(tree.get("name")), table)


def _at(tree: object, key: str) -> object:
    return cast(Table, tree).get(key) if isinstance(tree, dict) else None


def _several(tree: Table, argument: object) -> list[object]:
    """One argument that stands for a list of defaults becomes as many."""
    found = re.fullmatch(r"\$\{user_config\.([^${}]{1,80})\}", argument) if isinstance(argument, str) else None
    default = _user_config(tree).get(found[1], {}).get("default") if found else None
    return cast("list[object]", default) if isinstance(default, list) else [argument]


def bundle_inputs(tree: Any) -> dict[str, Reference]:
    found: dict[str, Reference] = {}
    for key, described in _user_config(tree).items():
        default = described.get("default")
        simple = isinstance(default, str | int | float) and not isinstance(default, bool)
        shown = str(default) if simple else str(default).lower() if isinstance(default, bool) else None
        needed = described.get("required") is True
        found[key] = Reference(as_variable(key), shown, optional=not needed)
    return found


def _user_config(tree: Any) -> dict[str, Table]:
    written = _at(tree, "user_config")
    pairs = cast("dict[object, object]", written).items() if isinstance(written, dict) else ()
    return {key: cast(Table, each) for key, each in pairs if isinstance(key, str) and isinstance(each, dict)}


# Spin: seed 003 is configured by the variables of a component.


def spin_variables(tree: object) -> tuple[tuple[str, ...], Table] | None:
    """Where they stand, and what they say."""
    components = _at(tree, "component")
    for name, component in cast("dict[object, object]", components).items() if isinstance(components, dict) else ():
        found = _at(component, "variables")
        if isinstance(found, dict) and "tool_components" in found and isinstance(name, str):
            return ("component", name, "variables"), cast(Table, found)
    return None
