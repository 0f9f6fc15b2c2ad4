"""Channels and what is kept of them: ids, readers, bounds."""

from __future__ import annotations

import pytest
from virtualtime import FakeClock, settle

from toolgate.core.model import Principal
from toolgate.frontends import channels
from toolgate.frontends.channels import Channel, ReplayBuffer, ReplayBuffers, Rights, Taken


def opened(replay_buffer: ReplayBuffer, kind: channels.Kind = "c") -> Channel:
    channel = Channel(can_stream=True, can_ask=True)
    channel.open(replay_buffer, kind)
    return channel


async def read(channel: Channel, turn: int = 1) -> list[tuple[str, bytes]]:
    """All that there is now."""
    found: list[tuple[str, bytes]] = []
    while channel.has_items and (item := await channel.get(FakeClock(), 1, turn)):
        found.append((item.id, item.message))
    return found


async def test_what_was_said_before_the_opening_gets_its_ids_then() -> None:
    channel = Channel(can_stream=True, can_ask=True)
    channel.send(b"one")
    channel.end(b"two")
    assert channel.open(ReplayBuffers(FakeClock()).open("ann"), "c") == "c1.0"
    assert await read(channel) == [("c1.1", b"one"), ("c1.2", b"two")]
    assert await channel.get(FakeClock(), 1, 1) is None


async def test_a_channel_that_cannot_stream_keeps_its_answer_only() -> None:
    channel = Channel(can_stream=False, can_ask=False)
    channel.send(b"one")
    channel.end(b"two")
    channel.end(b"three")
    assert not channel.has_items and channel.last == b"two"


async def test_a_later_reader_takes_the_turn_from_the_one_before() -> None:
    channel = opened(ReplayBuffers(FakeClock()).open("ann"))
    channel.send(b"one")
    turn = channel.take(0)
    with pytest.raises(Taken):
        await channel.get(FakeClock(), 1, 1)
    channel.leave(1)
    channel.send(b"two")
    assert await read(channel, turn) == [("c1.1", b"one"), ("c1.2", b"two")]
    with pytest.raises(TimeoutError):
        await channel.get(FakeClock(), 1, turn)


async def test_beyond_the_bounds_the_oldest_goes_but_not_for_the_reader_that_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "MOST_EVENTS", 3)
    replay_buffer = ReplayBuffers(FakeClock()).open("ann")
    channel = opened(replay_buffer)
    for number in range(5):
        channel.send(b"%d" % number)
    assert [item.message for item in replay_buffer.after("c1", 0)] == [b"2", b"3", b"4"]
    assert [message for _, message in await read(channel)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_bytes_are_bounded_too_and_one_message_may_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MOST_BYTES", channels.CHANNEL + channels.EVENT + 10)
    replay_buffer = ReplayBuffers(FakeClock()).open("ann")
    channel = opened(replay_buffer)
    channel.send(b"x" * 6)
    channel.send(b"y" * 6)
    assert [item.id for item in replay_buffer.after("c1", 0)] == ["c1.2"]
    channel.send(b"z" * 11)
    assert replay_buffer.after("c1", 0) == [] and replay_buffer.bytes == channels.CHANNEL


async def test_a_channel_is_forgotten_when_it_is_over_and_nothing_of_it_is_kept() -> None:
    clock = FakeClock()
    replay_buffer = ReplayBuffers(clock).open("ann")
    call, own = opened(replay_buffer), opened(replay_buffer, "s")
    call.send(b"one")
    call.leave(1)
    own.leave(1)
    assert replay_buffer.find("s2.0", Rights()) is None and replay_buffer.find("c1.0", Rights()) == (call, 0)
    await clock.sleep(channels.KEPT_FOR + 1)
    replay_buffer.expire()
    assert replay_buffer.find("c1.1", Rights()) == (call, 1), "its answer is still to come"
    call.end(b"two")
    assert replay_buffer.find("c1.1", Rights()) == (call, 1)
    await clock.sleep(channels.KEPT_FOR + 1)
    replay_buffer.expire()
    assert replay_buffer.find("c1.1", Rights()) is None and not replay_buffer._channels


@pytest.mark.promise("b.memory.streams")
async def test_what_all_sessions_keep_together_is_bounded_and_the_largest_loses_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "MOST_TOGETHER", 200_000)
    replay_buffers = ReplayBuffers(FakeClock())
    small, large = replay_buffers.open("ann"), replay_buffers.open("ann")
    opened(small).send(b"kept")
    said = opened(large)
    for _ in range(1000):
        said.note(b"x" * 1000)
        assert replay_buffers.bytes <= 200_000
    assert [item.message for item in small.after("c1", 0)] == [b"kept"]
    assert large.after("c1", 0)
    for replay_buffer in (small, large):
        replay_buffer.close()
    assert replay_buffers.bytes == 0


@pytest.mark.promise("b.memory.streams")
async def test_many_small_streams_count_with_what_keeping_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MOST_TOGETHER", 200_000)
    replay_buffers = ReplayBuffers(FakeClock())
    replay_buffer = replay_buffers.open("ann")
    for _ in range(1000):
        channel = opened(replay_buffer)
        channel.end(b"1")
        channel.leave(1)
    assert len(replay_buffer._channels) <= 200_000 // (channels.CHANNEL + channels.EVENT)


@pytest.mark.promise("b.memory.streams")
async def test_a_stream_whose_end_was_sent_is_kept_for_a_moment_only() -> None:
    clock = FakeClock()
    replay_buffer = ReplayBuffers(clock).open("ann")
    whole, broken = opened(replay_buffer), opened(replay_buffer)
    for channel in (whole, broken):
        channel.end(b"one")
    whole.carried(1)
    whole.leave(1)
    broken.leave(1)
    replay_buffer.expire()
    assert replay_buffer.find("c1.1", Rights()) and replay_buffer.find("c2.1", Rights())
    await clock.sleep(channels.CARRIED_FOR + 1)
    replay_buffer.expire()
    assert not replay_buffer.find("c1.1", Rights()) and replay_buffer.find("c2.1", Rights())
    assert [item.message for item in replay_buffer.after("c2", 0)] == [b"one"]


async def test_a_stream_that_is_over_holds_nothing_of_its_request() -> None:
    channel = Channel(can_stream=True, can_ask=True, headers={"x-large": "x" * 1000})
    channel.open(ReplayBuffers(FakeClock()).open("ann"), "c")
    channel.failed(ValueError())
    channel.end(b"one")
    channel.leave(1)
    assert not channel.headers and not channel.error and not channel.last


async def test_a_reader_that_is_too_slow_goes_without_notes() -> None:
    channel = opened(ReplayBuffers(FakeClock()).open("ann"))
    for _ in range(5):
        channel.note(b"x" * channels.NOTES_KEPT)
    assert len(await read(channel)) == 1


async def test_what_nobody_could_be_told_is_bounded_and_told_once() -> None:
    untold = ReplayBuffers(FakeClock()).pending("ann")
    for number in range(channels.MOST_PENDING_EVENTS + 10):
        untold.add(b"%d" % number, Principal())
        untold.add(b"%d" % number, Principal())
    assert len(untold.take(Principal())) == channels.MOST_PENDING_EVENTS and untold.take(Principal()) == []
    untold.add(b"x" * (channels.NOTES_KEPT + 1), Principal())
    assert untold.take(Principal()) == []
    await settle()
