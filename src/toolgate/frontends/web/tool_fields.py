"""A form for the arguments of a tool, made of its schema, and the arguments that are written into it.

The rule this file keeps: a schema is a stranger's. It decides which fields there are, up to a bound, and nothing else:
what fits no field can be written as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import msgspec

MOST_FIELDS = 100
MOST_CHOICES = 200
WHOLE = "json"  # the field for all arguments

Kind: TypeAlias = Literal["text", "number", "choice", "json"]


class Wrong(ValueError):
    """What was written is no argument. `str()` says which and why."""


class Field(msgspec.Struct, frozen=True):
    """`key` is its name in the form, `name` that of the argument; `choices` are JSON values, by their texts."""

    key: str
    name: str
    kind: Kind
    about: str = ""
    is_required: bool = False
    choices: tuple[str, ...] = ()
    default: str = ""


def fields(schema: Any) -> Sequence[Field]:
    whole = _table(schema)
    required = whole.get("required")
    wanted = {str(each) for each in cast("list[Any]", required)} if isinstance(required, list) else set[str]()
    known = list(_table(whole.get("properties")).items())[:MOST_FIELDS]
    return [_field(f"a{number}", name, _table(each), name in wanted) for number, (name, each) in enumerate(known)]


def _table(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _field(key: str, name: str, schema: Mapping[str, Any], is_required: bool) -> Field:
    kind, choices = _kind(schema)
    said = schema.get("description")
    default = _text(schema["default"], kind) if "default" in schema else ""
    return Field(key, name, kind, said if isinstance(said, str) else "", is_required, choices, default)


def _kind(schema: Mapping[str, Any]) -> tuple[Kind, tuple[str, ...]]:
    choices = schema.get("enum")
    if isinstance(choices, list) and len(cast("list[Any]", choices)) <= MOST_CHOICES:
        return "choice", tuple(_json(each) for each in cast("list[Any]", choices))
    types = schema.get("type")
    found = (
        next((each for each in cast("list[Any]", types) if each != "null"), "") if isinstance(types, list) else types
    )
    if found == "boolean":
        return "choice", ("true", "false")
    return ("text" if found == "string" else "number" if found in ("integer", "number") else "json"), ()


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _text(value: Any, kind: Kind) -> str:
    return value if kind == "text" and isinstance(value, str) else _json(value)


def arguments(fields: Sequence[Field], form: Mapping[str, str]) -> Mapping[str, Any]:
    """A field that is left empty is no argument, unless it is a text that is required. Raises `Wrong`."""
    if whole := form.get(WHOLE, "").strip():
        return _read(whole, "The arguments", dict[str, Any])
    found: dict[str, Any] = {}
    for field in fields:
        written = form.get(field.key, "").replace("\r\n", "\n")
        if field.kind == "text":
            if written or field.is_required:
                found[field.name] = written
        elif written.strip():
            found[field.name] = _read(written, field.name, Any)
    return found


def _read(text: str, what: str, type: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=type)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Wrong(f"{what}: {error}") from None
