"""The ways to a client, and what the readers at the end of each take: the official SDKs, the most narrow one of each.

Where a client has all of its session in one stream of messages, one that it cannot read ends the session for many, and
all servers are lost with it. The rule this file keeps: whatever one server says, a message that goes such a way can be
read at its end; where it could not be, its own call hears why.
"""

from __future__ import annotations

import logging
import re
import sys

import msgspec
from msgspec import Raw

from toolgate.core import counting, jsonrpc
from toolgate.core.fault import Fault
from toolgate.core.mcp import PROGRESS_KEY
from toolgate.eras import listed
from toolgate.eras.repair import kept, object_of, optional

log = logging.getLogger(__name__)

KIB, MIB = 1024, 1024 * 1024
LARGEST_CODE = 2**31 - 1  # of an error: the official Java SDK ends its session at a larger one


class Way(msgspec.Struct, frozen=True):
    """How many bytes a message may have, and the items of one page of a list, each as one line; and up to how many
    bytes what stands in a message is looked at: where all of a session is in one stream of messages."""

    longest: int
    page: int
    looked_through: int = 0

    @property
    def is_one_stream(self) -> bool:
        return self.looked_through > 0


# A page has room for what stands around its items. Many clients read only the first: pages are as large as the most
# narrow reader takes. A result is of a client's own call: it has what most take.
BODY = Way(sys.maxsize, 9 * MIB)  # Streamable HTTP, an answer as it is
EVENT = Way(sys.maxsize, 900 * KIB)  # the same as an event of a stream: Python 2.3 loses one of more than 1 MiB
PIPE = Way(16 * MIB - 128 * KIB, 900 * KIB, 1020 * KIB)  # HTTP with SSE, or WebSocket: Go ends its session at 16 MiB
PIPE_OF_PYTHON = Way(1020 * KIB, 900 * KIB, 1020 * KIB)  # Python 2.3 over SSE, and 1 over WebSocket, at 1 MiB
STDIO = Way(10 * MIB - 128 * KIB, 3 * MIB, 10 * MIB)  # TypeScript at 10 MiB; Ruby and PHP at 4


def of_pipe(user_agent: str) -> Way:
    """That of a client over HTTP with SSE or WebSocket which says this of itself."""
    return PIPE_OF_PYTHON if user_agent[:6].lower() in ("", "python") else PIPE


_response = re.compile(
    rb'\{"jsonrpc":"2\.0","id":("(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*),"(?:result":|error":\{"code":(-?[0-9]+))'
)


DEEPEST = 120  # levels: Python's readers answer nothing at 200 of them, Rust's at 128


class _Block(msgspec.Struct, frozen=True):
    type: str


class _Message(msgspec.Struct, frozen=True):
    content: _Block | tuple[_Block, ...]


class _Object(msgspec.Struct, frozen=True): ...


class _Result(msgspec.Struct, frozen=True):
    content: tuple[_Block, ...] = ()
    messages: tuple[_Message, ...] = ()
    contents: tuple[_Object, ...] = ()


class _Told(msgspec.Struct, frozen=True):
    """Of what has another shape, the official Kotlin SDK ends its session."""

    result: _Result = _Result()


_told = jsonrpc.Decoder(_Told)


def readable(message: bytes, way: Way, is_merged: bool) -> bytes:
    """The message, where its reader can read it; else raises `Fault`. `is_merged`: the server that it may be from is
    not the only one on this connection."""
    if not way.is_one_stream:
        return message
    if len(message) > way.longest:
        text = f"The message has {len(message):,} bytes; over this transport it may have {way.longest:,}"
        hint = "ask for less at once, or connect over Streamable HTTP; with `result_limit` the rest is kept"
        raise Fault("UPSTREAM_ERROR", text, hint=hint, reach="executed")
    if len(message) > way.looked_through:
        return message
    why = listed.why_unparsable(message) if len(message) > listed.LONGEST_NUMBER else ""
    if not why and counting.is_deeper(message, DEEPEST):
        why = f"more than {DEEPEST} levels"
    if not why and is_merged and not _has_shape(message):
        why = "content that MCP does not have"
    if why:
        text = f"The answer of the server has {why}, which some clients cannot read"
        raise Fault("UPSTREAM_ERROR", text, hint="connect over Streamable HTTP", reach="executed")
    return message


def _has_shape(message: bytes) -> bool:
    try:
        _told.decode(message)
        return True
    except jsonrpc.UNREADABLE:
        return False


_OPTIONAL = ("isError", "structuredContent", "nextCursor", "description")
_without_nulls = kept(
    object_of({"_meta": optional(object_of({PROGRESS_KEY: jsonrpc.given})), **dict.fromkeys(_OPTIONAL, jsonrpc.given)})
)
"""A result without `null` in place of what may be left out. The official TypeScript SDK waits in vain for one whose
`_meta` is like that, or the token in it; of the others it and more make an error."""


def fitting(message: bytes, way: Way, is_merged: bool) -> bytes:
    """What is written in place of a message, which is the message itself as a rule: of a response that its reader could
    not read an error, of anything else nothing."""
    found = _response.match(message) if way.is_one_stream else None
    if found and found[2] and abs(int(found[2])) > LARGEST_CODE:
        message = b"%b%d%b" % (message[: found.start(2)], jsonrpc.INTERNAL_ERROR, message[found.end(2) :])
    if found and not found[2] and len(message) <= way.looked_through and b"null" in message:
        message = b"%b%b}" % (message[: found.end()], _without_nulls(Raw(message[found.end() : -1])))
    try:
        return readable(message, way, is_merged)
    except Fault as fault:
        if found:
            return jsonrpc.error(found[1], jsonrpc.INTERNAL_ERROR, fault.message, fault.data())
        log.warning("a message of %d bytes was not sent: its client may end its session there", len(message))
        return b""
