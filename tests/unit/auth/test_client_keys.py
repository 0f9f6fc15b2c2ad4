"""Keys that clients show: how long one is good, who takes its place, and what is no key. What doors make of them is in
`tests/doors/test_who_comes_in.py`."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest
from virtualtime import FakeClock

from toolgate.auth import keys
from toolgate.auth.keys import Found, Record, Ring
from toolgate.config import KnownClient
from toolgate.state.base import NEWS, NotKept
from toolgate.state.memory import MemoryStore

NOW = 1_800_000_000.0
KEY = "ann-has-a-key-of-24-chars"


def store() -> MemoryStore:
    return MemoryStore(FakeClock())


def ring(there: MemoryStore, *clients: KnownClient) -> Ring:
    return Ring(clients, keys.records(there))


def client(id: str, key: str = "") -> KnownClient:
    return KnownClient(id=id, name=id, key=key)


async def test_a_new_key_is_its_clients_and_is_kept_as_a_hash() -> None:
    there = store()
    id, key = await keys.create(there, "ci", NOW)
    assert re.fullmatch(rf"tg_{id}_[\w-]{{43}}", key) and re.fullmatch("[0-9a-f]{10}", id)
    assert keys.records(there) == {id: Record("ci", hashlib.sha256(key.encode()).hexdigest(), NOW, None, "")}
    assert keys.owners(there) == {id: "ci"}
    assert ring(there).find(key, NOW) == Found("ci", f"key:{id}", None)
    assert key.encode() not in there.items("keys")[id]


async def test_a_key_that_lasts_a_while_is_good_until_then_and_not_at_that_moment() -> None:
    there = store()
    id, key = await keys.create(there, "ci", NOW, lasts=60)
    found = ring(there)
    assert found.find(key, NOW + 59.9) == Found("ci", f"key:{id}", NOW + 60)
    assert found.find(key, NOW + 60) is None
    assert found.has(f"key:{id}", "ci", NOW + 59.9) and not found.has(f"key:{id}", "ci", NOW + 60)


async def test_a_key_never_takes_the_place_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    there = store()
    monkeypatch.setattr(secrets, "token_hex", lambda size: "a1" * size)
    id, key = await keys.create(there, "ci", NOW)
    with pytest.raises(NotKept, match=f"^key {id} already exists$"):
        await keys.create(there, "other", NOW)
    assert ring(there).find(key, NOW) == Found("ci", f"key:{id}")


async def test_a_key_that_is_revoked_is_gone_and_told_once() -> None:
    there = store()
    id, key = await keys.create(there, "ci", NOW)
    gone = await keys.revoke(there, id)
    assert gone and gone.client == "ci"
    assert await keys.revoke(there, id) is None
    assert ring(there).find(key, NOW) is None and not keys.records(there)


async def test_whoever_listens_hears_of_each_change_of_a_key_though_its_process_ends_right_then() -> None:
    there = store()
    seen: set[bytes] = set()
    old, _ = await keys.create(there, "ci", NOW)
    seen.add(there.items(NEWS)["keys"])
    rotated = await keys.rotate(there, old, NOW, grace=60)
    seen.add(there.items(NEWS)["keys"])
    assert rotated and await keys.revoke(there, rotated[0])
    seen.add(there.items(NEWS)["keys"])
    assert len(seen) == 3


@pytest.mark.parametrize("kept", [b"", b"\xc1", b"no record", msgspec.msgpack.encode(["ci"])])
async def test_what_cannot_be_read_is_no_key_and_can_be_revoked(kept: bytes) -> None:
    there = store()
    await there.put("keys", "a1", kept)
    assert keys.records(there) == {}
    assert await keys.rotate(there, "a1", NOW, 60) is None
    assert await keys.revoke(there, "a1") == Record("", "", 0.0)
    assert not there.items("keys")


async def test_the_key_before_is_good_for_its_grace_and_says_what_has_taken_its_place() -> None:
    there = store()
    old, old_key = await keys.create(there, "ci", NOW)
    rotated = await keys.rotate(there, old, NOW + 10, grace=60, lasts=3600)
    assert rotated
    new, new_key = rotated
    found = ring(there)
    assert keys.records(there)[old].succeeded_by == new and keys.records(there)[new].made == NOW + 10
    assert found.find(old_key, NOW + 69) == Found("ci", f"key:{old}", NOW + 70)
    assert found.find(old_key, NOW + 70) is None
    assert found.find(new_key, NOW + 70) == Found("ci", f"key:{new}", NOW + 3610)


async def test_no_grace_makes_a_key_good_for_longer() -> None:
    there = store()
    old, _ = await keys.create(there, "ci", NOW, lasts=30)
    assert await keys.rotate(there, old, NOW, grace=60)
    assert keys.records(there)[old].expires == NOW + 30


async def test_without_a_grace_the_key_before_is_gone_at_once() -> None:
    there = store()
    old, old_key = await keys.create(there, "ci", NOW)
    rotated = await keys.rotate(there, old, NOW, grace=0)
    assert rotated and list(keys.records(there)) == [rotated[0]]
    assert ring(there).find(old_key, NOW) is None
    assert ring(there).find(rotated[1], NOW) == Found("ci", f"key:{rotated[0]}")


async def test_a_key_that_is_not_there_or_whose_time_is_over_has_no_successor() -> None:
    there = store()
    old, _ = await keys.create(there, "ci", NOW, lasts=60)
    assert await keys.rotate(there, "another", NOW, 60) is None
    assert await keys.rotate(there, old, NOW + 60, 60) is None
    assert list(keys.records(there)) == [old]


async def test_a_key_that_is_revoked_while_it_is_rotated_has_no_successor_either() -> None:
    class Meanwhile(MemoryStore):
        """Somebody revokes the key as soon as the new one is made."""

        def compare_and_set(self, space: str, key: str, *more: Any, **most: Any) -> Awaitable[bool]:
            done = super().compare_and_set(space, key, *more, **most)
            self.delete("keys", old)
            return done

    there = Meanwhile(FakeClock())
    old = ""
    old, _ = await keys.create(there, "ci", NOW)
    assert await keys.rotate(there, old, NOW, 60) is None
    assert keys.records(there) == {}


async def test_a_configured_key_is_its_clients_in_clear_or_as_a_hash() -> None:
    hashed = hashlib.sha256(KEY.encode()).hexdigest()
    for written in (KEY, f"sha256:{hashed}"):
        found = ring(store(), client("ann", written), client("bob"))
        assert found.find(KEY, NOW) == Found("ann", f"key:sha256:{hashed}", None)
        assert found.find(f"sha256:{hashed}", NOW) is None
        assert found.find("", NOW) is None
        assert found.has(f"key:sha256:{hashed}", "ann", NOW)
        assert not found.has(f"key:sha256:{hashed}", "bob", NOW)
        assert not found.has(f"key:{hashed}", "ann", NOW)


async def test_a_key_of_512_characters_is_looked_at_and_a_longer_one_is_not() -> None:
    found = ring(store(), client("ann", "k" * 512), client("bob", "k" * 513))
    assert found.find("k" * 512, NOW) == Found("ann", f"key:sha256:{keys.hashed('k' * 512)}")
    assert found.find("k" * 513, NOW) is None


async def test_the_id_of_a_key_alone_or_with_another_secret_is_no_key() -> None:
    there = store()
    id, key = await keys.create(there, "ci", NOW)
    _, other = await keys.create(there, "ci", NOW)
    found = ring(there)
    shown = [id, f"tg_{id}", f"tg_{id}_", f"tg_{id}_{other.rpartition('_')[2]}", key[3:], key + "x", key.upper()]
    assert [found.find(each, NOW) for each in shown] == [None] * len(shown)
    assert found.find("0" * 64, NOW) is None  # nobody's hash


async def test_what_was_found_once_is_found_for_its_own_client_alone_and_while_it_is_there() -> None:
    there = store()
    id, _ = await keys.create(there, "ci", NOW)
    found = ring(there)
    assert found.has(f"key:{id}", "ci", NOW)
    assert not found.has(f"key:{id}", "other", NOW)
    assert not found.has("key:another", "ci", NOW)
    await keys.revoke(there, id)
    assert not ring(there).has(f"key:{id}", "ci", NOW)


async def test_what_an_older_version_has_kept_is_good() -> None:
    there = store()
    await there.put("keys", "a1", msgspec.msgpack.encode({"client": "ci", "hash": keys.hashed("tg_a1_x"), "made": NOW}))
    assert ring(there).find("tg_a1_x", NOW) == Found("ci", "key:a1", None)


def test_a_key_is_hashed_by_what_it_is_of() -> None:
    assert keys.hashed("ä") == hashlib.sha256("ä".encode()).hexdigest()
