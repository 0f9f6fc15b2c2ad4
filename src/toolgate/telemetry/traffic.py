"""Calls as they end, and those that take long, for who watches them now.

The rules this file keeps: nothing is kept for who comes later; who watches is told in portions, and what does not fit
into one is lost and counted; and of those who watch, of what waits for them and of the calls that are under way there
is no more than a bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from toolgate.core import mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Call
from toolgate.telemetry.access_log import LONGEST, Access

MOST_WATCHERS = 16
MOST_WAITING = 200  # calls, of one watcher
MOST_UNDER_WAY = 200  # calls that are known to be
LONG = 1.0  # seconds after which a call that is under way is told
LONGEST_ARGUMENTS = 2000  # characters

KINDS = (*mcp.KINDS, "tasks", "methods")
_kind = {"enum": ["", *KINDS]}
Kind = Annotated[str, Meta(pattern=f"^({'|'.join(KINDS)})?$", extra_json_schema=_kind)]
Text = Annotated[str, Meta(max_length=200)]


class Seen(Access, kw_only=True):
    """A round that has ended: `time` in seconds since 1970, `kind` that of the list its target stands in. `arguments`
    stand there where the audit notes them, too."""

    time: float
    kind: str = ""
    arguments: str = ""


class UnderWay(msgspec.Struct):
    """A round that has not ended: `since` in seconds since 1970."""

    who: str
    method: str
    server: str
    target: str
    via: str
    kind: str
    since: float


class Wanted(msgspec.Struct, frozen=True):
    """Which calls: what is empty fits all. A part of `client` and `tool` is enough."""

    client: Text = ""
    server: Text = ""
    tool: Text = ""
    kind: Kind = ""
    only: Literal["", "failed", "denied"] = ""

    def fits(self, seen: Seen) -> bool:
        has_ended_so = seen.decision == "deny" if self.only == "denied" else seen.outcome == "error"
        return self.is_of(seen) and (not self.only or has_ended_so)

    def is_of(self, call: Seen | UnderWay) -> bool:
        """Whatever its end."""
        return (
            self.server in ("", call.server)
            and self.kind in ("", call.kind)
            and self.client in call.who
            and self.tool in call.target
        )


class Portion(msgspec.Struct):
    """What has ended since the portion before, and how many more there were; and all that is under way for long."""

    calls: tuple[Seen, ...]
    lost: int
    under_way: tuple[UnderWay, ...] = ()


class Watcher(msgspec.Struct, eq=False):
    wanted: Wanted
    lost: int = 0
    waiting: deque[Seen] = msgspec.field(default_factory=deque[Seen])
    told: tuple[UnderWay, ...] = ()

    def portion(self, under_way: tuple[UnderWay, ...]) -> Portion | None:
        """None where nothing has come, and the same is under way."""
        found = tuple(each for each in under_way if not self.wanted.only and self.wanted.is_of(each))
        if not self.waiting and found == self.told:
            return None
        portion = Portion(tuple(self.waiting), self.lost, found)
        self.waiting.clear()
        self.lost, self.told = 0, found
        return portion


class Traffic:
    """Who watches. `on_change` is called when the first one comes, and when the last one has gone."""

    def __init__(self) -> None:
        self._watchers: list[Watcher] = []
        self._begun: dict[int, tuple[Call, float]] = {}
        self._number = 0
        self.on_change: Callable[[], object] = bool

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    def watch(self, wanted: Wanted) -> Watcher:
        """To be given back to `leave`. Raises `Fault` where too many watch."""
        if len(self._watchers) >= MOST_WATCHERS:
            message = f"Too many watch: {MOST_WATCHERS} can at once"
            raise Fault("RATE_LIMITED", message, reach="not_sent", hint="close another page of live traffic")
        self._watchers.append(watcher := Watcher(wanted))
        if len(self._watchers) == 1:
            self.on_change()
        return watcher

    def leave(self, watcher: Watcher) -> None:
        self._watchers.remove(watcher)
        if not self._watchers:
            self._begun.clear()
            self.on_change()

    def begun(self, call: Call, now: float) -> int:
        """A number for `ended`. Of more calls than there is room for, none is under way."""
        self._number += 1
        if len(self._begun) < MOST_UNDER_WAY:
            self._begun[self._number] = (call, now)
        return self._number

    def ended(self, number: int) -> None:
        self._begun.pop(number, None)

    def under_way(self, now: float) -> tuple[UnderWay, ...]:
        """Since long, by the same clock as `begun`."""
        return tuple(_under_way(call, since) for call, since in self._begun.values() if now - since >= LONG)

    def tell(self, seen: Seen, arguments: Callable[[], str]) -> None:
        """`arguments` costs something: it is asked where somebody has room for them."""
        wanting = [each for each in self._watchers if each.wanted.fits(seen)]
        for full in [each for each in wanting if len(each.waiting) >= MOST_WAITING]:
            full.lost += 1
            wanting.remove(full)
        if wanting:
            seen.arguments = arguments()[:LONGEST_ARGUMENTS]
        for each in wanting:
            each.waiting.append(seen)


def _under_way(call: Call, since: float) -> UnderWay:
    who, target = call.client.principal.id[:LONGEST], call.target[:LONGEST]
    return UnderWay(who, call.method[:LONGEST], call.server, target, call.via, call.kind, since)
