"""What control tools work by: what one client may see of the gateway, and do there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from toolgate.auth.credential_states import CredentialState
from toolgate.catalog.base import ServerList, ServerSummary, View
from toolgate.core.exchange import Exchange
from toolgate.core.model import Call, Client
from toolgate.sandbox.run import Ran
from toolgate.search import Hit
from toolgate.upstreams.base import Status
from toolgate.upstreams.inprocess.tools import EncodedResult, ToolContext
from toolgate.upstreams.providers.services import Providers


class GatewayInfo(msgspec.Struct, frozen=True):
    """The gateway as a whole. `wall` and `started` in seconds since 1970; `port` is None where it does not listen;
    `problem` is what is wrong with the configuration as it stands now, where an older one is served; `code` says by
    language what runs code of clients and what keeps it in, or why it cannot run; `credentials` are those that end or
    fail; `source` is its file; `project` the id of the project that it was started in, if any."""

    wall: Callable[[], float]
    started: float
    version: str
    pid: int
    port: Callable[[], int | None]
    problem: Callable[[], str]
    code: Callable[[], Mapping[str, str]]
    credentials: Callable[[], Sequence[CredentialState]]
    source: str = ""
    project: str | None = None


class Importable(msgspec.Struct, frozen=True):
    """A server that could be imported: `table` is what `add_mcp_server` takes beside its name, and `missing` are
    variables without which it is not whole. `whence` is where it came from. `held_back`: why a person has to decide on
    it, empty where nobody has to; `gates` are told with that."""

    name: str
    table: Mapping[str, Any]
    whence: str
    missing: tuple[str, ...] = ()
    held_back: str = ""
    gates: Sequence[Mapping[str, Any]] = ()


class GatewayView(Protocol):
    """What one client may see of the gateway on its route, and do there."""

    @property
    def client(self) -> Client: ...

    @property
    def gateway_info(self) -> GatewayInfo: ...

    @property
    def servers(self) -> Mapping[str, ServerSummary]:
        """Those that the client may use, by id, in the order of the configuration, and the gateway's own."""
        ...

    @property
    def configured(self) -> Mapping[str, ServerSummary]:
        """The same without the gateway's own, which nobody has to know of to use the others."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether the client may see everything."""
        ...

    @property
    def names(self) -> Mapping[str, str]:
        """Their configured names by id."""
        ...

    @property
    def disabled(self) -> Mapping[str, str]:
        """Names, by id, of servers that are configured and never started, as far as the client may see them."""
        ...

    def status(self, server: str, /) -> Status: ...

    def known(self, server: str, kind: str, /) -> ServerList | None:
        """A list as it is known now. Starts nothing."""
        ...

    async def lists(self, wanted: Sequence[tuple[str, str]], /) -> View:
        """A view in which these (server, kind) are there, failed, or pending after the list timeout."""
        ...

    @property
    def profiles(self) -> Mapping[str, Sequence[str]]:
        """Those of agents, by id: patterns of the tools that each is for."""
        ...

    @property
    def search_mode(self) -> str:
        """How `search_tools` searches where its caller does not say."""
        ...

    async def search(
        self,
        query: str,
        *,
        servers: Sequence[str],
        kinds: Sequence[str] = ("tools",),
        limit: int = 10,
        mode: str = "",
    ) -> Sequence[Hit]:
        """The best hits among what is known, in the mode that is configured where none is named, and never by patterns
        then. Raises `Fault` where the mode or the query cannot be served."""
        ...

    def kept(self, call: Call, /) -> Mapping[str, Any]:
        """What was cut of a result, as `resources/read` answers it, for who may make the call that it is of. Raises
        `Fault`."""
        ...

    def named(self, server: str, kind: str, name: str, /) -> str:
        """A server's own name or URI as the client's surface has it."""
        ...

    def activate(self, tools: Sequence[str], /) -> None:
        """Have these (in the surface's names) shown in the lists of the client's session, if it has one."""
        ...

    async def codex(self, tool: str, given: Mapping[str, Any], context: ToolContext, /) -> Mapping[str, Any]:
        """What comes of a call of one of the tools that work by Codex. Raises `Fault`."""
        ...

    async def hook(self, given: Mapping[str, Any], context: ToolContext, /) -> Mapping[str, Any]:
        """What comes of what an agent's program says of its session. Raises `Fault`."""
        ...

    async def run(
        self,
        language: str,
        code: str,
        context: ToolContext,
        /,
        *,
        timeout: float | None = None,
        data: bytes = b"",
        is_own: bool = False,
        calls_tools: bool = True,
    ) -> Ran:
        """What comes of code that may call the client's tools, unless it is not to; `data` is JSON that it finds as
        `data`; `is_own`: the code is the gateway's. Raises `Fault` where it does not run, `SandboxError` where it
        fails."""
        ...

    async def written(self, make: Callable[[], Mapping[str, Any]], /) -> EncodedResult:
        """The result of the last `run`, as `make` has it; in a thread where it is large. It is as code made it: what
        servers told the code was scrubbed before, and whatever was taken out of the code's own words would answer its
        guesses at secrets."""
        ...

    async def told(self, call: Call, size: int, tokens: int, write: Callable[[], bytes], /) -> EncodedResult:
        """The result of a call of a control tool that tells of lists, as `write` makes it. It counts for as many bytes
        and tokens; it is made when there is room for it."""
        ...

    async def as_call(
        self, control: str, arguments: Mapping[str, Any], context: ToolContext, does: Callable[[Any], Any] | None, /
    ) -> EncodedResult:
        """The result of a call of another control tool that a call of one stands for, judged as any call of that one
        is, and done by `does` where that is given. Raises `Fault`."""
        ...

    async def tokens(self) -> Mapping[str, Any]:
        """How many tokens the client's model has loaded of tools, and what all tools at once would have been."""
        ...

    @property
    def providers(self) -> Providers:
        """The models that may be asked, for this client by its principal."""
        ...

    def observed(self, server: str, tool: str, /) -> bytes:
        """What results of a tool that declares no output looked like when code of this client's principal called it, as
        a JSON Schema; empty where that is not known, or the client may not see the tool."""
        ...

    async def stop(self, server: str, /) -> None:
        """End what runs of it; its next use starts it again."""
        ...

    async def add(self, name: str, table: Mapping[str, Any], context: ToolContext, /) -> str:
        """Configure another server, in the project that the call is in; its id. Raises `Fault` where it must not be, or
        cannot."""
        ...

    async def provision(self, intent: str, judges: bool, is_dry: bool, context: ToolContext, /) -> Mapping[str, Any]:
        """Which servers that are not here yet answer an intent; with `judges`, whether each could be installed, and the
        best one is where the operator allows it, unless `is_dry`. Raises `Fault`."""
        ...

    async def importable(
        self, source: str, named: str, content: str | None, context: ToolContext, /
    ) -> Sequence[Importable]:
        """The servers that a project, a repository (`content` is what stands in it, where that is known) or a search
        has. Raises `Fault`."""
        ...

    async def remove(self, name: str, /) -> None:
        """Take a server that was added out of the configuration. Raises `Fault`."""
        ...


class ControlContext(ToolContext):
    """What a control tool works by: what every tool in this process has, and `gateway`."""

    def __init__(self, call: Call, exchange: Exchange, gateway: GatewayView) -> None:
        super().__init__(call, exchange)
        self.gateway = gateway
