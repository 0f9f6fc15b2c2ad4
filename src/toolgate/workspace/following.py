"""The files of the projects that calls are in, kept up to date: read when they are another, written when tasks have
changed.

The rules this file keeps: what goes wrong with a file is said once and tried again, and no other file, and no call,
waits for it or fails by it; and the end waits for no file that takes long to read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from toolgate.core.fault import Fault
from toolgate.state.base import NotKept
from toolgate.workspace.projects import Project
from toolgate.workspace.workspace import MOST_PROJECTS, Workspace

log = logging.getLogger(__name__)

PAUSE = 5.0  # seconds from a change to the file, so that one writing is for many changes
AGAIN = 60.0  # seconds until a file with which something went wrong is tried again
LONGEST_SAID = 500  # characters of what nobody has foreseen
LAST = 5.0  # seconds for what is to be written at the end


class TaskFiles:
    """Those of a workspace; `sync` brings one of a project up to date. `look` when tasks may have changed; `follow`
    until cancelled, then `close`."""

    def __init__(self, workspace: Workspace, sync: Callable[[Workspace, Project], Awaitable[None]]) -> None:
        self._workspace = workspace
        self._bring_up_to_date = sync
        self._complaints: dict[Path, str] = {}
        self._has_changed = asyncio.Event()
        self._is_followed = False
        self._under_way: Path | None = None  # the folder of the project whose file is read or written
        self.was_looked_at = asyncio.Event()  # once
        workspace.on_project = self.look

    def look(self) -> None:
        self._has_changed.set()

    async def follow(self) -> None:
        self._is_followed = True
        try:
            await self._sync()
        finally:
            self.was_looked_at.set()
        while True:
            try:
                async with self._workspace.clock.timeout(AGAIN if any(self._complaints.values()) else None):
                    await self._has_changed.wait()
            except TimeoutError:
                pass
            await self._workspace.clock.sleep(PAUSE)
            await self._sync()

    async def close(self) -> None:
        """Write what has changed since, but to no file with which the end came between: that took long already, and
        the next start goes on with it."""
        if self._is_followed:
            if self._under_way:
                self._workspace.projects.pop(self._under_way, None)
            try:
                async with self._workspace.clock.timeout(LAST):
                    await self._sync()
            except TimeoutError:
                log.warning("there was no time left to write the files of tasks; they are written at the next start")

    async def _sync(self) -> None:
        self._has_changed.clear()
        projects = self._workspace.projects
        self._complaints = {folder: said for folder, said in self._complaints.items() if folder in projects}
        for folder, project in list(projects.items()):
            if not self._workspace.config.sync:
                break
            self._under_way = folder
            said = ""
            try:
                await self._bring_up_to_date(self._workspace, project)
            except (Fault, NotKept) as error:
                said = error.message if isinstance(error, Fault) else str(error)
            except Exception as error:  # noqa: BLE001  the rescue: the other files go on
                said = f"{folder}: {type(error).__name__}: {error}"[:LONGEST_SAID]
            self._under_way = None
            if said and self._complaints.get(folder) != said:
                log.warning("tasks are not synced with their file: %s", said)
            self._complaints[folder] = said
        for folder in list(projects)[:-MOST_PROJECTS]:
            del projects[folder]
            log.info("tasks are synced with the files of %d projects; no more with %s", MOST_PROJECTS, folder)
