"""Clients read a list as a whole. One item of one server that some client cannot read (half of a character, a number
without end, another type than MCP has) would cost it the lists of all servers: that item is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import mcp.types
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inmemory import LATEST, MODERN, Refusal, Scripted, Visitor, gateway, tools
from msgspec import Raw
from pydantic import AnyUrl, TypeAdapter, UrlConstraints
from virtualtime import FakeClock, settle

from toolgate.catalog.base import ServerList
from toolgate.catalog.cache import CatalogCache
from toolgate.core import jsonrpc, names
from toolgate.core.steps import at_once
from toolgate.eras import listed
from toolgate.state.memory import MemoryStore
from toolgate.upstreams.base import About
from toolgate.upstreams.component import metadata

LISTS = {
    "tools/list": ("tools", mcp.types.ListToolsResult),
    "prompts/list": ("prompts", mcp.types.ListPromptsResult),
    "resources/list": ("resources", mcp.types.ListResourcesResult),
    "resources/templates/list": ("resourceTemplates", mcp.types.ListResourceTemplatesResult),
}
GOOD = {
    "tools": '{"name":"good","inputSchema":{"type":"object"}%s}',
    "prompts": '{"name":"good"%s}',
    "resources": '{"uri":"x:good","name":"good"%s}',
    "resourceTemplates": '{"uriTemplate":"x:{good}","name":"good"%s}',
}
NO_URIS = [
    f"http://a:{'9' * 5000}/",
    f"http://a:{'0' * 30}99999/",
    *("", "a", "a/b", "//a/b", "a b:c", "a_b:c", "x://a b/", "x://[::1", "x://[::1]x/", "x://h:99999/", "x://h:a/"),
    *("x://:80/", "x://u@/", "x://a<b/", "x://a|b/", "x://a^b", "x:\t//[", "ui://a b/", "ui://a:99999/"),
    *("ui://[::]", "ui://\t[::1]:80/a"),
]
URIS = [
    *(
        "x:",
        "x://",
        "x:a b",
        "x:///a",
        "x://h:/",
        "x://[::1]:80/a",
        "x://u:p@h/",
        "x://a%zz/",
        "file:///C:/a b",
        "urn:x",
    ),
    *("ui://a/b", "data:,", "x:#[", "x://h?[", "https://é.example/", "x:\u2028"),
]
CUT, DIGITS = r'"a\ud83d"', "9" * 5_000
EVERYWHERE = [
    f',"title":{CUT}',
    ',"description":"\\udc00"',
    f',"_meta":{{"a":{CUT}}}',
    ',"_meta":{"x\\uD800":1}',
    ',"x-more":[{"\\ud83d":[]}]',
    ',"icons":[{"src":"https://x/\\ud83d"}]',
    f',"_meta":{{"a":{DIGITS}}}',
    f',"_meta":{{"a":-{DIGITS}}}',
    f',"_meta":{{"a":{DIGITS[:400]}}}',  # which readers of doubles refuse
    ',"_meta":{"a":[1e400]}',
    ',"_meta":{"a":-1E+400}',
    f',"_meta":{{"a":{DIGITS[:250]}e99}}',
    f',"_meta":{{"a":0.{"0" * 1_100}1}}',  # the Java SDK's reader of JSON refuses such numbers and names
    f',"_meta":{{"a":1e-{"0" * 1_100}5}}',
    f',"_meta":{{"{"n" * 50_010}":1}}',
    f',"_meta":{{"a":{"[" * 122}{"]" * 122}}}',  # with what is around it, the Rust SDK's
    ',"x-more":1e99999999999999999999',
]
BAD = {
    "tools": [
        *(GOOD["tools"] % more for more in EVERYWHERE),
        *(GOOD["tools"] % more for more in (f',"annotations":{{"title":{CUT}}}', f',"outputSchema":{{"a":{DIGITS}}}')),
        r'{"name":"cut\ud83d","inputSchema":{"type":"object"}}',
        r'{"name":"a","inputSchema":{"type":"object","properties":{"\udc00":{}}}}',
        f'{{"name":"a","inputSchema":{{"type":"object","properties":{{"a":{{"maximum":{DIGITS}}}}}}}}}',
        '{"name":"a","inputSchema":{"type":"object","maximum":1e999}}',
        r'{"name":"good\u0000more","inputSchema":{"type":"object"}}',  # by which no server is called
        *(
            f'{{"name":"a","inputSchema":{schema}}}'
            for schema in ("[]", '"x"', "7", '{"type":"array"}', '{"type":5}', '{"type":["object"]}')
        ),
        '{"name":5,"inputSchema":{"type":"object"}}',
        '{"name":null,"inputSchema":{"type":"object"}}',
        "[]",
        "null",
    ],
    "prompts": [
        *(GOOD["prompts"] % more for more in EVERYWHERE),
        '{"name":7}',
        '{"name":null}',
        r'{"name":"a\u0000"}',
        '"x"',
    ],
    "resources": [
        *(GOOD["resources"] % more for more in EVERYWHERE),
        '{"uri":"x:a"}',
        '{"uri":"x:a","name":null}',
        '{"uri":"x:a","name":""}',
        '{"uri":["x:a"],"name":"a"}',
        f'{{"uri":"x:a","name":"a","size":{DIGITS}}}',
        *(json.dumps({"uri": uri, "name": "a"}) for uri in NO_URIS),
    ],
    "resourceTemplates": [
        *(GOOD["resourceTemplates"] % more for more in EVERYWHERE),
        '{"uriTemplate":"x:{a}"}',
        '{"uriTemplate":"x:{a}","name":{}}',
        '{"uriTemplate":"x:{a}","name":""}',
        r'{"uriTemplate":"x:{a}\udfff","name":"a"}',
    ],
}
# What is optional and of another type is not shown; the item is.
MENDED = {
    "tools": [
        ',"title":5',
        ',"description":null',
        ',"annotations":"x"',
        ',"_meta":[1]',
        ',"icons":[{},5,null,{"src":1}]',
    ],
    "prompts": [
        ',"arguments":[{"a":1},5,null,{"name":7},{"name":""}]',
        ',"arguments":"x"',
        ',"title":null',
        ',"_meta":7',
    ],
    "resources": [',"size":"x"', ',"size":1.5', ',"size":-1', ',"size":%s' % ("9" * 300), ',"mimeType":5'],
    "resourceTemplates": [',"annotations":{"audience":["robot"],"priority":99}', ',"mimeType":null'],
}


def each(items: dict[str, list[str]]) -> list[Any]:
    return [
        pytest.param(method, item, id=f"{kind}-{number}")
        for method, (kind, _) in LISTS.items()
        for number, item in enumerate(items[kind])
    ]


def page(kind: str, *items: str) -> bytes:
    return f'{{"{kind}":[{",".join(items)}]}}'.encode()


def two(method: str, *items: str) -> dict[str, Scripted]:
    """A server that lists these, and another one."""
    kind, _ = LISTS[method]
    name = method.replace("/", "_")
    return {
        "evil": Scripted(**{name: page(kind, *items)}),
        "quiet": Scripted(**{name: page(kind, GOOD[kind] % "")}),
    }


def read(body: bytes, kind: str) -> list[Any]:
    """As strict readers do: Python's official one, and one that has doubles and no halves of characters."""
    whole = msgspec.json.decode(body)
    assert abs(max(_numbers(whole), default=0)) < 2**1024
    result = mcp.types.JSONRPCResponse.model_validate_json(body).result
    found = next(type for name, type in LISTS.values() if name == kind).model_validate(result)
    return list(getattr(found, {"resourceTemplates": "resource_templates"}.get(kind, kind)))


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, dict | list):
        for found in value.values() if isinstance(value, dict) else value:
            yield from _numbers(found)
    elif isinstance(value, int):
        yield value


