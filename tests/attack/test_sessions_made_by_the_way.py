"""One client begins a session with each request, and has as many of these hang as there is room for, so that those of
others end: their calls at work, and the sessions that they are about to use."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from inmemory import Exchange, Scripted, Visitor, gateway, said, tools
from virtualtime import settle

from toolgate.app import App
from toolgate.config import Config, Sessions
from toolgate.core.model import Principal
from toolgate.frontends.guards import Headers

ROOM = 20
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"docs__t"}}'


async def identify(headers: Headers, address: str, path: str) -> Principal:
    return Principal(headers.get("authorization", "nobody"), address)


@asynccontextmanager
async def hanging(**more: object) -> AsyncGenerator[tuple[App, Scripted]]:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    config = Config(sessions=Sessions(max=10 * ROOM))
    async with gateway(scripts={"docs": script}, config=config, **{"identify": identify, **more}) as app:
        yield app, script


async def begun(visitor: Visitor, body: bytes = CALL) -> Exchange:
    exchange = visitor.begin("POST", body)
    await settle()
    return exchange


@pytest.mark.parametrize("body", [CALL, b"[" + CALL + b"]"], ids=["a call", "a batch"])
async def test_calls_at_work_without_a_session_go_on_whatever_another_client_begins(body: bytes) -> None:
    async with hanging() as (app, script):
        bob, mallory = Visitor(app, authorization="bob"), Visitor(app, authorization="mallory")
        his = await begun(bob)
        at_work = script.requests[-1]["id"]
        hers = [await begun(mallory, body) for _ in range(2 * ROOM)]
        assert len(app.sessions) == ROOM and not his.work.done()
        script._answer(at_work, said("done"))
        assert (await his.response()).result == said("done")
        assert sum(not each.work.done() for each in hers) == ROOM - 1
        for each in hers:
            await each.gone()


async def test_a_session_without_a_handshake_is_there_for_its_second_request() -> None:
    async with hanging() as (app, _):
        bob, mallory = Visitor(app, authorization="bob"), Visitor(app, authorization="mallory")
        await bob.ask("ping")
        hers = [await begun(mallory) for _ in range(2 * ROOM)]
        assert (await bob.post(bob.request("ping"))).status == 200
        for each in hers:
            await each.gone()


async def test_without_keys_it_is_by_address() -> None:
    async with hanging(identify=None) as (app, _):
        bob, mallory = Visitor(app), Visitor(app)
        bob.client, mallory.client = ("203.0.113.7", 5), ("198.51.100.9", 5)
        his = await begun(bob)
        hers = [await begun(mallory) for _ in range(2 * ROOM)]
        assert not his.work.done()
        for each in (his, *hers):
            await each.gone()


async def test_what_became_a_session_of_its_own_counts_as_one_made_by_the_way_no_more() -> None:
    async with hanging() as (app, _):
        mallory, bob = Visitor(app, authorization="mallory"), Visitor(app, authorization="bob")
        used = [Visitor(app, authorization="mallory") for _ in range(ROOM)]
        for each in used:
            await each.ask("ping")
            await each.ask("ping")
        his = [await begun(bob) for _ in range(ROOM)]
        hers = await begun(mallory)
        assert [each.work.done() for each in his] == [True, *[False] * (ROOM - 1)]
        assert not hers.work.done()  # of those made by the way it is bob who has most
        for each in (*his, hers):
            await each.gone()
