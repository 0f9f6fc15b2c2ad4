"""Which refusals say that a session is unknown, and nothing else."""

from __future__ import annotations

import pytest

from toolgate.upstreams.links.disowned import is_disowned

OURS = "5d41402abc4b2a76"

UNKNOWN = [
    "Session not found",
    "session not found\n",
    "Not Found: Session not found",
    "Unauthorized: Session not found",
    "Could not find session",
    "Invalid session ID",
    "Session terminated",
    "Session not found.",
    "No active session found for the given session ID",
    "Bad Request: No valid session ID provided",
    "Invalid or missing session ID",
    '{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}',
    '{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}',
    '{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Not Found: Session has been terminated"}}',
    '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Not Found: Invalid or expired session ID"}}',
    '{"error":"Session not found"}',
    '{"detail":"Session not found"}',
    '{"code":-32603,"message":"Session not found: 5d41402abc4b2a76"}',
]
"""As SDKs say it."""

NOT_THAT = [
    "",
    "Not Found",
    "404 page not found",
    "Session not found: another-session",
    "the call ran; session not found afterwards",
    '{"error":{"code":-32001,"message":"browser session not found"}}',
    '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no such tool"}}',
    "<html><title>Session not found</title></html>",
    '{"message":["Session not found"]}',
    "Session not found" + " " * 2000,
]


@pytest.mark.parametrize("words", UNKNOWN)
def test_the_words_of_every_sdk_are_known(words: str) -> None:
    assert is_disowned(404, words.encode(), OURS)
    assert is_disowned(404, words.encode(), f"/messages/?session_id={OURS}")
    assert not is_disowned(500, words.encode(), OURS)


@pytest.mark.parametrize("words", NOT_THAT)
def test_all_else_is_a_refusal_of_another_kind(words: str) -> None:
    assert not is_disowned(404, words.encode(), OURS)
