"""Where requests and answers end, of bytes that a worker passes on."""

from __future__ import annotations

import pytest

from toolgate.frontends.workers.framing import Framing

ASKED = b"POST /mcp HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\n{}"
ANSWERED = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"


def test_a_request_is_over_when_its_answer_is() -> None:
    framing = Framing()
    assert framing.is_between
    for byte in ASKED:
        framing.sent(bytes((byte,)))
        assert not framing.is_between
    for byte in CHUNKED:
        assert not framing.is_between
        framing.returned(bytes((byte,)))
    assert (framing.is_between, framing.status) == (True, 200)


def test_two_requests_have_two_answers() -> None:
    framing = Framing()
    framing.sent(ASKED + ASKED)
    framing.returned(ANSWERED)
    assert not framing.is_between
    framing.returned(ANSWERED)
    assert framing.is_between


def test_an_answer_before_the_end_of_its_request_ends_nothing() -> None:
    framing = Framing()
    framing.sent(ASKED[:-1])
    framing.returned(ANSWERED)
    assert not framing.is_between
    framing.sent(ASKED[-1:])
    assert framing.is_between


def test_to_go_on_is_no_answer() -> None:
    framing = Framing()
    framing.sent(ASKED)
    framing.returned(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert not framing.is_between
    framing.returned(ANSWERED)
    assert framing.is_between


@pytest.mark.parametrize(
    "sent",
    [
        b"no HTTP\r\n\r\n",
        b"HEAD /mcp HTTP/1.1\r\nHost: here\r\n\r\n" + ASKED,
        b"GET /mcp HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"CONNECT here:1 HTTP/1.1\r\nHost: here\r\n\r\n",
    ],
    ids=["no HTTP", "whose answer has no body", "another protocol", "a tunnel"],
)
def test_what_is_more_than_requests_and_answers_never_ends(sent: bytes) -> None:
    framing = Framing()
    framing.sent(sent)
    framing.returned(ANSWERED)
    framing.returned(ANSWERED)
    assert not framing.is_between


def test_what_is_no_answer_never_ends() -> None:
    framing = Framing()
    framing.sent(ASKED)
    framing.returned(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
    framing.returned(ANSWERED)
    assert not framing.is_between
