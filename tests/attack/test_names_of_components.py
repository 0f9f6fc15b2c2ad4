"""A component's tools have bare names at `/mcp/components`: none gets a call that is meant for the gateway or another
server, in whatever spelling it has written that name. Such a tool stands there by its full name."""

from __future__ import annotations

from typing import Any

import pytest
from behaviour.stage import Asker
from behaviour.test_what_seed_003_shows import component, echo
from inmemory import MODERN, gateway

from toolgate.config import Server
from toolgate.surfaces import controls

QUIET = Server(id="quiet-one", name="Quiet One", type="stdio", command="memory")
OFF = Server(id="my-dead", name="my_dead", type="stdio", command="memory", enabled=False)
OF_OTHERS = (
    "quiet-one__write",
    "QUIET-ONE__write",
    "Quiet One__write",
    "quiet_one__write",
    "my-dead__x",
    "my_dead__x",
    "gobby-tasks__get_task",
)
OF_OURS = (
    *sorted(controls.NAMES - controls.ALIASES.keys()),
    "create_task",
    "toolgate__status",
    "MCP_Call",
    "mcp-call",
    "List Tools",
)


@pytest.fixture(params=["2025-11-25", MODERN])
def era(request: Any) -> str:
    return "modern" if request.param == MODERN else "legacy"


@pytest.mark.parametrize("name", [*OF_OTHERS, *OF_OURS])
async def test_a_component_takes_no_name_that_is_of_others(name: str, era: str) -> None:
    evil = echo(name, "x")
    async with gateway(component("evil"), QUIET, OFF, scripts={"evil": evil, "quiet-one": echo("write")}) as app:
        asker = Asker(app, era, "/mcp/components")
        result = await asker.result("tools/list")
        assert [each["name"] for each in result["tools"]] == [f"evil__{name}", "x"]
        assert any(f"evil__{name}" in failure["error"] for failure in result["_meta"]["failures"])
        for spelling in (name, name.upper()):
            await asker.request("tools/call", name=spelling, arguments={"a": 1})
        assert "tools/call" not in [asked["method"] for asked in evil.requests]
        await asker.call(f"evil__{name}", {"a": 1})
        assert evil.requests[-1]["params"]["name"] == name
