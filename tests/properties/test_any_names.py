"""Names and URIs join and split, whatever servers there are and whatever their tools are called."""

from __future__ import annotations

import hashlib
import json
import random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from toolgate.catalog.base import ServerList
from toolgate.catalog.views import CatalogView
from toolgate.core import mcp, names
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client
from toolgate.surfaces.aggregate import Aggregate
from toolgate.surfaces.bare import Taken
from toolgate.surfaces.bundle import Bundle

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
    server_lists = {
        server: ServerList({name: Raw(json.dumps({"name": name}).encode()) for name in own}) for server in ids
    }
    view = CatalogView(ids, lambda server, _kind: server_lists[server], {}, ())
    surface = Aggregate()
    listed = [json.loads(bytes(raw))["name"] for raw in surface.list(kind, view)]
    method = next(method for method, found in mcp.CALLS.items() if found.kind == kind)
    resolved = []
    for name in listed:
        call = surface.enter(Call(method, name, Client()), view)
        resolved.append((call.server, call.target))
    assert resolved == [(server, name) for server in ids for name in own]


configured = st.sampled_from(["a", "b", "a__b", "A__b", "a_b", "a b", "1", "1__a"]) | st.text(
    "ab_- .A1", min_size=1, max_size=8
).filter(names.slug)
own_names = st.sampled_from(["x", "b__x", "a__x", "_b__x", "a:x", "a+b:x"]) | st.text(
    "ab_-A1+:/", min_size=1, max_size=9
)


@given(
    st.lists(configured, min_size=1, max_size=4, unique_by=names.slug),
    st.lists(own_names, min_size=1, max_size=3, unique=True),
    st.data(),
    st.sampled_from(["tools", "prompts", "resources"]),
)
def test_a_name_means_the_same_thing_to_every_client_or_nothing(
    called: list[str], own: list[str], data: st.DataObject, kind: str
) -> None:
    """However servers are written, and whatever their things are called."""
    ids = {names.slug(name): name for name in called}
    seen = {id: ids[id] for id in data.draw(st.lists(st.sampled_from(sorted(ids)), unique=True))}
    lists = {id: ServerList({name: Raw(json.dumps({"name": name}).encode()) for name in own}) for id in ids}
    method = next(method for method, found in mcp.CALLS.items() if found.kind == kind)

    def meant(name: str, servers: dict[str, str]) -> tuple[str, str] | None:
        view = CatalogView(servers, lambda server, _kind: lists[server], {}, ())
        view.all_servers = ids
        try:
            call = Aggregate(taken=Taken(ids)).enter(Call(method, name, Client()), view)
        except Fault:
            return None
        return call.server, call.target

    for id, name in ids.items():
        for thing in own:
            for spelling in names.spellings(name):
                shown = f"{spelling}__{thing}"
                to_all = meant(shown, ids)
                assert to_all == (id, thing) or spelling != id
                assert meant(shown, seen) == (to_all if to_all and to_all[0] in seen else None)


@given(st.integers(54, 80))
def test_where_the_id_of_a_server_is_too_long_to_be_kept_no_tool_of_another_has_a_digest_that_is_its_own(
    length: int,
) -> None:
    """Eight digits are found by trying some billions of names."""
    id = "s" * length
    joined = names.join_name(id, "x" * 20)
    assert len(joined) == names.LONGEST
    assert len(joined.rpartition("_")[2]) == (8 if names.SEPARATOR in joined[:55] else 32)


LONG = st.integers(0, 40).map(lambda number: "x" * 70 + str(number))
short_ids = st.lists(st.from_regex(r"\A[a-z0-9](-?[a-z0-9]){0,10}\Z"), min_size=1, max_size=3, unique=True)


def coarse(text: str) -> str:
    """A digest of which there are sixteen only, so that names do collide."""
    return hashlib.sha256(text.encode()).hexdigest()[:1] * 8


@pytest.mark.promise("b.names.short")
@given(short_ids, st.lists(LONG | tools, min_size=1, max_size=8, unique=True), st.randoms(), st.data())
def test_names_that_would_be_shortened_to_one_are_told_apart_and_resolved(
    ids: list[str], own: list[str], random: random.Random, data: st.DataObject
) -> None:
    with mock.patch.object(names, "_digest", coarse):
        clashing = [names.join_name(server, name).removeprefix(server + "__") for server in ids for name in own]
        own = list(dict.fromkeys([*own, *data.draw(st.lists(st.sampled_from(clashing), max_size=2))]))
        mixed = random.sample(own, len(own))
        server_lists = {
            server: ServerList({name: Raw(json.dumps({"is": name}).encode()) for name in own}) for server in ids
        }
        view = CatalogView(ids, lambda server, _kind: server_lists[server], {}, ())
        for surface in (Aggregate(), Bundle(["*"])):
            listed = [json.loads(bytes(raw)) for raw in surface.list("tools", view)]
            assert [item["is"] for item in listed] == own * len(ids)
            assert len({item["name"] for item in listed}) == len(listed)
            for item in listed:
                assert surface.enter(Call("tools/call", item["name"], Client()), view).target == item["is"]
        for server in ids:
            assert names.join_names(server, own) == names.join_names(server, mixed)