async def asked(app: Any, method: str, revision: str = LATEST, path: str = "/mcp") -> bytes:
    visitor = Visitor(app, path)
    if revision == MODERN:
        return (await visitor.ask_modern(method)).body
    await visitor.initialize(revision)
    response = await visitor.post(visitor.request(method))
    return response.body


@pytest.mark.parametrize("revision", ["2024-11-05", LATEST, MODERN])
@pytest.mark.parametrize(("method", "item"), each(BAD))
async def test_what_some_client_cannot_read_is_left_out_of_lists(
    method: str, item: str, revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    kind, _ = LISTS[method]
    good = GOOD[kind] % ',"description":"kept"'
    async with gateway(scripts=two(method, item, good)) as app:
        names = [each.name for each in read(await asked(app, method, revision), kind)]
        assert names == (["evil__good", "quiet__good"] if kind in ("tools", "prompts") else ["good", "good"])
    assert "ignored 1 of its items: " in caplog.text or "items without a" in caplog.text


@pytest.mark.parametrize("revision", ["2024-11-05", LATEST, MODERN])
@pytest.mark.parametrize(("method", "more"), each(MENDED))
async def test_what_an_item_can_do_without_costs_nobody_the_item(method: str, more: str, revision: str) -> None:
    kind, _ = LISTS[method]
    async with gateway(scripts=two(method, GOOD[kind] % more)) as app:
        assert len(read(await asked(app, method, revision), kind)) == 2


MOMENTS = [
    "2025-01-12T15:00:58Z",
    "2025-01-12T15:00:58.1234567890123456+14:00",
    "2024-02-29T00:00:00.123456789+02:00",
    "2025-01-12T23:59:59-14:00",
]
NO_MOMENTS = [
    *("2025-01-12", "2025-01-12T15:00:58", "2025-02-29T15:00:58Z", "2025-01-12t15:00:58z", "2025-01-12T24:00:00Z"),
    *("2025-01-12T15:00:58+14:30", "2025-01-12T15:00:58-23:59", f"2025-01-12T15:00:58.{'1' * 20}Z"),  # .NET
    *("0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00"),
    *("2025-01-12 15:00:58Z", "2025-01-12T15:00Z", "2025-01-12T15:00:58+0200", "yesterday", "", 5, None, {}, ["x"]),
]


@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, MODERN])
@pytest.mark.parametrize("method", ["resources/list", "resources/templates/list"])
@pytest.mark.parametrize("moment", [*MOMENTS, *NO_MOMENTS], ids=str)
async def test_a_time_of_a_change_that_some_client_cannot_read_is_not_shown(
    moment: Any, method: str, revision: str
) -> None:
    """The official clients of TypeScript and .NET take no other form."""
    kind, _ = LISTS[method]
    annotations = {"audience": ["user"], "lastModified": moment}
    async with gateway(scripts=two(method, GOOD[kind] % f',"annotations":{json.dumps(annotations)}')) as app:
        body = await asked(app, method, revision)
        found, _ = read(body, kind)
        shown = json.loads(body)["result"][kind][0]["annotations"]
        assert shown == (annotations if moment in MOMENTS else {"audience": ["user"]})
        assert found.annotations.audience == ["user"]


