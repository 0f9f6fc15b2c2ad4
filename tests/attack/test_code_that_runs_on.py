"""Code that runs on while the configuration becomes another: what holds for calls by then holds for its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import scripts_room
from scripts_room import Room, room
from virtualtime import settle

from toolgate.config import Config
from toolgate.config.access import Auth, KnownClient, Limits, Permissions, Rate, Rates
from toolgate.core.model import Principal

ANN = KnownClient(id="ann", name="ann", servers="all")
BUY = ["shop", "buy", {}]


async def without_scopes(headers: Any, address: str, path: str) -> Principal:
    return Principal(headers["x-who"], client=headers["x-who"], scopes=frozenset())


async def came(here: Room, change: Callable[[Config], Config]) -> Any:
    """What comes of the last call of code, which makes two after a change."""
    running = asyncio.ensure_future(here.execute(BUY, {"wait": True}, BUY, BUY, who="ann"))
    await here.code.waits.wait()
    here.app._prepared(change(here.app.gateway.snapshot.config))()  # pyright: ignore[reportPrivateUsage]
    await settle()
    here.code.go.set()
    first, *_, last = await running
    assert first == "buy done"
    return last


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"auth": Auth(step_up={"shop__buy": ("write",)})}, "INSUFFICIENT_SCOPE"),
        ({"limits": Limits(rates=Rates(principal=Rate(1, 3600.0)))}, "RATE_LIMITED"),
        ({"limits": Limits(argument_limit=1)}, "INVALID_ARGS"),
        (
            {"clients": (msgspec.structs.replace(ANN, permissions=Permissions(tools={"shop__buy": "off"})),)},
            "ACCESS_DENIED",
        ),
    ],
    ids=["step_up", "rates", "argument_limit", "permissions"],
)
async def test_what_limits_calls_by_then_limits_those_of_code_that_runs(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], code: str
) -> None:
    monkeypatch.setattr(scripts_room, "by_header", without_scopes)
    async with room(Config(clients=(ANN,))) as here:
        assert await came(here, lambda config: msgspec.structs.replace(config, **more)) == code


async def test_a_server_that_is_not_configured_any_more_is_not_called_by_code_that_runs() -> None:
    def without_shop(config: Config) -> Config:
        return msgspec.structs.replace(config, servers=tuple(each for each in config.servers if each.id != "shop"))

    async with room(Config(clients=(ANN,))) as here:
        assert await came(here, without_shop) == "SERVER_NOT_FOUND" and here.called == ["buy"]


async def test_what_changes_nothing_for_its_calls_keeps_none_of_them_out() -> None:
    async with room(Config(clients=(ANN,))) as here:
        assert await came(here, lambda config: config) == "buy done" and len(here.called) == 3
