"""The official TypeScript client compiles the output schemas of all tools of a list, with Ajv, before it shows any of
them. One that does not compile there, takes minutes, or has a name that another one has, costs it the tools of all
servers: it is left out, and the tool stays. What compiles where is recorded from that client (1.32), with Node 20."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from inmemory import LATEST, MODERN, Json, Scripted, Visitor, gateway, said
from msgspec import Raw
from virtualtime import FakeClock, settle

from toolgate.catalog.base import ServerList
from toolgate.catalog.cache import CatalogCache
from toolgate.core.steps import at_once
from toolgate.eras import output_schemas
from toolgate.eras.output_schemas import MOST_OF_LIST, MOST_PARTS, OutputSchemas
from toolgate.state.memory import MemoryStore
from toolgate.upstreams.component import metadata


def of(schema: Any, **more: Any) -> Json:
    return {"type": "object", "properties": {"a": schema}, **more}


def defs(**defined: Any) -> Json:
    return of({"$ref": "#/$defs/a"}, **{"$defs": defined})


THROW: list[Json] = [
    of({"$ref": "#/$defs/x"}),
    of({"$ref": "https://example.com/x"}),
    of({"$ref": "https://json-schema.org/draft/2020-12/schema"}),
    of({"$ref": 5}),
    of({"$ref": "#/properties/a"}),  # endlessly
    {"type": "object", "properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}}},
    of({"$ref": "#/properties/%zz"}),
    of({"$ref": f"#/properties/a/anyOf/{'1' * 5000}"}, anyOf=[{}]),
    of({"id": "x"}),
    {"type": "object", "id": "x"},
    defs(a={"$anchor": "x"}, b={"$anchor": "x", "type": "string"}),
    of({"$anchor": "a b"}),
    {"type": "object", "foo": {"a": {"$id": "#a"}}, "bar": {"$id": "#a", "type": "string"}},
    *(of({"type": kind}) for kind in ("any", 5, ["string", "any"], [None])),
    *(of({"nullable": True, **more}) for more in ({}, {"anyOf": [{"type": "string"}]}, {"$ref": "#"})),
    of({"type": ["string", "null"], "nullable": False}),
    of({"type": "string", "nullable": "yes"}),
    *(of({"pattern": each}) for each in ("(", r"\-", "(?P<a>x)", "(?i)x", "{", r"^a\Z", r"[\w-a]", "a{2,1}", 5)),
    of({"patternProperties": {"(": {"type": "string"}}}),
    *(of({"format": each}) for each in (5, {})),
    of({"formatMinimum": "2020"}),
    of({"format": "email", "formatMinimum": "x"}),
    *(of({"enum": each}) for each in ([], {}, "x")),
    *(of({"required": each}) for each in (True, {}, "a")),
    of({"minimum": "1"}),
    of({"minimum": 1, "exclusiveMinimum": True}),  # as draft-04 has it
    of({"minimum": {"$data": "1/b"}}),
    of({"multipleOf": "x"}),
    *(of({"items": each}) for each in ("x", None, 5)),
    *(of({"additionalProperties": each}) for each in ("x", None)),
    *(of({"properties": each}) for each in ([], [{}], 5, {"b": None})),
    of({"patternProperties": []}),
    of({"allOf": {}}),
    of({"anyOf": [None]}),
    *(of({word: None}) for word in ("not", "if", "then", "contains", "propertyNames")),
    of({"dependencies": {"a": None}}),
    of({"uniqueItems": "yes"}),
    of({"$async": True, "type": "string"}),
    of({"items": [{}], "additionalItems": 5}),
    defs(a={"type": "object", "properties": {"b": {"minLength": "q"}}}),
]
COMPILE: list[Json] = [
    of({"type": "string", "format": "date-time", "description": "é \\ \" '"}),
    of({"type": ["string", "null"], "nullable": True, "title": "x", "default": {"$ref": "#/nope", "$id": 5}}),
    of({"$ref": "#/$defs/a b"}, **{"$defs": {"a b": {"type": "string"}}}),
    of({"$ref": "#/$defs/a%20b"}, **{"$defs": {"a b": {"type": "string"}}}),
    of({"$ref": "#/$defs/a~1b"}, **{"$defs": {"a/b": {"type": "string"}}}),
    of({"$ref": "#/anyOf/0"}, anyOf=[{"type": "object"}]),
    defs(a={"type": "object", "properties": {"next": {"$ref": "#/$defs/a"}, "all": {"$ref": "#"}}}),
    {"type": "object", "properties": {name: {"type": "string"} for name in ("$id", "id", "$ref", "pattern", "enum")}},
    of({"enum": [{"$id": "x"}, {"$id": "x", "a": 1}], "const": {"$anchor": 5}, "examples": [{"$id": 1}]}),
    of({"pattern": r"^(\d{4})-(?:[\w.-]+|a{2,3})\/$", "patternProperties": {"^x-": True}}),
    of({"prefixItems": [{"type": "string"}], "items": False, "minItems": 1, "uniqueItems": True}),
    of(
        {"items": [{"type": "string"}], "additionalItems": False},
        **{"$schema": "http://json-schema.org/draft-07/schema#"},
    ),
    of({"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"multipleOf": 0.5}}),
    of({"oneOf": [{"const": 1}, {"not": {"required": ["b"]}}], "propertyNames": {"maxLength": 5}}),
    of({"dependencies": {"a": ["b"], "c": {"type": "object"}}, "dependentRequired": {"a": ["b"]}}),
    of(True, additionalProperties=False, required=["a"]),
    of({"x-order": 1, "discriminator": {"propertyName": "a"}, "example": "e"}),
]


def tool(name: str, schema: Any) -> Json:
    return {"name": name, "inputSchema": {"type": "object"}, "outputSchema": schema}


def servers(*schemas: Any) -> dict[str, Scripted]:
    listed = [tool(f"t{number}", schema) for number, schema in enumerate(schemas)]
    return {
        "evil": Scripted(tools_list={"tools": listed}, tools_call=said("done")),
        "quiet": Scripted(tools_list={"tools": [tool("fine", of({"type": "string"}))]}),
    }


async def shown(app: Any, revision: str = LATEST, path: str = "/mcp") -> dict[str, Json]:
    visitor = Visitor(app, path)
    if revision == MODERN:
        listed = (await visitor.ask_modern("tools/list")).result["tools"]
    else:
        await visitor.initialize(revision)
        listed = (await visitor.ask("tools/list")).result["tools"]
    return {each["name"]: each for each in listed}


@pytest.mark.parametrize("revision", ["2024-11-05", LATEST, MODERN])
@pytest.mark.parametrize("number", range(len(THROW)))
async def test_a_schema_that_some_client_cannot_compile_is_left_out_and_the_tool_stays(
    number: int, revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(scripts=servers(THROW[number])) as app:
        found = await shown(app, revision)
        assert "outputSchema" not in found["evil__t0"] and found["evil__t0"]["inputSchema"] == {"type": "object"}
        assert found["quiet__fine"]["outputSchema"] == of({"type": "string"})
        visitor = Visitor(app)
        reply = await visitor.ask_modern("tools/call", name="evil__t0", arguments={})
        assert reply.result["content"] == said("done")["content"]
    assert "evil: ignored the output schema of a tool: " in caplog.text


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("number", range(len(COMPILE)))
async def test_one_that_all_compile_is_the_servers(number: int, revision: str) -> None:
    schema = COMPILE[number]
    async with gateway(scripts=servers(schema)) as app:
        found = (await shown(app, revision))["evil__t0"]["outputSchema"]
        wanted = json.loads(json.dumps(schema).replace('"a": true}', '"a": {}}')) if revision == LATEST else schema
        assert found == wanted
        jsonschema.validators.validator_for(found).check_schema(found)


def test_it_passes_as_the_bytes_that_it_came_in() -> None:
    for schema in COMPILE:
        item = Raw(json.dumps(tool("a", schema), indent=1).encode())
        assert OutputSchemas().of(item) == (item, "") and OutputSchemas().of(item)[0] is item


NAMED = {"$id": "https://example.com/result", **of({"type": "string"})}


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_no_schema_has_a_name_under_which_a_client_keeps_it_for_a_tool_of_another_server(revision: str) -> None:
    """Ajv gives the schema that it has had first under that name."""
    scripts = servers({**NAMED, "required": ["b"]}, {**NAMED, "$id": 5})
    scripts["quiet"] = Scripted(tools_list={"tools": [tool("fine", NAMED)]})
    async with gateway(scripts=scripts) as app:
        for path in ("/mcp", "/mcp/servers/quiet", "/mcp/all"):
            found = {
                name: each["outputSchema"] for name, each in (await shown(app, revision, path)).items() if "__" in name
            }
            assert not any("$id" in schema for schema in found.values())
    async with gateway(scripts=servers(of({"$id": "a", "type": "string"}))) as app:
        assert "outputSchema" not in (await shown(app, revision))["evil__t0"]


def wide(members: int, references: int) -> Json:
    defined = {"type": "object", "properties": {f"p{each}": {"type": "string"} for each in range(members)}}
    made = {f"r{each}": {"$ref": "#/$defs/d"} for each in range(references)}
    return {"type": "object", "$defs": {"d": defined}, "properties": made}


@pytest.mark.parametrize(("members", "references", "is_kept"), [(60, 60, True), (100, 100, False), (1000, 20, False)])
def test_one_that_takes_clients_long_to_compile_is_left_out(members: int, references: int, is_kept: bool) -> None:
    """Ajv compiles what is referred to at each place: 100 by 100 take a second and a half of a processor."""
    found, why = OutputSchemas().of(Raw(json.dumps(tool("a", wide(members, references))).encode()))
    assert (b"outputSchema" in bytes(found)) is is_kept
    assert ("too long" in why) is not is_kept


def test_what_refers_to_itself_counts_once() -> None:
    node = {"properties": {f"p{each}": {"$ref": "#/$defs/d"} for each in range(500)}}
    item = Raw(json.dumps(tool("a", {"type": "object", "$defs": {"d": node}, **node})).encode())
    assert OutputSchemas().of(item)[1] == ""


def test_a_list_has_so_many_parts_of_schemas() -> None:
    schemas, item = OutputSchemas(), Raw(json.dumps(tool("a", wide(1, MOST_PARTS // 5))).encode())
    kept = [b"outputSchema" in bytes(schemas.of(item)[0]) for _ in range(12)]
    assert kept == [True] * (MOST_OF_LIST // (3 * MOST_PARTS // 5)) + [False] * 6


@pytest.mark.parametrize("written", [rb'{"\u006futputSchema":{"type":"object","pattern":"("},"name":"a"}'])
def test_however_its_name_is_written(written: bytes) -> None:
    found, why = OutputSchemas().of(Raw(written))
    assert "pattern" in why and json.loads(bytes(found)) == {"name": "a"}


@pytest.mark.parametrize("schema", ["5", "true", "[]", "null", '"x"'])
def test_what_is_no_object_is_left_to_who_writes_for_a_revision(schema: str) -> None:
    item = Raw(b'{"name":"a","outputSchema":%b}' % schema.encode())
    assert OutputSchemas().of(item) == (item, "")


async def test_what_was_kept_is_looked_at_when_it_is_read_back() -> None:
    cache = CatalogCache(MemoryStore(FakeClock()), FakeClock(), {"evil": "print"})
    items = {
        name: Raw(json.dumps(tool(name, schema)).encode()) for name, schema in (("a", THROW[0]), ("b", COMPILE[0]))
    }
    cache.save(("evil", "", "tools"), ServerList(items))
    await settle()
    found = cache.load("evil")[0]["tools"].items
    assert b"outputSchema" not in bytes(found["a"]) and found["b"] == items["b"]


def patterned(characters: int) -> Raw:
    """Patterns of so many characters, in both places where there are any."""
    schema: dict[str, Any] = {"type": "object", "patternProperties": {"ab" * (characters // 4): {}}}
    schema["properties"] = {"a": {"type": "string", "pattern": "xy" * (characters // 4)}}
    return Raw(json.dumps(tool("a", schema)).encode())


def test_the_patterns_of_a_schema_and_of_a_list_are_so_long_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_schemas, "LONGEST_PATTERNS", 400)
    monkeypatch.setattr(output_schemas, "LONGEST_OF_LIST", 1000)
    found, why = OutputSchemas().of(patterned(404))
    assert "its patterns" in why and b"outputSchema" not in bytes(found)
    schemas = OutputSchemas()
    kept = [b"outputSchema" in bytes(schemas.of(patterned(400))[0]) for _ in range(4)]
    assert kept == [True, True, False, False]
    assert schemas.of(Raw(json.dumps(tool("b", COMPILE[0])).encode()))[1] == "", "it has no patterns"


def test_a_components_tools_are_looked_at_one_by_one() -> None:
    """Whatever each of them has, others have their turn between two."""
    tools = [tool(str(number), COMPILE[0]) for number in range(20)]
    assert len(list(metadata.read(json.dumps(tools).encode()))) == 20


def test_a_components_tool_stays_too() -> None:
    found = at_once(metadata.read(json.dumps([tool("a", THROW[0]), tool("b", COMPILE[0])]).encode()))
    assert [b"outputSchema" in bytes(each) for each in found.raw] == [False, True]
    assert len(found.faults) == 1 and "output schema of a is ignored" in found.faults[0]


def test_a_reference_of_a_million_steps_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took 0.7 s in one step, while all others waited."""
    monkeypatch.setattr(output_schemas, "_member", lambda found, name: pytest.fail("it is followed"))  # pyright: ignore
    for reference in ("#" + "/" * 1_000_000, "#" + "/a" * 65, "#/" + "a" * 1_000):
        found, why = OutputSchemas().of(Raw(json.dumps(tool("a", of({"$ref": reference}))).encode()))
        assert b"outputSchema" not in bytes(found) and "only what it has itself" in why and len(why) < 300


def test_a_chain_of_references_is_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once from each of its links: a list of 8 MiB would take minutes."""
    count, steps = 400, 0
    target = output_schemas._Parts._target  # pyright: ignore[reportPrivateUsage]

    def counted(self: Any, reference: str) -> Any:
        nonlocal steps
        steps += 1
        return target(self, reference)

    monkeypatch.setattr(output_schemas._Parts, "_target", counted)  # pyright: ignore[reportPrivateUsage]
    defs: dict[str, Any] = {str(number): {"$ref": f"#/$defs/{number + 1}"} for number in range(count)}
    schema = {"type": "object", "$defs": {**defs, str(count): {"type": "string"}}}
    OutputSchemas().of(Raw(json.dumps(tool("a", schema)).encode()))
    assert count <= steps <= count + 1