ALIKE = {
    "tools": [
        ',"Name":"quiet__good"',
        ',"NAME":5',
        ',"Description":5',
        ',"title":"a","title":"b"',
        ', "title": "a", "title": "b"',
        r',"title":"a","t\u0069tle":"b"',
        ',"_meta":{"a":1},"_meta":{"a":[{"b":":"}]}',
        ',"inputschema":5',
        ',"input_schema":[]',
        ',"OutputSchema":"x"',
        ',"Annotations":5',
        ',"_META":5',
        ',"ICONS":{}',
        ',"annotations":{"readOnlyHint":true,"ReadOnlyHint":"x"}',
        ',"annotations":{"readOnlyHint":false,"readOnlyHint":true}',
        r',"annotations":{"readOnlyHint":false,"readOnl\u0079Hint":true}',
        ',"execution":{"taskSupport":"optional","TaskSupport":5}',
        ',"icons":[{"src":"https://x/","Src":5},{"src":"https://x/","theme":"dark","theme":"light"}]',
        ',"outputSchema":{"type":"object","Type":5,"Required":5,"PROPERTIES":[]}',
    ],
    "prompts": [
        ',"Arguments":5',
        ',"ARGUMENTS":[{"name":5}]',
        ',"arguments":[{"name":"a","Name":5,"REQUIRED":"x"}]',
        ',"arguments":[{"name":"a","required":true,"required":true}]',
        ',"Title":[]',
        ',"title":"a","title":"b"',
    ],
    "resources": [
        ',"Size":"x"',
        ',"URI":5',
        ',"MimeType":{}',
        ',"annotations":{"priority":1,"Priority":"x","audience":["user"],"Audience":"x"}',
        ',"annotations":{"priority":1,"priority":1}',
        ',"mimeType":"a/b","mimeType":"c/d"',
    ],
    "resourceTemplates": [',"URITemplate":5', ',"uri-template":5', ',"Annotations":[]', ',"title":"a","title":"b"'],
}


