"""The surface `servers/{id}`: one server as it is, nothing renamed, nothing looked into."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from msgspec import Raw

from toolgate.auth.access import HARMLESS, KEPT
from toolgate.catalog.base import View
from toolgate.core import names
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Outcome, ToolInfo
from toolgate.upstreams.base import About

_KEPT = ToolInfo(hints=HARMLESS)


class Single:
    def __init__(self, server: str) -> None:
        self.server = server

    def needs(self, call: Call, view: View) -> Iterable[tuple[str, str]]:
        return [(self.server, "tools")] if call.kind == "tools" else ()  # what a tool is decides how it is called

    def shown(self, kind: str, servers: Collection[str]) -> Collection[str]:
        return servers

    def about(self) -> About | None:
        return None

    def claims(self, call: Call, view: View) -> bool:
        return True

    def undecided(self, call: Call, view: View) -> Iterable[tuple[str, str]]:
        return ()

    def faults(self, kind: str, view: View) -> Iterable[tuple[str, str]]:
        return ()

    def named(self, server: str, kind: str, name: str) -> str:
        return name

    def list(self, kind: str, view: View) -> Iterable[Raw]:
        server_list = view.server_list(self.server, kind)
        return server_list.items.values() if server_list else ()

    def enter(self, call: Call, view: View) -> Call:
        if self.server not in view.servers:
            raise Fault("SERVER_NOT_FOUND", f"Server not found: {self.server}")
        if call.method == "resources/read" and call.target.startswith(KEPT):  # what was cut of a result on this path
            return msgspec.structs.replace(call, server=names.OWN, tool_info=_KEPT)
        return call.at(self.server, call.target)

    def expose(self, server: str, uri: str) -> str:
        return uri

    def refuse(self, call: Call, fault: Fault, view: View) -> Outcome:
        raise fault

    def leave(self, call: Call, outcome: Outcome) -> Outcome:
        return outcome
