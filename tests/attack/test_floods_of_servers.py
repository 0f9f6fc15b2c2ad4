"""A server that sends much for the gateway to read, or asks without end: everybody else is served meanwhile, and none
of it is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inmemory import Scripted, Visitor, gateway, said, tools

from toolgate.config import CatalogLimits, Config
from toolgate.policy import schemas
from toolgate.policy.schemas import FINE, compiled


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def patterns(pattern: str, count: int) -> bytes:
    return dumped({"properties": {"a": {"anyOf": [{"pattern": f"{pattern}{number}"} for number in range(count)]}}})


# Schemas.


@pytest.mark.parametrize(
    "text",
    [
        patterns(r"\pL{100}", 150),
        patterns(r"(?=\pL{100})\pL{100}", 100),
        dumped({"patternProperties": {rf"\pL{{60}}{number}": {} for number in range(1000)}}),
        patterns("^[a-z]+", 5000),
        dumped({"allOf": [{}] * 60_000}),
        dumped({"$defs": {str(n): {"$anchor": "a"} for n in range(3000)}, "allOf": [{"$ref": "#a"}] * 5000}),
    ],
    ids=["letters", "look around", "names", "many", "values", "anchors"],
)
def test_a_schema_that_would_take_long_to_compile_is_not_used(text: bytes) -> None:
    assert compiled(text).problem


def test_patterns_as_servers_have_them_are_used() -> None:
    for pattern in (r"^[\w.-]{1,255}$", r"^\p{L}+$", r"^.{1,4096}$", r"^(?=.*[A-Z])(?=.*[0-9]).{8,}$", r"\pL{100}"):
        schema = compiled(dumped({"properties": {"a": {"pattern": pattern}}}))
        assert not schema.problem
        assert schema.judge(dumped({"a": ""})) != FINE


def test_what_compiled_schemas_take_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "_kept", kept := {})
    monkeypatch.setattr(schemas, "_room", schemas.MOST_KEPT)
    for number in range(40):
        assert not compiled(patterns(rf"\pL{{80}}{number}", 1)).problem
    assert sum(each.size for each in kept.values()) <= schemas.MOST_KEPT
    assert 5 < len(kept) < 40


@pytest.mark.parametrize("pattern", [r"(?=a)(a|b)*c$", r"[01].{1000}!", r"^(a+)+\1$"])
def test_a_long_text_is_not_held_against_a_pattern_that_takes_long(pattern: str) -> None:
    schema = compiled(dumped({"properties": {"a": {"pattern": pattern}}}))
    assert schema.judge(dumped({"a": "b"})).wrong
    assert schema.judge(dumped({"a": "ab01" * 1_000_000})) == FINE  # after an hour, otherwise


def test_arguments_nested_deeper_than_the_validator_goes_are_left_to_the_server() -> None:
    schema = compiled(dumped({"properties": {"a": {"items": {"type": "string"}}}}))
    assert schema.judge(b'{"a":[%b%b]}' % (b"[" * 500, b"]" * 500)) == FINE


# Lists.


def endless(params: Any) -> Any:
    page = int(params.get("cursor", 0))
    return tools(*(f"t{page}_{number}" for number in range(1000))) | {"nextCursor": str(page + 1)}


LONG: dict[str, Any] = {
    "too many items": tools(*(f"tool_{number}" for number in range(10_001))),
    "too many bytes": tools("act", description="x" * 8_500_000),
    "too many values": b'{"tools":[' + b"{}," * 1_100_000 + b"{}]}",
    "no end": endless,
}


@pytest.mark.parametrize("kind", LONG)
async def test_a_list_that_is_too_long_is_not_read_and_the_others_are_shown(kind: str) -> None:
    scripts = {"calm": Scripted(tools_list=tools("rest")), "wild": Scripted(tools_list=LONG[kind])}
    async with gateway(scripts=scripts) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        listed = (await visitor.ask("tools/list")).result
        assert [tool["name"] for tool in listed["tools"]] == ["calm__rest"]
        [failure] = listed["_meta"]["failures"]
        assert failure["server_id"] == "wild"
        assert "too long" in failure["error"]
        asked = [request for request in scripts["wild"].requests if request["method"] == "tools/list"]
        assert len(asked) <= 2 * 11  # once to introduce it, and once more


async def test_how_long_a_list_may_be_is_configured() -> None:
    few = Config(catalog=CatalogLimits(items=2))
    for names, is_read in ((("a", "b"), True), (("a", "b", "c"), False)):
        async with gateway(scripts={"there": Scripted(tools_list=tools(*names))}, config=few) as app:
            visitor = Visitor(app)
            await visitor.initialize()
            response = await visitor.ask("tools/list")
            assert ("result" in response.last) is is_read
            assert is_read or "more than 2 items (catalog.items)" in response.error["message"]


async def test_as_many_tools_as_may_be_are_listed_and_called() -> None:
    names = [f"tool_{number}" for number in range(10_000)]
    script = Scripted(tools_list=tools(*names), tools_call=said("called"))
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        assert len((await visitor.ask("tools/list")).result["tools"]) == 1000
        called = await visitor.ask("tools/call", name="there__tool_9999", arguments={})
        assert called.result["content"] == said("called")["content"]
