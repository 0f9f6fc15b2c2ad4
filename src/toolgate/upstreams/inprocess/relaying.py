"""A call that is part of other work: what it asks, that work asks its own client.

The rule this file keeps: each question is put once, to one client; it is withdrawn where it is withdrawn below; and the
call is given up with the work that it is a part of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from toolgate.core.exchange import Exchange
from toolgate.core.model import Accepted, Ask, Done, NeedInput, Outcome, Resume


async def to_the_end(outcome: Outcome, whole: Exchange, waits: Callable[[bool], None]) -> Done | Accepted:
    """How a call of `whole` ends, which has come to this so far. `waits` is told when it begins and ceases to wait for
    the client. Raises `Fault`."""
    asking: set[asyncio.Task[None]] = set()

    def put(resume: Resume, ask: Ask) -> None:
        task = asyncio.get_running_loop().create_task(_put(ask, resume, whole, waits))
        asking.add(task)
        task.add_done_callback(asking.discard)

    try:
        while isinstance(outcome, NeedInput):
            for ask in outcome.asks:
                put(outcome.resume, ask)
            outcome = await outcome.resume.next()
    except asyncio.CancelledError:
        if isinstance(outcome, NeedInput):
            outcome.resume.cancel()
        raise
    finally:
        for task in list(asking):
            task.cancel()
        if asking:
            await asyncio.wait(asking)
    return outcome


async def _put(ask: Ask, resume: Resume, whole: Exchange, waits: Callable[[bool], None]) -> None:
    """Have one question answered, unless it is withdrawn first."""
    waits(True)
    answered = whole.ask(ask.method, ask.params, partial(resume.report, ask.key))
    settled = asyncio.ensure_future(resume.settled(ask.key))
    try:
        await asyncio.wait((answered, settled), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waits(False)
        settled.cancel()
        answered.cancel()  # which withdraws it, where it is still open
    if answered.done() and not answered.cancelled():
        resume.answer(ask.key, answered.result())
