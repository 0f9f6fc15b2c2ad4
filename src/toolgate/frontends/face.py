"""What every door says alike, whatever carries it: who we are, what we offer, and errors as bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from toolgate import __version__
from toolgate.model import Fault, Note
from toolgate.wire import jsonrpc, mcp

log = logging.getLogger(__name__)

SERVER_INFO: Mapping[str, Any] = {"name": "toolgate", "version": __version__}

# What we relay. What is not relayed is not advertised.
LEGACY_CAPABILITIES: Mapping[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True},
    "prompts": {"listChanged": True},
    "logging": {},
}
MODERN_CAPABILITIES: Mapping[str, Any] = {"tools": {}, "resources": {}, "prompts": {}, "logging": {}}

Send = Callable[[bytes], None]


def rescued(error: BaseException) -> Fault:
    """Any failure as a fault: the one place where an exception of ours becomes an answer."""
    if isinstance(error, Fault):
        return error
    log.error("a request failed by a fault of the gateway", exc_info=error)
    return Fault("INTERNAL", f"The gateway failed: {type(error).__name__}")


def write_error(id: bytes, fault: Fault, code: int) -> bytes:
    return jsonrpc.error(id, code, fault.message, fault.data())


def write_malformed(error: jsonrpc.Malformed) -> bytes:
    return jsonrpc.error(error.id, error.rpc, error.message)


def write_note(note: Note, progress_token: bytes) -> bytes:
    """A note as the notification that it is for a client. Progress is for those only who gave a token."""
    if note.kind == "log":
        return jsonrpc.notification("notifications/message", note.params)
    return jsonrpc.notification(
        "notifications/progress", jsonrpc.with_members(note.params, {"progressToken": progress_token})
    )


class _Log(msgspec.Struct):
    level: str = "info"


def is_loud_enough(note: Note, wanted: str) -> bool:
    """Whether a log note is of the wanted level or above; one without a level that we know is shown."""
    try:
        level = msgspec.json.decode(note.params, type=_Log).level
        return mcp.LOG_LEVELS.index(level) >= mcp.LOG_LEVELS.index(wanted)
    except (ValueError, *jsonrpc.UNREADABLE):
        return True
