"""What every frontend opens into: the gateway, and what stands beside it for the clients of all frontends."""

from __future__ import annotations

import msgspec

from toolgate.auth.oauth.credentials import OAuth
from toolgate.catalog.pins import StoredPins
from toolgate.config import Config
from toolgate.core.clock import Clock
from toolgate.frontends.active_requests import Unanswered
from toolgate.frontends.channels import ReplayBuffers
from toolgate.frontends.modern import ModernResponses
from toolgate.frontends.pages import Pages
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.reload import Reloading
from toolgate.policy.chain import PolicyDeps
from toolgate.policy.deciding import Deciding
from toolgate.state.audit import Trail
from toolgate.telemetry.traffic import Traffic
from toolgate.telemetry.usage import Usage


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
    policy_deps: PolicyDeps
    unanswered: Unanswered = msgspec.field(default_factory=Unanswered)

    @property
    def usage(self) -> Usage:
        return self.policy_deps.recorder.usage

    @property
    def traffic(self) -> Traffic:
        return self.policy_deps.recorder.traffic

    @property
    def audit(self) -> Trail:
        return self.policy_deps.audit

    @property
    def deciding(self) -> Deciding:
        return Deciding(self.policy_deps.approvals, self.audit, self.policy_deps.checker)

    @property
    def pins(self) -> StoredPins:
        return StoredPins(self.policy_deps.store, self.gateway.gateway_info.source)
