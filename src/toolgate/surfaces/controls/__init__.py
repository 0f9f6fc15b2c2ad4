"""Control tools: the gateway's own, by which a model finds, reads, calls and steers what stands behind it.

`CONTROLS` is the one table of them, `SETS` says which belong to which seed.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolgate.surfaces.controls import children, daemon, meta, searching
from toolgate.surfaces.controls.base import Control

SETS: Mapping[str, tuple[Control, ...]] = {
    "children": children.CONTROLS,
    "meta": meta.CONTROLS,
    "daemon": daemon.CONTROLS,
    "search": searching.CONTROLS,
}
CONTROLS: Mapping[str, Control] = {control.name: control for controls in SETS.values() for control in controls}
ALIASES: Mapping[str, str] = {alias: control.name for control in CONTROLS.values() for alias in control.also}


def find(name: str) -> Control | None:
    """A control tool by its name, or by another one that it goes by."""
    return CONTROLS.get(ALIASES.get(name, name))
