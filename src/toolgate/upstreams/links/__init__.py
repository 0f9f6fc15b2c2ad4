"""Links: what carries messages to an MCP server. `LINKS` is the table of them; `LinkDeps` is what they work with.

    base      `Link`, and the `Receiver` above it
    stdio     a child process: one message a line
    http      Streamable HTTP: every message is a POST
    http1     the HTTP/1.1 client under it
    streams   event streams over HTTP that outlive their connections
    sse       HTTP+SSE, the transport of 2024-11-05
    ws        WebSocket
    paced     reading a WebSocket a piece at a time
    memory    a server in this process
    refusals  what a server says instead of taking a message, as a `Fault`
    disowned  whether a server refused a message because it does not know the session
    receipts  whether a server has taken messages that have no answer

`streams.Following` asks for a stream by GET, and again when it ends, with the last id that it saw. Nothing is ever
sent again for that. A server that no longer knows the session *retires* its link: what is under way may still be
answered, and the next call opens another connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import msgspec

from toolgate.auth.oauth.base import Credentials, UpstreamCredential
from toolgate.auth.safe_net import Dial, SafeNet
from toolgate.config import Server
from toolgate.core.clock import Clock
from toolgate.core.complaints import Complaints
from toolgate.upstreams.bounds import Bounds
from toolgate.upstreams.known_eras import Eras
from toolgate.upstreams.links import http, sse, stdio, ws
from toolgate.upstreams.links.base import Link, Receiver
from toolgate.upstreams.pool import Pool
from toolgate.upstreams.process.supervisor import Supervisor


class LinkDeps(msgspec.Struct, frozen=True):
    """What servers stand on; one for all snapshots."""

    clock: Clock
    supervisor: Supervisor
    pool: Pool
    outside: SafeNet = msgspec.field(default_factory=SafeNet)
    credentials: Credentials | None = None
    eras: Eras | None = None
    complaints: Complaints | None = None  # None: all that servers do wrong is logged
    bounds: Bounds = msgspec.field(default_factory=Bounds)

    def dial(self, server: Server) -> Dial | None:
        """How to connect to a server; None for one that the operator has written: as it is. What is started here may
        be on this machine."""
        return None if server.by_operator else self.outside.dial(("127.0.0.1",) if server.command else ())


MakeLink: TypeAlias = Callable[[Server, Receiver, LinkDeps], Awaitable[Link]]


async def _stdio(server: Server, receiver: Receiver, link_deps: LinkDeps) -> Link:
    link = stdio.StdioLink(server, receiver, link_deps.complaints)
    await link.connect(link_deps.supervisor)
    return link


async def _http(server: Server, receiver: Receiver, link_deps: LinkDeps) -> Link:
    return http.HttpLink(
        server, receiver, link_deps.clock, link_deps.dial(server), _credential(server, receiver, link_deps)
    )


async def _sse(server: Server, receiver: Receiver, link_deps: LinkDeps) -> Link:
    link = sse.SseLink(
        server, receiver, link_deps.clock, link_deps.dial(server), _credential(server, receiver, link_deps)
    )
    await link.connect(server.start_timeout)
    return link


async def _ws(server: Server, receiver: Receiver, link_deps: LinkDeps) -> Link:
    link = ws.WsLink(server, receiver, link_deps.dial(server))
    await link.connect()
    return link


def _credential(server: Server, receiver: Receiver, link_deps: LinkDeps) -> UpstreamCredential | None:
    """What stands in `headers` is shown before anything else."""
    if not server.auth or not link_deps.credentials or any(name.lower() == "authorization" for name in server.headers):
        return None
    return link_deps.credentials.credential(server, receiver.principal)


LINKS: Mapping[str, MakeLink] = {"stdio": _stdio, "http": _http, "sse": _sse, "ws": _ws}
