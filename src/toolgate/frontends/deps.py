"""What every frontend opens into: the gateway, and what stands beside it for the clients of all frontends."""

from __future__ import annotations

import msgspec

from toolgate.auth.oauth.base import SignIns
from toolgate.config import Config
from toolgate.core import mcp
from toolgate.core.clock import Clock
from toolgate.core.model import Principal
from toolgate.frontends.channels import ReplayBuffers
from toolgate.frontends.modern import ModernResponses
from toolgate.frontends.pages import Pages
from toolgate.frontends.session import Session
from toolgate.frontends.unanswered import Unanswered
from toolgate.gateway.gateway import Gateway
from toolgate.surfaces.controls.context import Editor


class FrontendDeps(msgspec.Struct, frozen=True):
    """What a frontend is made with, whichever it is."""

    gateway: Gateway
    modern: ModernResponses
    pages: Pages
    config: Config
    clock: Clock
    editor: Editor
    sign_ins: SignIns
    replay_buffers: ReplayBuffers
    unanswered: Unanswered = msgspec.field(default_factory=Unanswered)

    def new_session(self, path: str, principal: Principal, revision: mcp.Revision | None = None) -> Session:
        """A session of a legacy client; `revision` is what it speaks unless it initializes."""
        ask_time, revision = self.config.parking.ttl, revision or mcp.UNSTATED
        return Session(self.gateway, self.pages, path, principal, self.clock, ask_time, revision, self.replay_buffers)
