"""What a client sees of many servers: merged lists, what failed, names and URIs, and one server as it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from inmemory import GREETER, Refusal, Scripted, Visitor, gateway, said, tools
from virtualtime import FakeClock, settle

from toolgate.config import CatalogLimits, Config, Server
from toolgate.core.fault import Fault
from toolgate.state.memory import MemoryStore

BROKEN = Fault("SERVER_FAILED", "Command not found: nope", reach="not_sent")
FILE: dict[str, Any] = {"uri": "file:///a", "name": "a"}
PAGE: dict[str, Any] = {"uri": "ui://panel", "name": "panel"}


def paged(params: dict[str, Any]) -> dict[str, Any]:
    number = int(params.get("cursor", 0))
    more = {"nextCursor": str(number + 1)} if number < 4 else {}
    return tools(f"t{number}") | more


async def names(visitor: Visitor, kind: str = "tools", key: str = "name", method: str = "") -> list[str]:
    legacy = (await visitor.ask(method or f"{kind}/list")).result[kind]
    modern = (await visitor.ask_modern(method or f"{kind}/list")).result[kind]
    assert legacy == modern
    return [item[key] for item in legacy]


# Lists.


@pytest.mark.promise("001.methods.aggregate", "001.namespacing.tools", "spec.2026.tools.order")
async def test_lists_of_all_servers_are_merged_under_their_names() -> None:
    scripts = {"docs": Scripted(tools_list=tools("read", "echo")), "web-2": Scripted(tools_list=tools("echo"))}
    async with gateway(GREETER, scripts=scripts) as app:
        expected = ["greeter__greet", "greeter__count", "docs__read", "docs__echo", "web-2__echo"]
        assert await names(Visitor(app)) == expected


async def test_servers_of_both_eras_are_listed_alike() -> None:
    modern = tools("new") | {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    scripts = {"old": Scripted("2024-11-05", tools_list=tools("old")), "new": Scripted("2026-07-28", tools_list=modern)}
    async with gateway(scripts=scripts) as app:
        assert await names(Visitor(app)) == ["old__old", "new__new"]


async def test_what_a_list_says_that_we_do_not_know_passes() -> None:
    strange = tools("t", title="T", annotations={"x": 1}, execution={"taskSupport": "optional"}, _meta={"k": [None]})
    async with gateway(scripts={"docs": Scripted(tools_list=strange)}) as app:
        [tool] = (await Visitor(app).ask("tools/list")).result["tools"]
        assert tool == strange["tools"][0] | {"name": "docs__t"}


@pytest.mark.promise("b.001.list-pages")
async def test_all_pages_of_a_server_are_read() -> None:
    script = Scripted(tools_list=paged)
    async with gateway(scripts={"docs": script}) as app:
        assert await names(Visitor(app)) == [f"docs__t{number}" for number in range(5)]
        cursors = [asked["params"].get("cursor") for asked in script.requests if asked["method"] == "tools/list"]
        assert cursors == [None, "1", "2", "3", "4"]


@pytest.mark.promise("b.001.list-pages")
async def test_a_server_that_pages_in_a_circle_is_read_once() -> None:
    async with gateway(scripts={"docs": Scripted(tools_list=tools("t") | {"nextCursor": "same"})}) as app:
        assert set(await names(Visitor(app))) == {"docs__t"}


async def test_a_server_that_does_not_know_a_list_has_an_empty_one() -> None:
    async with gateway(scripts={"docs": Scripted(tools_list=tools("t"))}) as app:
        result = (await Visitor(app).ask("prompts/list")).result
        assert result == {"prompts": []}


@pytest.mark.promise("001.errors.partial")
async def test_one_servers_failure_is_shown_beside_the_others_items() -> None:
    scripts = {
        "docs": Scripted(tools_list=tools("t")),
        "broken": BROKEN,
        "rude": Scripted(tools_list=Refusal(-1, "no")),
    }
    async with gateway(scripts=scripts) as app:
        visitor = Visitor(app)
        for response in (await visitor.ask("tools/list"), await visitor.ask_modern("tools/list")):
            assert [tool["name"] for tool in response.result["tools"]] == ["docs__t"]
            assert response.result["_meta"]["partial_failure"] is True
            assert response.result["_meta"]["failures"] == [
                {"server_id": "broken", "error": "Server not started: Command not found: nope"},
                {"server_id": "rude", "error": "no"},
            ]


@pytest.mark.promise("b.001.degraded")
async def test_a_failure_is_shown_no_longer_than_it_lasts() -> None:
    script = Scripted(tools_list=Refusal(-1, "not yet"))
    async with gateway(GREETER, scripts={"docs": script}) as app:
        visitor = Visitor(app)
        assert "failures" in (await visitor.ask("tools/list")).result["_meta"]
        script.answers["tools/list"] = tools("t")
        result = (await visitor.ask("tools/list")).result
        assert "_meta" not in result and len(result["tools"]) == 3


@pytest.mark.promise("b.001.all-failed", "b.faults.empty-success")
async def test_when_all_have_failed_there_is_an_error_and_no_empty_list() -> None:
    async with gateway(scripts={"one": BROKEN, "two": Scripted(tools_list=Refusal(-1, "no"))}) as app:
        visitor = Visitor(app)
        for response in (await visitor.ask("tools/list"), await visitor.ask_modern("tools/list")):
            assert (response.status, response.error["code"]) == (200, -32603)
            assert "one: Server not started: Command not found: nope; two: no" in response.error["message"]
            assert [each["server_id"] for each in response.error["data"]["failures"]] == ["one", "two"]


@pytest.mark.promise("b.001.list-pending", "b.001.list-timeout")
async def test_a_server_that_still_starts_is_pending_and_comes_later() -> None:
    script = Scripted(tools_list=...)
    config = Config(catalog=CatalogLimits(list_timeout=10))
    async with gateway(GREETER, scripts={"slow": script}, config=config) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        listening = visitor.begin("GET", headers={"accept": "text/event-stream"})
        result = (await visitor.ask("tools/list")).result
        assert len(result["tools"]) == 2
        assert result["_meta"] == {"pending": ["slow"]}
        script.answer_last(tools("t"))
        await settle()
        assert [note["method"] for note in listening.so_far.messages] == ["notifications/tools/list_changed"]
        result = (await visitor.ask("tools/list")).result
        assert len(result["tools"]) == 3 and "_meta" not in result
        await listening.gone()


@pytest.mark.promise("b.001.list-parallel")
async def test_servers_are_asked_side_by_side_and_once_for_all_clients() -> None:
    slow = [Scripted(tools_list=...) for _ in range(3)]
    async with gateway(scripts={f"s{number}": script for number, script in enumerate(slow)}) as app:
        visitors = [asyncio.ensure_future(Visitor(app).ask("tools/list")) for _ in range(5)]
        await settle()
        assert [[each["method"] for each in script.requests].count("tools/list") for script in slow] == [1, 1, 1]
        for script in slow:
            script.answer_last(tools("t"))
        for visitor in visitors:
            assert len((await visitor).result["tools"]) == 3


async def test_a_server_that_is_switched_off_is_not_there() -> None:
    off = Server(id="off", name="off", type="stdio", command="nope", enabled=False)
    async with gateway(GREETER, off) as app:
        assert len(await names(Visitor(app))) == 2
        assert (await Visitor(app, "/mcp/servers/off").ask("ping")).status == 404


# Names.


@pytest.mark.promise("b.names.ambiguous", "b.names.bare-unique")
async def test_a_bare_name_is_called_where_one_server_has_it() -> None:
    scripts = {
        "docs": Scripted(tools_list=tools("echo", "t"), tools_call=said("docs")),
        "web": Scripted(tools_list=tools("t")),
    }
    async with gateway(scripts=scripts) as app:
        visitor = Visitor(app)
        assert (await visitor.ask("tools/call", name="echo")).result == said("docs")
        for response in (await visitor.ask("tools/call", name="t"), await visitor.ask_modern("tools/call", name="t")):
            assert response.error["code"] == -32602
            assert response.error["data"]["candidates"] == ["docs__t", "web__t"]


@pytest.mark.promise("001.errors.format", "b.errors.near-miss", "b.errors.phrase-tool")
async def test_a_near_miss_is_told_what_was_meant() -> None:
    async with gateway() as app:
        error = (await Visitor(app).ask("tools/call", name="greeter__gret")).error
        assert error["code"] == -32602
        assert error["message"].startswith("Tool not found: greeter__gret (did you mean greeter__greet")
        assert error["data"]["hint"].startswith("did you mean greeter__greet")


@pytest.mark.promise("001.errors.codes", "b.001.own-fault", "b.errors.failed")
async def test_a_tool_of_a_server_that_does_not_start_says_so() -> None:
    async with gateway(GREETER, scripts={"broken": BROKEN}) as app:
        error = (await Visitor(app).ask("tools/call", name="broken__t")).error
        assert (error["code"], error["data"]["code"]) == (-32603, "SERVER_FAILED")
        assert error["message"] == "Server not started: Command not found: nope"


@pytest.mark.promise("b.names.short")
async def test_a_long_name_is_shortened_and_can_be_called() -> None:
    script = Scripted(tools_list=tools("x" * 100), tools_call=said("ok"))
    async with gateway(scripts={"docs": script}) as app:
        visitor = Visitor(app)
        [name] = await names(visitor)
        assert len(name) == 64
        assert (await visitor.ask("tools/call", name=name)).result == said("ok")
        assert script.requests[-1]["params"]["name"] == "x" * 100


@pytest.mark.promise("001.tools-call.result")
async def test_a_tools_own_error_is_a_result_and_passes_unchanged() -> None:
    result = said("no such file") | {"isError": True, "x": 1}
    async with gateway(scripts={"docs": Scripted(tools_list=tools("t"), tools_call=result)}) as app:
        assert (await Visitor(app).ask("tools/call", name="docs__t")).result == result


@pytest.mark.promise("001.errors.upstream")
@pytest.mark.parametrize("code", [-32603, -32602, -32601, -32042, 17])
async def test_a_servers_error_is_relayed_with_its_own_code_message_and_data(code: int) -> None:
    script = Scripted(tools_list=tools("t"), tools_call=Refusal(code, "no", {"why": 1}))
    async with gateway(scripts={"docs": script}) as app:
        error = (await Visitor(app).ask("tools/call", name="docs__t")).error
        assert error == {"code": code, "message": "no", "data": {"why": 1}}


@pytest.mark.promise("001.prompts-get.result")
async def test_a_prompt_is_got_by_its_name() -> None:
    messages = {"messages": [{"role": "user", "content": {"type": "resource", "resource": {**FILE, "text": "x"}}}]}
    script = Scripted(prompts_list={"prompts": [{"name": "p"}]}, prompts_get=messages)
    async with gateway(scripts={"docs": script}) as app:
        visitor = Visitor(app)
        assert await names(visitor, "prompts") == ["docs__p"]
        for name in ("docs__p", "p"):
            result = (await visitor.ask("prompts/get", name=name, arguments={"a": "b"})).result
            assert result["messages"][0]["content"]["resource"]["uri"] == "docs+file:///a"
        assert script.requests[-1]["params"] == {"name": "p", "arguments": {"a": "b"}}
        error = (await visitor.ask("prompts/get", name="docs__q")).error
        assert error["data"]["code"] == "PROMPT_NOT_FOUND"


# URIs.


def library() -> Scripted:
    link = {"type": "resource_link", **FILE}
    embedded = {"type": "resource", "resource": {**FILE, "text": "file:///a"}}
    plain = {"type": "text", "text": "file:///a"}
    return Scripted(
        resources_list={"resources": [FILE, PAGE]},
        resources_templates_list={"resourceTemplates": [{"uriTemplate": "file:///{path}", "name": "files"}]},
        resources_read=lambda params: {"contents": [{"uri": params["uri"], "text": "it"}]},
        tools_list=tools("t", _meta={"ui": {"resourceUri": "ui://panel"}}),
        tools_call={"content": [link, embedded, plain], "structuredContent": {"uri": "file:///a"}},
    )


@pytest.mark.promise("001.resources-list.items", "b.uris.form", "b.uris.results", "b.uris.templates")
async def test_uris_carry_the_name_of_their_server_wherever_they_stand() -> None:
    async with gateway(scripts={"docs": library()}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        assert await names(visitor, "resources", "uri") == ["docs+file:///a", "ui://docs+panel"]
        templates = await names(visitor, "resourceTemplates", "uriTemplate", "resources/templates/list")
        assert templates == ["docs+file:///{path}"]
        [tool] = (await visitor.ask("tools/list")).result["tools"]
        assert tool["_meta"] == {"ui": {"resourceUri": "ui://docs+panel"}}
        result = (await visitor.ask("tools/call", name="docs__t")).result
        link, embedded, plain = result["content"]
        assert (link["uri"], embedded["resource"]["uri"]) == ("docs+file:///a", "docs+file:///a")
        assert plain["text"] == embedded["resource"]["text"] == result["structuredContent"]["uri"] == "file:///a"


@pytest.mark.promise("001.resources-read.text", "b.uris.reading", "b.uris.templates")
@pytest.mark.parametrize(
    ("asked", "own", "shown"),
    [
        ("docs+file:///a", "file:///a", "docs+file:///a"),
        ("docs__file:///a", "file:///a", "docs+file:///a"),
        ("file:///a", "file:///a", "docs+file:///a"),
        ("ui://docs+panel", "ui://panel", "ui://docs+panel"),
        ("docs+file:///not/listed", "file:///not/listed", "docs+file:///not/listed"),
    ],
)
async def test_a_resource_is_read_by_any_of_its_names(asked: str, own: str, shown: str) -> None:
    script = library()
    async with gateway(scripts={"docs": script, "other": Scripted()}) as app:
        visitor = Visitor(app)
        for response in (
            await visitor.ask("resources/read", uri=asked),
            await visitor.ask_modern("resources/read", uri=asked),
        ):
            assert response.result["contents"] == [{"uri": shown, "text": "it"}]
            assert script.requests[-1]["params"]["uri"] == own


@pytest.mark.promise("b.uris.collision", "b.uris.digit")
async def test_two_servers_with_one_uri_do_not_collide() -> None:
    one, two = library(), library()
    async with gateway(scripts={"one": one, "2two": two}) as app:
        visitor = Visitor(app)
        uris = await names(visitor, "resources", "uri")
        assert uris == ["one+file:///a", "ui://one+panel", "s2two+file:///a", "ui://s2two+panel"]
        await visitor.ask("resources/read", uri="s2two+file:///a")
        assert two.requests[-1]["params"]["uri"] == "file:///a"
        ambiguous = (await visitor.ask("resources/read", uri="file:///a")).error
        assert ambiguous["data"]["candidates"] == ["one+file:///a", "s2two+file:///a"]


@pytest.mark.promise("b.errors.resource")
@pytest.mark.parametrize(("revision", "code"), [("2025-11-25", -32002), ("2026-07-28", -32602)])
async def test_a_resource_that_is_not_found_has_the_code_of_its_time(revision: str, code: int) -> None:
    script = Scripted(revision, resources_read=Refusal(code, "no such thing"))
    script.answers["resources/list"] = {"resources": [], "resultType": "complete"}
    async with gateway(scripts={"docs": script}) as app:
        visitor = Visitor(app)
        for uri in ("docs+file:///nope", "other://nope"):
            assert (await visitor.ask("resources/read", uri=uri)).error["code"] == -32002
            assert (await visitor.ask_modern("resources/read", uri=uri)).error["code"] == -32602


# One server as it is.


@pytest.mark.promise("b.surfaces.server")
async def test_the_path_of_one_server_renames_nothing() -> None:
    script = library()
    async with gateway(GREETER, scripts={"docs": script}) as app:
        visitor = Visitor(app, "/mcp/servers/docs")
        await visitor.initialize()
        assert await names(visitor) == ["t"]
        assert await names(visitor, "resources", "uri") == ["file:///a", "ui://panel"]
        assert (await visitor.ask("tools/list")).result["tools"] == script.answers["tools/list"]["tools"]
        assert (await visitor.ask("tools/call", name="t")).result == script.answers["tools/call"]
        read = (await visitor.ask("resources/read", uri="file:///a")).result
        assert read["contents"][0]["uri"] == "file:///a"


@pytest.mark.promise("b.surfaces.server")
async def test_the_path_of_one_server_knows_no_other() -> None:
    script = library()
    script.answers["tools/call"] = Refusal(-32602, "Unknown tool")
    async with gateway(GREETER, scripts={"docs": script}) as app:
        visitor = Visitor(app, "/mcp/servers/docs")
        await visitor.initialize()
        assert (await visitor.ask("tools/call", name="greeter__greet")).error["message"] == "Unknown tool"
        assert script.requests[-1]["params"]["name"] == "greeter__greet"


@pytest.mark.promise("b.001.catalog-kept")
async def test_a_server_that_failed_before_a_restart_holds_no_list_up_after_it() -> None:
    store, lost = MemoryStore(FakeClock()), Fault("SERVER_FAILED", "Command not found: nope")
    async with gateway(scripts={"good": Scripted(tools_list=tools("t")), "bad": lost}, store=store) as app:
        before = (await Visitor(app).ask("tools/list")).result
        assert [each["server_id"] for each in before["_meta"]["failures"]] == ["bad"]
    hangs = Scripted()
    hangs.answers |= {"initialize": ..., "server/discover": ...}
    good = Scripted(tools_list=tools("t"))
    async with gateway(scripts={"good": good, "bad": hangs}, store=store) as app:
        began = app.clock.now()
        assert (await Visitor(app).ask("tools/list")).result == before
        assert app.clock.now() == began and not good.requests
