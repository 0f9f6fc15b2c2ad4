"""What a tool has made, a task or a kept result, is judged by that tool whenever it is asked for: by what its client
may do now, and by the token that it comes with now."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from bridge.test_permissions import client, clients, long, then
from bridge.test_pinned_tools import QUARANTINE
from bridge.test_tasks import Gate, knowing, made
from doors.issuers import AUDIENCE, AUTH, CONFIG, KEYS, Issuer, bearer, issuer
from inmemory import LATEST, MODERN, Scripted, Visitor, said, tools
from inmemory import gateway as in_memory
from peers import LegacyServer, ModernClient, Rig, Scene, eventually, form, gateway
from task_peers import LegacyTaskServer, ModernTaskServer
from virtualtime import settle

from toolgate.config import Config, Limits, Overlay
from toolgate.config.access import KnownClient, Permissions

__all__ = ["issuer"]

Edit = Callable[[Config], Config]


def hidden(config: Config) -> Config:
    (server,) = config.servers
    return msgspec.structs.replace(
        config, servers=(msgspec.structs.replace(server, tools={"slow": Overlay(hidden=True)}),)
    )


EDITS: dict[str, Edit] = {
    "off": then(client(tools={"there__slow": "off"})),
    "off by a pattern": then(client(tools={"there__*": "off"}, servers={"there": "allow"})),
    "read only": then(client(read_only="off")),
}


def task_server(kind: str) -> tuple[Any, Gate]:
    gate = Gate()
    if kind == "modern":
        return ModernTaskServer({"slow": gate}, as_tasks=("slow",)), gate
    return LegacyTaskServer({"slow": gate}, support={"slow": "optional"}), gate


async def knowing_of(rig: Rig, kind: str) -> Any:
    return knowing(rig) if kind == "modern" else await rig.client(LATEST)


@pytest.mark.promise("b.attacks.begun")
@pytest.mark.parametrize("kind", ["modern", "legacy"])
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
async def test_a_task_whose_tool_was_turned_off_delivers_nothing_and_can_be_cancelled(edit: Edit, kind: str) -> None:
    server, gate = task_server(kind)
    async with gateway(config=clients(client()), edited=edit, there=server) as rig:
        ann = await knowing_of(rig, kind)
        id, other = await made(ann), await made(ann)
        assert (await ann.request("tasks/get", taskId=id)).result["status"] == "working"
        await rig.app.reload()
        gate.opened.set()
        await settle()
        for method in ("tasks/get", "tasks/result") if kind == "legacy" else ("tasks/get",):
            reply = await ann.request(method, taskId=id)
            assert reply.error["data"]["code"] == "ACCESS_DENIED" and "at last" not in str(reply.message)
        if kind == "modern":
            assert (await ann.request("tasks/update", taskId=id, inputResponses={})).error
        else:
            assert (await ann.request("tasks/list")).result["tasks"] == []
        cancelled = await ann.request("tasks/cancel", taskId=other)
        assert "ACCESS_DENIED" not in str(cancelled.message)


@pytest.mark.parametrize("kind", ["modern", "legacy"])
async def test_a_task_whose_tool_may_still_be_used_is_delivered_after_a_change(kind: str) -> None:
    server, gate = task_server(kind)
    edit = then(client(tools={"there__other": "off", "there__slow": "ask"}))
    async with gateway(config=clients(client()), edited=edit, there=server) as rig:
        ann = await knowing_of(rig, kind)
        id = await made(ann)
        await rig.app.reload()
        gate.opened.set()
        await settle()
        assert (await ann.request("tasks/get", taskId=id)).result["status"] == "completed"


@pytest.mark.parametrize("edit", [*EDITS.values(), hidden], ids=[*EDITS, "hidden"])
async def test_who_waits_for_a_result_while_its_tool_is_turned_off_does_not_get_it(edit: Edit) -> None:
    server, gate = task_server("legacy")
    async with gateway(config=clients(client()), edited=edit, there=server) as rig:
        ann = await knowing_of(rig, "legacy")
        waiting = ann.start("tasks/result", taskId=await made(ann))
        await server.got("tasks/result")
        await rig.app.reload()
        gate.opened.set()
        reply = await waiting.reply()
        assert reply.error["data"]["code"] in ("ACCESS_DENIED", "TOOL_NOT_FOUND")
        assert "at last" not in str(reply.message)


async def test_who_waits_for_a_result_gets_it_where_something_else_was_changed_meanwhile() -> None:
    server, gate = task_server("legacy")
    edit = then(client(tools={"there__other": "off", "there__slow": "ask"}))
    async with gateway(config=clients(client()), edited=edit, there=server) as rig:
        ann = await knowing_of(rig, "legacy")
        waiting = ann.start("tasks/result", taskId=await made(ann))
        await server.got("tasks/result")
        await rig.app.reload()
        gate.opened.set()
        assert "at last" in str((await waiting.reply()).result)


async def test_who_waits_for_a_result_is_asked_nothing_for_a_tool_that_was_turned_off() -> None:
    may_ask = asyncio.Event()

    async def asks(scene: Scene) -> str:
        await may_ask.wait()
        return str(await scene.ask(form("A secret?")))

    server = LegacyTaskServer({"slow": asks}, support={"slow": "optional"})
    async with gateway(config=clients(client()), edited=EDITS["off"], there=server) as rig:
        ann = await rig.legacy()
        waiting = ann.start("tasks/result", taskId=await made(ann))
        await server.got("tasks/result")
        await rig.app.reload()
        may_ask.set()
        reply = await waiting.reply()
        assert reply.error["data"]["code"] == "ACCESS_DENIED" and ann.asked == []
        (own,) = server.kept.tasks.values()
        own.cancel()


@pytest.mark.parametrize("kind", ["modern", "legacy"])
async def test_nobody_hears_of_a_task_whose_tool_was_turned_off(kind: str) -> None:
    server, gate = task_server(kind)
    edit = then(client(tools={"there__slow": "off"}))
    async with gateway(config=clients(client()), edited=edit, there=server) as rig:
        ann = await knowing_of(rig, kind)
        id = await made(ann)
        pending = ann.start("subscriptions/listen", notifications={"taskIds": [id]}) if kind == "modern" else None
        heard = pending.messages if pending else (await ann.listen()).messages
        own = server.kept.tasks["own/1"]

        async def told() -> int:
            await settle()
            connection = server.connections[0]
            (connection.tell_task if kind == "modern" else connection.tell_status)(own)
            await settle()
            return len([each for each in heard if each["method"].startswith("notifications/tasks")])

        assert await told() == 1
        await rig.app.reload()
        assert await told() == 1
        if pending:
            await pending.gone()
        gate.opened.set()
        await settle()


@pytest.mark.parametrize("kind", ["modern", "legacy"])
async def test_a_task_of_a_tool_that_was_hidden_since_delivers_nothing(kind: str) -> None:
    server, gate = task_server(kind)
    async with gateway(edited=hidden, there=server) as rig:
        ann = await knowing_of(rig, kind)
        await ann.request("tools/list")
        id = await made(ann)
        await rig.app.reload()
        await ann.request("tools/list")
        gate.opened.set()
        await settle()
        assert "at last" not in str((await ann.request("tasks/get", taskId=id)).message)


@pytest.mark.parametrize("kind", ["modern", "legacy"])
async def test_a_task_of_a_tool_that_is_in_quarantine_now_delivers_nothing(kind: str) -> None:
    server, gate = task_server(kind)
    async with gateway(config=QUARANTINE, there=server) as rig:
        ann = await knowing_of(rig, kind)
        await ann.request("tools/list")
        id = await made(ann)
        changed = [{**tool, "description": "It is another now"} for tool in server.lists["tools/list"][1]]
        server.lists["tools/list"] = ("tools", changed)
        server.connections[-1].say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await settle()
        await ann.request("tools/list")
        gate.opened.set()
        await settle()
        reply = await ann.request("tasks/get", taskId=id)
        assert "quarantine" in str(reply.message) and "at last" not in str(reply.message)


# Step-up.


def big() -> Scripted:
    return Scripted(tools_list=tools("delete", "echo"), tools_call=said("a secret line\n" * 1000))


KEPT = msgspec.structs.replace(CONFIG, limits=Limits(result_limit=500))


async def ask(app: Any, era: str, headers: dict[str, str], method: str, path: str = "/mcp", **params: Any) -> Any:
    visitor = Visitor(app, path, **headers)
    if era == MODERN:
        return await visitor.ask_modern(method, **params)
    await visitor.initialize()
    return await visitor.ask(method, **params)


def kept_in(response: Any) -> str:
    return {*re.findall(r"mcp://results/[\w-]+", str(response.messages))}.pop()


@pytest.mark.promise("b.attacks.begun")
@pytest.mark.parametrize("era", [LATEST, MODERN])
async def test_a_kept_result_of_a_tool_that_needs_a_step_up_needs_it_too(era: str, issuer: Issuer) -> None:
    few, enough = bearer(issuer.token()), bearer(issuer.token(scope="mcp write"))
    async with in_memory(config=KEPT, scripts={"there": big()}) as app:
        uri = kept_in(await ask(app, era, enough, "tools/call", name="there__delete"))
        response = await ask(app, era, few, "resources/read", uri=uri)
        assert response.status == 403 and 'scope="mcp write"' in response.headers["www-authenticate"]
        assert "a secret line" not in str(response.messages)
        read = await ask(app, era, enough, "resources/read", uri=f"{uri}?lines=1-5")
        assert "a secret line" in str(read.messages)
        uri = kept_in(await ask(app, era, few, "tools/call", name="there__echo"))
        read = await ask(app, era, few, "resources/read", uri=f"{uri}?lines=1-5")
        assert "a secret line" in str(read.messages)


@pytest.mark.parametrize("era", [LATEST, MODERN])
@pytest.mark.parametrize("query", ["", "?lines=1-5", "?bytes=0-20"])
async def test_neither_is_a_control_tool_a_way_to_it_nor_a_range_of_it(query: str, era: str, issuer: Issuer) -> None:
    path = "/mcp/all"
    few, enough = (bearer(issuer.token(aud=AUDIENCE + path, scope=scope)) for scope in ("mcp", "mcp write"))
    async with in_memory(config=KEPT, scripts={"there": big()}) as app:
        uri = kept_in(await ask(app, era, enough, "tools/call", path, name="there__delete"))
        arguments = {"server_name": "toolgate", "resource_uri": uri + query}
        read = {"name": "read_mcp_resource", "arguments": arguments}
        for method, params in (("resources/read", {"uri": uri + query}), ("tools/call", read)):
            assert "a secret" not in str((await ask(app, era, few, method, path, **params)).messages)


ELSEWHERE = ("/mcp/servers/here", "/mcp/bundles/few", "/mcp/servers/there", "/mcp/meta", "/mcp/all")


@pytest.mark.parametrize("era", [LATEST, MODERN])
@pytest.mark.parametrize("path", ELSEWHERE)
@pytest.mark.parametrize("query", ["", "?lines=1-5"])
async def test_a_kept_result_is_read_at_the_path_of_its_call_alone(
    query: str, path: str, era: str, issuer: Issuer
) -> None:
    """A token is for one path: for what another one shows, another one is needed."""
    config = msgspec.structs.replace(KEPT, bundles={"few": ("here__echo",)})
    async with in_memory(config=config, scripts={"there": big(), "here": big()}) as app:
        uri = kept_in(await ask(app, era, bearer(issuer.token()), "tools/call", name="there__echo"))
        other = bearer(issuer.token(aud=AUDIENCE + path))
        refused = await ask(app, era, other, "resources/read", path, uri=uri + query)
        assert "a secret" not in str(refused.messages)
        never = await ask(app, era, other, "resources/read", path, uri="mcp://results/none" + query)
        # Nobody learns there that it is kept.
        assert str(refused.messages).replace(uri, "mcp://results/none") == str(never.messages)
        if path in ("/mcp/meta", "/mcp/all", "/mcp/bundles/few"):
            arguments = {"server_name": "toolgate", "resource_uri": uri + query}
            read = {"name": "read_mcp_resource", "arguments": arguments}
            assert "a secret" not in str((await ask(app, era, other, "tools/call", path, **read)).messages)
        at_home = await ask(app, era, bearer(issuer.token()), "resources/read", uri=f"{uri}?lines=1-5")
        assert "a secret line" in str(at_home.messages)


@pytest.mark.parametrize("path", ["/mcp/servers/there", "/mcp/bundles/few", "/mcp/all"])
async def test_what_was_kept_at_a_path_of_less_is_not_read_where_there_is_more(path: str, issuer: Issuer) -> None:
    config = msgspec.structs.replace(KEPT, bundles={"few": ("there__echo",)})
    own = bearer(issuer.token(aud=AUDIENCE + path))
    async with in_memory(config=config, scripts={"there": big()}) as app:
        name = "echo" if path.endswith("there") else "there__echo"
        called = (
            {"name": name}
            if not path.endswith("all")
            else {
                "name": "mcp_call",
                "arguments": {"server": "there", "tool": "echo", "args": {}},
            }
        )
        uri = kept_in(await ask(app, MODERN, own, "tools/call", path, **called))
        refused = await ask(app, LATEST, bearer(issuer.token()), "resources/read", uri=f"{uri}?lines=1-5")
        assert "a secret" not in str(refused.messages)
        for era in (MODERN, LATEST):  # and whichever way its client comes in
            read = await ask(app, era, own, "resources/read", path, uri=f"{uri}?lines=1-5")
            assert "a secret line" in str(read.messages)


@pytest.mark.parametrize("era", [LATEST, MODERN])
async def test_what_came_through_a_control_tool_needs_what_that_needs(era: str, issuer: Issuer) -> None:
    path = "/mcp/all"
    auth = msgspec.structs.replace(AUTH, step_up={"toolgate__mcp_call": ("steer",)})
    few, enough = (bearer(issuer.token(aud=AUDIENCE + path, scope=scope)) for scope in ("mcp", "mcp steer"))
    async with in_memory(config=msgspec.structs.replace(KEPT, auth=auth), scripts={"there": big()}) as app:
        called = {"name": "mcp_call", "arguments": {"server": "there", "tool": "echo", "args": {}}}
        uri = kept_in(await ask(app, era, enough, "tools/call", path, **called))
        assert (await ask(app, era, few, "resources/read", path, uri=uri)).status == 403
        assert (await ask(app, era, enough, "resources/read", path, uri=f"{uri}?lines=1-5")).status == 200


async def test_a_task_of_a_tool_that_needs_a_step_up_needs_it_too(issuer: Issuer) -> None:
    task = {"taskId": "own", "status": "working", "createdAt": "2026-01-01T00:00:00Z"}
    task |= {"lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": None}
    there = Scripted(tools_list=tools("delete", execution={"taskSupport": "optional"}), tools_call={"task": task})
    there.answers["initialize"]["capabilities"]["tasks"] = {
        "list": {},
        "cancel": {},
        "requests": {"tools": {"call": {}}},
    }
    there.answers |= {"tasks/get": {**task, "status": "completed"}, "tasks/result": said("a secret line")}
    there.answers |= {"tasks/cancel": {**task, "status": "cancelled"}}
    few, enough = bearer(issuer.token()), bearer(issuer.token(scope="mcp write"))
    async with in_memory(config=CONFIG, scripts={"there": there}) as app:
        visitor = Visitor(app, **enough)
        await visitor.initialize()
        await visitor.ask("tools/list")
        made = await visitor.ask("tools/call", name="there__delete", task={"ttl": 60000})
        id = made.result["task"]["taskId"]
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            visitor.headers |= few
            refused = await visitor.ask(method, taskId=id)
            assert refused.status == 403 and "a secret" not in str(refused.messages)
            visitor.headers |= enough
            assert (await visitor.ask(method, taskId=id)).status == 200


async def test_a_key_has_no_scopes_and_reads_what_it_may_call(issuer: Issuer) -> None:
    async with in_memory(config=KEPT, scripts={"there": big()}) as app:
        ada = bearer(KEYS["ada"])
        uri = kept_in(await ask(app, MODERN, ada, "tools/call", name="there__delete"))
        read = await ask(app, MODERN, ada, "resources/read", uri=f"{uri}?lines=1-5")
        assert "a secret line" in str(read.messages)


async def test_what_was_kept_of_a_tool_that_was_hidden_since_is_not_read() -> None:
    def hide(config: Config) -> Config:
        servers = tuple(msgspec.structs.replace(each, tools={"log": Overlay(hidden=True)}) for each in config.servers)
        return msgspec.structs.replace(config, servers=servers)

    config = Config(limits=Limits(result_limit=500))
    async with gateway(config=config, edited=hide, git=LegacyServer({"log": long})) as rig:
        ann: ModernClient = rig.modern()
        (uri,) = {*re.findall(r"mcp://results/[\w-]+", (await ann.call("git__log", arguments={})).text)}
        await rig.app.reload()
        await ann.request("tools/list")
        assert "line 999" not in str((await ann.request("resources/read", uri=f"{uri}?lines=990-1000")).message)


@pytest.mark.promise("b.attacks.begun")
@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("query", ["?lines=1-5", "?bytes=0-20"])
@pytest.mark.parametrize("edit", ["off", "off by a pattern", "read only", "no server"])
async def test_a_kept_result_of_a_tool_that_was_turned_off_is_not_read(edit: str, query: str, revision: str) -> None:
    """Its client reads on as long as it may make the call, and no longer."""
    off: Edit = then(client(servers="none")) if edit == "no server" else EDITS[edit]
    config = msgspec.structs.replace(clients(client()), limits=Limits(result_limit=500))
    async with gateway(config=config, edited=off, there=LegacyServer({"slow": long})) as rig:
        ann = await rig.client(revision, path="/mcp/all")
        (uri,) = {*re.findall(r"mcp://results/[\w-]+", (await ann.call("there__slow", arguments={})).text)}
        assert "line" in str((await ann.request("resources/read", uri=uri + query)).result)
        await rig.app.reload()
        assert "Resource not found" in (await ann.request("resources/read", uri=uri + query)).error["message"]


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_kept_result_of_a_tool_that_only_reads_is_read_by_who_may_only_read(revision: str) -> None:
    there = LegacyServer({"slow": long})
    there.lists["tools/list"][1][0]["annotations"] = {"readOnlyHint": True}
    config = msgspec.structs.replace(clients(client()), limits=Limits(result_limit=500))
    async with gateway(config=config, edited=EDITS["read only"], there=there) as rig:
        ann = await rig.client(revision)
        (uri,) = {*re.findall(r"mcp://results/[\w-]+", (await ann.call("there__slow", arguments={})).text)}
        await rig.app.reload()
        assert "line 999" in str((await ann.request("resources/read", uri=f"{uri}?lines=990-1000")).message)


@pytest.mark.promise("b.attacks.begun")
@pytest.mark.parametrize("kind", ["modern", "legacy"])
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"])
async def test_an_old_id_is_that_of_no_task_once_its_server_has_used_its_own_id_for_somebody_else(
    kind: str, method: str
) -> None:
    server, gate = task_server(kind)
    async with gateway(there=server) as rig:
        ann, bob = [
            knowing(rig, name) if kind == "modern" else await rig.legacy(LATEST, name) for name in ("ann", "bob")
        ]
        old = await made(ann)
        server.kept.tasks.clear()  # as if it had been started again
        new = await made(bob)
        assert [*server.kept.tasks] == ["own/1"]
        gate.opened.set()
        await settle()
        asked = await ann.request(method, taskId=old, **({"inputResponses": {}} if method == "tasks/update" else {}))
        assert "Task not found" in asked.error["message"] or asked.error["code"] == -32601
        mine = await bob.request("tasks/get", taskId=new)
        assert mine.result["status"] == "completed"


@pytest.mark.promise("b.attacks.begun")
@pytest.mark.parametrize("is_early", [True, False])
async def test_who_watches_a_task_hears_nothing_of_somebody_elses_under_the_same_id(is_early: bool) -> None:
    server, gate = task_server("modern")
    async with gateway(there=server) as rig:
        ann, bob = knowing(rig, "ann"), knowing(rig, "bob")
        old = await made(ann)
        early = [ann.start("subscriptions/listen", notifications={"taskIds": [old]})] if is_early else []
        await settle()
        server.kept.tasks.clear()
        new = await made(bob)
        his = bob.start("subscriptions/listen", notifications={"taskIds": [new]})
        late = [] if is_early else [ann.start("subscriptions/listen", notifications={"taskIds": [old]})]
        await settle()
        gate.opened.set()
        await settle()
        (connection,) = server.connections
        connection.tell_task(server.kept.tasks["own/1"])
        await eventually(lambda: len(his.messages) > 1)
        await settle()
        assert "at last" in repr(his.messages)
        assert all("at last" not in repr(hers.messages) for hers in (*early, *late))
        for each in (*early, *late, his):
            await each.gone()


TASKS_ARE_NOT_HERS: dict[str, Permissions] = {
    "the server is off": Permissions(everything="allow", servers={"gobby-tasks": "off"}),
    "its tools are off": Permissions(everything="allow", tools={"gobby-tasks__*": "off"}),
    "its lists are off": Permissions(everything="allow", tools={"gobby-tasks__list_tasks": "off"}),
    "somebody is asked": Permissions(everything="allow", tools={"gobby-tasks__list_tasks": "ask"}),
    "all is off but hooks": Permissions(everything="off", tools={"toolgate__call_hook": "allow"}),
}


@pytest.mark.promise("b.attacks.begun")
@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("permissions", TASKS_ARE_NOT_HERS.values(), ids=TASKS_ARE_NOT_HERS)
async def test_what_a_session_hands_over_names_no_tasks_to_who_may_not_list_them(
    permissions: Permissions, revision: str
) -> None:
    config = Config(
        clients=(
            KnownClient(id="ann", name="ann", servers="all", permissions=permissions),
            KnownClient(id="bob", name="bob", servers="all", permissions=Permissions(everything="allow")),
        )
    )
    async with gateway(config=config, there=LegacyServer({})) as rig:
        bob, ann = await rig.client(revision, principal="bob"), await rig.client(revision, principal="ann")
        task = json.loads((await bob.call("gobby-tasks__create_task", arguments={"title": "secret of bob"})).text)
        await bob.call("gobby-tasks__update_task", arguments={"task_id": task["id"], "status": "in_progress"})
        for client, sees in ((bob, True), (ann, False)):
            ended = await hook(client, "SessionEnd", session_id="one", summary="mine")
            started = await hook(client, "SessionStart", session_id="two")
            assert "mine" in ended and "mine" in started
            assert ("secret of bob" in ended, "secret of bob" in started) == (sees, sees)


@pytest.mark.promise("b.attacks.begun")
async def test_what_was_handed_over_with_more_rights_names_no_tasks_to_fewer() -> None:
    fewer = Permissions(everything="allow", servers={"gobby-tasks": "off"})

    def edited(config: Config) -> Config:
        return msgspec.structs.replace(
            config, clients=(KnownClient(id="ann", name="ann", servers="all", permissions=fewer),)
        )

    config = Config(
        clients=(KnownClient(id="ann", name="ann", servers="all", permissions=Permissions(everything="allow")),)
    )
    async with gateway(config=config, edited=edited, there=LegacyServer({})) as rig:
        ann = rig.modern("ann")
        task = json.loads((await ann.call("gobby-tasks__create_task", arguments={"title": "secret"})).text)
        await ann.call("gobby-tasks__update_task", arguments={"task_id": task["id"], "status": "in_progress"})
        assert "secret" in await hook(ann, "SessionEnd", session_id="one")
        await rig.app.reload()
        started = await hook(ann, "SessionStart", session_id="two")
        assert "# Handoff" in started and "secret" not in started


async def hook(client: Any, type: str, **params: Any) -> str:
    reply = await client.call("call_hook", arguments={"hook_type": type, "params": params, "source": "codex"})
    assert json.loads(reply.text)["success"], reply.text
    return reply.text
