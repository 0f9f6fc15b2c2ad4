"""Values that are written anew again and again: what of them the store gets to write, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from virtualtime import FakeClock, settle

from toolgate.state.base import Subject
from toolgate.state.latest import PACE, TOGETHER, LatestValues
from toolgate.state.memory import MemoryStore


class Disk(MemoryStore):
    """Says what was asked for, in order; a write is done when the test says so."""

    def __init__(self) -> None:
        super().__init__(FakeClock())
        self.asked: list[tuple[str, bytes | None]] = []
        self.under_way: list[asyncio.Future[None]] = []

    def put(self, space: str, key: str, value: bytes, ttl: float | None = None) -> Awaitable[None]:
        return self._ask(key, value)

    def delete(self, space: str, key: str, tells: Sequence[Subject] = ()) -> Awaitable[None]:
        return self._ask(key, None)

    def _ask(self, key: str, value: bytes | None) -> Awaitable[None]:
        self.asked.append((key, value))
        self.under_way.append(asyncio.get_running_loop().create_future())
        return self.under_way[-1]

    async def go_on(self) -> None:
        for each in self.under_way:
            each.set_result(None)
        self.under_way.clear()
        await settle()


def made() -> tuple[Disk, LatestValues]:
    disk = Disk()
    return disk, LatestValues(disk, FakeClock())


async def test_while_the_disk_writes_one_only_the_latest_of_a_key_waits_and_no_other_is_packed() -> None:
    disk, values = made()
    packed: list[bytes] = []

    def pack(value: bytes) -> bytes:
        packed.append(value)
        return value

    for number in range(100):
        value = b"%d" % number
        values.put("lists", "a", 1, lambda value=value: pack(value))
        await settle()
    assert disk.asked == [("a", b"0")]
    await disk.go_on()
    await FakeClock().advance(1.0)
    assert disk.asked == [("a", b"0"), ("a", b"99")] and packed == [b"0", b"99"]
    await disk.go_on()
    await values.close()


async def test_what_is_on_its_way_at_once_is_little_and_the_next_waits_in_proportion_to_it() -> None:
    disk, values = made()
    for key in "abcd":
        values.put("lists", key, TOGETHER // 2, lambda: bytes(TOGETHER // 2))
    await settle()
    assert [key for key, _ in disk.asked] == ["a", "b"]
    await disk.go_on()
    values.put("lists", "a", 1, lambda: b"x")
    await FakeClock().advance(0.9 * TOGETHER / PACE)
    assert len(disk.asked) == 2
    await FakeClock().advance(0.2 * TOGETHER / PACE)
    assert [key for key, _ in disk.asked[2:]] == ["c", "d"], "a key that is put again is behind the others"
    await values.close()
    assert disk.asked[4:] == [("a", b"x")]


async def test_what_is_removed_stays_so_although_it_was_still_to_be_written() -> None:
    disk, values = made()
    values.put("lists", "a", 1, lambda: b"first")
    await settle()
    values.put("lists", "a", 1, lambda: b"second")
    values.delete("lists", "a")
    await disk.go_on()
    await FakeClock().advance(1.0)
    assert disk.asked == [("a", b"first"), ("a", None)]
    await disk.go_on()
    values.put("lists", "b", 1, lambda: b"third")
    values.forget()
    await values.close()
    assert len(disk.asked) == 2


async def test_at_the_end_all_that_waits_is_written_at_once() -> None:
    disk, values = made()
    for number in range(3):
        for key in "abc":
            value = b"%d" % number * TOGETHER
            values.put("lists", key, TOGETHER, lambda value=value: value)
        await settle()
    await values.close()
    assert {key: value and value[:1] for key, value in disk.asked} == {"a": b"2", "b": b"2", "c": b"2"}
    assert len(disk.asked) == 4
