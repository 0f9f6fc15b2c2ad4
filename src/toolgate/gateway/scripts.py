"""What scripts call: the tools that their caller may call, as their caller calls them.

The rule this file keeps: each call of a script goes the whole way of a call (`Gateway.handle`), with the rights that
its caller has at that moment; what it asks is asked of the script's caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from msgspec import Raw

from toolgate.core import items, names
from toolgate.core.fault import Fault, Reached
from toolgate.core.model import Accepted, Ask, Call, Outcome, Resume
from toolgate.sandbox.run import Host, Rests
from toolgate.search import signatures
from toolgate.surfaces.controls import base, scripts
from toolgate.surfaces.controls.context import GatewayView
from toolgate.upstreams.inprocess.tools import ToolContext

MOST_NAMES = 5_000  # of tools, that a script is told of at its beginning


class ScriptCalls:
    """Those of one script. `handle` has a call of its route go the whole way; `shown` is a server's questions as its
    client may see them."""

    def __init__(
        self,
        context: ToolContext,
        view: GatewayView,
        handle: Callable[[Call], Awaitable[Outcome]],
        shown: Callable[[Resume, Sequence[Ask]], Sequence[Ask]],
    ) -> None:
        self._context = context
        self._view = view
        self._handle = handle
        self._shown = shown

    def host(self) -> Host:
        """What the script may reach."""
        return Host(self._servers(), self.call)

    def _servers(self) -> Mapping[str, Sequence[str] | None]:
        """The names of the servers that the caller may use, with those of their tools, as far as they are known."""
        left, found = MOST_NAMES, dict[str, Sequence[str] | None]()
        for id, summary in self._view.servers.items():
            known = self._view.known(id, "tools")
            tools = list(known.items) if known and len(known.items) <= left else None
            left -= len(tools or ())
            found[summary.name] = tools
        return found

    async def call(self, server: str, tool: str, arguments: bytes, raw: bool, rests: Rests) -> bytes:
        """What comes of a call, as JSON: the value that the tool gives, or its whole result where `raw`. Raises
        `Fault`, with what helps the script's author in its message."""
        try:
            if self._context.call.by_script and names.slug(server) == names.SCRIPTS:
                raise Fault("ACCESS_DENIED", _TOO_DEEP, reach="not_sent")
            call = scripts.call_of(self._context.call, server, tool, Raw(arguments))
            call = msgspec.structs.replace(call, reached=Reached(rests=(rests,)))
            outcome = await self._context.end_of(await self._handle(call), self._shown, rests)
            if isinstance(outcome, Accepted):
                raise Fault("UPSTREAM_ERROR", f"{tool} was begun as a task: a script cannot wait for it")
            return bytes(outcome.body) if raw else scripts.value_of(outcome.body, self._has_output(server, tool))
        except Fault as fault:
            raise Fault(fault.code, self._helpful(fault, server, tool), reach=fault.reach) from None

    def _has_output(self, server: str, tool: str) -> bool:
        """Whether a tool promises structured content."""
        item = self._item(server, tool)
        return item is not None and bool(item.outputSchema)

    def _item(self, server: str, tool: str) -> items.Item | None:
        try:
            known = self._view.known(base.find_server(server, self._view.names), "tools")
        except Fault:
            return None
        raw = known.items.get(tool) if known else None
        return items.read(raw) if raw is not None else None

    def _helpful(self, fault: Fault, server: str, tool: str) -> str:
        """A fault's message, with its hint and how the tool is called: a script has nothing else of it."""
        said = fault.message
        if fault.hint and fault.hint not in said:
            said = f"{said} ({fault.hint})"
        item = self._item(server, tool)
        if item:
            written = signatures.Tool(item.name, "", bytes(item.inputSchema), bytes(item.outputSchema))
            line = signatures.one_line(written, signatures.Budget(_MOST_OF_A_SCHEMA))
            said = f"{said}\nIt is called as {line}"
        return said


_TOO_DEEP = "A stored script that other code has called cannot call another one"
_MOST_OF_A_SCHEMA = 2_000
