"""One name, or one text of escapes, as long as a request may be: it is refused before anything is made of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from inmemory import Scripted, Visitor, gateway, said, tools

from toolgate.core import jsonrpc, names, surrogates

LONG, LONGER = "a-" * 50_000, "a-" * 500_000
ESCAPES = 1_000_000  # a surrogate each


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("execute_child_tool", {"server_id": LONG, "tool_name": "x", "arguments": {}}),
        ("mcp_call", {"server": LONG, "tool": "x"}),
        ("mcp_discover", {"query": "x", "server": LONG}),
        ("call_tool", {"server_name": LONG, "tool_name": "x", "arguments": {}}),
        ("read_mcp_resource", {"server_name": LONG, "resource_uri": "x:y"}),
        ("get_tool_schema", {"server_name": LONG, "tool_name": "x"}),
        ("get_tool_schema", {"server_name": "there", "tool_name": LONG}),
        ("list_tools", {"server_name": LONG}),
        ("get_schema", {"server_id": LONG}),
        ("get_child_status", {"server_id": LONG}),
        ("close_child_session", {"server_id": LONG}),
    ],
)
async def test_a_name_without_end_in_a_control_tool_is_neither_taken_apart_nor_repeated(
    monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any]
) -> None:
    slug = names.slug

    def bounded(name: str) -> str:
        assert len(name) < len(LONG)
        return slug(name)

    async with gateway(scripts={"there": Scripted(tools_list=tools("take"))}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        monkeypatch.setattr(names, "slug", bounded)
        response = await visitor.post(visitor.request("tools/call", name=tool, arguments=arguments))
        assert response.result["isError"]
        answer = response.result["content"][0]["text"]
        assert f"has {len(LONG):,} characters; the limit is" in answer
        assert len(answer) < 10_000


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("mcp_call", {"server": LONGER, "tool": "take"}),
        ("mcp_call", {"server": "there", "tool": "take", "args": json.dumps({"x": LONGER})}),
        ("mcp_discover", {"query": LONGER}),
    ],
)
async def test_a_text_without_end_in_a_control_tool_is_not_even_read(
    monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any]
) -> None:
    read = jsonrpc.read

    def bounded(data: bytes, type: Any) -> Any:
        assert len(memoryview(data)) < len(LONGER)
        return read(data, type)

    async with gateway(scripts={"there": Scripted(tools_list=tools("take"))}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        monkeypatch.setattr(jsonrpc, "read", bounded)
        response = await visitor.post(visitor.request("tools/call", name=tool, arguments=arguments))
        assert "bytes as text; the limit is 262,144" in response.result["content"][0]["text"]


async def test_an_object_without_end_in_a_control_tool_gets_to_its_server() -> None:
    there = Scripted(tools_list=tools("take"), tools_call=said("taken"))
    async with gateway(scripts={"there": there}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask(
            "tools/call", name="mcp_call", arguments={"server": "there", "tool": "take", "args": {"x": LONGER}}
        )
        assert there.requests[-1]["params"]["arguments"] == {"x": LONGER}


class _Never:
    def split(self, data: bytes) -> list[bytes]:
        raise AssertionError(f"{len(data):,} bytes were looked through")


@pytest.mark.parametrize("text", [rb"\ud83d" * ESCAPES, rb"\ud83d\ude00" * (ESCAPES // 2) + rb"\ud83d"])
def test_a_message_of_surrogates_without_end_is_refused_without_a_look(
    monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    monkeypatch.setattr(surrogates, "_lone", _Never())
    with pytest.raises(jsonrpc.Malformed, match="Parse error"):
        jsonrpc.decode(rb'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":1},"b":"%b"}' % text)


def test_of_pairs_of_surrogates_without_end_none_is_taken_for_a_lone_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogates, "_lone", _Never())
    data = rb'{"a":"%b"}' % (rb"\ud83d\ude00" * (ESCAPES // 2))
    assert surrogates.replaced(data) is data
    assert jsonrpc.value(data) == {"a": "\U0001f600" * (ESCAPES // 2)}


@pytest.mark.parametrize("stranger", ["\U000f1234" * ESCAPES, "".join(map(chr, range(0xF0000, 0xFFFFE)))])
def test_where_others_use_the_characters_that_stand_in_for_lone_surrogates_none_stands_in(
    monkeypatch: pytest.MonkeyPatch, stranger: str
) -> None:
    monkeypatch.setattr(surrogates, "_free", _Never())
    data = b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"%b"}}' % (stranger.encode() + rb"\ud800")
    assert jsonrpc.value(jsonrpc.decode(data).params) == {"a": stranger + "\ufffd"}


class _Split:
    """A pattern, and how many bytes it was given."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self._pattern = pattern
        self.given: list[int] = []

    def split(self, data: bytes) -> list[bytes]:
        self.given.append(len(data))
        return self._pattern.split(data)


LARGE = rb"\ud800%b" % (rb"\u0041" * 34) * 4_000
SMALL = rb"\ud800" * 15_000


@pytest.mark.parametrize(
    "text", [LARGE, SMALL, rb"\udc00\ud83d\ude00" * 20_000, rb"\uD800x\\\\" * 19_000 + b"x" * 900_000]
)
def test_a_large_message_is_looked_through_for_lone_surrogates_once(
    monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    looked = _Split(surrogates._lone)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(surrogates, "_lone", looked)
    data = b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"%b"}}' % text
    message = jsonrpc.decode(data)
    assert looked.given == [sum(looked.given)] and len(data) / 2 < looked.given[0] <= len(data)
    expected = surrogates.shown(json.loads(b'"%b"' % text))
    assert jsonrpc.value(jsonrpc.members(message.params)["a"]) == expected
    assert jsonrpc.value(message.params) == {"a": expected} and len(looked.given) == 1


