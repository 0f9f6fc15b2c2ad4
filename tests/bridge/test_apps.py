"""MCP Apps: that a client shows pages reaches its server, and the pages reach the client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from peers import LATEST, MODERN, LegacyServer, ModernServer, Scene, gateway

UI = "io.modelcontextprotocol/ui"
SHOWS = {"mimeTypes": ["text/html;profile=mcp-app"]}
PAGE = "ui://panel/main"
SERVERS = [pytest.param(LegacyServer, id="legacy"), pytest.param(ModernServer, id="modern")]


async def panel(scene: Scene) -> Any:
    return {"contents": [{"uri": PAGE, "mimeType": SHOWS["mimeTypes"][0], "text": f'<a href="{PAGE}">here</a>'}]}


async def show(scene: Scene) -> Any:
    return {"content": [{"type": "text", "text": "shown"}], "_meta": {"ui": {"resourceUri": PAGE}}}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_page_is_listed_named_and_read_and_its_text_stays_as_it_is(server: Any, revision: str) -> None:
    there = server({"show": show}, resources={PAGE: panel}, scope="principal")
    tool = {"name": "show", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": PAGE}}}
    there.lists["tools/list"] = ("tools", [tool])
    async with gateway(there=there) as rig:
        client = await rig.client(revision, capabilities={"extensions": {UI: SHOWS}})
        [listed] = (await client.request("tools/list")).result["tools"]
        page = listed["_meta"]["ui"]["resourceUri"]
        assert page == "ui://there+panel/main"
        [part] = (await client.request("resources/read", uri=page)).result["contents"]
        assert (part["uri"], part["text"]) == (page, f'<a href="{PAGE}">here</a>')
        assert (await client.call("there__show")).result["content"] == [{"type": "text", "text": "shown"}]


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("server", SERVERS)
async def test_a_server_of_its_own_hears_that_its_client_shows_pages(server: Any, revision: str) -> None:
    there = server({"show": show}, scope="session")
    async with gateway(there=there) as rig:
        for capabilities in ({"extensions": {UI: SHOWS, "example.org/other": {}}}, {}):
            client = await rig.client(revision, capabilities=capabilities)
            await client.call("there__show")
    told = [json.dumps(message) for message in there.received if message.get("method") in ("initialize", "tools/call")]
    assert any(UI in each and "text/html;profile=mcp-app" in each for each in told)
    assert UI not in told[-1]
    assert not any("example.org/other" in each for each in told)
