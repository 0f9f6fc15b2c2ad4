"""How an answer goes out: whole, or at the end of a stream."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from virtualtime import FakeClock, settle

from toolgate.frontends import sse_delivery
from toolgate.frontends.channels import Channel, ReplayBuffers
from toolgate.frontends.streams import Response


async def silent() -> Any:
    """A client that is there, and says nothing."""
    await asyncio.Event().wait()


async def test_no_stream_begins_behind_an_answer_that_its_client_reads_slowly() -> None:
    clock, sent, is_read = FakeClock(), list[str](), asyncio.Event()

    async def read_slowly(event: Any) -> None:
        sent.append(event["type"])
        await is_read.wait()

    async def answer() -> bytes:
        return b"{}"

    session = SimpleNamespace(
        revision=SimpleNamespace(primes_streams=True), replay_buffer=ReplayBuffers(clock).open("ann")
    )
    request = cast(Any, SimpleNamespace(receive=silent))
    channel, response = Channel(can_stream=True, can_ask=True), Response(read_slowly)
    answering = asyncio.ensure_future(
        sse_delivery.answer(request, response, channel, answer(), cast(Any, session), clock, lambda *_: None)
    )
    await settle()
    await clock.advance(sse_delivery.QUIET)
    is_read.set()
    await answering
    assert sent == ["http.response.start", "http.response.body"]
