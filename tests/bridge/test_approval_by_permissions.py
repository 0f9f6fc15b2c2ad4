"""What a configuration says `ask` of is asked, for whoever comes in with a key of that client."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from inmemory import MODERN, Scripted, Visitor, gateway, said, tools
from virtualtime import FakeClock

from toolgate import config as configs
from toolgate.app import App
from toolgate.config import Config
from toolgate.policy.approvals import Approvals
from toolgate.state.memory import MemoryStore
from toolgate.state.settings import Settings

KEYS = {each: f"{each}-0123456789abcdefghijklmn" for each in ("ci", "me")}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
ASKS = {"tools": {"there__delete_*": "ask"}, "servers": {"there": "allow"}}


def config(permissions: Any, by: str = "client", limits: Any = None) -> Config:
    clients = [{"id": "ci", "key": KEYS["ci"], "mcp_permissions": permissions}]
    clients.append({"id": "me", "key": KEYS["me"], "mcp_server_access": "all"})
    text = json.dumps(
        {"mcpServers": {}, "clients": clients, "approvals": {"by": [by], "wait": 0}, "limits": limits or {}}
    )
    return configs.read(text, file="toolgate.json", environ={}, format="json")


@asynccontextmanager
async def served(
    permissions: Any, by: str = "client", limits: Any = None, **more: Any
) -> AsyncGenerator[tuple[App, Scripted]]:
    there = Scripted(tools_list=tools("read", "delete_all"), tools_call=said("done"))
    async with gateway(config=config(permissions, by, limits), scripts={"there": there}, **more) as app:
        yield app, there


def calls(there: Scripted) -> list[str]:
    return [each["params"]["name"] for each in there.requests if each["method"] == "tools/call"]


async def call(app: App, name: str, who: str = "ci", path: str = "/mcp", **params: Any) -> Any:
    visitor = Visitor(app, path, authorization=f"Bearer {KEYS[who]}")
    return (await visitor.ask_modern("tools/call", _meta=ENVELOPE, name=name, **params)).last


YES = {"approval": {"action": "accept", "content": {"decision": "once"}}}


@pytest.mark.parametrize(
    ("path", "name", "arguments"),
    [
        ("/mcp", "there__delete_all", {}),
        ("/mcp", "delete_all", {}),
        ("/mcp", "mcp_call", {"server": "there", "tool": "delete_all", "args": {}}),
        ("/mcp", "execute_child_tool", {"server_id": "there", "tool_name": "delete_all", "arguments": {}}),
        ("/mcp", "call_tool", {"server_name": "there", "tool_name": "delete_all", "arguments": {}}),
        ("/mcp/servers/there", "delete_all", {}),
    ],
)
async def test_what_permissions_say_ask_of_asks_by_whatever_name(path: str, name: str, arguments: Any) -> None:
    async with served(ASKS) as (app, there):
        asked = await call(app, name, path=path, arguments=arguments)
        assert asked["result"]["resultType"] == "input_required" and calls(there) == []
        state = asked["result"]["requestState"]
        again = await call(app, name, path=path, arguments=arguments, requestState=state, inputResponses=YES)
        assert "done" in json.dumps(again["result"]) and calls(there) == ["delete_all"]


async def test_what_they_allow_asks_nobody_and_what_is_off_is_refused_without_asking() -> None:
    async with served({**ASKS, "prompts": {"*": "off"}, "servers": {"there": "allow"}}) as (app, there):
        assert "done" in json.dumps(await call(app, "there__read"))
        assert "done" in json.dumps(await call(app, "there__delete_all", who="me"))
        assert calls(there) == ["read", "delete_all"]
    async with served({"tools": {"there__delete_*": "off", "there__read": "ask"}}) as (app, there):
        assert (await call(app, "there__delete_all"))["error"]["data"]["code"] == "ACCESS_DENIED"
        assert calls(there) == []


@pytest.mark.parametrize("permissions", [{"global": "ask"}, {"servers": {"there": "ask"}}, {**ASKS}])
async def test_an_operator_is_asked_and_the_next_call_goes_through(permissions: Any) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    book = Approvals(store, clock)
    async with served(permissions, "operator", store=store) as (app, there):
        for expected in ("APPROVAL_REQUIRED", "", "APPROVAL_REQUIRED"):
            answer = await call(app, "there__delete_all", arguments={"a": 1})
            assert answer.get("error", {"data": {"code": ""}})["data"]["code"] == expected
            for request in book.requests():
                assert request.place.server == "there" and request.place.target == "delete_all"
                if not calls(there):
                    await book.allow(request, "once", 60)
        assert calls(there) == ["delete_all"]


@pytest.mark.parametrize("decision", ["once", "always", "deny"])
async def test_a_form_that_is_open_when_only_operators_may_decide_lets_nothing_go_on(decision: str) -> None:
    configs_served = [config(ASKS)]
    clock = FakeClock()
    store = MemoryStore(clock)
    settings = Settings(lambda: configs_served[0], {})
    async with served(ASKS, store=store, settings=settings) as (app, there):
        asked = await call(app, "there__delete_all")
        approvals = config(ASKS, by="operator").approvals
        configs_served[0] = msgspec.structs.replace(app.gateway.snapshot.config, approvals=approvals)
        await app.reload()
        answers = {"approval": {"action": "accept", "content": {"decision": decision}}}
        state = asked["result"]["requestState"]
        told = (await call(app, "there__delete_all", requestState=state, inputResponses=answers))["error"]["data"]
        assert told["code"] == ("APPROVAL_DENIED" if decision == "deny" else "APPROVAL_REQUIRED")
        assert calls(there) == [] and not Approvals(store, clock).grants()


async def test_a_server_that_is_another_by_the_same_name_is_not_granted_what_the_first_was() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    always = {"approval": {"action": "accept", "content": {"decision": "always"}}}
    for command, is_asked in (("memory", True), ("memory", False), ("another", True)):
        there = configs.Server(id="there", name="there", type="stdio", command=command)
        script = Scripted(tools_list=tools("delete_all"), tools_call=said("done"))

        async with gateway(there, config=config(ASKS), scripts={"there": script}, store=store) as app:
            asked = await call(app, "there__delete_all")
            assert (asked["result"]["resultType"] == "input_required") is is_asked
            if command == "memory" and is_asked:
                state = asked["result"]["requestState"]
                await call(app, "there__delete_all", requestState=state, inputResponses=always)


@pytest.mark.parametrize("limits", [{"argument_limit": "1KiB"}, {"values": 10_000}])
async def test_what_a_person_writes_into_a_call_is_within_the_limits_of_what_callers_write(limits: Any) -> None:
    text = json.dumps({"a": [0] * 10_001})
    edited = {"approval": {"action": "accept", "content": {"decision": "once", "arguments": text}}}
    async with served(ASKS, limits=limits) as (app, there):
        asked = await call(app, "there__delete_all")
        state = asked["result"]["requestState"]
        again = await call(app, "there__delete_all", requestState=state, inputResponses=edited)
        assert again["result"]["resultType"] == "input_required" and calls(there) == []
        assert "the limit is 1,024" in json.dumps(again) or "more than 10,000 JSON values" in json.dumps(again)
