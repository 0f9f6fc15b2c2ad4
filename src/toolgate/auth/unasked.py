"""What control tools may do unasked: those that can do most do nothing that a person has not decided on, unless the
operator said so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from toolgate.config.access import Verdict
from toolgate.core import mcp
from toolgate.core.model import Call

CHANGES_SERVERS: Final = frozenset({"add_mcp_server", "remove_mcp_server"})
"""The control tools that change which servers there are: a server that is added may be any program."""

RUNS_CODEX: Final = frozenset({"codex", "codex_list_threads", "codex_archive_thread"})
"""The control tools that work by an agent, which runs commands as the user who runs the gateway."""

ASKS_FIRST: Final = CHANGES_SERVERS | RUNS_CODEX
"""The control tools that do nothing unasked unless the operator said so."""


def unasked(add_servers: Verdict, codex: Verdict) -> Mapping[str, Verdict]:
    """What the operator has said of each tool that asks first."""
    return {name: add_servers if name in CHANGES_SERVERS else codex for name in ASKS_FIRST}


def asks_first(call: Call) -> bool:
    """Whether a call of the gateway's own is of a tool that does nothing unasked, unless the operator said so."""
    return call.target in ASKS_FIRST and call.method == mcp.CALL
