"""The gateway's own rules, where no conversation reaches them."""

from __future__ import annotations

import pytest

from toolgate.app import running
from toolgate.config import Config, Server
from toolgate.core.fault import Fault
from toolgate.core.model import Asker, Call, Client, Resumption


async def test_answers_for_one_server_do_not_reach_another_that_has_taken_its_name() -> None:
    async with running(Config(servers=(Server(id="greeter", name="greeter", type="registry"),))) as app:
        route = app.gateway.snapshot.routes["/mcp"]
        call = Call(
            "tools/call", "greet", Client(), resumption=Resumption(Asker("upstream", "gone"), {}, state="secret")
        )
        with pytest.raises(Fault) as caught:
            await app.gateway.handle(call, route)
        assert (caught.value.code, caught.value.reach) == ("INVALID_STATE", "not_sent")
