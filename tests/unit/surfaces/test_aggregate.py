"""The surface `aggregate`: what it lists, and how its names are resolved."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from toolgate.catalog.base import ServerList
from toolgate.catalog.views import CatalogView
from toolgate.core import mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Done
from toolgate.surfaces.aggregate import Aggregate

SURFACE = Aggregate()
LONG = "x" * 80


def server_list(kind: str, *names: str) -> ServerList:
    key = mcp.KINDS[kind].key
    return ServerList({name: Raw(json.dumps({key: name, "extra": [1.0]}).encode()) for name in names})


SHELVES = {
    ("brave", "tools"): server_list("tools", "search", "news", LONG),
    ("docs", "tools"): server_list("tools", "search", "read__all"),
    ("brave", "prompts"): server_list("prompts", "ask"),
    ("docs", "prompts"): server_list("prompts"),
    ("brave", "resources"): server_list("resources", "file:///a"),
    ("docs", "resources"): server_list("resources", "file:///a", "file:///b", "ui://panel"),
    ("docs", "resourceTemplates"): server_list("resourceTemplates", "file:///{path}"),
}


def view(**faults: Fault) -> CatalogView:
    servers = ("brave", "docs", *faults)
    return CatalogView(
        servers,
        lambda server, kind: SHELVES.get((server, kind)),
        {(server, "tools"): fault for server, fault in faults.items()},
        (),
    )


def listed(kind: str) -> list[dict[str, Any]]:
    return [json.loads(bytes(raw)) for raw in SURFACE.list(kind, view())]


def entered(target: str, method: str = "tools/call", **faults: Fault) -> tuple[str, str]:
    call = SURFACE.enter(Call(method, target, Client()), view(**faults))
    return call.server, call.target


def refused(target: str, method: str = "tools/call", **faults: Fault) -> Fault:
    with pytest.raises(Fault) as caught:
        entered(target, method, **faults)
    return caught.value


def test_lists_are_namespaced_in_the_order_of_the_servers_and_keep_what_we_do_not_know() -> None:
    tools = listed("tools")
    assert [tool["name"] for tool in tools][:2] == ["brave__search", "brave__news"]
    assert [tool["name"] for tool in tools][3:] == ["docs__search", "docs__read__all"]
    assert all(tool["extra"] == [1.0] for tool in tools)
    assert [item["uri"] for item in listed("resources")] == [
        "brave+file:///a",
        "docs+file:///a",
        "docs+file:///b",
        "ui://docs+panel",
    ]
    assert [item["uriTemplate"] for item in listed("resourceTemplates")] == ["docs+file:///{path}"]


def test_a_namespaced_name_is_resolved() -> None:
    assert entered("brave__search") == ("brave", "search")
    assert entered("docs__read__all") == ("docs", "read__all")
    assert entered("brave__ask", "prompts/get") == ("brave", "ask")


@pytest.mark.promise("b.names.short")
def test_a_shortened_name_resolves_back_and_so_does_the_whole_one() -> None:
    [shortened] = [tool["name"] for tool in listed("tools") if "xxx" in tool["name"]]
    assert len(shortened) == 64
    assert entered(shortened) == entered("brave__" + LONG) == ("brave", LONG)


@pytest.mark.promise("b.names.bare-unique")
def test_a_bare_name_is_resolved_where_one_server_has_it() -> None:
    assert entered("news") == ("brave", "news")
    assert entered("read__all") == ("docs", "read__all")
    assert entered("ask", "prompts/get") == ("brave", "ask")
    assert entered("file:///b", "resources/read") == ("docs", "file:///b")


@pytest.mark.promise("b.names.ambiguous")
def test_a_bare_name_that_several_servers_have_is_refused_with_the_candidates() -> None:
    fault = refused("search")
    assert fault.extra == {"candidates": ["brave__search", "docs__search"]}
    assert "brave__search, docs__search" in fault.message
    assert refused("file:///a", "resources/read").extra == {"candidates": ["brave+file:///a", "docs+file:///a"]}


@pytest.mark.promise("b.errors.near-miss")
def test_a_near_miss_is_told_what_was_meant() -> None:
    assert "did you mean brave__search" in refused("brave__serch").message
    assert "did you mean brave__news" in refused("brave_news").message
    assert refused("nothing-like-it").hint == "see tools/list"


def test_what_is_not_found_says_which_servers_could_not_be_asked() -> None:
    fault = refused("unheard-of", broken=Fault("SERVER_FAILED", "Command not found: x"))
    assert (fault.code, fault.rpc) == ("TOOL_NOT_FOUND", -32602)
    assert fault.extra == {"unavailable_servers": ["broken"]}


def test_a_name_of_a_server_that_failed_says_why_it_failed() -> None:
    why = Fault("SERVER_FAILED", "Command not found: x")
    assert refused("broken__tool", broken=why) is why


def test_a_namespaced_uri_is_the_servers_own_whether_it_is_listed_or_not() -> None:
    assert entered("docs+file:///made/by/a/template", "resources/read") == ("docs", "file:///made/by/a/template")
    assert entered("docs__file:///a", "resources/read") == ("docs", "file:///a")
    assert entered("ui://docs+panel", "resources/read") == ("docs", "ui://panel")
    assert refused("nope:///c", "resources/read").code == "RESOURCE_NOT_FOUND"


def test_a_call_needs_only_the_lists_that_tell_its_target() -> None:
    def needs(method: str, target: str) -> list[tuple[str, str]]:
        return list(SURFACE.needs(Call(method, target, Client()), view()))

    assert needs("tools/call", "docs__search") == [("docs", "tools")]
    assert needs("tools/call", "search") == [("brave", "tools"), ("docs", "tools")]
    assert needs("resources/read", "docs+file:///a") == []
    kinds = ("resources", "resourceTemplates")
    assert needs("resources/read", "file:///a") == [(server, kind) for server in ("brave", "docs") for kind in kinds]


def test_uris_in_a_result_get_the_name_of_their_server() -> None:
    call = Call("tools/call", "read", Client(), server="docs")
    body = b'{"content":[{"type":"resource_link","uri":"file:///a","name":"a"}]}'
    outcome = SURFACE.leave(call, Done(body))
    assert outcome == Done(body.replace(b"file:", b"docs+file:"))


@pytest.mark.promise("b.uris.ui")
def test_a_tool_that_has_a_page_names_it_as_the_list_of_resources_does() -> None:
    raw = Raw(b'{"name":"show","_meta":{"ui":{"resourceUri":"ui://panel"}}}')
    one = CatalogView(("docs",), lambda _server, _kind: ServerList({"show": raw}), {}, ())
    [shown] = SURFACE.list("tools", one)
    assert json.loads(bytes(shown)) == {"name": "docs__show", "_meta": {"ui": {"resourceUri": "ui://docs+panel"}}}