def plainly(value: Any) -> Any:
    """JSON for a reader that does not mind case, and refuses what is written twice."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name.replace("_", "").replace("-", "").lower() for name, _ in pairs]
        assert len(set(names)) == len(names), names
        return dict(pairs)

    return json.loads(value, object_pairs_hook=members)


@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, MODERN])
@pytest.mark.parametrize(("method", "more"), each(ALIKE))
async def test_nothing_is_taken_for_a_member_but_itself(method: str, more: str, revision: str) -> None:
    """Some readers (Go's, .NET's) do not mind case, others (Rust's) refuse what is written twice."""
    kind, _ = LISTS[method]
    async with gateway(scripts=two(method, GOOD[kind] % f'{more},"x-More":{{"Name":1}}')) as app:
        body = await asked(app, method, revision)
        assert len(read(body, kind)) == 2
        first, _ = plainly(body)["result"][kind]
        assert first["x-More"] == {"Name": 1}


async def test_what_is_written_once_is_as_it_was() -> None:
    more = ',"annotations":{ "title" : "\\"title\\": a", "readOnlyHint":true},"icons":[{"src":"x:y"} ]'
    async with gateway(scripts=two("tools/list", GOOD["tools"] % more)) as app:
        assert more[1:].split(',"icons"')[0].encode() in await asked(app, "tools/list", path="/mcp/servers/evil")


_any_url: TypeAdapter[Any] = TypeAdapter(Annotated[AnyUrl, UrlConstraints(host_required=False)])


@pytest.mark.parametrize("uri", [*URIS, *NO_URIS])
def test_a_uri_is_one_for_readers_of_urls(uri: str) -> None:
    """The official Python client of generation 1 reads them by pydantic."""
    assert listed.is_uri(uri) is (uri in URIS)
    if uri in URIS:
        _any_url.validate_python(names.join_uri("docs", uri))


@given(st.text(st.sampled_from("ax1:/?#[]@%<| \\\t\n\0é.+-_"), max_size=12) | st.text(max_size=12))
def test_no_uri_that_they_refuse_is_kept(rest: str) -> None:
    for uri in (rest, f"x:{rest}", f"x://{rest}", f"ui://{rest}", f"x://[{rest}", f"x://h:{rest}"):
        if listed.is_uri(uri):
            _any_url.validate_python(names.join_uri("docs", uri))


@pytest.mark.parametrize("schema", ["", ',"inputSchema":null', ',"inputSchema":{}'])
@pytest.mark.parametrize("revision", ["2024-11-05", LATEST, MODERN])
async def test_a_tool_without_a_schema_takes_an_object(schema: str, revision: str) -> None:
    async with gateway(scripts=two("tools/list", f'{{"name":"bare"{schema}}}')) as app:
        found = {tool.name: tool for tool in read(await asked(app, "tools/list", revision), "tools")}
        assert found["evil__bare"].input_schema == {"type": "object"}


@pytest.mark.parametrize("path", ["/mcp/servers/evil", "/mcp/components", "/mcp/all"])
async def test_so_it_is_on_every_path(path: str) -> None:
    async with gateway(scripts=two("tools/list", BAD["tools"][0], GOOD["tools"] % "")) as app:
        listed = [tool.title for tool in read(await asked(app, "tools/list", path=path), "tools")]
        assert not any("\ud83d" in title for title in listed if title)


async def test_what_is_left_out_is_not_found_by_words_either() -> None:
    async with gateway(scripts=two("tools/list", BAD["tools"][0], GOOD["tools"] % "")) as app:
        visitor = Visitor(app, "/mcp/meta")
        await visitor.initialize()
        for name, arguments in [("mcp_discover", {"server": "evil"}), ("get_schema", {"server_id": "evil"})]:
            response = await visitor.post(visitor.request("tools/call", name=name, arguments=arguments))
            assert "good" in response.result["content"][0]["text"]
            msgspec.json.decode(response.body)


@pytest.mark.parametrize(
    ("text", "is_out"),
    [
        (f'"{DIGITS}"', False),
        ('"1e999"', False),
        (r'"\\ud83d"', False),
        (r'"\ud83d\ude00"', False),
        ("1e308", False),
        ("0e999", False),
        ("1e-999", False),
        ("9" * 308, False),
        ("9" * 309, True),
        ("0." + "0" * 900 + "1", False),
        ("0." + "0" * 5_000 + "1", True),  # some readers take no number as long as that
        ("-1.8e308", True),
    ],
)
def test_what_only_looks_like_it_is_kept(text: str, is_out: bool) -> None:
    item = Raw((GOOD["tools"] % f',"_meta":{{"a":[{text}]}}').encode())
    assert listed.why_unreadable("tools", item) == (listed.NUMBER if is_out else "")


@pytest.mark.parametrize("cursor", [CUT, "5", DIGITS, "[]"])
async def test_a_cursor_that_cannot_be_read_costs_its_own_server_alone(cursor: str) -> None:
    scripts = two("tools/list")
    scripts["evil"].answers["tools/list"] = b'{"tools":[],"nextCursor":%b}' % cursor.encode()
    async with gateway(scripts=scripts) as app:
        body = await asked(app, "tools/list")
        assert [tool.name for tool in read(body, "tools")] == ["quiet__good"]
        assert "nextCursor" not in json.loads(body)["result"]


async def test_an_error_that_cannot_be_read_is_shown_so_that_it_can_be() -> None:
    scripts = two("tools/list")
    scripts["evil"].answers["tools/list"] = Refusal(-32000, "no \ud83d")
    async with gateway(scripts=scripts) as app:
        body = await asked(app, "tools/list")
        assert [tool.name for tool in read(body, "tools")] == ["quiet__good"]
        assert json.loads(body)["result"]["_meta"]["failures"] == [{"server_id": "evil", "error": "no \ufffd"}]


# What a server says of itself.


def opening(revision: str, **more: Any) -> Scripted:
    there = Scripted(revision, tools_list=tools("a"))
    method = "server/discover" if revision == MODERN else "initialize"
    there.answers[method] = json.dumps(there.answers[method] | more).replace('"NUMBER"', DIGITS).encode()
    return there


@pytest.mark.parametrize("theirs", [LATEST, MODERN])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/evil"])
@pytest.mark.parametrize(
    "more",
    [
        {"instructions": "hello \ud800 you"},
        {"capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/ui": {"a\udc00": "\ud83d"}}}},
        {"serverInfo": {"name": "\ud83d", "version": "\udc00"}},
    ],
    ids=lambda more: next(iter(more)),
)
async def test_what_a_server_says_of_itself_can_be_read(more: Any, path: str, theirs: str) -> None:
    scripts = {"evil": opening(theirs, **more), "quiet": Scripted(tools_list=tools("b"))}
    async with gateway(scripts=scripts) as app:
        await asked(app, "tools/list")
        visitor = Visitor(app, path)
        body = (await visitor.initialize()).body
        mcp.types.JSONRPCResponse.model_validate_json(body)
        result = msgspec.json.decode(body)["result"]
        if "instructions" in more:
            assert "hello \ufffd you" in result["instructions"]


