"""Tools that are not as they were when they were trusted, as the admin API shows them and lets them be approved.

The rules this file keeps: what is approved was shown whole; and what servers have in the store is unpacked and compared
in a thread, as much of it as a bound allows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from toolgate.catalog import pin_review
from toolgate.catalog.pins import Mode, Pending, Pin, StoredPins, mark
from toolgate.config import Config, Server
from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.state.audit import Trail
from toolgate.state.base import NotKept

MOST_NAMED = 100  # tools of one server in the list of all
MOST_SHOWN = 50  # tools that are compared for one answer
MOST_LINES = 200  # of one among several
MOST_OF_ONE = 5_000  # lines of one alone
MOST_TEXT = 512 * 1024  # characters of what is compared for one answer


class PendingTool(msgspec.Struct):
    """`why` it is pending; `is_held`: it is in quarantine."""

    name: str
    why: str
    is_held: bool


class ServerPins(msgspec.Struct):
    """`pending` are the first of them, `more` how many there are beside these; `held` counts all in quarantine."""

    id: str
    name: str
    mode: Mode
    pending: tuple[PendingTool, ...]
    more: int
    held: int


class AllPins(msgspec.Struct):
    servers: tuple[ServerPins, ...]


class ToolDifference(PendingTool):
    """`lines` are a unified diff of what was trusted and what is listed; `!` begins what is suspicious. `is_whole`:
    none is left out; `is_cut`: what is kept of the tool is not all of it, so that it cannot be approved here."""

    lines: tuple[str, ...]
    is_whole: bool
    is_cut: bool


class Differences(msgspec.Struct):
    """`seen` is what an approval of these gives back; `unshown` are names of tools that have no room here."""

    id: str
    name: str
    seen: str
    tools: tuple[ToolDifference, ...]
    unshown: tuple[str, ...]


class WantedDifferences(msgspec.Struct):
    """Of one tool, or of all that are pending."""

    tool: str = ""


class WantedApproval(msgspec.Struct):
    """Tools by their servers' own names, and `seen` as it stood beside their differences."""

    tools: Annotated[tuple[str, ...], Meta(min_length=1, max_length=10_000)]
    seen: Annotated[str, Meta(min_length=1)]


class Approved(msgspec.Struct):
    approved: tuple[str, ...]


class Reviews(NamedTuple):
    """`turn` is held by one comparison at a time."""

    records: StoredPins
    trail: Trail
    turn: asyncio.Lock

    async def all(self, config: Config) -> AllPins:
        found: list[ServerPins] = []
        for server in config.servers:
            pending = await self._pending(server)
            named = tuple(_pending_tool(name, each) for name, each in list(pending.items())[:MOST_NAMED])
            held = sum(each.is_held for each in pending.values())
            mode = server.pinning or config.guard.pinning
            found.append(ServerPins(server.id, server.name, mode, named, len(pending) - len(named), held))
        return AllPins(tuple(found))

    async def _pending(self, server: Server) -> Mapping[str, Pending]:
        packed = self.records.packed_pending(server.id)
        return await asyncio.to_thread(self.records.unpacked_pending, packed) if packed else {}

    async def differences(self, server: Server, tool: str) -> Differences:
        """Raises `Fault`."""
        async with self.turn:
            pending = await self._pending(server)
            if tool and tool not in pending:
                raise Fault("TOOL_NOT_FOUND", f"{server.name}: {tool} is not pending", reach="not_sent")
            pins = pin_review.known(self.records, server.id)
            wanted = {name: each for name, each in pending.items() if tool in ("", name)}
            most = MOST_OF_ONE if tool else MOST_LINES
            tools, unshown = await asyncio.to_thread(_compared, pins, wanted, most)
            return Differences(server.id, server.name, mark(pending), tools, unshown)

    async def approve(self, server: Server, wanted: WantedApproval, by: Principal) -> Approved:
        """Raises `Fault`."""
        pending = await self._pending(server)
        if cut := next((name for name in wanted.tools if name in pending and pending[name].is_cut), ""):
            message = f"{cut} cannot be shown in full here"
            hint = f"look at it with `toolgate pins approve {server.id}`"
            raise Fault("INVALID_STATE", message, reach="not_sent", hint=hint)
        try:
            done = await pin_review.approve(
                self.records, self.trail, server.id, wanted.tools, wanted.seen, time.time(), by
            )
            if done is None:
                raise Fault("INVALID_STATE", f"{server.name} has changed since you looked", reach="not_sent")
            if not done:
                raise Fault("TOOL_NOT_FOUND", f"{server.name}: none of these is pending", reach="not_sent")
        except NotKept as why:
            raise Fault("INTERNAL", f"Nothing was approved: {why}", reach="not_sent") from None
        return Approved(tuple(done))


def _compared(
    pins: Mapping[str, Pin], pending: Mapping[str, Pending], most: int
) -> tuple[tuple[ToolDifference, ...], tuple[str, ...]]:
    """How they differ, and the names of those that have no room."""
    left, tools, unshown = MOST_TEXT, list[ToolDifference](), list[str]()
    for name, each in pending.items():
        pin = pins.get(each.was or name)
        left -= len(each.text) + len(pin.text if pin else "")
        if len(tools) == MOST_SHOWN or (left < 0 and tools):
            unshown.append(name)
            continue
        found = pin_review.shown(pins, name, each, most)
        tools.append(ToolDifference(name, str(each), each.is_held, found.lines, found.is_whole, found.is_cut))
    return tuple(tools), tuple(unshown[:MOST_NAMED])


def _pending_tool(name: str, pending: Pending) -> PendingTool:
    return PendingTool(name, str(pending), pending.is_held)
