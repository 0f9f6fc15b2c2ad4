"""What one value of a configuration file may be: durations, sizes, texts, lists, tables.

A kind reads a value of the file, writes it again, and knows its JSON Schema. The rule this file keeps: `Wrong` says
what was wanted and what kind of thing stands there, and never the thing itself, since it may be a secret.
"""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar, cast

import msgspec

Read: TypeAlias = Callable[[object], Any]
Schema: TypeAlias = Mapping[str, Any]
Step: TypeAlias = str | int  # of a path: a key of a table, an index of a list
T = TypeVar("T")

LONGEST_DURATION = 366 * 86400.0  # seconds; what is longer is a slip of the unit
LARGEST_SIZE = 1 << 40

_A_DURATION = 'a duration: seconds as a number, or "500ms", "30s", "5m", "1h"'
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
_quantity = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?) ?([A-Za-z]{1,3})")
_origin = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s*]+", re.IGNORECASE)
_host_name = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?(?:\.[A-Za-z0-9_-]+)*\.?")
_host_port = re.compile(r"(.*?)(?::[0-9]{1,5})?")
_zone = re.compile(r"%[A-Za-z0-9_.-]+\Z")
_header_name = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

_WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a table",
    type(None): "nothing",
}


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong, `path` keys below the value that was read."""

    message: str
    fix: str = ""
    path: tuple[Step, ...] = ()

    def under(self, key: Step) -> Finding:
        return Finding(self.message, self.fix, (key, *self.path))


class Wrong(Exception):
    """All that is wrong with one value."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__(*(finding.message for finding in findings))
        self.findings = findings


def wrong(message: str, fix: str = "") -> Wrong:
    return Wrong(Finding(message, fix))


def wanted(what: str, value: object, fix: str = "") -> Wrong:
    return wrong(f"must be {what}, not {_WORDS.get(type(value), 'something else')}", fix)


# Kinds.


def _as_written(value: Any, masked: bool) -> Any:
    """Structs have tuples where files have lists."""
    if isinstance(value, tuple):
        return [_as_written(each, masked) for each in cast("tuple[Any, ...]", value)]
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value


class Kind(msgspec.Struct, Generic[T], frozen=True):
    """Called with a value of a file, it returns what a struct holds, or raises `Wrong`. `schema` is what a JSON Schema
    can say of the file's value. `write` turns what a struct holds into the file's value; its second argument says
    whether secrets are masked. `struct`: of a table, the struct that has its keys."""

    read: Callable[[object], T]
    schema: Callable[[], Schema] = dict
    write: Callable[[Any, bool], Any] = _as_written
    struct: type[msgspec.Struct] | None = None

    def __call__(self, value: object, /) -> T:
        return self.read(value)


def kind(schema: Schema) -> Callable[[Callable[[object], T]], Kind[T]]:
    """Decorates the function that reads."""
    return lambda read: Kind(read, lambda: schema)


def schema_of(read: Read) -> Schema:
    """Nothing where it is a function that has none, as other tools' kinds are."""
    return read.schema() if isinstance(read, Kind) else {}


def write(read: Read, value: Any, masked: bool) -> Any:
    """None stays: nothing is written."""
    return read.write(value, masked) if isinstance(read, Kind) and value is not None else _as_written(value, masked)


_TEXT: Schema = {"type": "string"}
_FILLED: Schema = {"type": "string", "minLength": 1}


# Single values.


@kind(_TEXT)
def text(value: object) -> str:
    if not isinstance(value, str):
        quotable = isinstance(value, bool | int | float)
        raise wanted("text", value, "put it in quotes" if quotable else "")
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise wrong("contains a NUL character or a lone surrogate")
    return value


@kind(_FILLED)
def filled(value: object) -> str:
    if not text(value).strip():
        raise wrong("must not be empty")
    return text(value)


@kind({"type": "boolean"})
def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise wanted("true or false", value, "without quotes" if isinstance(value, str) else "")
    return value


@kind({"type": "boolean"})
def unless(value: object) -> bool:
    """`disabled: true` is `enabled = false`."""
    return not flag(value)


