"""Scripts that a person has approved are tools of `gobby-scripts`, with the rights of who calls them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from inmemory import ENVELOPE, META, Visitor
from scripts_room import Room, room, script
from virtualtime import FakeClock

from toolgate.config import Config
from toolgate.config.access import Approvals as ApprovalSettings
from toolgate.config.access import KnownClient, Permissions
from toolgate.core.redaction import Redactor
from toolgate.policy.approvals import Approvals
from toolgate.sandbox.stored import SPACE, read
from toolgate.state.audit import Trail
from toolgate.state.memory import MemoryStore

BUY = script("purchase", ["shop", "buy", {}])
WITH_PARAMETERS = script("reorder", ["shop", "buy", {}], parameters="// parameters.required = ['item']\n")
NAME = "gobby-scripts__purchase"


def allowed(**permissions: Any) -> Config:
    return Config(clients=(KnownClient(id="ann", name="ann", servers="all", permissions=Permissions(**permissions)),))


async def test_an_approved_script_is_listed_called_found_and_reached_from_code() -> None:
    async with room() as here:
        assert not [name for name in await here.listed() if name.startswith("gobby-")]
        await here.approve(BUY)
        assert NAME in await here.listed()
        assert await here.call(NAME) == ["buy done"]
        assert await here.call("gobby_scripts__purchase") == ["buy done"]
        found = (await here.visitor().ask("tools/call", name="mcp_discover", arguments={"query": "purchase"})).result
        assert json.loads(found["content"][0]["text"])[0]["tool"] == "purchase"
        assert await here.execute(["gobby-scripts", "purchase", {}]) == [{"came": ["buy done"]}]
        assert here.called == ["buy"] * 3


async def test_a_bare_name_never_means_a_script() -> None:
    async with room() as here:
        await here.approve(script("pay", ["shop", "buy", {}]))
        assert await here.call("gobby-scripts__pay") == ["buy done"]
        paid = (await here.visitor().ask("tools/call", name="pay", arguments={})).result
        assert paid["content"][0]["text"] == "pay done"
        assert "error" in (await here.visitor().ask("tools/call", name="purchase", arguments={})).last


async def test_what_the_gateway_asks_within_a_script_is_no_question_of_a_server() -> None:
    async with room(allowed(tools={"shop__buy": "ask"})) as here:
        await here.approve(BUY)
        meta = {**ENVELOPE, f"{META}clientCapabilities": {"elicitation": {"form": {}}}}
        reply = await here.visitor("ann").ask_modern("tools/call", name=NAME, arguments={}, _meta=meta)
        (asked,) = reply.result["inputRequests"].values()
        assert asked["params"]["message"].startswith("toolgate asks for your approval")
        assert "toolgate/server" not in str(asked) and here.called == []


async def test_its_definition_is_the_same_to_the_byte_in_each_session_and_whatever_was_approved_first() -> None:
    async def told(*texts: str) -> tuple[bytes, bytes]:
        async with room() as here:
            await here.approve(*texts)
            first, second = here.visitor(), here.visitor()
            bodies = [(await each.ask("tools/list")).body for each in (first, second)]
            return bodies[0], bodies[1]

    texts = (BUY, WITH_PARAMETERS, script("again", ["bank", "pay", {}]))
    once, twice = await told(*texts), await told(*reversed(texts))
    assert len({*once, *twice}) == 1


async def test_without_scripts_there_is_no_server_of_them() -> None:
    async with room() as here:
        await here.approve(BUY)
        await here.scripts.remove("purchase")
        await here.told()
        assert not [name for name in await here.listed() if name.startswith("gobby-")]
        assert "error" in (await here.visitor().ask("tools/call", name=NAME, arguments={})).last


async def test_clients_hear_that_scripts_have_changed() -> None:
    async with room() as here:
        heard: list[Any] = []
        here.app.events.listen(heard.append)
        await here.approve(BUY)
        assert any(each.kind == "list_changed" for each in heard)


async def test_it_finds_its_arguments_as_data() -> None:
    async with room() as here:
        await here.approve(WITH_PARAMETERS)
        await here.call("gobby-scripts__reorder", {"item": "tea"})
        assert here.code.ran[-1][1] == {"item": "tea"}


@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/gobby-scripts"])
@pytest.mark.parametrize("validates", [True, False])
async def test_arguments_that_do_not_fit_its_schema_run_nothing(path: str, validates: bool) -> None:
    async with room(Config(validate_arguments=validates)) as here:
        await here.approve(WITH_PARAMETERS)
        name = "reorder" if "servers" in path else "gobby-scripts__reorder"
        visitor = here.visitor(path=path)
        await visitor.initialize()
        reply = (await visitor.ask("tools/call", name=name, arguments={"amount": 2})).last
        assert reply["error"]["code"] == -32602 and "item" in reply["error"]["message"]
        assert here.code.ran == []


async def test_another_text_under_the_hash_that_was_approved_is_not_run() -> None:
    async with room() as here:
        await here.approve(BUY)
        kept: Any = msgspec.msgpack.decode(here.scripts.kept("purchase") or b"")
        kept[1] = BUY.replace("buy", "sell")
        await here.store.put(SPACE, "-/purchase", msgspec.msgpack.encode(kept))
        assert "error" in (await here.visitor().ask("tools/call", name=NAME, arguments={})).last
        await here.told()
        assert NAME not in await here.listed()
        assert here.called == [] and here.code.ran == []


async def test_a_text_that_was_approved_under_one_name_is_not_run_under_another() -> None:
    async with room() as here:
        await here.approve(BUY)
        await here.store.put(SPACE, "-/sale", here.scripts.kept("purchase") or b"")
        await here.told()
        assert await here.listed() == ["shop__buy", "shop__sell", "bank__pay", NAME]
        assert "error" in (await here.visitor().ask("tools/call", name="gobby-scripts__sale", arguments={})).last


@pytest.mark.parametrize("kept", [b"", b"\xff", msgspec.msgpack.encode(["", "", 0.0]), msgspec.msgpack.encode(7)])
async def test_what_cannot_be_read_is_not_served(kept: bytes) -> None:
    async with room() as here:
        await here.approve(BUY)
        await here.store.put(SPACE, "-/purchase", kept)
        await here.told()
        assert NAME not in await here.listed()


async def test_of_two_who_approve_at_once_one_does_and_the_other_looks_again() -> None:
    async with room() as here:
        before = here.scripts.kept("purchase")
        first, second = read(BUY), read(script("purchase", ["bank", "pay", {}]))
        assert await here.scripts.approve(first, before, 0.0, "ann")
        assert not await here.scripts.approve(second, before, 0.0, "bea")
        assert here.scripts.get("purchase") == first


async def test_what_was_approved_for_another_configuration_is_not_there() -> None:
    async with room() as here:
        await here.store.put(SPACE, "0123456789ab/purchase", b"x")
        await here.approve(BUY)
        elsewhere = type(here.scripts)(here.store, "/elsewhere/toolgate.toml")
        assert list(elsewhere.all()) == [] and list(here.scripts.all()) == ["purchase"]


async def test_the_text_before_is_not_run_any_more_and_the_new_one_once_calls_are_judged_by_it() -> None:
    async with room() as here:
        await here.approve(BUY)
        assert await here.call(NAME) == ["buy done"]
        other = read(script("purchase", ["bank", "pay", {}]))
        assert await here.scripts.approve(other, here.scripts.kept("purchase"), 1.0, "ann")
        refused = await here.call(NAME)
        assert (refused["data"]["code"], refused["data"]["hint"]) == ("INVALID_STATE", "make the same call again")
        assert await here.call(NAME) == ["pay done"]
        assert here.called == ["buy", "pay"]


async def test_a_script_that_is_removed_while_it_runs_may_end_and_is_not_begun_again() -> None:
    async with room() as here:
        await here.approve(script("purchase", ["shop", "buy", {}], {"wait": True}, ["bank", "pay", {}]))
        running = asyncio.ensure_future(here.call(NAME))
        await here.code.waits.wait()
        await here.scripts.remove("purchase")
        refused = (await here.visitor().ask("tools/call", name=NAME, arguments={})).last
        assert "error" in refused
        await here.told()
        here.code.go.set()
        assert await running == ["buy done", "waited", "pay done"]
        assert len(here.code.ran) == 1


# Rights.


async def test_what_its_caller_may_not_call_it_may_not_call_either() -> None:
    async with room(allowed(tools={"shop__buy": "off"})) as here:
        await here.approve(script("purchase", ["shop", "buy", {}], ["shop", "sell", {}]))
        assert await here.call(NAME, who="ann") == ["ACCESS_DENIED", "sell done"]
        assert here.called == ["sell"]


async def test_a_script_that_is_off_is_not_listed_called_found_or_reached_from_code() -> None:
    async with room(allowed(tools={NAME: "off"})) as here:
        await here.approve(BUY, script("again", ["shop", "buy", {}]))
        assert NAME not in await here.listed("ann")
        assert (await here.call(NAME, who="ann"))["code"] == -32600
        found = (
            await here.visitor("ann").ask("tools/call", name="mcp_discover", arguments={"query": "purchase"})
        ).result
        assert "purchase" not in found["content"][0]["text"]
        [came] = await here.execute(["gobby-scripts", "purchase", {}], who="ann")
        assert came == "ACCESS_DENIED"
        assert here.called == []


@pytest.mark.parametrize("permissions", [{"servers": {"gobby-scripts": "off"}}, {"read_only": "off"}])
async def test_all_scripts_may_be_off(permissions: Any) -> None:
    async with room(allowed(**permissions)) as here:
        await here.approve(BUY)
        assert NAME not in await here.listed("ann")
        assert (await here.call(NAME, who="ann"))["code"] == -32600


async def test_who_may_use_some_servers_alone_may_not_use_scripts_unless_they_are_among_them() -> None:
    for servers, is_there in ((("shop",), False), (("shop", "gobby-scripts"), True)):
        async with room(Config(clients=(KnownClient(id="ann", name="ann", servers=servers),))) as here:
            await here.approve(script("purchase", ["shop", "buy", {}], ["bank", "pay", {}]))
            assert (NAME in await here.listed("ann")) is is_there
            if is_there:
                assert await here.call(NAME, who="ann") == ["buy done", "ACCESS_DENIED"]


async def test_code_calls_scripts_and_scripts_call_scripts_and_there_it_ends() -> None:
    async with room() as here:
        inner, outer = BUY, script("twice", ["gobby-scripts", "purchase", {}])
        await here.approve(inner, outer, script("round", ["gobby_scripts", "round", {}]))
        assert await here.call("gobby-scripts__twice") == [{"came": ["buy done"]}]
        assert await here.execute(["gobby-scripts", "twice", {}]) == [{"came": ["ACCESS_DENIED"]}]
        assert await here.call("gobby-scripts__round") == [{"came": ["ACCESS_DENIED"]}]


async def test_runs_that_call_scripts_hold_no_turn_that_these_need() -> None:
    config = Config()
    config = msgspec.structs.replace(config, sandbox=msgspec.structs.replace(config.sandbox, runs=1))
    async with room(config) as here:
        await here.approve(BUY, script("twice", ["gobby-scripts", "purchase", {}]))
        assert await here.call("gobby-scripts__twice") == [{"came": ["buy done"]}]


async def test_the_audit_says_which_script_has_made_a_call(tmp_path: Path) -> None:
    clock = FakeClock()
    trail = Trail(tmp_path / "audit.jsonl", clock, MemoryStore(clock), Redactor())
    config = Config()
    config = msgspec.structs.replace(config, audit=msgspec.structs.replace(config.audit, enabled=True))
    async with room(config, audit=trail) as here:
        await here.approve(BUY)
        await here.call(NAME)
    await trail.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    calls = {line["target"]: line.get("via", "") for line in lines if line.get("target") in ("buy", "purchase")}
    assert calls == {"buy": NAME, "purchase": ""}


async def test_a_bundle_may_show_scripts_alone_and_they_reach_the_servers_all_the_same() -> None:
    async with room(Config(bundles={"work": ("gobby-scripts__*",)})) as here:
        await here.approve(BUY)
        assert await here.listed(path="/mcp/bundles/work") == [NAME]
        assert await here.call(NAME, path="/mcp/bundles/work") == ["buy done"]


async def test_a_modern_client_may_call_one() -> None:
    async with room() as here:
        await here.approve(BUY)
        reply = await Visitor(here.app).ask_modern("tools/call", name=NAME, arguments={})
        assert reply.result["structuredContent"] == {"came": ["buy done"]}


# A person who allows a script has allowed its text.


def asking() -> Config:
    found = allowed(tools={NAME: "ask"})
    return msgspec.structs.replace(found, approvals=ApprovalSettings(by=("operator",), wait=0.0))


async def allow_always(here: Room) -> None:
    assert (await here.call(NAME, who="ann"))["data"]["code"] == "APPROVAL_REQUIRED"
    book = Approvals(here.store, here.app.clock)
    [request] = book.requests()
    await book.allow(request, "always", 600.0)
    for _ in range(2):  # by the decision, and by the grant
        assert await here.call(NAME, who="ann") == ["buy done"]


async def test_a_script_that_is_always_allowed_asks_again_with_another_text() -> None:
    async with room(asking()) as here:
        await here.approve(BUY)
        await allow_always(here)
        await here.approve(script("purchase", ["bank", "pay", {}]))
        assert (await here.call(NAME, who="ann"))["data"]["code"] == "APPROVAL_REQUIRED"
        assert here.called == ["buy"] * 2
        await here.approve(BUY)
        assert await here.call(NAME, who="ann") == ["buy done"]


async def test_another_text_that_nobody_has_looked_at_yet_does_not_run_by_what_was_allowed_of_the_one_before() -> None:
    async with room(asking()) as here:
        await here.approve(BUY)
        await allow_always(here)
        other = read(script("purchase", ["bank", "pay", {}]))
        assert await here.scripts.approve(other, here.scripts.kept("purchase"), 1.0, "ann")
        for _ in range(2):
            assert (await here.call(NAME, who="ann"))["data"]["code"] in ("INVALID_STATE", "APPROVAL_REQUIRED")
        assert here.called == ["buy"] * 2
