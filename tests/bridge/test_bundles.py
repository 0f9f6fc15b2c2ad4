"""Bundles: some tools of several servers at a path of their own."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from peers import LATEST, MODERN, LegacyServer, ModernServer, Scene, gateway
from virtualtime import settle

from toolgate.config import Overlay

REVISIONS = [LATEST, MODERN]
BUNDLES = {"work": ("time__*", "notes__add", "notes__get_*"), "none": ("gone__*",)}


async def plain(scene: Scene) -> str:
    return f"{scene.target} was called"


def servers() -> dict[str, Any]:
    return {
        "notes": LegacyServer(dict.fromkeys(("add", "drop", "get_all"), plain), {"ask": plain}, {"mem://n": plain}),
        "time": ModernServer(dict.fromkeys(("now", "zone"), plain)),
        "other": LegacyServer({"other": plain}, {"ask": plain}, {"mem://o": plain}),
    }


async def listed(client: Any, method: str, kind: str, key: str = "name") -> list[str]:
    return [item[key] for item in (await client.request(method)).result[kind]]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_bundle_lists_what_its_patterns_mean_in_their_order(revision: str) -> None:
    async with gateway(bundles=BUNDLES, **servers()) as rig:
        client = await rig.client(revision, path="/mcp/bundles/work")
        assert await listed(client, "tools/list", "tools") == [
            "time__now",
            "time__zone",
            "notes__add",
            "notes__get_all",
        ]
        assert await listed(client, "prompts/list", "prompts") == ["notes__ask"]
        assert await listed(client, "resources/list", "resources", "uri") == ["notes+mem://n"]
        assert not rig.servers["other"].requests("tools/list")


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_bundle_resolves_names_as_the_aggregate_does_and_hides_without_forbidding(revision: str) -> None:
    async with gateway(bundles=BUNDLES, **servers()) as rig:
        client = await rig.client(revision, path="/mcp/bundles/work")
        for name in ("time__now", "now", "notes__add", "notes__drop"):
            assert (await client.call(name)).text == f"{name.rpartition('__')[2]} was called"
        assert (await client.call("other__other")).error["data"]["code"] == "TOOL_NOT_FOUND"
        assert (await client.request("resources/read", uri="notes+mem://n")).text == "mem://n was called"


async def test_a_bundle_goes_by_the_names_that_overlays_give() -> None:
    found = servers()
    found["notes"].settings["tools"] = {"add": Overlay(name="get_new"), "get_all": Overlay(hidden=True)}
    async with gateway(bundles=BUNDLES, **found) as rig:
        client = rig.modern(path="/mcp/bundles/work")
        assert await listed(client, "tools/list", "tools") == ["time__now", "time__zone", "notes__get_new"]
        assert (await client.call("notes__get_new")).text == "add was called"
        assert (await client.call("notes__add")).error["data"]["code"] == "TOOL_NOT_FOUND"


async def test_a_bundle_of_servers_that_are_not_there_is_empty_and_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with gateway(bundles=BUNDLES, **servers()) as rig:
            assert await listed(rig.modern(path="/mcp/bundles/none"), "tools/list", "tools") == []
    assert "bundles.none: gone__* matches no server's tools" in caplog.text


async def test_a_client_of_a_bundle_hears_of_its_servers_lists_only() -> None:
    found = servers()
    for each in found.values():
        each.announces = True
    async with gateway(bundles=BUNDLES, **found) as rig:
        client, everywhere = rig.modern(path="/mcp/bundles/work"), rig.modern()
        for each in (client, everywhere):
            await each.request("tools/list")
        ear = await client.listen(lists=["tools"])
        await everywhere.listen(lists=["tools"])
        found["other"].offer("tools")
        await rig.clock.advance(60)
        await settle()
        assert ear.changed == []
        found["time"].offer("tools")
        await rig.clock.advance(60)
        assert ear.changed == ["tools"]
