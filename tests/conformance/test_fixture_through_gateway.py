"""The fixture server through the gateway, driven by the official SDK's client: what comes is what the fixture says.

The suite's scenarios for lists pass on an empty list, and those for tools on an error; these do not. They need no Node,
so they are the part of the conformance suite that `make test` runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import fixture_offers as offers
import mcp.types as types
import pytest
import suite
from mcp.client.client import Client

TEXT = "This is a simple text response for testing."
DYNAMIC = {"test_dynamic_tool", "test_dynamic_prompt"}
MODES = {"legacy": suite.LEGACY, "auto": suite.MODERN}
QUICK = ("http-modern", "stdio-legacy")
"""Both transports, and a server of each era alone: the rest is run by `make conformance`."""
SHARED = ("http", "crowded")
"""Where all clients of the handshake share a connection, which has the roots of the configuration (ruling 16)."""
OURS = [name for name, world in suite.WORLDS.items() if not world.everything]
REST = [pytest.param(name, marks=pytest.mark.conformance) for name in OURS if name not in QUICK]


@pytest.fixture(scope="module", params=[*QUICK, *REST])
def fixture_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The fixture server, as reached through one world after the other."""
    with suite.WORLDS[request.param].url(tmp_path_factory.mktemp(request.param)) as url:
        yield url


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, fixture_url: str) -> str:
    """The client's era; none but its own without a gateway."""
    world = request.node.callspec.params["fixture_url"]
    if (world, request.param) in {("direct-legacy", "auto"), ("direct-modern", "legacy")}:
        pytest.skip("this needs a gateway")
    return request.param


async def elicit(context: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
    answers = {"name": "Ada", "color": "green", "context": "tests", "ok": True}
    asked = params.requested_schema["properties"]
    return types.ElicitResult(action="accept", content={name: answers[name] for name in asked if name in answers})


async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="Paris")
    return types.CreateMessageResult(role="assistant", content=content, model="none")


async def roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///of/the/client")])


def talk(url: str, mode: str, conversation: Callable[[Client], Awaitable[None]]) -> None:
    async def bounded() -> None:
        able = {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}
        async with asyncio.timeout(60), Client(url, mode=mode, **able) as client:
            assert client.protocol_version == MODES[mode]
            await conversation(client)

    asyncio.run(bounded())


async def said(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


def test_all_that_the_fixture_offers_is_listed(fixture_url: str, mode: str) -> None:
    async def conversation(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() - DYNAMIC == offers.TOOLS.keys()
        assert tools["json_schema_2020_12_tool"].input_schema == offers.JSON_SCHEMA
        assert {prompt.name for prompt in (await client.list_prompts()).prompts} - DYNAMIC == offers.PROMPTS.keys()
        assert {resource.uri for resource in (await client.list_resources()).resources} == offers.RESOURCES.keys()
        listed = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in listed] == [offers.TEMPLATE]

    talk(fixture_url, mode, conversation)


def test_the_fixtures_words_come_through(fixture_url: str, mode: str) -> None:
    async def conversation(client: Client) -> None:
        assert await said(client, "test_simple_text") == TEXT
        assert (await client.call_tool("test_error_handling", {})).is_error
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        assert [message.content.text for message in prompt.messages] == ["Prompt with arguments: arg1='a', arg2='b'"]
        (text,) = (await client.read_resource("test://template/7/data")).contents
        assert text.text == '{"id": "7", "templateTest": true, "data": "Data for ID: 7"}'
        (binary,) = (await client.read_resource("test://static-binary")).contents
        assert binary.blob == offers.RED_PIXEL

    talk(fixture_url, mode, conversation)


def test_the_fixtures_questions_are_answered_by_the_client(
    fixture_url: str, mode: str, request: pytest.FixtureRequest
) -> None:
    async def conversation(client: Client) -> None:
        assert await said(client, "test_input_required_result_elicitation") == "Hello, Ada!"
        assert await said(client, "test_input_required_result_sampling") == "The model says: Paris"
        if mode != "legacy" or request.node.callspec.params["fixture_url"] not in SHARED:
            assert await said(client, "test_input_required_result_list_roots") == "Roots: file:///of/the/client"
            assert await said(client, "test_input_required_result_multiple_inputs") == "All inputs were received."
        assert await said(client, "test_input_required_result_multi_round") == "Ada likes green."
        prompt = await client.get_prompt("test_input_required_result_prompt")
        assert [message.content.text for message in prompt.messages] == ["Use the following context: tests"]

    talk(fixture_url, mode, conversation)


def test_progress_comes_in_order(fixture_url: str, mode: str) -> None:
    async def conversation(client: Client) -> None:
        notes: list[float] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            notes.append(progress)

        await client.call_tool("test_tool_with_progress", {}, progress_callback=note)
        assert notes == [0, 50, 100]

    talk(fixture_url, mode, conversation)
