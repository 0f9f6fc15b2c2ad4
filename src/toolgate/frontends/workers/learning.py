"""How a worker learns: what the owner has answered once, it can answer itself the next time.

The rule this file keeps: who was let in, and what a name means, a worker finds out by the same functions as the owner,
and only after the owner has answered; until then, and wherever that fails, all stays the owner's.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from httptools import HttpRequestParser, parse_url

from toolgate.auth.refusals import Unauthorized
from toolgate.core import jsonrpc, mcp
from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.eras import headers as era_headers
from toolgate.eras import modern
from toolgate.frontends.connections import STATE, Connection
from toolgate.frontends.guards import Guards, Refused
from toolgate.frontends.known_heads import END, MOST, Head, Parted
from toolgate.frontends.modern import ModernResponses
from toolgate.frontends.workers.channel import Peer
from toolgate.frontends.workers.local import LocalGateway

AGAIN = 1.0  # seconds after which one learns anew from requests with the same head


class Learner:
    """That of one worker."""

    def __init__(self, guards: Guards, responses: ModernResponses, gateway: LocalGateway, clock: Clock) -> None:
        self._guards = guards
        self._responses = responses
        self._gateway = gateway
        self._clock = clock
        self._learning = BackgroundTasks()
        self._again: dict[Head, float] = {}  # when it is learned from a head again, at the earliest

    def learn_soon(self, came: Parted, data: bytes, connection: Connection, peer: Peer) -> None:
        """From a request that the owner has answered: `data`, on this connection of that peer."""
        now = self._clock.now()
        if any(self._learning) or self._again.get(came.head, now) > now:
            return
        if len(self._again) >= MOST:
            self._again.clear()
        self._again[came.head] = now + AGAIN
        self._learning.start(self._learn(came, data, connection, peer), "learn")

    async def _learn(self, came: Parted, data: bytes, connection: Connection, peer: Peer) -> None:
        try:
            scope = self._guards.seen(_scope(data, connection, peer))
            request = await self._guards.admit(scope, _body(came), connection, came)
            body = request.body or await self._guards.read(request)
            message = jsonrpc.decode(body)
            is_modern = modern.speaks_modern(request.headers.get(era_headers.VERSION), message.params)
            if message.method != mcp.CALL or not message.id or not is_modern or request.twice or request.is_sse:
                return
            asked = self._responses.read(message, request.headers, request.principal, request.route, _drop)
            if await self._gateway.learn(self._responses.read_call(asked), request.route) and not request.body:
                self._guards.remember(request, came, body)
        except (Refused, Unauthorized, Fault, jsonrpc.Malformed):
            return  # the owner says so to whoever asks

    async def close(self) -> None:
        await self._learning.close()


def _drop(_message: bytes) -> None:
    """Nobody hears it."""


def _body(came: Parted) -> Any:
    async def receive() -> MutableMapping[str, Any]:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": came.body, "more_body": False}

    return receive


class _Read:
    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


def _scope(data: bytes, connection: Connection, peer: Peer) -> MutableMapping[str, Any]:
    """As the server makes it of the same head."""
    read = _Read()
    parser = HttpRequestParser(read)
    parser.feed_data(data[: data.find(END) + len(END)])
    url = parse_url(read.url)
    path = url.path.decode("ascii")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": parser.get_http_version(),
        "server": peer.server,
        "client": peer.client,
        "scheme": peer.scheme,
        "method": parser.get_method().decode("ascii"),
        "root_path": "",
        "path": path,
        "raw_path": url.path,
        "query_string": url.query or b"",
        "headers": read.headers,
        "state": {STATE: connection},
    }
