"""Whatever a tool says and whatever the limits: what is shown is valid, and the rest can be read."""

from __future__ import annotations

import base64
import json
from typing import Any

import official
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import shapes
from virtualtime import FakeClock, play

from toolgate.core import mcp
from toolgate.core.excerpts import Ends
from toolgate.core.model import Call, Client, Done, Principal, ToolInfo
from toolgate.eras import modern, revisions
from toolgate.policy import content_kinds
from toolgate.policy.overflow import OverflowStore
from toolgate.policy.truncate import META_KEY, Limit, Truncate

ANN = Client(Principal("ann"))
REVISIONS = (*official.LEGACY, official.MODERN)
long_texts = (
    st.lists(st.text(max_size=20), max_size=60).map("\n".join)
    | st.lists(st.integers(), max_size=200).map(json.dumps)
    | st.dictionaries(st.text(max_size=5), st.text(max_size=30), max_size=30).map(json.dumps)
    | st.binary(min_size=40, max_size=600).map(lambda data: base64.b64encode(data).decode())
    | st.text(max_size=300)
)


@st.composite
def results(draw: st.DrawFn, revision: str) -> Any:
    """As the official schema has them, with some texts and data that are longer than those usually are."""
    result = draw(shapes.tool_result(revision))
    for block in result["content"]:
        held = block["resource"] if block["type"] == "resource" else block
        for name in {"text"} & held.keys():
            held[name] = draw(long_texts)
        for name in {"data", "blob"} & held.keys():
            held[name] = base64.b64encode(draw(st.binary(max_size=1500))).decode()
    if "structuredContent" in result and draw(st.booleans()):
        result["structuredContent"] = {"rows": draw(st.lists(st.integers(), max_size=100))}
    return result


limits = st.builds(
    Limit,
    st.none() | st.integers(0, 1500),
    st.none() | st.integers(0, 400),
    st.builds(Ends, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)),
)


def read_whole(overflow: OverflowStore, uri: str, is_text: bool) -> Any:
    """All ranges in turn."""
    asked, found = f"{uri}?bytes=0-99", list[Any]()
    while asked:
        read = overflow.read(ANN, asked)
        (content,) = read["contents"]
        found.append(content["text"] if is_text else base64.b64decode(content["blob"]))
        asked = read["_meta"]["toolgate/range"].get("next", "")
    return ("" if is_text else b"").join(found)


def parts_of(result: Any) -> list[Any]:
    """The texts and the data of a result."""
    found = []
    for block in result["content"]:
        held = block["resource"] if block["type"] == "resource" else block
        found += [held[name] for name in ("text", "data", "blob") if name in held]
    return found


@pytest.mark.parametrize("revision", REVISIONS)
@settings(max_examples=60)
@given(st.data())
def test_what_is_shown_is_valid_and_the_rest_can_be_read(revision: str, data: st.DataObject) -> None:
    result, limit = data.draw(results(revision)), data.draw(limits)
    has_output = data.draw(st.booleans())

    async def conversation() -> None:
        overflow = OverflowStore(FakeClock())
        call = Call("tools/call", "t", ANN, server="docs", tool_info=ToolInfo(has_output=has_output))
        body = json.dumps(result).encode()
        outcome = Truncate(limit, {}, overflow).after(call, Done(body), None)
        assert isinstance(outcome, Done)
        is_modern = revision == official.MODERN
        written = (
            modern.write_done("tools/call", outcome.body)
            if is_modern
            else revisions.write_result(outcome.body, mcp.REVISIONS[revision])
        )
        official.check({"jsonrpc": "2.0", "id": 1, "result": json.loads(bytes(written))}, revision, "tools/call")
        shown = json.loads(bytes(outcome.body))
        for whole in parts_of(result):
            if content_kinds.form(whole):
                beginnings = [each for each in parts_of(shown) if whole[:40] and each.startswith(whole[:40])]
                assert all(len(each) >= len(whole) or each in parts_of(result) for each in beginnings)
        told = shown.get("_meta", {}).get(META_KEY, {"parts": []})["parts"]
        if not told:
            assert shown == result
        originals = [*parts_of(result), json.dumps(result.get("structuredContent"))]
        decoded = [each for each in map(content_kinds.from_base64, originals) if each is not None]
        for part in told:
            is_text = "blob" not in overflow.read(ANN, part["uri"] + "?bytes=0-9")["contents"][0]
            whole = read_whole(overflow, part["uri"], is_text)
            assert part["bytes"] == len(whole.encode() if is_text else whole)
            if part["kind"] in ("text", "json", "base64"):
                assert whole in originals
            elif part["kind"] == "blocks":
                assert all(block in result["content"] for block in json.loads(whole))
            elif part["kind"] == "structuredContent":
                assert json.loads(whole) == result["structuredContent"]
            elif not is_text:
                assert whole in decoded
        if has_output and "structuredContent" in result and "structuredContent" not in shown:
            assert shown["isError"] is True
        overflow.close()

    play(conversation())
