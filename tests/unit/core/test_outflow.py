"""What is written to many connections in one round of the event loop, and goes out at its end."""

from __future__ import annotations

import asyncio
from typing import Any

from toolgate.core.inflow import Intake, IntakeQueue, SharedTransport
from toolgate.core.outflow import MOST, SHORT, Outflow


class Transport:
    """Writes down what happens to it."""

    def __init__(self) -> None:
        self.said: list[bytes] = []
        self.is_over = False

    def is_closing(self) -> bool:
        return self.is_over

    def write(self, data: bytes) -> None:
        self.said.append(data)

    def close(self) -> None:
        self.is_over = True
        self.said.append(b"(closed)")


def shared(outflow: Outflow) -> tuple[SharedTransport, list[bytes]]:
    transport: Any = Transport()
    intake = Intake(lambda data: None, transport, 1024, IntakeQueue(), lambda: "them")
    return SharedTransport(transport, intake, outflow), transport.said


async def round_over() -> None:
    await asyncio.sleep(0)


async def test_short_messages_of_a_round_go_out_at_its_end() -> None:
    outflow = Outflow()
    (one, of_one), (other, of_other) = shared(outflow), shared(outflow)
    one.write_soon(b"a")
    other.write_soon(b"b")
    assert not of_one and not of_other
    await round_over()
    assert (of_one, of_other) == ([b"a"], [b"b"])
    one.write_soon(b"c")
    await round_over()
    assert of_one == [b"a", b"c"]


async def test_many_do_not_wait_for_the_end_of_the_round() -> None:
    outflow = Outflow()
    there = [shared(outflow) for _ in range(MOST + 1)]
    for transport, _ in there:
        transport.write_soon(b"a")
    assert [len(said) for _, said in there] == [1] * MOST + [0]
    await round_over()
    assert [len(said) for _, said in there] == [1] * (MOST + 1)


class Late:
    """Says that something waits before it has put it there."""

    def __init__(self, outflow: Outflow) -> None:
        self.said: list[bytes] = []
        self._unsent = b""
        self._outflow = outflow

    def write_soon(self, data: bytes) -> None:
        self._outflow.put(self)
        self._unsent += data

    def flush(self) -> None:
        unsent, self._unsent = self._unsent, b""
        self.said.append(unsent)


async def test_nothing_is_left_of_what_is_put_there_after_it_was_announced() -> None:
    outflow = Outflow()
    there = [Late(outflow) for _ in range(4 * MOST)]
    for each in there:
        each.write_soon(b"a")
    await round_over()
    assert [each.said for each in there] == [[b"a"]] * (4 * MOST)


async def test_nothing_overtakes_what_waits() -> None:
    transport, said = shared(Outflow())
    transport.write_soon(b"a")
    transport.write(b"b")
    assert said == [b"a", b"b"]
    transport.write_soon(b"c")
    transport.write_soon(b"d")
    transport.write_soon(b"e")
    await round_over()
    assert b"".join(said) == b"abcde"


async def test_what_is_long_does_not_wait() -> None:
    transport, said = shared(Outflow())
    transport.write_soon(bytes(SHORT + 1))
    assert said == [bytes(SHORT + 1)]


async def test_what_waits_goes_before_the_end_of_its_connection() -> None:
    transport, said = shared(Outflow())
    transport.write_soon(b"a")
    transport.close()
    await round_over()
    assert said == [b"a", b"(closed)"]


async def test_whoever_has_left_is_written_nothing() -> None:
    outflow = Outflow()
    (gone, of_gone), (there, of_there) = shared(outflow), shared(outflow)
    gone.write_soon(b"a")
    there.write_soon(b"b")
    gone._transport.is_over = True
    await round_over()
    assert (of_gone, of_there) == ([], [b"b"])
