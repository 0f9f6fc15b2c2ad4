"""One client fills what is kept of streams that broke, so that what others would have resumed is gone."""

from __future__ import annotations

from random import Random

import pytest
from virtualtime import FakeClock

from toolgate.frontends import channels
from toolgate.frontends.channels import Channel, ReplayBuffer, ReplayBuffers


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MOST_TOGETHER", 200_000)
    monkeypatch.setattr(channels, "MOST_BYTES", 50_000)


def broken(replay_buffer: ReplayBuffer, size: int, count: int = 1) -> list[str]:
    """Streams with an answer each that did not arrive: their names."""
    found: list[Channel] = []
    for _ in range(count):
        channel = Channel(can_stream=True, can_ask=True)
        channel.open(replay_buffer, "c")
        channel.end(b"x" * size)
        channel.leave(1)
        found.append(channel)
    return [channel.name for channel in found]


def kept(replay_buffer: ReplayBuffer, names: list[str]) -> int:
    return sum(bool(replay_buffer.after(name, 0)) for name in names)


@pytest.mark.promise("b.memory.streams")
@pytest.mark.parametrize(("sessions", "size"), [(1000, 100), (200, 3_000), (20, 48_000), (8, 300_000)])
async def test_many_sessions_of_one_client_push_out_nothing_of_anothers_one(sessions: int, size: int) -> None:
    together = ReplayBuffers(FakeClock())
    anns = together.open("ann")
    names = broken(anns, 40_000)
    for _ in range(sessions):
        broken(together.open("mallory"), size)
        assert together.bytes <= 200_000
    assert kept(anns, names) == 1


@pytest.mark.promise("b.memory.streams")
async def test_who_has_most_gives_way_and_of_its_sessions_the_largest() -> None:
    together = ReplayBuffers(FakeClock())
    anns, small, large = together.open("ann"), together.open("mallory"), together.open("mallory")
    for_ann, few = broken(anns, 1_000, 10), broken(small, 1_000, 5)
    many = broken(large, 1_000, 20)
    for _ in range(10):
        broken(together.open("bob"), 12_000)
        assert together.bytes <= 200_000
    assert kept(anns, for_ann) == 10 and kept(small, few) == 5 and kept(large, many) == 20
    hers = [(buffer, broken(buffer, 1_000, 20)) for buffer in (together.open("mallory") for _ in range(4))]
    assert kept(anns, for_ann) == 10 and kept(small, few) == 5
    assert kept(large, many) + sum(kept(buffer, names) for buffer, names in hers) < 100


@pytest.mark.promise("b.memory.streams")
async def test_streams_that_go_on_take_room_from_nobody_who_is_within_a_share() -> None:
    together = ReplayBuffers(FakeClock())
    anns = together.open("ann")
    names = broken(anns, 40_000)
    for _ in range(20):
        buffer = together.open("mallory")
        for _ in range(30):
            Channel(can_stream=True, can_ask=True).open(buffer, "c")  # nothing was said on it yet
    assert kept(anns, names) == 1


@pytest.mark.parametrize("seed", range(10))
async def test_whoever_keeps_how_much_nobody_loses_within_a_share(seed: int) -> None:
    random, together = Random(seed), ReplayBuffers(FakeClock())
    buffers = [together.open(whose) for whose in ["ann", "bob", "cid", *["mallory"] * 6]]
    for _ in range(400):
        before = {whose: sum(each.bytes for each in buffers if each.whose == whose) for whose in ("ann", "bob", "cid")}
        buffer = random.choice(buffers)
        broken(buffer, random.randrange(12_000))
        assert together.bytes == sum(each.bytes for each in buffers) <= 200_000
        for whose, bytes in before.items():
            after = sum(each.bytes for each in buffers if each.whose == whose)
            assert after >= bytes or bytes > 200_000 // 4 or buffer.whose == whose
        if random.random() < 0.05:
            buffer.close()
            buffers[buffers.index(buffer)] = together.open(buffer.whose)
    for buffer in buffers:
        buffer.close()
    assert together.bytes == 0 and not together._of and not together._bytes
