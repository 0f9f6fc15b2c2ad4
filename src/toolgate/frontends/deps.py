"""What every frontend opens into: the gateway, and what stands beside it for the clients of all frontends."""

from __future__ import annotations

import msgspec

from toolgate.auth.oauth.credentials import OAuth
from toolgate.config import Config
from toolgate.core import mcp
from toolgate.core.clock import Clock
from toolgate.core.model import Principal
from toolgate.frontends.channels import ReplayBuffers
from toolgate.frontends.modern import ModernResponses
from toolgate.frontends.pages import Pages
from toolgate.frontends.session import Session
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.reload import Reloading


class FrontendDeps(msgspec.Struct, frozen=True):
    """What a frontend is made with, whichever it is."""

    gateway: Gateway
    modern: ModernResponses
    pages: Pages
    config: Config
    clock: Clock
    editor: Reloading
    sign_ins: OAuth
    replay_buffers: ReplayBuffers

    def new_session(self, path: str, principal: Principal, revision: mcp.Revision | None = None) -> Session:
        """A session of a legacy client; `revision` is what it speaks unless it initializes."""
        ask_time, revision = self.config.parking.ttl, revision or mcp.UNSTATED
        return Session(self.gateway, self.pages, path, principal, self.clock, ask_time, revision, self.replay_buffers)
