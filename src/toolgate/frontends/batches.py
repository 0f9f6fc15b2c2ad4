"""Batches, which revision 2025-03-26 alone has (ruling 13): many messages in one array, their responses in another.

The rule this file keeps: each message is handled as if it had come alone; only where its response goes differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeGuard

from toolgate.core import jsonrpc, mcp
from toolgate.core.fault import Fault, let_go
from toolgate.core.jsonrpc import Malformed, Message
from toolgate.core.mcp import Revision
from toolgate.eras import modern

MOST = jsonrpc.LONGEST_BATCH

Batch: TypeAlias = Sequence[Message | Malformed]


def read(data: bytes, agreed: Revision | None, error: Malformed) -> Batch:
    """The messages of a batch, each with what is wrong with it. `agreed` is the revision that its client has agreed on,
    None before it has. Raises `Malformed`: `error` where the bytes are no batch at all."""
    if len(data) > jsonrpc.LARGEST_BATCH and data.lstrip()[:1] == b"[":
        raise _refused(f"a batch must have at most {jsonrpc.LARGEST_BATCH:,} bytes: send its messages one by one")
    raws = jsonrpc.read_batch(data)
    if raws is None:
        raise error
    if agreed and not agreed.has_batches:
        raise _refused(f"revision {agreed.date} does not support batches")
    if not 0 < len(raws) <= MOST:
        raise _refused(f"a batch must have 1 to {MOST} messages")
    tokens = jsonrpc.MOST_TOKENS // len(raws)  # all of it is read in one go
    batch = [_read_one(raw, tokens) for raw in raws]
    if any(isinstance(each, Message) and each.method == mcp.INITIALIZE for each in batch):
        raise _refused("initialize must not be in a batch")
    return batch


def _read_one(raw: bytes, tokens: int) -> Message | Malformed:
    try:
        message = jsonrpc.decode(raw, tokens)
    except Malformed as error:
        let_go(error)
        return error
    if message.is_request and modern.speaks_modern(None, message.params):
        refused = _refused(f"revision {mcp.LATEST['modern'].date} does not support batches")
        return Malformed(refused.rpc, refused.message, bytes(message.id))
    return message


def _refused(why: str) -> Malformed:
    return Malformed(jsonrpc.INVALID_REQUEST, f"Invalid request: {why}")


def begun(batch: Batch, begin: Callable[[int], int], gathered: Gathered) -> tuple[Batch, int]:
    """What is taken of a batch, and what `begin` returns for so many requests; 0 where there are none. Where it raises
    `Fault`, the requests are refused and all else is taken."""
    requests = [each for each in batch if _is_request(each)]
    try:
        return batch, begin(len(requests)) if requests else 0
    except Fault as fault:
        for each in requests:
            gathered.add(jsonrpc.error(bytes(each.id), fault.rpc, fault.message, fault.data()))
        return [each for each in batch if not _is_request(each)], 0


def _is_request(each: Message | Malformed) -> TypeGuard[Message]:
    return isinstance(each, Message) and each.is_request


def joined(responses: Sequence[bytes]) -> bytes:
    """One array; empty where there are none."""
    return b"[" + b",".join(responses) + b"]" if responses else b""


class Gathered:
    """Responses of one batch. `then` gets them when the last one is there."""

    def __init__(self, then: Callable[[Sequence[bytes]], None]) -> None:
        self._then = then
        self._responses: list[bytes] = []
        self._expected = 1  # the batch itself, until `is_whole`

    def expect(self) -> Callable[[bytes], None]:
        """Where the response of one more request goes; empty bytes are none."""
        self._expected += 1
        return self._one_less

    def follow(self, work: asyncio.Task[bytes], response_of: Callable[[asyncio.Task[bytes]], bytes]) -> None:
        """Expect the response of work under way."""
        reply = self.expect()
        work.add_done_callback(lambda done: reply(response_of(done)))

    def add(self, response: bytes) -> None:
        self._responses.append(response)

    def is_whole(self) -> None:
        """All messages of the batch have been taken."""
        self._one_less(b"")

    def _one_less(self, response: bytes) -> None:
        if response:
            self.add(response)
        self._expected -= 1
        if not self._expected:
            self._then(self._responses)
