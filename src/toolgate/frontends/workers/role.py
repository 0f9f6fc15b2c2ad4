"""What a process does of what there is to do for a configuration."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from toolgate.config import Config
from toolgate.core.clock import Clock
from toolgate.gateway.gateway import Gateway
from toolgate.policy.limits import Meters
from toolgate.upstreams.links import MakeLaunch


class Role(msgspec.Struct, frozen=True):
    """`launch` refuses to start a program, where another process has all that there is once; `make_meters` makes meters
    that all share; `serves` is told what is served from now on; `problem` is what is wrong with the others."""

    make_gateway: Callable[..., Gateway] = Gateway
    launch: MakeLaunch | None = None
    make_meters: Callable[[Clock], Meters] = Meters
    serves: Callable[[Config], object] = lambda _config: None
    problem: Callable[[], str] = str

    @property
    def is_owner(self) -> bool:
        return self.launch is None


ALONE = Role()
