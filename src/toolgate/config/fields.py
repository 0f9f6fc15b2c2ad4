"""What a field of the configuration is: the one place that says it, beside the field itself.

A struct of the configuration is a frozen struct whose fields carry a `Key`: `Annotated[int, Key(...)]`. Reading,
showing and masking, what a reload does, the page for users and the JSON Schema all ask `rows`. A key that fills no
field of its own (a second spelling, a key of a later version) stands in the struct's `also`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, TypeAlias, cast, get_type_hints

import msgspec

from toolgate.config import values
from toolgate.config.masking import Secret
from toolgate.config.values import Kind, Read, Schema, wrong

Table: TypeAlias = dict[str, Any]
PutIn: TypeAlias = Callable[[Any, Any], Any]  # a `variables.Expansion` and the value

Change: TypeAlias = Literal["live", "restart", "relist", "gateway"]
"""What a change does while the gateway runs: nothing more than to hold; its server is started anew; that, and what is
known of its server's lists is forgotten (of the gateway: clients are told that their lists are others); it waits until
toolgate is started again."""


class Key(msgspec.Struct, frozen=True):
    """A key that works. `about` is its line of documentation, `default` what holds without it where the field's own
    default does not say so. `name` is the key's, where the field has another one, and `field` the field's, where the
    key has another one. `needed`: the fix where it is missing. `of` is what it says of several fields. `noted`: that it
    was changed stands in the audit log.

    Of servers: what is `inherited` a server has from the root's key of that name, where it has none itself. `only` are
    the types that have it; `sound` says that variables are put in, and raises `Wrong` for what must not come out of
    that; `put_in` puts them in where the value is more than text. `users_alone`: by it a server is started unasked,
    gets more, or less of it is looked at, than by what holds for all, so that no file of somebody else sets it. With
    `spread` the value is a table of fields.
    `means` is the type that follows from it. `later` judges values that this version does not have.
    """

    kind: Read
    about: str = ""
    change: Change = "live"
    default: str = ""
    name: str = ""
    field: str = ""
    needed: str = ""
    noted: bool = False
    secret: Secret | None = None
    of: Callable[[Any], Any] | None = None
    inherited: bool = False
    only: tuple[str, ...] = ()
    sound: Callable[[Any], None] | None = None
    put_in: PutIn | None = None
    users_alone: bool = False
    spread: bool = False
    means: str = ""
    later: Callable[[object], Later | None] | None = None

    @property
    def has_variables(self) -> bool:
        return bool(self.sound or self.put_in)


class Later(msgspec.Struct, frozen=True):
    """A key whose subject this version does not have. `accepted` asks for nothing: the documented default.

    `says` is what is so meanwhile. `grave`: the server must not run without it, even where another tool's file says
    so.
    """

    accepted: Any = msgspec.UNSET
    says: str = ""
    fix: str = "remove it"
    kind: Read | None = None
    grave: bool = False

    def accepts(self, value: object) -> bool:
        if self.accepted is msgspec.UNSET:
            return False
        if self.kind and isinstance(value, int | float | str):
            try:
                return bool(self.kind(value) == self.kind(self.accepted))
            except values.Wrong:
                return False
        return type(value) is type(self.accepted) and value == self.accepted


class Section(msgspec.Struct, frozen=True):
    """A table at the root of a file: the fields of `struct`, or keys of a later version alone."""

    struct: type[msgspec.Struct] | None = None
    about: str = ""
    change: Change = "live"
    noted: bool = False
    later: Mapping[str, Later] = {}

    @property
    def rows(self) -> Rows:
        return rows(self.struct) if self.struct else self.later


Row: TypeAlias = Key | Later | Section
Rows: TypeAlias = Mapping[str, Row | None]


@cache
def rows(struct: type[msgspec.Struct]) -> Mapping[str, Row]:
    """By key, in the order of the fields, what a file may say for this struct."""
    found: dict[str, Row] = {}
    for field, hint in get_type_hints(struct, include_extras=True).items():
        for row in getattr(hint, "__metadata__", ()):
            if isinstance(row, Key):
                found[row.name or field] = msgspec.structs.replace(row, field=field)
            elif isinstance(row, Section):
                found[field] = row
    return found | getattr(struct, "also", {})


@cache
def keys(struct: type[msgspec.Struct]) -> Mapping[str, Key]:
    """Those that fill a field."""
    also: Rows = getattr(struct, "also", {})
    return {key: row for key, row in rows(struct).items() if isinstance(row, Key) and key not in also}


@cache
def sections(struct: type[msgspec.Struct]) -> Mapping[str, Section]:
    """Those that fill a field."""
    return {key: row for key, row in rows(struct).items() if isinstance(row, Section) and row.struct}


@cache
def defaults(struct: type[msgspec.Struct]) -> Mapping[str, Any]:
    """By field; `msgspec.NODEFAULT` where it must be given."""
    return {
        field.name: field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(struct)
    }


# Reading.


def filled_in(rows: Rows, found: Mapping[str, Any]) -> Table:
    """The file's words → the struct's. Tables that fill one field are joined; of all else the first one holds."""
    fields: Table = {}
    for key, value in found.items():
        row = rows[key]
        name = row.field if isinstance(row, Key) and row.field else key
        is_spread = isinstance(row, Key) and row.spread
        for field, each in value.items() if is_spread else [(name, value)]:
            fields[field] = _merged(fields[field], each) if field in fields else each
    return fields


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return cast(Any, old)
    older, newer = cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", new)
    joined = {key: _merged(older[key], value) if key in older else value for key, value in newer.items()}
    return {**older, **joined}


def read(struct: type[msgspec.Struct], value: object) -> Table:
    """What a table with the keys of a struct, and no others, says of its fields. Raises `Wrong`."""
    known = {key: row for key, row in rows(struct).items() if isinstance(row, Key)}
    found = values.record(**{key: row.kind for key, row in known.items()})(value)
    for key, row in known.items():
        if row.needed and key not in found:
            raise wrong(f"needs `{key}`", row.needed)
    filled = filled_in(known, found)
    return {field: filled[field] for field in struct.__struct_fields__ if field in filled}


def table(struct: type[msgspec.Struct], brief: bool = False) -> Kind[Any]:
    """A table that says a struct. `brief`: what is as by default is not written again."""
    return Kind(
        lambda value: struct(**read(struct, value)),
        lambda: schema(struct),
        lambda value, masked: written(value, masked, brief),
        struct,
    )


# Showing.

_EMPTY: tuple[Any, ...] = (None, "", (), [], {})


def written(value: msgspec.Struct, masked: bool, brief: bool = False) -> Table:
    """What a file says for a struct. What is empty by default is left out, and so is what another type of server has;
    with `brief` all that is as by default."""
    below = {key: written(getattr(value, key), masked, brief) for key in sections(type(value))}
    found: Table = {key: table for key, table in below.items() if table}
    default = defaults(type(value))
    type_of = getattr(value, "type", "")
    for key, row in keys(type(value)).items():
        held = row.of(value) if row.of else getattr(value, row.field)
        is_default = bool(held == default[row.field])
        if held is msgspec.UNSET or (brief and is_default) or (row.only and type_of not in row.only):
            continue
        shown = values.write(row.kind, held, masked)
        says_nothing = shown is None and default[row.field] is not msgspec.UNSET
        if not says_nothing and (shown not in _EMPTY or not (is_default or row.of)):
            found[key] = row.secret.mask(held, value) if masked and row.secret else shown
    return found


def secrets(value: Any, name: str = "") -> Iterator[tuple[Secret, str, Any]]:
    """All that may hold secrets in a struct and below it, each with the name that it goes by."""
    if isinstance(value, msgspec.Struct):
        for key in sections(type(value)):
            yield from secrets(getattr(value, key))
        for key, row in keys(type(value)).items():
            held = getattr(value, row.field)
            yield from [(row.secret, name or key, held)] if row.secret else secrets(held, name)
    elif isinstance(value, Mapping):
        for below, each in cast("Mapping[str, Any]", value).items():
            yield from secrets(each, below)
    elif isinstance(value, tuple):
        for each in cast("tuple[Any, ...]", value):
            yield from secrets(each, name)


# What a change does.


def changing(struct: type[msgspec.Struct], *changes: Change) -> tuple[str, ...]:
    """The fields whose change does one of these, in the order of the struct."""
    return tuple(field for field, row in _by_field(struct) if row.change in changes)


def noted(struct: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields whose change stands in the audit log."""
    return tuple(field for field, row in _by_field(struct) if row.noted)


