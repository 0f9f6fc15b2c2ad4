"""What a server sends is taken a moment at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from virtualtime import settle

from toolgate.core import inflow
from toolgate.core.inflow import Intake, IntakeQueue


class Transport:
    def __init__(self) -> None:
        self.is_paused = False
        self.pauses = 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True
        self.pauses += 1

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False


def alone(take: Callable[[bytes], object], transport: Transport | None = None, piece: int = 1) -> Intake:
    return Intake(take, transport, piece, IntakeQueue(), lambda: "them")


async def test_what_takes_long_is_taken_in_order_while_nothing_more_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflow, "MOMENT", -1.0)  # each piece takes longer
    taken: list[bytes] = []
    transport = Transport()
    intake = alone(taken.append, transport)
    intake.put(b"abc")
    assert taken == [b"a"] and transport.is_paused
    intake.put(b"d")
    assert taken == [b"a"]
    await settle()
    assert taken == [b"a", b"b", b"c", b"d"]
    assert not transport.is_paused and transport.pauses == 1


async def test_what_is_taken_at_once_pauses_nothing() -> None:
    taken: list[bytes] = []
    transport = Transport()
    intake = alone(taken.append, transport)
    intake.put(b"ab")
    assert taken == [b"a", b"b"] and not transport.pauses and not intake.is_busy


async def test_what_was_left_at_the_end_is_taken_then_or_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflow, "MOMENT", -1.0)
    for ends_well in (True, False):
        taken: list[bytes] = []
        intake = alone(taken.append)
        intake.put(b"ab")
        ended: list[list[bytes]] = []
        intake.hold("a writer")
        intake.finish(lambda: ended.append([*taken]))
        intake.hold("another")
        assert taken == [b"a"] and not ended
        if not ends_well:
            intake.drop()
        await settle()
        assert taken == ([b"a", b"b"] if ends_well else [b"a"])
        assert ended == [taken]


async def test_the_end_of_what_has_been_taken_is_at_once() -> None:
    ended: list[str] = []
    alone(lambda piece: None).finish(lambda: ended.append("at once"))
    assert ended == ["at once"]


async def test_small_reads_of_many_connections_share_a_moment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflow, "MOMENT", 1e-9)
    monkeypatch.setattr(inflow, "SLICE", -1.0)
    taken: list[str] = []
    turns = IntakeQueue()

    def of(whose: str) -> Intake:
        return Intake(lambda piece: taken.append(whose), Transport(), 8, turns, lambda: whose)

    for _ in range(100):
        of("eve").put(b"e")
    assert len(taken) <= 2
    of("bob").put(b"b")
    assert "bob" not in taken
    await settle()
    assert taken.index("bob") <= 4 and len(taken) == 101


async def test_nothing_is_taken_while_anybody_holds_it() -> None:
    taken: list[bytes] = []
    transport = Transport()
    intake = alone(taken.append, transport)
    intake.hold("a reader")
    intake.hold("a writer")
    intake.put(b"ab")
    intake.let_go("a reader")
    intake.let_go("nobody")
    assert not taken and transport.is_paused
    intake.let_go("a writer")
    assert taken == [b"a", b"b"] and not transport.is_paused and transport.pauses == 1


async def test_a_piece_that_fails_does_not_end_the_taking() -> None:
    taken: list[bytes] = []

    def take(piece: bytes) -> None:
        if piece == b"a":
            raise ValueError(piece)
        taken.append(piece)

    transport = Transport()
    intake = alone(take, transport)
    with pytest.raises(ValueError):
        intake.put(b"abc")
    assert transport.is_paused
    await settle()
    assert taken == [b"b", b"c"] and not transport.is_paused


async def test_of_many_reads_of_one_connection_in_a_round_two_are_taken_at_most() -> None:
    """A transport reads on while it is not paused."""
    taken: list[bytes] = []
    transport = Transport()
    intake = alone(taken.append, transport, 2)
    reads = 0
    while not transport.is_paused:
        intake.put(b"abcd")
        reads += 1
        assert reads < 32
    assert reads == 2 and len(taken) == 2
    await settle()
    assert len(taken) == 4 and not transport.is_paused


async def test_connections_that_share_a_moment_take_turns_by_whose_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflow, "SLICE", -1.0)  # a piece at a time
    taken: list[bytes] = []
    turns = IntakeQueue()
    many = [Intake(taken.append, Transport(), 1, turns, lambda: "eve") for _ in range(50)]
    for each in many:
        each.put(b"ee" * 50)
    before = len(taken)
    Intake(taken.append, Transport(), 1, turns, lambda: "bob").put(b"bb")
    await settle()
    assert taken.index(b"b", before) - before <= 2
    assert len(taken) == 50 * 100 + 2
