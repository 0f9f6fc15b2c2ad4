"""Typed declarations of a tool from its JSON schemas, in TypeScript and in Python, for models that read them faster.

The rules this file keeps: whatever the schema, what is written can be read by a compiler; what cannot be said is
`unknown` or `Any`. Depth, members and length are bounded, and so is what is looked at, for one tool and for all of one
budget; a reference is followed once on its way.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, cast

_DEEPEST = 6
_MOST_MEMBERS = 100
_MOST_CHOICES = 40
_LONGEST_COMMENT = 200
_LONGEST_CLASS_NAME = 60  # characters of a name that are taken
_MOST_NODES = 2_000  # of one schema
_A_NODE = 32  # characters of names and choices, or members, that cost as much as a schema does
_READ_FOR_A_NODE = 256  # bytes

Schema: TypeAlias = Mapping[str, Any]
_NOTHING: Schema = {}
_JAVASCRIPT_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*\Z")
_RESERVED = frozenset(
    """
    await break case catch class const continue debugger default delete do else enum export extends false finally for
    function if implements import in instanceof interface let new null package private protected public return static
    super switch this throw true try typeof var void while with yield arguments eval async
    """.split()  # noqa: SIM905 -- a table that is read as text
)
_TYPESCRIPT = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}
_PYTHON = {"string": "str", "number": "float", "integer": "int", "boolean": "bool", "null": "None"}


class Tool(NamedTuple):
    """What a declaration is made of; the schemas are raw. `observed` is what results have looked like, where it has no
    output schema."""

    name: str
    description: str = ""
    input_schema: bytes = b""
    output_schema: bytes = b""
    observed: bytes = b""

    @property
    def result(self) -> bytes:
        return self.output_schema or self.observed

    @property
    def note(self) -> str:
        return _OBSERVED if self.observed and not self.output_schema else ""


_OBSERVED = "The result is as observed in earlier calls; the server does not declare it."


class Budget:
    """What may be looked at for all that is written within it: `left` schemas, or what costs as much."""

    def __init__(self, left: int = 10_000) -> None:
        self.left = left

    @property
    def is_over(self) -> bool:
        return self.left < 0


def typescript(tool: Tool, budget: Budget | None = None) -> str:
    """`declare function name(args: {...}): Promise<...>;`, with comments above what they describe. Empty where that is
    beyond the budget."""
    budget = budget or Budget()
    reading = _Reading(tool.input_schema, budget)
    arguments = _ts_object(reading, reading.top, 0) if _properties(reading.top) else "{}"
    optional = "" if _required(reading.top) else "?"
    result = _Reading(tool.result, budget)
    returns = _ts(result, result.root, 0) if tool.result else "unknown"
    if budget.is_over:
        return ""
    comment = _comment(tool.description)
    head = (f"/** {comment} */\n" if comment else "") + (f"// {tool.note}\n" if tool.note else "")
    return f"{head}declare function {_javascript_name(tool.name)}(args{optional}: {arguments}): Promise<{returns}>;"


def python(tool: Tool, budget: Budget | None = None) -> str:
    """`TypedDict`s for the objects, and `async def name(*, ...) -> ...: ...`. Empty where that is beyond the budget."""
    budget = budget or Budget()
    reading = _Reading(tool.input_schema, budget)
    writer = _Python(reading, _class_name(tool.name))
    parameters = writer.parameters()
    result = _Reading(tool.result, budget)
    returning = _Python(result, _class_name(tool.name) + "Result", writer.taken)
    returns = returning.type(result.root, returning.prefix, 0) if tool.result else "Any"
    if budget.is_over:
        return ""
    comment = _comment(tool.description)
    lines = ["from typing import Any, Literal, NotRequired, TypedDict", "", *writer.classes, *returning.classes]
    lines += [f"async def {python_name(tool.name)}({'*, ' if parameters else ''}{', '.join(parameters)}) -> {returns}:"]
    comments = [*writer.comments, *([tool.note] if tool.note else [])]
    return "\n".join([*lines, *(f"    # {each}" for each in comments), f"    {json.dumps(comment)}", ""])


_LONGEST_LINE = 400
_PLAIN_NAME = re.compile(r"\w[\w.-]*\Z")


def one_line(tool: Tool, budget: Budget | None = None) -> str:
    """`read_file(path: string, head?: integer)`: enough to call it by, in the words of its schema. What does not fit
    into 400 characters is `…`; names of required parameters come before that in any case. Beyond the budget all of them
    are `…`."""
    budget = budget or Budget()
    reading = _Reading(tool.input_schema, budget)
    required = _required(reading.top)
    given = _properties(reading.top)
    said = {name: f"{_named(name, required)}: {_word(reading, schema, 0)}" for name, schema in given.items()}
    if budget.is_over:
        return f"{tool.name}(…)"
    if len(", ".join(said.values())) > _LONGEST_LINE:
        short = {name: _named(name, required) for name in said}
        if len(", ".join(short.values())) > _LONGEST_LINE:
            short = {name: each for name, each in short.items() if name in required}
        said = short
        return f"{tool.name}({', '.join([*said.values(), '…'])})"
    return f"{tool.name}({', '.join(said.values())})"


def _named(name: str, required: set[str]) -> str:
    written = name if _PLAIN_NAME.match(name) else json.dumps(name)
    return written if name in required else f"{written}?"


def _word(reading: _Reading, schema: Any, depth: int) -> str:
    """A type in the words of JSON Schema."""
    found = reading.resolved(schema, depth)
    if found is None:
        return "any"
    if (choices := _choices(found)) is not None:
        return "|".join(_unique([json.dumps(each) if _is_plain(each) else "any" for each in choices]))
    if parts := _parts(found):
        return "|".join(_unique([_word(reading, part, depth + 1) for part in parts]))
    kind = _kind(found)
    if kind == "array":
        item = _word(reading, found["items"], depth + 1) if "items" in found else "any"
        return f"{item}[]" if _PLAIN_NAME.match(item) else f"({item})[]"
    members = _properties(found)
    if kind != "object" or not members or depth > 1:
        return kind if kind in _TYPESCRIPT or kind == "object" else "any"
    required = _required(found)
    inner = (f"{_named(name, required)}: {_word(reading, each, depth + 1)}" for name, each in members.items())
    return f"{{{', '.join(inner)}}}"


class _Reading:
    """One schema, and how much of it is still to be written."""

    def __init__(self, raw: bytes, budget: Budget) -> None:
        self._left = _MOST_NODES
        self._budget = budget
        budget.left -= len(raw) // _READ_FOR_A_NODE
        self.root = _NOTHING if budget.is_over else _read(raw)
        self._spend(_breadth(self.root) // _A_NODE)
        self.top = self.resolved(self.root, 0) or _NOTHING  # what the root is, where it refers to something

    def resolved(self, schema: Any, depth: int) -> Schema | None:
        """The schema that stands here; None where there is none, or no more is to be written."""
        self._spend(1)
        if depth > _DEEPEST or self._is_over or not isinstance(schema, dict):
            return None
        found = cast(Schema, schema)
        for _ in range(_DEEPEST):
            reference = found.get("$ref")
            if not isinstance(reference, str):
                self._spend(_breadth(found) // _A_NODE)
                return None if self._is_over else self._whole(found, depth)
            self._spend(len(reference) // _A_NODE)
            target = None if self._is_over else self._at(reference)
            if target is None:
                return None
            found = target
        return None

    def _whole(self, schema: Schema, depth: int) -> Schema:
        """With what it has from each part of `allOf`."""
        parts = schema.get("allOf")
        if not isinstance(parts, list):
            return schema
        found, properties, required = dict[str, Any](), dict[str, Any](), set[str]()
        for part in [*cast(list[Any], parts)[:_MOST_CHOICES], {**schema, "allOf": None}]:
            own = self.resolved(part, depth + 1) or _NOTHING
            found |= own
            properties |= _properties(own)
            required |= _required(own)
            self._spend((len(own) + _breadth(own)) // _A_NODE)
        whole = {"properties": dict(list(properties.items())[:_MOST_MEMBERS])} if properties else {}
        return found | whole | {"required": sorted(required)}

    @property
    def _is_over(self) -> bool:
        return self._left < 0 or self._budget.is_over

    def _spend(self, nodes: int) -> None:
        self._left -= nodes
        self._budget.left -= nodes

    def _at(self, reference: str) -> Schema | None:
        found: Any = self.root
        if not reference.startswith("#"):
            return None
        for step in reference[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = cast(Schema, found).get(step) if isinstance(found, dict) else None
        return cast(Schema, found) if isinstance(found, dict) else None


def _read(raw: bytes) -> Schema:
    try:
        read: Any = json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        read = None
    return cast(Schema, read) if isinstance(read, dict) else _NOTHING


def _breadth(schema: Schema) -> int:
    """How much there is to write of a schema itself, and to look through for that."""
    inside = (cast(Any, schema.get(key)) for key in _OF_MANY)
    found = [cast(Any, each) for each in inside if isinstance(each, dict | list)]
    found.append([schema.get("const")])
    return len(schema) + sum(len(each) + sum(len(text) for text in each if isinstance(text, str)) for each in found)


_OF_MANY = ("properties", "required", "enum", "anyOf", "oneOf", "allOf", "prefixItems", "items")


def _properties(schema: Schema) -> Schema:
    found = schema.get("properties")
    return dict(list(cast(Schema, found).items())[:_MOST_MEMBERS]) if isinstance(found, dict) else _NOTHING


def _required(schema: Schema) -> set[str]:
    found: Any = schema.get("required")
    return {name for name in cast(list[Any], found) if isinstance(name, str)} if isinstance(found, list) else set()


def _parts(schema: Schema) -> list[Any]:
    """What a union is made of."""
    for name in ("anyOf", "oneOf"):
        if isinstance(found := schema.get(name), list) and found:
            return cast(list[Any], found)[:_MOST_CHOICES]
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return [{**schema, "type": kind} for kind in cast(list[Any], kinds)[:8]]
    return [{**schema, "nullable": False}, _NULL] if schema.get("nullable") is True else []


_NULL: Schema = {"type": "null"}


def _places(schema: Schema) -> list[Any]:
    """Of an array whose items differ by their places."""
    for name in ("prefixItems", "items"):
        if isinstance(found := schema.get(name), list) and found:
            return cast(list[Any], found)[:_MOST_CHOICES]
    return []


def _others(schema: Schema) -> Any:
    """What may stand behind those places; False where nothing may."""
    most, places = schema.get("maxItems"), len(_places(schema))
    name = "items" if "prefixItems" in schema else "additionalItems"
    return False if isinstance(most, int) and most <= places else schema.get(name)


def _choices(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return cast(list[Any], found)[:_MOST_CHOICES] if isinstance(found, list) and found else None


def _is_plain(choice: Any) -> bool:
    return choice is None or isinstance(choice, str | bool | int)


def _kind(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "array" if "items" in schema or "prefixItems" in schema else ""


def _comment(said: Any) -> str:
    """On one line, and such that it ends no comment."""
    text = " ".join(said[: 2 * _LONGEST_COMMENT].split()) if isinstance(said, str) else ""
    text = "".join(each for each in text.replace("*/", "* /") if each.isprintable())
    return text if len(text) <= _LONGEST_COMMENT else text[: _LONGEST_COMMENT - 1].rstrip() + "…"


def _unique(types: list[str]) -> list[str]:
    return list(dict.fromkeys(types))


# TypeScript


def _javascript_name(name: str) -> str:
    legal = re.sub(r"[^A-Za-z0-9_$]", "_", name) or "_"
    return f"_{legal}" if legal[0].isdigit() or legal in _RESERVED else legal


def _ts(reading: _Reading, schema: Any, depth: int) -> str:
    found = reading.resolved(schema, depth)
    if found is None:
        return "unknown"
    choices = _choices(found)
    if choices is not None:
        return " | ".join(_unique([json.dumps(each) if _is_plain(each) else "unknown" for each in choices]))
    if parts := _parts(found):
        return " | ".join(_unique([_ts(reading, part, depth + 1) for part in parts]))
    kind = _kind(found)
    if kind == "array" and (places := _places(found)):
        items = [_ts(reading, place, depth + 1) for place in places]
        others = _others(found)
        items += [] if others is False else [f"...Array<{_ts(reading, others, depth + 1)}>"]
        return f"[{', '.join(items)}]"
    if kind == "array":
        item = _ts(reading, found.get("items"), depth + 1)
        return f"{item}[]" if re.fullmatch(r"\w+", item) else f"Array<{item}>"
    return _ts_object(reading, found, depth) if kind == "object" else _TYPESCRIPT.get(kind, "unknown")


def _ts_object(reading: _Reading, schema: Schema, depth: int) -> str:
    properties, required = _properties(schema), _required(schema)
    if not properties:
        return f"Record<string, {_ts(reading, schema.get('additionalProperties'), depth + 1)}>"
    indent = "  " * (depth + 1)
    lines: list[str] = []
    for name, about in properties.items():
        comment = _comment(cast(Schema, about).get("description")) if isinstance(about, dict) else ""
        lines += [f"{indent}/** {comment} */"] if comment else []
        key = name if _JAVASCRIPT_NAME.match(name) else json.dumps(name)
        lines += [f"{indent}{key}{'' if name in required else '?'}: {_ts(reading, about, depth + 1)};"]
    return "\n".join(["{", *lines, "  " * depth + "}"])


# Python


def python_name(name: str) -> str:
    """A legal name for it, by its own letters where they are ASCII."""
    legal = re.sub(r"[^A-Za-z0-9_]", "_", name) or "_"
    legal = f"_{legal}" if legal[0].isdigit() else legal
    return f"{legal}_" if keyword.iskeyword(legal) or legal in ("Any", "Literal", "NotRequired", "TypedDict") else legal


def _class_name(name: str) -> str:
    parts = re.findall(r"[A-Za-z0-9]+", name[:_LONGEST_CLASS_NAME])  # those of what is inside begin with it
    return "".join(part[:1].upper() + part[1:] for part in parts) or "Tool"


class _Python:
    """Writes types; objects become classes of their own, innermost first."""

    def __init__(self, reading: _Reading, prefix: str, taken: set[str] | None = None) -> None:
        self.prefix = f"_{prefix}" if prefix[0].isdigit() else prefix
        self.classes: list[str] = []
        self.comments: list[str] = []
        self.taken: set[str] = set() if taken is None else taken  # names of classes
        self._reading = reading

    def parameters(self) -> list[str]:
        top = self._reading.top
        properties, required = _properties(top), _required(top)
        named: dict[str, str] = {}
        for name in sorted(properties, key=lambda name: name not in required):
            written = self._free(python_name(name), named)
            type = self.type(properties[name], self.prefix + _class_name(name), 1)
            named[written] = f"{written}: {type}" + ("" if name in required else " = ...")
            self._note(name, written, properties[name])
        return list(named.values())

    def _note(self, name: str, written: str, about: Any) -> None:
        said = _comment(cast(Schema, about).get("description")) if isinstance(about, dict) else ""
        alias = "" if name == written else f" (sent as {json.dumps(name)})"
        if said or alias:
            self.comments.append(f"{written}{alias}: {said}".rstrip(": "))

    def _free(self, name: str, taken: Any) -> str:
        while name in taken:
            name += "_"
        return name

    def type(self, schema: Any, name: str, depth: int) -> str:
        found = self._reading.resolved(schema, depth)
        if found is None:
            return "Any"
        choices = _choices(found)
        if choices is not None:
            return f"Literal[{', '.join(map(repr, choices))}]" if all(map(_is_plain, choices)) else "Any"
        if parts := _parts(found):
            types = _unique([self.type(part, f"{name}{at}", depth + 1) for at, part in enumerate(parts)])
            return "Any" if "Any" in types else " | ".join(types)
        kind = _kind(found)
        if kind == "array" and (places := _places(found)):
            types = [self.type(each, f"{name}{at}", depth + 1) for at, each in enumerate(places)]
            others = _others(found)
            types += [] if others is False else [f"*tuple[{self.type(others, name + 'Item', depth + 1)}, ...]"]
            return f"tuple[{', '.join(types)}]"
        if kind == "array":
            return f"list[{self.type(found.get('items'), name + 'Item', depth + 1)}]"
        return self._object(found, name, depth) if kind == "object" else _PYTHON.get(kind, "Any")

    def _object(self, schema: Schema, name: str, depth: int) -> str:
        properties, required = _properties(schema), _required(schema)
        if not properties:
            return f"dict[str, {self.type(schema.get('additionalProperties'), name + 'Value', depth + 1)}]"
        name = self._free(name, self.taken)
        self.taken.add(name)
        members: list[str] = []
        for key, about in properties.items():
            type = self.type(about, name + _class_name(key), depth + 1)
            members.append(f"{json.dumps(key)}: {type if key in required else f'NotRequired[{type}]'}")
        self.classes.append(f"{name} = TypedDict({json.dumps(name)}, {{{', '.join(members)}}})\n")
        return name
