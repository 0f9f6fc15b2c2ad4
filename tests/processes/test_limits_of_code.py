"""Limits, approval and cancelling where code makes the calls: as for calls that a client makes itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from inmemory import Scripted, gateway, said, tools
from processes.ground import real

from toolgate.config import Config, Limits
from toolgate.config.access import Concurrency, KnownClient, Permissions, Rate, Rates

sys.path.insert(0, str(Path(__file__).parents[1] / "behaviour"))

from processes.test_code_that_calls_tools import as_ann, real_code, run
from stage import Asker


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


def shop() -> Scripted:
    return Scripted(tools_list=tools("buy"), tools_call=said("bought"))


def calls(script: Scripted) -> int:
    return sum(each["method"] == "tools/call" for each in script.requests)


@real
async def test_a_client_with_one_call_at_once_runs_code_whose_calls_follow_each_other(era: str) -> None:
    config = Config(limits=Limits(concurrency=Concurrency(principal=1)))
    script = shop()
    async with gateway(config=config, scripts={"shop": script}, **real_code()) as app:
        code = "const first = await servers.shop.buy({}); return [first, await servers.shop.buy({})]"
        assert await run(Asker(app, era), code) == ('["bought","bought"]', False)


@real
async def test_calls_of_code_are_charged_one_by_one(era: str) -> None:
    config = Config(limits=Limits(rates=Rates(server=Rate(2, 60.0))))
    script = shop()
    async with gateway(config=config, scripts={"shop": script}, **real_code()) as app:
        code = """
            const got = [];
            for (let i = 0; i < 4; i++) {
                try { got.push(await servers.shop.buy({})) } catch (error) { got.push(error.code) }
            }
            return got;
        """
        text, failed = await run(Asker(app, era), code)
        assert (json.loads(text), failed) == (["bought", "bought", "RATE_LIMITED", "RATE_LIMITED"], False)
        assert calls(script) == 2


# The same in Python, and beside each what the client itself is told for the same call.

EACH = """
got = []
for _ in range(4):
    try:
        got.append(servers.shop.buy())
    except ToolError as error:
        got.append([error.code, error.message.partition("\\n")[0]])
got
"""


async def in_python(asker: Asker) -> list[Any]:
    return json.loads((await asker.told("execute_code", code=EACH))["result"])


async def outside(asker: Asker) -> str:
    """What the client is told when it calls the tool itself."""
    return (await asker.failed("call_tool", server_name="shop", tool_name="buy", arguments={}))["error"]


@real
async def test_calls_of_python_are_charged_as_those_of_its_client(era: str) -> None:
    config = Config(limits=Limits(rates=Rates(server=Rate(2, 600.0))))
    script = shop()
    async with gateway(config=config, scripts={"shop": script}, **real_code()) as app:
        asker = Asker(app, era)
        first, second, third, fourth = await in_python(asker)
        assert [first, second, third[0], fourth[0]] == ["bought", "bought", "RATE_LIMITED", "RATE_LIMITED"]
        assert third[1][:20] == (await outside(asker))[:20]  # behind that it says for how long
        assert calls(script) == 2


@real
async def test_a_tool_that_is_off_for_a_client_is_off_in_its_code(era: str) -> None:
    permissions = Permissions(tools={"shop__buy": "off"})
    config = Config(clients=(KnownClient(id="ann", name="ann", servers="all", permissions=permissions),))
    script = shop()
    async with gateway(config=config, scripts={"shop": script}, identify=as_ann, **real_code()) as app:
        asker = Asker(app, era)
        told = await outside(asker)
        for code, why in await in_python(asker):
            assert code == "ACCESS_DENIED" and why.startswith(told)
        javascript = "try { return await servers.shop.buy({}) } catch (error) { return error.message }"
        text, failed = await run(asker, javascript)
        assert not failed and text.startswith(told)
        assert calls(script) == 0
