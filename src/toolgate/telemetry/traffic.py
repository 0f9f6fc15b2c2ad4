"""Calls as they end, for who watches them now.

The rules this file keeps: nothing is kept for who comes later; who watches is told in portions, and what does not fit
into one is lost and counted; and of both, those who watch and what waits for them, there is no more than a bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from toolgate.core.fault import Fault
from toolgate.telemetry.access_log import Access

MOST_WATCHERS = 16
MOST_WAITING = 200  # calls, of one watcher
LONGEST_ARGUMENTS = 2000  # characters

Kind = Literal["", "tools", "resources", "resourceTemplates", "prompts", "tasks", "methods"]
Text = Annotated[str, Meta(max_length=200)]


class Seen(Access, kw_only=True):
    """A round that has ended: `time` in seconds since 1970, `kind` that of the list its target stands in. `arguments`
    stand there where the audit notes them, too."""

    time: float
    kind: str = ""
    arguments: str = ""


class Wanted(msgspec.Struct, frozen=True):
    """Which calls: what is empty fits all. A part of `client` and `tool` is enough."""

    client: Text = ""
    server: Text = ""
    tool: Text = ""
    kind: Kind = ""
    only: Literal["", "failed", "denied"] = ""

    def fits(self, seen: Seen) -> bool:
        return (
            self.server in ("", seen.server)
            and self.kind in ("", seen.kind)
            and self.client in seen.who
            and self.tool in seen.target
            and (not self.only or (seen.decision == "deny" if self.only == "denied" else seen.outcome == "error"))
        )


class Portion(msgspec.Struct):
    """What has ended since the portion before, and how many more there were."""

    calls: tuple[Seen, ...]
    lost: int


class Watcher(msgspec.Struct, eq=False):
    wanted: Wanted
    lost: int = 0
    waiting: deque[Seen] = msgspec.field(default_factory=deque[Seen])

    def portion(self) -> Portion | None:
        """None where nothing has come."""
        if not self.waiting:
            return None
        portion = Portion(tuple(self.waiting), self.lost)
        self.waiting.clear()
        self.lost = 0
        return portion


class Traffic:
    """Who watches. `on_change` is called when the first one comes, and when the last one has gone."""

    def __init__(self) -> None:
        self._watchers: list[Watcher] = []
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
            self.on_change()

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
