"""Arguments that an HTTP request repeats in headers: `x-mcp-header` in a tool's schema, `Mcp-Param-…` on the wire.

Spec 2026-07-28: basic/transports/streamable-http, "Custom Headers from Tool Parameters". The rule this file keeps: a
header and its argument are both there and equal, or both absent; a schema that breaks the rules mirrors nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc, surrogates
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Members
from toolgate.core.model import HeaderArgument
from toolgate.eras import headers

ANNOTATION = "x-mcp-header"
PREFIX = "mcp-param-"
_SAID = ANNOTATION.encode()
LONGEST = 64 * 1024  # bytes of JSON of all arguments that are repeated: no head has as many
MOST = 100  # headers for one tool: a usual server takes no more in a head
MOST_READ = 64 * 1024 * 1024  # bytes of the arguments and of the objects in them in which such arguments stand
LARGEST = 2**53 - 1  # what every reader can hold as an integer
DEEPEST = 64  # levels of a schema that are looked into

_token = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_number = re.compile(r"-?\d{1,20}(\.\d{1,20})?([eE][+-]?\d{1,3})?")
_TYPES = ("string", "integer", "boolean")

# Where a schema holds further schemas (JSON Schema 2020-12, and what older drafts had beside).
_ONE = (
    *("items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames", "contentSchema"),
    *("unevaluatedItems", "unevaluatedProperties", "additionalItems"),
)
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


class Invalid(Exception):
    """An annotation that the specification forbids; the tool is not to be used over HTTP."""


class _Tool(msgspec.Struct):
    inputSchema: Any = None


def may_be_in(said: bytes) -> bool:
    """Whether any of some tools may have mirrored arguments."""
    return said.find(_SAID) >= 0  # `in` takes ten times as long for bytes, since it tries them as a number first


def of_tool(raw: Raw) -> tuple[HeaderArgument, ...]:
    """The mirrored arguments of a tool as it is listed. Raises `Invalid`."""
    if not may_be_in(bytes(raw)):
        return ()
    try:
        schema = jsonrpc.read(raw, type=_Tool).inputSchema
    except jsonrpc.UNREADABLE:
        return ()
    found: dict[str, HeaderArgument] = {}
    for path, part in _schemas(schema, (), 0):
        if ANNOTATION in part:
            argument = _header_argument(path, part)
            if argument.header in found:
                raise Invalid(f"two arguments map to the header {argument.header}")
            found[argument.header] = argument
            if len(found) > MOST:
                raise Invalid(f"more than {MOST} arguments map to headers")
    return tuple(found.values())


def _header_argument(path: tuple[str, ...] | None, part: Mapping[str, Any]) -> HeaderArgument:
    name, type = part[ANNOTATION], part.get("type")
    if not path:
        raise Invalid("an annotation is not reachable through properties")
    if not isinstance(name, str) or not _token.fullmatch(name):
        raise Invalid(f"{'.'.join(path)}: a header name must be a token, not {name!r:.100}")
    if type not in _TYPES:
        raise Invalid(f"{'.'.join(path)}: only {', '.join(_TYPES)} can become headers")
    return HeaderArgument(PREFIX + name.lower(), path, f"Mcp-Param-{name}", type == "integer")


def _schemas(
    schema: Any, path: tuple[str, ...] | None, depth: int
) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """Every schema inside, each with the properties that lead to it, or None where something else does as well."""
    if not isinstance(schema, dict) or depth > DEEPEST:
        return
    part = cast("dict[str, Any]", schema)
    yield path, part
    for key in _NAMED:
        named = part.get(key)
        if isinstance(named, dict):
            for name, inner in cast("dict[str, Any]", named).items():
                leads = key == "properties" and path is not None
                yield from _schemas(inner, (*path, name) if leads and path is not None else None, depth + 1)
    for key in _ONE:
        yield from _schemas(part.get(key), None, depth + 1)
    for key in _SEVERAL:
        several = part.get(key)
        if isinstance(several, list):
            for inner in cast("list[Any]", several):
                yield from _schemas(inner, None, depth + 1)


def write(header_arguments: Sequence[HeaderArgument], arguments: Raw) -> list[tuple[bytes, bytes]]:
    """The headers that a call of such a tool carries."""
    if not header_arguments:
        return []
    given = _Given(arguments)
    shown = ((argument, _text(given.at(argument), argument.is_integer)) for argument in header_arguments)
    return [
        (argument.name.encode(), headers.encode_value(text).encode()) for argument, text in shown if text is not None
    ]


def check(header_arguments: Sequence[HeaderArgument], arguments: Raw, found: Mapping[str, str]) -> None:
    """Hold a request's headers against its arguments. Raises `Fault` HEADER_MISMATCH."""
    given = _Given(arguments)
    for argument in header_arguments:
        value = given.at(argument)
        text, header = _text(value, argument.is_integer), found.get(argument.header)
        if text is None and header is None:
            continue
        if header is None:
            raise _mismatch(f"the header {argument.name} is missing")
        if text is None:
            raise _mismatch(f"the header {argument.name} matches no argument")
        decoded = headers.decode_value(header)
        if decoded not in (text, surrogates.shown(text)) and not _are_equal_numbers(value, decoded):
            raise _mismatch(f"the header {argument.name} differs from its argument")


