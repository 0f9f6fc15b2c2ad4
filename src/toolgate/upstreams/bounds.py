"""How long a list of a server may be. The rule this file keeps: what the configuration says at present holds for the
connections that are there already."""

from __future__ import annotations

from toolgate.config import CatalogLimits


class Bounds:
    def __init__(self, limits: CatalogLimits | None = None) -> None:
        self.limits = limits or CatalogLimits()
