"""What clients are told at first of what a path offers: the capabilities, and how servers say that they are used.

The rule this file keeps: what several servers offer together is what the gateway serves, whichever of them are up by
then, so that a client is never told less than it may turn out to be; what one server offers at its own path, that
server says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from toolgate.auth import safe_text
from toolgate.core import asks, jsonrpc, mcp
from toolgate.core.concurrency import FairThreads
from toolgate.core.redaction import Secrets
from toolgate.eras import tasks
from toolgate.upstreams.base import About

PATIENCE = 0.5  # seconds that instructions of servers are waited for; some clients wait for a second in all

_EVERYTHING = {name: dict.fromkeys(parts, True) for name, parts in mcp.CAPABILITIES.items()}
SERVED = About(_EVERYTHING | tasks.relayed([tasks.MAYBE]))
"""What the gateway serves where it shows several servers, whichever they are."""


LONGEST = 64 * 1024  # characters of the instructions of several servers together
CUT = "[cut by toolgate: the server's own path has all of it]"


class Introduction(msgspec.Struct, frozen=True):
    """What a server says of itself, without secrets. `cited` is how its instructions, or as much of them as may be told
    there, stand beside those of others."""

    about: About
    cited: str


class Introductions:
    """What each server has said of itself last, as clients are told it: it is looked through once, not for each client
    that comes."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[About, object, Introduction]] = {}
        self._in_turns = FairThreads(1)

    def forget(self) -> None:
        """There may be other servers from now on."""
        self._known.clear()

    async def of(self, server: str, about: About, secrets: Secrets, whose: str) -> Introduction:
        """That of a server which says this of itself; `whose` client is told it."""
        if known := self._found(server, about, secrets):
            return known
        if about.is_short:
            return self._made(server, about, secrets)
        return await self._in_turns.in_thread(whose, lambda: self._made(server, about, secrets))

    def _found(self, server: str, about: About, secrets: Secrets) -> Introduction | None:
        known = self._known.get(server)
        return known[2] if known and known[:2] == (about, secrets.version) else None

    def _made(self, server: str, about: About, secrets: Secrets) -> Introduction:
        if known := self._found(server, about, secrets):  # others wait for the same
            return known
        version, said = secrets.version, jsonrpc.encode(about.capabilities)
        scrubbed, instructions = secrets.body(said), secrets.text(about.instructions)
        can = about.capabilities if scrubbed is said else jsonrpc.value(scrubbed)
        cited = safe_text.cited(instructions)[: LONGEST + 1]  # whether that is all of it is seen by the last one
        made = Introduction(About(can, instructions), cited)
        self._known[server] = about, version, made
        return made


def merged(served: About, told: Mapping[str, Introduction], are_several: bool) -> About:
    """What the gateway serves, with the instructions of these servers: where there are others, cited under its server's
    name, so that nobody writes what looks like a heading of another one, or of ours."""
    said = {name: each for name, each in told.items() if each.about.instructions}
    if are_several:
        shares = _shared({name: each.cited for name, each in said.items()})
        instructions = [f"# {safe_text.plain(name)}\n{shares[name]}" for name in said]
    else:
        instructions = [each.about.instructions for each in said.values()]
    abouts = [each.about for each in told.values()]
    return About(_with_pages(served.capabilities, abouts), "\n\n".join(instructions))


def _shared(texts: Mapping[str, str]) -> Mapping[str, str]:
    """As much of each as there is room for. All have the same share, and what the short ones leave of it, the others
    have."""
    left, shares = LONGEST, dict[str, str]()
    for place, name in enumerate(sorted(texts, key=lambda name: len(texts[name]))):
        text, share = texts[name], left // (len(texts) - place)
        shares[name] = text if len(text) <= share else f"{text[:share]}\n\n{CUT}"
        left -= min(len(text), share)
    return shares


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


def _with_pages(capabilities: Mapping[str, Any], abouts: Iterable[About]) -> Mapping[str, Any]:
    said = (asks.extension(about.capabilities, mcp.UI_EXTENSION) for about in abouts)
    pages = [cast("Mapping[str, Any]", each) for each in said if isinstance(each, dict) and each]
    if not pages:
        return capabilities
    return {**capabilities, "extensions": {**capabilities.get("extensions", {}), mcp.UI_EXTENSION: pages[0]}}
