"""How long a list of a server may be. The rule this file keeps: what the configuration says at present holds for the
connections that are there already."""

from __future__ import annotations

from toolgate.config import CatalogLimits, Config
from toolgate.core.fault import Fault
from toolgate.core.services import Swap, sets


class Bounds:
    def __init__(self, limits: CatalogLimits | None = None) -> None:
        self.limits = limits or CatalogLimits()

    def prepared(self, config: Config) -> Swap:
        return sets(self, limits=config.catalog)


def too_long(server: str, kind: str, most: str) -> Fault:
    message = f"The server's list of {kind} is too long: it has more than {most}"
    return Fault("UPSTREAM_ERROR", message, server=server)
