"""Which schemas are like almost all that there are: only these are compiled where everybody would wait for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.policy.plain_schemas import MOST_SCHEMAS, MOST_WEIGHT, is_plain
from toolgate.policy.schemas import compiled

PATTERNS = [
    "^[a-z0-9_-]{1,64}$",
    r"^\d{4}-\d{2}-\d{2}$",
    "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    r"^[\w.+-]+@[\w-]+\.[\w.-]+$",
    "^(http|https)://.*$",
    r"^(?:\+\d{1,3})?[ -]?\(?\d+\)?$",
    "^#[A-Fa-f0-9]{6}$",
    r"^[^/\\]+(/[^/\\]+)*$",
]
UNUSUAL = [
    r"\cA",
    r"\pL{3}",
    r"\u0041",
    r"\x41",
    "(?=a)b",
    "(?i)k",
    "(?<n>a)",
    r"(a)\1",
    "a{1001}",
    "(" * 3,
    "a)",
    "*a",
    "a**",
    "[[:alpha:]]",
    "[a&&b]",
    "[a-Z]",
    "é",
    "a" * 501,
    r"(\w{1000})",
    "(((a{9}){9}){9}){99}",
    r"\S" * 300,
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_usual_patterns_are_plain(pattern: str) -> None:
    assert is_plain({"properties": {"a": {"type": "string", "pattern": pattern}}})
    assert is_plain({"patternProperties": {pattern: {"type": "string"}}})


@pytest.mark.parametrize("pattern", [*UNUSUAL, 7])
def test_other_patterns_are_not(pattern: Any) -> None:
    assert not is_plain({"properties": {"a": {"pattern": pattern}}})
    assert not is_plain({"patternProperties": {str(pattern): True}}) or pattern == 7


def test_many_patterns_weigh_together() -> None:
    one = {"pattern": r"^\w{50}$"}
    assert is_plain({"anyOf": [one] * 10}) and not is_plain({"anyOf": [one] * 20})


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {}, "additionalProperties": False, "required": ["a"], "title": "T"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
        {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "x-order": 1}}},
        {"properties": {"a": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": {"items": {"$ref": "#/$defs/Node"}}}},
        {"properties": {"a": {"minimum": -9007199254740991, "multipleOf": 0.01, "enum": [1, "a", None, True]}}},
        {"properties": {"a": {"additionalProperties": {}, "propertyNames": {"type": "string"}, "not": {}}}},
        {"oneOf": [{"const": "a"}], "discriminator": {"propertyName": "kind"}},
    ],
)
def test_what_programs_write_is_plain(schema: Any) -> None:
    assert is_plain(schema)
    assert not compiled(json.dumps(schema).encode()).problem


@pytest.mark.parametrize(
    "schema",
    [
        True,
        None,
        [],
        {"$id": "x"},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"$ref": "#/properties/a"},
        {"$ref": "#/$defs/a/b"},
        {"$dynamicRef": "#a"},
        {"$schema": "http://json-schema.org/draft-06/schema#"},
        {"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}},
        {"contentMediaType": "application/json"},
        {"if": {}, "then": {}},
        {"dependentSchemas": {}},
        {"unevaluatedProperties": False},
        {"contains": {}},
        {"not": {"type": "string"}},
        {"propertyNames": {"pattern": "a"}},
        {"items": [{}]},
        {"properties": []},
        {"properties": {"a": 7}},
        {"enum": [[1]]},
        {"enum": [0.5]},
        {"enum": [2**60]},
        {"const": {}},
        {"minimum": 10**400},
        {"multipleOf": 1e-300},
        {"multipleOf": 0},
        {"maxLength": -1},
        {"type": ["string"] * 9},
        {"unheardOf": {}},
        {"anyOf": [{}] * MOST_SCHEMAS},
    ],
    ids=str,
)
def test_what_is_not_known_is_not_plain(schema: Any) -> None:
    assert not is_plain(schema)


def test_what_is_nested_without_end_is_not_plain() -> None:
    schema: Any = {}
    for _ in range(500):
        schema = {"items": schema}
    assert not is_plain(schema)


PIECES = st.sampled_from(
    ["a", ".", r"\w", r"\S", "[a-z]", "[^a]", "(", "(?:", ")", "|", "^", "$", "*", "{9}", "{2,40}"]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_a_plain_pattern_compiles_or_is_none(pattern: str) -> None:
    schema = {"properties": {"a": {"pattern": pattern}}}
    if is_plain(schema):
        found = compiled(json.dumps(schema).encode())
        assert found.matched <= 100 * MOST_WEIGHT * 16 or found.problem
    else:
        assert not is_plain({"patternProperties": {pattern: True}})
