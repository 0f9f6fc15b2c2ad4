"""Connections to a server of both eras, by links that answer at once: what is left when each has ended."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest
from msgspec import Raw
from virtualtime import FakeClock

from toolgate.config import Server
from toolgate.core import jsonrpc
from toolgate.core.fault import Fault
from toolgate.core.mcp import LATEST
from toolgate.core.model import Call, Client, Principal
from toolgate.upstreams.links import LinkDeps
from toolgate.upstreams.mcp.upstream import McpUpstream
from toolgate.upstreams.pool import Pool

ANN = Client(Principal("ann"), revision=LATEST["modern"])
BOB = Client(Principal("bob"), session="b", revision=LATEST["legacy"])
BROKEN = Fault("SERVER_FAILED", "it broke the connection", reach="sent_unknown")
ABOUT = {"capabilities": {"tools": {}, "resources": {"subscribe": True}}, "serverInfo": {"name": "s", "version": "1"}}
ANSWERS: dict[str, Any] = {
    "initialize": {"protocolVersion": LATEST["legacy"].date, **ABOUT},
    "server/discover": {"supportedVersions": [LATEST["modern"].date], "ttlMs": 0, "cacheScope": "private", **ABOUT},
    "tools/call": {"content": []},
}


class Link:
    signs_of_life = None
    discovers = True

    def __init__(self, receiver: Any) -> None:
        self.receiver = receiver
        self.is_closed = False

    def send_now(self, data: bytes, *_: Any) -> bool:
        asyncio.get_running_loop().call_soon(self._answer, data)
        return True

    async def send(self, data: bytes, *_: Any) -> None:
        self._answer(data)

    def _answer(self, data: bytes) -> None:
        asked = json.loads(data)
        if "id" in asked:
            result = {"resultType": "complete", **ANSWERS.get(asked["method"], {})}
            self.receiver.received(jsonrpc.result(Raw(b"%d" % asked["id"]), json.dumps(result).encode()), None)

    def accepted(self) -> None: ...

    async def listen(self, *_: Any) -> None: ...

    async def fall_back(self) -> None: ...

    def abandon(self, _origin: int) -> bool:
        return False

    def describe(self) -> dict[str, object]:
        return {}

    async def close(self) -> None:
        receiver, self.receiver = self.receiver, None
        self.is_closed = True
        if receiver:
            receiver.closed(BROKEN)


class There:
    """The server. While it `is_away` nobody connects."""

    is_away = False

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.links: list[Link] = []
        self.pool = Pool(self.clock)
        deps = LinkDeps(self.clock, None, self.pool)  # type: ignore[arg-type]
        self.upstream = McpUpstream(self._made, Server(id="s", name="s", type="http", url="http://s/"), deps, _nobody)

    async def _made(self, _server: Server, receiver: Any, _deps: LinkDeps) -> Any:
        if self.is_away:
            raise Fault("SERVER_FAILED", "cannot reach it", reach="not_sent")
        self.links.append(Link(receiver))
        return self.links[-1]

    async def call(self, client: Client) -> None:
        call = Call("tools/call", "t", client, server="s", arguments=Raw(b"{}"))
        begun = self.upstream.begin(call)
        if begun:
            begun.line()
        await (begun.outcome() if begun else self.upstream.invoke(call))


def _nobody(_event: Any) -> None:
    """Hears of nothing."""


async def test_of_a_server_that_loses_its_session_again_and_again_one_connection_is_kept() -> None:
    there = There()
    for _ in range(20):
        for _ in range(2):
            await there.call(ANN)
        there.links[-1].receiver.retired(BROKEN)
        await there.clock.advance(2.0)
    await there.call(ANN)
    assert [link.is_closed for link in there.links] == [True] * 20 + [False]
    gc.collect()
    assert len(there.upstream.ways) <= 1 and len(there.pool) == 1
    await there.upstream.close()


async def test_what_clients_of_another_era_watch_is_opened_again_when_their_server_is_back() -> None:
    there = There()
    await there.call(ANN)
    await there.upstream.watch("file:///a", BOB)
    assert len(there.pool) == 2
    there.is_away = True
    there.links[1].receiver.closed(BROKEN)
    await there.clock.advance(1.5)
    there.is_away = False
    await there.call(BOB)
    await there.clock.advance(5.0)
    assert len(there.pool) == 2
    there.upstream.unwatch("file:///a", BOB)
    await there.clock.advance(1000.0)
    assert not len(there.pool), "nobody needs it"
    await there.upstream.close()


async def test_a_server_that_is_closed_while_its_connection_breaks_stays_closed() -> None:
    there = There()
    await there.call(BOB)
    await there.upstream.watch("file:///a", BOB)
    there.upstream.unwatch("file:///b", BOB)
    [session] = there.upstream._sessions.values()  # pyright: ignore[reportPrivateUsage]
    session.resubscriber._spawn(asyncio.sleep(100))  # type: ignore[arg-type]  its close takes a round
    closing = asyncio.ensure_future(there.upstream.close())
    for _ in range(2):
        await asyncio.sleep(0)
    there.links[0].receiver.closed(BROKEN)
    await closing
    await there.clock.advance(10.0)
    assert len(there.links) == 1 and not len(there.pool)


@pytest.mark.parametrize("watches", [False, True])
async def test_a_server_that_a_client_has_stopped_is_there_again_for_those_who_watch_it(watches: bool) -> None:
    there = There()
    await there.call(BOB)
    if watches:
        await there.upstream.watch("file:///a", BOB)
    await there.upstream.stop(ANN)
    await there.clock.advance(60.0)
    assert there.upstream.status().state == ("ready" if watches else "stopped")
    await there.upstream.close()
