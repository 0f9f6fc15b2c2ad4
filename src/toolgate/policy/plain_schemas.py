"""Which schemas are like almost all that there are, so that compiling one, and holding something small against it,
takes no longer than is known here.

The rule this file keeps: what it does not know is not plain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

DEEPEST = 32  # levels of schemas
MOST_SCHEMAS = 2_000
MOST_WEIGHT = 50_000  # of all patterns: some hundredths of a second to compile
LONGEST_PATTERN = 500  # characters
_MANY = 1000  # the most that a number of times may be
_WIDE = 10  # what almost any character weighs: its bytes are of several kinds
_CLASS = 60  # what a class of Unicode weighs: as many ranges are compiled

_DRAFTS = re.compile(r"https?://json-schema\.org/(draft-07|draft/2019-09|draft/2020-12)/schema#?")
_NOTES = frozenset(
    (
        *("title", "description", "default", "examples", "example", "$comment", "deprecated", "readOnly", "writeOnly"),
        *("format", "nullable", "optional", "discriminator"),
    )
)
_ONE = ("items", "additionalProperties")
_EACH = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "$defs", "definitions")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_SAYS_LITTLE: Mapping[str, object] = {"propertyNames": {"type": "string"}, "not": {}}  # as programs write them
_REFERENCE = re.compile(r"#(/(\$defs|definitions)/[\w.-]{1,200})?", re.ASCII)


def is_plain(schema: object) -> bool:
    """Whether each of its keywords, in all schemas that it is made of, is a plain one."""
    left, weight, count = [(schema, 0)], 0, 0
    while left:
        node, level = left.pop()
        count += 1
        if isinstance(node, bool) and level:
            continue
        if not isinstance(node, dict) or level > DEEPEST or count > MOST_SCHEMAS:
            return False
        members = cast("dict[str, object]", node)
        for name, value in members.items():
            if name == "pattern":
                weight += _weight(value)
            elif name == "patternProperties" and isinstance(value, dict):
                patterns = cast("dict[str, object]", value)
                weight += sum(map(_weight, patterns))
                left += [(each, level + 1) for each in patterns.values()]
            elif name in _ONE:
                left.append((value, level + 1))
            elif name in _EACH and isinstance(value, list):
                left += [(each, level + 1) for each in cast("list[object]", value)]
            elif name in _NAMED and isinstance(value, dict):
                left += [(each, level + 1) for each in cast("dict[str, object]", value).values()]
            elif not _is_plain(name, value, level):
                return False
        if weight > MOST_WEIGHT:
            return False
    return True


def _is_plain(name: str, value: Any, level: int) -> bool:
    if name in _NOTES or name.startswith("x-"):
        return True
    if name == "$schema":
        return not level and isinstance(value, str) and _DRAFTS.fullmatch(value) is not None
    if name == "$ref":
        return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None
    if name == "type":
        return isinstance(value, str) or _are_texts(value, 8)
    if name == "required":
        return _are_texts(value, 500)
    if name == "enum":
        return isinstance(value, list) and all(map(_is_scalar, cast("list[object]", value)))
    if name == "const":
        return _is_scalar(value)
    if name == "uniqueItems":
        return isinstance(value, bool)
    if name in _SAYS_LITTLE:
        return value == _SAYS_LITTLE[name]
    if name in _COUNTS:
        return _is_count(value)
    return name in _BOUNDS and _is_small(value) and (name != "multipleOf" or 1e-9 <= value <= 1e9)


def _are_texts(value: object, most: int) -> bool:
    if not isinstance(value, list) or len(cast("list[object]", value)) > most:
        return False
    return all(isinstance(each, str) for each in cast("list[object]", value))


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | bool) or (isinstance(value, int) and _is_small(value))


def _is_small(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53


def _is_count(value: object) -> bool:
    return _is_small(value) and cast("float", value) >= 0


_NEVER = MOST_WEIGHT + 1
_ATOM = re.compile(
    r"""
    (?P<open>\((?:\?:)?(?!\?)) | (?P<close>\)) | (?P<or>\|) | (?P<edge>[\^$])
    | (?P<times>(?:[*+?]|\{(?P<least>\d{1,4})(?P<to>,(?P<most>\d{1,4})?)?\})\??)
    | (?P<set>\[\^?
        (?:[^\\\[\]&~^-] | [a-z]-[a-z] | [A-Z]-[A-Z] | [0-9]-[0-9] | -(?=\]) | \\[dDwWsStnr./\\+*?^$()\[\]{}|@_-])+\])
    | (?P<escape>\\[dDwWsS]) | (?P<one>\.|\\[tnr./\\+*?^$()\[\]{}|@_-]|[^\\()\[\]{}|*+?^$.])
    """,
    re.VERBOSE | re.ASCII,
)
_escapes = re.compile(r"\\[dDwWsS]")


def _weight(pattern: object) -> int:
    """Of a pattern that has no more than texts, classes, groups, alternatives and numbers of times; more than is plain
    for any other."""
    if not isinstance(pattern, str) or len(pattern) > LONGEST_PATTERN or not pattern.isascii():
        return _NEVER
    groups, last, place = [0], 0, 0  # the weight of each open group so far, and of what a number of times stands behind
    while place < len(pattern):
        found = _ATOM.match(pattern, place)
        if not found:
            return _NEVER
        place = found.end()
        if found["open"]:
            groups.append(0)
            last = 0
        elif found["close"]:
            if len(groups) == 1:
                return _NEVER
            last = groups.pop() + 1
            groups[-1] += last
        elif found["times"]:
            times = _times(found)
            if not last or times > _MANY:
                return _NEVER
            groups[-1] += last * times
            last = 0
        else:
            last = 0 if found["edge"] or found["or"] else _of_one(found[0])
            groups[-1] += last or 1
    return groups[0] if len(groups) == 1 else _NEVER


def _of_one(written: str) -> int:
    """Of what one character is held against."""
    is_wide = written == "." or written.startswith("[^")
    return 1 + (_WIDE if is_wide else 0) + _CLASS * len(_escapes.findall(written))


def _times(found: re.Match[str]) -> int:
    """How many times more something may be written out."""
    if not found["least"]:
        return 1
    return max(int(found["least"]), int(found["most"] or 0))
