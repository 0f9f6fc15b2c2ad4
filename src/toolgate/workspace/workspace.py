"""What the tools of the workspace work by: the tables, the time, the configuration, and whose project a call is in."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from toolgate.config import Config
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.services import Swap, sets
from toolgate.state.base import NotKept, Result, Store, Subject, Work
from toolgate.upstreams.inprocess.tools import ToolContext
from toolgate.workspace.projects import Project, project_of


class Workspace:
    """`folder` is where the gateway was started."""

    def __init__(self, store: Store, clock: Clock, config: Config, folder: Path) -> None:
        self.config = config.tasks
        self._store = store
        self._clock = clock
        self._folder = folder

    def prepared(self, config: Config) -> Swap:
        return sets(self, config=config.tasks)

    def now(self) -> str:
        """The time as the tables have it: UTC, `2026-11-24T08:30:00.000000Z`."""
        return datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    async def query(self, work: Work[Result]) -> Result:
        """As `Store.query`. Raises `Fault` where the tables cannot be used."""
        try:
            return await self._store.query(work)
        except NotKept as error:
            raise _unusable(error) from None

    async def transact(self, work: Work[Result], *tells: Subject) -> Result:
        """As `Store.transact`. Raises `Fault` where the tables cannot be used."""
        try:
            return await self._store.transact(work, *tells)
        except NotKept as error:
            raise _unusable(error) from None

    async def project(self, context: ToolContext) -> Project | None:
        """The project that a call is in (behaviour.md, "004 daemon tools")."""
        return project_of(self._folder)


def _unusable(error: NotKept) -> Fault:
    return Fault("SERVER_FAILED", f"Tasks and sessions cannot be used: {error}", reach="not_sent")
