"""How tools are declared for code: what their results looked like, told to who had them; the nearest, in errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inmemory import said, tools
from scripts_room import Room, room

from toolgate.config import Config
from toolgate.config.access import KnownClient, Permissions
from toolgate.gateway import scripts

OBSERVED = "// The result is as observed in earlier calls; the server does not declare it."


def of(*clients: str, **permissions: Any) -> Config:
    known = (KnownClient(id=each, name=each, servers="all", permissions=Permissions(**permissions)) for each in clients)
    return Config(clients=tuple(known))


async def declared(here: Room, who: str, tool: str = "buy", **more: Any) -> str:
    arguments = {"format": "typescript", **(more or {"server": "shop"})}
    reply = await here.visitor(who).ask("tools/call", name="mcp_discover", arguments=arguments)
    found = json.loads(reply.result["content"][0]["text"])
    listed = found["tools"] if isinstance(found, dict) else found
    return next(each for each in listed if each["tool"] == tool)["declaration"]


def sells(here: Room, value: Any) -> None:
    here.servers["shop"].answers["tools/call"] = lambda _: said(json.dumps(value))


@pytest.mark.parametrize("more", [{"server": "shop"}, {"query": "buy"}])
async def test_what_results_looked_like_is_told_to_who_had_them_and_to_nobody_else(more: Any) -> None:
    async with room(of("ann", "bea")) as here:
        sells(here, {"secret_of_ann": "4711"})
        assert await here.execute(["shop", "buy", {}], who="ann")
        told = await declared(here, "ann", **more)
        assert OBSERVED in told and "secret_of_ann: string;" in told and "4711" not in told
        assert "secret_of_ann" not in await declared(here, "bea", **more)
        assert (await declared(here, "bea", **more)).endswith("Promise<unknown>;")


async def test_calls_beside_code_are_not_looked_at() -> None:
    async with room(of("ann")) as here:
        sells(here, {"secret_of_ann": "4711"})
        await here.visitor("ann").ask("tools/call", name="shop__buy", arguments={})
        assert "secret_of_ann" not in await declared(here, "ann")


async def test_a_tool_that_says_what_it_gives_is_declared_by_that() -> None:
    async with room(of("ann")) as here:
        schema = {"type": "object", "properties": {"price": {"type": "number"}}}
        here.servers["shop"].answers["tools/list"] = tools("buy", outputSchema=schema)
        here.servers["shop"].answers["tools/call"] = {**said("{}"), "structuredContent": {"other": 1}}
        await here.execute(["shop", "buy", {}], who="ann")
        told = await declared(here, "ann")
        assert "price?: number;" in told and "other" not in told


async def test_a_tool_that_is_another_is_unknown_again() -> None:
    async with room(of("ann")) as here:
        sells(here, {"price": 1})
        await here.execute(["shop", "buy", {}], who="ann")
        here.servers["shop"].change(tools("buy", description="Another."))
        await here.app.clock.sleep(5.0)
        assert "price" not in await declared(here, "ann")


async def test_an_error_of_code_shows_the_nearest_tool_and_how_it_is_declared() -> None:
    async with room(of("ann")) as here:
        sells(here, {"price": 1})
        await here.execute(["shop", "buy", {}], ["shop", "buyy", {}], who="ann")
        [error] = here.code.errors
        for part in ("The nearest tool of shop is:", "declare function buy(", "price: number;"):
            assert part in error


async def test_code_that_guesses_names_hears_what_is_near_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time it is compared with all names of the server, while others wait."""
    monkeypatch.setattr(scripts, "MOST_MISSES", 3)
    async with room(of("ann")) as here:
        await here.execute(*(["shop", f"buy{number}", {}] for number in range(5)), who="ann")
        assert ["The nearest tool" in error for error in here.code.errors] == [True, True, True, False, False]


async def test_what_its_caller_may_not_call_is_near_to_nothing() -> None:
    async with room(of("ann", tools={"shop__buy": "off"})) as here:
        await here.execute(["shop", "buyy", {}], ["shop", "buy", {}], ["bank", "payy", {}], who="ann")
        assert len(here.code.errors) == 3
        assert not any("buy(" in error for error in here.code.errors)
        assert "declare function pay(" in here.code.errors[2]
