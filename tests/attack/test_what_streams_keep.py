"""A stream that is open for hours keeps nothing of what its client has read: the next message may never come."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from inmemory import LATEST, MODERN, Scripted, Visitor, gateway, tools
from virtualtime import FakeClock, settle

from toolgate.core import jsonrpc
from toolgate.frontends import channels, sse_delivery, streams
from toolgate.frontends.channels import Channel, ReplayBuffers
from toolgate.frontends.streams import Outbox, Response

MIB = 1024 * 1024
WATCHED = [f"x://{number}" for number in range(4)]


@contextmanager
def keeps_at_most(most: int) -> Iterator[None]:
    """Bytes that are there at the end, and were not at the beginning."""
    tracemalloc.start()
    try:
        yield
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < most


async def silent() -> Any:
    """A client that is there, and says nothing."""
    await asyncio.Event().wait()


async def taken(event: Any) -> None:
    """A client that has read this."""


async def begun(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.ensure_future(work)
    await settle()
    return task


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))


async def test_a_stream_of_a_modern_client_keeps_nothing_that_it_has_carried() -> None:
    outboxes = [Outbox(can_stream=True, can_ask=False) for _ in range(4)]
    tasks = [await begun(streams.relay(Response(taken), outbox, FakeClock())) for outbox in outboxes]
    with keeps_at_most(MIB):
        for _ in range(3):
            for outbox in outboxes:
                outbox.send(b"x" * 2 * MIB)
            await settle()
    for task in tasks:
        await ended(task)


async def test_a_stream_of_a_session_keeps_what_can_be_resumed_and_nothing_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "MOST_TOGETHER", 200_000)
    together = ReplayBuffers(FakeClock())
    channel, others = Channel(can_stream=True, can_ask=False), Channel(can_stream=True, can_ask=False)
    buffer = together.open("ann")
    channel.open(buffer, "s")
    others.open(together.open("ann"), "s")
    task = await begun(sse_delivery._carry(Response(taken), silent, channel, 1, b"", FakeClock()))
    with keeps_at_most(MIB):
        channel.send(b"x" * 2 * MIB)
        await settle()
        buffer.shrink(0)
    await ended(task)


@pytest.mark.parametrize("era", [LATEST, MODERN])
async def test_what_was_told_of_a_resource_is_kept_for_no_stream(era: str) -> None:
    """Of a server over a pipe: streams without end of the modern era, one of a session, each told of the same."""
    script = Scripted(LATEST, tools_list=tools("act"), resources_subscribe={}, resources_unsubscribe={})
    script.answers["initialize"]["capabilities"]["resources"] = {"subscribe": True}
    script.answers["resources/list"] = {"resources": [{"uri": uri, "name": uri} for uri in WATCHED]}
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app)
        if era == LATEST:
            await visitor.initialize()
            await visitor.ask("resources/subscribe", uri="there+" + WATCHED[0])
            exchanges = [visitor.begin("GET")]
        else:
            headers = {"mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
            wanted = {"resourceSubscriptions": ["there+" + uri for uri in WATCHED]}
            asked = [
                jsonrpc.encode(visitor.modern_request("subscriptions/listen", notifications=wanted)) for _ in range(4)
            ]
            exchanges = [visitor.begin("POST", body, headers=headers) for body in asked]
        await settle()
        heard: list[int] = []
        for exchange in exchanges:
            exchange._body = Read(heard)  # type: ignore[assignment]
        with keeps_at_most(MIB):
            script.tell("notifications/resources/updated", uri=WATCHED[0], note="x" * 500_000)
            await settle()
        assert len([size for size in heard if size > 500_000]) == len(exchanges)
        for exchange in exchanges:
            await exchange.gone()


class Read(bytearray):
    """What a client has read, by its sizes."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self._sizes = sizes

    def __iadd__(self, other: Any) -> Read:
        self._sizes.append(len(other))
        return self
