"""What `import_mcp_server` could import: servers of a project, of a repository, or of a search, as they would be added.

The rules this file keeps: no variable of the gateway is put into what others have written; what has no value yet is
named and not guessed; and what no person has chosen waits for one, unless it has passed every gate.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from toolgate import config as configs
from toolgate.config import ConfigError, ownership
from toolgate.core import names
from toolgate.core.fault import Fault
from toolgate.gateway.installing import told_gates
from toolgate.provision import provisioning, repositories
from toolgate.provision.packages import Unknown
from toolgate.provision.provisioning import Provisioning, Report
from toolgate.provision.repositories import NoServers, Tables
from toolgate.surfaces.controls.context import Importable
from toolgate.workspace.projects import project_of
from toolgate.workspace.workspace import Workspace

# Where the programs that people use keep the servers of a project.
OF_PROJECTS = (
    *("toolgate.toml", "toolgate.yaml", "toolgate.yml", "toolgate.json", ".mcp.json", ".cursor/mcp.json"),
    *(".vscode/mcp.json", ".codex/config.toml", ".gemini/settings.json", "opencode.json", "opencode.jsonc"),
)
KEYS = ("url", "headers", "command", "args", "env", "enabled")  # that `add_mcp_server` has
TRANSPORTS = {"http": "http", "sse": "sse", "ws": "websocket", "stdio": "stdio"}
MOST = 50  # servers of one source
MOST_VALUES = 1000  # of one of them
ASKER = "import_mcp_server"  # administrators, who share what they may look at at once
LONGEST_QUERY = 2000  # characters

_variable = re.compile(r"\$\{(?:secret:)?([^:${}]{1,250})(?::-([^${}]*))?\}")
_placeholder = re.compile(
    r"(?i)<[^<>]*>|\[[^\[\]]*\]|x{3,}|\.{3}|(?:.*[-_ ])?(?:your|my)[-_ ].*|.*(?:-here|_here)|changeme"
)


class Importing:
    def __init__(self, provisioning: Provisioning, workspace: Workspace) -> None:
        self._provisioning = provisioning
        self._workspace = workspace

    async def of_project(self, named: str, is_here: bool) -> Sequence[Importable]:
        """`named` is a project that is known here, or its folder. Raises `Fault`."""
        folder = await self._folder(named, is_here)
        tables = await self._workspace.folders.in_thread(ASKER, folder, partial(_in_folder, folder))
        if not tables:
            raise _nothing(f"The project {named[:200]} has no file with MCP servers", f"it was looked at in {folder}")
        return [_importable(name, table, str(folder)) for name, table in list(tables.items())[:MOST]]

    async def _folder(self, named: str, is_here: bool) -> Path:
        known = [each for each in self._workspace.projects.values() if named in (each.name, each.id)]
        if known:
            return known[0].folder
        if is_here and named.startswith("/") and len(named) <= 4096 and "\0" not in named:
            found = await self._workspace.folders.in_thread(ASKER, Path(named), partial(project_of, Path(named)))
            if found:
                return found.folder
        there = sorted(each.name for each in self._workspace.projects.values())
        hint = f"known projects: {', '.join(there[:20])}" if there else "name the folder of one that has .gobby/"
        raise _nothing(f"There is no project {named[:200]}", hint, available_projects=there[:100])

    async def of_repository(self, url: str, content: str | None, is_asked: bool) -> Sequence[Importable]:
        """Raises `Fault`."""
        try:
            repositories.places(url)
            if content is None:
                file, tables = await repositories.servers(url, self._provisioning.net)
            else:
                tables = await asyncio.to_thread(repositories.described, content)
                file = "the content that was given"
        except NoServers as why:
            hint = "give `content`, the text of its server.json, its .mcp.json or its README"
            raise _nothing(f"No server was found at {url[:200]}: {why}", hint) from None
        held_back = "" if is_asked else "nobody has vouched for what a repository says"
        return [_importable(name, table, f"{url} ({file})", held_back) for name, table in list(tables.items())[:MOST]]

    async def of_search(self, query: str, taken: Mapping[str, str], is_asked: bool, whose: str) -> Sequence[Importable]:
        """The first that a search of the registries finds. `whose`: see `Principal.counted_as`. Raises `Fault`."""
        if not query.strip() or len(query) > LONGEST_QUERY:
            message = f"Invalid arguments: `query` must have 1 to {LONGEST_QUERY:,} characters"
            raise Fault("INVALID_ARGS", message, reach="not_sent")
        found = await self._provisioning.find(query, whose)
        match = next((each for each in found.matches if each.is_match), None)
        if not match:
            raise _nothing("No server was found for that", " ".join(found.notes) or "say it in other words")
        report = await self._provisioning.report(match, "", whose)
        held_back = await self._held_back(report)
        name = provisioning.name_of(match.entry, taken)
        table = {**provisioning.table_of(report), "env": _needed(report)}
        whence = match.entry.source or "the list that comes with toolgate"
        told = told_gates(report.gates)
        return [_importable(name, table, whence, "" if is_asked else held_back, told if held_back else ())]

    async def _held_back(self, report: Report) -> str:
        """The gates that it does not pass. What it needs is asked for elsewhere."""
        failed = [gate for gate in report.gates if not gate.passed and gate.name != "configured"]
        if failed:
            return "; ".join(f"{gate.name}: {gate.why}" for gate in failed)
        try:
            await self._provisioning.take(report)
        except (Unknown, Fault) as error:
            return f"hashed: {error.message if isinstance(error, Fault) else error}"
        return ""


def _needed(report: Report) -> Mapping[str, str]:
    package = report.match.entry.package
    return {each.name: f"${{{each.name}}}" for each in package.variables if each.required} if package else {}


def _in_folder(folder: Path) -> Tables:
    """The first file that has a server says what it is. Nobody who can write there chooses what of ours is read: a file
    that is a link, or stands in a folder of somebody else, is not. Raises `Fault`."""
    found: Tables = {}
    for each in OF_PROJECTS:
        path = folder / each
        if not path.is_file():
            continue
        try:
            for there in dict.fromkeys((folder, path.parent)):
                ownership.check(there)
            ownership.check_file(path)
            tables = configs.tables(path, {})
        except ownership.NotOurs as error:
            raise _nothing(f"{error.filename} is not read: it {error.why}", "name a project of your own") from None
        except ConfigError as error:
            raise _nothing(f"{path} cannot be read: {error.problems[0].message}", "correct the file") from None
        known = {names.slug(name) for name in found}
        found |= {name: table for name, table in tables.items() if names.slug(name) not in known}
    return found


def _nothing(message: str, hint: str, **extra: Any) -> Fault:
    return Fault("INVALID_ARGS", message, hint=hint, reach="not_sent", extra=extra)


def _importable(
    name: str,
    table: Mapping[str, Any],
    whence: str,
    held_back: str = "",
    gates: Sequence[Mapping[str, Any]] = (),
) -> Importable:
    if sum(len(table.get(key) or ()) for key in ("args", "env", "headers")) > MOST_VALUES:
        message = f"The server {name[:100]} has more than {MOST_VALUES:,} arguments, variables and headers"
        raise _nothing(message, "add it by hand, with those that it needs")
    missing: dict[str, None] = {}
    kept = {key: _filled(table[key], missing) for key in KEYS if table.get(key) not in (None, {}, [], ())}
    for part in ("env", "headers"):
        for key, value in kept.get(part, {}).items():
            if not value or (isinstance(value, str) and _placeholder.fullmatch(value.removeprefix("Bearer "))):
                missing[key] = None
    type = table.get("type") or ("http" if "url" in table else "stdio")
    return Importable(
        name, {"transport": TRANSPORTS.get(type, type), **kept}, whence, tuple(missing), held_back, tuple(gates)
    )


def _filled(value: Any, missing: dict[str, None]) -> Any:
    """With the defaults of variables; one without stays as it is written, and is missing. What has no value, and may
    have none, is left out."""
    if isinstance(value, str):

        def put(found: re.Match[str]) -> str:
            if found[2] is None:
                missing[found[1]] = None
                return found[0]
            return found[2]

        return _variable.sub(put, value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        filled = {key: (each, _filled(each, missing)) for key, each in pairs}
        return {key: after for key, (before, after) in filled.items() if after != "" or before == ""}
    if isinstance(value, list | tuple):
        return [_filled(each, missing) for each in cast("Sequence[Any]", value)]
    return value
