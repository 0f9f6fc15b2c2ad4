"""What a route offers as a whole: what its servers say of themselves, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolgate import asks
from toolgate.eras import tasks
from toolgate.ports import About
from toolgate.wire import mcp

# All that a client may be told of; what a server that is not up yet may turn out to offer.
_RELAYED: Mapping[str, tuple[str, ...]] = {
    "tools": ("listChanged",),
    "resources": ("listChanged", "subscribe"),
    "prompts": ("listChanged",),
    "logging": (),
    "completions": (),
}


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
