"""Registries: servers that live in the gateway's own process. `REGISTRIES` is the one table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from toolgate.upstreams.inprocess import demo
from toolgate.upstreams.inprocess.desk import Registry

REGISTRIES: Mapping[str, Callable[[], Registry]] = {"greeter": demo.greeter}