def whole(least: int, most: int = 1 << 53) -> Kind[int]:
    """A whole number from `least` to `most`."""

    @kind({"type": "integer", "minimum": least, "maximum": most})
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise wanted("a whole number", value)
        if not least <= value <= most:
            raise wrong(f"must be at least {least}" if value < least else f"must be at most {most}")
        return value

    return read


def any_of(words: Iterable[str]) -> str:
    return " or ".join(f'"{word}"' for word in words)


def choice(*words: str) -> Kind[str]:
    shown = any_of(words)

    @kind({"enum": list(words)})
    def read(value: object) -> str:
        if text(value) not in words:
            raise wrong(f"must be {shown}", did_you_mean(text(value), words))
        return text(value)

    return read


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def optional(read: Read) -> Kind[Any]:
    """A value of this kind, or null where the format has it."""
    return Kind(
        lambda value: None if value is None else read(value),
        lambda: either(schema_of(read), {"type": "null"}),
        lambda value, masked: write(read, value, masked),
    )


def _quantity_of(units: Mapping[str, float]) -> Schema:
    return {"type": "string", "pattern": rf"^[0-9]+(\.[0-9]+)? ?({'|'.join(units)})$"}


@kind(either({"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_DURATION}, _quantity_of(_SECONDS)))
def duration(value: object) -> float:
    """Seconds."""
    return float(_within(_amount(value, _SECONDS, _A_DURATION), LONGEST_DURATION, "a year"))


@kind(either({"type": "number", "minimum": 0, "maximum": LONGEST_DURATION}, _quantity_of(_SECONDS)))
def duration_or_none(value: object) -> float:
    """Seconds; 0 in any unit is none at all."""
    return 0.0 if _amount(value, _SECONDS, _A_DURATION) == 0 else duration(value)


@kind({"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_DURATION * 1000})
def milliseconds(value: object) -> float:
    """Seconds, of a number of milliseconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wanted("a number of milliseconds", value)
    return _within(value, LONGEST_DURATION * 1000, "a year") / 1000


@kind(either({"type": "integer", "minimum": 1, "maximum": LARGEST_SIZE}, _quantity_of(_BYTES)))
def size(value: object) -> int:
    """Bytes."""
    if isinstance(value, float):
        raise wrong("must be a whole number of bytes")
    amount = _amount(value, _BYTES, 'a size: bytes as a number, or "512KB", "4MiB", "1GiB"')
    return max(1, round(_within(amount, LARGEST_SIZE, "1024 GiB")))


def _amount(value: object, units: Mapping[str, float], what: str) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise wanted(what, value)
    found = _quantity.fullmatch(value)
    if not found:
        raise wrong(f"must be {what}")
    number, unit = found.groups()
    if unit not in units:
        raise wrong(f"has an unknown unit; the units are {', '.join(units)}", did_you_mean(unit, units))
    return (float(number) if "." in number else int(number)) * units[unit]


def _within(amount: float, most: float, shown: str) -> float:
    if not 0 < amount <= most:  # false for nan too
        raise wrong("must be more than 0" if amount <= 0 else f"must be at most {shown}")
    return amount


@kind(_FILLED)
def host(value: object) -> str:
    """A name or an address to listen on, IPv6 without brackets. Its syntax only: who may listen where is no matter
    of syntax."""
    written = filled(value)
    if written.startswith("["):
        raise wrong("must be an address without brackets")
    if not _is_host(written):
        raise wrong("must be a host name or an IP address", "set the port with its own key" if ":" in written else "")
    return written


@kind(_FILLED)
def host_port(value: object) -> str:
    """What a `Host` header may hold: a name or an address, with or without a port, IPv6 in brackets."""
    written = filled(value)
    found = _host_port.fullmatch(written)
    bare = found[1] if found else ""
    bracketed = bare.startswith("[") and bare.endswith("]")
    if not (_is_host(bare[1:-1]) if bracketed else ":" not in bare and _is_host(bare)):
        raise wrong("must be a host, or host:port", "write it without the scheme" if "://" in written else "")
    return written


def _is_host(written: str) -> bool:
    if ":" in written:
        return _is_address(socket.AF_INET6, _zone.sub("", written))
    if written.replace(".", "").isdigit():
        return _is_address(socket.AF_INET, written)
    return bool(_host_name.fullmatch(written))


def _is_address(family: int, written: str) -> bool:
    try:
        socket.inet_pton(family, written)
    except (OSError, ValueError):
        return False
    return True


@kind(_FILLED)
def origin(value: object) -> str:
    if not _origin.fullmatch(filled(value)):
        raise wrong('must be an origin such as "https://app.example"', "list each one, without a path")
    return text(value)


# Lists and tables: every element is read, and everything that is wrong with any of them is told.


def gather(items: Iterable[tuple[Step, object]], read: Read) -> dict[Any, Any]:
    found: dict[Step, Any] = {}
    findings: list[Finding] = []
    for key, value in items:
        try:
            found[key] = read(value)
        except Wrong as error:
            findings += [finding.under(key) for finding in error.findings]
    if findings:
        raise Wrong(*findings)
    return found


def many(read: Read) -> Kind[tuple[Any, ...]]:
    def read_all(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise wanted("a list", value, "put it in [ ]" if isinstance(value, str) else "")
        return tuple(gather(enumerate(cast("list[object]", value)), read).values())

    return Kind(
        read_all,
        lambda: {"type": "array", "items": schema_of(read)},
        lambda found, masked: [write(read, each, masked) for each in found],
    )


@kind({"type": "object"})
def table(value: object) -> dict[str, object]:
    """A table whose keys are text."""
    if not isinstance(value, dict):
        raise wanted("a table", value)
    whole_table = cast("dict[object, object]", value)
    if not all(isinstance(key, str) for key in whole_table):
        raise wrong("has a key that is not text", "put the key in quotes")
    return cast("dict[str, object]", value)


def mapping(read: Read) -> Kind[dict[str, Any]]:
    """A table of values of one kind, whatever its keys."""
    return Kind(
        lambda value: gather(table(value).items(), read),
        lambda: {"type": "object", "additionalProperties": schema_of(read)},
        lambda found, masked: {key: write(read, each, masked) for key, each in found.items()},
    )


def record(**kinds: Read) -> Kind[dict[str, Any]]:
    """A table with these keys and no others."""

    def read(value: object) -> dict[str, Any]:
        found = table(value)
        findings = [
            Finding("unknown key", did_you_mean(key, kinds) or "remove it", (key,)) for key in found if key not in kinds
        ]
        values: dict[str, Any] = {}
        for key in [key for key in kinds if key in found]:
            try:
                values[key] = kinds[key](found[key])
            except Wrong as error:
                findings += [finding.under(key) for finding in error.findings]
        if findings:
            raise Wrong(*findings)
        return {key: values[key] for key in found}

    return Kind(read, lambda: closed({key: schema_of(each) for key, each in kinds.items()}))


def closed(properties: Mapping[str, Schema]) -> Schema:
    """The schema of a table that has these keys and no others."""
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


@kind({})
def plain(value: object) -> Any:
    """A JSON value."""
    if isinstance(value, list):
        return list(gather(enumerate(cast("list[object]", value)), plain).values())
    if isinstance(value, dict):
        return gather(table(cast(object, value)).items(), plain)
    if isinstance(value, str):
        return text(value)
    is_whole = isinstance(value, int) and abs(value) < 1 << 63
    if value is None or isinstance(value, bool) or is_whole or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise wanted("a JSON value", value)


@kind({"type": "object", "additionalProperties": _TEXT})
def environment(value: object) -> dict[str, str]:
    return _named(value, lambda name: bool(name) and not set(name) & {"=", "\0", "$"}, "variable")


@kind({"type": "object", "additionalProperties": _TEXT})
def headers(value: object) -> dict[str, str]:
    return _named(value, lambda name: bool(_header_name.fullmatch(name)), "header")


def _named(value: object, fits: Callable[[str], bool], what: str) -> dict[str, str]:
    pairs = table(value)
    if not all(fits(name) for name in pairs):  # not quoted: it may be `TOKEN=…` in one piece
        raise wrong(f"has a key that is not a valid {what} name")
    gather(((name, name) for name in pairs), text)
    return gather(pairs.items(), text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The fix for a typo, or nothing."""
    import difflib  # 3 ms that a sound configuration does not pay

    plain = {_plain(name): name for name in known}
    near = difflib.get_close_matches(_plain(word[:40]), plain, n=1)
    return f"did you mean `{plain[near[0]]}`?" if near else ""


def _plain(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")
