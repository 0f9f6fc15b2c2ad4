"""Seed 001: what stands in lists and results, how long sessions last, and the search that stands for too many tools."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonschema
import pytest
from inmemory import Scripted, Visitor, gateway, said, tools
from peers import LegacyServer, Scene
from peers import gateway as house_of
from stage import Asker
from virtualtime import settle

from toolgate.config import Config, Sessions, VirtualSearch

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


# The search tool that stands for too many.

SEARCHED = ["search_tools"]
MANY = {f"tool_{number}": f"Works on things of the kind {number}" for number in range(50)} | {
    "send_mail": "Send a mail to somebody",
    "read_mail": "Read the mail of an inbox",
}


def many() -> Scripted:
    listed = [{"name": name, "description": said, "inputSchema": SCHEMA} for name, said in MANY.items()]
    return Scripted(
        tools_list={"tools": listed},
        resources_list={
            "resources": [{"uri": "mail://inbox", "name": "inbox", "description": "The mail of the inbox"}]
        },
        prompts_list={"prompts": [{"name": "answer_mail", "description": "Answer a mail"}]},
        tools_call=said("done"),
    )


def searching(**more: Any) -> Config:
    return Config(virtual_search=VirtualSearch(enabled=True, **more))


@pytest.mark.promise("001.tools-list.search")
@pytest.mark.parametrize(
    ("config", "is_shown"),
    [
        (Config(), False),
        (searching(), True),
        (searching(threshold=51), True),
        (searching(threshold=52), False),
        (searching(threshold=1000, threshold_tokens=100), True),
        (searching(threshold=1000, threshold_tokens=100_000), False),
    ],
)
async def test_above_a_threshold_the_search_tool_stands_alone(config: Config, is_shown: bool, era: str) -> None:
    async with gateway(scripts={"office": many()}, config=config) as app:
        listed = await Asker(app, era).listed()
        assert listed == (SEARCHED if is_shown else [f"office__{name}" for name in MANY])
        assert await Asker(app, era).listed("resources") == ["office+mail://inbox"]


@pytest.mark.promise("001.tools-list.search", "b.surfaces.hidden")
async def test_what_the_search_tool_stands_for_can_be_called_all_the_same(era: str) -> None:
    async with gateway(scripts={"office": many()}, config=searching()) as app:
        asker = Asker(app, era)
        assert (await asker.call("office__tool_7", {"query": "x"}))["content"] == said("done")["content"]
        assert await asker.listed() == SEARCHED


@pytest.mark.promise("b.001.search")
async def test_the_search_finds_and_its_result_is_one_of_the_protocol(era: str) -> None:
    async with gateway(scripts={"office": many()}, config=searching()) as app:
        asker = Asker(app, era)
        (search,) = (await asker.result("tools/list"))["tools"]
        result = await asker.call("search_tools", {"query": "send a mail"})
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        jsonschema.validate(result["structuredContent"], search["outputSchema"])
        first = result["structuredContent"]["matches"][0]
        assert (first["type"], first["name"]) == ("tool", "office__send_mail")
        assert first["description"] == MANY["send_mail"]
        assert isinstance(first["relevance"], float)
        assert first["inputSchema"] == SCHEMA


@pytest.mark.promise("b.001.search")
@pytest.mark.parametrize(
    ("type", "names"),
    [
        ("tools", {"office__send_mail", "office__read_mail"}),
        ("resources", {"office+mail://inbox"}),
        ("prompts", {"office__answer_mail"}),
        ("all", {"office__send_mail", "office__read_mail", "office+mail://inbox", "office__answer_mail"}),
    ],
)
async def test_the_search_finds_what_kind_is_wanted(type: str, names: set[str], era: str) -> None:
    async with gateway(scripts={"office": many()}, config=searching()) as app:
        found = (await Asker(app, era).told("search_tools", query="mail", type=type))["matches"]
        assert {match["name"] for match in found} == names


@pytest.mark.promise("b.001.search")
async def test_a_regular_expression_is_searched_by_and_a_broken_one_refused(era: str) -> None:
    async with gateway(scripts={"office": many()}, config=searching()) as app:
        asker = Asker(app, era)
        found = (await asker.told("search_tools", query="^(send|read)_mail$", mode="regex"))["matches"]
        assert {match["name"] for match in found} == {"office__send_mail", "office__read_mail"}
        error = await asker.error("tools/call", name="search_tools", arguments={"query": "(", "mode": "regex"})
        assert (error["code"], error["data"]["code"]) == (-32602, "INVALID_ARGS")


@pytest.mark.promise("b.001.search")
@pytest.mark.parametrize(
    "wrong", [{}, {"query": "x", "limit": 0}, {"query": "x", "limit": 51}, {"query": "x", "type": "t"}, {"query": 7}]
)
async def test_a_search_out_of_shape_is_a_json_rpc_error(wrong: dict[str, Any], era: str) -> None:
    async with gateway(scripts={"office": many()}, config=searching()) as app:
        error = await Asker(app, era).error("tools/call", name="search_tools", arguments=wrong)
        assert (error["code"], error["message"][:17]) == (-32602, "Invalid arguments")


@pytest.mark.promise("b.001.search")
async def test_who_says_no_mode_searches_as_it_is_configured(era: str) -> None:
    async with gateway(scripts={"office": many()}, config=searching(mode="regex")) as app:
        found = (await Asker(app, era).told("search_tools", query="^(send|read)_mail$"))["matches"]
        assert {match["name"] for match in found} == {"office__send_mail", "office__read_mail"}


@pytest.mark.promise("b.001.search")
async def test_a_semantic_search_without_its_engine_says_what_is_missing(era: str) -> None:
    async with gateway(scripts={"office": many()}, config=searching()) as app:
        arguments = {"query": "mail", "mode": "semantic"}
        error = await Asker(app, era).error("tools/call", name="search_tools", arguments=arguments)
        assert "semantic" in error["message"]


@pytest.mark.promise("b.001.search", "001.tools-list.search")
async def test_what_a_session_has_found_is_listed_in_it_from_then_on_and_it_is_told() -> None:
    async with house_of(config=searching(), office=office()) as rig:
        client, other = await rig.legacy(), await rig.legacy()
        ear, other_ear = await client.listen(), await other.listen()
        found = (await client.call("search_tools", arguments={"query": "send a mail", "limit": 1})).result
        assert found["structuredContent"]["activated"] == ["office__send_mail"]
        await settle()
        assert (ear.changed, other_ear.changed) == (["tools"], [])
        assert [tool["name"] for tool in (await client.request("tools/list")).result["tools"]] == [
            *SEARCHED,
            "office__send_mail",
        ]
        assert [tool["name"] for tool in (await other.request("tools/list")).result["tools"]] == SEARCHED
        again = (await client.call("search_tools", arguments={"query": "send a mail", "limit": 1})).result
        assert again["structuredContent"]["activated"] == ["office__send_mail"]
        await settle()
        assert ear.changed == ["tools"]
        assert (await client.call("office__send_mail")).text == "done"


@pytest.mark.promise("b.001.search")
async def test_a_client_without_a_session_gets_schemas_and_a_list_that_stays() -> None:
    async with house_of(config=searching(), office=office()) as rig:
        client = rig.modern()
        found = (await client.call("search_tools", arguments={"query": "send a mail", "limit": 1})).result
        assert found["structuredContent"]["activated"] == []
        assert found["structuredContent"]["matches"][0]["inputSchema"] == {"type": "object"}
        assert [tool["name"] for tool in (await client.request("tools/list")).result["tools"]] == SEARCHED


def office() -> LegacyServer:
    async def done(scene: Scene) -> str:
        return "done"

    server = LegacyServer(dict.fromkeys(MANY, done))
    for each in server.lists["tools/list"][1]:
        each["description"] = MANY[each["name"]]
    return server
