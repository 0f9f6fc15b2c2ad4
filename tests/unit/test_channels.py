"""Channels and what is kept of them: ids, readers, bounds."""

from __future__ import annotations

import pytest
from virtualtime import FakeClock, settle

from toolgate.frontends import channels
from toolgate.frontends.channels import Archive, Channel, Taken, Untold


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
    assert channel.open(Archive(FakeClock()), "c") == "c1.0"
    assert await read(channel) == [("c1.1", b"one"), ("c1.2", b"two")]
    assert await channel.get(FakeClock(), 1, 1) is None


async def test_a_channel_that_cannot_stream_keeps_its_answer_only() -> None:
    channel = Channel(can_stream=False, can_ask=False)
    channel.send(b"one")
    channel.end(b"two")
    channel.end(b"three")
    assert not channel.has_items and channel.last == b"two"


async def test_a_later_reader_takes_the_turn_from_the_one_before() -> None:
    channel = opened(Archive(FakeClock()))
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
    archive = Archive(FakeClock())
    channel = opened(archive)
    for number in range(5):
        channel.send(b"%d" % number)
    assert [item.message for item in archive.after("c1", 0)] == [b"2", b"3", b"4"]
    assert [message for _, message in await read(channel)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_bytes_are_bounded_too_and_one_message_may_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MOST_BYTES", 10)
    archive = Archive(FakeClock())
    channel = opened(archive)
    channel.send(b"x" * 6)
    channel.send(b"y" * 6)
    assert [item.id for item in archive.after("c1", 0)] == ["c1.2"]
    channel.send(b"z" * 11)
    assert archive.after("c1", 0) == [] and archive._bytes == 0


async def test_a_channel_is_forgotten_when_it_is_over_and_nothing_of_it_is_kept() -> None:
    clock = FakeClock()
    archive = Archive(clock)
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


async def test_a_reader_that_is_too_slow_goes_without_notes() -> None:
    channel = opened(Archive(FakeClock()))
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
