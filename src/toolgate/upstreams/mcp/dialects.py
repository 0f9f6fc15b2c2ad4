"""What a connection asks of the era that its server is spoken to in; it is era-free itself. The eras are in `eras`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Raw

from toolgate import __version__
from toolgate.config import Server
from toolgate.core import jsonrpc
from toolgate.core.jsonrpc import Members, Params
from toolgate.core.mcp import Revision
from toolgate.core.model import Accepted, Call, Client, Done, Required
from toolgate.eras.calls import Headers
from toolgate.telemetry.trace_context import OURS, PARENT

INFO = Raw(jsonrpc.encode({"name": "toolgate", "version": __version__}))


class Dialect(Protocol):
    """An era, as it is spoken to one server: `modern.ToServer`, `legacy.ToServer`, or `Unknown` until that is found
    out."""

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

    @property
    def read(self) -> Callable[[Call, Raw], Done | Accepted | Required]:
        """What a result means, in our words. Raises `Fault` for one that breaks the protocol."""
        ...


class Unknown:
    """Before the era is known: the two opening requests only."""

    revision = None
    capabilities: Mapping[str, Any] = {}
    instructions = ""
    resource_missing = None
    closing_cancels = False
    hears_of_roots = False
    runs_tasks = False

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


def passed_on(server: Server, call: Call) -> Headers:
    """Of the client's headers those that this server is to get, and our part of its trace."""
    names = [name for name in server.passed_headers if name in call.passed_on]
    found = [(name.encode(), call.passed_on[name].encode("latin-1", "replace")) for name in names]
    if ours := call.passed_on.get(OURS):
        return [*(each for each in found if each[0] != PARENT.encode()), (PARENT.encode(), ours.encode())]
    return found
