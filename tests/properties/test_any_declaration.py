"""Whatever the schema: a declaration can be read by a compiler, and search reads it."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolgate.sandbox import javascript
from toolgate.search import Document, Index
from toolgate.search.signatures import Tool, python, typescript

WORDS = st.sampled_from(
    [
        *("type", "properties", "items", "enum", "const", "anyOf", "oneOf", "required", "$ref", "description", "$defs"),
        *("additionalProperties", "a", "class", "x-y", "1st", "", "*/", '"', "é", "\n"),
    ]
)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from(["string", "object", "array", "number", "#", "#/properties/a", "#/$defs/a", "*/ {", "a\nb\u2028c"]),
)  # fmt: skip
ANYTHING = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5), max_leaves=30
)
KINDS = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object", ["string", "null"]])
SCHEMAS = st.recursive(
    st.fixed_dictionaries({"type": KINDS}, optional={"description": st.text(max_size=20), "enum": st.lists(VALUES)}),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"prefixItems": st.lists(inner, max_size=3)}, optional={"items": st.just(False)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, max_size=3)}, optional={"nullable": st.booleans()}),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(WORDS | st.text(max_size=6), inner, max_size=4)},
            optional={"required": st.lists(WORDS, max_size=3)},
        ),
    ),
    max_leaves=15,
)
TEXT = re.compile(r'/\*\*.*?\*/|"(?:\\.|[^"\\])*"')
OPENS = {"}": "{", ")": "(", ">": "<", "]": "["}


def is_balanced(text: str) -> bool:
    opened: list[str] = []
    for each in TEXT.sub("", text):
        if each in "{(<[":
            opened.append(each)
        elif each in OPENS and (not opened or opened.pop() != OPENS[each]):
            return False
    return not opened


@settings(max_examples=150, deadline=None)
@given(ANYTHING | SCHEMAS, st.text(max_size=12), st.text(max_size=30))
def test_a_declaration_can_be_read(schema, name, description):
    raw = json.dumps(schema).encode()
    tool = Tool(name, description, raw, raw)
    exec(compile(python(tool), "stub.py", "exec"), {})
    assert is_balanced(typescript(tool)), typescript(tool)


NAMES = ["a", "class", "x-y", "1st", "", "*/", '"', "é", "\ud800", "__proto__", "constructor"]
CHOICES = ["a", '"', "\ud800", None, 1, 10**30, True, 0.5, [], "</script>"]
REFERENCES = ["#", "#/properties/a", "#/$defs/a", "#/nowhere", "other.json"]
TYPES = ["string", "integer", "number", "boolean", "null", "array", "object"]


def any_schema(chance: random.Random, depth: int = 0) -> Any:
    """As servers write them, and now and then as none does."""

    def inner() -> Any:
        return any_schema(chance, depth + 1)

    def members(count: int) -> Any:
        return {chance.choice(NAMES): inner() for _ in range(count)}

    kind = chance.randrange(10 if depth < 4 else 4)
    if depth and kind < 4:
        return (
            {"type": chance.choice(TYPES), "description": "*/ {\u2028", "nullable": chance.random() < 0.3},
            {"enum": chance.choices(CHOICES, k=3)},
            {"$ref": chance.choice(REFERENCES)},
            chance.choice([True, False, None, [], "x", 7, {}]),
        )[kind]
    if kind < 6:
        return {"type": "object", "properties": members(3), "required": ["a", chance.choice(NAMES)]}
    if kind == 6:
        return {"type": "array", "items": inner()}
    if kind == 7:
        return {"type": "array", "items": [inner(), inner()], "additionalItems": inner()}
    if kind == 8:
        return {"prefixItems": [inner(), inner()], "items": chance.choice([False, True]), "minItems": 1}
    return {chance.choice(["anyOf", "oneOf", "allOf"]): [inner(), inner()], "properties": members(1)}


def test_the_compiler_of_typescript_reads_any_declaration(tmp_path: Path) -> None:
    pytest.importorskip("deno", reason="deno is not installed")
    chance, parts = random.Random(15), list[str]()
    names = ["find-it", "class", "undefined", "any", "1st", "", "é", "a" * 200, "Promise", "async", "let", "global"]
    for number in range(400):
        given = [json.dumps(any_schema(chance)).encode() for _ in range(2)]
        tool = Tool(names[number % len(names)], "Finds */ it.\n", *given)
        written = typescript(tool).replace("declare function", "export function")
        parts.append(f"declare namespace n{number} {{\n{written}\n}}")
        exec(compile(python(tool), "stub.py", "exec"), {})
    (file := tmp_path / "all.ts").write_text("\n".join([*parts, "export {};"]))
    environment = {**javascript.ENVIRONMENT, "DENO_DIR": str(tmp_path)}
    command = [javascript._deno(), "check", "--quiet", "--no-remote", "--no-npm", "--no-config", "--no-lock", str(file)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr[:3000]


@settings(max_examples=50, deadline=None)
@given(ANYTHING, st.text(max_size=40))
def test_search_reads_any_schema_and_any_query(schema, query):
    index = Index()
    index.put("a", [Document("a", "needle", description=query, schema=json.dumps(schema).encode())])
    index.search(query)
    assert index.search("needle")[0].document.name == "needle"


def declared(schema: object, **more: bytes) -> tuple[str, str]:
    tool = Tool("find-it", "Finds */ it.", json.dumps(schema).encode(), **more)
    return typescript(tool), python(tool)


def test_a_declaration_says_what_the_schema_says():
    where = {
        "type": "object",
        "properties": {"lat": {"type": "number"}, "class": {"enum": ["a", 1]}},
        "required": ["lat"],
    }
    schema = {
        "type": "object",
        "properties": {"q": {"type": "string", "description": "What\nto find"}, "where": where,
                       "tags": {"type": "array", "items": {"type": ["string", "null"]}}, "odd-name": {}},
        "required": ["q"],
    }  # fmt: skip
    written, read = declared(schema)
    assert written.startswith(
        "/** Finds * / it. */\ndeclare function find_it(args: {\n  /** What to find */\n  q: string;"
    )
    assert '    class?: "a" | 1;' in written
    assert "  tags?: Array<string | null>;" in written
    assert '  "odd-name"?: unknown;' in written
    assert "async def find_it(*, q: str, where: FindItWhere = ..., " in read
    assert "\"class\": NotRequired[Literal['a', 1]]" in read
    assert '# odd_name (sent as "odd-name")' in read


NUMBER = {"type": "number"}


@pytest.mark.parametrize(
    ("schema", "written", "read"),
    [
        ({"type": "string", "nullable": True}, "string | null", "str | None"),
        ({"prefixItems": [NUMBER, {"type": "string"}], "items": False}, "[number, string]", "tuple[float, str]"),
        (
            {"type": "array", "items": [NUMBER]},
            "[number, ...Array<unknown>]",
            "tuple[float, *tuple[Any, ...]]",
        ),
        (
            {"prefixItems": [NUMBER, NUMBER], "minItems": 2, "maxItems": 2},
            "[number, number]",
            "tuple[float, float]",
        ),
        ({"allOf": [{"$ref": "#/$defs/kind"}], "description": "Which."}, '"a" | "b"', "Literal['a', 'b']"),
        (
            {"allOf": [{"properties": {"a": NUMBER}, "required": ["a"]}, {"properties": {"b": {"type": "null"}}}]},
            "{\n    a: number;\n    b?: null;\n  }",
            "FindItX",
        ),
    ],
)  # fmt: skip
def test_tuples_null_and_parts_are_declared(schema, written, read):
    whole = {"type": "object", "properties": {"x": schema}, "$defs": {"kind": {"enum": ["a", "b"]}}}
    in_typescript, in_python = declared(whole)
    assert f"x?: {written};" in in_typescript
    assert f"x: {read} = ..." in in_python


def test_a_root_that_refers_to_something_is_what_it_refers_to():
    about = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    for root in ({"$ref": "#/$defs/about"}, {"allOf": [{"$ref": "#/$defs/about"}], "type": "object"}):
        in_typescript, in_python = declared({**root, "$defs": {"about": about}})
        assert "(args: {\n  q: string;\n})" in in_typescript
        assert "(*, q: str)" in in_python


def test_a_parameter_and_a_result_have_types_of_their_own():
    inside = {"type": "object", "properties": {"a": {"type": "string"}}}
    result = json.dumps({"type": "object", "properties": {"b": {"type": "string"}}}).encode()
    tool = Tool("find", "", json.dumps({"type": "object", "properties": {"result": inside}}).encode(), result)
    assert "async def find(*, result: FindResult = ...) -> FindResult_:" in python(tool)


@pytest.mark.parametrize("target", ["#", "#/properties/a", "#/nowhere", "https://example.com/x"])
def test_a_reference_that_goes_round_or_nowhere_ends(target):
    written, read = declared({"type": "object", "properties": {"a": {"$ref": target}}})
    assert "unknown" in written
    assert "Any" in read


def test_a_wide_schema_is_written_in_bounds():
    wide = {"type": "object", "properties": {f"p{n}": {"$ref": "#"} for n in range(100)}}
    written, read = declared(wide)
    assert len(written) < 500_000
    assert len(read) < 500_000
