"""What a server of any revision may say is said to a client of any other so that it is valid there too."""

from __future__ import annotations

import json
from typing import Any

import official
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from properties.shapes import ITEMS, MODERN, QUESTIONS, RESULTS

from toolgate.core import jsonrpc, mcp
from toolgate.core.listing import Listing
from toolgate.core.model import Ask, Client
from toolgate.eras import legacy, modern, revisions

REVISIONS = list(mcp.REVISIONS)
CLIENT = Client(revision=mcp.REVISIONS[MODERN])
of_two = st.tuples(st.sampled_from(REVISIONS[::-1]), st.sampled_from(REVISIONS))
some = settings(max_examples=150)


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value, separators=(", ", " : ")).encode())


def is_valid(result: Any, revision: str, method: str) -> bool:
    try:
        official.check({"jsonrpc": "2.0", "id": 1, "result": result}, revision, method)
    except AssertionError:
        return False
    return True


def is_valid_from(result: Any, revision: str, method: str) -> bool:
    """Valid for this client, and no member of it means something else in a later revision of its era."""
    later = [MODERN] if revision == MODERN else [each for each in mcp.dates("legacy") if each >= revision]
    return all(is_valid(result, each, method) for each in later)


def listed(kind: str, items: tuple[Raw, ...], revision: str) -> Any:
    listing = Listing(kind, items)
    body = modern.write_listing(CLIENT, listing, {"name": "a", "version": "1"}) if revision == MODERN else None
    return json.loads(body or legacy.write_listing(mcp.REVISIONS[revision], listing))


@pytest.mark.promise("b.rulings.13-members", "spec.legacy.messages.schema")
@pytest.mark.parametrize("kind", ITEMS)
@some
@given(told=of_two, data=st.data())
def test_an_item_of_any_list_is_valid_for_every_client(kind: str, told: tuple[str, str], data: st.DataObject) -> None:
    speaks, hears = told
    item = data.draw(ITEMS[kind](speaks))
    method = mcp.LIST_OF_KIND[kind]
    assert is_valid(listed(kind, (), speaks) | {kind: [item]}, speaks, method), "the strategy"
    found = listed(kind, (raw(item),), hears)
    assert is_valid(found, hears, method), found
    if is_valid_from({**found, kind: [item]}, hears, method):
        same = raw(item)
        assert revisions.write_item(kind, same, mcp.REVISIONS[hears]) is same


def written(method: str, body: Raw, revision: str) -> bytes:
    return (
        modern.write_done(method, body)
        if revision == MODERN
        else bytes(legacy.write_done(mcp.REVISIONS[revision], body))
    )


@pytest.mark.promise("b.rulings.13-content", "spec.legacy.messages.schema")
@pytest.mark.parametrize("method", RESULTS)
@some
@given(told=of_two, data=st.data())
def test_any_result_is_valid_for_every_client(method: str, told: tuple[str, str], data: st.DataObject) -> None:
    speaks, hears = told
    result = data.draw(RESULTS[method](speaks))
    assert is_valid(result, speaks, method), "the strategy"
    found = written(method, raw(result), hears)
    assert is_valid(json.loads(found), hears, method), found
    assert json.loads(found).get("isError") == result.get("isError")
    if is_valid_from(result, hears, method):
        if hears == MODERN or "resultType" not in result:
            assert found == bytes(raw(result))
        else:  # which clients of the handshake know nothing of
            assert json.loads(found) == {name: value for name, value in result.items() if name != "resultType"}


def asked(method: str, params: Any, revision: str) -> Any:
    ask = Ask("a", method, raw(params))
    if revision != MODERN:
        found = {
            name: json.loads(bytes(member)) for name, member in legacy.write_ask(ask, mcp.REVISIONS[revision]).items()
        }
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": found}
    result = modern.write_required(modern.write_questions(CLIENT, [ask]), None)
    return {"jsonrpc": "2.0", "id": 1, "result": json.loads(result)}


def params_of(message: Any) -> Any:
    return message["params"] if "params" in message else message["result"]["inputRequests"]["a"]["params"]


@pytest.mark.promise("b.rulings.13-members")
@pytest.mark.parametrize("method", QUESTIONS)
@some
@given(told=of_two, data=st.data())
def test_any_question_is_valid_for_every_client_that_can_be_asked(
    method: str, told: tuple[str, str], data: st.DataObject
) -> None:
    speaks, hears = (max(each, "2025-06-18") for each in told) if method == "elicitation/create" else told
    params = data.draw(QUESTIONS[method](speaks))
    found = asked(method, params, hears)
    official.check(found, hears, "tools/call")
    if speaks == hears:
        assert params_of(found) == params


@given(st.sampled_from(REVISIONS), st.sampled_from([*ITEMS]), st.recursive(st.none() | st.text(), st.lists))
def test_what_is_no_item_passes(revision: str, kind: str, item: Any) -> None:
    same = raw(item)
    assert revisions.write_item(kind, same, mcp.REVISIONS[revision]) is same
    assert jsonrpc.encode(same)
