"""What an issuer says that is not understood, and one that is replaced while its keys are fetched."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from doors.issuers import ISSUER, Issuer
from virtualtime import FakeClock, settle

from toolgate.auth import issuer
from toolgate.auth.authenticator import Authenticator
from toolgate.auth.issuer import Unreachable
from toolgate.auth.refusals import Unauthorized
from toolgate.auth.safe_net import Fetched
from toolgate.config import Auth, Config, KnownClient
from toolgate.state.memory import MemoryStore

METADATA = json.dumps({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}).encode()


class Outside:
    """Answers with this metadata and these keys; the latter when the gate is opened."""

    def __init__(self, metadata: bytes, keys: bytes = b"{}") -> None:
        self._metadata, self.keys = metadata, keys
        self.looks = 0
        self.gate = asyncio.Event()

    async def fetch(self, url: str, *_: Any, **__: Any) -> Fetched:
        if "well-known" in url:
            return Fetched(200, {}, self._metadata, url)
        self.looks += 1
        await self.gate.wait()
        return Fetched(200, {}, self.keys, url)


@pytest.mark.parametrize(
    ("metadata", "keys"),
    [
        (METADATA[:-1] + b', "x": "\xe9"}', b"{}"),
        (METADATA, b'{"keys": [], "x": "\xe9"}'),
        (METADATA.replace(f"{ISSUER}/keys".encode(), b"https://["), b"{}"),
    ],
    ids=["metadata", "keys", "address"],
)
async def test_what_is_not_understood_is_as_if_it_had_not_answered(metadata: bytes, keys: bytes) -> None:
    outside = Outside(metadata, keys)
    outside.gate.set()
    asked = issuer.Issuer(ISSUER, outside, FakeClock())  # type: ignore[arg-type]
    with pytest.raises(Unreachable):
        await asked.keys("k")


def fetching() -> tuple[issuer.Issuer, Outside]:
    """One whose keys come when the gate is opened."""
    outside = Outside(METADATA, json.dumps({"keys": Issuer().keys}).encode())
    return issuer.Issuer(ISSUER, outside, FakeClock()), outside  # type: ignore[arg-type]


async def test_who_comes_while_keys_are_fetched_waits_for_them_whoever_leaves() -> None:
    asked, outside = fetching()
    first, *others = [asyncio.ensure_future(asked.keys("r1")) for _ in range(10)]
    await settle()
    first.cancel()
    outside.gate.set()
    assert [[key.id for key in await each] for each in others] == [["r1"]] * 9
    assert first.cancelled() and outside.looks == 1


async def test_a_new_key_is_waited_for_and_one_that_is_there_is_not() -> None:
    asked, outside = fetching()
    outside.gate.set()
    assert await asked.keys("r1")
    outside.gate.clear()
    outside.keys = json.dumps({"keys": [each | {"kid": "new"} for each in Issuer().keys[:1]]}).encode()
    await asyncio.sleep(issuer.PAUSE)
    waiting = [asyncio.ensure_future(asked.keys("new")) for _ in range(5)]
    await settle()
    assert await asked.keys("r1")
    outside.gate.set()
    assert all([await each for each in waiting]) and outside.looks == 2


async def test_of_one_address_and_of_all_only_so_many_wait_for_keys() -> None:
    asked, outside = fetching()
    addresses = ["192.0.2.1"] * 200 + ["192.0.2.2"] * 30 + ["192.0.2.3"] * 60
    waiting = [asyncio.ensure_future(asked.keys("r1", address)) for address in addresses]
    await settle()
    outside.gate.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    let_in = [address for address, each in zip(addresses, found, strict=True) if not isinstance(each, Unreachable)]
    assert [let_in.count(f"192.0.2.{each}") for each in (1, 2, 3)] == [64, 30, 34]
    assert outside.looks == 1 and not asked._waiting  # pyright: ignore[reportPrivateUsage]


async def test_a_token_whose_keys_come_when_its_issuer_was_replaced_lets_nobody_in() -> None:
    signs, clock = Issuer(), FakeClock()

    def configured(name: str) -> Config:
        known = KnownClient(id="ci", name="ci", claims={"sub": "mallory"})
        return Config(clients=(known,), auth=Auth(issuer=name, audience="https://gateway.example"))

    authenticator = Authenticator(configured(ISSUER), MemoryStore(clock), clock)
    outside = Outside(METADATA, json.dumps({"keys": signs.keys}).encode())
    assert authenticator._tokens  # pyright: ignore[reportPrivateUsage]
    authenticator._tokens.issuer._outside = outside  # type: ignore[assignment]
    token = signs.token(aud="https://gateway.example/mcp", sub="mallory", exp=clock.wall() + 3600, iat=clock.wall())
    entering = asyncio.ensure_future(authenticator({"authorization": f"Bearer {token}"}, "192.0.2.1", "/mcp"))
    await settle()
    authenticator.prepared(configured("https://new.example"))()
    outside.gate.set()
    with pytest.raises(Unauthorized, match="the issuer was replaced"):
        await entering
