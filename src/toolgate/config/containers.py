"""Where servers stand in the files of other tools, before anything of them is understood."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path, PurePath
from typing import Any, TypeAlias, cast

import msgspec

from toolgate.config import values
from toolgate.config.values import Finding, Wrong

Table: TypeAlias = dict[str, Any]

PASSED_OVER = frozenset({"$schema"})  # at a root, for editors


class File(msgspec.Struct, frozen=True):
    """Where a text comes from: what a dialect may need to know besides the text."""

    path: str
    environ: Mapping[str, str]
    is_named: bool = True  # else it was found, and may be a stranger's
    own_keys: Set[str] = frozenset()  # keys of a root that no other tool has
    text: str | None = None  # where it was given, and stands in no file that may be read

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


class ManifestEntry(msgspec.Struct, frozen=True):
    """One server of a file: where it stands, what it is called, what is written there."""

    path: tuple[str | int, ...]
    name: str
    table: object
    defaults: Mapping[str, Any] = {}


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
    is_in_settings = "servers" not in tree and "mcp" in tree
    return under("mcp", "servers")(file, tree) if is_in_settings else under("servers")(file, tree)


def of_opencode(file: File, tree: Table) -> Iterator[ManifestEntry]:
    """One that says only whether it is enabled overrides another file's."""
    for entry in under("mcp")(file, tree):
        table: object = entry.table
        if not (isinstance(table, dict) and cast(Table, table).keys() == {"enabled"}):
            yield entry
