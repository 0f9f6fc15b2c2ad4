"""The gateway's own rules, where no conversation reaches them."""

from __future__ import annotations

import asyncio

import pytest
from virtualtime import settle

from toolgate.app import running
from toolgate.config import Config, Server
from toolgate.core.fault import Fault
from toolgate.core.model import Asker, Call, Client, Resumption
from toolgate.upstreams.mcp.upstream import McpUpstream


async def test_answers_for_one_server_do_not_reach_another_that_has_taken_its_name() -> None:
    async with running(Config(servers=(Server(id="greeter", name="greeter", type="registry"),))) as app:
        route = app.gateway.snapshot.routes["/mcp"]
        call = Call(
            "tools/call", "greet", Client(), resumption=Resumption(Asker("upstream", "gone"), {}, state="secret")
        )
        with pytest.raises(Fault) as caught:
            await app.gateway.handle(call, route)
        assert (caught.value.code, caught.value.reach) == ("INVALID_STATE", "not_sent")


async def test_a_session_that_ends_is_left_at_all_servers_also_where_its_end_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = tuple(Server(id=id, name=id, type="stdio", command="x") for id in ("one", "two"))
    async with running(Config(servers=servers)) as app:
        left, goes_on = set[str](), asyncio.Event()

        async def leave(upstream: McpUpstream, _client: Client) -> None:
            await goes_on.wait()
            left.add(upstream.id)

        monkeypatch.setattr(McpUpstream, "leave", leave)
        leaving = asyncio.ensure_future(app.gateway.leave(Client()))
        await settle()
        leaving.cancel()
        await settle()
        goes_on.set()
        await settle()
        assert left == {"one", "two"}
