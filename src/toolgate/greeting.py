"""What a route offers as a whole: what its servers say of themselves, together.

The rule this file keeps: a client's first words wait for no server for long; one that is not up by then may offer
anything, and one that has failed offers nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from toolgate import asks
from toolgate.eras import tasks
from toolgate.ports import About, Clock
from toolgate.wire import mcp

PATIENCE = 0.5  # seconds for servers to start; some clients wait for a second only

# All that a client may be told of; what a server that is not up yet may turn out to offer.
_RELAYED: Mapping[str, tuple[str, ...]] = {
    "tools": ("listChanged",),
    "resources": ("listChanged", "subscribe"),
    "prompts": ("listChanged",),
    "logging": (),
    "completions": (),
}


async def together(asked: Mapping[str, Coroutine[Any, Any, About]], clock: Clock) -> About:
    """What all of them say, by name, who are there in time."""
    told = {name: asyncio.ensure_future(each) for name, each in asked.items()}
    if told:
        try:
            async with clock.timeout(PATIENCE):
                await asyncio.wait(told.values())
        except TimeoutError:
            pass
    return merged({name: _told(each) for name, each in told.items()})


def _told(asked: asyncio.Future[About]) -> About | None:
    """None for one that is not up yet."""
    if not asked.done():
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        return None
    if asked.cancelled() or asked.exception():
        return About()
    return asked.result()


def merged(told: Mapping[str, About | None]) -> About:
    """The capabilities that any of them has, as far as we relay them, and their instructions under their names. None
    for a server that is not up yet: it may offer anything."""
    offered = [about.capabilities if about else _RELAYED for about in told.values()]
    capabilities: dict[str, Any] = {}
    for name, parts in _RELAYED.items():
        found = [each[name] for each in offered if name in each]
        if found or name == "tools":
            capabilities[name] = {part: True for part in parts if part == "listChanged" or _any_has(found, part)}
    capabilities |= tasks.relayed([about.capabilities if about else tasks.MAYBE for about in told.values()])
    pages = [
        each for about in told.values() if about and (each := asks.extension(about.capabilities, mcp.UI_EXTENSION))
    ]
    if pages:
        capabilities["extensions"] = {**capabilities.get("extensions", {}), mcp.UI_EXTENSION: pages[0]}
    instructions = {name: about.instructions for name, about in told.items() if about and about.instructions}
    if len(told) == 1:
        return About(capabilities, "".join(instructions.values()))
    return About(capabilities, "\n\n".join(f"# {name}\n{text}" for name, text in instructions.items()))


def _any_has(found: Sequence[Any], part: str) -> bool:
    return any(part in each and (isinstance(each, tuple) or each[part]) for each in found)
