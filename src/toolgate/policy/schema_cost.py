"""How much work a JSON schema can make of a value: an upper bound, known before any value is judged.

Schemas come from servers, and a short one can double its work with each level (`allOf` of twice the same `$ref`, or a
recursion that meets each member on two ways). What a bound does not hold is not judged at all, so that no schema
stops the gateway.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard, cast
from urllib.parse import unquote

DEEPEST = 64  # levels of a value that are reckoned with
_MOST = 10**12
_LEVELS = (2, 4, 8, 16, 32, DEEPEST)  # depths that are reckoned with, once for each schema
MOST_STEPS = 60_000  # looks at a schema, or at what a reference could mean: what reckoning itself may cost

# Applied to the same value: one schema, a list of them, or an object of them.
_SAME_ONE = ("not", "if", "then", "else")
_SAME_LIST = ("allOf", "anyOf", "oneOf")
_SAME_EACH = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_STANDARD = ("http://json-schema.org/", "https://json-schema.org/")  # whose schemas are at hand
_ANCHORS = ("$anchor", "$dynamicAnchor")
# Applied to what is inside the value.
_INSIDE_ONE = ("items", "additionalItems", "contains", "additionalProperties", "propertyNames")
# Applied to what the schemas beside them leave over, for which those are gone through again.
_INSIDE_ONE_TOO = ("unevaluatedItems", "unevaluatedProperties")
# What a value is compared with, one by one; so many take as long as a schema.
_LISTS = ("enum", "properties")
_LOOKUPS = 8
_LONGEST_INDEX = 9  # digits of a place in a list
_PATTERNS = ("pattern", "patternProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_COMPARED = 8  # visits that it takes as long as to compare two numbers, or two parts of lists and objects
_DIVIDED = 400  # the same to divide by what is very small or very large
_PLAIN, _PAIR = (
    160,
    10,
)  # the same to see that an item of a list stands there once: of a plain one, and of each two others


_class = re.compile(r"\\[sSwWdD]")


class TooMuch(Exception):
    """Work without end, or too much to reckon with."""


class SchemaCost:
    """Of one decoded schema. `of_pattern`: how many visits a pattern may take as long as."""

    def __init__(self, schema: object, of_pattern: int = 1) -> None:
        self._root = schema
        self._of_pattern = of_pattern
        self._resources: list[object] = [schema]
        self._having: dict[str, list[object]] = {}  # the resources that have a member of this name
        self._anchors: dict[str, list[object]] = {}
        self._meant: dict[str, Sequence[object]] = {}  # by each reference
        self._applied: dict[int, _Applied] = {}  # by each schema
        self._known: dict[tuple[int, int], int] = {}
        self._above: dict[int, set[int]] = {}  # the depths at which a schema is being reckoned
        self.is_recursive = False
        self._has_addresses = False
        self._steps = 0
        self.patterns = 0  # in all of it
        self.has_unique = False  # lists whose items may stand there once only
        self.escapes = 0  # of classes in patterns: what it takes to compile one grows with the square
        for node in _all_objects(schema):
            self._note(node)
        for resource in self._resources:
            for name in cast("dict[str, object]", resource) if isinstance(resource, dict) else ():
                self._having.setdefault(name, []).append(cast("object", resource))

    def visits(self, depth: int) -> int:
        """How many schemas are at most applied to any one part of a value that is so deep. Raises `TooMuch`."""
        try:
            return self._visits(self._root, min(depth, DEEPEST))
        except RecursionError:
            raise TooMuch("it is nested too deeply") from None

    def reckon(self) -> None:
        """All that `of` looks up. Raises `TooMuch`."""
        self.visits(DEEPEST)  # then it is known whether it depends on the value
        for level in _LEVELS if self.is_recursive else ():
            self.visits(level)

    def of(self, value: object) -> int:
        """`visits` of a value that is about as deep as this one."""
        self._steps = 0
        found = depth(value) if self.is_recursive else DEEPEST
        return self.visits(next(level for level in _LEVELS if found <= level))

    def _note(self, node: Mapping[str, Any]) -> None:
        self.patterns += isinstance(node.get("pattern"), str)
        self.has_unique = self.has_unique or node.get("uniqueItems") is True
        named = node.get("patternProperties")
        for pattern in (node.get("pattern"), *(cast("dict[str, object]", named) if isinstance(named, dict) else ())):
            self.escapes += len(_class.findall(pattern)) ** 2 if isinstance(pattern, str) else 0
        self.patterns += len(_values(node.get("patternProperties")))
        if any(isinstance(node.get(name), str) for name in ("$id", "id")):
            self._has_addresses = True
            self._resources += [node] if node is not self._root else []
        for keyword in _ANCHORS:
            if isinstance(name := node.get(keyword), str):
                self._anchors.setdefault(name, []).append(node)

    def _visits(self, node: object, depth: int) -> int:
        self._step()
        if not isinstance(node, dict):
            return 1
        key = id(cast("object", node)), depth
        if key in self._known:
            return self._known[key]
        above = self._above.setdefault(key[0], set())
        if depth in above:
            raise TooMuch("it refers to itself without end")
        self.is_recursive = self.is_recursive or bool(above)
        above.add(depth)
        found = self._reckoned(cast("Mapping[str, Any]", node), depth)
        above.remove(depth)
        self._known[key] = min(found, _MOST)
        return self._known[key]

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise TooMuch("it is too large")

    def _reckoned(self, node: Mapping[str, Any], depth: int) -> int:
        applied = self._applied.get(id(node))
        if applied is None:
            applied = self._applied[id(node)] = self._taken_apart(node)
        found = applied.own + applied.times * sum([self._visits(each, depth) for each in applied.beside])
        if depth:
            found += max([self._visits(each, depth - 1) for each in applied.in_places], default=0)
            found += sum([self._visits(each, depth - 1) for each in applied.anywhere])
        return found

    def _taken_apart(self, node: Mapping[str, Any]) -> _Applied:
        """Once for each schema, however deep it is met."""
        own = 1 + sum(len(node[name]) // _LOOKUPS for name in _LISTS if isinstance(node.get(name), list | dict))
        own += len(_items(node.get("required"))) + sum(map(len, map(_items, _values(node.get("dependentRequired")))))
        own += sum(self._of_pattern for name in _PATTERNS if name in node) + _of_comparisons(node)
        times = 2 + len(_INSIDE_ONE_TOO) if any(name in node for name in _INSIDE_ONE_TOO) else 1
        places = (_values(node.get("properties")), _items(node.get("prefixItems")), _items(node.get("items")))
        in_places = [each for place in places for each in place]
        return _Applied(own, times, list(self._beside(node)), in_places, list(_anywhere_inside(node)))

    def _beside(self, node: Mapping[str, Any]) -> Iterator[object]:
        """What is applied to the same value."""
        yield from (node[keyword] for keyword in _SAME_ONE if keyword in node)
        for keyword in _SAME_LIST:
            yield from _items(node.get(keyword))
        for keyword in _SAME_EACH:
            yield from _values(node.get(keyword))
        for keyword in _REFERENCES:
            if isinstance(reference := node.get(keyword), str):
                yield from self._targets(reference)

    def _targets(self, reference: str) -> Sequence[object]:
        """All that a reference could mean; it is looked for once."""
        if reference not in self._meant:
            self._meant[reference] = list(self._looked_up(reference))
        return self._meant[reference]

    def _looked_up(self, reference: str) -> Iterator[object]:
        address, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            yield from self._anchors.get(fragment, ())
            return
        if address.startswith(_STANDARD):
            return
        names = [each.replace("~1", "/").replace("~0", "~") for each in fragment.split("/")[1:]]
        for start in self._starts(address, names):
            if (found := self._at(start, names)) is not None:
                yield found

    def _starts(self, address: str, names: Sequence[str]) -> Sequence[object]:
        """Which resource an address means is not looked into; where there is but one, no other can be meant."""
        if address and not self._has_addresses:
            return ()
        return self._having.get(names[0], ()) if names else self._resources

    def _at(self, start: object, names: Iterable[str]) -> object | None:
        found: Any = start
        self._step()
        for name in names:
            self._step()
            try:
                found = _inside(found, name)
            except (KeyError, IndexError, ValueError, TypeError):
                return None
        return found


class _Applied(NamedTuple):
    """What a schema applies to a value: `own` work, all `beside` it so many `times`, of those `in_places` of the value
    one to each part, and all of those `anywhere` in it."""

    own: int
    times: int
    beside: Sequence[object]
    in_places: Sequence[object]
    anywhere: Sequence[object]


def _of_comparisons(node: Mapping[str, Any]) -> int:
    """What it takes more than looking a text up."""
    found = sum(map(_of_comparing, _items(node.get("enum")))) + _of_comparing(node.get("const"))
    found += sum(_COMPARED for name in _BOUNDS if _is_number(each := node.get(name)) and abs(each) >= 2**53)
    if _is_number(divisor := node.get("multipleOf")):
        found += _COMPARED if 1e-9 <= abs(divisor) <= 1e15 else _DIVIDED
    return found


def _of_comparing(value: object) -> int:
    return 0 if value is None or isinstance(value, str | bool) else _COMPARED * parts(value)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def of_unique(value: object) -> int:
    """The visits that it takes as long as to see whether in each list of a value each item stands once."""
    found, left = 0, [value]
    while left:
        each = left.pop()
        inner = [*_items(each), *_values(each)]
        left += [one for one in inner if isinstance(one, list | dict)]
        if isinstance(each, list):
            found += len(inner) * (_PLAIN if all(map(_is_plain, inner)) else _PAIR * len(inner))
    return found


def _is_plain(value: object) -> bool:
    return isinstance(value, str | float | None) or (isinstance(value, int) and abs(value) < 2**63)


def _inside(found: Any, name: str) -> Any:
    if isinstance(found, list):
        return cast("list[Any]", found)[int(name[:_LONGEST_INDEX])]
    return found[name]


def _anywhere_inside(node: Mapping[str, Any]) -> Iterator[object]:
    yield from (node[keyword] for keyword in (*_INSIDE_ONE, *_INSIDE_ONE_TOO) if isinstance(node.get(keyword), dict))
    yield from _values(node.get("patternProperties"))


def has_alternatives(schema: object) -> bool:
    return any(name in node for node in _all_objects(schema) for name in ("anyOf", "oneOf"))


def matched_members(schema: object) -> frozenset[str] | None:
    """The members of a value that patterns may be held against; None: anything of it may be."""
    if not isinstance(schema, dict):
        return None
    root = cast("dict[str, object]", schema)
    applied = {name: each for name, each in root.items() if name not in ("properties", "$defs", "definitions")}
    known = root.get("properties", {})
    if _may_match(applied) or not isinstance(known, dict):
        return None
    return frozenset(name for name, each in cast("dict[str, object]", known).items() if _may_match(each))


def _may_match(schema: object) -> bool:
    """Whether there is a pattern in it, or a reference to what may have one."""
    named = ("patternProperties", *_REFERENCES)
    return any(_has_pattern(node) or any(name in node for name in named) for node in _all_objects(schema))


def _has_pattern(node: Mapping[str, Any]) -> bool:
    return isinstance(node.get("pattern"), str)  # an argument may have this name, too


_TURNED = ("not", "if", "contains", "oneOf", "patternProperties")  # what takes less where a part of it takes more


def without_patterns(schema: object) -> object:
    """The same schema, but that any text matches; None where it would then refuse what it takes, or is too deep."""
    if any(name in node for node in _all_objects(schema) for name in _TURNED):
        return None
    try:
        rest = _copied(schema, 0)
    except TooMuch:
        return None
    return None if any(map(_has_pattern, _all_objects(rest))) else rest


def _copied(node: object, level: int) -> object:
    if level > 2 * DEEPEST:
        raise TooMuch("it is nested too deeply")
    if isinstance(node, list):
        return [_copied(each, level + 1) for each in cast("list[object]", node)]
    if not isinstance(node, dict):
        return node
    members = cast("dict[str, object]", node)
    return {
        name: each if name in DATA else _copied(each, level + 1)
        for name, each in members.items()
        if name != "pattern" or not isinstance(each, str)
    }


DATA = frozenset({"const", "enum", "default", "examples"})  # keywords below which there is no schema


def _items(value: object) -> Sequence[object]:
    return cast("list[object]", value) if isinstance(value, list) else ()


def _values(value: object) -> Sequence[object]:
    return list(cast("dict[str, object]", value).values()) if isinstance(value, dict) else ()


def _all_objects(schema: object) -> Iterator[Mapping[str, Any]]:
    left = [schema]
    while left:
        node = left.pop()
        left += [*_items(node), *_values(node)]
        if isinstance(node, dict):
            yield cast("Mapping[str, Any]", node)


def depth(value: object) -> int:
    """How deep a value is; beyond `DEEPEST` nothing is counted."""
    level, found = [value], 0
    while found < DEEPEST and (level := [inner for each in level for inner in (*_items(each), *_values(each))]):
        found += 1
    return found


def parts(value: object) -> int:
    """How many values a value is made of, itself among them."""
    level, found = [value], 0
    while level:
        found += len(level)
        level = [inner for each in level for inner in (*_items(each), *_values(each))]
    return found
