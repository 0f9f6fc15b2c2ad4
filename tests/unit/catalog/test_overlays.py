"""What an operator changes of tools: how they are shown, and how a call is led back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from toolgate.catalog import overlays, tool_info
from toolgate.catalog.base import Change, ServerList
from toolgate.config import Overlay, Parameter
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, ToolInfo

SEARCH = (
    b'{"name": "search", "title":"Search","annotations" : {"title":"Old","readOnlyHint":true}, "x-own": [1.0],'
    b' "inputSchema": {"type":"object", "properties": {"q" : {"type":"string"}, "limit":{"type": "integer"},'
    b' "region":{"type":"string","x-mcp-header":"Region"}}, "required":["q","limit"],"additionalProperties": false}}'
)
NEWS = b'{"name":"news" ,"inputSchema":{ "type" : "object" }}'
ITEMS = {"search": Raw(SEARCH), "news": Raw(NEWS)}


def shown(overlay: Overlay | None = None, **more: Overlay) -> overlays.Shown:
    return overlays.show(ITEMS, ({"search": overlay} if overlay else {}) | more)


def with_parameters(**parameters: Parameter) -> Overlay:
    return Overlay(parameters=parameters)


def read(found: overlays.Shown, name: str = "search") -> Any:
    return json.loads(bytes(found.items[name]))


def schema(**parameters: Parameter) -> Any:
    return read(shown(with_parameters(**parameters)))["inputSchema"]


def sent(overlay: Overlay, arguments: Any = ..., name: str = "search") -> Any:
    """The arguments of a call as they reach the server."""
    server_list = overlays.apply(ServerList(ITEMS), {"search": overlay})
    raw = msgspec.Raw() if arguments is ... else Raw(json.dumps(arguments).encode())
    call = Call("tools/call", name, Client(), raw, server="docs")
    entered = overlays.enter(call, overlays.find(server_list, call))
    assert (entered.server, entered.target) == ("docs", "search")
    return json.loads(bytes(entered.arguments)) if entered.arguments else ...


def refusal(overlay: Overlay, arguments: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        sent(overlay, arguments)
    assert caught.value.code == "INVALID_ARGS"
    return caught.value


def test_without_overlays_a_shelf_is_the_very_same() -> None:
    server_list = ServerList(ITEMS)
    assert overlays.apply(server_list, {}) is server_list
    assert server_list.own is server_list.items and not server_list.is_overlaid


def test_a_tool_without_an_overlay_keeps_its_bytes_and_the_others_what_is_not_changed() -> None:
    found = shown(Overlay(description="Finds pages"))
    assert bytes(found.items["news"]) == NEWS
    parts = msgspec.json.decode(found.items["search"], type=dict[str, Raw])
    before = msgspec.json.decode(SEARCH, type=dict[str, Raw])
    assert bytes(parts.pop("description")) == b'"Finds pages"'
    assert {name: bytes(raw) for name, raw in parts.items()} == {name: bytes(raw) for name, raw in before.items()}
    assert found.changes == {"search": Change("search")} and not found.warnings


def test_a_tool_has_another_name_title_and_description() -> None:
    found = shown(Overlay(name="find", title="Find", description="Finds"))
    tool = read(found, "find")
    assert (tool["name"], tool["title"], tool["description"]) == ("find", "Find", "Finds")
    assert tool["annotations"] == {"title": "Find", "readOnlyHint": True}
    assert list(found.items) == ["find", "news"]
    assert found.changes["find"].own == "search"


def test_what_is_hidden_is_not_there_and_the_rest_may_be() -> None:
    assert list(shown(Overlay(hidden=True)).items) == ["news"]
    assert list(overlays.show(ITEMS, {"*": Overlay(hidden=True), "news": Overlay()}).items) == ["news"]
    assert list(overlays.show(ITEMS, {"*": Overlay(hidden=True)}).items) == []


def test_a_parameter_is_renamed_described_and_defaulted_in_its_place() -> None:
    found = schema(q=Parameter(name="query", description="What to find"), limit=Parameter(default=10))
    assert list(found["properties"]) == ["query", "limit", "region"]
    assert found["properties"]["query"] == {"type": "string", "description": "What to find"}
    assert found["properties"]["limit"] == {"type": "integer", "default": 10}
    assert found["required"] == ["query"]
    assert found["additionalProperties"] is False


def test_what_is_fixed_or_hidden_is_not_in_the_schema() -> None:
    found = schema(q=Parameter(fixed="x"), limit=Parameter(hidden=True, default=1))
    assert list(found["properties"]) == ["region"]
    assert "required" not in found


def test_arguments_are_led_back_to_the_servers_names_and_values() -> None:
    overlay = with_parameters(q=Parameter(name="query"), limit=Parameter(default=10), region=Parameter(fixed="eu"))
    assert sent(overlay, {"query": "a"}) == {"q": "a", "limit": 10, "region": "eu"}
    assert sent(overlay, {"query": "a", "limit": None}) == {"q": "a", "limit": None, "region": "eu"}
    assert sent(overlay) == {"limit": 10, "region": "eu"}
    assert sent(with_parameters(limit=Parameter(hidden=True, default=1)), {"q": 1}) == {"q": 1, "limit": 1}
    assert sent(with_parameters(limit=Parameter(fixed=None))) == {"limit": None}


def test_arguments_that_stay_as_they_are_stay_bytes() -> None:
    server_list = overlays.apply(ServerList(ITEMS), {"search": with_parameters(q=Parameter(name="query"))})
    raw = Raw(b'{ "limit" : 1.0 }')
    call = Call("tools/call", "search", Client(), raw, server="docs")
    assert overlays.enter(call, overlays.find(server_list, call)).arguments is raw


@pytest.mark.parametrize("parameter", [Parameter(hidden=True), Parameter(fixed=1), Parameter(name="other")])
@pytest.mark.parametrize("spelled", [b'{"limit":1}', b'{"l\\u0069mit":1}', b'{"q":1,"limit":1,"limit":2}'])
def test_a_caller_cannot_give_what_is_fixed_hidden_or_renamed_away(parameter: Parameter, spelled: bytes) -> None:
    server_list = overlays.apply(ServerList(ITEMS), {"search": with_parameters(limit=parameter)})
    call = Call("tools/call", "search", Client(), Raw(spelled), server="docs")
    with pytest.raises(Fault) as caught:
        overlays.enter(call, overlays.find(server_list, call))
    assert (caught.value.code, caught.value.reach) == ("INVALID_ARGS", "not_sent")
    assert caught.value.message == "Invalid arguments: search has no parameter limit"


@pytest.mark.parametrize("parameter", [Parameter(hidden=True), Parameter(fixed=1), Parameter(name="other")])
@pytest.mark.parametrize("spelling", ["LIMIT", "Limit", "li_mit", "\uff4cimit", "limit\u200b", " limit", "limit\u00ad"])
def test_nor_in_a_spelling_that_a_server_may_take_for_it(parameter: Parameter, spelling: str) -> None:
    server_list = overlays.apply(ServerList(ITEMS), {"search": with_parameters(limit=parameter)})
    call = Call("tools/call", "search", Client(), Raw(json.dumps({"q": "a", spelling: 5}).encode()), server="docs")
    with pytest.raises(Fault) as caught:
        overlays.enter(call, overlays.find(server_list, call))
    assert caught.value.message == f"Invalid arguments: search has no parameter {spelling}"


def test_a_parameter_that_is_listed_beside_a_hidden_one_is_its_own() -> None:
    tool = b'{"name":"search","inputSchema":{"type":"object","properties":{"limit":{},"Limit":{}}}}'
    server_list = overlays.apply(
        ServerList({"search": Raw(tool)}), {"search": with_parameters(limit=Parameter(hidden=True))}
    )
    call = Call("tools/call", "search", Client(), Raw(b'{"Limit":5}'), server="docs")
    assert overlays.enter(call, overlays.find(server_list, call)).arguments == Raw(b'{"Limit":5}')


def test_of_very_many_unknown_parameters_none_is_looked_at() -> None:
    server_list = overlays.apply(ServerList(ITEMS), {"search": with_parameters(limit=Parameter(hidden=True))})
    own = {"q": "a"}
    for most in (overlays.MOST_UNKNOWN, overlays.MOST_UNKNOWN + 1):
        many = Raw(json.dumps({**own, **{f"\u00e4{n}": 1 for n in range(most)}}).encode())
        call = Call("tools/call", "search", Client(), many, server="docs")
        if most > overlays.MOST_UNKNOWN:
            what = "1,001 parameters that search does not have; its overlay passes at most 1,000"
            with pytest.raises(Fault, match=what):
                overlays.enter(call, overlays.find(server_list, call))
        else:
            assert overlays.enter(call, overlays.find(server_list, call))


@pytest.mark.parametrize("spelled", [b"[]", b"null", b'"x"', b"7"])
def test_arguments_that_are_no_object_are_refused(spelled: bytes) -> None:
    assert refusal(with_parameters(q=Parameter(name="query")), json.loads(spelled))


def test_two_parameters_may_change_names_with_each_other() -> None:
    overlay = with_parameters(q=Parameter(name="limit"), limit=Parameter(name="q"))
    assert sent(overlay, {"q": 1, "limit": "a"}) == {"limit": 1, "q": "a"}
    assert read(shown(overlay))["inputSchema"]["required"] == ["limit", "q"]


def test_the_name_of_a_hidden_parameter_may_be_anothers() -> None:
    overlay = with_parameters(q=Parameter(name="limit"), limit=Parameter(fixed=3))
    assert sent(overlay, {"limit": "a"}) == {"q": "a", "limit": 3}
    assert refusal(overlay, {"q": "a"})


def test_two_parameters_that_come_to_one_name_keep_their_own_with_a_warning() -> None:
    overlay = with_parameters(q=Parameter(name="region"), limit=Parameter(name="most"))
    found = shown(overlay)
    assert list(read(found)["inputSchema"]["properties"]) == ["q", "limit", "region"]
    assert found.warnings == ("search: two parameters would share one name, so all keep their own",)
    assert sent(overlay, {"q": 1, "limit": 2}) == {"q": 1, "limit": 2}


def test_of_two_tools_that_come_to_one_name_the_later_is_left_out_with_a_warning() -> None:
    found = shown(Overlay(name="news"))
    assert list(found.items) == ["news"]
    assert found.changes["news"].own == "search"
    assert found.warnings == ("news: another tool is shown as news, so this one is not listed",)


def test_two_tools_may_change_names_with_each_other() -> None:
    found = shown(Overlay(name="news"), news=Overlay(name="search"))
    assert {name: change.own for name, change in found.changes.items()} == {"news": "search", "search": "news"}


def test_what_an_overlay_names_in_vain_is_a_warning() -> None:
    found = shown(with_parameters(page=Parameter(name="p"), q=Parameter(hidden=True)), gone=Overlay(hidden=True))
    assert found.warnings == (
        "gone: no such tool",
        "search: no parameter page at the top level of its schema, so only `fixed`, `default` and `hidden` apply",
        "search: q is hidden and required but has no value: calls will fail",
    )
    assert list(found.items) == ["search", "news"]


def test_what_is_fixed_or_hidden_is_so_whatever_the_schema_says() -> None:
    overlay = with_parameters(path=Parameter(fixed="/safe"), mode=Parameter(hidden=True), page=Parameter(name="p"))
    assert sent(overlay, {"page": 1}) == {"page": 1, "path": "/safe"}
    assert refusal(overlay, {"path": "/etc"})
    assert refusal(overlay, {"mode": 1})


def test_the_overlay_of_all_the_rest_sends_values_only_to_tools_that_have_the_parameter() -> None:
    found = overlays.show(ITEMS, {"*": with_parameters(region=Parameter(fixed="eu"), page=Parameter(default=1))})
    assert not found.warnings
    assert found.changes["search"].fixed.keys() == {"region"}
    assert not found.changes["news"].fixed and found.changes["news"].refused == {"region"}
    assert not found.changes["search"].defaults


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        (b"{}", {"description": "D", "default": 1}),
        (b"true", {"description": "D", "default": 1}),
        (b"false", False),
        (b'"nonsense"', "nonsense"),
        (b'{"$ref":"#/$defs/A"}', {"$ref": "#/$defs/A", "description": "D", "default": 1}),
    ],
)
def test_a_parameters_schema_may_be_anything(written: bytes, becomes: Any) -> None:
    raw = Raw(b'{"name":"t","inputSchema":{"properties":{"a":%b}}}' % written)
    found = overlays.show({"t": raw}, {"t": with_parameters(a=Parameter(description="D", default=1))})
    assert read(found, "t")["inputSchema"]["properties"]["a"] == becomes


@pytest.mark.parametrize(
    "schema",
    [b"7", b"null", b'{"properties":[]}', b'{"properties":7,"required":7}', b'{"allOf":[{"properties":{"a":{}}}]}'],
)
def test_a_schema_in_which_parameters_do_not_stand_at_the_top_stays_as_it_is(schema: bytes) -> None:
    raw = Raw(b'{"name":"t","inputSchema":%b}' % schema)
    found = overlays.show({"t": raw}, {"t": with_parameters(a=Parameter(name="b", fixed=1))})
    assert bytes(found.items["t"]) == bytes(raw)
    assert found.changes["t"].fixed and found.changes["t"].refused == {"a"}


def test_what_is_not_shown_is_not_found_and_not_suggested() -> None:
    server_list = overlays.apply(ServerList(ITEMS), {"search": Overlay(hidden=True), "news": Overlay(name="searching")})
    for name in ("search", "news", "unlisted"):
        with pytest.raises(Fault) as caught:
            overlays.find(server_list, Call("tools/call", name, Client(), server="docs"))
        assert (caught.value.code, caught.value.reach) == ("TOOL_NOT_FOUND", "not_sent")
        assert caught.value.message.removeprefix(f"Tool not found: {name}") in ("", " (did you mean searching?)")
    with pytest.raises(Fault, match=r"Tool not found: search \(did you mean searching\?\)"):
        overlays.find(server_list, Call("tools/call", "search", Client(), server="docs"))


def test_traits_are_the_servers_own_and_say_what_callers_know_things_by() -> None:
    overlay = Overlay(name="find", parameters={"q": Parameter(name="query"), "region": Parameter(name="where")})
    server_list = overlays.apply(ServerList(ITEMS), {"search": overlay})
    found = tool_info.of(server_list, "search")
    assert found and json.loads(found.schema) == json.loads(SEARCH)["inputSchema"]
    assert (found.shown, found.parameters) == ("find", {"q": "query", "region": "where"})
    assert [argument.path for argument in found.header_arguments] == [("region",)]
    assert [argument.path for argument in tool_info.header_arguments_shown(server_list, "find")] == [("where",)]
    assert json.loads(found.shown_schema)["required"] == ["query", "limit"]
    assert tool_info.of(server_list, "find") is None


@pytest.mark.parametrize(
    ("own", "shown"),
    [("/q", "/query"), ("/q/0/q", "/query/0/q"), ("/limit/q", "/limit/q"), ("", ""), ("/a~1b/0", "/c~0~1d/0")],
)
def test_where_an_argument_is_wrong_is_told_in_the_callers_names(own: str, shown: str) -> None:
    assert ToolInfo(parameters={"q": "query", "a/b": "c~/d"}).as_shown(own) == shown


def test_overlays_come_and_go_and_the_servers_own_list_stays() -> None:
    first = overlays.apply(ServerList(ITEMS, 1.0, 2.0, True), {"search": Overlay(hidden=True)})
    second = overlays.apply(first, {"search": Overlay(name="find")})
    third = overlays.apply(second, {})
    assert [list(server_list.items) for server_list in (first, second, third)] == [
        ["news"],
        ["find", "news"],
        ["search", "news"],
    ]
    assert all(server_list.own == ITEMS for server_list in (first, second, third))
    assert (third.fetched, third.until, third.is_public, third.is_overlaid) == (1.0, 2.0, True, False)