@pytest.mark.parametrize(
    "text",
    [
        LARGE,
        SMALL * 4,
        rb"\ud83d\ude00" * 60_000 + rb"\ud83d",
        rb"\ud83d\ud83d\ude00\\\\\"" * 30_000,
        rb"\\\\" * 200_000,
    ],
)
@pytest.mark.parametrize("shift", range(0, 12))
def test_where_a_large_message_is_parted_nothing_is_torn(text: bytes, shift: int) -> None:
    data = b'"%b%b"' % (b"x" * shift, text)
    pieces = [*surrogates.replacing(data)]
    assert not pieces or len(pieces) > 4
    assert max(map(len, pieces), default=0) <= 2 * surrogates._PIECE  # pyright: ignore[reportPrivateUsage]
    assert json.loads(b"".join(pieces) or data) == surrogates.shown(json.loads(data))


@pytest.mark.parametrize("method", ["tools/call", "ping", "no/such"])
async def test_each_piece_of_a_large_body_with_lone_surrogates_takes_a_turn_of_its_sender(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    there = Scripted(tools_list=tools("take"), tools_call=said("taken"))
    async with gateway(scripts={"there": there}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask("tools/list")
        looked = _Split(surrogates._lone)  # pyright: ignore[reportPrivateUsage]
        turns: list[int] = []
        take = app.http.scheduler.turn

        async def turn(key: str) -> None:
            turns.append(len(looked.given))
            await take(key)

        monkeypatch.setattr(app.http.scheduler, "turn", turn)
        monkeypatch.setattr(surrogates, "_lone", looked)
        call = json.dumps(visitor.request(method, name="there__take", arguments={"x": "@"})).encode()
        await visitor.post(call.replace(b"@", LARGE))
        assert turns == [0, 0, *range(1, len(looked.given) + 1)]  # one piece in each
        assert len(LARGE) <= sum(looked.given) <= 1.1 * len(call + LARGE)
        if method == "tools/call":
            expected = surrogates.shown(json.loads(b'"%b"' % LARGE))
            assert there.requests[-1]["params"]["arguments"] == {"x": expected}


async def test_a_small_body_keeps_its_lone_surrogates() -> None:
    there = Scripted(tools_list=tools("take"), tools_call=said("taken"))
    async with gateway(scripts={"there": there}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        text = "\ud800" * 500 + "x" * 150_000
        await visitor.ask("tools/call", name="there__take", arguments={"x": text})
        assert there.requests[-1]["params"]["arguments"] == {"x": text}


def test_a_long_text_around_lone_surrogates_is_not_looked_at_character_by_character() -> None:
    class Never(str):
        def translate(self, table: object, /) -> str:
            raise AssertionError("a step for each character")

    marks = surrogates._Marks({}, {"\U000f0000": "\ud800"})  # pyright: ignore[reportPrivateUsage]
    assert surrogates._restored(Never("é\U000f0000"), marks) == "é\ud800"  # pyright: ignore[reportPrivateUsage]


def test_white_space_without_end_is_one_token() -> None:
    data = b" " * 200_000 + b'{"id" : 7,\n "method": "x"' + b"\n" * 1_000_000
    assert len(jsonrpc._token.findall(data)) < 20  # pyright: ignore[reportPrivateUsage]
    assert jsonrpc.salvaged(data) == (b"7", False)


def test_lone_surrogates_in_megabytes_are_refused_before_anything_is_looked_for() -> None:
    text = b"x" * surrogates.LARGEST
    with pytest.raises(jsonrpc.UNREADABLE):
        jsonrpc.value(b'{"a":"%b\\ud83d"}' % text)
    assert surrogates._split(text + b"\\ud83d") == [text + b"\\ud83d"]  # pyright: ignore[reportPrivateUsage]
    assert jsonrpc.value(b'{"a":"%b"}' % text) == {"a": text.decode()}


class _Counted:
    """A pattern, and how much it has found."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self._pattern = pattern
        self.found = 0

    def finditer(self, data: bytes) -> Iterator[re.Match[bytes]]:
        for match in self._pattern.finditer(data):
            self.found += 1
            yield match


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":%b%b}}' % (b"[" * 90_000, b"]" * 90_000),
        b"[%b]" % b",".join([b'{"jsonrpc":"1.0","id":7,"params":{%b}}' % b" , ".join([b'"a" : 1'] * 900)] * 100),
    ],
    ids=["so deep that it cannot be read", "a batch"],
)
async def test_what_is_no_message_is_taken_apart_no_further_than_a_moment_takes(
    monkeypatch: pytest.MonkeyPatch, message: bytes
) -> None:
    counted = _Counted(jsonrpc._token)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(jsonrpc, "_token", counted)
    async with gateway() as app:
        response = await Visitor(app).post(message)
        [found] = response.messages
        answers = found if isinstance(found, list) else [found]
        assert {answer["id"] for answer in answers} == {7}
    assert 0 < counted.found <= 2 * jsonrpc.MOST_TOKENS  # as one message, and as a batch
    assert jsonrpc.MOST_TOKENS <= 10_000
