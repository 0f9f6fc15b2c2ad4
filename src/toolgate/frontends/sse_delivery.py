"""How a connection carries a channel of a legacy session: an answer as it comes, and a stream that goes on.

An answer that comes soon is a plain body, and costs no more than that. A stream begins with the first message before
the answer, or when the answer is not there soon: for a client that can resume, soon is a moment, so that it has an id
to resume by; for others, and for a list, which can be asked for again, it is as long as a connection may be silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from toolgate.core import mcp, sse
from toolgate.core.clock import Clock
from toolgate.core.large import Joined
from toolgate.frontends.channels import Channel, Taken
from toolgate.frontends.guards import Request
from toolgate.frontends.session import Session
from toolgate.frontends.streams import QUIET, HeaderList, Receive, Response, gone

MOMENT = 0.25  # seconds
RETRY = 1000  # milliseconds until a client whose connection broke comes back


Refuse = Callable[[Request, Exception | None], tuple[int, HeaderList] | None]
"""The status and the headers that say of a failure what its body says; None where the body is enough."""


async def answer(
    request: Request,
    response: Response,
    channel: Channel,
    work: Awaitable[bytes | Joined],
    session: Session,
    clock: Clock,
    refuse: Refuse,
    method: str = "",
) -> None:
    """Whatever is said on the channel of a request while `work` makes its answer, and that at the end. The current task
    works; another one carries the stream, where there is one."""
    stream: asyncio.Task[None] | None = None

    def begin() -> None:
        nonlocal stream
        if not stream:
            stream = asyncio.get_running_loop().create_task(_stream(response, request.receive, channel, session, clock))

    soon = MOMENT if session.revision.primes_streams and method not in mcp.LISTS else QUIET
    timer = clock.call_later(soon, begin) if channel.can_stream else None
    channel.on_message = begin

    def wait_no_more() -> None:
        """From here on nothing but this task begins the response."""
        channel.on_message = None
        if timer:
            timer.cancel()

    if channel.has_items:
        begin()
    try:
        channel.end(await work)
        if not stream:
            refused = refuse(request, channel.error) if channel.error else None
            status, headers = refused or (200 if channel.last else 202, ())
            if status != 200 or not channel.is_stream:
                wait_no_more()
                await response.whole(status, channel.last, headers)
                return
            begin()
        assert stream
        await stream
    finally:
        wait_no_more()
        if stream and not stream.done():
            stream.cancel()
            await asyncio.wait((stream,))


async def _stream(response: Response, receive: Receive, channel: Channel, session: Session, clock: Clock) -> None:
    nothing = b"" if channel.has_items else sse.COMMENT
    first = _primer(channel.open(session.replay_buffer, "c"), session) or nothing
    await _carry(response, receive, channel, 1, first, clock)


async def listen(response: Response, receive: Receive, session: Session, clock: Clock) -> None:
    """A new stream of what the session is told without having asked."""
    channel = Channel(can_stream=True, can_ask=False, rights=session.rights)
    first = _primer(channel.open(session.replay_buffer, "s"), session) or sse.COMMENT
    await _carry_for(session, response, receive, channel, 1, first, clock)


async def resume(
    response: Response, receive: Receive, channel: Channel, after: int, session: Session, clock: Clock
) -> None:
    """A channel goes on behind the event of this number."""
    turn = channel.take(after)
    if channel.is_of_session:
        channel.rights = session.rights  # it may hear more from now on
        await _carry_for(session, response, receive, channel, turn, sse.COMMENT, clock)
    else:
        await _carry(response, receive, channel, turn, sse.COMMENT, clock)


async def _carry(response: Response, receive: Receive, channel: Channel, turn: int, first: bytes, clock: Clock) -> None:
    """Until the channel's end, or the connection's, or until another one carries it. `first` begins the stream."""
    leaving = asyncio.ensure_future(gone(receive))
    leaving.add_done_callback(lambda _done: channel.leave(turn))
    try:
        await response.begin(first)
        while True:
            try:
                item = await channel.get(clock, QUIET, turn)
            except TimeoutError:
                await response.comment()
                continue
            except Taken:
                break
            if item is None:
                await response.end()
                channel.carried(turn)
                return
            await response.event(item.message, item.id)
            del item  # it may be large, and the next one may be long in coming
        await response.end()
    finally:
        leaving.cancel()
        channel.leave(turn)


async def _carry_for(
    session: Session, response: Response, receive: Receive, channel: Channel, turn: int, first: bytes, clock: Clock
) -> None:
    session.listen(channel)
    try:
        await _carry(response, receive, channel, turn, first, clock)
    finally:
        session.stop_listening(channel)


def _primer(id: str, session: Session) -> bytes:
    """The event that a stream begins with, so that its client can resume before it has heard anything."""
    return sse.event(b"", id, RETRY) if session.revision.primes_streams else b""
