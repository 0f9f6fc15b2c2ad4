"""Arguments in headers: which are, how they are written, and that header and argument are held against each other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp.shared.inbound import find_invalid_x_mcp_header, validate_mcp_param_headers
from msgspec import Raw

from toolgate.core import jsonrpc
from toolgate.core.fault import Fault
from toolgate.eras import header_arguments

REGION = {"type": "string", "x-mcp-header": "Region"}


def tool(schema: Any) -> Raw:
    return Raw(json.dumps({"name": "t", "inputSchema": schema}).encode())


def object_of(**properties: Any) -> Any:
    return {"type": "object", "properties": properties}


def sent(schema: Any, arguments: Any) -> dict[str, str]:
    found = header_arguments.write(header_arguments.of_tool(tool(schema)), Raw(json.dumps(arguments).encode()))
    return {name.decode(): value.decode() for name, value in found}


def mismatch(schema: Any, arguments: Any, headers: dict[str, str]) -> str:
    try:
        header_arguments.check(header_arguments.of_tool(tool(schema)), Raw(json.dumps(arguments).encode()), headers)
    except Fault as fault:
        assert fault.code == "HEADER_MISMATCH"
        return fault.message
    return ""


@pytest.mark.promise("spec.2026.headers.param")
@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_a_value_is_written_as_the_specification_shows_it(value: str, header: str) -> None:
    assert sent(object_of(region=REGION), {"region": value}) == {"Mcp-Param-Region": header}


def test_values_of_all_three_types_and_nested_ones_are_mirrored_and_absent_ones_are_not() -> None:
    inner = object_of(n={"type": "integer", "x-mcp-header": "N"}, on={"type": "boolean", "x-mcp-header": "On"})
    schema = object_of(region=REGION, inner=inner)
    assert sent(schema, {"region": "a", "inner": {"n": -7, "on": True}}) == {
        "Mcp-Param-Region": "a",
        "Mcp-Param-N": "-7",
        "Mcp-Param-On": "true",
    }
    assert sent(schema, {"region": None, "inner": {"n": 42.0}}) == {"Mcp-Param-N": "42"}
    assert sent(schema, {"inner": 1}) == {}
    assert sent(schema, {"inner": {"n": 2**60}}) == {}


def test_a_number_where_a_text_is_due_stands_in_its_header_as_in_the_arguments() -> None:
    integer = {"type": "integer", "x-mcp-header": "N"}
    assert sent(object_of(region=REGION), {"region": 2.0}) == {"Mcp-Param-Region": "2.0"}
    assert sent(object_of(n=integer), {"n": 2.0}) == {"Mcp-Param-N": "2"}
    assert sent(object_of(n=integer), {"n": 2.5}) == {"Mcp-Param-N": "2.5"}
    assert not mismatch(object_of(region=REGION), {"region": 2.0}, {"mcp-param-region": "2"})


@pytest.mark.parametrize(
    "schema",
    [
        object_of(a={"type": "number", "x-mcp-header": "A"}),
        object_of(a={"type": ["string"], "x-mcp-header": "A"}),
        object_of(a={"x-mcp-header": "A"}),
        object_of(a={"type": "string", "x-mcp-header": ""}),
        object_of(a={"type": "string", "x-mcp-header": "A B"}),
        object_of(a={"type": "string", "x-mcp-header": "A\r\nB"}),
        object_of(a={"type": "string", "x-mcp-header": 7}),
        object_of(a=REGION, b={"type": "string", "x-mcp-header": "REGION"}),
        object_of(a={"type": "array", "items": REGION}),
        object_of(a={"anyOf": [REGION]}),
        object_of(a={"not": {"properties": {"b": REGION}}}),
        {"type": "object", "x-mcp-header": "A"},
        {"type": "object", "$defs": {"a": REGION}},
        {"type": "object", "if": object_of(a=REGION)},
        {"type": "object", "patternProperties": {".": REGION}},
    ],
)
def test_an_annotation_that_breaks_the_rules_spoils_the_tool(schema: Any) -> None:
    with pytest.raises(header_arguments.Invalid):
        header_arguments.of_tool(tool(schema))
    assert find_invalid_x_mcp_header(schema)


def test_an_annotation_that_is_only_data_is_none() -> None:
    assert header_arguments.of_tool(tool(object_of(a={"type": "object", "default": {"x-mcp-header": "A"}}))) == ()
    assert header_arguments.of_tool(tool({"enum": [REGION]})) == ()


@pytest.mark.promise("spec.2026.headers.param")
def test_a_header_and_its_argument_must_agree() -> None:
    schema = object_of(region=REGION, n={"type": "integer", "x-mcp-header": "N"})
    assert not mismatch(schema, {"region": "a", "n": 42}, {"mcp-param-region": "a", "mcp-param-n": "42.0"})
    assert not mismatch(schema, {"region": None}, {"mcp-param-other": "x"})
    assert mismatch(schema, {"region": "a"}, {}).endswith("Mcp-Param-Region is missing")
    assert mismatch(schema, {}, {"mcp-param-region": "a"}).endswith("matches no argument")
    assert mismatch(schema, {"region": "a"}, {"mcp-param-region": "b"}).endswith("differs from its argument")
    assert mismatch(schema, {"region": "a"}, {"mcp-param-region": "=?base64?*?="}).endswith("differs from its argument")
    assert mismatch(schema, {"n": 42}, {"mcp-param-n": "nan"}).endswith("differs from its argument")


types = st.sampled_from(["string", "integer", "boolean", "number", "object"])
names = st.sampled_from(["A", "a", "B", "", "x y", "Region"])
leaves = st.fixed_dictionaries({"type": types}, optional={"x-mcp-header": names})
schemas = st.recursive(
    leaves,
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "items": inner,
            "allOf": st.lists(inner, max_size=2),
        },
    ),
    max_leaves=6,
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4) | st.sampled_from([2.0, 2.5]),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(schemas, values.filter(lambda value: isinstance(value, dict)))
@example(object_of(b=REGION), {"b": 2.0})
@example(object_of(b={"type": "boolean", "x-mcp-header": "B"}), {"b": 2.0})
@example(object_of(b={"type": "integer", "x-mcp-header": "B"}), {"b": 2.5})
def test_what_is_written_is_what_the_official_check_takes(schema: Any, arguments: Any) -> None:
    try:
        found = header_arguments.of_tool(tool(schema))
    except header_arguments.Invalid:
        assert find_invalid_x_mcp_header(schema)
        return
    assert not find_invalid_x_mcp_header(schema)
    headers = sent(schema, arguments)
    lower = {name.lower(): value for name, value in headers.items()}
    header_arguments.check(found, Raw(json.dumps(arguments).encode()), lower)
    assert validate_mcp_param_headers(schema, arguments, headers) is None


def test_of_large_arguments_only_what_headers_repeat_is_read(monkeypatch: Any) -> None:
    schema = object_of(region=REGION, inner=object_of(on={"type": "boolean", "x-mcp-header": "On"}))
    read: list[bytes] = []
    value = jsonrpc.value

    def noted(raw: Raw) -> Any:
        read.append(bytes(raw))
        return value(raw)

    monkeypatch.setattr(jsonrpc, "value", noted)
    arguments = {"a": ["x" * 1000] * 1000, "region": "here", "inner": {"on": True, "b": {"c": [1] * 1000}}}
    assert sent(schema, arguments) == {"Mcp-Param-Region": "here", "Mcp-Param-On": "true"}
    assert read == [b'"here"', b"true"]


def test_an_argument_that_no_header_can_hold_is_refused() -> None:
    with pytest.raises(Fault, match=r"region is repeated in a header, and what is repeated may have 65,536 bytes"):
        sent(object_of(region=REGION), {"region": "x" * header_arguments.LONGEST})


def many(count: int) -> dict[str, Any]:
    return {f"a{n}": {"type": "string", "x-mcp-header": f"A{n}"} for n in range(count)}


def test_all_that_headers_repeat_has_room_in_a_head() -> None:
    """240 arguments of 64 KiB each took a step of 0.35 s in each call."""
    with pytest.raises(Fault, match=r"a2 is repeated in a header"):
        sent(object_of(**many(3)), {f"a{n}": "x" * 30_000 for n in range(3)})
    assert len(sent(object_of(**many(3)), {f"a{n}": "x" * 20_000 for n in range(3)})) == 3


@pytest.mark.parametrize("depth", [0, 1, 9])
def test_an_object_is_read_once_however_many_of_its_members_headers_repeat(
    monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    """A tool with 3,000 of them in one object stopped the gateway for 21 s when that had 15 MB."""
    schema, arguments = object_of(**many(100)), {f"a{n}": f"{n}" for n in range(0, 100, 2)}
    for _ in range(depth):
        schema, arguments = object_of(inner=schema), {"inner": arguments}
    members, read = jsonrpc.members, list[bytes]()

    def noted(raw: Raw) -> Any:
        read.append(bytes(raw))
        return members(raw)

    monkeypatch.setattr(jsonrpc, "members", noted)
    assert len(sent(schema, arguments)) == 50
    assert len(read) == depth + 1


def test_a_tool_maps_no_more_arguments_to_headers_than_a_head_has_room_for() -> None:
    with pytest.raises(header_arguments.Invalid, match="more than 100 arguments map to headers"):
        sent(object_of(**many(101)), {})


def test_large_objects_one_in_another_are_not_read_level_by_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_arguments, "MOST_READ", 100_000)
    schema, arguments = object_of(region=REGION), {"region": "here", "junk": "x" * 20_000}
    for _ in range(2):
        schema, arguments = object_of(inner=schema), {"inner": arguments}
    assert sent(schema, arguments) == {"Mcp-Param-Region": "here"}
    for _ in range(3):
        schema, arguments = object_of(inner=schema), {"inner": arguments}
    with pytest.raises(Fault, match="may have 100,000 bytes in all"):
        sent(schema, arguments)
