"""The text of a configuration file → plain values, whatever its format.

JSON may have comments and trailing commas, since editors write it so. The rule this file keeps: any text ends as a
value or as `Malformed`, and `Malformed` never quotes the text, because what stands in a broken line may be somebody's
token.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

Format: TypeAlias = Literal["toml", "yaml", "json"]

SUFFIXES: dict[str, Format] = {
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".jsonc": "json",
}
MOST_DOTS = 200  # in a line of TOML, outside of strings: tomllib takes as many steps as the square of a key's parts
LONGEST = 1024 * 1024  # characters; a configuration is some kilobytes
LONGEST_PLACED = 256 * 1024  # characters, in which the line of what is wrong is looked for
LONGEST_STATE = 16 * 1024 * 1024  # of a file in which a program keeps more than its servers, as Claude Code does
DEEPEST = 64  # levels
MOST_NODES = 100_000  # of a YAML file, what its aliases stand for counted each time: whoever reads the value meets them

_toml_place = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_string = r'"(?:[^"\\\n]|\\.)*+"?'
_comment_or_string = re.compile(_string + r"|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_comma_before_end = re.compile(_string + r"|,(?=\s*[\]}])")
_not_line_end = re.compile(r"[^\n]")
_toml_head = re.compile(r"\s*(\[\[?)([^\[\]\n]+)\]")
# Possessive, since it meets each line of a file, and also those inside long texts: nothing is ever tried twice.
_toml_key = re.compile(r"""\s*+((?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'|\s*+\.\s*+)++)\s*+=""")
_quoting = re.compile(r"(alias|anchor|tag|handle) ['\"].*")  # what follows may be a token that stands without quotes
_toml_strings = re.compile(r""""(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?""")


class Malformed(Exception):
    """What is wrong, and where: line and column count from 1, 0 where nobody knows."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


def parse(text: str, format: Format, longest: int = LONGEST) -> object:
    """dict, list, str, int, float, bool, None; YAML and TOML may add dates and the like. Raises `Malformed`."""
    if len(text) > longest:
        raise Malformed(f"has more than {longest >> 20} MiB, which is too large for a configuration")
    try:
        found = _PARSERS[format](text.removeprefix("\ufeff"))
    except RecursionError:
        raise Malformed("is nested too deeply") from None
    if _is_deep(found):
        raise Malformed("is nested too deeply")
    return found


def _is_deep(found: object) -> bool:
    """Whether it has more levels than `DEEPEST`: how deep a reader goes must not depend on who calls it."""
    level: list[object] = [found]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return False
    return True


def _inside(each: object) -> Iterable[object]:
    if isinstance(each, dict):
        return cast("dict[object, object]", each).values()
    return cast("list[object]", each) if isinstance(each, list) else ()


def _toml(text: str) -> object:
    import tomllib

    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MOST_DOTS < _toml_strings.sub("", line).count("."):
            raise Malformed("a key has too many parts", number, 1)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        place = _toml_place.search(said)
        line, column = _end(text) if not place or not place[1] else (int(place[1]), int(place[2]))
        raise Malformed(_toml_place.sub("", said), line, column) from None
    except ValueError:  # int() refuses thousands of digits
        raise Malformed("a number is too long") from None


def _json(text: str) -> object:
    """What fails is read once more without its comments and trailing commas, every character in its place."""
    try:
        try:
            return _strict_json(text)
        except json.JSONDecodeError:
            return _strict_json(_comma_before_end.sub(_blank, _comment_or_string.sub(_blank, text)))
    except json.JSONDecodeError as error:
        raise Malformed(error.msg, error.lineno, error.colno) from None
    except ValueError:
        raise Malformed("a number is too long") from None


def _strict_json(text: str) -> object:
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)


def _blank(found: re.Match[str]) -> str:
    """Spaces for what is not to be read; strings stay."""
    return found[0] if found[0].startswith('"') else _not_line_end.sub(" ", found[0])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON lets the last of two equal keys win in silence, which is how a server gets lost."""
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise Malformed(f"the key {json.dumps(key[:80])} appears twice in one object")
        table[key] = value
    return table


def _no_constant(word: str) -> object:
    raise Malformed(f"{word} is not JSON")


def _yaml(text: str) -> object:
    import yaml

    try:
        return _yaml_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise Malformed(_quoting.sub(r"\1", error.problem or "is not valid YAML"), line, column) from None
    except yaml.reader.ReaderError as error:
        raise Malformed("contains a character that YAML does not allow", *_end(text[: error.position])) from None
    except (ValueError, LookupError, AttributeError, TypeError, OverflowError):
        # PyYAML's constructors of tagged values (`!!int x`, `!!timestamp x`) fail with whatever comes first.
        raise Malformed("contains a value that does not fit its tag, or an invalid date or number") from None


def _yaml_load(text: str) -> object:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses keys that stand twice, and aliases that unfold to more than a configuration can hold."""

        nodes = 0  # so far, unfolded

        def __init__(self, stream: str) -> None:
            super().__init__(stream)
            self.sizes: dict[Any, int] = {}  # of each node that is complete, unfolded

        def compose_node(self, parent: Any, index: Any) -> Any:
            event: Any = cast("Any", self).peek_event()
            before = self.nodes
            node: Any = super().compose_node(parent, index)
            if isinstance(event, yaml.AliasEvent) and node not in self.sizes:
                raise _yaml_error("an alias is inside its own anchor", event.start_mark)
            self.nodes += self.sizes.get(node, 1)
            self.sizes.setdefault(node, self.nodes - before)
            if self.nodes > MOST_NODES:
                raise _yaml_error(f"more than {MOST_NODES:,} values with its aliases expanded", event.start_mark)
            return node

        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    raise _yaml_error("this key appears twice in one mapping", key.start_mark)
                if isinstance(key, yaml.ScalarNode):
                    seen.add(key.value)
            return node

    return yaml.load(text, Loader)


def _yaml_error(problem: str, mark: Any) -> Exception:
    import yaml

    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _end(text: str) -> tuple[int, int]:
    """Line and column just behind `text`."""
    return text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1


def line_of(text: str, format: Format, path: Sequence[str | int]) -> int:
    """The line of a key, or of the nearest key around it that stands in the text, counted from 1; 0 where nobody knows,
    or the text is long. It is looked for only when something is wrong there, so no parser has to keep it."""
    if len(text) > LONGEST_PLACED:
        return 0
    try:
        return _toml_line(text, path) if format == "toml" else _yaml_line(text, format, path)
    except (Malformed, ValueError, RecursionError, LookupError):
        return 0


@lru_cache(1)  # of a file with many problems
def _nodes(text: str, format: Format) -> Any:
    """JSON without comments and tabs is YAML, and PyYAML says where its nodes stand. None where it cannot be read."""
    import yaml

    if format == "json":
        text = _comment_or_string.sub(_blank, text).replace("\t", " ")
    try:
        return cast("Any", yaml).compose(text.removeprefix("\ufeff"), yaml.SafeLoader)
    except yaml.YAMLError:
        return None


def _yaml_line(text: str, format: Format, path: Sequence[str | int]) -> int:
    import yaml

    node, line = _nodes(text, format), 0
    for key in path:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line + 1
            continue
        members = node.value if isinstance(node, yaml.MappingNode) else ()
        found = next((each for each in members if each[0].value == str(key)), None)
        if not found:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def _toml_line(text: str, path: Sequence[str | int]) -> int:
    """Each line that is a table's head or begins with a key says which path it is for; the longest one that leads to
    the key wins. Of the tables of an array, the one that is meant is counted."""
    best, line_found = 0, 0
    for here, number in _toml_places(text):
        if len(here) > best and here == tuple(path[: len(here)]):
            best, line_found = len(here), number
    return line_found


@lru_cache(1)  # of a file with many problems
def _toml_places(text: str) -> Sequence[tuple[tuple[str | int, ...], int]]:
    places: list[tuple[tuple[str | int, ...], int]] = []
    table: tuple[str | int, ...] = ()
    counted: Counter[tuple[str | int, ...]] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        if head := _toml_head.match(line):
            table = tuple(_toml_keys(head[2]))
            if head[1] == "[[":
                counted[table] += 1
                table = (*table, counted[table] - 1)
            places.append((table, number))
        elif key := _toml_key.match(line):
            places.append(((*table, *_toml_keys(key[1])), number))
    return places


def _toml_keys(written: str) -> list[str]:
    import tomllib

    value: Any = tomllib.loads(f"{written} = 0")
    keys: list[str] = []
    while isinstance(value, dict):
        key, value = next(iter(cast("dict[str, Any]", value).items()))
        keys.append(key)
    return keys


_PARSERS: dict[Format, Callable[[str], object]] = {"toml": _toml, "yaml": _yaml, "json": _json}
