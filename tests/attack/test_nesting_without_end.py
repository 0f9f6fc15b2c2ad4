"""What is nested very deep can be read by one part of the gateway and not by the next, by how much it has under way
itself: so it is refused where it is read first, at one depth, and nothing is half done with it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bridge.test_audited import audited
from hypothesis import given
from hypothesis import strategies as st
from inmemory import LATEST, MODERN, Scripted, Visitor, gateway, said, tools
from peers import LegacyServer, Scene

from toolgate.config import Audit
from toolgate.core import counting, jsonrpc
from toolgate.core.counting import is_deeper
from toolgate.core.jsonrpc import DEEPEST, DEEPEST_ITEM, Malformed
from toolgate.core.steps import at_once
from toolgate.policy import arguments as noted
from toolgate.upstreams.component import metadata

DEPTHS = [DEEPEST - 20, DEEPEST + 1, 500, 700, 900, *range(940, 980, 3), 5000]


def nested(levels: int, inner: bytes = b"1") -> bytes:
    return b"[" * levels + inner + b"]" * levels


# Counting.

TEXTS = st.text('ab,[]{}"\\: é', max_size=8)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=30,
)


def depth(value: Any) -> int:
    inner = value if isinstance(value, list) else value.values() if isinstance(value, dict) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@given(VALUES, st.integers(1, 20), st.integers(0, 3))
def test_levels_are_counted_as_a_reader_finds_them(value: Any, around: int, indent: int) -> None:
    for _ in range(around):
        value = [value, "[", [], {}]
    written = json.dumps(value, indent=indent or None, ensure_ascii=False).encode()
    there = depth(value)
    assert not is_deeper(written, max(there, counting._LEAVES))
    assert there <= counting._LEAVES + 1 or is_deeper(written, there - 1)


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64])
@given(VALUES, st.integers(0, 20))
def test_wherever_a_piece_ends_nothing_deeper_passes(piece: int, value: Any, around: int) -> None:
    for _ in range(around):
        value = [[], value, "]"]
    written, there = json.dumps(value, ensure_ascii=False).encode(), depth(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "PIECE", piece)
        assert not is_deeper(written, there + counting._LEAVES)
        assert there == 0 or is_deeper(written, there - 1)


MIB = 1024 * 1024


@pytest.mark.attack
@pytest.mark.parametrize(
    ("data", "is_too_deep"),
    [
        (b"[%b]" % b",".join([b"[]"] * MIB), False),
        (b"[%b]" % b",".join([b'{"a":[[1,2],[3]]}'] * 100_000), False),
        (b"[%b]" % b",".join([nested(200)] * 5000), False),
        (b"[%b]" % b",".join([nested(252)] * 5000), True),  # close to the limit, and without end
        (b'["%b"]' % (b"[" * 4 * MIB), False),
        (b'["%b"]' % (rb"\"[" * MIB), False),
        (b'{"a":' * DEEPEST + b"1" + b"}" * DEEPEST, False),
        (b'{"a":' * DEEPEST + b"[]" + b"}" * DEEPEST, True),
        (nested(4 * MIB), True),
    ],
)
def test_what_is_large_is_counted_in_pieces(data: bytes, is_too_deep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    followed = list[int]()
    accumulate = counting.accumulate
    monkeypatch.setattr(
        counting, "accumulate", lambda of, initial: followed.append(len(of)) or accumulate(of, initial=initial)
    )
    assert is_deeper(data, DEEPEST) is is_too_deep
    assert max(followed, default=0) <= counting.PIECE
    assert sum(followed) <= counting._MOST_FOLLOWED + counting.PIECE


# Messages.


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":%b}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"a":%b}}',
        b'{"jsonrpc":"2.0","result":{"a":%b},"id":7}',
        b'{"jsonrpc":"2.0","error":{"code":1,"message":"","data":%b},"id":7}',
        b'{"jsonrpc":"2.0","method":"x","params":{"a":%b}}',
    ],
)
def test_a_message_has_so_many_levels_and_not_one_more(message: bytes) -> None:
    jsonrpc.decode(message % nested(DEEPEST - 2))
    for levels in (DEEPEST - 1, 900, 5000):
        with pytest.raises(Malformed, match=f"more than {DEEPEST} levels") as refused:
            jsonrpc.decode(message % nested(levels))
        found = refused.value
        is_answer = b"method" not in message
        assert (found.rpc, found.is_answer) == (jsonrpc.INVALID_REQUEST, is_answer)
        assert found.only == next(each for each in ("method", "result", "error") if each.encode() in message)
        if levels < 5000:  # what no reader can read has its id looked for in its beginning
            assert found.id == (b"7" if b"id" in message else b"null")


@pytest.mark.parametrize("beside", [b'"params":{},', b'"params":[],', b'"pad":[%b[]],' % (b"[]," * 200_000)])
def test_nothing_beside_a_result_hides_how_deep_it_is(beside: bytes) -> None:
    with pytest.raises(Malformed, match="levels"):
        jsonrpc.decode(b'{"jsonrpc":"2.0","id":7,%b"result":{"a":%b}}' % (beside, nested(DEEPEST)))


def test_a_result_that_nobody_looks_into_may_be_as_deep_as_it_is() -> None:
    """It is too much for that, and passed on as it is."""
    much = b"[%b]" % b",".join([b"1"] * 600_000)
    body = b'{"content":[],"a":%b,"b":%b}' % (much, nested(300))
    assert counting.is_too_much(body)
    assert bytes(jsonrpc.decode(b'{"jsonrpc":"2.0","id":7,"result":%b}' % body).result) == body
    less = body.replace(much, b'"%b"' % (b"1," * 600_000))
    assert not counting.is_too_much(less)
    with pytest.raises(Malformed, match="levels"):
        jsonrpc.decode(b'{"jsonrpc":"2.0","id":7,"result":%b}' % less)


def posted(name: str, arguments: bytes, era: str) -> bytes:
    params = {"name": name, "arguments": msgspec.Raw(arguments)}
    if era == MODERN:
        meta = {"protocolVersion": MODERN, "clientCapabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        params["_meta"] = {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params})


async def plain(scene: Scene) -> str:
    return "done"


KEY = "\tk-0123456789-abcdefghijkl"


@pytest.mark.promise("b.attacks.nesting")
@pytest.mark.parametrize("era", [LATEST, MODERN])
@pytest.mark.parametrize("inner", [b"1", b"1234567890", json.dumps(KEY).encode()])
@pytest.mark.parametrize("through", ["there__plain", "mcp_call"])
async def test_no_call_runs_without_its_line_however_deep_its_arguments_are(
    tmp_path: Path, era: str, inner: bytes, through: str
) -> None:
    """Each call is noted or refused, and each line can be read."""
    server = LegacyServer({"plain": plain})
    secrets = ("1234567890", "tk-0123456789-abcdefghijkl")
    async with audited(tmp_path, Audit(arguments="full"), secrets, there=server) as there:
        visitor = Visitor(there.rig.app, "/mcp/all")
        headers = {}
        if era == MODERN:
            headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": through}
        else:
            await visitor.initialize()
        for levels in DEPTHS:
            given = b'{"y":%b}' % nested(levels, inner)
            if through == "mcp_call":
                given = b'{"server":"there","tool":"plain","args":%b}' % given
            before = len(server.calls)
            response = await visitor.begin("POST", posted(through, given, era), headers=headers).response()
            if levels < DEEPEST:
                assert response.result and len(server.calls) == before + 1
            else:
                assert response.last["error"]["code"] == jsonrpc.INVALID_REQUEST
                assert f"more than {DEEPEST} levels" in response.last["error"]["message"]
                assert len(server.calls) == before
        lines = [line for line in await there.lines() if line["event"] == "call"]
        assert len(lines) == sum(levels < DEEPEST for levels in DEPTHS) == len(server.calls)
        assert all(line["arguments"] for line in lines)


async def test_a_call_has_its_line_also_where_its_arguments_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: bytes) -> bytes:
        raise RecursionError

    monkeypatch.setattr(noted, "_in_one_line", fails)
    async with audited(tmp_path, Audit(arguments="full"), there=LegacyServer({"plain": plain})) as there:
        client = await there.rig.client(LATEST)
        assert (await client.call("there__plain", arguments={"a": 1})).result
        (line,) = await there.lines()
        assert line["outcome"] == "done" and line["arguments_sha256"] and "arguments" not in line


async def test_of_a_batch_only_the_message_is_refused_that_is_too_deep() -> None:
    async with gateway(scripts={"there": Scripted(tools_list=tools("act"), tools_call=said("fine"))}) as app:
        visitor = Visitor(app)
        await visitor.initialize("2025-03-26")
        batch = b"[%b,%b]" % (
            posted("there__act", b'{"y":%b}' % nested(300), LATEST),
            posted("there__act", b"{}", LATEST).replace(b'"id":9', b'"id":10'),
        )
        answers = (await visitor.begin("POST", batch).response()).messages
        answers = answers[0] if isinstance(answers[0], list) else answers
        by_id = {each["id"]: each for each in answers}
        assert by_id[9]["error"]["code"] == jsonrpc.INVALID_REQUEST and "fine" in str(by_id[10]["result"])


# Servers.

LISTED = tools("act") | {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def item(where: str, levels: int) -> bytes:
    deep = nested(levels)
    if where == "meta":
        return b'{"name":"evil","inputSchema":{"type":"object"},"_meta":{"y":%b}}' % deep
    return b'{"name":"evil","inputSchema":{"type":"object","properties":{"p":{"default":%b}}}}' % deep


@pytest.mark.promise("b.attacks.nesting")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/aggregate", "/mcp/all"])
@pytest.mark.parametrize("where", ["meta", "schema"])
@pytest.mark.parametrize("levels", DEPTHS)
async def test_a_tool_that_is_too_deep_spoils_no_list_of_others(levels: int, where: str, path: str) -> None:
    good, there = Scripted(tools_list=tools("act")), Scripted(tools_list=tools("act"))
    there.answers["tools/list"] = b'{"tools":[{"name":"fine","inputSchema":{"type":"object"}},%b]}' % item(
        where, levels
    )
    async with gateway(scripts={"good": good, "there": there}) as app:
        for _ in range(2):
            visitor = Visitor(app, path)
            await visitor.initialize()
            names = {tool["name"] for tool in (await visitor.ask("tools/list")).result["tools"]}
            assert "good__act" in names and "there__evil" not in names
            assert ("there__fine" in names) is (levels < DEEPEST)


@pytest.mark.parametrize("levels", [DEEPEST_ITEM - 10, DEEPEST_ITEM + 1])
async def test_an_item_that_is_too_deep_is_left_out_and_told(levels: int, caplog: pytest.LogCaptureFixture) -> None:
    there = Scripted()
    there.answers["tools/list"] = b'{"tools":[%b]}' % item("meta", levels)
    async with gateway(scripts={"there": there}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        listed = (await visitor.ask("tools/list")).result["tools"]
    assert any(tool["name"] == "there__evil" for tool in listed) is (levels < DEEPEST_ITEM)
    assert (f"more than {DEEPEST_ITEM} levels" in caplog.text) is (levels > DEEPEST_ITEM)


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("levels", DEPTHS)
async def test_a_result_that_is_too_deep_is_the_servers_error(levels: int, revision: str) -> None:
    there = Scripted(revision, tools_list=LISTED)
    there.answers["tools/call"] = b'{"content":[],"resultType":"complete","structuredContent":{"y":%b}}' % nested(
        levels
    )
    async with gateway(scripts={"there": there}) as app:
        for era in (LATEST, MODERN):
            ask = Visitor(app).ask_modern if era == MODERN else Visitor(app).ask
            response = await ask("tools/call", name="there__act", arguments={})
            if levels < DEEPEST:
                assert response.result["structuredContent"]
            else:
                assert response.error["data"]["code"] == "UPSTREAM_ERROR" and "levels deep" in response.error["message"]


@pytest.mark.parametrize("levels", [DEEPEST_ITEM + 1, 900, 5000])
def test_of_a_component_a_tool_that_is_too_deep_is_left_out(levels: int) -> None:
    fine = b'{"name":"fine","inputSchema":{}}'
    found = at_once(metadata.read(b"[%b,%b]" % (fine, item("meta", levels)))) if levels < 900 else None
    if found:
        assert [bytes(raw) for raw in found.raw] == [fine] and re.search("more than .* levels", found.faults[0])
    else:
        refuse: Callable[[], Any] = lambda: at_once(metadata.read(item("meta", levels)))  # noqa: E731
        with pytest.raises(metadata.NoTools):
            refuse()
