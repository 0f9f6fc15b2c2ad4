"""A call for what another call has made, a task or a kept result: it is judged by what made that as well."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from toolgate.catalog import tool_info
from toolgate.catalog.catalog import Catalog
from toolgate.catalog.overlays import hides
from toolgate.core import mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client
from toolgate.policy.overflow import Source
from toolgate.surfaces.handles import about_made


class Makers:
    """`source` says what that was made by which is kept of a result."""

    def __init__(self, catalog: Catalog, source: Callable[[Client, str], Source | None]) -> None:
        self._catalog = catalog
        self._source = source

    def of_kept(self, call: Call) -> Call:
        """A call for something that was kept, with the one whose result that was."""
        if not (source := self._source(call.client, call.target)):
            return call
        about = about_made(source.server, source.made, call.client)
        return self.judged_by(msgspec.structs.replace(call, about=about))

    def judged_by(self, call: Call) -> Call:
        """The same with what the tool that it is about says of itself now. Raises `Fault` where that is hidden."""
        assert call.about
        about = self.as_known(call.about)
        server_list = self._catalog.known(about.server, "tools", about.client)
        if (
            about.method == mcp.CALL
            and call.method != mcp.TASK_CANCEL
            and server_list
            and hides(server_list, about.target)
        ):
            raise Fault("ACCESS_DENIED", "Access denied: the tool that made it may no longer be used", reach="not_sent")
        return msgspec.structs.replace(call, about=about)

    def as_known(self, about: Call) -> Call:
        server_list = self._catalog.known(about.server, "tools", about.client)
        found = tool_info.of(server_list, about.target) if about.method == mcp.CALL else None
        return msgspec.structs.replace(about, tool_info=found)
