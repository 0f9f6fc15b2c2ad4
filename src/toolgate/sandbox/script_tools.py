"""The server `gobby-scripts`: each script that was approved is a tool of it.

The rule this file keeps: which there are is looked up whenever somebody asks, so a script that was removed, or another
text that was approved, counts from the next call on, and no other text is ever run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping

from toolgate.core.fault import Fault
from toolgate.sandbox.stored import Script, StoredScripts
from toolgate.upstreams.inprocess.tools import Arguments, InProcessItem, InProcessTools, Result, ToolContext

RunScript = Callable[[Script, ToolContext], Awaitable[Result]]


class ScriptTools:
    """`missing` says why code of a language cannot be run, empty where it can. `run` is set by whoever can run one."""

    def __init__(self, scripts: StoredScripts, missing: Callable[[str], str]) -> None:
        self.scripts = scripts
        self.missing = missing
        self.run: RunScript = _nobody
        self.as_server = InProcessTools({"tools": _Tools(self)})

    @property
    def are_some(self) -> bool:
        return any(True for _ in self.as_server.entries["tools"])

    async def work(self, _arguments: Arguments, context: ToolContext) -> Result:
        script = self.scripts.get(context.call.target)
        if not script:
            raise Fault("TOOL_NOT_FOUND", f"Tool not found: {context.call.target}", reach="not_sent")
        return await self.run(script, context)


class _Tools(Mapping[str, InProcessItem]):
    def __init__(self, tools: ScriptTools) -> None:
        self._tools = tools

    def __bool__(self) -> bool:
        return True  # there may be some at any time

    def __getitem__(self, name: str) -> InProcessItem:
        script = self._tools.scripts.get(name)
        if not script:
            raise KeyError(name)
        return InProcessItem(script.listed(), self._tools.work)

    def __iter__(self) -> Iterator[str]:
        found = self._tools.scripts.all().values()
        return (script.name for script in found if not self._tools.missing(script.language))

    def __len__(self) -> int:
        return sum(1 for _ in self)


async def _nobody(script: Script, context: ToolContext) -> Result:
    raise Fault("SERVER_FAILED", "Code cannot be run here", reach="not_sent")
