"""A result so large that it is kept in a file, and read in a thread, is what the same one is that is small."""

from __future__ import annotations

import io
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from inmemory import LATEST, MODERN, Scripted, Visitor, gateway, tools
from properties.material import cut, objects, written
from virtualtime import play

from toolgate.core import jsonrpc, large, sse
from toolgate.core.large import Gathering, Joined, Mapped
from toolgate.policy import scrub
from toolgate.upstreams.mcp import requests
from toolgate.upstreams.mcp.requests import Requests

SECRET = "0123456789-is-a-secret-0123456789"
ERAS = st.sampled_from([MODERN, LATEST])
words = st.sampled_from(["", "word ", SECRET, "é", "\n", "toolgate/", '"', "\\u00", "resource"])
blocks = st.lists(words, max_size=4).map(lambda each: {"type": "text", "text": "".join(each)})
links = st.sampled_from("ab").map(lambda each: {"type": "resource_link", "name": "n", "uri": f"docs://{each}"})
results = st.fixed_dictionaries(
    {"content": st.lists(blocks | links, max_size=4)},
    optional={
        "isError": st.booleans(),
        "resultType": st.just("complete"),
        "structuredContent": objects,
        "_meta": st.dictionaries(st.sampled_from(["toolgate/x", "x", "ui"]), objects, max_size=2),
        "x": words | objects,
    },
)


@contextmanager
def all_are_large() -> Generator[list[str]]:
    """As if a few bytes were many. What is said of each answer tells that it was."""
    seen: list[str] = []
    usual = Requests.received

    def received(self: Requests, data: bytes, origin: int | None, read: Any = None) -> Any:
        if not read and len(data) > 64:
            gathering = Gathering(b"")
            gathering.add(data)
            data = gathering.taken()
            seen.append(type(data).__name__)
        return usual(self, data, origin, read)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "IN_MEMORY", 16)
        patch.setattr(large, "PIECE", 64)
        patch.setattr(requests, "LARGE", 64)
        patch.setattr(scrub, "LARGE", 64)
        patch.setattr(Requests, "received", received)
        yield seen


async def answered(client: str, server: str, result: bytes, at_a_path: bool) -> bytes:
    script = Scripted(server, tools_list=tools("t"), tools_call=result)
    async with gateway(scripts={"docs": script}) as app:
        app.gateway.redactor.learn([SECRET])
        visitor = Visitor(app, "/mcp/servers/docs" if at_a_path else "/mcp")
        called = "t" if at_a_path else "docs__t"
        if client == MODERN:
            return (await visitor.ask_modern("tools/call", name=called, arguments={})).body
        await visitor.initialize()
        return (await visitor.ask("tools/call", name=called, arguments={})).body


@settings(max_examples=60)
@given(ERAS, ERAS, written(results), st.booleans())
@example(MODERN, MODERN, b'{"content":[{"type":"text","text":"%b"}],"resultType":"complete"}' % (b"x" * 999), False)
@example(LATEST, LATEST, b'{"content":[{"type":"text","text":"%b"}],"isError":true}' % (b"x" * 999), False)
@example(MODERN, LATEST, b'{ "content":[{"type":"text","text":"%b"}]}' % (SECRET.encode() * 9), False)
def test_a_large_result_is_what_a_small_one_is(client: str, server: str, result: bytes, at_a_path: bool) -> None:
    told = partial(answered, client, server, result, at_a_path)
    small = play(told())
    with all_are_large() as seen:
        assert play(told()) == small
    assert len(result) < 64 or "Mapped" in seen


@given(st.binary(max_size=200).flatmap(cut), st.integers(1, 64), st.booleans())
def test_what_comes_in_pieces_is_whole_wherever_it_is_kept(chunks: list[bytes], most: int, is_full: bool) -> None:
    whole = b"".join(chunks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "IN_MEMORY", most)
        patch.setattr(large, "PIECE", most)
        patch.setattr(large.tempfile, "TemporaryFile", partial(_File, len(whole) // 2) if is_full else _File)
        gathering = Gathering(b"")
        for chunk in chunks:
            gathering.add(chunk)
        taken = gathering.taken()
    assert taken[:] == whole and len(taken) == len(whole)
    assert isinstance(taken, Mapped) == (len(whole) > most and not is_full)


@given(st.lists(st.binary(max_size=40), max_size=5), st.integers(1, 50), st.booleans())
def test_what_is_joined_of_parts_is_read_as_one(parts: list[bytes], size: int, is_nested: bool) -> None:
    whole = b"".join(parts)
    joined = Joined(Joined(*parts[:2]), *parts[2:]) if is_nested else Joined(*parts)
    assert bytes(joined) == whole and len(joined) == len(whole)
    assert [joined.read(at, size) for at in range(len(whole) + 1)] == [
        whole[at : at + size] for at in range(len(whole) + 1)
    ]


@given(st.binary(max_size=200), st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=3), st.integers(1, 9))
def test_what_is_sought_is_found_wherever_a_piece_ends(body: bytes, sought: list[bytes], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "PIECE", size)
        view: Any = memoryview(body)
        assert large.holds_any(view, *sought) == any(each in body for each in sought)


class _File(io.FileIO):
    """One on a disk that takes so many bytes and no more."""

    def __init__(self, most: int | None = None, **_: Any) -> None:
        super().__init__(large.tempfile.mkstemp()[0], "w+")
        self._left = most

    def write(self, data: Any) -> int:
        if self._left is None:
            return super().write(data)
        if not self._left:
            raise OSError(28, "No space left on device")
        written = super().write(memoryview(data)[: self._left])
        self._left -= written
        return written


LINES = st.sampled_from([b"data: ", b"data:", b"data", b"x" * 9, b"\n", b"\r\n", b"\r", b": ", b"event: e", b"id: 7"])


@given(st.lists(LINES, max_size=30).map(b"".join).flatmap(cut))
def test_events_are_the_same_wherever_their_data_is_kept(chunks: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "IN_MEMORY", len("data: "))
        usual, of_files = sse.Reader(1000), sse.Reader(1000, in_file=True)
        for chunk in chunks:
            expected, found = usual.feed(chunk), of_files.feed(chunk)
            assert [msgspec.structs.replace(each, data=each.data[:]) for each in found] == expected
            assert of_files.kept <= usual.kept


@given(st.text("ab\n\r\x85\u2028\u2029\u2027é€\u00c2", max_size=40).map(str.encode), st.integers(1, 5))
def test_a_message_in_pieces_is_on_one_line_as_a_whole_one_is(message: bytes, size: int) -> None:
    lines = jsonrpc.OneLine()
    found = b"".join(lines.piece(message[at : at + size]) for at in range(0, len(message), size)) + lines.rest
    assert found == jsonrpc.one_line(message)
