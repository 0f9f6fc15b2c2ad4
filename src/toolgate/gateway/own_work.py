"""What works in this process behind the gateway's own tools."""

from __future__ import annotations

from typing import NamedTuple

from toolgate.config import Config
from toolgate.sandbox.services import Sandbox
from toolgate.workspace.services import WorkspaceServices


class OwnWork(NamedTuple):
    workspace: WorkspaceServices
    sandbox: Sandbox

    def offers(self, config: Config) -> frozenset[str]:
        """What clients of this configuration have of all that a control tool may need (`Control.needs`)."""
        codex = {"codex"} if self.workspace.codex.is_offered(config.codex) else set[str]()
        return self.sandbox.offered(config) | codex
