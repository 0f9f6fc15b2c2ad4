"""Keys of seals: the same for all gateways of one store, after a restart too, and none for ever."""

from __future__ import annotations

import asyncio

import pytest
from virtualtime import FakeClock

from toolgate.auth.seal import Broken, Seal
from toolgate.state.base import NotKept, Store
from toolgate.state.keys import OPENS, ROUND, SEALS, sealing_keys
from toolgate.state.memory import MemoryStore
from toolgate.state.read_only import ReadOnly


class Calendar(FakeClock):
    """A clock on which months pass in which nobody does anything."""

    passed = 0.0

    def wall(self) -> float:
        return super().wall() + self.passed


async def seal(store: Store, clock: FakeClock) -> Seal:
    return Seal("tests", await sealing_keys(store, clock))


async def test_what_was_sealed_opens_after_a_restart_and_elsewhere_not() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    sealed = (await seal(store, clock)).seal("value")
    assert (await seal(store, clock)).unseal(sealed, str) == "value"
    with pytest.raises(Broken):
        (await seal(MemoryStore(clock), clock)).unseal(sealed, str)


async def test_gateways_that_start_at_once_have_the_same_keys() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    keys = await asyncio.gather(*(sealing_keys(store, clock) for _ in range(10)))
    assert len({tuple(each) for each in keys}) == 1
    assert [len(key) for key in keys[0]] == [32]


async def test_who_keeps_none_makes_none_and_has_those_that_others_have_made() -> None:
    clock = Calendar()
    store = MemoryStore(clock)
    owner = await sealing_keys(store, clock)
    worker = await sealing_keys(ReadOnly(store), clock, makes=False)
    clock.passed += SEALS
    await worker.renew()
    assert list(worker) == list(owner) and len(owner) == 1
    await owner.renew()
    await worker.renew()
    assert list(worker) == list(owner) and len(owner) == 2


async def test_an_old_key_seals_no_more_opens_for_a_while_and_is_then_gone() -> None:
    clock = Calendar()
    store = MemoryStore(clock)
    first = list(await sealing_keys(store, clock))
    clock.passed += SEALS - 1
    assert list(await sealing_keys(store, clock)) == first
    clock.passed += 1
    second = list(await sealing_keys(store, clock))
    assert (len(second), second[1:]) == (2, first)
    clock.passed += OPENS - 1
    assert list(await sealing_keys(store, clock))[1:] == second
    clock.passed += 1
    assert list(await sealing_keys(store, clock))[1:] == second[:1]


async def test_a_key_opens_what_it_sealed_last_as_long_as_one_that_was_made_then() -> None:
    clock = Calendar()
    store = MemoryStore(clock)
    running = await seal(store, clock)
    clock.passed += 10 * OPENS  # in which nobody has looked at the keys
    sealed = running.seal("value")
    assert (await seal(store, clock)).unseal(sealed, str) == "value"


async def test_a_gateway_that_runs_opens_what_is_sealed_with_a_newer_key_and_seals_with_it() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    running = await seal(store, clock)
    old = running.stable("value")
    await clock.advance(SEALS)
    another = await seal(store, clock)
    assert running.unseal(another.seal("value"), str) == "value"
    assert running.stable("value") == another.stable("value") != old
    assert running.unseal(old, str) == "value"


async def test_a_gateway_that_runs_alone_makes_the_next_key_when_its_time_has_come() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    keys = await sealing_keys(store, clock)
    following = asyncio.ensure_future(keys.follow())
    await clock.advance(SEALS - ROUND)
    assert len(keys) == 1
    await clock.advance(2 * ROUND)
    assert len(keys) == 2
    assert list(await sealing_keys(store, clock)) == list(keys)
    following.cancel()


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"\x91\x92\x00\xa1x", b"\x91\x92\x00\xc4\x03abc"])
async def test_keys_that_cannot_be_read_are_made_anew(damage: bytes) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    await store.put("seal", "keys", damage)
    keys = await sealing_keys(store, clock)
    assert [len(key) for key in keys] == [32]
    assert list(await sealing_keys(store, clock)) == list(keys)


async def test_where_nothing_can_be_kept_there_is_a_key_all_the_same() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    await store.close()
    assert [len(key) for key in await sealing_keys(store, clock)] == [32]


async def test_a_key_that_could_not_be_kept_is_kept_as_soon_as_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object) -> bool:
        raise NotKept("disk is full")

    clock = FakeClock()
    store = MemoryStore(clock)
    with monkeypatch.context() as patched:
        patched.setattr(store, "compare_and_set", full)
        keys = await sealing_keys(store, clock)
    sealed = Seal("tests", keys).seal("value")
    await keys.renew()
    assert (await seal(store, clock)).unseal(sealed, str) == "value"


async def test_a_worker_makes_no_key_that_others_do_not_have() -> None:
    clock = Calendar()
    store = MemoryStore(clock)
    owner = await sealing_keys(store, clock)
    clock.passed += SEALS
    worker = await sealing_keys(ReadOnly(store), clock)
    assert list(worker) == list(owner)
    await owner.renew()
    await worker.renew()
    assert len(worker) == 2 and list(worker) == list(owner)
