"""Large results as the last two policies leave them, made in a thread: others would wait for them."""

from __future__ import annotations

from functools import partial

from toolgate.core.concurrency import FairLimit
from toolgate.core.model import Call, Done, Outcome
from toolgate.policy.scrub import Scrubber, is_large
from toolgate.policy.truncate import Truncate


async def aside(
    call: Call, outcome: Outcome, scrubber: Scrubber, truncate: Truncate | None, in_turns: FairLimit
) -> Outcome:
    """The outcome, scrubbed and cut where it is large, so that the policies find nothing to be done. Principals take
    turns."""
    if not isinstance(outcome, Done) or not is_large(outcome, scrubber.secrets.forms):
        return outcome
    in_thread = partial(in_turns.in_thread, call.client.principal.counted_as)
    if scrubber.has_work:
        outcome = await scrubber.aside(outcome, in_thread)
    return await truncate.aside(call, outcome, in_thread) if truncate else outcome
