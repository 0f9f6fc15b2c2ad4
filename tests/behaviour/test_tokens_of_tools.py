"""The token meter: what a client's model has loaded of tools, against what all tools at once would have been."""

from __future__ import annotations

import json

import pytest
from inmemory import THE_SOCKET, Json, Scripted, Visitor, gateway
from stage import Asker, cast, playing, tool

from toolgate.app import App
from toolgate.config import Config, VirtualSearch
from toolgate.config.access import KnownClient
from toolgate.gateway.token_meter import KEY
from toolgate.search import tokens

MANY = [
    tool(f"table_{number}", "Change a table of the database, by its name.", {"name": "string"}) for number in range(80)
]


def whole(*tools: Json) -> int:
    return sum(tokens.estimate(json.dumps(each)) for each in tools)


async def of(asker: Asker) -> Json:
    return (await asker.told("status"))["tokens"]


async def test_who_lists_all_tools_has_loaded_about_as_much_as_they_are(era: str) -> None:
    async with gateway(scripts={"db": Scripted(tools_list={"tools": MANY})}) as app:
        asker = Asker(app, era, "/mcp/aggregate")
        await asker.listed()
        found = await of(asker)
        assert found["would_have_loaded"] == pytest.approx(whole(*MANY), rel=0.1)
        assert found["loaded"] == pytest.approx(found["would_have_loaded"], rel=0.15)
        assert found["tokenizer"] == "an estimate of o200k_base"
        assert found["by_server"]["db"]["loaded"] > found["by_server"]["db"]["would_have_loaded"] * 0.9


@pytest.mark.promise("004.disclosure.tokens")
async def test_who_goes_step_by_step_has_loaded_a_small_part_and_is_told_how_much(era: str) -> None:
    async with gateway(scripts={"db": Scripted(tools_list={"tools": MANY})}) as app:
        asker = Asker(app, era, "/mcp/daemon")
        await asker.told("list_tools", server="db")
        first = await of(asker)
        assert 0 < first["by_server"]["db"]["loaded"] < first["by_server"]["db"]["would_have_loaded"]
        await asker.told("get_tool_schema", server_name="db", tool_name="table_1")
        second = await of(asker)
        assert second["by_server"]["db"]["loaded"] > first["by_server"]["db"]["loaded"]
        assert second["would_have_loaded"] == first["would_have_loaded"]


async def test_a_search_instead_of_a_list_saves_what_is_not_found(era: str) -> None:
    config = Config(virtual_search=VirtualSearch(enabled=True, threshold=10))
    async with gateway(config=config, scripts={"db": Scripted(tools_list={"tools": MANY})}) as app:
        asker = Asker(app, era)
        await asker.listed()
        await asker.request("tools/call", name="search_tools", arguments={"query": "table 7", "limit": 3})
        found = await of(asker)
        assert found["saved_percent"] > 50 and found["loaded"] < found["would_have_loaded"] / 2


async def test_a_reply_has_it_where_that_was_asked_for_and_not_elsewhere(era: str) -> None:
    async with playing("sqlite") as app:
        asker = Asker(app, era, "/mcp/meta")
        call: Json = {"name": "mcp_discover", "arguments": {"query": "run a query"}}
        assert KEY not in (await asker.result("tools/call", **call)).get("_meta", {})
        meta = {KEY: True}
        if era == "modern":
            meta |= {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        told = (await asker.result("tools/call", **call, _meta=meta))["_meta"][KEY]
        assert told["loaded"] > 0 and told["would_have_loaded"] > 0 and "sqlite" in told["by_server"]


async def test_each_session_has_figures_of_its_own_and_the_operator_those_of_all() -> None:
    async with playing("sqlite", "playwright") as app:
        one, other = Asker(app, "legacy", "/mcp/aggregate"), Asker(app, "legacy", "/mcp/meta")
        await one.listed()
        await other.listed()
        assert (await of(one))["loaded"] > 3 * (await of(other))["loaded"]
        found = await admin(app)
        assert found["clients"] == 2 and set(found["by_surface"]) == {"/mcp/aggregate", "/mcp/meta"}
        assert found["loaded"] == sum(each["loaded"] for each in found["by_surface"].values())
        assert {"sqlite", "playwright", "toolgate"} <= found["by_server"].keys()
        await one.visitor.send("DELETE")
        assert (await admin(app))["clients"] == 1


async def admin(app: App) -> Json:
    visitor = Visitor(app)
    visitor.client = THE_SOCKET
    return json.loads((await visitor.send("GET", path="/admin/status")).body)["tokens"]


async def test_what_a_client_may_not_use_is_none_of_its_tokens(era: str) -> None:
    key = "tg-a-key-that-is-long-enough"
    config = Config(clients=(KnownClient(id="ann", name="ann", key=key, servers=("sqlite",)),))
    async with playing("sqlite", "playwright", config=config) as app:
        asker = Asker(app, era, "/mcp/aggregate")
        asker.visitor.headers["authorization"] = f"Bearer {key}"
        await asker.listed()
        found = await of(asker)
        assert found["by_server"].keys() <= {"sqlite", "toolgate", "gobby-tasks"}
        sqlite = cast()["sqlite"]
        assert isinstance(sqlite, Scripted)
        assert found["by_server"]["sqlite"]["would_have_loaded"] == pytest.approx(
            whole(*sqlite.answers["tools/list"]["tools"]), rel=0.1
        )


async def test_the_path_of_one_server_counts_that_server(era: str) -> None:
    async with playing("sqlite", "playwright") as app:
        asker = Asker(app, era, "/mcp/servers/sqlite")
        if era == "legacy":
            await asker.visitor.initialize()
        await asker.listed()
        found = (await admin(app))["by_surface"]["/mcp/servers/sqlite"]
        assert found["loaded"] == found["would_have_loaded"] > 0


async def test_no_more_clients_are_remembered_than_there_is_room_for() -> None:
    from toolgate.catalog.loaded import MOST, LoadedTools
    from toolgate.core.model import Client

    loaded = LoadedTools()
    for number in range(MOST + 5):
        loaded.listed(Client(session=str(number), path="/mcp"), ())
    assert len(loaded.all()) == MOST and loaded.find(Client(session="0", path="/mcp")) is None
    loaded.listed(Client(session="x"), ())
    assert loaded.find(Client(session="x")) is None, "the gateway itself loads nothing"
