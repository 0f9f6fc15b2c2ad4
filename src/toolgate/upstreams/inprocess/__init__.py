"""Registries: servers that live in the gateway's own process. `BUILT_IN_SERVERS` is the one table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from toolgate.upstreams.inprocess import demo
from toolgate.upstreams.inprocess.tools import InProcessTools

BUILT_IN_SERVERS: Mapping[str, Callable[[], InProcessTools]] = {"greeter": demo.greeter}
