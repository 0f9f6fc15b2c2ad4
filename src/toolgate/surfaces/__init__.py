"""Surfaces: what clients are shown. `skins` is the one table of those that show more than one server."""

from __future__ import annotations

from collections.abc import Mapping

from toolgate.config import Config
from toolgate.surfaces.aggregate import Aggregate
from toolgate.surfaces.base import Surface
from toolgate.surfaces.components import Components
from toolgate.surfaces.controls import CONTROLS, SETS
from toolgate.surfaces.toolset import ToolsetSurface

_CHILDREN = "list_registered_children lists the servers, get_schema their tools; execute_child_tool calls one."
_META = "mcp_discover finds tools on all servers; mcp_call calls one."
_DAEMON = "list_tools lists tools, get_tool_schema describes one in full, call_tool calls it."


def skins(config: Config) -> Mapping[str, Surface]:
    """By the names that paths and configurations have for them (behaviour.md section 2)."""
    names = Aggregate()
    components = [server.id for server in config.servers if server.type == "component"]
    return {
        "aggregate": ToolsetSurface(names, search=config.virtual_search),
        "children": ToolsetSurface(names, SETS["children"], _CHILDREN, shows_resources=True),
        "meta": ToolsetSurface(names, SETS["meta"], _META),
        "components": ToolsetSurface(Components(components)),
        "daemon": ToolsetSurface(names, SETS["daemon"], _DAEMON),
        "all": ToolsetSurface(names, tuple(CONTROLS.values()), shows_resources=True),
    }
