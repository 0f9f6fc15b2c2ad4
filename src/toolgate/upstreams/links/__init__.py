"""Links: what carries messages to an MCP server, made by `kinds.LINKS`. `LinkDeps` is what they work with.

    base      `Link`, and the `Receiver` above it
    stdio     a child process: one message a line
    http      Streamable HTTP: every message is a POST
    http1     the HTTP/1.1 client under it
    whole     requests to servers that speak no MCP, each answered as a whole
    streams   event streams over HTTP that outlive their connections
    sse       HTTP+SSE, the transport of 2024-11-05
    ws        WebSocket
    outbox    writing where all clients share one pipe
    paced     reading a WebSocket a piece at a time
    unended   what a server has begun to send and not ended
    memory    a server in this process
    refusals  what a server says instead of taking a message, as a `Fault`
    disowned  whether a server refused a message because it does not know the session
    session_check  the same, where its words do not say so: a ping in the session tells
    places    how many connections there are over HTTP, and whose
    receipts  whether a server has taken messages that have no answer

`streams.Following` asks for a stream by GET, and again when it ends, with the last id that it saw. Nothing is ever
sent again for that. A server that no longer knows the session *retires* its link: what is under way may still be
answered, and the next call opens another connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from toolgate.auth.oauth.credentials import OAuth
from toolgate.auth.safe_net import Dial, SafeNet
from toolgate.config import Server
from toolgate.core.bodies import Bodies
from toolgate.core.clock import Clock, SystemClock
from toolgate.core.complaints import Complaints
from toolgate.core.inflow import IntakeQueue
from toolgate.upstreams.bounds import Bounds
from toolgate.upstreams.kept_tasks import KeptTasks
from toolgate.upstreams.known_eras import Eras
from toolgate.upstreams.links.base import Link, Receiver
from toolgate.upstreams.links.places import Places
from toolgate.upstreams.pool import Pool
from toolgate.upstreams.process.supervisor import Launch, Supervisor

# How a server is started, for the holder of its connection.
MakeLaunch: TypeAlias = Callable[[Server, str], Awaitable[Launch]]


AT_ONCE = 2 * 1024 * 1024  # bytes of one server's results for one principal


class LinkDeps(msgspec.Struct, frozen=True):
    """What servers stand on; one for all snapshots."""

    clock: Clock
    supervisor: Supervisor
    pool: Pool
    outside: SafeNet = msgspec.field(default_factory=SafeNet)
    credentials: OAuth | None = None
    eras: Eras | None = None
    kept_tasks: KeptTasks | None = None
    complaints: Complaints | None = None  # None: all that servers do wrong is logged
    bounds: Bounds = msgspec.field(default_factory=Bounds)
    turns: IntakeQueue = msgspec.field(default_factory=IntakeQueue)  # of what servers send, each by its id
    results: Bodies = msgspec.field(default_factory=lambda: Bodies(AT_ONCE))  # until they are handed to their clients
    unended: Bodies = msgspec.field(default_factory=Bodies)  # lines, events and messages that servers have begun
    places: Places = msgspec.field(default_factory=lambda: Places(SystemClock()))
    launch: MakeLaunch | None = None  # None: as its configuration says; no server has a box

    def dial(self, server: Server) -> Dial:
        """How to connect to a server. What the operator has written may be anywhere; what is started here may be on
        this machine."""
        if server.by_operator:
            return self.outside.dial_anywhere(server.id)
        return self.outside.dial(server.id, ("127.0.0.1",) if server.command else ())


MakeLink: TypeAlias = Callable[[Server, Receiver, LinkDeps], Awaitable[Link]]
