"""A server that floods the gateway by many connections, or children, takes no more of a round than by one: what another
server says is heard between."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from attack.test_floods_over_websockets import TEXT, Peer
from attack.test_servers_that_never_end import Connection, Heard, nowhere
from virtualtime import FakeClock, settle

from toolgate.config import Server
from toolgate.core import inflow
from toolgate.core.clock import SystemClock
from toolgate.core.inflow import IntakeQueue
from toolgate.upstreams import kinds
from toolgate.upstreams.links import LinkDeps, http1, stdio
from toolgate.upstreams.links.base import Receiver
from toolgate.upstreams.links.http1 import ConnectionPool, Target
from toolgate.upstreams.links.places import Places
from toolgate.upstreams.links.stdio import StdioLink
from toolgate.upstreams.pool import Pool
from toolgate.upstreams.process.supervisor import Supervisor

MANY = 50  # connections of the server that floods
SAID = b'{"jsonrpc":"2.0","method":"x"}\n'


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece takes longer than a slice, and than what is left for small ones."""
    monkeypatch.setattr(inflow, "MOMENT", 1e-9)
    monkeypatch.setattr(inflow, "SLICE", -1.0)


class Taken:
    """Whose pieces were taken, in order."""

    def __init__(self) -> None:
        self.servers: list[str] = []

    def of(self, server: str) -> Receiver:
        def received(data: bytes, origin: int | None) -> None:
            self.servers.append(server)

        heard = Heard().receiver
        return Receiver("", lambda id: "", received, heard.awaits, heard.failed, heard.retired, heard.closed)


def reader(taken: list[str], server: str) -> Any:
    """Whoever reads what comes by HTTP."""

    class Reply:
        def head(self, status: int, headers: dict[bytes, bytes]) -> None: ...

        def body(self, chunk: bytes) -> None:
            taken.append(server)

    return Reply()


def by_http(turns: IntakeQueue, server: str, taken: Taken) -> Callable[[int], None]:
    connection = Connection(
        ConnectionPool(Target("http://localhost/"), FakeClock(), nowhere, turns, Places(FakeClock()), server, 60.0)
    )
    connection.wire.send(b"", b"", reader(taken.servers, server))
    connection.wire.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
    return lambda pieces: connection.wire.data_received(b"\n" * http1.PIECE * pieces)


def by_stdio(turns: IntakeQueue, server: str, taken: Taken) -> Callable[[int], None]:
    config = Server(id=server, name=server, type="stdio", command=sys.executable)
    link = StdioLink(config, taken.of(server), SystemClock(), turns)
    line = SAID.rjust(stdio.PIECE)
    return lambda pieces: link._output(line * pieces)


def by_websocket(turns: IntakeQueue, server: str, taken: Taken) -> Callable[[int], None]:
    peer = Peer(turns, server)
    take = peer.connection.intake._take
    peer.connection.intake._take = lambda piece: (taken.servers.append(server), take(piece))[1]
    return lambda pieces: peer.connection.data_received(b"\x8a\x00" * (512 * pieces))


WAYS = {"http": by_http, "stdio": by_stdio, "websocket": by_websocket}


@pytest.mark.parametrize("pieces", [1, 30], ids=["small reads", "large reads"])
@pytest.mark.parametrize("calm", WAYS)
@pytest.mark.parametrize("wild", WAYS)
async def test_a_server_of_many_connections_has_the_turns_of_one(wild: str, calm: str, pieces: int) -> None:
    turns, taken = IntakeQueue(), Taken()
    floods = [WAYS[wild](turns, "wild", taken) for _ in range(MANY)]
    says = WAYS[calm](turns, "calm", taken)
    await settle()
    taken.servers.clear()
    for flood in floods:
        flood(pieces)
    assert len(taken.servers) <= 2  # and not one for each connection
    before = len(taken.servers)
    says(3)
    while taken.servers.count("calm") < 3:
        await asyncio.sleep(0)
    assert len(taken.servers) - before <= 8
    await settle()
    assert taken.servers.count("wild") == MANY * pieces


@pytest.mark.parametrize("way", WAYS)
async def test_connections_that_break_are_taken_to_their_ends_in_turns(way: str) -> None:
    turns, taken, ended = IntakeQueue(), Taken(), list[int]()
    peers: list[Any] = []
    for number in range(MANY):
        if way == "http":
            pool = ConnectionPool(
                Target("http://localhost/"), FakeClock(), nowhere, turns, Places(FakeClock()), "wild", 60.0
            )
            peer = Connection(pool).wire
            reply = reader(taken.servers, "wild")
            reply.complete = lambda number=number: ended.append(number)
            peer.send(b"", b"", reply)
            peer.data_received(b"HTTP/1.1 200 OK\r\n\r\n" + b"\n" * http1.PIECE * 5)
            peers.append(lambda peer=peer: peer.connection_lost(None))
        elif way == "stdio":
            receiver = taken.of("wild")
            closed = Receiver(
                *(
                    getattr(receiver, name)
                    for name in ("principal", "whose", "received", "awaits", "failed", "retired")
                ),
                lambda fault, number=number: ended.append(number),
            )
            link = StdioLink(Server(id="wild", name="wild", type="stdio", command="x"), closed, SystemClock(), turns)
            link._output(SAID.rjust(stdio.PIECE) * 5)
            peers.append(lambda link=link: link._exited("exited with status 1"))
        else:
            peer = Peer(turns, "wild")
            take = peer.connection.intake._take
            peer.connection.intake._take = lambda piece, take=take: (taken.servers.append("wild"), take(piece))[1]
            peer.connection.data_received(b"\x8a\x00" * (512 * 5))
            waiter = peer.connection.connection_lost_waiter
            waiter.add_done_callback(lambda _, number=number: ended.append(number))
            peers.append(lambda peer=peer: peer.connection.connection_lost(None))
    before = len(taken.servers)
    for end in peers:
        end()
    assert len(taken.servers) - before <= 1 and not ended
    await settle()
    assert sorted(ended) == [*range(MANY)] and taken.servers.count("wild") >= MANY * 5


@pytest.mark.parametrize("type", ["http", "stdio", "component"])
async def test_all_links_of_a_gateway_have_the_same_turns(type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    link_deps = LinkDeps(clock, Supervisor(clock, {}), Pool(clock))
    found: list[IntakeQueue] = []
    made = inflow.Intake.__init__

    def noted(intake: Any, take: Any, transport: Any, piece: int, turns: IntakeQueue, whose: Any) -> None:
        made(intake, take, transport, piece, turns, whose)
        found.append(turns)
        assert whose() == "there"

    monkeypatch.setattr(inflow.Intake, "__init__", noted)

    async def connect(pool: ConnectionPool, whose: str) -> Any:
        return Connection(pool).wire

    monkeypatch.setattr(ConnectionPool, "_connected", connect)
    server = Server(id="there", name="There", type=type, command="/no/such" if type == "stdio" else "", url="http://x/")
    upstream = kinds.upstream_of(server, link_deps, lambda event: None)
    opening = asyncio.ensure_future(upstream.open())
    await settle()
    assert found and all(turns is link_deps.turns for turns in found)
    opening.cancel()
    await upstream.close()


async def test_a_message_that_is_too_long_for_a_websocket_is_read_no_further() -> None:
    peer = Peer()
    peer.connection.data_received(TEXT + b"\x81\x7f" + (64 * 1024 * 1024).to_bytes(8) + b"x" * 1_000_000)
    assert peer.is_aborted and not peer.connection.intake.is_busy
