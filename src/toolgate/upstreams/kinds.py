"""The kinds of servers: `KINDS` has for each type of the configuration how its upstream is made, `LINKS` for those that
speak MCP what carries their messages.

    mcp          servers that speak MCP, in any revision
    component    HTTP servers that know no MCP: GET lists tools, POST runs one
    inprocess    tools that are functions in this process
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from toolgate.auth.oauth.credentials import UpstreamCredential
from toolgate.config import Server
from toolgate.core.model import EventSink
from toolgate.upstreams.base import Upstream
from toolgate.upstreams.component.upstream import ComponentUpstream
from toolgate.upstreams.inprocess import BUILT_IN_SERVERS
from toolgate.upstreams.inprocess.tools import InProcessTools
from toolgate.upstreams.inprocess.upstream import InProcessUpstream
from toolgate.upstreams.links import LinkDeps, MakeLink, http, sse, stdio, ws
from toolgate.upstreams.links.base import Link, Receiver
from toolgate.upstreams.mcp.upstream import McpUpstream

MakeUpstream: TypeAlias = Callable[[Server, LinkDeps, EventSink], Upstream]


async def _stdio(server: Server, receiver: Receiver, link_deps: LinkDeps) -> Link:
    unended = link_deps.unended
    link = stdio.StdioLink(server, receiver, link_deps.clock, link_deps.turns, link_deps.complaints, unended=unended)
    launch = await link_deps.launch(server, receiver.principal) if link_deps.launch else None
    await link.connect(link_deps.supervisor, launch)
    return link


async def _http(server: Server, receiver: Receiver, link_deps: LinkDeps) -> Link:
    credential = _credential(server, receiver, link_deps)
    dial, turns, places = link_deps.dial(server), link_deps.turns, link_deps.places
    clock, complaints, unended = link_deps.clock, link_deps.complaints, link_deps.unended
    return http.HttpLink(server, receiver, clock, dial, turns, places, credential, complaints, unended)


async def _sse(server: Server, receiver: Receiver, link_deps: LinkDeps) -> Link:
    credential = _credential(server, receiver, link_deps)
    dial, turns, places = link_deps.dial(server), link_deps.turns, link_deps.places
    link = sse.SseLink(server, receiver, link_deps.clock, dial, turns, places, credential, link_deps.unended)
    await link.connect(server.start_timeout)
    return link


async def _ws(server: Server, receiver: Receiver, link_deps: LinkDeps) -> Link:
    link = ws.WsLink(server, receiver, link_deps.clock, link_deps.dial(server), link_deps.turns, link_deps.unended)
    await link.connect()
    return link


def _credential(server: Server, receiver: Receiver, link_deps: LinkDeps) -> UpstreamCredential | None:
    """What stands in `headers` is shown before anything else."""
    if not server.auth or not link_deps.credentials or any(name.lower() == "authorization" for name in server.headers):
        return None
    return link_deps.credentials.credential(server, receiver.principal)


LINKS: Mapping[str, MakeLink] = {"stdio": _stdio, "http": _http, "sse": _sse, "ws": _ws}


def _built_in(server: Server, link_deps: LinkDeps, on_event: EventSink) -> Upstream:
    return InProcessUpstream(server, BUILT_IN_SERVERS[server.id](), link_deps.clock)


KINDS: Mapping[str, MakeUpstream] = {
    **{type: partial(McpUpstream, make_link) for type, make_link in LINKS.items()},
    "component": ComponentUpstream,
    "registry": _built_in,
}


def upstream_of(
    server: Server,
    link_deps: LinkDeps,
    on_event: EventSink,
    make_link: MakeLink | None = None,
    tools: InProcessTools | None = None,
) -> Upstream:
    """What calls of a server go to. `on_event` hears what it says unasked. With `make_link` it speaks MCP over such a
    link, whatever its type; with `tools` it is these."""
    if tools:
        return InProcessUpstream(server, tools, link_deps.clock)
    make = partial(McpUpstream, make_link) if make_link else KINDS[server.type]
    return make(server, link_deps, on_event)
