"""Several gateways on one store renew a grant one after the other: real processes on one SQLite file, and an authority
that takes everything back when what renews a grant is shown to it twice (RFC 9700 4.14)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from attack import renewing
from authority import Answer
from processes.ground import WAIT, real, until
from processes.scripted_http import Request, ScriptedServer, serving
from unit.auth.test_oauth import Rig

from toolgate.auth.oauth.base import Grant, Refusal, Registration
from toolgate.auth.oauth.vault import LEASE, LEASES, GrantVault
from toolgate.core.clock import SystemClock
from toolgate.core.fault import Fault
from toolgate.core.redaction import Redactor
from toolgate.state.memory import MemoryStore
from toolgate.state.sqlite import SqliteStore

LONG = "20"  # seconds of a lease: more than any renewal takes here


class Strict(ScriptedServer):
    """An authorization server. `answers` is set as soon as it may answer requests for tokens."""

    def __init__(self) -> None:
        super().__init__(self._answered)
        self.answers = asyncio.Event()
        self.asked: list[str] = []  # what renews, as it was shown
        self.good = "refresh-0"
        self.tokens: list[str] = []
        self.was_shown_twice = False
        self.lost = 0  # requests that are never answered, the first ones

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _answered(self, request: Request) -> None: ...

    async def _respond(self, request: Request) -> None:
        path = request.path.partition("?")[0]
        if path == "/token":
            await self._renew(request)
        elif path.startswith("/.well-known/oauth-authorization-server"):
            told = {"issuer": self.url, "token_endpoint": f"{self.url}/token"}
            request.whole(json.dumps(told).encode())
        else:
            request.whole(b"{}", "404 Not Found")

    async def _renew(self, request: Request) -> None:
        shown = dict(part.split("=") for part in request.body.decode().split("&"))["refresh_token"]
        self.asked.append(shown)
        number = len(self.asked)
        await self.answers.wait()
        if number <= self.lost:
            return
        if shown != self.good:
            self.was_shown_twice = True
            self.good, self.tokens = "", []
            request.whole(b'{"error":"invalid_grant"}', "400 Bad Request")
            return
        self.good = f"refresh-{number}"
        self.tokens = [f"token-{number}"]
        given = {"access_token": self.tokens[0], "token_type": "Bearer", "refresh_token": self.good, "expires_in": 1}
        request.whole(json.dumps(given).encode())


class Gateway:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def said(self) -> str:
        assert self.process.stdout
        async with asyncio.timeout(WAIT):
            return (await self.process.stdout.readline()).decode().strip()

    def ask(self) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"\n")


@asynccontextmanager
async def gateway(folder: Path, url: str, lease: str) -> AsyncIterator[Gateway]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(renewing.__file__), str(folder), f"{url}/mcp", lease),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        found = Gateway(process)
        assert await found.said() == "ready"
        yield found
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def gateways(folder: Path, number: int, lease: str = LONG) -> AsyncIterator[tuple[Strict, list[Gateway]]]:
    """An authority, and gateways of one store with a grant in it that is near its end."""
    async with serving(Strict()) as authority, AsyncExitStack() as stack:
        await granted(folder, authority.url)
        yield authority, [await stack.enter_async_context(gateway(folder, authority.url, lease)) for _ in range(number)]


async def granted(folder: Path, issuer: str) -> None:
    clock = SystemClock()
    store = SqliteStore(folder, clock)
    client = Registration(issuer, "client", is_own=True)
    grant = Grant("ann", "docs", f"{issuer}/mcp", issuer, f"{issuer}/mcp", client, "token-0", "refresh-0")
    await GrantVault(store, [renewing.KEY], clock, Redactor()).keep(
        msgspec.structs.replace(grant, expires=clock.wall())
    )
    await store.close()


@pytest.mark.promise("b.attacks.renewals")
@pytest.mark.parametrize("number", [2, 3])
@real
async def test_gateways_that_want_the_same_grant_at_once_have_it_renewed_once(number: int, tmp_path: Path) -> None:
    async with gateways(tmp_path, number) as (authority, several):
        for each in several:
            each.ask()
        await until(lambda: authority.asked)
        authority.answers.set()
        said = [await each.said() for each in several]
        assert not authority.was_shown_twice
        assert authority.tokens and said[-1].startswith("Bearer token-")
        assert f"Bearer {authority.tokens[0]}" in said, "the last that was granted is in use"
        # Each was granted after the one before, and none by what was shown already.
        assert authority.asked == [f"refresh-{count}" for count in range(len(authority.asked))]


@pytest.mark.attack
@real
async def test_again_and_again(tmp_path: Path) -> None:
    """What they are given is near its end at once, so that each round renews."""
    async with gateways(tmp_path, 3) as (authority, several):
        authority.answers.set()
        for _ in range(20):
            for each in several:
                each.ask()
            said = [await each.said() for each in several]
            assert all(each.startswith("Bearer token-") for each in said)
        assert not authority.was_shown_twice and len(set(authority.asked)) == len(authority.asked)


@pytest.mark.promise("b.attacks.renewals")
@real
async def test_a_lease_ends_by_itself_when_its_holder_has_died(tmp_path: Path) -> None:
    async with gateways(tmp_path, 2, lease="1") as (authority, (dies, lives)):
        dies.ask()
        await until(lambda: authority.asked)
        dies.process.kill()
        await dies.process.wait()
        authority.lost = 1
        lives.ask()
        await until(lambda: len(authority.asked) == 2)
        authority.answers.set()
        assert await lives.said() == "Bearer token-2"


# In virtual time.


def two(store: MemoryStore | None = None) -> tuple[Rig, Rig]:
    one = Rig(store=store)
    return one, Rig(one.authority, store=one.store)


async def test_who_waits_for_a_gateway_that_never_ends_says_so_in_time() -> None:
    one, other = two()
    first = await one.sign_in()
    began = one.oauth.clock.now()
    assert await one.oauth.vault.lease(one.grant(), b"another")
    (key,) = one.store.items(LEASES)
    await one.store.put(LEASES, key, b"another")  # for ever
    with pytest.raises(Fault, match="another gateway is still renewing"):
        await other.credential.refused(Refusal(401, "Bearer", first))
    assert one.oauth.clock.now() - began < 4 * LEASE


async def test_a_gateway_to_which_the_authority_says_no_gives_its_lease_back() -> None:
    one, other = two()
    first = await one.sign_in()
    before = one.authority.answer

    def busy(method: str, url: str, headers: Any, body: bytes) -> Answer:
        return (503, {}) if url.endswith("/token") else before(method, url, headers, body)

    one.authority.answer = busy  # type: ignore[method-assign]
    with pytest.raises(Fault, match="HTTP 503"):
        await one.credential.refused(Refusal(401, "Bearer", first))
    one.authority.answer = before  # type: ignore[method-assign]
    began = one.oauth.clock.now()
    assert await other.credential.refused(Refusal(401, "Bearer", first)) != first
    assert one.oauth.clock.now() == began


async def test_a_store_that_keeps_nothing_holds_nobody_up() -> None:
    one, _ = two()
    first = await one.sign_in()
    await one.store.close()
    assert await one.credential.refused(Refusal(401, "Bearer", first)) != first
