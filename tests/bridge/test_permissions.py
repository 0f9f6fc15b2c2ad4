"""What clients may do, in conversations: refusals in each surface's own words, and permissions that change."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from bridge.test_tasks import Gate, made
from peers import LATEST, MODERN, LegacyServer, ModernServer, Rig, Scene, eventually, gateway
from task_peers import LegacyTaskServer
from virtualtime import settle

from toolgate.auth.access import Access
from toolgate.config import Config, Limits, Overlay, VirtualSearch
from toolgate.config.access import KnownClient, Permissions
from toolgate.core import names
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Principal
from toolgate.policy.access import Permit

ERAS = pytest.mark.parametrize("revision", [LATEST, MODERN])
SERVERS = pytest.mark.parametrize("server", [LegacyServer, ModernServer])
EMPTY = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


async def plain(scene: Scene) -> str:
    return "done"


async def waits_for_ever(scene: Scene) -> str:
    await asyncio.Event().wait()
    return "never"


async def long(scene: Scene) -> str:
    return "".join(f"line {number}\n" for number in range(1000))


def clients(*known: KnownClient) -> Config:
    return Config(clients=known)


def client(id: str = "ann", servers: Any = "all", admin: bool = False, **permissions: Any) -> KnownClient:
    return KnownClient(id=id, name=id, servers=servers, admin=admin, permissions=Permissions(**permissions))


def two() -> dict[str, Any]:
    return {
        "git": LegacyServer({"get": plain, "delete": plain}, {"ask": plain}, {"file:///a": plain}, tells=True),
        "docs": ModernServer({"find": plain}, tells=True, announces=True),
    }


def then(*known: KnownClient) -> Callable[[Config], Config]:
    return lambda config: msgspec.structs.replace(config, clients=known)


# Refused.


@ERAS
@pytest.mark.promise("001.auth.denied", "b.surfaces.one-decision")
async def test_no_access_means_empty_lists_and_no_error(revision: str) -> None:
    async with gateway(config=clients(client(servers="none")), **two()) as rig:
        ann = await rig.client(revision)
        for method, kind in EMPTY.items():
            assert (await ann.request(method)).result[kind] == []
        assert not rig.servers["git"].received, "a server was started for somebody who may not know of it"
        summary = json.loads((await ann.call("list_mcp_servers", arguments={})).text)
        assert summary == {"servers": []}


@ERAS
@pytest.mark.promise("001.auth.denied")
async def test_a_refused_call_is_refused_in_the_words_of_its_surface(revision: str) -> None:
    async with gateway(config=clients(client(tools={"git__delete": "off"})), **two()) as rig:
        ann = await rig.client(revision)
        for name in ("git__delete", "delete"):
            error = (await ann.call(name, arguments={})).error
            assert (error["code"], error["data"]["code"], error["data"]["tool"]) == (-32600, "ACCESS_DENIED", name)
        child = {"server_id": "git", "tool_name": "delete", "arguments": {}}
        failed = (await ann.call("execute_child_tool", arguments=child)).result
        assert failed["isError"]
        assert json.loads(failed["content"][0]["text"])["code"] == "ACCESS_DENIED"
        failed = (await ann.call("mcp_call", arguments={"server": "git", "tool": "delete"})).result
        assert failed["isError"]
        assert failed["content"][0]["text"].startswith("Error calling delete on git: Access denied")
        called = await ann.call("call_tool", arguments={"server_name": "git", "tool_name": "delete"})
        assert json.loads(called.text)["error_type"] == "PermissionError"
        assert not rig.servers["git"].calls


@ERAS
async def test_a_server_that_is_out_of_reach_is_refused_whatever_it_has(revision: str) -> None:
    async with gateway(config=clients(client(servers=("docs",)), client("bob")), **two()) as rig:
        ann = await rig.client(revision)
        before = [(await ann.call(name, arguments={})).error for name in ("git__delete", "git__no_such_tool")]
        await (await rig.client(revision, principal="bob")).request("tools/list")
        after = [(await ann.call(name, arguments={})).error for name in ("git__delete", "git__no_such_tool")]
        assert before == after
        for error in after:
            assert error["data"].pop("tool").startswith("git__")
            assert "git" not in json.dumps(error)
            assert error["code"] == -32600


@ERAS
@SERVERS
async def test_permissions_go_by_the_servers_own_name_of_a_tool(revision: str, server: Any) -> None:
    there = server({"get": plain, "delete": plain})
    there.settings["tools"] = {"delete": Overlay(name="tidy_up")}
    async with gateway(config=clients(client(tools={"git__delete": "off"})), git=there) as rig:
        ann = await rig.client(revision)
        assert [tool["name"] for tool in (await ann.request("tools/list")).result["tools"]] == ["git__get"]
        for name in ("git__tidy_up", "tidy_up"):
            error = (await ann.call(name, arguments={})).error
            assert (error["code"], error["data"]["tool"]) == (-32600, name)
        own = await rig.client(revision, path="/mcp/servers/git")
        assert (await own.call("tidy_up", arguments={})).error["code"] == -32600
        assert not there.calls


async def test_a_short_name_does_not_tell_the_long_one() -> None:
    tool = "delete_" + "x" * 80
    async with gateway(config=clients(client(tools={"git__delete*": "off"})), git=LegacyServer({tool: plain})) as rig:
        ann = rig.modern()
        await ann.request("tools/list")
        error = (await ann.call(names.join_name("git", tool), arguments={})).error
        assert error["code"] == -32600
        assert tool not in json.dumps(error)


@ERAS
async def test_in_read_only_mode_a_tool_that_does_not_say_that_it_only_reads_is_off(revision: str) -> None:
    there = LegacyServer({"get": plain, "set": plain, "silent": plain})
    for tool, hint in zip(there.lists["tools/list"][1], (True, False, None), strict=True):
        tool["annotations"] = {} if hint is None else {"readOnlyHint": hint}
    async with gateway(config=clients(client(read_only="off", admin=True)), git=there) as rig:
        ann = await rig.client(revision)
        assert [tool["name"] for tool in (await ann.request("tools/list")).result["tools"]] == ["git__get"]
        own = await rig.client(revision, path="/mcp/servers/git")
        for name in ("set", "silent", "unlisted"):
            assert (await own.call(name, arguments={})).error["code"] == -32600
        assert (await own.call("get", arguments={})).text == "done"
        closed = await ann.call("close_child_session", arguments={"server_id": "git"})
        assert json.loads(closed.text)["code"] == "ACCESS_DENIED"


@ERAS
async def test_control_tools_are_tools_of_the_server_toolgate(revision: str) -> None:
    permissions = {"toolgate__mcp_call": "off", "toolgate__search_tools": "off"}
    config = clients(client(tools=permissions, resources={"toolgate+mcp://children_servers": "off"}))
    config = msgspec.structs.replace(config, virtual_search=VirtualSearch(enabled=True, threshold=1))
    async with gateway(config=config, **two()) as rig:
        ann = await rig.client(revision, path="/mcp/meta")
        listed = [tool["name"] for tool in (await ann.request("tools/list")).result["tools"]]
        assert listed == ["mcp_discover", "mcp_provision"]
        assert (await ann.call("mcp_call", arguments={"server": "git", "tool": "get"})).result["isError"]
        everything = await rig.client(revision, path="/mcp/aggregate")
        listed = [tool["name"] for tool in (await everything.request("tools/list")).result["tools"]]
        assert listed == ["git__get", "git__delete", "docs__find"], "who cannot search is shown all"
        for alias in ("search_tools", "search", "localrouter__search_tools"):
            assert (await everything.call(alias, arguments={"query": "x"})).error["code"] == -32600
        children = await rig.client(revision, path="/mcp/children")
        listed = [each["uri"] for each in (await children.request("resources/list")).result["resources"]]
        assert listed == ["mcp://server_summary"]
        assert (await children.request("resources/read", uri="mcp://children_servers")).error["code"] == -32600


@ERAS
@pytest.mark.parametrize(("is_admin", "principal"), [(True, "ann"), (False, "ann/admin")])
async def test_servers_are_added_by_who_is_let_in_as_administrator_and_is_it_still(
    revision: str, is_admin: bool, principal: str
) -> None:
    async with gateway(config=clients(client(admin=is_admin)), **two()) as rig:
        ann = await rig.client(revision, principal=principal)
        new = {"name": "more", "transport": "stdio", "command": "x"}
        for name, arguments in (("add_mcp_server", new), ("remove_mcp_server", {"name": "git"})):
            assert json.loads((await ann.call(name, arguments=arguments)).text)["error_type"] == "PermissionError"


async def test_where_nobody_asks_what_needs_approval_is_refused() -> None:
    access = Access(clients(client(everything="ask")))
    call = Call("tools/call", "x", Client(Principal(client="ann")), server="git")
    with pytest.raises(Fault) as refused:
        Permit(access).before(call, False)
    assert refused.value.code == "APPROVAL_REQUIRED"
    assert Permit(access, is_asked_behind=True).before(call, False) is call


async def test_an_operators_own_pipe_is_not_a_client() -> None:
    async with gateway(config=clients(client(servers="none")), **two()) as rig:
        pipe = rig.modern(stdio=True)
        assert len((await pipe.request("tools/list")).result["tools"]) == 3


# While it runs.


@ERAS
@pytest.mark.promise("b.surfaces.one-decision")
async def test_permissions_that_change_hold_for_open_sessions_at_once(revision: str) -> None:
    less = then(client(tools={"git__delete": "off"}, resources={"git+file:///a": "off"}), client("bob"))
    config = clients(client(), client("bob"))
    async with gateway(config=config, edited=less, **two()) as rig:
        ann, bob = [await rig.client(revision, principal=name) for name in ("ann", "bob")]
        ears = [await each.listen("git+file:///a", lists=["tools"]) for each in (ann, bob)]
        assert (await ann.call("git__delete", arguments={})).text == "done"
        await rig.app.reload()
        await settle()
        assert ears[0].changed, "nobody told ann"
        assert not ears[1].changed, "bob was told of what does not concern him"
        assert (await ann.call("git__delete", arguments={})).error["code"] == -32600
        assert (await bob.call("git__delete", arguments={})).text == "done"
        assert "git__delete" not in (await ann.request("tools/list")).raw.decode()
        rig.servers["git"].update("file:///a")
        await eventually(lambda: ears[1].updated == ["git+file:///a"])
        assert not ears[0].updated, "a subscription from before tells of what is off now"


@pytest.mark.parametrize("kind", [LegacyServer, ModernServer])
@ERAS
async def test_a_server_is_not_watched_for_who_may_not_know_what_changes_until_they_may_again(
    kind: Any, revision: str
) -> None:
    there = kind({}, resources=dict.fromkeys(("mem://a", "mem://b"), plain), tells=True)
    off: dict[str, Any] = {"resources": {"there+mem://a": "off"}}
    served = [Config()]
    config = clients(client())
    async with gateway(config=config, edited=lambda _config: served[0], there=there) as rig:

        async def change(timeout: float = 0.0, **permissions: Any) -> None:
            whole = rig.app.gateway.snapshot.config
            [server] = whole.servers
            servers = (msgspec.structs.replace(server, timeout=timeout or server.timeout),)
            served[0] = msgspec.structs.replace(whole, clients=(client(**permissions),), servers=servers)
            await rig.app.reload()
            await rig.clock.advance(1)

        ann = await rig.client(revision, principal="ann")
        ear = await ann.listen("there+mem://a", "there+mem://b")
        assert set(there.watched) == {"mem://a", "mem://b"}
        await change(**off)
        assert set(there.watched) == {"mem://b"}
        await change(**off, timeout=7.0)
        assert set(there.watched) == {"mem://b"}, "nor is the server asked for it that takes its place"
        await change()
        assert set(there.watched) == {"mem://a", "mem://b"}
        there.update("mem://a")
        await eventually(lambda: ear.updated == ["there+mem://a"])
        await change(**off)
        await ear.stop()
        await rig.clock.advance(1)
        assert there.watched == []


@ERAS
async def test_a_client_that_is_removed_may_do_nothing_from_then_on(revision: str) -> None:
    async with gateway(config=clients(client(), client("bob")), edited=then(client("bob")), **two()) as rig:
        ann = await rig.client(revision)
        assert len((await ann.request("tools/list")).result["tools"]) == 3
        await rig.app.reload()
        assert (await ann.request("tools/list")).result["tools"] == []
        assert (await ann.call("git__get", arguments={})).error["code"] == -32600


@ERAS
async def test_what_was_kept_of_a_result_is_gone_with_the_permission(revision: str) -> None:
    config = msgspec.structs.replace(clients(client()), limits=Limits(result_limit=500))
    less = then(client(tools={"git__log": "off"}))
    async with gateway(config=config, edited=less, git=LegacyServer({"log": long, "get": plain})) as rig:
        ann = await rig.client(revision)
        (uri,) = {*re.findall(r"mcp://results/[\w-]+", (await ann.call("git__log", arguments={})).text)}
        assert "line 999" in (await ann.request("resources/read", uri=f"{uri}?lines=990-1000")).raw.decode()
        await rig.app.reload()
        gone = (await ann.request("resources/read", uri=f"{uri}?lines=990-1000")).error
        assert "Resource not found" in gone["message"]


@ERAS
async def test_nobody_hears_of_a_server_out_of_reach(revision: str) -> None:
    async with gateway(config=clients(client(servers=("git",)), client("bob")), **two()) as rig:
        ann, bob = [await rig.client(revision, principal=name) for name in ("ann", "bob")]
        for each in (ann, bob):
            await each.request("tools/list")
        ears = [await each.listen(lists=["tools"]) for each in (ann, bob)]
        rig.servers["docs"].offer("tools", {"name": "other", "inputSchema": {"type": "object"}})
        await eventually(lambda: ears[1].changed)
        assert not ears[0].changed


@ERAS
async def test_a_list_of_some_clients_is_nobody_elses(revision: str) -> None:
    there = ModernServer({"get": plain}, keeps={"cacheScope": "public", "ttlMs": 60000})
    async with gateway(config=clients(client(), client("bob", servers="none")), git=there) as rig:
        result = (await (await rig.client(revision)).request("tools/list")).result
        assert result.get("cacheScope", "private") == "private"


async def _is_shared(rig: Rig) -> bool:
    catalog = rig.app.gateway.snapshot.catalog
    whole = catalog.known("git", "tools", Client())
    assert whole
    kept = [whole.memo[print] for print in whole.memo["permitted"]]
    return len(kept) == 2 and kept.count(True) == 1  # for whom it is all of it


async def test_clients_with_the_same_permissions_share_what_is_made_for_them() -> None:
    known = (client("a", tools={"git__get": "off"}), client("b", tools={"git__get": "off"}), client("c"))
    async with gateway(config=clients(*known), **two()) as rig:
        for name in ("a", "b", "c"):
            await rig.modern(principal=name).request("tools/list")
        assert await _is_shared(rig)


@ERAS
@pytest.mark.parametrize("scope", ["principal", "session"])
async def test_where_clients_have_connections_of_their_own_each_sees_and_ends_its_own(
    revision: str, scope: str
) -> None:
    there = LegacyServer({"get": plain, "wait": waits_for_ever}, scope=scope)
    async with gateway(config=clients(client(), client("bob")), git=there) as rig:
        ann, bob = [await rig.client(revision, principal=name) for name in ("ann", "bob")]
        of_all = rig.app.gateway.snapshot.upstreams["git"]

        async def states() -> list[str]:
            told = [await who.call("get_child_status", arguments={"server_id": "git"}) for who in (ann, bob)]
            return [json.loads(each.text)["status"] for each in told]

        assert [(await who.call("git__get", arguments={})).text for who in (ann, bob)] == ["done", "done"]
        waiting = ann.start("tools/call", name="git__wait", arguments={})
        await settle()
        for _ in range(2):
            closed = await bob.call("close_child_session", arguments={"server_id": "git"})
            assert json.loads(closed.text)["status"] == "closed"
            assert await states() == ["running", "stopped"] and of_all.status().calls == 1
        assert (await bob.call("git__get", arguments={})).text == "done"
        await of_all.stop()  # as an administrator does
        assert "was stopped" in str((await waiting.reply()).message)
        assert await states() == ["stopped", "stopped"] and of_all.status().state == "stopped"


@ERAS
async def test_a_server_that_clients_share_is_not_stopped_under_the_calls_of_others(revision: str) -> None:
    gate = asyncio.Event()

    async def wait(_scene: Any) -> str:
        await gate.wait()
        return "done"

    async with gateway(config=clients(client(), client("bob")), git=LegacyServer({"wait": wait})) as rig:
        ann, bob = [await rig.client(revision, principal=name) for name in ("ann", "bob")]
        waiting = ann.start("tools/call", name="git__wait", arguments={})
        await settle()
        said = json.loads((await bob.call("close_child_session", arguments={"server_id": "git"})).text)
        assert said["code"] == "ACCESS_DENIED" and "of others are under way at git" in said["error"]
        gate.set()
        assert (await waiting.reply()).text == "done"
        said = json.loads((await bob.call("close_child_session", arguments={"server_id": "git"})).text)
        assert said.get("status") == "closed", said
        await ann.call("git__wait", arguments={})
        gate.clear()
        waiting = ann.start("tools/call", name="git__wait", arguments={})
        await settle()
        said = json.loads((await ann.call("close_child_session", arguments={"server_id": "git"})).text)
        assert said.get("status") == "closed", "her own call is hers to end"
        assert "was stopped" in str((await waiting.reply()).message)


async def test_a_server_that_clients_share_is_not_stopped_under_the_tasks_of_others() -> None:
    gate = Gate()
    there = LegacyTaskServer({"slow": gate}, support={"slow": "optional"})
    async with gateway(config=clients(client(), client("bob")), git=there) as rig:
        ann, bob = [await rig.legacy(principal=name) for name in ("ann", "bob")]
        id = await made(ann, "git__slow")
        said = json.loads((await bob.call("close_child_session", arguments={"server_id": "git"})).text)
        assert said["code"] == "ACCESS_DENIED" and "tasks of others are under way at git" in said["error"]
        gate.opened.set()
        await settle()
        assert (await ann.request("tasks/get", taskId=id)).result["status"] == "completed"
        said = json.loads((await bob.call("close_child_session", arguments={"server_id": "git"})).text)
        assert said.get("status") == "closed", said


async def test_a_client_is_told_that_a_server_which_all_share_was_stopped_before_anybody_used_it() -> None:
    async with gateway(config=clients(client()), git=LegacyServer({"get": plain})) as rig:
        of_all = rig.app.gateway.snapshot.upstreams["git"]
        await of_all.stop()
        assert of_all.status(Client(Principal("ann"))) == of_all.status() and of_all.status().stopped_by == "close"
