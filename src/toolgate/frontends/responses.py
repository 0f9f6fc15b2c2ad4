"""What every frontend says alike, whatever carries it: who we are, what we offer, and errors as bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from toolgate import __version__
from toolgate.core import internal_errors, jsonrpc, mcp
from toolgate.core.concurrency import BySize
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Message
from toolgate.core.listing import Listing
from toolgate.core.mcp import Revision
from toolgate.core.model import Call, Client, Done, Outcome
from toolgate.core.notes import Note
from toolgate.eras import revisions
from toolgate.policy.large_results import turn_of

log = logging.getLogger(__name__)

SERVER_INFO: Mapping[str, Any] = {"name": "toolgate", "version": __version__}

MOST_IN_FLIGHT = 4096  # requests of one session, or of one connection that goes both ways

LARGE = 32 * 1024  # bytes of a list or of questions: to write them, where all of it is odd icons, takes 50 ms

Written = TypeVar("Written")
SendMessage = Callable[[bytes], None]
"""Sends one message to a client, whole."""


async def aside(write: Callable[[], Written], outcome: Outcome, in_turns: BySize, call: Call) -> Written:
    """What comes of an outcome, as `write` writes it; of one that was so large that others would have waited while it
    was looked at, in a thread."""
    if not isinstance(outcome, Done) or not outcome.is_cut:
        return write()
    return await in_turns.of(memoryview(outcome.body).nbytes).in_thread(turn_of(call), write)


async def listing(
    page: Listing, revision: Revision, write: Callable[[Listing], bytes], in_turns: BySize, client: Client
) -> bytes:
    """A page as `write` writes it for this revision."""
    size = 0 if revisions.has_written(page, revision) else sum(map(len, page.items))
    return await by_size(size, lambda: write(page), in_turns, client)


async def by_size(size: int, write: Callable[[], Written], in_turns: BySize, client: Client) -> Written:
    """What `write` makes of so many bytes, in a thread where that takes so long that others would wait."""
    if size <= LARGE:
        return write()
    return await in_turns.of(size).in_thread(client.principal.counted_as, write)


def rescued(error: BaseException) -> Fault:
    """Any failure as a fault: the one place where an exception of ours becomes an answer."""
    if isinstance(error, Fault):
        return error
    if internal_errors.takes(error):
        log.error("a request failed because of an internal error", exc_info=error)
    return Fault("INTERNAL", f"Internal error: {type(error).__name__}")


def write_error(id: bytes, fault: Fault, code: int) -> bytes:
    return jsonrpc.error(id, code, fault.message, fault.data())


def write_failed(id: bytes, error: BaseException, code_of: Callable[[Fault], int]) -> bytes:
    """The error response for whatever went wrong; `code_of` is the era's."""
    fault = rescued(error)
    return write_error(id, fault, code_of(fault))


def method_not_found(message: Message) -> Fault:
    """For a method that there is not, or not for this client."""
    return Fault("METHOD_NOT_FOUND", f"Method not found: {message.method}")


def write_reused(message: Message) -> bytes:
    """The error response for a request whose id is that of another one in flight."""
    text = f"Invalid request: the id {bytes(message.id).decode()} is already in use"
    return jsonrpc.error(bytes(message.id), jsonrpc.INVALID_REQUEST, text)


def write_cancelled(message: Message) -> bytes:
    return jsonrpc.error(bytes(message.id), jsonrpc.INTERNAL_ERROR, "The request was cancelled")


def write_too_many(message: Message) -> bytes:
    """The error response for a request of a client that has as many in flight as it may."""
    text = f"Invalid request: more than {MOST_IN_FLIGHT} requests are in flight"
    return jsonrpc.error(bytes(message.id), jsonrpc.INVALID_REQUEST, text)


def write_malformed(error: jsonrpc.Malformed) -> bytes:
    return jsonrpc.error(error.id, error.rpc, error.message)


def write_note(note: Note, progress_token: bytes) -> bytes:
    """A note as the notification that it is for a client. Progress is for those only who gave a token."""
    if note.kind == "other":
        return jsonrpc.notification(note.method, note.params)
    params = revisions.write_note(note.kind, note.params)
    if note.kind == "log":
        return jsonrpc.notification(mcp.LOGGED, params)
    return jsonrpc.notification(mcp.PROGRESSED, jsonrpc.with_members(params, {mcp.PROGRESS_KEY: progress_token}))


class _Log(msgspec.Struct):
    level: str = "info"


def is_loud_enough(note: Note, wanted: str) -> bool:
    """Whether a log note is of the wanted level or above; one without a level that we know is shown."""
    try:
        level = jsonrpc.read(note.params, type=_Log).level
        return mcp.LOG_LEVELS.index(level) >= mcp.LOG_LEVELS.index(wanted)
    except (ValueError, *jsonrpc.UNREADABLE):
        return True
