"""What somebody who decides on pending tools is shown, and the decision.

The rules this file keeps: what servers say is shown so that nothing of it is hidden from who decides; nothing is
approved but what was shown; and to compare two definitions takes no longer than they are long, or than a bound.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from toolgate.catalog.pins import LONGEST_TEXT, Pending, Pin, StoredPins, Unreadable
from toolgate.catalog.poisoning import MOST_ALIKE, visible
from toolgate.core.background import whole
from toolgate.core.model import Principal
from toolgate.state import changes
from toolgate.state.audit import Trail

LONGEST_LINE = 400  # characters; a longer one goes on in the next
MOST_COMPARED = 500  # lines that are compared with each other; of more, all are shown as gone and come


class Shown(NamedTuple):
    """How a pending tool differs. `more` lines are left out. `is_cut`: not all that it says is kept, so not shown."""

    lines: tuple[str, ...]
    more: int
    is_cut: bool = False

    @property
    def is_whole(self) -> bool:
        return not (self.more or self.is_cut)


def shown(pins: Mapping[str, Pin], name: str, pending: Pending, most: int | None) -> Shown:
    """What is suspicious, with its words; then what was, and what is, and all of it where it is suspicious and nobody
    has approved what was: the words that are named are some of those that are there. `most` lines, None: all."""
    pin = pins.get(pending.was or name)
    warnings = [f"! {each}" for each in pending.found]
    if any(count >= MOST_ALIKE for count in Counter(each.what for each in pending.found).values()):
        warnings.append(f"! no more than {MOST_ALIKE} of one kind are named: read all of it")
    if pending.is_cut:
        warnings.insert(0, f"! longer than the {LONGEST_TEXT:,} characters stored for a tool: it is not shown in full")
    before, now = _pretty(pin.text if pin and pending.what else ""), _pretty(pending.text)
    lines = list(_compared(before, now))
    if before and pending.found and not (pin and pin.is_approved):
        lines += ["@@ all of it: nobody has approved the rest @@", *(f"+{line}" for line in now)]
    whole = [part for line in lines for part in _parts(visible(line))]
    return Shown((*warnings, *whole[:most]), len(whole) - len(whole[:most]), pending.is_cut)


def _compared(before: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """As a unified diff has it, with a line around each change. What both begin and end with costs next to nothing."""
    first = _common(before, now)
    last = _common(before[first:][::-1], now[first:][::-1])
    old, new = before[first : len(before) - last], now[first : len(now) - last]
    if max(len(old), len(new)) > MOST_COMPARED:
        yield from (f"-{line}" for line in old)
        yield from (f"+{line}" for line in new)
        return
    around = before[max(0, first - 1) : first], before[len(before) - last :][:1]
    old, new = [*around[0], *old, *around[1]], [*around[0], *new, *around[1]]
    yield from list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with."""
    return next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )


def _parts(line: str) -> Iterator[str]:
    """A long line in several, each with the sign of the first."""
    yield line[:LONGEST_LINE]
    for at in range(LONGEST_LINE, len(line), LONGEST_LINE):
        yield f"{line[0]}    ... {line[at : at + LONGEST_LINE]}"


def _pretty(text: str) -> list[str]:
    """A tool with a line for each line of its texts. What was cut is shown as it is."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text.splitlines()
    return [line for key, each in found.items() for line in _member(key, each)]


def _member(key: str, value: Any) -> list[str]:
    if isinstance(value, str):
        return [f"{key}: {line}" for line in value.split("\n")]
    if not isinstance(value, dict):
        return [f"{key}: {json.dumps(value, ensure_ascii=False)}"]
    return [f"{key}: {line}" for line in json.dumps(value, ensure_ascii=False, indent=1).split("\n")]


def known(records: StoredPins, server: str) -> Mapping[str, Pin]:
    """What is pinned, as far as it can be read."""
    try:
        return records.pins(server) or {}
    except Unreadable:
        return {}


async def approve(
    records: StoredPins, trail: Trail, server: str, tools: Collection[str], seen: str, now: float, who: Principal | str
) -> list[str] | None:
    """Pin these tools (none: all) as they are pending, note it, and have running gateways hear of it; their names. None
    where what is pending is not what was `seen`."""

    async def work() -> list[str] | None:
        pending = records.pending(server)
        done = await records.approve(server, tools, seen, now)
        for name in done or ():
            about = {"sha256": pending[name].digest, "reason": str(pending[name])} if name in pending else {}
            trail.note("pins.approve", who, server=server, target=name, **about)
        if done:
            await changes.tell(records.store, "pins")
        return done

    return await whole(work())
