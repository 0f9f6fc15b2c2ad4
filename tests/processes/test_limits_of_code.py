"""Limits, approval and cancelling where code makes the calls: as for calls that a client makes itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from inmemory import Scripted, gateway, said, tools
from processes.ground import real

from toolgate.config import Config, Limits
from toolgate.config.access import Concurrency, Rate, Rates

sys.path.insert(0, str(Path(__file__).parents[1] / "behaviour"))

from processes.test_code_that_calls_tools import real_code, run
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