class _Given:
    """The arguments of a call, of which only what headers show is read, and no object twice."""

    def __init__(self, arguments: Raw) -> None:
        self._read, self._shown = 0, 0  # bytes
        self._objects: dict[tuple[str, ...], Members] = {(): self._members(arguments)}

    def at(self, argument: HeaderArgument) -> Any:
        """What its header shows, None where it is not there. Raises `Fault`."""
        *above, last = argument.path
        value = self._object(tuple(above)).get(last, jsonrpc.NOTHING)
        self._shown += len(memoryview(value))
        if self._shown > LONGEST:
            name = ".".join(argument.path)
            what = f"{name} is repeated in a header, and what is repeated may have {LONGEST:,} bytes in all"
            raise Fault("INVALID_ARGS", f"Invalid arguments: {what}", reach="not_sent")
        try:
            return jsonrpc.value(value) if value else None
        except jsonrpc.UNREADABLE as error:
            raise _invalid(error) from None

    def _object(self, path: tuple[str, ...]) -> Members:
        """Without members where there is none."""
        if path not in self._objects:
            inner = self._object(path[:-1]).get(path[-1], jsonrpc.NOTHING)
            self._objects[path] = self._members(inner) if bytes(memoryview(inner)[:1]) == b"{" else Members()
        return self._objects[path]

    def _members(self, raw: Raw) -> Members:
        self._read += len(memoryview(raw))
        if self._read > MOST_READ:
            what = f"the objects around those that headers repeat may have {MOST_READ:,} bytes in all"
            raise Fault("INVALID_ARGS", f"Invalid arguments: {what}", reach="not_sent")
        try:
            return jsonrpc.members(raw)
        except jsonrpc.UNREADABLE as error:
            raise _invalid(error) from None


def _invalid(error: Exception) -> Fault:
    return Fault("INVALID_ARGS", f"Invalid arguments: {error}")


def _text(value: Any, is_integer: bool) -> str | None:
    """A value as a header shows it; None for one that has no header. What is not of the type that the schema says is
    there all the same, as it stands: only an integer may be written in more than one way."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not is_integer or not value.is_integer():
            return str(value)
        value = int(value)
    if isinstance(value, int):
        return str(value) if abs(value) <= LARGEST else None
    return value if isinstance(value, str) else None


def _are_equal_numbers(value: Any, text: str | None) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and text is not None and bool(_number.fullmatch(text)) and float(text) == value


def _mismatch(what: str) -> Fault:
    return Fault("HEADER_MISMATCH", f"Header mismatch: {what}")
