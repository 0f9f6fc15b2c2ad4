"""Resource URIs inside results: which are renamed, and what is never touched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from toolgate.core import names
from toolgate.surfaces import uris


def rewritten(method: str, result: Any) -> Any:
    return json.loads(bytes(uris.rewrite(method, json.dumps(result).encode(), lambda uri: "docs+" + uri)))


@pytest.mark.promise("b.uris.results")
def test_links_and_embedded_resources_of_a_tool_are_renamed() -> None:
    link = {"type": "resource_link", "uri": "file:///a", "name": "a", "x": 1}
    embedded = {"type": "resource", "resource": {"uri": "file:///b", "text": "see file:///a"}, "annotations": {}}
    found = rewritten("tools/call", {"content": [link, embedded], "isError": False})
    assert found["content"][0] == link | {"uri": "docs+file:///a"}
    assert found["content"][1]["resource"] == {"uri": "docs+file:///b", "text": "see file:///a"}
    assert found["isError"] is False


def test_what_was_read_is_renamed_whatever_it_is() -> None:
    assert rewritten("resources/read", {"contents": [{"uri": "a:1", "blob": "AA=="}], "_meta": {}}) == {
        "contents": [{"uri": "docs+a:1", "blob": "AA=="}],
        "_meta": {},
    }


@pytest.mark.promise("b.uris.results")
def test_a_resource_in_a_prompt_is_renamed() -> None:
    embedded = {"type": "resource", "resource": {"uri": "a:1", "text": ""}}
    found = rewritten("prompts/get", {"messages": [{"role": "user", "content": embedded}]})
    assert found["messages"][0]["content"]["resource"]["uri"] == "docs+a:1"


@pytest.mark.promise("b.uris.text")
def test_text_and_structured_content_are_never_searched() -> None:
    result = {
        "content": [{"type": "text", "text": '{"type": "resource_link", "uri": "a:1"}'}],
        "structuredContent": {"content": [{"type": "resource_link", "uri": "a:1"}], "uri": "a:1"},
    }
    assert rewritten("tools/call", result) == result


def test_a_result_without_resources_keeps_its_very_bytes() -> None:
    body = b'{ "content" : [ {"type":"text","text":"a"} ] , "x" : 1.0 }'
    assert uris.rewrite("tools/call", body, str.upper) is body


def test_all_but_the_uri_keeps_its_bytes() -> None:
    body = b'{"content":[{"type":"resource_link","uri":"a:1","size":1.00},{ "type":"text","text":"b"}],"z":{ }}'
    expected = b'{"content":[{"type":"resource_link","uri":"A:1","size":1.00},{ "type":"text","text":"b"}],"z":{ }}'
    assert bytes(uris.rewrite("tools/call", body, str.upper)) == expected


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("tools/call", b'{"content":"resource"}'),
        ("tools/call", b'{"x":"resource"}'),
        ("tools/call", b'{"content":[{"type":"resource"}]}'),
        ("tools/call", b'{"content":[{"type":"resource_link","uri":7}]}'),
        ("prompts/get", b'{"messages":[{"content":["resource"]}]}'),
        ("resources/read", b"[]"),
        ("resources/read", b'{"contents":[{"uri":null}]}'),
    ],
)
def test_a_result_out_of_shape_is_left_as_it_is(method: str, body: bytes) -> None:
    assert uris.rewrite(method, body, str.upper) == body


@pytest.mark.promise("b.uris.ui")
def test_the_page_of_an_app_is_renamed_where_a_tool_names_it() -> None:
    tool = {"name": "t", "_meta": {"ui": {"resourceUri": "ui://panel", "visibility": ["app"]}, "x": "ui://panel"}}
    raw = Raw(json.dumps(tool).encode())
    found = json.loads(bytes(uris.rewrite_tool(raw, lambda uri: names.join_uri("docs", uri))))
    assert found == {
        "name": "t",
        "_meta": {"ui": {"resourceUri": "ui://docs+panel", "visibility": ["app"]}, "x": "ui://panel"},
    }


def test_a_tool_that_names_its_page_in_the_older_way_is_renamed_too() -> None:
    raw = Raw(b'{"name":"t","_meta":{"ui/resourceUri":"ui://panel"}}')
    found = uris.rewrite_tool(raw, lambda uri: names.join_uri("docs", uri))
    assert bytes(found) == b'{"name":"t","_meta":{"ui/resourceUri":"ui://docs+panel"}}'


@pytest.mark.parametrize(
    "text",
    [b'{"name":"t"}', b'{"_meta":{"ui":"resourceUri"}}', b'{"_meta":["resourceUri"]}', b'{"resourceUri":"ui://"}'],
)
def test_a_tool_without_a_page_keeps_its_very_bytes(text: bytes) -> None:
    raw = Raw(text)
    assert uris.rewrite_tool(raw, str.upper) is raw


@pytest.mark.parametrize(
    ("template", "uri", "is_made"),
    [
        ("file:///{path}", "file:///a/b", True),
        ("file:///{path}", "notes:///a", False),
        ("a:{x}/b{?y}", "a:1/b", True),
        ("a:{x}/b{?y}", "a:1/c", False),
        ("a:{x}{y}z", "a:z", True),
        ("{+any}", "a:b", True),
        ("a:{x}b{y}b", "a:b", False),
        ("a:{x", "a:{x", True),
        ("a:{x", "a:1", False),
        ("a:b", "a:b", True),
        ("a:b", "a:bc", False),
        ("a:{x}", "b:a:1", False),
    ],
)
def test_a_template_makes_what_has_its_literals_in_their_order(template: str, uri: str, is_made: bool) -> None:
    assert uris.is_made_by(template, uri) is is_made


PAGE = {"ui": {"resourceUri": "ui://other+panel", "csp": {}}, "ui/resourceUri": "other+a:1", "x": "ui://other+panel"}
PAGE_OF_DOCS = PAGE | {"ui": {"resourceUri": "ui://docs+other+panel", "csp": {}}, "ui/resourceUri": "docs+other+a:1"}


@pytest.mark.parametrize(
    ("method", "rest"),
    [
        ("tools/call", {"content": [{"type": "text", "text": "a"}]}),
        ("tools/call", {}),
        ("tools/call", {"content": "x"}),
        ("prompts/get", {"messages": []}),
        ("resources/read", {"contents": []}),
    ],
)
@pytest.mark.parametrize("left", ["ui", "ui/resourceUri", ""])
def test_the_page_that_a_result_names_is_its_servers_own(method: str, rest: Any, left: str) -> None:
    meta = {name: value for name, value in PAGE.items() if name != left}
    body = json.dumps(rest | {"_meta": meta}).encode()
    found = json.loads(bytes(uris.rewrite(method, body, lambda uri: names.join_uri("docs", uri))))
    assert found == rest | {"_meta": {name: value for name, value in PAGE_OF_DOCS.items() if name != left}}


@pytest.mark.parametrize(
    "written",
    [rb'"\u0072esourceUri"', rb'"resource\u0055ri"', rb'"re\u0073ourceUri"', rb'"resourceUri"'],
)
def test_however_its_name_is_escaped(written: bytes) -> None:
    meta = b'"_meta":{"ui":{%b:"ui://other+panel"}}' % written
    tool = Raw(b'{"name":"t",%b}' % meta)
    for found in (
        uris.rewrite("tools/call", b'{"content":[],%b}' % meta, str.upper),
        uris.rewrite_tool(tool, str.upper),
    ):
        assert json.loads(bytes(found))["_meta"]["ui"]["resourceUri"] == "UI://OTHER+PANEL"


@pytest.mark.parametrize("kind", [rb"\u0072esource_link", rb"resource\u005flink"])
def test_however_the_kind_of_a_block_is_escaped(kind: bytes) -> None:
    body = b'{"content":[{"type":"%b","uri":"a:1"}]}' % kind
    assert json.loads(bytes(uris.rewrite("tools/call", body, str.upper)))["content"][0]["uri"] == "A:1"


LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{**LINK, "Uri": "bank+file:///b"}]},
        {"content": [{**LINK, "URI": "bank+file:///b"}, LINK]},
        {"content": [{**LINK, "_type": "bank+file:///b"}]},
        {"content": [LINK], "Content": [{**LINK, "uri": "bank+file:///b"}]},
        {"content": [{"type": "resource", "resource": {"uri": "a:1"}, "Resource": {"uri": "bank+file:///b"}}]},
        {"content": [{"type": "resource", "resource": {"uri": "a:1", "Uri": "bank+file:///b"}}]},
        {"content": [{"type": "text", "text": "", "Type": "resource_link", "Uri": "bank+file:///b"}]},
    ],
)
def test_no_second_uri_is_read_by_who_does_not_mind_case(result: Any) -> None:
    assert "bank" not in str(rewritten("tools/call", result))


def test_nor_in_what_was_read() -> None:
    contents = [{"uri": "a:1", "URI": "bank+file:///b", "text": ""}]
    found = rewritten("resources/read", {"contents": contents, "Contents": contents})
    assert found == {"contents": [{"uri": "docs+a:1", "text": ""}]}


MALFORMED = [
    None,
    5,
    "x",
    [],
    {},
    {"type": 5},
    {"type": "text", "text": 5},
    {"uri": 5},
    {"type": "resource", "resource": None},
]


@pytest.mark.parametrize("bad", MALFORMED, ids=str)
def test_a_part_that_is_out_of_shape_keeps_no_other_from_being_renamed(bad: Any) -> None:
    link = {"type": "resource_link", "uri": "a:1", "name": "a"}
    for content in ([link, bad], [bad, link]):
        found = rewritten("tools/call", {"content": content})["content"]
        assert [each["uri"] for each in found if each != bad] == ["docs+a:1"] and bad in found
    found = rewritten("resources/read", {"contents": [bad, {"uri": "a:1", "text": ""}]})
    assert found["contents"] == [bad, {"uri": "docs+a:1", "text": ""}]
    messages = [{"role": "user", "content": bad}, bad, {"role": "user", "content": link}]
    assert rewritten("prompts/get", {"messages": messages})["messages"][2]["content"]["uri"] == "docs+a:1"


def test_in_a_list_of_parts_of_a_message_each_is_renamed() -> None:
    link = {"type": "resource_link", "uri": "a:1", "name": "a"}
    found = rewritten("prompts/get", {"messages": [{"role": "user", "content": [None, link]}]})
    assert found["messages"][0]["content"] == [None, link | {"uri": "docs+a:1"}]


@pytest.mark.parametrize("name", ["ui/resourceUri", "openai/outputTemplate"])
@pytest.mark.parametrize("beside", [5, None, {}, {"resourceUri": 5}, {"resourceUri": "ui://b"}], ids=str)
def test_the_page_of_a_tool_is_renamed_wherever_it_stands_and_whatever_stands_beside_it(name: str, beside: Any) -> None:
    tool = {"name": "t", "_meta": {name: "ui://a", "ui": beside}}
    for text in (json.dumps(tool), json.dumps(tool).replace("/", "\\/")):
        found = json.loads(bytes(uris.rewrite_tool(Raw(text.encode()), lambda uri: f"docs+{uri}")))
        assert found["_meta"][name] == "docs+ui://a"
        page = {"resourceUri": "docs+ui://b"} if beside == {"resourceUri": "ui://b"} else beside
        assert found["_meta"]["ui"] == page
