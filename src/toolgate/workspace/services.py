"""What of the workspace works while a gateway runs: one object for `App`, which wires the rooms together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from toolgate.config import Config
from toolgate.core import names
from toolgate.core.background import BackgroundTasks
from toolgate.core.services import Swap
from toolgate.state.base import Store
from toolgate.state.changes import StoreChanges
from toolgate.upstreams.inprocess.tools import InProcessTools
from toolgate.upstreams.links import LinkDeps, MakeLink
from toolgate.upstreams.providers.services import Providers
from toolgate.workspace import dependencies, links, ready, syncing, task_tools
from toolgate.workspace.codex import Codex
from toolgate.workspace.following import TaskFiles
from toolgate.workspace.hooks import Hooks
from toolgate.workspace.tools import as_server
from toolgate.workspace.workspace import Workspace


def internal_servers(workspace: Workspace) -> Mapping[str, InProcessTools]:
    """The gateway's own servers, by id."""
    tables = (task_tools.TOOLS, dependencies.TOOLS, ready.TOOLS, links.TOOLS, syncing.TOOLS)
    return {names.TASKS: as_server([tool for tools in tables for tool in tools], workspace)}


class WorkspaceServices:
    """`folder` is where the gateway was started; `spool` where `toolgate hook` puts payloads, None where it need not;
    `make_links` are other links than the usual ones, by name."""

    def __init__(
        self,
        store: Store,
        config: Config,
        environ: Mapping[str, str],
        make_links: Mapping[str, MakeLink],
        folder: Path,
        spool: Path | None,
        link_deps: LinkDeps,
        providers: Providers | None = None,
    ) -> None:
        workspace = Workspace(store, link_deps.clock, config, folder, link_deps.results)
        self.workspace = workspace
        self.internal = internal_servers(workspace)
        self.hooks = Hooks(workspace, link_deps.clock, spool, providers)
        self.codex = Codex(workspace, link_deps, config, environ, folder, make_links)
        self._task_files = TaskFiles(workspace, syncing.automatically)

    def prepared(self, config: Config) -> Swap:
        swaps = (self.workspace.prepared(config), self.codex.prepared(config))
        return lambda: [swap() for swap in swaps]

    def start(self, background: BackgroundTasks, changes: StoreChanges) -> None:
        changes.listen("tasks", self._task_files.look)
        background.start(self.hooks.follow(), "follow hooks")
        background.start(self._task_files.follow(), "keep the files of tasks")

    async def caught_up(self) -> None:
        """Until the files of tasks were looked at once since the start."""
        await self._task_files.was_looked_at.wait()

    async def close(self) -> None:
        """After what was started has ended."""
        await self._task_files.close()
        await self.hooks.close()
        await self.codex.close()
