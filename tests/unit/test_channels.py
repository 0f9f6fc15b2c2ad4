"""Channels and what is kept of them: ids, readers, bounds."""

from __future__ import annotations

import pytest
from virtualtime import FakeClock, settle

from toolgate.frontends import channels
from toolgate.frontends.channels import Archive, Archives, Channel, Taken, Untold


def opened(archive: Archive, kind: channels.Kind = "c") -> Channel:
    channel = Channel(can_stream=True, can_ask=True)
    channel.open(archive, kind)
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
    assert channel.open(Archives(FakeClock()).open(), "c") == "c1.0"
    assert await read(channel) == [("c1.1", b"one"), ("c1.2", b"two")]
    assert await channel.get(FakeClock(), 1, 1) is None


async def test_a_channel_that_cannot_stream_keeps_its_answer_only() -> None:
    channel = Channel(can_stream=False, can_ask=False)
    channel.send(b"one")
    channel.end(b"two")
    channel.end(b"three")
    assert not channel.has_items and channel.last == b"two"


async def test_a_later_reader_takes_the_turn_from_the_one_before() -> None:
    channel = opened(Archives(FakeClock()).open())
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
    archive = Archives(FakeClock()).open()
    channel = opened(archive)
    for number in range(5):
        channel.send(b"%d" % number)
    assert [item.message for item in archive.after("c1", 0)] == [b"2", b"3", b"4"]
    assert [message for _, message in await read(channel)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_bytes_are_bounded_too_and_one_message_may_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MOST_BYTES", channels.CHANNEL + channels.EVENT + 10)
    archive = Archives(FakeClock()).open()
    channel = opened(archive)
    channel.send(b"x" * 6)
    channel.send(b"y" * 6)
    assert [item.id for item in archive.after("c1", 0)] == ["c1.2"]
    channel.send(b"z" * 11)
    assert archive.after("c1", 0) == [] and archive.bytes == channels.CHANNEL


async def test_a_channel_is_forgotten_when_it_is_over_and_nothing_of_it_is_kept() -> None:
    clock = FakeClock()
    archive = Archives(clock).open()
    call, own = opened(archive), opened(archive, "s")
    call.send(b"one")
    call.leave(1)
    own.leave(1)
    assert archive.find("s2.0") is None and archive.find("c1.0") == (call, 0)
    await clock.sleep(channels.KEPT_FOR + 1)
    archive.expire()
    assert archive.find("c1.1") == (call, 1), "its answer is still to come"
    call.end(b"two")
    assert archive.find("c1.1") == (call, 1)
    await clock.sleep(channels.KEPT_FOR + 1)
    archive.expire()
    assert archive.find("c1.1") is None and not archive._channels


@pytest.mark.promise("b.memory.streams")
async def test_what_all_sessions_keep_together_is_bounded_and_the_largest_loses_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "MOST_TOGETHER", 200_000)
    archives = Archives(FakeClock())
    small, large = archives.open(), archives.open()
    opened(small).send(b"kept")
    said = opened(large)
    for _ in range(1000):
        said.note(b"x" * 1000)
        assert archives.bytes <= 200_000
    assert [item.message for item in small.after("c1", 0)] == [b"kept"]
    assert large.after("c1", 0)
    for archive in (small, large):
        archive.close()
    assert archives.bytes == 0


@pytest.mark.promise("b.memory.streams")
async def test_many_small_streams_count_with_what_keeping_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MOST_TOGETHER", 200_000)
    archives = Archives(FakeClock())
    archive = archives.open()
    for _ in range(1000):
        channel = opened(archive)
        channel.end(b"1")
        channel.leave(1)
    assert len(archive._channels) <= 200_000 // (channels.CHANNEL + channels.EVENT)


@pytest.mark.promise("b.memory.streams")
async def test_a_stream_whose_end_was_sent_is_kept_for_a_moment_only() -> None:
    clock = FakeClock()
    archive = Archives(clock).open()
    whole, broken = opened(archive), opened(archive)
    for channel in (whole, broken):
        channel.end(b"one")
    whole.carried(1)
    whole.leave(1)
    broken.leave(1)
    archive.expire()
    assert archive.find("c1.1") and archive.find("c2.1")
    await clock.sleep(channels.CARRIED_FOR + 1)
    archive.expire()
    assert not archive.find("c1.1") and archive.find("c2.1")
    assert [item.message for item in archive.after("c2", 0)] == [b"one"]


async def test_a_stream_that_is_over_holds_nothing_of_its_request() -> None:
    channel = Channel(can_stream=True, can_ask=True, headers={"x-large": "x" * 1000})
    channel.open(Archives(FakeClock()).open(), "c")
    channel.failed(ValueError())
    channel.end(b"one")
    channel.leave(1)
    assert not channel.headers and not channel.error and not channel.last


async def test_a_reader_that_is_too_slow_goes_without_notes() -> None:
    channel = opened(Archives(FakeClock()).open())
    for _ in range(5):
        channel.note(b"x" * channels.NOTES_KEPT)
    assert len(await read(channel)) == 1


async def test_what_nobody_could_be_told_is_bounded_and_told_once() -> None:
    untold = Untold()
    for number in range(channels.MOST_UNTOLD + 10):
        untold.add(b"%d" % number)
        untold.add(b"%d" % number)
    assert len(untold.take()) == channels.MOST_UNTOLD and untold.take() == []
    untold.add(b"x" * (channels.NOTES_KEPT + 1))
    assert untold.take() == []
    await settle()
