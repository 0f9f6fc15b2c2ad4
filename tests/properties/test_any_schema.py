"""Whatever a schema says: another validator finds the same arguments wrong, and no schema breaks the judge."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from properties.material import objects, values

from toolgate.policy.schemas import FINE, MOST_NAMED, ArgumentsVerdict, compiled

UNDECIDED = ArgumentsVerdict()

names = st.sampled_from(["a", "b", "c/d"])
small = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.sampled_from(["", "a", "bb", "ä", "xyz"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
types = st.sampled_from(["string", "integer", "number", "object", "array", "boolean", "null"])


def keywords(inner: Any) -> Any:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": types | st.lists(types, min_size=1, max_size=2, unique=True),
            "enum": st.lists(small, min_size=1, max_size=3),
            "const": small,
            "minimum": st.integers(-2, 5),
            "maxLength": st.integers(0, 3),
            "pattern": st.sampled_from(["^a", "b$", "^(?!x)", "^.{2}$"]),
            "required": st.lists(names, max_size=2, unique=True),
            "properties": st.dictionaries(names, inner, max_size=2),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "d"]), inner, max_size=1),
            "propertyNames": inner,
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "minItems": st.integers(0, 2),
            "uniqueItems": st.booleans(),
            "contains": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
            "dependentRequired": st.dictionaries(names, st.lists(names, max_size=1), max_size=1),
        },
    )


subschemas = st.recursive(st.booleans() | st.just({"$ref": "#/$defs/tree"}), keywords, max_leaves=6)
TREE = {
    "tree": {
        "properties": {"a": {"$ref": "#/$defs/tree"}},
        "items": {"$ref": "#/$defs/tree"},
        "type": ["object", "array", "null"],
    }
}


@settings(max_examples=60)
@given(keywords(subschemas), st.dictionaries(names, small, max_size=3))
def test_another_validator_finds_the_same_arguments_wrong(schema: Any, arguments: Any) -> None:
    whole = {**schema, "$defs": TREE}
    judge = compiled(json.dumps(whole).encode())
    assert not judge.problem
    verdict = judge.judge(json.dumps(arguments).encode(), UNDECIDED)
    assume(verdict is not UNDECIDED)  # the tree in itself again and again: what takes too long is the server's to judge
    assert (verdict is FINE) == Draft202012Validator(whole).is_valid(arguments)
    assert len(verdict.wrong) <= MOST_NAMED
    assert verdict.count >= len(verdict.wrong)


@given(
    values | keywords(values) | st.dictionaries(st.sampled_from(["$ref", "$id", "$schema", "items", "allOf"]), values),
    objects,
)
def test_no_schema_breaks_the_judge(schema: Any, arguments: Any) -> None:
    try:
        text = json.dumps(schema).encode()
    except ValueError:
        assume(False)
    judge = compiled(text)
    if not judge.problem:
        judge.judge(json.dumps(arguments).encode())


@given(st.binary(max_size=40), st.binary(max_size=40))
@example(b'{"$comment":"\xff"}', b'{"a":"\xff"}')
def test_no_bytes_break_the_judge(schema: bytes, arguments: bytes) -> None:
    for text in (schema, b'{"minimum":1}'):
        judge = compiled(text)
        if not judge.problem:
            judge.judge(arguments)
