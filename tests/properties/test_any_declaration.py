"""Whatever the schema: a declaration can be read by a compiler, and search reads it."""

from __future__ import annotations

import ast
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    ast.parse(python(tool))
    assert is_balanced(typescript(tool)), typescript(tool)


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
