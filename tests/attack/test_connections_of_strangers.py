"""Connections that bring no admitted request, from as many addresses as there are, take nobody's place."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from processes.ground import gateway, real, settings

from toolgate.auth.refusals import Unauthorized
from toolgate.core.addresses import counted
from toolgate.core.model import Principal
from toolgate.frontends import connections

FILES = 16
PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_files", lambda: FILES)


async def by_key(headers: Mapping[str, str], *_: Any) -> Principal:
    if "authorization" not in headers:
        raise Unauthorized("Unauthorized", "Bearer")
    return Principal(headers["authorization"], client=headers["authorization"])


class Crowd:
    """Connections to one gateway, which are closed at the end."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: list[asyncio.StreamWriter] = []

    async def come(self, address: str = "127.0.0.1") -> Stream:
        """One that has begun a request and sends no more."""
        found = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(address, 0))
        self._open.append(found[1])
        found[1].write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")
        return found

    async def let_in(self, name: str, address: str = "127.0.0.1") -> Stream:
        stream = await self.come(address)
        assert await is_answered(stream, name)
        return stream

    def leave(self) -> None:
        for each in self._open:
            each.close()


async def is_answered(stream: Stream, name: str, begin: bytes = b"") -> bool:
    reader, writer = stream
    head = b"Authorization: %s\r\nContent-Type: application/json\r\n" % name.encode()
    writer.write(b"%b%bContent-Length: %d\r\n\r\n%b" % (begin, head, len(PING), PING))
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        return b" 200 " in await reader.readuntil(b"\r\n") and bool(await reader.readuntil(b"}"))
    return False


async def again(stream: Stream, name: str) -> bool:
    """Whether one that was answered is so still."""
    return await is_answered(stream, name, b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")


async def is_closed(stream: Stream) -> bool:
    with contextlib.suppress(ConnectionError):
        return await stream[0].read() == b""
    return True


@asynccontextmanager
async def crowd() -> AsyncIterator[Crowd]:
    async with gateway(settings(), identify=by_key) as served:
        found = Crowd(served.port)
        try:
            yield found
        finally:
            found.leave()


@pytest.mark.promise("b.attacks.connections")
@real
async def test_one_address_has_a_share_of_the_connections_only() -> None:
    async with crowd() as all:
        first = await all.come()
        for _ in range(FILES // 2):
            last = await all.come()
        assert await is_closed(first)
        assert await is_answered(last, "bob")


@real
async def test_all_addresses_of_this_machine_are_one() -> None:
    async with crowd() as all:
        bob = await all.let_in("bob")
        held = [await all.come(f"127.0.{each}.1") for each in range(3 * FILES)]
        assert await is_closed(held[0]) and await is_closed(held[2 * FILES])
        assert await again(bob, "bob")
        assert await is_answered(await all.come(), "eve")


@real
async def test_who_comes_takes_the_place_of_who_has_shown_nothing_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many addresses as there are connections."""
    monkeypatch.setattr("toolgate.core.model.counted", lambda address: address)
    async with crowd() as all:
        let_in = [await all.let_in("bob"), await all.let_in("eve")]
        held = [await all.come(f"127.0.{each}.1") for each in range(3 * FILES)]
        assert await is_closed(held[0])
        assert all_open(held) <= FILES * 3 // 4
        assert await is_answered(await all.come(), "cid")
        for stream, name in zip(let_in, ("bob", "eve"), strict=True):
            assert await again(stream, name)


def all_open(held: list[Stream]) -> int:
    return sum(not reader.at_eof() and reader.exception() is None for reader, _ in held)


@real
async def test_many_of_one_address_cost_no_other_address_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.core.model.counted", lambda address: address)
    async with crowd() as all:
        early = await all.come("127.0.9.1")  # whose head takes a while
        for each in range(8 * FILES):
            await all.come(f"127.0.0.{each % 2 + 1}")
        assert await is_answered(early, "bob")


@real
async def test_who_was_let_in_has_half_by_its_principal_and_leaves_the_rest_to_others() -> None:
    async with crowd() as all:
        eve = [await all.let_in("eve") for _ in range(FILES // 2)]
        assert not await is_answered(await all.come(), "eve")
        bob = await all.let_in("bob")
        for _ in range(2 * FILES):
            await all.come()
        assert await again(bob, "bob")
        assert await again(eve[0], "eve")


@pytest.mark.parametrize(
    ("address", "as_"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.255.3.4", "127.0.0.1"),
        ("::1", "127.0.0.1"),
        ("::ffff:127.0.0.9", "127.0.0.1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_which_address_counts(address: str, as_: str) -> None:
    assert counted(address) == as_
    assert Principal(address=address).counted_as == f"local@{as_}"
