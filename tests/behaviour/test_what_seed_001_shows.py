"""Seed 001, whole: what stands in lists and results, and how long sessions last."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from inmemory import Scripted, Visitor, gateway, said, tools

from toolgate.config import Config, Sessions

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


async def both(visitor: Visitor, method: str, **params: Any) -> list[dict[str, Any]]:
    """What a legacy and a modern request are answered."""
    return [(await visitor.ask(method, **params)).result, (await visitor.ask_modern(method, **params)).result]


@pytest.mark.promise("001.namespacing.call")
async def test_a_call_reaches_its_own_server_alone_under_the_servers_own_name() -> None:
    brave = Scripted(tools_list=tools("search"), tools_call=said("brave"))
    other = Scripted(tools_list=tools("search"), tools_call=said("other"))
    async with gateway(scripts={"brave": brave, "other": other}) as app:
        for result in await both(Visitor(app), "tools/call", name="brave__search", arguments={"query": "mcp"}):
            assert result["content"] == said("brave")["content"]
        assert brave.requests[-1]["params"]["name"] == "search"
        assert brave.requests[-1]["params"]["arguments"] == {"query": "mcp"}
        assert "tools/call" not in [asked["method"] for asked in other.requests]


@pytest.mark.promise("000.sessions.persist")
async def test_one_handshake_serves_all_calls() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=said("ok"))
    async with gateway(scripts={"docs": script}) as app:
        for _ in range(3):
            await both(Visitor(app), "tools/call", name="docs__t")
        asked = [each["method"] for each in script.requests]
        assert (asked.count("initialize"), asked.count("tools/call")) == (1, 6)


@pytest.mark.promise("001.tools-list.items")
async def test_a_listed_tool_has_name_description_and_schema() -> None:
    tool = {"name": "search", "description": "Searches", "inputSchema": SCHEMA}
    async with gateway(scripts={"brave": Scripted(tools_list={"tools": [tool]})}) as app:
        for result in await both(Visitor(app), "tools/list"):
            assert result["tools"] == [tool | {"name": "brave__search"}]


@pytest.mark.promise("001.resources-list.items")
async def test_a_listed_resource_has_uri_name_description_and_type() -> None:
    resource = {"uri": "file:///a", "name": "a", "description": "An a", "mimeType": "text/plain"}
    async with gateway(scripts={"docs": Scripted(resources_list={"resources": [resource]})}) as app:
        for result in await both(Visitor(app), "resources/list"):
            assert result["resources"] == [resource | {"uri": "docs+file:///a"}]


@pytest.mark.promise("001.resources-read.blob")
async def test_a_binary_resource_comes_back_as_it_is() -> None:
    blob = base64.b64encode(bytes(range(256))).decode()
    content = {"uri": "file:///a.png", "blob": blob, "mimeType": "image/png"}
    async with gateway(scripts={"docs": Scripted(resources_read={"contents": [content]})}) as app:
        for result in await both(Visitor(app), "resources/read", uri="docs+file:///a.png"):
            assert result["contents"] == [content | {"uri": "docs+file:///a.png"}]


@pytest.mark.promise("001.prompts-list.items")
async def test_a_listed_prompt_has_name_description_and_arguments() -> None:
    prompt = {"name": "greet", "description": "Greets", "arguments": [{"name": "who", "required": True}]}
    async with gateway(scripts={"docs": Scripted(prompts_list={"prompts": [prompt]})}) as app:
        for result in await both(Visitor(app), "prompts/list"):
            assert result["prompts"] == [prompt | {"name": "docs__greet"}]


@pytest.mark.promise("001.prompts-get.result")
async def test_a_prompt_comes_back_with_description_and_messages() -> None:
    def greet(params: dict[str, Any]) -> dict[str, Any]:
        text = {"type": "text", "text": f"Hello {params['arguments']['who']}"}
        return {"description": "Greets", "messages": [{"role": "user", "content": text}]}

    script = Scripted(prompts_list={"prompts": [{"name": "greet"}]}, prompts_get=greet)
    async with gateway(scripts={"docs": script}) as app:
        for result in await both(Visitor(app), "prompts/get", name="docs__greet", arguments={"who": "Ada"}):
            assert result["description"] == "Greets"
            assert result["messages"] == [{"role": "user", "content": {"type": "text", "text": "Hello Ada"}}]


@pytest.mark.promise("001.lifecycle.idle-configured")
async def test_how_long_a_session_may_be_idle_is_configured() -> None:
    async with gateway(config=Config(sessions=Sessions(idle=60))) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await app.clock.sleep(30)
        assert (await visitor.ask("ping")).status == 200
        await app.clock.sleep(120)
        assert (await visitor.post(visitor.request("ping"))).status == 404


@pytest.mark.promise("b.000.close-method")
async def test_a_session_is_closed_by_the_method_close_too() -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        await visitor.initialize()
        assert "result" in (await visitor.post(visitor.request("close"))).last
        assert (await visitor.post(visitor.request("ping"))).status == 404


@pytest.mark.promise("b.001.catalog-lazy")
async def test_a_server_is_started_by_the_first_list_that_needs_it() -> None:
    script = Scripted(tools_list=tools("t"))
    async with gateway(scripts={"docs": script}) as app:
        assert script.requests == []
        for result in await both(Visitor(app), "tools/list"):
            assert [tool["name"] for tool in result["tools"]] == ["docs__t"]
        assert [asked["method"] for asked in script.requests].count("tools/list") == 1


@pytest.mark.promise("b.001.loopback")
async def test_without_a_word_the_gateway_listens_on_loopback() -> None:
    assert Config().http.host == "127.0.0.1"
