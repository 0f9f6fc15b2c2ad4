"""Whether a server has refused a message because it does not know the session that the message came in.

The protocol has 404 for that, and nothing else in the message (2025-11-25 basic/transports, "Session Management"). A
404 has other reasons too, and some come when a call has run. So the words count, as SDKs write them; measured on the
sources of the Python SDK 1.9 to 2.3 and FastMCP (JSON-RPC errors "Session not found", "Not Found: Session has been
terminated", "Not Found: Invalid or expired session ID", in 1.9 a 400 "Bad Request: No valid session ID provided"; SSE:
"Could not find session", "Invalid session ID"), the TypeScript SDK 1.29 and 2.0 and the C# SDK (-32001 "Session not
found"; examples: "Invalid or missing session ID"), rmcp 0.8 to 3.1 (text "Not Found: Session not found", at first with
401), go-sdk 1.7 (text "session not found", "session is closing"), mcp-go ("Invalid session ID", "Session terminated",
"No active session found for the given session ID") and the Java SDK (JSON, "Session not found: ID").

The rule this file keeps: the words must say this and nothing else, and may name no session but ours; all else is a
refusal of another kind.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc

LONGEST = 1000  # bytes of a body that says so

_GONE = r"(?:not found|unknown|invalid|expired|terminated|closed|closing|deleted|does not exist|no longer exists)"
_BAD = r"(?:invalid|unknown|expired|terminated|no valid|no active|no such|missing)"
_words = re.compile(
    r"(?:(?:not found|bad request|unauthorized|gone)\s*:\s*)?"
    r"(?:(?:the )?(?:mcp )?session(?:[ -]?id)? (?:is |was |has been |has )?" + _GONE + rf"(?: or {_GONE})?"
    rf"|{_BAD}(?: or {_BAD})? (?:mcp )?session(?:[ -]?id)?(?: provided| found)?(?: for the given session id)?"
    r"|could not find session)"
    r"\s*[.:]?\s*"
)


class _Told(msgspec.Struct):
    """JSON in which frameworks say what is wrong: the error of JSON-RPC, or a text under one of these names."""

    error: Raw = jsonrpc.NOTHING
    message: Raw = jsonrpc.NOTHING
    detail: Raw = jsonrpc.NOTHING


_told = msgspec.json.Decoder(_Told)
_text = msgspec.json.Decoder(str)


def is_disowned(status: int, body: bytes, session: str) -> bool:
    """Whether this refusal says that the session is not known, so that the message was not looked at. `session` is the
    id that the message came with, or a text in which it stands."""
    if not 400 <= status < 500 or len(body) > LONGEST:
        return False
    return _words.fullmatch(_without(session, _said(body)).strip().lower()) is not None


def _said(body: bytes) -> str:
    try:
        told = _told.decode(body)
        if told.error and memoryview(told.error)[0] == 0x7B:
            told = _told.decode(told.error)
        return _text.decode(told.message or told.error or told.detail)
    except jsonrpc.UNREADABLE:
        return body.decode(errors="replace")


def _without(session: str, text: str) -> str:
    """The text without the id that may stand at its end."""
    start, _, id = text.rstrip().rpartition(" ")
    id = id.strip("'\"`")
    return start if len(id) >= 8 and id in session else text
