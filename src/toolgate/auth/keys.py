"""Keys that `toolgate keys` makes: `tg_ID_SECRET`, good for one configured client.

The rules this file keeps: a key is shown once, and kept as its hash; what its hash is compared with takes the same time
whether it fits or not; a key that is gone, or whose time is over, is no key; and of each change those who listen hear,
whenever its process ends.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence

import msgspec

from toolgate.config import KnownClient
from toolgate.state.base import UNREAD, NotKept, Store, Subject

SPACE = "keys"
PREFIX = "tg_"
LONGEST = 512  # characters that are looked at
_TELLS: Sequence[Subject] = ("keys",)
HASHED = "sha256:"


class Record(msgspec.Struct, frozen=True):
    """What is kept of a key. Times in seconds since 1970; `expires` None: it does not. `succeeded_by` is the id of the
    key that was made in its place."""

    client: str
    hash: str
    made: float
    expires: float | None = None
    succeeded_by: str = ""

    def is_good(self, now: float) -> bool:
        return self.expires is None or now < self.expires


class Found(msgspec.Struct, frozen=True):
    """A key that fits: whose it is, `credential` to know it again by, and until when it is good."""

    client: str
    credential: str
    expires: float | None = None


def hashed(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def records(store: Store) -> dict[str, Record]:
    """By id. One that cannot be read is no key. Raises `NotKept` where none can: that is not the same as that there is
    none."""
    kept = store.items(SPACE)
    if kept is UNREAD:
        raise NotKept(store.problem)
    return {id: record for id, value in kept.items() if (record := _decoded(value))}


def owners(store: Store) -> dict[str, str]:
    """The client of each key, by the key's id. Raises `NotKept`."""
    return {id: record.client for id, record in records(store).items()}


def _decoded(value: bytes | None) -> Record | None:
    try:
        return msgspec.msgpack.decode(value or b"", type=Record)
    except (msgspec.DecodeError, ValueError):
        return None


async def create(store: Store, client: str, now: float, lasts: float | None = None) -> tuple[str, str]:
    """A new key: its id, and the key itself, which nobody sees again. Raises `NotKept`."""
    id = secrets.token_hex(5)
    key = f"{PREFIX}{id}_{secrets.token_urlsafe(32)}"
    record = Record(client, hashed(key), now, None if lasts is None else now + lasts)
    if not await store.compare_and_set(SPACE, id, None, msgspec.msgpack.encode(record), tells=_TELLS):
        raise NotKept(f"key {id} already exists")
    return id, key


async def revoke(store: Store, id: str) -> Record | None:
    """The key that is no more; None: there was none."""
    kept = store.get(SPACE, id)
    if kept is None:
        return None
    await store.delete(SPACE, id, _TELLS)
    return _decoded(kept) or Record("", "", 0.0)


async def rotate(store: Store, id: str, now: float, grace: float, lasts: float | None = None) -> tuple[str, str] | None:
    """A key in the place of another, which is good for `grace` seconds more, if it was to be; None: there is no such
    key. Raises `NotKept`."""
    kept = store.get(SPACE, id)
    old = _decoded(kept)
    if not old or not old.is_good(now):
        return None
    new, key = await create(store, old.client, now, lasts)
    ends = min(now + grace, now + grace if old.expires is None else old.expires)
    succeeded = msgspec.structs.replace(old, expires=ends, succeeded_by=new)
    value = msgspec.msgpack.encode(succeeded) if grace else None
    if not await store.compare_and_set(SPACE, id, kept, value, tells=_TELLS):
        await store.delete(SPACE, new, _TELLS)
        return None
    return new, key


class Ring:
    """All keys that are good at one time: those of the configuration, and those of the store."""

    def __init__(self, clients: Sequence[KnownClient], made: Mapping[str, Record]) -> None:
        self.made = made
        hashes = {_hash_of(client.key): client.id for client in clients if client.key}
        self.configured = {hash: Found(id, f"key:{HASHED}{hash}") for hash, id in hashes.items()}

    def find(self, key: str, now: float) -> Found | None:
        """Whose key this is."""
        if len(key) > LONGEST:
            return None
        hash = hashed(key)
        if found := self.configured.get(hash):  # by a hash: the time it takes tells nothing of the key
            return found
        id = _id_of(key)
        record = self.made.get(id)
        fits = hmac.compare_digest(record.hash if record else _NOBODYS, hash)
        if not record or not fits or not record.is_good(now):
            return None
        return Found(record.client, f"key:{id}", record.expires)

    def next_end(self, now: float) -> float | None:
        """When the first of those that are good now ends."""
        ends = [record.expires for record in self.made.values() if record.expires is not None]
        return min((each for each in ends if each > now), default=None)

    def is_behind(self, key: str, store: Store) -> bool:
        """Whether a key of this id was made since. Strangers may ask it as often as they like: it costs one point."""
        id = _id_of(key)
        return bool(_made_id.fullmatch(id)) and id not in self.made and _decoded(store.get(SPACE, id)) is not None

    def has(self, credential: str, client: str, now: float) -> bool:
        """Whether what was found once would be found now, for the same client."""
        name = credential.removeprefix("key:")
        if name.startswith(HASHED):
            found = self.configured.get(name.removeprefix(HASHED))
            return found is not None and found.client == client
        record = self.made.get(name)
        return record is not None and record.client == client and record.is_good(now)


_NOBODYS = "0" * 64


_made_id = re.compile(r"[0-9a-f]{10}")  # as `create` makes them


def _id_of(key: str) -> str:
    return key.removeprefix(PREFIX).partition("_")[0]


def _hash_of(written: str) -> str:
    return written.removeprefix(HASHED) if written.startswith(HASHED) else hashed(written)
