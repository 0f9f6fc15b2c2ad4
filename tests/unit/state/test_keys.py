"""Keys of seals: the same for all gateways of one store, after a restart too, and none for ever."""

from __future__ import annotations

import asyncio

import pytest
from virtualtime import FakeClock

from toolgate.auth.seal import Broken, Seal
from toolgate.state.base import Store
from toolgate.state.keys import OPENS, SEALS, sealing_keys
from toolgate.state.memory import MemoryStore


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


async def test_an_old_key_seals_no_more_opens_for_a_while_and_is_then_gone() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    first = await sealing_keys(store, clock)
    await clock.advance(SEALS - 1)
    assert await sealing_keys(store, clock) == first
    await clock.advance(1)
    second = await sealing_keys(store, clock)
    assert (len(second), second[1:]) == (2, first)
    await clock.advance(OPENS - SEALS)
    third = await sealing_keys(store, clock)
    assert third[1:] == second[:1]


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"\x91\x92\x00\xa1x", b"\x91\x92\x00\xc4\x03abc"])
async def test_keys_that_cannot_be_read_are_made_anew(damage: bytes) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    await store.put("seal", "keys", damage)
    keys = await sealing_keys(store, clock)
    assert [len(key) for key in keys] == [32]
    assert await sealing_keys(store, clock) == keys


async def test_where_nothing_can_be_kept_there_is_a_key_all_the_same() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    await store.close()
    assert [len(key) for key in await sealing_keys(store, clock)] == [32]
