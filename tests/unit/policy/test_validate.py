"""Arguments against schemas: what passes, what is refused in which words, and what no schema can do to the gateway."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, ToolInfo
from toolgate.policy import schemas
from toolgate.policy.base import Wait
from toolgate.policy.schemas import FINE, compiled
from toolgate.policy.validate import Validate

ECHO = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "minLength": 3},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "mode": {"enum": ["fast", "slow"]},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    },
    "required": ["message"],
    "additionalProperties": False,
}


def call(schema: Any, arguments: Any = None, **more: Any) -> Call:
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    tool_info = ToolInfo(schema=text)
    raw = {} if arguments is None else {"arguments": json.dumps(arguments).encode()}
    return Call(
        **{
            "method": "tools/call",
            "target": "echo",
            "client": Client(),
            "server": "docs",
            "tool_info": tool_info,
            **raw,
            **more,
        }
    )


def decided(policy: Validate, given: Call) -> Call | Wait:
    """What it decides in the end, also where it has to wait for a thread."""
    decision = policy.before(given, False)
    return policy.before(given, False, asyncio.run(judged(decision))) if isinstance(decision, Wait) else decision


async def judged(wait: Wait) -> Any:
    return await wait.until()


def refused(schema: Any, arguments: Any = None) -> Fault:
    with pytest.raises(Fault) as raised:
        decided(Validate(), call(schema, arguments))
    return raised.value


def passes(schema: Any, arguments: Any = None, **more: Any) -> bool:
    given = call(schema, arguments, **more)
    return decided(Validate(), given) is given


def wrong(schema: Any, arguments: Any) -> dict[str, str]:
    return {each.pointer: each.message for each in compiled(json.dumps(schema).encode()).judge(dumped(arguments)).wrong}


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_what_has_a_default_is_not_missed_though_the_schema_requires_it() -> None:
    """As schemas have it that are made of what a server works with, in which all defaults are filled in."""
    scale = {"type": "object", "properties": {"scale": {"enum": ["css"], "default": "css"}, "n": {}}}
    required = scale | {"required": ["scale", "n"]}
    assert passes(required, {"n": 1}) and passes(scale | {"required": ["scale"]})
    assert wrong(required, {"scale": "css"}) == {"/n": "is required"}
    assert wrong(required, {"scale": "x", "n": 1}) == {"/scale": 'must be one of "css"'}
    inside = {"type": "object", "properties": {"all": {"type": "array", "items": required}}, "required": ["all"]}
    assert passes(inside, {"all": [{"n": 1}]})
    assert wrong(inside, {"all": [{}]}) == {"/all/0/n": "is required"}
    data = {"required": ["a"], "properties": {"a": {"default": 1}}}
    assert passes({"properties": {"const": {"const": data}}}, {"const": data})
    assert passes({"properties": {"required": {"type": "array"}, "properties": {}}}, {"required": ["a"]})


def test_everything_that_is_wrong_is_named_with_its_place() -> None:
    fault = refused(ECHO, {"count": "x", "mode": "warp", "tags": ["a", 1], "new/na~me": 1})
    assert (fault.code, fault.rpc, fault.reach) == ("INVALID_ARGS", -32602, "not_sent")
    beginning, *named = fault.message.replace(" for echo: ", "; ", 1).split("; ")
    assert beginning == "Invalid arguments"
    assert sorted(named[:2]) == ["/message: is required", "/new~1na~0me: is not a known argument"]
    assert named[2:] == [
        "/count: must be of type integer",
        '/mode: must be one of "fast", "slow"',
        "/tags/1: must be of type string",
    ]
    data = json.loads(schemas.jsonrpc.encode(fault.data()))
    assert data["errors"][2] == {"pointer": "/count", "keyword": "type", "message": "must be of type integer"}
    assert data["error_count"] == 5
    assert data["schema"] == ECHO
    assert "data." not in data["hint"], "the hint is shown where there is no data, too"


def test_no_message_gives_away_a_value() -> None:
    secret = "hunter2"
    shapes = [secret, [secret], {"a": secret}, [[secret, secret]]]
    keywords: list[Any] = [
        {"type": "integer"},
        {"type": "null"},
        {"enum": ["a"]},
        {"const": 1},
        {"maxLength": 1, "maxItems": 0, "maxProperties": 0},
        {"minLength": 99, "minItems": 9, "minProperties": 9},
        {"pattern": "^z", "format": "ipv4"},
        {"not": {}},
        {"anyOf": [{"type": "null"}, {"const": 5}, {"items": {"type": "integer"}}]},
        {"oneOf": [{}, True]},
        {"uniqueItems": True, "items": False, "additionalProperties": {"type": "integer"}},
        {"contains": {"type": "null"}},
        False,
    ]
    for keyword in keywords:
        for shape in shapes:
            found = compiled(dumped({"properties": {"p": keyword}})).judge(dumped({"p": shape}))
            assert secret not in repr(found)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"const": {"z": 1}}, 2, 'must be {"z":1}'),
        ({"exclusiveMinimum": 0}, 0, "must be greater than 0"),
        ({"multipleOf": 3}, 4, "must be a multiple of 3"),
        ({"maxLength": 2}, "abc", "must have at most 2 characters"),
        ({"pattern": "^a"}, "b", 'must match "^a"'),
        ({"minItems": 2}, [1], "must have at least 2 items"),
        ({"type": ["string", "null"]}, 1, "must be of type null or string"),
        ({"enum": list(range(30))}, "x", "must be one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 or one of 20 more"),
        ({"not": {"type": "string"}}, "x", "matches a forbidden schema"),
        (False, 1, "is not allowed"),
        ({"oneOf": [{"type": "number"}, {"minimum": 1}]}, 3, "matches several alternatives but must match exactly one"),
        (
            {"anyOf": [{"type": "string"}, {"properties": {"k": {"type": "integer"}}, "required": ["n"]}]},
            {"k": "x"},
            "matches none of 2 alternatives; nearest: /n is required; /k must be of type integer",
        ),
    ],
)
def test_errors_say_what_was_expected(schema: Any, value: Any, message: str) -> None:
    assert wrong({"properties": {"p": schema}}, {"p": value}) == {"/p": message}


def test_missing_arguments_are_none() -> None:
    assert "/message: is required" in refused(ECHO).message
    assert passes({"type": "object", "properties": {"a": {"type": "string"}}})


@pytest.mark.parametrize("schema", [b"", b"{}", b"true", b'{"type":"object"}', b'{"type": "object"}', b'{"x-own":1}'])
def test_a_schema_that_says_nothing_lets_everything_pass(schema: bytes) -> None:
    assert passes(schema, {"anything": [1]})


def test_only_calls_of_listed_tools_are_judged() -> None:
    assert passes(ECHO, {}, tool_info=None)
    assert passes(ECHO, {}, method="prompts/get")
    given = call(ECHO, {})
    assert Validate(frozenset({"docs"})).before(given, False) is given
    assert Validate().before(given, True) is given


def test_errors_are_told_in_the_names_that_were_shown() -> None:
    """Where an overlay has renamed a tool and its parameters."""
    shown = b'{"properties":{"text":{"type":"string"}},"required":["text"]}'
    tool_info = ToolInfo(schema=dumped(ECHO), shown="say", shown_schema=shown, parameters={"message": "text"})
    with pytest.raises(Fault) as raised:
        Validate().before(call(ECHO, {"message": "x"}, tool_info=tool_info), False)
    assert raised.value.message == "Invalid arguments for say: /text: must have at least 3 characters"
    assert bytes(raised.value.extra["schema"]) == shown
    assert [each.pointer for each in raised.value.extra["errors"]] == ["/text"]


def test_many_errors_are_counted() -> None:
    fault = refused({"properties": {"l": {"items": {"type": "string"}}}}, {"l": [1] * 50})
    assert fault.message.endswith("/l/19: must be of type string; and 30 more")
    assert fault.extra["error_count"] == 50


def test_of_very_many_parts_the_first_error_is_named() -> None:
    fault = refused({"properties": {"l": {"items": {"type": "string"}}}}, {"l": [1] * 50_000})
    assert fault.message == "Invalid arguments for echo: /l/0: must be of type string; and possibly more"


def test_of_very_many_errors_of_few_parts_the_first_is_named() -> None:
    names = [f"x{number}" for number in range(3000)]
    assert (
        not compiled(dumped({"properties": {"l": {"items": {"required": names}}}}))
        .judge(dumped({"l": [{}] * 1200}))
        .is_whole
    )


def test_a_long_text_is_one_part() -> None:
    arguments = {"text": "a, b: c, " * 50_000, "n": "x", "m": "y"}
    assert wrong({"properties": {"n": {"type": "integer"}, "m": {"type": "integer"}}}, arguments).keys() == {"/n", "/m"}


def test_a_large_schema_is_not_sent_with_every_error() -> None:
    fault = refused({**ECHO, "description": "x" * 20_000}, {})
    assert "schema" not in fault.extra
    assert "the tool's schema is in tools/list" in fault.hint


@pytest.mark.parametrize(
    ("dialect", "old", "new"),
    [
        ("http://json-schema.org/draft-04/schema#", False, True),
        ("http://json-schema.org/draft-06/schema#", False, True),
        ("http://json-schema.org/draft-07/schema#", False, True),
        ("https://json-schema.org/draft/2019-09/schema", False, True),
        ("https://json-schema.org/draft/2020-12/schema", True, False),
        (None, True, False),
    ],
)
def test_a_schema_is_read_in_its_own_dialect(dialect: str | None, old: bool, new: bool) -> None:
    """Up to 2019-09 a list under `items` is one schema for each place; 2020-12 writes that `prefixItems`."""
    schema = {"properties": {"l": {"prefixItems": [{"type": "string"}]}}} | ({"$schema": dialect} if dialect else {})
    assert bool(wrong(schema, {"l": [1]})) == old
    if not old:
        schema["properties"] = {"l": {"items": [{"type": "string"}]}}
        assert bool(wrong(schema, {"l": [1]})) == new


def test_formats_are_annotations() -> None:
    for dialect in ("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"):
        assert passes({"$schema": dialect, "properties": {"e": {"format": "email"}}}, {"e": "none"})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "file:///etc/hostname"},
        {"properties": {"a": {"$ref": "other.json"}}},
        {"$id": "file:///etc/", "$ref": "hostname"},
        {"$ref": "#/nowhere"},
        {"$schema": "http://example.com/own-dialect"},
        {"type": "nonsense"},
        {"properties": {"a": {"pattern": "("}}},
        [],
        5,
        None,
        b"{broken",
        {"$ref": "#"},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/a"}]}}},
        b'{"not":' * 500 + b"{}" + b"}" * 500,
        {"description": "x" * 300_000},
    ],
)
def test_a_schema_that_cannot_be_used_is_told_once_and_the_call_goes_on(
    schema: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "_kept", schemas.Kept())
    policy, given = Validate(), call(schema, {"a": 1})
    with caplog.at_level(logging.WARNING):
        assert [decided(policy, given) is given for _ in range(3)] == [True] * 3
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "docs: the schema of echo cannot be used" in record.getMessage()


def test_no_schema_makes_anybody_read_a_file_or_connect(tmp_path: Path) -> None:
    there = tmp_path / "schema.json"
    there.write_text('{"required":["x"]}')
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        port = listening.getsockname()[1]
        for reference in (there.as_uri(), f"http://127.0.0.1:{port}/schema.json", f"http://localhost:{port}"):
            for schema in ({"$ref": reference}, {"properties": {"a": {"$ref": reference}}}, {"$schema": reference}):
                problem = compiled(dumped(schema)).problem
                assert "Retrieval is disabled" in problem or "Unknown meta-schema" in problem
        with pytest.raises(BlockingIOError):
            listening.accept()


def doubling(levels: int) -> dict[str, Any]:
    each = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": {**each, f"a{levels}": {"required": ["x"]}}}


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def test_a_schema_that_doubles_its_work_is_not_run() -> None:
    assert compiled(dumped(doubling(5))).judge(b"{}").count
    assert compiled(dumped(doubling(60))).judge(b"{}") is FINE
    twice = {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "minProperties": 1}
    assert compiled(dumped(twice)).judge(dumped(nested(3))).count
    assert compiled(dumped(twice)).judge(dumped(nested(60))) is FINE
    by_id = {"$id": "http://x/y", **doubling(60)} | {"$ref": "http://x/y#/$defs/a0"}
    assert compiled(dumped(by_id)).judge(b"{}") is FINE
    left_over: Any = {"required": ["x"]}
    for _ in range(40):
        left_over = {"allOf": [left_over], "unevaluatedProperties": False, "properties": {"a": {}}}
    assert compiled(dumped(left_over)).judge(b'{"a":1}') is FINE
    anchors = {f"a{n}": {"$anchor": f"a{n}", "anyOf": [{"$ref": f"#a{n + 1}"}] * 2} for n in range(60)}
    anchored = {"$ref": "#a0", "$defs": {**anchors, "a60": {"$anchor": "a60", "required": ["x"]}}}
    assert compiled(dumped(anchored)).judge(b"{}") is FINE


def test_recursion_as_people_write_it_is_judged() -> None:
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "value": {"type": "integer"}}}
    value: Any = {"value": "x"}
    for _ in range(40):
        value = {"left": value, "right": {"value": 1}}
    assert list(wrong(tree, value)) == ["/left" * 40 + "/value"]
    condition = {
        "properties": {"all": {"items": {"$ref": "#"}}, "any": {"items": {"$ref": "#"}}, "is": {"type": "string"}}
    }
    assert wrong(condition, {"all": [{"any": [{"is": "x"}, {"is": 1}]}]}).keys() == {"/all/0/any/1/is"}
    kinds = [{"properties": {"kind": {"const": n}, "parts": {"items": {"$ref": "#"}}}} for n in range(4)]
    assert wrong({"anyOf": kinds}, {"kind": 1, "parts": [{"kind": 2}, {"kind": 7}]})


def test_a_pattern_that_explodes_is_bounded_and_held_against_nobody() -> None:
    looking = {"properties": {"l": {"items": {"pattern": r"^(a|aa)+\1?$"}}, "n": {"type": "integer"}}}
    assert compiled(dumped(looking)).judge(dumped({"l": ["a" * 5000 + "!"]})) is FINE
    assert compiled(dumped(looking)).judge(dumped({"l": ["a" * 50 + "!"] * 20_000})) is FINE
    assert wrong(looking, {"l": ["b"]}) == {"/l/0": 'must match "^(a|aa)+\\\\1?$"'}
    linear = {"properties": {"l": {"items": {"pattern": "^(a+)+$"}}}}
    assert wrong(linear, {"l": ["a" * 5000 + "!"]}).keys() == {"/l/0"}
    assert compiled(dumped(linear)).work.visits(9) < 10 < compiled(dumped(looking)).work.visits(9)
    assert wrong({"properties": {"p": {"pattern": "^(?!x).*[A-Z]"}}}, {"p": "x"}).keys() == {"/p"}


def test_arguments_that_cannot_be_read_here_are_left_to_the_server() -> None:
    schema = compiled(dumped(ECHO))
    assert schema.judge(b'{"message":"\xff","x":1}') is FINE
    assert schema.judge(b'{"a":' * 2000 + b"1" + b"}" * 2000) is FINE


def test_numbers_are_what_json_says() -> None:
    assert passes(ECHO, {"message": "abc", "count": 3.0})
    assert passes({"properties": {"n": {"type": "integer"}}}, {"n": 10**40})


def test_starting_up_does_not_import_the_validator() -> None:
    code = "import sys, toolgate.app, toolgate.policy.chain; print('jsonschema_rs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
