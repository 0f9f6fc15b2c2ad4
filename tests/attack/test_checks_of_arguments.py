"""A server lists a schema that makes checking a call's arguments cost seconds or gigabytes, of a caller that means no
harm or of one that it works with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolgate.policy.schemas import Schema, compiled

ENGLISH = "The quick brown fox jumps over the lazy dog and writes a long letter to the bank about it. " * 220
EVERY_LENGTH = "|".join(f"a{{{number}}}b" for number in range(1, 90))


def schema(of: Any, **more: Any) -> Schema:
    return compiled(json.dumps({"type": "object", "properties": {"a": of, "n": {"type": "integer"}}, **more}).encode())


def wrong(judge: Schema, **arguments: Any) -> list[tuple[str, str]]:
    return [(each.pointer, each.keyword) for each in judge.judge(json.dumps(arguments).encode()).wrong]


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else 1


def matrix(branches: int) -> Schema:
    below = {"type": "array", "items": {"$ref": "#/$defs/below"}}
    definitions = {"below": {"anyOf": [{"type": "string"}, *[below] * branches]}}
    return schema({"$ref": "#/$defs/below"}, **{"$defs": definitions})


@pytest.mark.parametrize(
    ("branches", "value"), [(2, nested(13)), (3, [nested(4)] * 60), (3, [nested(6)] * 100), (5, [1] * 18_000)]
)
def test_of_alternatives_within_alternatives_not_all_that_is_wrong_is_kept(branches: int, value: Any) -> None:
    """What is said of each branch is kept with what is said of the branch above it: 32.9 s and 4.8 GB for one call."""
    verdict = matrix(branches).judge(json.dumps({"a": value}).encode())
    assert [(each.pointer, each.keyword) for each in verdict.wrong] == [("", "anyOf")]
    assert verdict.count == 1 and not verdict.is_whole


def test_of_few_alternatives_it_is_said_what_the_nearest_wants() -> None:
    verdict = matrix(2).judge(json.dumps({"a": [["x", 1]]}).encode())
    assert [each.pointer for each in verdict.wrong] == ["/a"] and "nearest" in verdict.wrong[0].message


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (EVERY_LENGTH, "a" * 110_000),
        ("(([ab]{1,10}){1,10}){1,10}c", "ab" * 10_000),
        ("(?:.{1,60}){1,16}§", ENGLISH),
        (r"(?!zz)[ab]*a[ab]{300}c", "ab" * 10_000),
    ],
)
def test_a_text_that_a_pattern_would_take_long_for_is_left_to_the_server_and_the_rest_is_checked(
    pattern: str, text: str
) -> None:
    of = {"type": "string", "pattern": pattern}
    assert wrong(schema(of), a=text, n=1) == []
    assert wrong(schema(of), a=text, n="x") == [("/n", "type")]
    assert wrong(schema(of), a=7, n=1) == [("/a", "type")]
    assert wrong(schema(of), a="x", n=1) == [("/a", "pattern")]


def test_a_long_text_beside_one_with_a_pattern_changes_nothing() -> None:
    of = {"type": "string", "pattern": r"^[\w-]{1,64}$"}
    assert wrong(schema(of), a="no spaces", text=ENGLISH * 5) == [("/a", "pattern")]
    assert wrong(schema(of), a="fine", text=ENGLISH * 5) == []


@pytest.mark.parametrize(
    "more",
    [
        {"not": {"properties": {"a": {"pattern": EVERY_LENGTH}}}},
        {"if": {"properties": {"a": {"pattern": EVERY_LENGTH}}}, "then": False},
        {"oneOf": [{"properties": {"a": {"pattern": EVERY_LENGTH}}}, True]},
        {"patternProperties": {EVERY_LENGTH: False}},
        {"properties": {"a": {"contains": {"pattern": EVERY_LENGTH}}}},
        {"allOf": [{"properties": {"a": {"const": {"pattern": EVERY_LENGTH}}}}, {"pattern": "x"}]},
    ],
)
def test_where_the_rest_would_mean_something_else_without_its_patterns_all_is_left_to_the_server(more: Any) -> None:
    judge = schema({"type": "string"}, **more)
    assert not judge.problem and wrong(judge, a="a" * 110_000, n="x") == []


@pytest.mark.parametrize(
    ("of", "held"),
    [
        ({"type": "string", "pattern": "^x$"}, {"a"}),
        ({"items": {"pattern": "^x$"}}, {"a"}),
        ({"type": "string"}, set[str]()),
        ({"properties": {"pattern": {"type": "string"}}}, set[str]()),
        ({"$ref": "#/$defs/x"}, {"a"}),
    ],
)
def test_patterns_are_held_against_the_members_that_have_them(of: Any, held: set[str]) -> None:
    assert schema(of, **{"$defs": {"x": {"pattern": "^x$"}}}).members == held


@pytest.mark.parametrize(
    "more",
    [
        {"pattern": "x"},
        {"$ref": "#/properties/a"},
        {"patternProperties": {"x": True}},
        {"additionalProperties": {"pattern": "x"}},
        {"allOf": [{"properties": {"n": {"pattern": "x"}}}]},
    ],
)
def test_or_against_any_where_that_is_not_to_be_seen(more: Any) -> None:
    assert schema({"type": "string"}, **more).members is None


DIGITS = 10**20
TINY = {"allOf": [{"multipleOf": float(f"1e-{number}")} for number in range(300, 308)]}


@pytest.mark.parametrize(
    ("of", "value", "right"),
    [
        ({"uniqueItems": True}, [DIGITS + number for number in range(3000)], [1, 2]),
        ({"allOf": [{"uniqueItems": True, "title": str(n)} for n in range(30)]}, list(map(str, range(5000))), [1, 2]),
        ({"uniqueItems": True}, [[number] for number in range(2000)], [[1], [2]]),
        (
            {"items": {"enum": [number + 0.5 for number in range(2000)]}},
            [number + 0.25 for number in range(12_000)],
            [],
        ),
        ({"items": {"enum": [{"a": number} for number in range(1000)]}}, [{"b": number} for number in range(3000)], []),
        ({"items": {"enum": [DIGITS + number for number in range(1000)]}}, [DIGITS - each for each in range(1000)], []),
        ({"items": TINY}, list(range(18_000)), []),
    ],
    ids=["long numbers", "often", "lists", "fractions", "objects", "long ones of a kind", "parts"],
)
def test_comparing_numbers_and_items_counts(of: Any, value: Any, right: Any) -> None:
    judge = schema(of)
    assert not judge.problem and wrong(judge, a=value, n="x") == [], "it is left to the server"
    assert wrong(judge, a=right, n="x") == [("/n", "type")]


def test_usual_lists_are_still_checked() -> None:
    assert wrong(schema({"items": {"type": "string"}, "uniqueItems": True}), a=["x"] * 2) == [("/a", "uniqueItems")]
    names = [f"name {number}" for number in range(500)]
    assert wrong(schema({"uniqueItems": True}), a=[*names, names[0]]) == [("/a", "uniqueItems")]
    assert wrong(schema({"uniqueItems": True}), a=names) == []
    assert wrong(schema({"items": {"multipleOf": 0.01}}), a=[0.5] * 5000, n="x") == [("/n", "type")]
    assert wrong(schema({"enum": [f"x{number}" for number in range(1000)]}), a="y") == [("/a", "enum")]


@pytest.mark.parametrize("of", [{"const": "x" * 200_000}, {"enum": ["x" * 100_000, "y" * 100_000]}])
def test_of_many_errors_that_would_repeat_a_large_schema_one_is_told(of: Any) -> None:
    verdict = schema({"items": of}).judge(json.dumps({"a": [1] * 1500}).encode())
    assert len(verdict.wrong) == 1 and not verdict.is_whole
    few = schema({"items": of}).judge(json.dumps({"a": [1, 1]}).encode())
    assert len(few.wrong) == 2 and few.is_whole


@pytest.mark.parametrize("of", [r"\S" * 316, r"\s" * 316, r"\d" * 200])
def test_a_pattern_of_hundreds_of_classes_is_not_compiled(of: str) -> None:
    assert schema({"pattern": of}).problem == "its patterns have too many classes of characters"
    assert not schema({"pattern": r"^\s*\S+(\s\d+)*$"}).problem


def test_the_size_of_a_pattern_is_found_in_few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    import jsonschema_rs

    tried: list[Any] = []
    made = jsonschema_rs.validator_for
    monkeypatch.setattr(jsonschema_rs, "validator_for", lambda *of, **more: tried.append(of) or made(*of, **more))
    assert schema({"pattern": "^plain$"}).matched == 4096 and len(tried) == 2  # with it, and without
    tried.clear()
    assert 4096 < schema({"pattern": "(?:.{1,60}){1,16}§!"}).matched <= 2 * 1024 * 1024 and len(tried) <= 7
