"""What results of a tool look like that promises nothing of them: their shape, as a JSON Schema.

The rules this file keeps: no value of a result is in its shape; neither are the keys of a map, which are data, so an
object whose keys do not all look like names of members is told as a map; and a shape is small, whatever it was seen in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

Shape: TypeAlias = dict[str, Any]

MOST_PARTS = 150  # of one shape
_DEEPEST = 6
_MOST_ITEMS = 20  # of a list, or of a map, that are looked at
_MOST_MEMBERS = 40  # of an object; one with more is a map
_MOST_KINDS = 4  # of one place; with more it may be anything
_MEMBER = re.compile(r"(?![A-Za-z_$]*\d{3})[A-Za-z_$][A-Za-z0-9_$]{0,31}\Z")  # three digits are of an id, not a name

_ANYTHING: Shape = {}


def of(value: Any, depth: int = 0) -> Shape:
    """The shape of one value, as JSON has it."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if depth >= _DEEPEST:
            return {"type": "object"}
        if _is_map(members):
            return _map(of(each, depth + 1) for each in list(members.values())[:_MOST_ITEMS])
        properties = {name: of(each, depth + 1) for name, each in members.items()}
        return {"type": "object", "properties": properties, "required": sorted(properties)}
    if isinstance(value, list):
        items = cast("list[Any]", value)[:_MOST_ITEMS]
        if not items or depth >= _DEEPEST:
            return {"type": "array"}
        return {"type": "array", "items": merged(of(each, depth + 1) for each in items)}
    return {"type": "null" if value is None else _PLAIN[value.__class__]}


_PLAIN: Mapping[type, str] = {bool: "boolean", int: "number", float: "number", str: "string"}


def _is_map(members: dict[str, Any]) -> bool:
    return not members or len(members) > _MOST_MEMBERS or not all(map(_MEMBER.match, members))


def _map(values: Iterable[Shape]) -> Shape:
    found = merged(values)
    return {"type": "object", "additionalProperties": found} if found else {"type": "object"}


def merged(shapes: Iterable[Shape]) -> Shape:
    """One for all of these; empty where it may be anything, or there is none."""
    kinds: dict[str, Shape] = {}
    for shape in shapes:
        for each in shape.get("anyOf", (shape,)):
            if not each:
                return _ANYTHING
            kind = each["type"]
            kinds[kind] = _both(kinds[kind], each) if kind in kinds else each
    if len(kinds) > _MOST_KINDS:
        return _ANYTHING
    found = [kinds[kind] for kind in sorted(kinds)]
    return _ANYTHING if not found else found[0] if len(found) == 1 else {"anyOf": found}


def _both(one: Shape, other: Shape) -> Shape:
    """Of two of the same kind."""
    if one == other:
        return one
    if one["type"] == "array":
        items = merged(each["items"] for each in (one, other) if "items" in each)
        return {"type": "array", "items": items} if items else {"type": "array"}
    if "properties" in one and "properties" in other:
        members: list[Shape] = [one["properties"], other["properties"]]
        names = list(dict.fromkeys((*members[0], *members[1])))
        if len(names) <= _MOST_MEMBERS:
            properties = {name: merged(each[name] for each in members if name in each) for name in names}
            required = sorted({*one["required"]} & {*other["required"]})
            return {"type": "object", "properties": properties, "required": required}
    return _map(value for each in (one, other) for value in _values(each))


def _values(shape: Shape) -> list[Shape]:
    if "properties" in shape:
        return list(shape["properties"].values())
    return [shape["additionalProperties"]] if "additionalProperties" in shape else []


def parts(shape: Shape) -> int:
    """How many there are in it, itself among them."""
    inner = [*_values(shape), *([shape["items"]] if "items" in shape else []), *shape.get("anyOf", ())]
    return 1 + sum(map(parts, inner))
