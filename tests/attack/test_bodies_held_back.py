"""Who holds back the body of a request until its key is revoked, or is no administrator's any more, has asked for
nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import msgspec
import pytest
from doors.issuers import client
from inmemory import GREETER, Exchange, Visitor, gateway
from reader import ORIGIN, Reader
from virtualtime import FakeClock, settle

from toolgate.app import App
from toolgate.auth import keys
from toolgate.config import Config
from toolgate.state import changes
from toolgate.state.memory import MemoryStore
from toolgate.state.settings import Settings

OPS = Config(clients=(client("ops", admin=True),))
NO_ADMINISTRATOR = Config(clients=(client("ops"),))
EVIL = b'{"name":"evil","command":"/bin/sh","args":["-c","id"]}'


class Rig:
    def __init__(self, app: App, clock: FakeClock, store: MemoryStore, id: str, made: str) -> None:
        self.app, self.made = app, made
        self._clock, self._store, self._id = clock, store, id

    async def begin(self, path: str) -> Exchange:
        visitor = Visitor(self.app, path=path, authorization=f"Bearer {self.made}")
        begun = visitor.begin("POST", b"{", None)
        await settle()
        return begun

    async def expires(self) -> None:
        await self._clock.advance(100)

    async def revoke(self) -> None:
        await keys.revoke(self._store, self._id)
        await changes.tell(self._store, "keys")
        await self._clock.advance(1)
        await settle()

    async def takes_less(self, configs: list[Config]) -> None:
        """The right is taken away, and the key is good for all else."""
        configs[0] = msgspec.structs.replace(self.app.gateway.snapshot.config, clients=NO_ADMINISTRATOR.clients)
        await self.app.reload()

    @property
    def servers(self) -> list[str]:
        return [server.id for server in self.app.gateway.snapshot.config.servers]


@asynccontextmanager
async def running(lasts: float | None = None) -> AsyncGenerator[tuple[Rig, list[Config]]]:
    clock, configs = FakeClock(), [OPS]
    store = MemoryStore(clock)
    id, made = await keys.create(store, "ops", clock.wall(), lasts)
    settings = Settings(lambda: configs[0], {})
    async with gateway(GREETER, config=OPS, settings=settings, store=store, clock=clock) as app:
        app.open()
        yield Rig(app, clock, store, id, made), configs


@pytest.mark.parametrize("path", ["/admin/servers", "/admin/traffic", "/admin/links"])
async def test_a_revoked_key_administers_nothing_by_a_body_that_comes_later(path: str) -> None:
    async with running() as (rig, _):
        held = await rig.begin(path)
        await rig.revoke()
        held.more(EVIL[1:] if path == "/admin/servers" else b"}")
        assert (await held.response()).status == 401
        assert rig.servers == [GREETER.id]


async def test_who_is_no_administrator_any_more_administers_nothing_by_a_body_that_comes_later() -> None:
    async with running() as (rig, configs):
        held = await rig.begin("/admin/servers")
        await rig.takes_less(configs)
        held.more(EVIL[1:])
        refused = await held.response()
        assert refused.status == 403 and b"Only an administrator" in refused.body
        assert rig.servers == [GREETER.id]


@pytest.mark.parametrize("path", ["/mcp", "/admin/servers", "/admin/links"])
async def test_a_key_that_has_expired_is_good_for_no_request_whose_body_comes_later(path: str) -> None:
    async with running(lasts=90) as (rig, _):
        held = await rig.begin(path)
        await rig.expires()
        held.more(EVIL[1:] if path == "/admin/servers" else b'"jsonrpc":"2.0","id":1,"method":"ping"}')
        refused = await held.response()
        assert refused.status == 401 and b"no longer valid" in refused.body
        assert rig.servers == [GREETER.id]


async def test_what_a_revoked_key_has_asked_of_the_gateway_ends() -> None:
    async with running() as (rig, _):
        watching = await rig.begin("/admin/traffic")
        watching.more(b"}")
        await settle()
        assert watching.so_far.status == 200 and not watching.has_ended
        await rig.revoke()
        assert watching.has_ended


@pytest.mark.parametrize("is_revoked", [True, False])
async def test_a_form_whose_rest_comes_when_its_session_has_ended_is_not_carried_out(is_revoked: bool) -> None:
    async with running() as (rig, configs):
        reader = Reader(rig.app)
        await reader.open("/ui/login")
        await reader.press("/ui/login", key=rig.made)
        await reader.open("/ui/servers")
        form = urlencode({**reader.page.hidden, "name": "evil", "config": '{"command":"/bin/sh"}'}).encode()
        headers = {"origin": ORIGIN, "cookie": reader.cookie}
        held = reader.visitor.begin("POST", form[:5], None, path="/ui/servers", headers=headers)
        await settle()
        if is_revoked:
            await rig.revoke()
        else:
            await rig.takes_less(configs)
        held.more(form[5:])
        assert (await held.response()).status == (303 if is_revoked else 403)
        assert rig.servers == [GREETER.id]
