"""What a server sends is taken a moment at a time."""

from __future__ import annotations

import pytest
from virtualtime import settle

from toolgate.core import inflow
from toolgate.core.inflow import Inflow


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


async def test_what_takes_long_is_taken_in_order_while_nothing_more_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflow, "MOMENT", -1.0)  # each piece takes longer
    taken: list[bytes] = []
    transport, flow = Transport(), Inflow(taken.append)
    flow.put([b"a", b"b", b"c"], transport)
    assert taken == [b"a"] and transport.is_paused
    flow.put([b"d"], transport)
    assert taken == [b"a"]
    await settle()
    assert taken == [b"a", b"b", b"c", b"d"]
    assert not transport.is_paused and transport.pauses == 1


async def test_what_is_taken_at_once_pauses_nothing() -> None:
    taken: list[bytes] = []
    transport, flow = Transport(), Inflow(taken.append)
    flow.put([b"a", b"b"], transport)
    assert taken == [b"a", b"b"] and not transport.pauses and not flow.waiting


async def test_what_was_left_at_the_end_is_taken_then_or_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflow, "MOMENT", -1.0)
    for ends_well in (True, False):
        taken: list[bytes] = []
        flow = Inflow(taken.append)
        flow.put([b"a", b"b"], None)
        (flow.finish if ends_well else flow.drop)()
        assert taken == ([b"a", b"b"] if ends_well else [b"a"])
        await settle()
        assert taken == ([b"a", b"b"] if ends_well else [b"a"])
