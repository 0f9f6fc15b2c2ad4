"""Requests whose last bytes come together are worked on by turns, as those that come whole: not all in one round."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState
from virtualtime import FakeClock, settle

from toolgate.core import inflow
from toolgate.frontends import server
from toolgate.frontends.application import Application
from toolgate.frontends.scheduling import FRESH, MOST_ALONE

MANY = 100
HERS, HIS = "192.0.2.1", "192.0.2.2"
HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Name: %b\r\n"
SIZED, CHUNKED = (
    b"Content-Length: 5\r\n\r\nbody!",
    b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n1\r\n!\r\n0\r\n\r\n",
)


@pytest.fixture(autouse=True)
def nobody_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes together is read in one round, however slow this machine is."""
    monkeypatch.setattr(inflow, "MOMENT", 600.0)


class Reading(Application):
    """Reads the body of each request, and works for it as soon as that is whole. `begun` are the names of those."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        super().__init__(self.clock, 0)
        self.begun: list[str] = []
        self.left: list[str] = []
        self.answers = True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        name = dict(scope["headers"])[b"x-name"].decode()
        body, more = b"", True
        while more:
            part = await receive()
            if part["type"] == "http.disconnect":
                self.left.append(name)
                return
            body, more = body + part["body"], part["more_body"]
        assert body == b"body!"
        self.begun.append(name)
        while not self.answers:
            await asyncio.sleep(1)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Wire(asyncio.Transport):
    def __init__(self, app: Reading, address: str) -> None:
        super().__init__()
        self.address = address
        self.answers = 0
        self.is_over = False
        config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None)
        config.load()
        given: dict[str, Any] = {"config": config, "server_state": ServerState(), "app_state": {}}
        self.protocol = server.HttpProtocol(app, **given)
        self.protocol.connection_made(self)

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.protocol.data_received(piece)

    def leave(self) -> None:
        self.protocol.connection_lost(None)

    def write(self, data: Any) -> None:
        self.answers += data.startswith(b"HTTP/1.1 204")

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.address, 5) if name == "peername" else default

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Together:
    """Requests that wait for their last bytes, and how many were begun in each round once these have come."""

    def __init__(self) -> None:
        self.app = Reading()
        self.wires: list[Wire] = []
        self._rests: list[bytes] = []

    async def hold(self, count: int, body: bytes = SIZED, address: str = HERS, left: int = 1, name: str = "a") -> None:
        """Send so many, each but for so many bytes."""
        for number in range(count):
            wire, request = Wire(self.app, address), HEAD % b"%b%d" % (name.encode(), number) + body
            wire.send(request[:-left])
            self.wires.append(wire)
            self._rests.append(request[-left:])
            await self.app.clock.advance(FRESH)

    async def end(self) -> list[int]:
        for wire, rest in zip(self.wires, self._rests, strict=True):
            wire.send(rest)
        rounds: list[int] = []
        seen = len(self.app.begun)
        assert not seen
        for _ in range(10 * len(self.wires)):
            await asyncio.sleep(0)
            rounds.append(len(self.app.begun) - seen)
            seen = len(self.app.begun)
        await self.over()
        return rounds

    async def over(self) -> None:
        await settle()
        self.app.scheduler.close()
        for wire in self.wires:
            wire.leave()
        await settle()


@pytest.mark.promise("b.fair.turns")
@pytest.mark.parametrize(
    ("body", "left"),
    [(SIZED, 1), (SIZED, 5), (SIZED, 7), (SIZED, 20), (CHUNKED, 1), (CHUNKED, 5), (CHUNKED, 9)],
    ids=[
        *("the body's last byte", "the body", "the head's last bytes and the body", "of the head, too"),
        *("the last byte of the end", "the end", "the last chunk and the end"),
    ],
)
async def test_few_of_one_that_calls_alone_are_begun_in_a_round(body: bytes, left: int) -> None:
    together = Together()
    await together.hold(MANY, body, left=left)
    rounds = await together.end()
    assert sum(rounds) == MANY == sum(wire.answers for wire in together.wires)
    assert max(rounds) <= MOST_ALONE


@pytest.mark.promise("b.fair.turns")
@pytest.mark.parametrize("body", [SIZED, CHUNKED], ids=["sized", "chunked"])
async def test_where_two_call_one_is_begun_in_a_round_and_they_take_turns(body: bytes) -> None:
    together = Together()
    await together.hold(MANY, body)
    await together.hold(1, body, HIS, name="b")
    rounds = await together.end()
    assert sum(rounds) == MANY + 1
    assert max(rounds) == 1
    assert together.app.begun.index("b0") <= 2
    hers = [name for name in together.app.begun if name != "b0"]
    assert hers == [f"a{number}" for number in range(MANY)]


async def test_a_body_that_comes_behind_its_head_waits_for_nothing_while_its_sender_calls_alone() -> None:
    together = Together()
    await together.hold(MOST_ALONE // 2, left=5)
    rounds = await together.end()
    assert rounds[:2] == [0, MOST_ALONE // 2] or rounds[0] == MOST_ALONE // 2


async def test_those_that_wait_for_their_last_byte_keep_nobody_back_whatever_their_number() -> None:
    together = Together()
    await together.hold(MANY)
    await together.hold(1, address=HIS, name="b")
    together.wires[-1].send(b"!")
    for _ in range(5):
        await asyncio.sleep(0)
    assert together.app.begun == ["b0"]
    await together.over()


async def test_who_leaves_while_its_request_waits_for_its_turn_has_nothing_begun() -> None:
    together = Together()
    await together.hold(1, address=HIS, name="b")
    await together.hold(20)
    for wire in together.wires:
        wire.send(b"!")
    for wire in together.wires[1:]:
        wire.leave()
    await settle()
    assert together.app.begun == ["b0"]
    assert sorted(together.app.left) == sorted(f"a{number}" for number in range(20))
    await together.over()


async def test_what_waits_behind_it_on_its_connection_is_answered_after_it() -> None:
    together = Together()
    await together.hold(1, address=HIS, name="b")
    await together.hold(10)
    for wire in together.wires[1:]:
        wire.send(b"!" + HEAD % b"next" + SIZED)
    for _ in range(200):
        await asyncio.sleep(0)
    assert Counter(wire.answers for wire in together.wires) == {2: 10, 0: 1}
    assert Counter(together.app.begun)["next"] == 10
    await together.over()


async def test_when_turns_are_over_all_that_has_come_whole_is_begun() -> None:
    together = Together()
    together.app.answers = False
    await together.hold(1, address=HIS, name="b")
    await together.hold(20)
    for wire in together.wires:
        wire.send(b"!")
    assert together.app.scheduler.waiting
    together.app.scheduler.close()
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(together.app.begun) == 21
    together.app.answers = True
    await asyncio.sleep(2)
    await together.over()


async def test_of_a_connection_that_ends_before_its_request_has_its_turn_nothing_is_left_to_the_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a cycle for each a stranger filled memory: the collector seldom gets to what is older."""
    app, left = Reading(), list[weakref.ref[Any]]()
    monkeypatch.setattr(app.scheduler, "lets_pass", lambda _key: False)
    monkeypatch.setattr(app.scheduler, "_next", lambda: None)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            wire = Wire(app, HERS)
            wire.send(HEAD % b"a" + SIZED)
            left.append(weakref.ref(wire.protocol))
            assert app.scheduler.waiting == 1
            wire.leave()
            while turn := app.scheduler._queue.pop():  # it comes to nothing
                turn.run()
            del turn, wire.protocol, wire
            await asyncio.sleep(0)
        assert [each() for each in left] == [None] * 3
    finally:
        gc.enable()
        app.scheduler.close()
