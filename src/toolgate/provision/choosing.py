"""A match of `mcp_provision` that a person has chosen, as the server that is added: for the command line and the pages.

The rule this file keeps: what was shown is what is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Lacking(Exception):
    """It needs variables that nobody has given: `needs` has them, with what they are for."""

    def __init__(self, needs: Mapping[str, str]) -> None:
        shown = ", ".join(f"{name} ({about})" if about else name for name, about in needs.items())
        super().__init__(f"It needs {shown}")
        self.needs = needs


def server_of(match: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Its keys as in the configuration, and its `name`; tools of it that change are held back. Raises `Lacking`."""
    server = dict(match["server"])
    environment = {**server.pop("env", {}), **given}
    if lacking := {name: about for name, about in match.get("needs", {}).items() if name not in environment}:
        raise Lacking(lacking)
    return {**server, "pinning": "quarantine", **({"env": environment} if environment else {})}
