"""The workspace of coding agents (seed 004): tasks that outlive a session, and the sessions themselves.

May import `upstreams` and the rooms below it.

    __init__   `internal_servers`: the gateway's own servers, by id
    workspace  `Workspace`: what the tools here work by; whose project a call is in
    projects   folders with a `.gobby/project.json`
    registry   a tool of an internal server as a row: its arguments as a struct, and its function
    tasks      what a task is; made, found, changed, closed and deleted
    codex      `Codex`: prompts, threads, and what they may do
    codex_turn    one turn of Codex: what is kept of it, and what it asks
    codex_server  the process that runs Codex

The rules of this room: what it keeps are rows of the store's tables (`state.migrations`), read and changed by plain
functions of a connection; and a change that several rows belong to is one `transact`.

Tasks of the protocol (`eras.tasks`, work of a server that goes on behind a handle) are something else.

Another tool of an internal server is a `Tool` in its table. Another internal server is a row in `internal_servers`, and
its name in `core.names.INTERNAL`.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolgate.upstreams.inprocess.tools import InProcessTools
from toolgate.workspace import tasks
from toolgate.workspace.registry import as_server
from toolgate.workspace.workspace import Workspace


def internal_servers(workspace: Workspace) -> Mapping[str, InProcessTools]:
    return {"gobby-tasks": as_server(tasks.TOOLS, workspace)}
