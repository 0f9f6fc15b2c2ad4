"""What clients are told at first of what a path offers: the capabilities, and how servers say that they are used.

The rule this file keeps: what several servers offer together is what the gateway serves, whichever of them are up by
then, so that a client is never told less than it may turn out to be; what one server offers at its own path, that
server says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from toolgate.auth import safe_text
from toolgate.core import asks, mcp
from toolgate.eras import tasks
from toolgate.upstreams.base import About

PATIENCE = 0.5  # seconds that instructions of servers are waited for; some clients wait for a second in all

_EVERYTHING = {name: dict.fromkeys(parts, True) for name, parts in mcp.CAPABILITIES.items()}
SERVED = About(_EVERYTHING | tasks.relayed([tasks.MAYBE]))
"""What the gateway serves where it shows several servers, whichever they are."""


def merged(served: About, told: Mapping[str, About], are_several: bool) -> About:
    """What the gateway serves, with the instructions of these servers: where there are others, cited under its server's
    name, so that nobody writes what looks like a heading of another one, or of ours."""
    instructions = {name: about.instructions for name, about in told.items() if about.instructions}
    if are_several:
        instructions = {
            name: f"# {safe_text.plain(name)}\n{safe_text.cited(text)}" for name, text in instructions.items()
        }
    return About(_with_pages(served.capabilities, told.values()), "\n\n".join(instructions.values()))


def alone(about: About | None) -> About:
    """What one server offers, what we do not know of it too. None for one that is not up yet: it may offer anything."""
    if not about:
        return SERVED
    capabilities = {name: found for name, found in about.capabilities.items() if name not in _OF_BOTH}
    for name, parts in mcp.CAPABILITIES.items():
        found = about.capabilities.get(name, {} if name == "tools" else None)
        if isinstance(found, dict):
            said = cast("dict[str, Any]", found)
            own = {part: value for part, value in said.items() if part not in parts}
            capabilities[name] = own | {part: True for part in parts if part == "listChanged" or said.get(part)}
    capabilities |= tasks.relayed([about.capabilities])
    extensions = about.capabilities.get("extensions")
    if isinstance(extensions, dict) and extensions:
        capabilities["extensions"] = extensions
    return msgspec.structs.replace(about, capabilities=capabilities)


_OF_BOTH = frozenset(("tasks", "extensions"))  # of which each era knows its own


def _with_pages(capabilities: Mapping[str, Any], told: Any) -> Mapping[str, Any]:
    pages = [each for about in told if (each := asks.extension(about.capabilities, mcp.UI_EXTENSION))]
    if not pages:
        return capabilities
    return {**capabilities, "extensions": {**capabilities.get("extensions", {}), mcp.UI_EXTENSION: pages[0]}}
