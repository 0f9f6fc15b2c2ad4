"""A tool in one line, for models that are to call it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolgate.search.signatures import Tool, one_line


def line(properties: Any, *required: str, **more: Any) -> str:
    schema = {"type": "object", "properties": properties, "required": list(required), **more}
    return one_line(Tool("f", input_schema=json.dumps(schema).encode()))


@pytest.mark.promise("002.discover.signature")
def test_parameters_stand_in_the_words_of_their_schema() -> None:
    schema = {"properties": {"path": {"type": "string"}, "head": {"type": "integer"}}, "required": ["path"]}
    shown = one_line(Tool("read_file", input_schema=json.dumps(schema).encode()))
    assert shown == "read_file(path: string, head?: integer)"


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": ["string", "null"]}, "string|null"),
        ({"enum": ["a", "b", 3]}, '"a"|"b"|3'),
        ({"const": "only"}, '"only"'),
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"type": "array", "items": {"enum": ["x", "y"]}}, '("x"|"y")[]'),
        ({"type": "array"}, "any[]"),
        ({"anyOf": [{"type": "string"}, {"type": "number"}]}, "string|number"),
        ({"$ref": "#/$defs/e"}, '"e"'),
        ({"$ref": "https://example.com/x"}, "any"),
        ({"properties": {"a": {"type": "boolean"}}, "required": ["a"]}, "{a: boolean}"),
        ({"type": "object"}, "object"),
        ({"type": "odd"}, "any"),
        (True, "any"),
        ({}, "any"),
    ],
)
def test_each_kind_of_type_has_a_word(schema: Any, word: str) -> None:
    assert line({"a": schema}, "a", **{"$defs": {"e": {"const": "e"}}}) == f"f(a: {word})"


@pytest.mark.parametrize("schema", [b"", b"nonsense", b"[]", b"true", b"{}", b'{"properties":7}'])
def test_what_is_no_schema_has_no_parameters(schema: bytes) -> None:
    assert one_line(Tool("f", input_schema=schema)) == "f()"


def test_it_is_one_line_and_short_whatever_the_schema() -> None:
    assert line({"a\nb": {"const": "c\nd"}}) == 'f("a\\nb"?: "c\\nd")'
    many = line({f"parameter_{n}": {"type": "string"} for n in range(500)}, "parameter_7")
    assert many == "f(parameter_7, …)"
    wide = line({"a": {"enum": ["x" * 300, "y" * 300]}, "b": {"type": "string"}}, "b")
    assert wide == "f(a?, b, …)"
    assert line({"a": {"$ref": "#"}}) == line({"a": {"$ref": "#"}})


def test_what_all_parts_of_a_schema_have_and_require_is_one_tool() -> None:
    parts = [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"$ref": "#/$defs/more"}, {}]
    more = {"properties": {"b": {"type": "integer"}, "c": {}}, "required": ["b"]}
    assert line({"d": {}}, "d", allOf=parts, **{"$defs": {"more": more}}) == "f(a: string, b: integer, c?: any, d: any)"


def test_parts_with_thousands_of_names_each_cost_no_more_than_their_share() -> None:
    names: Any = {"required": [f"name{number}" for number in range(8_000)]}
    nested = names
    for _ in range(5):
        nested = {"allOf": [nested, *({} for _ in range(39))]}
    assert line({"a": {"type": "string"}}, **nested).startswith("f(")
