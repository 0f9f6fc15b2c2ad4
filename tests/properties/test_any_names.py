"""Names and URIs join and split, whatever servers there are and whatever their tools are called."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from toolgate.catalog import CatalogView
from toolgate.model import Call, Client
from toolgate.ports import Shelf
from toolgate.surfaces.aggregate import Aggregate
from toolgate.wire import mcp, names

servers = st.from_regex(r"\A[a-z0-9](-?[a-z0-9]){0,40}\Z")
server_sets = st.lists(servers, min_size=1, max_size=5, unique=True)
tools = st.text(min_size=1) | st.from_regex(r"\A[A-Za-z0-9_.-]{1,128}\Z") | st.sampled_from(["a__b", "__", "_", "a__"])
uris = st.from_regex(r"\A[a-z][a-z0-9+.-]{0,6}:(//)?[^\s]{0,20}\Z") | st.sampled_from(["ui://", "ui://a+b", "a+b:c"])


@pytest.mark.promise("b.names.slug")
@given(st.text())
def test_a_slug_is_an_id_and_stays_one(name: str) -> None:
    id = names.slug(name)
    assert names.slug(id) == id
    assert "__" not in id and "+" not in id and not id.startswith("-")
    assert id == "" or id.isascii()


@pytest.mark.promise("b.names.split")
@given(server_sets, tools, st.randoms())
def test_a_name_splits_into_what_it_was_joined_of(ids: list[str], tool: str, random: object) -> None:
    for server in ids:
        joined = names.join_name(server, tool)
        if len(server) + 2 + len(tool) <= names.LONGEST:
            assert names.split_name(joined, ids) == (server, tool)
        elif len(server) <= 50:  # of a longer id a shortened name keeps a part only: the surface knows it nevertheless
            found = names.split_name(joined, ids)
            assert found and found[0] == server
            assert len(joined) <= names.LONGEST


@pytest.mark.promise("b.uris.form")
@given(server_sets, uris)
def test_a_uri_splits_into_what_it_was_joined_of(ids: list[str], uri: str) -> None:
    for server in ids:
        joined = names.join_uri(server, uri)
        assert names.split_uri(joined, ids) == (server, uri)
        assert joined.startswith("ui://") == uri.startswith("ui://")
        assert joined[0].isalpha()


@given(server_sets, st.lists(tools, min_size=1, max_size=4, unique=True), st.sampled_from(["tools", "prompts"]))
def test_every_name_that_is_listed_is_resolved_to_its_tool(ids: list[str], own: list[str], kind: str) -> None:
    shelves = {server: Shelf({name: Raw(json.dumps({"name": name}).encode()) for name in own}) for server in ids}
    view = CatalogView(ids, lambda server, _kind: shelves[server], {}, ())
    surface = Aggregate()
    listed = [json.loads(bytes(raw))["name"] for raw in surface.list(kind, view)]
    method = next(method for method, found in mcp.CALLS.items() if found.kind == kind)
    resolved = []
    for name in listed:
        call = surface.enter(Call(method, name, Client()), view)
        resolved.append((call.server, call.target))
    assert resolved == [(server, name) for server in ids for name in own]
