"""Output schemas of tools, as clients use them: some compile all that a list has before they show any tool of it, so
that one that does not compile, or takes long to, costs them the tools of all servers.

The rules this file keeps: a schema that any reader may fail at is one that no client gets; what it refers to stands in
it; and it has no name under which a client could keep it for the tool of another server. Where readers of one dialect
take a form of a keyword that those of another one refuse, it is refused; keywords that no dialect has may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from msgspec import Raw

from toolgate.core import jsonrpc
from toolgate.core.redaction import excerpt
from toolgate.eras import js_patterns

MOST_PARTS = 5_000  # of one schema, where what is referred to counts at each place: a second for a reader to compile
MOST_OF_LIST = 20_000  # of all schemas of a list
LONGEST_REFERENCE, MOST_STEPS = 1_000, 64  # characters of one, and names in it
LONGEST_PATTERNS = 64 * 1024  # characters of those of one schema together: some hundredths of a second here
LONGEST_OF_LIST = 1024 * 1024  # of all patterns in a list
_TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))

_Holds: TypeAlias = Callable[[Any], bool]


def _is_type(value: Any) -> bool:
    named = cast("list[Any]", value) if isinstance(value, list) else [value]
    return bool(named) and all(isinstance(each, str) and each in _TYPES for each in named)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in cast("list[Any]", value))


def _of(kind: type) -> _Holds:
    return lambda value: isinstance(value, kind)


def _are_named(value: Any) -> bool:
    """Which members need which others."""
    return isinstance(value, dict) and all(map(_are_texts, cast("dict[str, Any]", value).values()))


def _never(_value: Any) -> bool:
    return False


# What the value of a keyword must be. Those that hold schemas stand below.
_VALUES: Mapping[str, _Holds] = {
    "type": _is_type,
    "enum": lambda value: isinstance(value, list) and bool(cast("list[Any]", value)),
    "required": _are_texts,
    "dependentRequired": _are_named,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("minContains", "maxContains"), _is_count),
    **dict.fromkeys(("uniqueItems", "readOnly", "writeOnly", "deprecated", "nullable"), _of(bool)),
    **dict.fromkeys(("title", "description", "$comment", "format", "contentMediaType", "contentEncoding"), _of(str)),
    "$schema": _of(str),
    "$ref": _of(str),
    "pattern": _of(str),
    "examples": _of(list),
    # By which a schema is found from elsewhere, or which few readers know.
    **dict.fromkeys(
        ("$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$recursiveAnchor"), _never
    ),
    **dict.fromkeys(("$async", "$data", "$vocabulary"), _never),
    **dict.fromkeys(("formatMinimum", "formatMaximum", "formatExclusiveMinimum", "formatExclusiveMaximum"), _never),
}
_DATA = frozenset(("const", "default", "enum", "examples"))  # below which there are no schemas
_ONE = frozenset(
    (
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
    )
) | {"then", "unevaluatedItems", "unevaluatedProperties"}
_SOME = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED = frozenset(("$defs", "definitions", "dependentSchemas", "dependencies", "patternProperties", "properties"))


class _Unusable(Exception):
    """`str()` says why."""


def may_be_in(said: bytes) -> bool:
    """Whether any of some tools may have one, be its name written with escapes."""
    return said.find(b"outputSchema") >= 0 or said.find(b"\\u00") >= 0


class OutputSchemas:
    """Those of one list."""

    def __init__(self) -> None:
        self._left = MOST_OF_LIST
        self._patterns_left = LONGEST_OF_LIST

    def of(self, tool: Raw) -> tuple[Raw, str]:
        """A tool as clients may have it, the same object where nothing is to be done; and why its output schema is left
        out, if it is."""
        if not may_be_in(bytes(tool)):
            return tool, ""
        try:
            members = jsonrpc.members(tool)
            usable, why = self._usable(members["outputSchema"])
        except (KeyError, *jsonrpc.UNREADABLE):
            return tool, ""  # it has none, or its reader says so
        if usable is members["outputSchema"]:
            return tool, ""
        del members["outputSchema"]
        return Raw(jsonrpc.encode(members | ({"outputSchema": usable} if usable else {}))), why

    def _usable(self, written: Raw) -> tuple[Raw, str]:
        """The schema, or nothing and why."""
        schema = jsonrpc.value(written)
        if not isinstance(schema, dict):
            return written, ""  # which the writers for revisions leave out, or know
        whole = cast("dict[str, Any]", schema)
        is_named = "$id" in whole
        whole.pop("$id", None)  # all that it refers to stands in it, so that nothing needs its name
        found = _Parts(whole, min(LONGEST_PATTERNS, self._patterns_left))
        try:
            parts = found.count()
        except _Unusable as why:
            return jsonrpc.NOTHING, str(why)
        finally:
            self._patterns_left -= found.patterns
        if parts > min(MOST_PARTS, self._left):
            return jsonrpc.NOTHING, f"clients that compile it would take too long: it has {parts:,} parts"
        self._left -= parts
        return (Raw(jsonrpc.encode(whole)) if is_named else written), ""


class _Parts:
    """A schema as a reader compiles it: what is referred to is compiled at each place, but what refers to more once.
    `patterns` are the characters of those that were looked at, of which there may be `longest`."""

    def __init__(self, whole: dict[str, Any], longest: int) -> None:
        self.patterns = 0
        self._longest = longest
        self._whole = whole
        self._lists_items = "draft-0" in str(whole.get("$schema"))  # since 2019-09 a list of them has another name
        self._sizes: dict[int, tuple[int, bool]] = {}  # of each schema in it, and whether it refers to any
        self._references: list[str] = []
        self._found: dict[str, int] = {}  # the parts that stand for each

    def count(self) -> int:
        """Raises `_Unusable` for a schema that some reader cannot use."""
        size, _ = self._sized(self._whole)
        return size + sum(map(self._inserted, self._references))

    def _sized(self, schema: Any) -> tuple[int, bool]:
        if isinstance(schema, bool):
            return 1, False
        if not isinstance(schema, dict):
            raise _Unusable("it has something else where a schema belongs")
        node = cast("dict[str, Any]", schema)
        _check(node)
        if "pattern" in node:
            self._check_pattern(node["pattern"])
        size, refers = 1, "$ref" in node
        if refers:
            self._references.append(node["$ref"])
        for part in self._parts(node):
            more, refers_too = self._sized(part)
            size, refers = size + more, refers or refers_too
        self._sizes[id(node)] = size, refers
        return size, refers

    def _parts(self, node: dict[str, Any]) -> Iterator[Any]:
        for keyword, value in node.items():
            if keyword in _NAMED:
                yield from self._members(keyword, value)
            elif keyword in _SOME or (keyword == "items" and isinstance(value, list) and self._lists_items):
                yield from _some(keyword, value)
            elif keyword in _ONE:
                yield value
            elif keyword not in _VALUES and keyword not in _DATA:
                _check_nameless(value)

    def _members(self, keyword: str, value: Any) -> Iterator[Any]:
        if not isinstance(value, dict):
            raise _Unusable(f"its {keyword} is no object")
        for name, schema in cast("dict[str, Any]", value).items():
            if keyword == "patternProperties":
                self._check_pattern(name)
            if not (keyword == "dependencies" and _are_texts(schema)):
                yield schema

    def _check_pattern(self, pattern: str) -> None:
        if self.patterns + len(pattern) > self._longest:
            raise _Unusable("its patterns, or those of the whole list, are too long together")
        self.patterns += len(pattern)
        if not js_patterns.is_taken(pattern):
            raise _Unusable("some client cannot use a pattern in it")

    def _inserted(self, reference: str) -> int:
        """The parts that stand for a reference."""
        seen: dict[str, None] = {}
        while (found := self._found.get(reference)) is None:
            target = self._target(reference)
            seen[reference] = None
            if isinstance(target, bool):
                found = 1
                break
            size, refers = self._sizes[id(target)]
            if "$ref" not in target:
                found = 1 if refers else size
                break
            reference = target["$ref"]
            if reference in seen:
                raise _Unusable("it refers to itself in a circle")
        self._found.update(dict.fromkeys(seen, found))  # or a chain would be followed again from each of its links
        return found

    def _target(self, reference: str) -> Any:
        found: Any = self._whole
        is_short = len(reference) <= LONGEST_REFERENCE and reference.count("/") <= MOST_STEPS
        if not is_short or not _reference.fullmatch(reference):
            raise _Unusable(
                f"it refers to {excerpt(reference, 100)!r}: only what it has itself can be found by all clients"
            )
        for step in reference.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            found = _member(found, name)
        if not isinstance(found, bool) and id(found) not in self._sizes:
            raise _Unusable(f"it refers to {excerpt(reference, 100)!r}, which is not there or no schema")
        return found


_reference = re.compile(r"#(?:/(?:[A-Za-z0-9_.$ +-]|~[01]|%(?:2[0-9A-Fa-f]|[3-6][0-9A-Fa-f]|7[0-9A-Ea-e]))*)*")


def _member(found: Any, name: str) -> Any:
    if isinstance(found, dict):
        return cast("dict[str, Any]", found).get(name)
    if isinstance(found, list) and name.isdecimal() and len(name) < 10 and int(name) < len(cast("list[Any]", found)):
        return cast("list[Any]", found)[int(name)]
    return None


def _check(node: dict[str, Any]) -> None:
    for keyword in node.keys() & _VALUES.keys():
        if not _VALUES[keyword](node[keyword]):
            raise _Unusable(f"some client cannot use what it has as {keyword}")
    if "nullable" in node and ("type" not in node or (not node["nullable"] and "null" in node["type"])):
        raise _Unusable("it has nullable where its type does not fit that")


def _some(keyword: str, value: Any) -> Iterator[Any]:
    if not isinstance(value, list) or not value:
        raise _Unusable(f"its {keyword} is no list of schemas")
    yield from cast("list[Any]", value)


def _check_nameless(value: Any) -> None:
    """What no reader knows: some look for names in it all the same."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if members.keys() & _NAMES:
            raise _Unusable("it has a name within, which may be that of another schema")
        for each in members.values():
            _check_nameless(each)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            _check_nameless(each)


_NAMES = frozenset(("$id", "id", "$anchor", "$dynamicAnchor"))
