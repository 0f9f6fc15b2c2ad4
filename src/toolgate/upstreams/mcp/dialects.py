"""How one era is spoken to a server: what a request looks like, what its answer means. The connection is era-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Raw

from toolgate import __version__
from toolgate.config import Server
from toolgate.core import jsonrpc, mcp
from toolgate.core.jsonrpc import Members, Params
from toolgate.core.mcp import Revision
from toolgate.core.model import Accepted, Call, Client, Done, Required
from toolgate.eras import calls, header_arguments, headers, legacy, modern, tasks

DEFAULT_LEVEL = "info"  # for clients of an era in which a server may log without being asked
INFO = Raw(jsonrpc.encode({"name": "toolgate", "version": __version__}))

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


class Dialect(Protocol):
    """An era, as it is spoken to one server: `Modern`, `Legacy`, or `Unknown` until that is found out."""

    @property
    def revision(self) -> Revision | None:
        """None until it is found out."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]: ...

    @property
    def resource_missing(self) -> int | None:
        """The error code by which this era says that there is no such resource."""
        ...

    @property
    def instructions(self) -> str: ...

    @property
    def has_header_arguments(self) -> bool:
        """Whether a request over HTTP repeats arguments in headers."""
        ...

    @property
    def hears_of_roots(self) -> bool:
        """Whether it can be told that its client's roots have changed."""
        ...

    @property
    def closing_cancels(self) -> bool:
        """Whether the end of a request's stream tells the server that it is cancelled."""
        ...

    @property
    def runs_tasks(self) -> bool:
        """Whether it runs tools as tasks where it is asked to (2025-11-25)."""
        ...

    def call(self, call: Call, id: int) -> tuple[Params, Headers]:
        """Parameters and headers of a call. Raises `Fault` for what this era has no word for."""
        ...

    def listing(self, method: str, cursor: str | None, client: Client) -> tuple[Members, Headers]:
        """The same of a request for one page of a list; `cursor` None asks for the first."""
        ...

    def ping(self) -> tuple[str, Members, Headers]:
        """A request that any server of this era answers at once: its method, parameters and headers."""
        ...

    def other(self) -> Headers:
        """The headers of a message that is no request."""
        ...

    def read(self, call: Call, body: Raw) -> Done | Accepted | Required:
        """What a result means. Raises `Fault` for one that breaks the protocol."""
        ...


class Modern:
    """Each request carries its caller's own capabilities; questions come back as results."""

    closing_cancels = True
    hears_of_roots = False
    runs_tasks = False  # it decides itself
    has_header_arguments = True

    def __init__(self, revision: Revision, found: modern.Discovered) -> None:
        self.revision = revision
        self.resource_missing = revision.resource_missing
        self.capabilities = found.capabilities
        self.instructions = found.instructions

    def call(self, call: Call, id: int) -> tuple[Params, Headers]:
        level = call.log_level or (DEFAULT_LEVEL if call.wants_logs else None)
        meta = modern.envelope_meta(self.revision, call.client, INFO, level)
        if call.wants_progress:
            meta[mcp.PROGRESS_KEY] = Raw(b"%d" % id)
        params = calls.write_params(call, meta)
        if call.resumption:
            modern.write_answers(params, call.resumption.answers, call.resumption.state)
        elif call.volunteered:
            params["inputResponses"] = call.volunteered
        told = headers.for_request(self.revision, call.method, call.target if call.method in mcp.NAMED else None)
        if call.tool_info and call.tool_info.header_arguments:
            told = (*told, *header_arguments.write(call.tool_info.header_arguments, call.arguments))
        return params, told

    def listing(self, method: str, cursor: str | None, client: Client) -> tuple[Members, Headers]:
        meta = Raw(jsonrpc.encode(modern.envelope_meta(self.revision, client, INFO)))
        return {"_meta": meta, **_cursor(cursor)}, headers.for_request(self.revision, method, None)

    def ping(self) -> tuple[str, Members, Headers]:
        return mcp.DISCOVER, *self.listing(mcp.DISCOVER, None, Client())

    def other(self) -> Headers:
        return ((b"MCP-Protocol-Version", self.revision.date.encode()),)

    read = staticmethod(modern.read_result)


class Legacy:
    """The handshake said what can be said; questions come as requests of the server."""

    closing_cancels = False
    hears_of_roots = True
    has_header_arguments = False

    def __init__(self, revision: Revision, found: legacy.Initialized) -> None:
        self.revision = revision
        self.resource_missing = revision.resource_missing
        self.capabilities = found.capabilities
        self.instructions = found.instructions
        self.runs_tasks = revision.tasks == "experimental" and tasks.offers_tasks(found.capabilities)
        self._headers: Headers = (
            ((b"MCP-Protocol-Version", revision.date.encode()),) if revision.has_version_header else ()
        )

    def call(self, call: Call, id: int) -> tuple[Params, Headers]:
        meta = {mcp.PROGRESS_KEY: Raw(b"%d" % id)} if call.wants_progress else {}
        return tasks.write_wish(call, calls.write_params(call, meta)), self._headers

    def listing(self, method: str, cursor: str | None, client: Client) -> tuple[Members, Headers]:
        return _cursor(cursor), self._headers

    def ping(self) -> tuple[str, Members, Headers]:
        return "ping", {}, self._headers

    def other(self) -> Headers:
        return self._headers

    def read(self, call: Call, body: Raw) -> Done | Accepted | Required:
        return Accepted(body) if call.task and tasks.is_made(body) else Done(body)


class Unknown:
    """Before the era is known: the two opening requests only."""

    revision = None
    capabilities: Mapping[str, Any] = {}
    instructions = ""
    resource_missing = None
    closing_cancels = False
    hears_of_roots = False
    runs_tasks = False
    has_header_arguments = False

    def call(self, call: Call, id: int) -> tuple[Params, Headers]:
        raise NotImplementedError("no call is made before the era is known")

    def listing(self, method: str, cursor: str | None, client: Client) -> tuple[Members, Headers]:
        raise NotImplementedError("no list is asked for before the era is known")

    def ping(self) -> tuple[str, Members, Headers]:
        raise NotImplementedError("no process is watched before the era is known")

    def other(self) -> Headers:
        return ()

    def read(self, call: Call, body: Raw) -> Done | Accepted | Required:
        return Done(body)


def _cursor(cursor: str | None) -> Members:
    return {"cursor": Raw(jsonrpc.encode(cursor))} if cursor is not None else {}


def passed_on(server: Server, call: Call) -> Headers:
    """Of the client's headers those that this server is to get."""
    names = [name for name in server.passed_headers if name in call.passed_on]
    return [(name.encode(), call.passed_on[name].encode("latin-1", "replace")) for name in names]
