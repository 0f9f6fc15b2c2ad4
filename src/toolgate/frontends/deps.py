"""What every frontend opens into: the gateway, and what stands beside it for the clients of all frontends."""

from __future__ import annotations

import msgspec

from toolgate.auth.oauth.credentials import OAuth
from toolgate.config import Config
from toolgate.core.clock import Clock
from toolgate.frontends.active_requests import Unanswered
from toolgate.frontends.channels import ReplayBuffers
from toolgate.frontends.modern import ModernResponses
from toolgate.frontends.pages import Pages
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.reload import Reloading
from toolgate.policy.deciding import Deciding
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
    usage: Usage
    deciding: Deciding
    unanswered: Unanswered = msgspec.field(default_factory=Unanswered)
