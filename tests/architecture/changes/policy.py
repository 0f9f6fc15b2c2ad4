"""What a policy does that counts: so many calls of tools in a day, for each client."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import virtualtime
from peers import LATEST, MODERN, LegacyServer, ModernServer, Scene, form, gateway, named
from virtualtime import FakeClock

import toolgate
from toolgate import config as configs
from toolgate.config import Config
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Principal
from toolgate.policy import budget, limits, shared_meters
from toolgate.policy.limits import Meters
from toolgate.policy.shared_meters import SharedMeters, Table

TEXT = """
    [mcpServers.there]
    command = "there"
    [limits]
    calls_per_day = 2
    [[clients]]
    id = "ann"
    key = "a-key-that-is-long-enough"
    mcp_server_access = "all"
    mcp_permissions = { tools = { "there__closed" = "off" } }
    [[clients]]
    id = "bob"
    key = "another-key-that-is-long"
    mcp_server_access = "all"
    limits = { calls_per_day = 3 }
"""


async def plain(scene: Scene) -> str:
    return "done"


async def asks(scene: Scene) -> str:
    return (await scene.ask(form()))["content"]["name"]


def config(text: str = TEXT) -> Config:
    return configs.read(text, file="toolgate.toml", environ={}, format="toml")


def scripts() -> dict[str, Any]:
    return {"plain": plain, "asks": asks, "closed": plain}


def call(who: str = "ann") -> Call:
    return Call("tools/call", "plain", Client(Principal(who, client=who)), server="there")


def test_it_is_the_copy_that_is_tested() -> None:
    assert "budget" in budget.__name__, toolgate.__file__


@pytest.mark.parametrize("kind", [LegacyServer, ModernServer])
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_client_has_so_many_calls_in_a_day(revision: str, kind: Any) -> None:
    there = kind(scripts())
    async with gateway(config=config(), there=there) as rig:
        ann, bob = await rig.client(revision, principal="ann"), await rig.client(revision, principal="bob")
        assert (await ann.call("there__closed")).error["data"]["code"] == "ACCESS_DENIED"  # which costs nothing
        assert (await ann.request("tools/list")).result["tools"]
        reply = await ann.converse("tools/call", {"elicitation/create": named("ann")}, name="there__asks")
        assert reply.text == "ann"  # one call, whatever it asks
        assert (await ann.call("there__plain")).text == "done"
        refused = (await ann.call("there__plain")).error["data"]
        assert (refused["code"], refused["outcome"], refused["retryable"]) == ("RATE_LIMITED", "not_sent", True)
        for _ in range(3):
            assert (await bob.call("there__plain")).text == "done"
        assert "3 calls" in (await bob.call("there__plain")).error["message"]


async def test_what_is_spent_outlives_a_configuration_and_ends_with_the_day() -> None:
    clock = FakeClock()
    meters = Meters(clock)
    for _ in range(2):
        made = budget.of(config(), meters)
        assert made
        made.before(call(), False)
    made = budget.of(config(TEXT.replace("calls_per_day = 2", "calls_per_day = 1")), meters)
    assert made
    with pytest.raises(Fault, match="1 calls of today") as refused:
        made.before(call(), False)
    await clock.sleep(refused.value.extra["retryAfter"] - 1)
    with pytest.raises(Fault):
        made.before(call(), False)
    await clock.sleep(1)
    made.before(call(), False)


async def test_nobody_has_a_budget_unless_the_configuration_says_so() -> None:
    assert budget.of(Config(), Meters(FakeClock())) is None


async def test_processes_that_share_meters_spend_together() -> None:
    file = shared_meters.made(2)
    try:
        clock = FakeClock()
        one, other = (budget.of(config(), SharedMeters(Table(file, 2, own), clock)) for own in (0, 1))
        assert one and other
        one.before(call(), False)
        other.before(call(), False)
        for each in (one, other):
            with pytest.raises(Fault):
                each.before(call(), False)
    finally:
        os.close(file)


async def test_clients_without_end_are_forgotten_before_they_are_too_many() -> None:
    made = budget.of(msgspec.structs.replace(config(), clients=()), meters := Meters(FakeClock()))
    assert made
    for number in range(limits.MOST_METERS + 10):
        made.before(call(f"client-{number}"), False)
    assert len(meters.of("budget").filled) <= limits.MOST_METERS


if __name__ == "__main__":
    paths = f"pythonpath={sys.argv[1]} {Path(virtualtime.__file__).parent}"
    sys.exit(pytest.main([__file__, "-x", "-n", "0", "-o", paths], plugins=[virtualtime]))
