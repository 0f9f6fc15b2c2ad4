"""What scripts call: the tools that their caller may call, as their caller calls them.

The rule this file keeps: each call of a script goes the whole way of a call (`Gateway.handle`), with the rights that
its caller has at that moment; what it asks is asked of the script's caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import msgspec
from msgspec import Raw

from toolgate.catalog.base import ServerList
from toolgate.core import items, names
from toolgate.core.concurrency import BySize
from toolgate.core.fault import Fault, Reached, let_go
from toolgate.core.model import Accepted, Call, Outcome
from toolgate.sandbox.run import Host, Rests
from toolgate.search import signatures
from toolgate.surfaces.controls import base, scripts
from toolgate.surfaces.controls.context import GatewayView
from toolgate.upstreams.inprocess.tools import ToolContext

LARGE = 256 * 1024  # bytes of a result: to read one takes as long as it is
MOST_MISSES = 20  # names that no tool has, of which one script is told what comes near: that takes 10 ms
MOST_NAMES = 5_000  # of tools, that a script is told of at its beginning


async def _no_tools(server: str, tool: str, arguments: bytes, raw: bool, rests: Rests) -> bytes:
    raise Fault("ACCESS_DENIED", "this code may not call tools", reach="not_sent")


NO_TOOLS = Host({}, _no_tools)
"""What code may reach that nobody has read: nothing."""


class ScriptCalls:
    """Those of one script in a language. `handle` has a call of its route go the whole way; `observe` is told what
    tools give that promise nothing; large results are read in threads, `in_turns`."""

    def __init__(
        self,
        context: ToolContext,
        view: GatewayView,
        language: str,
        handle: Callable[[Call], Awaitable[Outcome]],
        observe: Callable[[str, str, bytes], object],
        in_turns: BySize,
    ) -> None:
        self._context = context
        self._view = view
        self._language = language
        self._handle = handle
        self._observe = observe
        self._in_turns = in_turns
        self._misses = 0  # of names that are compared with all others

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
            outcome = await self._context.end_of(await self._handle(call), rests)
            if isinstance(outcome, Accepted):
                raise Fault("UPSTREAM_ERROR", f"{tool} was begun as a task: a script cannot wait for it")
            return bytes(outcome.body) if raw else await self._value(server, tool, outcome.body)
        except Fault as fault:
            let_go(fault)  # the code may make many such calls, and each would hold its arguments
            raise self._told(fault, server, tool) from None

    def _told(self, fault: Fault, server: str, tool: str) -> Fault:
        return Fault(fault.code, self._helpful(fault, server, tool), reach=fault.reach)

    async def _value(self, server: str, tool: str, body: Raw | bytes) -> bytes:
        item = self._item(server, tool)
        read = partial(scripts.value_of, body, has_output=item is not None and bool(item.outputSchema))
        whose = self._context.client.principal.counted_as
        size = len(memoryview(body))
        value = await self._in_turns.of(size).in_thread(whose, read) if size > LARGE else read()
        if item and not item.outputSchema:
            self._observe(base.find_server(server, self._view.names), tool, value)
        return value

    def _known(self, server: str) -> ServerList | None:
        try:
            return self._view.known(base.find_server(server, self._view.names), "tools")
        except Fault:
            return None

    def _item(self, server: str, tool: str) -> items.Item | None:
        known = self._known(server)
        raw = known.items.get(tool) if known else None
        return items.read(raw) if raw is not None else None

    def _nearest(self, server: str, tool: str) -> str:
        """How that tool is declared which may have been meant, of those that the caller may call."""
        known = self._known(server)
        near = names.near(tool, known.items, 1) if known else ()
        item = self._item(server, near[0]) if near else None
        if not item:
            return ""
        observed = self._view.observed(base.find_server(server, self._view.names), item.name)
        schemas = (bytes(item.inputSchema), bytes(item.outputSchema), observed)
        written = signatures.Tool(item.name, item.description, *schemas)
        declare = signatures.python if self._language == "python" else signatures.typescript
        return declare(written, signatures.Budget(_MOST_OF_A_SCHEMA))

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
        elif fault.code == "TOOL_NOT_FOUND" and self._misses < MOST_MISSES:
            self._misses += 1
            if not (nearest := self._nearest(server, tool)):
                return said
            said = f"{said}\nThe nearest tool of {server} is:\n{nearest}"
        return said


_TOO_DEEP = "A stored script that other code has called cannot call another one"
_MOST_OF_A_SCHEMA = 2_000
