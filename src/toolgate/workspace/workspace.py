"""What the tools of the workspace work by: the tables, the time, the configuration, and where a call comes from."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from toolgate.config import Config
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.services import Swap, sets
from toolgate.state.base import NotKept, Result, Store, Subject, Work
from toolgate.upstreams.inprocess.tools import ToolContext
from toolgate.workspace.projects import Project, project_of
from toolgate.workspace.records import Caller

MOST_BOUND = 10_000  # MCP sessions whose record is remembered; of more, the oldest are forgotten
MOST_PROJECTS = 64  # whose files are kept up to date


class Workspace:
    """`folder` is where the gateway was started."""

    def __init__(self, store: Store, clock: Clock, config: Config, folder: Path) -> None:
        self.config = config.tasks
        self.store = store
        self.clock = clock
        self.projects: dict[Path, Project] = {}  # those that calls were in, by their folder
        self.on_project: Callable[[], object] = lambda: None  # another one
        self._folder = folder
        self._bound: dict[tuple[str, str], str] = {}  # by principal and MCP session: a record
        self.note(project_of(folder))

    def prepared(self, config: Config) -> Swap:
        return sets(self, config=config.tasks)

    def now(self) -> str:
        """The time as the tables have it: UTC, `2026-11-24T08:30:00.000000Z`."""
        return datetime.fromtimestamp(self.clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    async def query(self, work: Work[Result]) -> Result:
        """As `Store.query`. Raises `Fault` where the tables cannot be used."""
        try:
            return await self.store.query(work)
        except NotKept as error:
            raise _unusable(error) from None

    async def transact(self, work: Work[Result], *tells: Subject) -> Result:
        """As `Store.transact`. Raises `Fault` where the tables cannot be used."""
        try:
            return await self.store.transact(work, *tells)
        except NotKept as error:
            raise _unusable(error) from None

    async def project(self, context: ToolContext) -> Project | None:
        """The project that a call is in (behaviour.md, "004 daemon tools")."""
        folder = Path(context.call.folder) if context.call.folder else self._folder
        return self.note(project_of(folder))

    def note(self, project: Project | None) -> Project | None:
        """Its file of tasks is kept up to date from now on."""
        if project and self.projects.get(project.folder) != project and len(self.projects) < MOST_PROJECTS:
            self.projects[project.folder] = project
            self.on_project()
        return project

    async def caller(self, context: ToolContext) -> Caller:
        project, principal = await self.project(context), context.client.principal.id
        folder = project.folder if project else self._folder
        bound = self._bound.get((principal, context.client.session)) if context.client.session else None
        return Caller(principal, project.id if project else "", str(folder), bound)

    def bind(self, context: ToolContext, record: str | None) -> None:
        """From now on this record is the session of the calls of this MCP session. Calls without one are told apart by
        nothing, so they bind none."""
        key = context.client.identity
        if record and context.client.session:
            self._bound.pop(key, None)
            self._bound[key] = record
            if len(self._bound) > MOST_BOUND:
                del self._bound[next(iter(self._bound))]


def _unusable(error: NotKept) -> Fault:
    return Fault("SERVER_FAILED", f"Tasks and sessions cannot be used: {error}", reach="not_sent")
