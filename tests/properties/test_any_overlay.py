"""Whatever an operator changes of whatever tools: what is shown can be called, and nothing else reaches the server."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from toolgate.catalog import overlays
from toolgate.catalog.base import ServerList
from toolgate.config import Overlay, Parameter
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client

NAMES = ("a", "b", "c", "d", 'e"\\')
names = st.sampled_from(NAMES)
texts = st.none() | st.text(max_size=5)
values = st.just(UNSET) | st.integers(0, 9)
parameters = st.builds(
    Parameter, name=st.just("") | names, description=texts, fixed=values, default=values, hidden=st.booleans()
)
some_overlays = st.builds(
    Overlay,
    name=st.just("") | names,
    title=texts,
    description=texts,
    hidden=st.booleans(),
    parameters=st.dictionaries(names, parameters),
)
changes = st.dictionaries(names | st.just("*"), some_overlays, min_size=1)
schemas = st.builds(
    lambda properties, required: {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in properties},
        "required": [name for name in required if name in properties],
        "additionalProperties": False,
    },
    st.lists(names, unique=True),
    st.lists(names, unique=True),
)
some_tools = st.dictionaries(names, schemas, min_size=1)
arguments = st.dictionaries(names, st.integers(10, 20))


def shelf_of(tools: dict[str, Any]) -> ServerList:
    listed = {name: {"name": name, "inputSchema": schema} for name, schema in tools.items()}
    return ServerList({name: Raw(json.dumps(tool, indent=1).encode()) for name, tool in listed.items()})


def entered(server_list: ServerList, name: str, given: Any) -> Call:
    call = Call("tools/call", name, Client(), Raw(json.dumps(given).encode()), server="s")
    return overlays.enter(call, overlays.find(server_list, call))


@given(some_tools, changes)
def test_what_is_shown_has_one_name_each_and_leads_back_to_a_tool_that_is_not_hidden(tools: Any, found: Any) -> None:
    own = shelf_of(tools)
    server_list = overlays.apply(own, found)
    targets = [entered(server_list, name, {}).target for name in server_list.items]
    assert len(set(targets)) == len(targets)
    for name, target in zip(server_list.items, targets, strict=True):
        overlay = found.get(target) or found.get("*") or Overlay()
        shown = json.loads(bytes(server_list.items[name]))
        assert not overlay.hidden
        assert shown["name"] == name
        if overlay == Overlay():
            assert bytes(server_list.items[name]) == bytes(own.items[target])
    assert overlays.apply(server_list, found).items == server_list.items
    assert overlays.apply(server_list, {}).items == own.items


@pytest.mark.promise("b.surfaces.overlays")
@given(some_tools, changes, names, arguments)
def test_no_caller_gives_what_is_fixed_or_hidden(tools: Any, found: Any, name: str, given: Any) -> None:
    server_list = overlays.apply(shelf_of(tools), found)
    try:
        call = entered(server_list, name, given)
    except Fault:
        return
    overlay = found.get(call.target) or found.get("*") or Overlay()
    sent = msgspec.json.decode(call.arguments)
    for own, parameter in overlay.parameters.items():
        if parameter.fixed is not UNSET and (call.target in found or own in tools[call.target]["properties"]):
            assert sent[own] == parameter.fixed
        elif parameter.hidden:
            assert sent.get(own, parameter.default) == parameter.default
    assert all(value in sent.values() for value in given.values())


@given(schemas, st.dictionaries(names, parameters), st.sampled_from(["t", "*"]), arguments)
def test_what_fits_the_schema_that_is_shown_fits_the_servers_own(own: Any, changed: Any, key: str, given: Any) -> None:
    found = {name: each for name, each in changed.items() if name in own["properties"] and not _is_lacking(each)}
    server_list = overlays.apply(shelf_of({"t": own}), {key: Overlay(parameters=found)})
    shown = json.loads(bytes(server_list.items["t"]))["inputSchema"]
    given = {name: value for name, value in given.items() if name in shown["properties"]}
    given |= dict.fromkeys(shown.get("required", ()), 10)
    assert jsonschema_rs.is_valid(shown, given)
    assert jsonschema_rs.is_valid(own, msgspec.json.decode(entered(server_list, "t", given).arguments))


def _is_lacking(parameter: Parameter) -> bool:
    """Whether a call that must have it cannot have it."""
    return parameter.hidden and parameter.fixed is UNSET and parameter.default is UNSET
