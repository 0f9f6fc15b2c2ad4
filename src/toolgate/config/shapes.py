"""What the values may be that are more than a word or a number: lifecycles, tools, rates, bundles, components.

The rule this file keeps: what contradicts itself is refused here, where all of it is seen at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast, get_args

import msgspec

from toolgate.config import values
from toolgate.config.values import Finding, Kind, Wrong, either, kind, mapping, record, wrong
from toolgate.core.names import slug

EVERY = "*"  # in an overlay: the tools that it does not name
LEAST_VALUES = 10_000  # that a request may be limited to: what is shorter than twice that need not be counted
value_count = values.whole(LEAST_VALUES)

Surface = Literal["aggregate", "children", "meta", "components", "daemon", "all"]
SURFACES: tuple[str, ...] = get_args(Surface)

_tool_name = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_bundle_name = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_component = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_requirement = re.compile(r"mcp(?:(?:==|<=|>=|~=|!=|<|>)[0-9][0-9A-Za-z.*]*,?)+(?<!,)")


# Calls in a while.


class Rate(msgspec.Struct, frozen=True):
    """`count` calls in `seconds`; as many at once where none came before."""

    count: int
    seconds: float


_rate = re.compile(r"([1-9][0-9]{0,8}) ?/ ?(?:([0-9]{1,6}) ?)?(s|m|h|d)")
_seconds = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def _read_rate(value: object) -> Rate:
    found = _rate.fullmatch(values.text(value))
    if not found:
        raise wrong('must be a rate such as "60/m", "5/s" or "1000/h"')
    return Rate(int(found[1]), int(found[2] or 1) * _seconds[found[3]])


def _written_rate(found: Rate, masked: bool) -> str:
    """In the largest unit that has a whole number of it."""
    unit, length = next((unit, length) for unit, length in _seconds.items() if not found.seconds % length)
    number = int(found.seconds // length)
    return f"{found.count}/{number if number > 1 else ''}{unit}"


rate = Kind(_read_rate, lambda: {"type": "string", "pattern": f"^{_rate.pattern}$"}, _written_rate)


# Of a server.

_lifecycle_word = values.choice("lazy", "keep-alive", "ephemeral")
_idle_time = record(idleTimeoutMs=values.milliseconds)


@kind(
    either(
        {"enum": ["lazy", "keep-alive", "ephemeral"]},
        {**values.closed({"idleTimeoutMs": values.milliseconds.schema()}), "required": ["idleTimeoutMs"]},
    )
)
def lifecycle(value: object) -> dict[str, Any]:
    """The fields `lifecycle` and `idle`."""
    if not isinstance(value, dict):
        return {"lifecycle": _lifecycle_word(value), "idle": None}
    found = _idle_time(cast(object, value))
    if not found:
        raise wrong('must be "lazy", "keep-alive", "ephemeral" or a table with `idleTimeoutMs`')
    return {"lifecycle": "lazy", "idle": found["idleTimeoutMs"]}


@kind({"type": "string", "pattern": f"^{_requirement.pattern}$"})
def requirement(value: object) -> str:
    if not _requirement.fullmatch(values.text(value)):
        raise wrong('must give the compatible versions of the Python SDK, such as "mcp<2"')
    return values.text(value)


def read_root(value: object) -> tuple[str, str]:
    """(URI or path, name) of a folder that a server is told of."""
    if isinstance(value, str):
        return values.filled(value), ""
    found = values.table(value)
    strange = [key for key in found if key not in ("uri", "name")]
    if strange or "uri" not in found:
        raise wrong("must be a path, or a table with `uri` and optionally `name`")
    read = values.gather(found.items(), values.text)
    return read["uri"], read.get("name", "")


# Tools.


@kind({"type": "string", "pattern": f"^{_tool_name.pattern}$"})
def tool_name(value: object) -> str:
    if not _tool_name.fullmatch(values.text(value)):
        raise wrong("is not a valid tool name", "use letters, digits, `_`, `-`, `.` and `/`, at most 128")
    return values.text(value)


def told_apart(renamed: Mapping[str, Mapping[str, Any]], what: str) -> None:
    """Raises `Wrong` where two tools, or two parameters, are shown by one name."""
    owners: dict[str, str] = {}
    for own, overlay in renamed.items():
        shown = overlay.get("name", own)
        if owners.setdefault(shown, own) != own:
            fix = f"`{owners[shown][:80]}` already has this name: choose another one"
            raise Wrong(Finding(f"gives two {what} the same name", fix, (own, "name")))


def only_these(value: object) -> dict[str, Any]:
    """Another tool's list of the tools that it shows, as an overlay."""
    return {EVERY: {"hidden": True}, **{name: {} for name in _names(value)}}


def all_but_these(value: object) -> dict[str, Any]:
    return {name: {"hidden": True} for name in _names(value)}


def only_these_if_any(value: object) -> dict[str, Any]:
    return only_these(value) if value else {}


def _names(value: object) -> Iterable[str]:
    return (name.partition("(")[0] for name in values.many(values.filled)(value))


# Of the gateway.


@kind({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}})
def bundles(value: object) -> dict[str, tuple[str, ...]]:
    found = mapping(values.many(_pattern))(value)
    for name in found:
        if not _bundle_name.fullmatch(name):
            raise Wrong(Finding("is not a valid bundle name", "use lower-case letters, digits, `_` and `-`", (name,)))
    return found


def _pattern(value: object) -> str:
    if "*" in values.filled(value)[:-1]:
        raise wrong("may have `*` only at the end")
    return values.text(value)


@kind(either({"type": "boolean"}, {"type": "string", "pattern": r"^\s*([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])\s*$"}))
def word_or_flag(value: object) -> bool:
    """A flag, or the text of one, as seed 003 writes it."""
    written = value.strip().lower() if isinstance(value, str) else ""
    if written in ("true", "false"):
        return written == "true"
    return values.flag(value)


@kind(either({"type": "string"}, {"type": "array", "items": {"type": "string"}}))
def components(value: object) -> tuple[str, ...]:
    """Names with commas between them, or a list of names."""
    listed = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    names = values.many(_component_name)(cast(object, listed))
    ids: dict[str, str] = {}
    for name in names:
        if ids.setdefault(slug(name), name) != name or names.count(name) > 1:
            raise wrong(f"has two components with the id `{slug(name)}`", "rename one of the two")
    return names


def _component_name(value: object) -> str:
    if not _component.fullmatch(values.filled(value)):
        raise wrong("is not a valid component name", "use letters, digits, `_` and `-`")
    return values.text(value)


@kind({"type": "string", "pattern": r"\{name\}"})
def template(value: object) -> str:
    """A URL that holds `{name}`."""
    if "{name}" not in values.filled(value):
        raise wrong("must contain `{name}`, the place for the component's name")
    return values.text(value)


@kind({"type": "string", "pattern": "^[^/].*$"})
def within(value: object) -> str:
    """A file in a folder that is not known yet, or below it."""
    found = values.filled(value)
    if found.startswith("/") or ".." in found.split("/"):
        raise wrong("must be a path within the folder of a project, such as `.gobby/tasks.jsonl`")
    return found
