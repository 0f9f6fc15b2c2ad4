"""Surfaces: what clients are shown at each path. Pure: what a surface needs of the catalog is there before it is asked.

May import `provision` and the rooms below it.

    __init__    `toolset_surfaces`: the table of the surfaces that show more than one server
    base        what a surface is
    aggregate   everything, under names like `server__tool`
    bare        what a name means that has no server's name with it
    components  tool components under their bare names, all else by its namespaced name
    bundle      some tools of several servers
    single      one server as it is, at `servers/{id}`
    toolset     control tools, and behind them the names of one of the others
    uris        resource URIs inside results, rewritten to the names that the client knows
    who_asks    questions that say which server asks
    elicitation  the forms of these, as a person is shown them
    handles     the sealed ids by which clients know tasks
    controls    the gateway's own tools

A client knows a task by a sealed id (`handles`). It is good for its principal, path and form, and every later request
about the task finds its server by that id alone: past the catalog and the surface, but through the policies.

Another view of all servers is a row in `toolset_surfaces`, and its name in `config.Surface`. One with names of its own
is a file here, and a row in `toolset_surfaces` or in `gateway.snapshot.build_routes`. Another control tool is a row in
`controls`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from toolgate.config import Config
from toolgate.core import names
from toolgate.surfaces import bundle, controls
from toolgate.surfaces.aggregate import Aggregate
from toolgate.surfaces.bare import Taken
from toolgate.surfaces.base import Surface
from toolgate.surfaces.components import Components
from toolgate.surfaces.controls import CONTROLS, SETS
from toolgate.surfaces.toolset import ToolsetSurface
from toolgate.upstreams.inprocess.tools import InProcessTools

_CHILDREN = "list_registered_children lists the servers, get_schema their tools; execute_child_tool calls one."
_META = "mcp_discover finds tools on all servers; mcp_call calls one."
_DAEMON = "list_tools lists tools, get_tool_schema describes one in full, call_tool calls it."


def toolset_surfaces(
    config: Config, internal: Mapping[str, InProcessTools] = {}, offers: Collection[str] = ()
) -> Mapping[str, Surface]:
    """By the names that paths and configurations have for them (behaviour.md section 2); bundles as `bundles/NAME`.
    `internal` are the gateway's own servers, `offers` what it has of all that a control tool may need."""
    of_tasks = (name for tools in internal.values() for name in tools.entries.get("tools", ()))
    taken = Taken(
        {server.id: server.name for server in config.servers}, frozenset(map(names.slug, (*controls.NAMES, *of_tasks)))
    )
    hidden = () if config.tasks.show else (names.TASKS,)
    aggregate = Aggregate(hidden, taken)
    components = [server.id for server in config.servers if server.has_bare_names]
    toolset = partial(ToolsetSurface, offers=offers)
    return {
        "aggregate": toolset(aggregate, search=config.virtual_search),
        "children": toolset(aggregate, SETS["children"], _CHILDREN, shows_resources=True),
        "meta": toolset(aggregate, SETS["meta"], _META),
        "components": toolset(Components(components, hidden, taken)),
        "daemon": toolset(aggregate, SETS["daemon"], _DAEMON),
        "all": toolset(aggregate, tuple(CONTROLS.values()), shows_resources=True),
    } | {f"bundles/{name}": toolset(each) for name, each in bundle.surfaces(config, taken).items()}
