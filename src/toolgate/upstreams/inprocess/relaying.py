"""A call that is part of other work: what it asks, that work asks its own client.

The rule this file keeps: each question is put once, to one client; it is withdrawn where it is withdrawn below; and the
call is given up with the work that it is a part of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from toolgate.core.exchange import Exchange
from toolgate.core.fault import Fault
from toolgate.core.model import Accepted, Ask, Done, NeedInput, Outcome, Resume


async def to_the_end(outcome: Outcome, whole: Exchange, waits: Callable[[bool], None]) -> Done | Accepted:
    """How a call of `whole` ends, which has come to this so far. `waits` is told when it begins and ceases to wait for
    the client, however many questions are open; where that raises `Fault`, the call is given up. Raises `Fault`."""
    asking: set[asyncio.Task[None]] = set()
    unanswered = 0

    async def put(resume: Resume, ask: Ask) -> None:
        """Have one question answered, unless it is withdrawn first."""
        nonlocal unanswered
        answered = whole.ask(ask.method, ask.params, partial(resume.report, ask.key))
        settled = asyncio.ensure_future(resume.settled(ask.key))
        try:
            await asyncio.wait((answered, settled), return_when=asyncio.FIRST_COMPLETED)
        finally:
            unanswered -= 1
            if not unanswered:
                waits(False)
            settled.cancel()
            answered.cancel()  # which withdraws it, where it is still open
        if answered.done() and not answered.cancelled():
            resume.answer(ask.key, answered.result())

    try:
        while isinstance(outcome, NeedInput):
            for ask in outcome.asks:
                if not unanswered:
                    waits(True)
                unanswered += 1
                task = asyncio.get_running_loop().create_task(put(outcome.resume, ask))
                asking.add(task)
                task.add_done_callback(asking.discard)
            outcome = await outcome.resume.next()
    except (asyncio.CancelledError, Fault):
        if isinstance(outcome, NeedInput):
            outcome.resume.cancel()
        raise
    finally:
        for task in list(asking):
            task.cancel()
        if asking:
            await asyncio.wait(asking)
        if unanswered:  # questions that were given up before they were put
            waits(False)
    return outcome
