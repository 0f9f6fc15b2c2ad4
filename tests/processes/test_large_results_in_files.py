"""Results of megabytes of a server over HTTP, whichever way they come and go: whole and the same, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from processes.ground import LEGACY, MODERN, Served, failure, open_files, read_response, real, until
from processes.scripted_http import Request
from processes.test_http_link import behind, writes

from toolgate.core import large
from toolgate.core.large import Gathering, Mapped
from toolgate.frontends import unsent

TEXT = "".join(f"line {number} of many, " for number in range(200_000))  # 4.7 MB
SECRET = "0123456789-is-a-secret-0123456789"
Way = Callable[[Request, bytes], None]


def whole(request: Request, body: bytes) -> None:
    request.whole(body)


def chunked(request: Request, body: bytes) -> None:
    request.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    for start in range(0, len(body), 50_000):
        piece = body[start : start + 50_000]
        request.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    request.write(b"0\r\n\r\n")


def as_an_event(request: Request, body: bytes) -> None:
    request.open_stream()
    request.event(body)
    request.end_stream()


WAYS = pytest.mark.parametrize("way", [whole, chunked, as_an_event], ids=lambda way: way.__name__)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each answer of several chunks: whether it was in a file."""
    found: list[bool] = []
    taken = Gathering.taken

    def seen(self: Gathering) -> bytes:
        body = taken(self)
        found.append(isinstance(body, Mapped))
        return body

    monkeypatch.setattr(Gathering, "taken", seen)
    return found


async def said(served: Served, era: str) -> Any:
    client = served.client(era)
    if era == LEGACY:
        await client.open()
    return (await client.ask("tools/call", {"name": "one__act", "arguments": {}}))["content"]


@WAYS
@pytest.mark.parametrize("era", [MODERN, LEGACY])
@pytest.mark.parametrize("modern", [True, False])
@real
async def test_a_large_result_comes_whole_and_waits_in_no_memory(
    way: Way, era: str, modern: bool, kept: list[bool]
) -> None:
    async with behind(writes(lambda request: way(request, request.answer(TEXT))), modern=modern) as (served, _):
        before = open_files()
        for _ in range(2):
            assert await said(served, era) == [{"type": "text", "text": TEXT}]
        assert kept == [True, True]
        await until(lambda: open_files() <= before + 2)


@WAYS
@real
async def test_a_secret_is_taken_out_of_a_large_result(way: Way, kept: list[bool]) -> None:
    text = f"{TEXT} {SECRET} {TEXT} {SECRET}"
    on_call = writes(lambda request: way(request, request.answer(text)))
    async with behind(on_call, headers={"X-Key": SECRET}) as (served, _):
        [block] = await said(served, MODERN)
        assert block["text"] == text.replace(SECRET, "[secret]")
        assert kept == [True]


@pytest.mark.parametrize("way", [whole, chunked, as_an_event], ids=lambda way: way.__name__)
@real
async def test_what_breaks_off_after_megabytes_is_an_error_and_leaves_no_file(way: Way) -> None:
    def broken(request: Request) -> None:
        body = request.answer(TEXT)
        kept, request.write = request.write, written.append  # type: ignore[method-assign]
        way(request, body)
        request.write = kept  # type: ignore[method-assign]
        request.write(b"".join(written)[:-200_000])
        request.connection.close()

    written: list[bytes] = []
    async with behind(writes(broken)) as (served, _):
        before = open_files()
        error = await failure(said(served, MODERN))
        assert "broke the connection" in error.message
        await until(lambda: open_files() <= before)


@real
async def test_a_client_that_leaves_in_mid_answer_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsent, "UNREAD", 0.0)
    async with behind(writes(lambda request: request.whole(request.answer(TEXT * 2)))) as (served, _):
        await said(served, MODERN)
        before = open_files()
        for _ in range(3):
            reader, writer = await served.client().start("tools/call", {"name": "one__act", "arguments": {}})
            assert b"200" in await reader.readline()
            writer.transport.abort()
        await until(lambda: open_files() <= before)


@real
async def test_where_there_is_no_room_for_a_file_a_large_result_comes_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(large.tempfile, "TemporaryFile", full)
    async with behind(writes(lambda request: request.whole(request.answer(TEXT)))) as (served, _):
        assert await said(served, MODERN) == [{"type": "text", "text": TEXT}]
    assert "No space left on device" in caplog.text


@real
async def test_a_large_error_is_cut_as_any_other() -> None:
    def refuses(request: Request) -> None:
        request.whole(json.dumps({"jsonrpc": "2.0", "id": request.id, "error": {"code": 7, "message": TEXT}}).encode())

    async with behind(writes(refuses)) as (served, _):
        error = await failure(said(served, MODERN))
        assert "cut by toolgate" in error.message


@pytest.mark.parametrize("era", [MODERN, LEGACY])
@real
async def test_a_large_result_comes_whole_in_an_event(era: str, kept: list[bool]) -> None:
    text = TEXT.replace("line 1", "line\u2028 1").replace("many", "größer\n")
    body = json.dumps({"content": [{"type": "text", "text": text}]}, ensure_ascii=False, indent=1).encode()

    def answer(request: Request) -> None:
        request.whole(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request.id, body))

    async with behind(writes(answer)) as (served, _):
        client = served.client(era)
        if era == LEGACY:
            await client.open()
        for _ in range(2):
            call = {"name": "one__act", "arguments": {}}
            reader, writer = await client.start("tools/call", call, "text/event-stream")
            status, headers, data = await read_response(reader)
            writer.close()
            assert (status, headers[b"content-type"]) == (200, b"text/event-stream")
            assert json.loads(data)["result"]["content"] == [{"type": "text", "text": text}]
    assert kept == [True, True]