def users_alone(struct: type[msgspec.Struct]) -> tuple[str, ...]:
    """The keys that only the user sets, and no file of somebody else."""
    return tuple(name for name, row in keys(struct).items() if row.users_alone)


def inherited(struct: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields that a server has from the root where it has none itself."""
    return tuple(row.field for row in keys(struct).values() if row.inherited)


def _by_field(struct: type[msgspec.Struct]) -> Iterator[tuple[str, Key | Section]]:
    filling = {**keys(struct), **sections(struct)}
    for key in rows(struct):
        if row := filling.get(key):
            yield row.field if isinstance(row, Key) else key, row


# For editors.


def schema(struct: type[msgspec.Struct]) -> Schema:
    """The JSON Schema of a table that says a struct."""
    filling = keys(struct)
    usual = {key: _default_in_schema(struct, row) for key, row in filling.items()}
    found: dict[str, Schema] = {
        key: {**_schema_of(row), **usual.get(key, {})} for key, row in rows(struct).items() if _is_open(row)
    }
    needed = [key for key, row in filling.items() if row.needed]
    return {**values.closed(found), **({"required": needed} if needed else {})}


def _is_open(row: Row) -> bool:
    return not isinstance(row, Later) or row.accepted is not msgspec.UNSET


def _default_in_schema(struct: type[msgspec.Struct], row: Key) -> Schema:
    default = defaults(struct)[row.field]
    is_told = isinstance(default, str | int | float) and default not in _EMPTY and not row.default
    return {"default": default} if is_told else {}


def _schema_of(row: Row) -> Schema:
    if isinstance(row, Section):
        below = schema(row.struct) if row.struct else values.closed(_schemas_later(row.later))
        return {**below, "type": ["object", "null"], **_described(row.about)}
    if isinstance(row, Later):
        return _schema_later(row)
    return {**values.schema_of(row.kind), **_described(row.about)}


def _schemas_later(later: Mapping[str, Later]) -> dict[str, Schema]:
    return {key: _schema_later(row) for key, row in later.items() if _is_open(row)}


def _schema_later(row: Later) -> Schema:
    told = _described("Not in this version: only this default is accepted.")
    return {**(values.schema_of(row.kind) if row.kind else {"const": row.accepted}), **told}


_link = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def _described(about: str) -> Schema:
    """Editors show plain text."""
    return {"description": _link.sub(r"\1", about)} if about else {}
