"""What the values may be that are more than a word or a number: lifecycles, overlays of tools, limits, bundles.

As in `values`, a kind is a plain function, value of the file → fields of a struct, or `Wrong`. The rule this file
keeps: what contradicts itself is refused here, where all of it is seen at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from toolgate.config import values
from toolgate.config.values import Finding, Kind, Wrong, did_you_mean, wanted, wrong
from toolgate.core.names import slug

EVERY = "*"  # in an overlay: the tools that it does not name

_tool_name = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_bundle_name = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_component = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_requirement = re.compile(r"mcp(?:(?:==|<=|>=|~=|!=|<|>)[0-9][0-9A-Za-z.*]*,?)+(?<!,)")


def record(**kinds: Kind) -> Kind:
    """A table with these keys and no others."""

    def read(value: object) -> dict[str, Any]:
        table = values.table(value)
        findings = [
            Finding("unknown key", did_you_mean(key, kinds) or "remove it", (key,)) for key in table if key not in kinds
        ]
        found: dict[str, Any] = {}
        for key in table.keys() & kinds.keys():
            try:
                found[key] = kinds[key](table[key])
            except Wrong as error:
                findings += [finding.under(key) for finding in error.findings]
        if findings:
            raise Wrong(*findings)
        return {key: found[key] for key in table}

    return read


def mapping(kind: Kind) -> Kind:
    return lambda value: values.gather(values.table(value).items(), kind)


# Of a server.

_lifecycle_word = values.choice("lazy", "keep-alive", "ephemeral")
_idle_time = record(idleTimeoutMs=values.milliseconds)


def lifecycle(value: object) -> dict[str, Any]:
    """The fields `lifecycle` and `idle`."""
    if not isinstance(value, dict):
        return {"lifecycle": _lifecycle_word(value), "idle": None}
    found = _idle_time(cast(object, value))
    if not found:
        raise wrong('must be "lazy", "keep-alive", "ephemeral" or a table with `idleTimeoutMs`')
    return {"lifecycle": "lazy", "idle": found["idleTimeoutMs"]}


def requirement(value: object) -> str:
    if not _requirement.fullmatch(values.text(value)):
        raise wrong('must give the compatible versions of the Python SDK, such as "mcp<2"')
    return values.text(value)


LEAST_VALUES = 10_000  # that a request may be limited to: what is shorter than twice that need not be counted


# Overlays.


def tool_name(value: object) -> str:
    if not _tool_name.fullmatch(values.text(value)):
        raise wrong("is not a valid tool name", "letters, digits, `_`, `-`, `.` and `/`, at most 128")
    return values.text(value)


def plain(value: object) -> Any:
    """What JSON can say."""
    if isinstance(value, list):
        return list(values.gather(enumerate(cast("list[object]", value)), plain).values())
    if isinstance(value, dict):
        return values.gather(values.table(cast(object, value)).items(), plain)
    if isinstance(value, str):
        return values.text(value)
    whole = isinstance(value, int) and abs(value) < 1 << 63
    if value is None or isinstance(value, bool) or whole or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise wanted("a JSON value", value)


_parameter = record(
    name=values.filled, description=values.text, fixed=plain, default=plain, hidden=values.flag
)  # fmt: skip


def _sound_parameter(value: object) -> dict[str, Any]:
    found = _parameter(value)
    if {"fixed", "default"} <= found.keys():
        raise wrong("has both `fixed` and `default`", "a fixed value is always sent: remove one of the two")
    return found


def _parameters(value: object) -> dict[str, Any]:
    return _told_apart(mapping(_sound_parameter)(value), "parameters")


_overlay = record(
    name=tool_name,
    title=values.text,
    description=values.text,
    hidden=values.flag,
    parameters=_parameters,
    values=values.whole(LEAST_VALUES),
)  # fmt: skip


def overlays(value: object) -> dict[str, Any]:
    """A server's own names of its tools → what is other about them."""
    found = mapping(_overlay)(value)
    if "name" in found.get(EVERY, {}):
        raise Wrong(Finding("would give all tools the same name", "remove it", (EVERY, "name")))
    return _told_apart(found, "tools")


def _told_apart(renamed: dict[str, Any], what: str) -> dict[str, Any]:
    owners: dict[str, str] = {}
    for own, overlay in renamed.items():
        shown = overlay.get("name", own)
        if owners.setdefault(shown, own) != own:
            fix = f"`{owners[shown][:80]}` already has it"
            raise Wrong(Finding(f"gives two {what} the same name", fix, (own, "name")))
    return renamed


def only_these(value: object) -> dict[str, Any]:
    """Another tool's list of the tools that it shows, as an overlay."""
    return {EVERY: {"hidden": True}, **{name: {} for name in _names(value)}}


def all_but_these(value: object) -> dict[str, Any]:
    return {name: {"hidden": True} for name in _names(value)}


def only_these_if_any(value: object) -> dict[str, Any]:
    return only_these(value) if value else {}


def _names(value: object) -> Iterable[str]:
    return (name.partition("(")[0] for name in values.many(values.filled)(value))


def merged(old: Any, new: Any) -> Any:
    """Two tables that fill one field are joined, level by level; of anything else, the first one holds."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return cast(Any, old)
    older, newer = cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", new)
    joined = {key: merged(older[key], value) if key in older else value for key, value in newer.items()}
    return {**older, **joined}


# Of the gateway.


def truncation(value: object) -> dict[str, Any]:
    """The fields `head` and `tail`."""
    return record(head=values.whole(0), tail=values.whole(0))(value)


def bundles(value: object) -> dict[str, tuple[str, ...]]:
    found = mapping(values.many(_pattern))(value)
    for name in found:
        if not _bundle_name.fullmatch(name):
            raise Wrong(Finding("is not a valid bundle name", "lower-case letters, digits, `_`, `-`", (name,)))
    return found


def _pattern(value: object) -> str:
    if "*" in values.filled(value)[:-1]:
        raise wrong("may have `*` only at the end")
    return values.text(value)


def word_or_flag(value: object) -> bool:
    """A flag, or the text of one, as seed 003 writes it."""
    written = value.strip().lower() if isinstance(value, str) else ""
    if written in ("true", "false"):
        return written == "true"
    return values.flag(value)


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
        raise wrong("is not a valid component name", "letters, digits, `_` and `-`")
    return values.text(value)


def template(value: object) -> str:
    """A URL that holds `{name}`."""
    if "{name}" not in values.filled(value):
        raise wrong("must contain `{name}`, the place for the component's name")
    return values.text(value)
