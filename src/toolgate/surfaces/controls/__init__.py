"""Control tools: the gateway's own, by which a model finds, reads, calls and steers what stands behind it.

    __init__      `SETS`: the tools of each seed; `CONTROLS`: all of them by name
    base          `Control`: a row of data with one function; `Family`: how the tools of one seed answer
    context       `ControlContext`: what a control tool works by; `GatewayView`, `GatewayInfo`
    children      seed 000: child servers, their tools, their state
    searching     seed 001: `search_tools`
    meta          seed 002: discovery across servers, and calls to them
    daemon        seed 004: the daemon's status, its tool proxy, its servers, its sessions, Codex
    code          the tools that run code, of seeds 002 and 004
    recommending  `recommend_tools` of seed 004
    importing     `import_mcp_server` of seed 004
    states        how a server is, in the words of each seed
    scripts       calls that a script makes, which a control tool runs
    own           what the gateway answers as the server `toolgate`

A tool that *forwards* names a server, something of it and arguments: it becomes that call before any policy runs. A
tool that *works* is a function of its arguments and a `ControlContext`. Not listed does not mean forbidden: each can be
called by its name on any toolset surface, under the same policies. One that is `optional` and that this gateway does
not have is neither. `NAMES` are no bare names of servers' tools all the same: what is meant for the gateway goes to
nobody else.

A new one is a `Control` in a seed's table. What it needs of the gateway is a method of `GatewayView`, implemented in
`gateway.route_view`. It also needs an example in `docs/make_tools.py` (`make tools` writes the page).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from toolgate.core import mcp, names
from toolgate.core.fault import Fault
from toolgate.core.model import Call
from toolgate.surfaces.controls import children, daemon, meta, scripts, searching
from toolgate.surfaces.controls.base import Control

SETS: Mapping[str, tuple[Control, ...]] = {
    "children": children.CONTROLS,
    "meta": meta.CONTROLS,
    "daemon": daemon.CONTROLS,
    "search": searching.CONTROLS,
}
CONTROLS: Mapping[str, Control] = {control.name: control for controls in SETS.values() for control in controls}
FROM_SCRIPTS: Mapping[str, Control] = {
    name: scripts.from_scripts(name) for name, control in CONTROLS.items() if control.runs_code
}
ALIASES: Mapping[str, str] = {alias: control.name for control in CONTROLS.values() for alias in control.also}
NAMES = frozenset((*CONTROLS, *ALIASES))


def find(name: str) -> Control | None:
    """A control tool by its name, or by another one that it goes by."""
    return CONTROLS.get(ALIASES.get(name, name))


def of_script(name: str) -> Control | None:
    """How what runs a script, a control tool or a stored script, stands for the calls that it makes."""
    is_stored = names.place_of(name)[0] == names.SCRIPTS
    return scripts.from_scripts(name) if is_stored else FROM_SCRIPTS.get(name)


def of(call: Call) -> Control:
    """The control tool that a call came through, as it forwarded it."""
    found = of_script(call.via) if call.by_script else CONTROLS[call.via]
    assert found
    return found


def aimed(call: Call, fault: Fault) -> Call:
    """A call that found nothing; where that was what a control tool was to call, a call of that."""
    control = (of_script if call.by_script else find)(call.target) if call.method == mcp.CALL else None
    control = control if fault.tool != call.target else None
    return msgspec.structs.replace(call, target=fault.tool, asked=call.at(names.OWN, control.name)) if control else call
