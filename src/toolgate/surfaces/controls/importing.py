"""`import_mcp_server` of seed 004: servers of another project, of a repository, or of a search, added to this gateway.

The rule this file keeps: each server is added by a call of `add_mcp_server`, judged as any call of that is; so a person
is shown exactly what would run.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from toolgate.config import masking
from toolgate.core import jsonrpc, names
from toolgate.core.fault import Fault
from toolgate.surfaces.controls.context import ControlContext, Importable
from toolgate.upstreams.inprocess.tools import EncodedResult, Object, text

SOURCES = ("from_project", "github_url", "query")


def check(given: Object) -> None:
    """Raises `Fault` where not exactly one source is named."""
    named = [source for source in SOURCES if given.get(source)]
    if len(named) != 1:
        said = f"{' and '.join(named)} are given" if named else "none is given"
        message = f"Invalid arguments: name exactly one of {', '.join(SOURCES)}; {said}"
        raise Fault("INVALID_ARGS", message, reach="not_sent")
    if given.get("content") and named != ["github_url"]:
        raise Fault("INVALID_ARGS", "Invalid arguments: `content` goes with `github_url`", reach="not_sent")


async def import_mcp_server(given: Object, context: ControlContext) -> Object | EncodedResult:
    source = next(each for each in SOURCES if given.get(each))
    found = await context.gateway.importable(source, given[source], given.get("content"), context)
    wanted = _wanted(found, given.get("servers"))
    imported: list[str] = []
    failed: list[Object] = []
    for each in wanted:
        if each.missing or each.held_back:
            continue
        said = await _added(each, context)
        if said.get("success"):
            imported.append(each.name)
        else:
            failed.append(
                {"name": each.name, **{key: said[key] for key in ("error", "error_type", "hint") if key in said}}
            )
    incomplete = [each for each in wanted if each.missing]
    waiting = [each for each in wanted if each.held_back and not each.missing]
    return _said(imported, failed, incomplete, waiting)


def _wanted(found: Sequence[Importable], servers: Any) -> Sequence[Importable]:
    """Raises `Fault` for a name that is not among them."""
    if servers is None:
        return found
    listed = cast("list[object]", servers)
    if not all(isinstance(each, str) for each in listed):
        raise Fault("INVALID_ARGS", "Invalid arguments: `servers` must be a list of names", reach="not_sent")
    ids = {names.slug(each.name): each for each in found}
    asked = {names.slug(str(each)): str(each) for each in listed}
    if unknown := [name for id, name in asked.items() if id not in ids]:
        there = [each.name for each in found]
        message = (
            f"Invalid arguments: there is no server {', '.join(unknown)[:200]}; there are {', '.join(there)[:1000]}"
        )
        raise Fault("INVALID_ARGS", message, reach="not_sent", extra={"available_servers": there})
    return [ids[id] for id in asked]


async def _added(each: Importable, context: ControlContext) -> Mapping[str, Any]:
    """What `add_mcp_server` says. Raises `Fault`."""
    from_call = context.gateway.as_call("add_mcp_server", {"name": each.name, **each.table}, context, None)
    result = jsonrpc.members((await from_call).body)
    (block, *_) = jsonrpc.items(result["content"])
    return jsonrpc.read(jsonrpc.read(block, dict[str, Any])["text"].encode(), dict[str, Any])


def _said(
    imported: list[str], failed: list[Object], incomplete: Sequence[Importable], waiting: Sequence[Importable]
) -> Object | EncodedResult:
    more: dict[str, Any] = {"imported": imported} | ({"failed": failed} if failed else {})
    if incomplete:
        missing = list(dict.fromkeys(name for each in incomplete for name in each.missing))
        return {
            "status": "needs_configuration",
            "config": {each.name: _shown(each) for each in incomplete},
            "missing": missing,
            **more,
            **({"needs_approval": list(map(_waits, waiting))} if waiting else {}),
            "hint": _FILL_IN,
        }
    if waiting:
        return {"status": "needs_approval", "servers": list(map(_waits, waiting)), **more, "hint": _BY_A_PERSON}
    if failed:
        first = failed[0]
        said = {"success": False, **{key: first[key] for key in first if key != "name"}, **more}
        return EncodedResult(jsonrpc.encode(text(jsonrpc.encode(said).decode(), isError=True)))
    return {"success": True, **more}


_FILL_IN = (
    "call add_mcp_server with what `config` has, its values filled in; or let the operator add it with ${secret:NAME}"
)
_BY_A_PERSON = "a person can look at `command` and add it: toolgate servers add"


def _waits(each: Importable) -> Object:
    words = [each.table.get("command"), *each.table.get("args", ())]
    command = shlex.join(map(str, words)) if each.table.get("command") else each.table.get("url", "")
    gates = {"gates": each.gates} if each.gates else {}
    return {"name": each.name, "command": command, "from": each.whence, "why": each.held_back, **gates}


def _shown(each: Importable) -> Object:
    """Without values that are secret: who asks may be a model that has never seen the file."""
    shown = {**each.table}
    if "args" in shown:
        shown["args"] = masking.arguments(map(str, shown["args"]))
    if "url" in shown:
        shown["url"] = masking.url(str(shown["url"]))
    missing = frozenset(each.missing)
    for part in ("env", "headers"):
        if part in shown:
            shown[part] = {name: _masked(name, value, missing) for name, value in shown[part].items()}
    return shown


def _masked(name: str, value: Any, missing: Collection[str]) -> Any:
    is_open = name in missing or (isinstance(value, str) and "${" in value)
    is_secret = masking.is_secret_name(name) or (isinstance(value, str) and masking.looks_secret(value))
    return masking.MASK if is_secret and not is_open else value
