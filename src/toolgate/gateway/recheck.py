"""A call that has waited is looked at once more before it is sent: anything may have changed.

It has waited for a person, for its turn at a server, or until the server was up; meanwhile the configuration, a list or
what its server is may have become another. What a task has made is looked at once more when it is there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from toolgate.core.model import Call, NeedInput, Outcome
from toolgate.gateway.snapshot import Route, Snapshot
from toolgate.policy.run import Hooks, PolicyRun

Enter: TypeAlias = Callable[[Call, Route], Awaitable[tuple[Call, Sequence[Hooks]]]]
Entered: TypeAlias = Callable[[Call, str], Awaitable[tuple[Route, Call, Sequence[Hooks]]]]


class Rechecks:
    """`enter` resolves a call on a route; `current` is the snapshot that is served now."""

    def __init__(self, enter: Enter, current: Callable[[], Snapshot]) -> None:
        self._enter = enter
        self._current = current

    async def entered(self, made: Call, path: str) -> tuple[Route, Call, Sequence[Hooks]]:
        """What a call of a client at this path is for, and the policies that judge it, on the route that is served by
        the time that this is known: lists, and servers that start, may be waited for. Raises `Fault`."""
        while True:
            route = self._current().route(path)
            found, hooks = await self._enter(made, route)
            if self._current().routes.get(path) is route:
                return route, found, hooks

    async def anew(
        self, made: Call, entered: Call, route: Route, snapshot: Snapshot, version: int
    ) -> tuple[Call, Sequence[Hooks]] | None:
        """What a call of a client (`made`) is now, and the policies that judge it; None where that is as it was
        `entered`, by this snapshot and this version of the catalog. Raises `Fault`."""
        now = self._current()
        if snapshot is now and version == now.catalog.version and not self._is_another_program(entered, now):
            return None
        route, found, _ = await self.entered(made, route.path)
        return found, route.judged_by(found)

    def _is_another_program(self, entered: Call, now: Snapshot) -> bool:
        """Whether a server whose changes are held back may have become another, and was not listed since."""
        is_held = entered.kind == "tools" and now.catalog.is_held(entered.server)
        return is_held and not now.catalog.is_live(entered.server, "tools", entered.client)


async def may_still_have(round: PolicyRun, call: Call, outcome: Outcome) -> None:
    """Raises `Fault` where a client that has waited for what a task makes, perhaps for a day, may not have it now."""
    try:
        await round.recheck(call)
    except BaseException:
        if isinstance(outcome, NeedInput):
            outcome.resume.cancel()
        raise