@pytest.mark.parametrize("theirs", [LATEST, MODERN])
async def test_numbers_without_end_in_what_it_says_of_itself_cost_its_own_lists_alone(theirs: str) -> None:
    extensions = {"io.modelcontextprotocol/ui": {"a": "NUMBER"}}
    evil = opening(theirs, capabilities={"tools": {}, "extensions": extensions})
    async with gateway(scripts={"evil": evil, "quiet": Scripted(tools_list=tools("b"))}) as app:
        assert [tool.name for tool in read(await asked(app, "tools/list"), "tools")] == ["quiet__b"]
        msgspec.json.decode((await Visitor(app).initialize()).body)


# What is kept.


async def test_what_was_kept_is_looked_at_when_it_is_read_back() -> None:
    cache = CatalogCache(MemoryStore(FakeClock()), FakeClock(), {"evil": "print"})
    items = {f"{number}": Raw(item.encode()) for number, item in enumerate([*BAD["tools"][:-4], GOOD["tools"] % ""])}
    cache.save(("evil", "", "tools"), ServerList(items))
    await settle()
    cache.save_about("evil", About({"x": "\ud83d"}, "hello \ud83d"))
    lists, _, about = cache.load("evil")
    assert list(lists["tools"].items.values()) == [Raw((GOOD["tools"] % "").encode())]
    assert about and (about.instructions, about.capabilities) == ("hello \ufffd", {"x": "\ufffd"})


def test_a_component_says_which_of_its_tools_cannot_be_read() -> None:
    found = at_once(metadata.read(b"[%b]" % ",".join([*BAD["tools"][:3], GOOD["tools"] % ""]).encode()))
    assert len(found.raw) == 1 and len(found.faults) == 3
    assert all(fault.startswith(f"it has {listed.LONE}") for fault in found.faults)
    jsonrpc.encode(found.faults)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", LATEST, MODERN])
async def test_no_schema_of_arguments_costs_the_java_sdk_its_lists(revision: str) -> None:
    """Up to its version 1, which speaks 2025-06-18, it reads a flag and two objects there."""
    schema = '{"name":"good","inputSchema":{"type":"object","additionalProperties":{"type":"string"},"$defs":5}}'
    async with gateway(scripts=two("tools/list", schema)) as app:
        found = read(await asked(app, "tools/list", revision), "tools")[0].input_schema
        assert ("additionalProperties" in found) is (revision in (LATEST, MODERN))
        assert ("$defs" in found) is (revision == MODERN)
