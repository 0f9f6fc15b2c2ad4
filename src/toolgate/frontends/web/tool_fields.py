"""A form for the arguments of a tool, made of its schema, and the arguments that are written into it.

The rule this file keeps: a schema is a stranger's. It decides which fields there are, up to a bound, and nothing else:
what fits no field can be written as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import msgspec

MOST_FIELDS = 100
MOST_CHOICES = 200
DEEPEST = 4  # objects in objects
MOST_STEPS = 4  # from one reference to the next, and in one
MOST_BRANCHES = 50  # of what a value may be instead
WHOLE = "json"  # the field for all arguments

Kind: TypeAlias = Literal["text", "number", "choice", "lines", "group", "any", "json"]
Schema: TypeAlias = Mapping[str, Any]

_WORDS = {
    "string": "text",
    "integer": "number",
    "number": "number",
    "boolean": "true or false",
    "object": "object as JSON",
    "array": "array as JSON",
}
_SCALARS = frozenset({"string", "integer", "number", "boolean"})


class Wrong(ValueError):
    """What was written is no argument. `str()` says which and why."""


class Field(msgspec.Struct, frozen=True):
    """`key` is its name in the form, `name` that of the argument; `choices` are JSON values, by their texts; `types`
    are those of JSON that it may have, where these are several, or those of the items of `lines`; `fields` are those
    of a `group`."""

    key: str
    name: str
    kind: Kind
    about: str = ""
    is_required: bool = False
    choices: tuple[str, ...] = ()
    default: str = ""
    types: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()

    @property
    def hint(self) -> str:
        """How it is written, where that is not plain."""
        words = list(dict.fromkeys(_WORDS[each] for each in self.types))
        if self.kind == "lines":
            return f"one {words[0]} a line" if len(words) == 1 else "one a line"
        return " or ".join(words) if self.kind == "any" else "JSON" if self.kind == "json" else ""


def fields(schema: Any) -> Sequence[Field]:
    whole = _table(schema)
    return _Reading(whole, MOST_FIELDS).of_object(whole, "a", 0, {})


class _Reading:
    """One schema. `left` is how many fields there may still be."""

    def __init__(self, whole: Schema, left: int) -> None:
        self._whole = whole
        self._left = left

    def of_object(self, schema: Schema, key: str, depth: int, defaults: Mapping[str, Any]) -> tuple[Field, ...]:
        wanted = _texts(schema.get("required"))
        found: list[Field] = []
        for number, (name, each) in enumerate(_table(schema.get("properties")).items()):
            if self._left <= 0:
                break
            self._left -= 1
            found.append(self._field(f"{key}{number}", name, _table(each), name in wanted, depth, defaults))
        return tuple(found)

    def _field(
        self, key: str, name: str, given: Schema, is_required: bool, depth: int, defaults: Mapping[str, Any]
    ) -> Field:
        schema = self._meant(given)
        said = given.get("description", schema.get("description"))
        about = said if isinstance(said, str) else ""
        values = [each[key] for each, key in ((defaults, name), (given, "default"), (schema, "default")) if key in each]
        kind, choices, types = self._kind(schema)
        if kind == "group" and depth < DEEPEST:
            inner = self.of_object(schema, f"{key}.", depth + 1, _table(values[0]) if values else {})
            if inner:
                return Field(key, name, kind, about, is_required, fields=inner)
        kind = "json" if kind == "group" else kind
        default = _text(values[0], kind) if values and (values[0] is not None or kind == "choice") else ""
        return Field(key, name, kind, about, is_required, choices, default, types)

    def _kind(self, schema: Schema) -> tuple[Kind, tuple[str, ...], tuple[str, ...]]:
        choices = self._choices(schema)
        if choices is not None and len(choices) <= MOST_CHOICES:
            return "choice", tuple(map(_json, choices)), ()
        types = tuple(dict.fromkeys(each for each in self._types(schema) if each != "null"))
        if len(types) > 1:
            return "any", (), types
        found = types[0] if types else ""
        if found == "boolean":
            return "choice", ("true", "false"), ()
        if found == "array":
            items = tuple(self._types(self._meant(_table(schema.get("items")))))
            return ("lines", (), items) if items and _SCALARS.issuperset(items) else ("json", (), ())
        if found == "object":
            return ("group" if _table(schema.get("properties")) else "json"), (), ()
        return ("text" if found == "string" else "number" if found in ("integer", "number") else "json"), (), ()

    def _choices(self, schema: Schema) -> list[Any] | None:
        if "const" in schema:
            return [schema["const"]]
        if isinstance(schema.get("enum"), list):
            return cast("list[Any]", schema["enum"])
        found: list[Any] = []
        for each in self._branches(schema):
            of_one = each.get("enum", [each["const"]] if "const" in each else None)
            if not isinstance(of_one, list):
                return None
            found += cast("list[Any]", of_one)
        return found or None

    def _types(self, schema: Schema) -> Iterator[str]:
        """Those that a value may have, as far as that is said. What is not known may be anything: then there is
        none."""
        said = schema.get("type")
        found = cast("list[Any]", said) if isinstance(said, list) else [said] if said else []
        for each in self._branches(schema) if not found else ():
            of_one = [] if "anyOf" in each or "oneOf" in each else list(self._types(each))
            if not of_one:
                return
            found += of_one
        yield from (each for each in found if each in _WORDS or each == "null")

    def _branches(self, schema: Schema) -> list[Schema]:
        """What it may be instead, without null: that is written by leaving a field empty."""
        said = schema.get("anyOf", schema.get("oneOf"))
        found = cast("list[Any]", said)[:MOST_BRANCHES] if isinstance(said, list) else []
        return [each for each in map(self._followed, map(_table, found)) if each.get("type") != "null"]

    def _meant(self, schema: Schema) -> Schema:
        """What a schema is that refers to another one, or leaves nothing to choose but null."""
        for _ in range(MOST_STEPS):
            found = self._followed(schema)
            only = self._branches(found) or [_table(each) for each in _list(found.get("allOf"))]
            if len(only) != 1 or "type" in found:
                return found
            schema = only[0]
        return {}

    def _followed(self, schema: Schema) -> Schema:
        for _ in range(MOST_STEPS):
            to = schema.get("$ref")
            if not isinstance(to, str):
                return schema
            begins, *steps = to.split("/", MOST_STEPS + 1)
            if begins != "#" or len(steps) > MOST_STEPS:
                return {}
            found: Any = self._whole
            for step in steps:
                found = _table(found).get(step.replace("~1", "/").replace("~0", "~"))
            schema = _table(found)
        return {}


def _table(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _texts(value: Any) -> set[str]:
    return {each for each in _list(value) if isinstance(each, str)}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _text(value: Any, kind: Kind) -> str:
    if kind == "lines" and isinstance(value, list):
        return "\n".join(each if isinstance(each, str) else _json(each) for each in cast("list[Any]", value))
    return value if kind in ("text", "any") and isinstance(value, str) else _json(value)


def arguments(fields: Sequence[Field], form: Mapping[str, str]) -> Mapping[str, Any]:
    """A field that is left empty is no argument, unless it is a text that is required. Raises `Wrong`."""
    if whole := form.get(WHOLE, "").strip():
        return _read(whole, "The arguments", dict[str, Any])
    return _given(fields, form)


def _given(fields: Sequence[Field], form: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        written = form.get(field.key, "").replace("\r\n", "\n")
        if field.kind == "group":
            if field.is_required or _is_changed(field, form):
                found[field.name] = _given(field.fields, form)
        elif field.kind == "text":
            if written or field.is_required:
                found[field.name] = written
        elif written.strip():
            found[field.name] = _value(field, written)
    return found


def _is_changed(field: Field, form: Mapping[str, str]) -> bool:
    """Whether something stands there that was not there before: defaults alone make no argument."""
    written = form.get(field.key, "").strip()
    return written not in ("", field.default.strip()) or any(_is_changed(each, form) for each in field.fields)


def _value(field: Field, written: str) -> Any:
    if field.kind == "lines":
        return [_of_types(field, line) for line in written.split("\n") if line.strip()]
    return _of_types(field, written) if field.kind == "any" else _read(written, field.name, Any)


def _of_types(field: Field, written: str) -> Any:
    """Of what may be a text, a text is what is nothing else."""
    if field.types == ("string",):
        return written
    try:
        value = _read(written, field.name, Any)
    except Wrong:
        if "string" in field.types:
            return written
        raise
    return value if "string" not in field.types or _type_of(value) & set(field.types) else written


def _type_of(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number"}
    return {"string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"}


def _read(text: str, what: str, type: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=type)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Wrong(f"{what}: {error}") from None
