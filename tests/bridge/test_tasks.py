"""Long-running calls as tasks, in both forms of the protocol, and for clients that know nothing of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from official import LEGACY, MODERN, Json
from peers import (
    LATEST,
    LegacyClient,
    LegacyServer,
    ModernClient,
    ModernServer,
    Rig,
    RpcError,
    Scene,
    eventually,
    form,
    gateway,
    named,
)
from task_peers import (
    EXTENSION,
    MISSING,
    RELATED,
    WITH_EXTENSION,
    LegacyTaskServer,
    ModernTaskServer,
    Task,
    _LegacyTaskConnection,
)
from virtualtime import FakeClock, settle

from toolgate.app import DRAIN
from toolgate.config import CatalogLimits, Config, Server
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Outcome, Principal, Required
from toolgate.core.redaction import GONE
from toolgate.eras.tasks import LEAST_LASTS
from toolgate.policy.base import Policy
from toolgate.state.memory import MemoryStore
from toolgate.upstreams.inprocess.tools import InProcessTools
from toolgate.upstreams.inprocess.upstream import InProcessUpstream
from toolgate.upstreams.mcp.made_tasks import MOST_TASKS
from toolgate.upstreams.mcp.requests import GIVEN_UP
from toolgate.upstreams.mcp.tasks import LOOK, LOOKS, LOOKS_AT_ONCE

WAIT = 3600 * 1000


class Gate:
    """A script that goes on when the test says so."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def __call__(self, scene: Scene) -> Any:
        await self.opened.wait()
        return {
            "content": [
                {"type": "text", "text": "at last"},
                {"type": "resource_link", "name": "page", "uri": "mem://page"},
            ]
        }


async def ask_name(scene: Scene) -> str:
    answer = await scene.ask(form())
    return f"{answer['action']}: {answer['content']['name']}"


async def fail(scene: Scene) -> str:
    raise RpcError(-32010, "it cannot be done", {"why": "so"})


async def plain(scene: Scene) -> str:
    return "just so"


def knowing(rig: Rig, principal: str = "ann", **more: Any) -> ModernClient:
    return rig.modern(principal, capabilities=WITH_EXTENSION, **more)


@asynccontextmanager
async def modern_server(**more: Any) -> AsyncGenerator[tuple[Rig, ModernTaskServer, Gate]]:
    gate = Gate()
    scripts = {"slow": gate, "ask": ask_name, "fail": fail, "plain": plain}
    server = ModernTaskServer(scripts, as_tasks=("slow", "ask", "fail"), **more)
    async with gateway(there=server) as rig:
        yield rig, server, gate


@asynccontextmanager
async def legacy_server(support: str = "optional", **more: Any) -> AsyncGenerator[tuple[Rig, LegacyTaskServer, Gate]]:
    gate = Gate()
    scripts = {"slow": gate, "ask": ask_name, "fail": fail, "plain": plain, **more.pop("scripts", {})}
    plainly = {"plain", *more.pop("plain", ())}
    kinds = {name: support for name in scripts if name not in plainly}
    server = LegacyTaskServer(scripts, support=kinds, **more)
    async with gateway(there=server) as rig:
        yield rig, server, gate


async def made(client: ModernClient | LegacyClient, name: str = "there__slow", **more: Any) -> str:
    """The id of a new task."""
    if isinstance(client, ModernClient):
        result = (await client.call(name, **more)).result
        assert result["resultType"] == "task"
        return result["taskId"]
    return (await client.call(name, task={"ttl": WAIT}, **more)).result["task"]["taskId"]


# The extension, end to end.


@pytest.mark.promise("spec.2026.tasks.relayed")
@pytest.mark.parametrize("stdio", [False, True])
async def test_a_modern_client_polls_the_task_of_a_modern_server_to_its_result(stdio: bool) -> None:
    async with modern_server() as (rig, server, gate):
        client = knowing(rig, stdio=stdio)
        id = await made(client)
        assert id not in server.kept.tasks
        working = (await client.request("tasks/get", taskId=id)).result
        assert (working["taskId"], working["status"], working["resultType"]) == (id, "working", "complete")
        gate.opened.set()
        await settle()
        done = (await client.request("tasks/get", taskId=id)).result
        assert (done["taskId"], done["status"]) == (id, "completed")
        assert done["result"]["content"][1]["uri"] == "there+mem://page"


@pytest.mark.promise("spec.2026.tasks.relayed")
async def test_on_the_view_of_one_server_nothing_but_the_id_is_another() -> None:
    async with modern_server() as (rig, server, gate):
        client = knowing(rig, path="/mcp/servers/there")
        id = await made(client, "slow")
        gate.opened.set()
        await settle()
        done = (await client.request("tasks/get", taskId=id)).result
        assert done == {"resultType": "complete", **server.shown(server.kept.tasks["own/1"]), "taskId": id}


@pytest.mark.promise("spec.2026.tasks.update")
async def test_what_a_task_asks_is_answered_by_update() -> None:
    async with modern_server() as (rig, _, _):
        client = knowing(rig)
        id = await made(client, "there__ask")
        asked = (await client.request("tasks/get", taskId=id)).result
        assert asked["status"] == "input_required"
        (key,) = asked["inputRequests"]
        answered = await client.request("tasks/update", taskId=id, inputResponses={key: named("Ann")})
        assert answered.result == {"resultType": "complete"}
        await settle()
        done = (await client.request("tasks/get", taskId=id)).result
        assert done["result"]["content"][0]["text"] == "accept: Ann"


@pytest.mark.promise("spec.2026.tasks.relayed")
async def test_a_task_is_cancelled_at_its_server() -> None:
    async with modern_server() as (rig, server, _):
        client = knowing(rig)
        id = await made(client)
        assert (await client.request("tasks/cancel", taskId=id)).result == {"resultType": "complete"}
        assert server.kept.tasks["own/1"].status == "cancelled"
        assert (await client.request("tasks/get", taskId=id)).result["status"] == "cancelled"


@pytest.mark.promise("spec.2026.tasks.relayed")
async def test_a_failed_task_shows_its_error() -> None:
    async with modern_server() as (rig, _, _):
        client = knowing(rig)
        id = await made(client, "there__fail")
        await settle()
        failed = (await client.request("tasks/get", taskId=id)).result
        assert failed["error"] == {"code": -32010, "message": "it cannot be done", "data": {"why": "so"}}


@pytest.mark.promise("spec.2026.tasks.ids")
async def test_a_task_has_one_id_however_often_it_is_told_of() -> None:
    async with modern_server() as (rig, _, gate):
        client = knowing(rig)
        first, second = await made(client), await made(client)
        assert first != second
        told = [(await client.request("tasks/get", taskId=first)).result["taskId"] for _ in range(3)]
        assert set(told) == {first}
        gate.opened.set()
        await settle()


@pytest.mark.promise("spec.2026.tasks.capability")
async def test_the_extension_is_declared_to_a_server_for_the_requests_of_those_who_declare_it_only() -> None:
    async with modern_server() as (rig, server, _):
        capabilities = (await knowing(rig).request("server/discover")).result["capabilities"]
        assert capabilities["extensions"] == {EXTENSION: {}}
        await knowing(rig).call("there__plain")
        await rig.modern().call("there__plain")
        declared = [
            "extensions" in call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
            for call in server.requests("tools/call")
        ]
        assert declared == [True, False]


@pytest.mark.promise("spec.2026.tasks.missing")
async def test_a_client_that_does_not_declare_the_extension_is_told_so() -> None:
    async with modern_server() as (rig, _, gate):
        id = await made(knowing(rig))
        other = rig.modern()
        for method, more in [("tasks/get", {}), ("tasks/update", {"inputResponses": {}}), ("tasks/cancel", {})]:
            reply = await other.request(method, taskId=id, **more)
            assert (reply.error["code"], reply.status) == (-32021, 400)
            assert reply.error["data"]["requiredCapabilities"] == MISSING["requiredCapabilities"]
        listening = await other.request("subscriptions/listen", notifications={"taskIds": [id]})
        assert listening.error["code"] == -32021
        gate.opened.set()
        await settle()


@pytest.mark.promise("spec.2026.tasks.missing")
async def test_a_server_that_refuses_without_the_extension_is_relayed_in_the_words_of_each_era() -> None:
    async with modern_server() as (rig, _, _):
        refused = await rig.modern().call("there__slow")
        assert (refused.error["code"], refused.error["data"]) == (-32021, MISSING)
        for revision in LEGACY:
            old = await rig.legacy(revision)
            assert (await old.call("there__slow")).error["code"] == -32603


@pytest.mark.promise("spec.2026.tasks.missing")
async def test_a_handshake_client_cannot_declare_the_extension() -> None:
    async with modern_server() as (rig, _, _):
        old = await rig.legacy(capabilities=WITH_EXTENSION)
        assert (await old.call("there__slow")).error["code"] == -32603


async def test_a_task_for_a_client_that_cannot_have_one_is_a_fault_of_the_server() -> None:
    async def task(scene: Scene) -> bytes:
        return b'{"resultType":"task","taskId":"x","status":"working","createdAt":"","lastUpdatedAt":"","ttlMs":null}'

    async with gateway(there=ModernServer({"bad": task}, prompts={"bad": task})) as rig:
        assert (await rig.modern().call("there__bad")).error["code"] == -32603
        assert (await knowing(rig).request("prompts/get", name="there__bad")).error["code"] == -32603
        assert (await knowing(rig).call("there__bad")).result["resultType"] == "task"


@pytest.mark.promise("spec.2026.tasks.header")
async def test_the_header_repeats_the_id_of_the_task() -> None:
    async with modern_server() as (rig, _, gate):
        client = knowing(rig)
        id, other = await made(client), await made(client)
        pending = client.start("tasks/get", taskId=id)
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tasks/get", "accept": client.accept}
        for wrong in ({}, {"mcp-name": other}):
            request = client.wire._post(pending.message | {"id": "x"}, headers | wrong, lambda _data: None)
            await request.task
            assert request.status == 400
            assert msgspec.json.decode(request.body)["error"]["code"] == -32020
        await pending.reply()
        gate.opened.set()
        await settle()


# Notifications of the extension.


@pytest.mark.promise("spec.2026.tasks.notifications")
async def test_a_client_hears_of_the_tasks_that_it_names_and_are_its_own() -> None:
    async with modern_server() as (rig, server, gate):
        ann, bob = knowing(rig), knowing(rig, "bob")
        hers, his = await made(ann), await made(bob)
        hearing = ann.start("subscriptions/listen", notifications={"taskIds": [hers, his, "own/2"]})
        await eventually(lambda: hearing.messages)
        assert hearing.messages[0]["params"]["notifications"] == {"taskIds": [hers]}
        (connection,) = server.connections
        gate.opened.set()
        await settle()
        for task in server.kept.tasks.values():
            connection.tell_task(task)
        await eventually(lambda: len(hearing.messages) > 1)
        await settle()
        told = [message["params"] for message in hearing.messages[1:]]
        assert [(params["taskId"], params["status"]) for params in told] == [(hers, "completed")]
        assert told[0]["result"]["content"][1]["uri"] == "there+mem://page"
        await hearing.gone()
        listens = server.requests("subscriptions/listen")
        assert listens[-1]["params"]["notifications"] == {"taskIds": ["own/1"]}


async def test_what_says_in_no_shape_of_which_hop_it_is_is_told_to_nobody() -> None:
    async with modern_server() as (rig, server, gate):
        ann = knowing(rig)
        hearing = ann.start("subscriptions/listen", notifications={"taskIds": [await made(ann)]})
        await eventually(lambda: hearing.messages)
        (connection,), (task,) = server.connections, server.kept.tasks.values()
        for meta in (7, None, [], "x"):
            params = {**server.shown(task), "_meta": meta}
            connection.say({"jsonrpc": "2.0", "method": "notifications/tasks", "params": params})
        connection.tell_task(task)
        await settle()
        assert len(hearing.messages) == 3, "null is none"
        gate.opened.set()
        await hearing.gone()


# Whose a task is.


def _changed(id: str) -> str:
    middle = len(id) // 2
    return id[:middle] + ("A" if id[middle] != "A" else "B") + id[middle + 1 :]


@pytest.mark.promise("spec.2026.tasks.isolation")
async def test_another_principal_another_path_and_a_changed_byte_find_no_task() -> None:
    async with modern_server() as (rig, server, gate):
        id = await made(knowing(rig))
        tries = [
            (knowing(rig, "bob"), id),
            (knowing(rig, path="/mcp/servers/there"), id),
            (knowing(rig), _changed(id)),
            (knowing(rig), "own/1"),
        ]
        for client, given in tries:
            for method, more in [("tasks/get", {}), ("tasks/update", {"inputResponses": {}}), ("tasks/cancel", {})]:
                error = (await client.request(method, taskId=given, **more)).error
                assert (error["code"], error["message"]) == (-32602, "Task not found")
        assert not server.requests("tasks/get") and not server.requests("tasks/cancel")
        gate.opened.set()
        await settle()


@pytest.mark.promise("spec.legacy.tasks.isolation")
async def test_on_a_shared_server_of_2025_another_principal_neither_gets_lists_cancels_nor_hears_of_a_task() -> None:
    async with legacy_server() as (rig, server, gate):
        ann, bob = await rig.legacy(), await rig.legacy(principal="bob")
        heard, overheard = (await ann.listen()).messages, (await bob.listen()).messages
        id = await made(ann)
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            assert (await bob.request(method, taskId=id)).error["code"] == -32602
        assert (await bob.request("tasks/list")).result["tasks"] == []
        assert [task["taskId"] for task in (await ann.request("tasks/list")).result["tasks"]] == [id]
        server.connections[0].tell_status(server.kept.tasks["own/1"])
        await eventually(lambda: heard)
        assert heard[0]["method"] == "notifications/tasks/status"
        assert heard[0]["params"] == {**server.shown(server.kept.tasks["own/1"]), "taskId": id}
        gate.opened.set()
        await settle()
        assert not overheard


async def test_one_client_that_makes_many_tasks_has_its_own_forgotten_and_no_others() -> None:
    async with legacy_server() as (rig, _server, gate):
        ann, eve = await rig.legacy(), await rig.legacy(principal="eve")
        await ann.request("tools/call", name="slow", task={})
        for _ in range(MOST_TASKS + 1):
            await eve.request("tools/call", name="slow", task={})
        assert len((await ann.request("tasks/list")).result["tasks"]) == 1
        upstream = rig.app.gateway.snapshot.upstreams["there"]
        assert len(await upstream.tasks(Client(Principal("eve")))) == MOST_TASKS
        gate.opened.set()


@pytest.mark.promise("spec.legacy.tasks.isolation")
async def test_a_tasks_question_never_reaches_a_client_that_did_not_make_it() -> None:
    async def ask_at_once(scene: Scene) -> str:
        scene.asks_early = True
        return await ask_name(scene)

    busy = Gate()
    async with legacy_server(scripts={"early": ask_at_once, "busy": busy}) as (rig, server, _):
        ann, bob = (
            await rig.legacy(),
            await rig.legacy(principal="bob", answers={"elicitation/create": named("Bob")}),
        )
        pending = bob.start("tools/call", name="there__busy")
        await server.got("tools/call")
        id = await made(ann, "there__early")
        await settle()
        assert not bob.asked and not server.answers
        result = ann.start("tasks/result", taskId=id)
        ann.answer(await ann.question(), named("Ann"))
        assert (await result.reply()).text == "accept: Ann"
        busy.opened.set()
        await pending.reply()
        assert not bob.asked


# Tasks of 2025-11-25, end to end.


@pytest.mark.promise("spec.legacy.tasks.relayed")
@pytest.mark.parametrize("stdio", [False, True])
async def test_a_client_of_2025_runs_a_tool_of_such_a_server_as_a_task(stdio: bool) -> None:
    async with legacy_server(poll=500) as (rig, server, gate):
        client = await rig.legacy(stdio=stdio)
        created = (await client.call("there__slow", task={"ttl": 60000})).result["task"]
        assert server.requests("tools/call")[0]["params"]["task"] == {"ttl": 60000}
        id = created["taskId"]
        assert created == {**server.shown(server.kept.tasks["own/1"]), "taskId": id}
        assert (await client.request("tasks/get", taskId=id)).result == created
        waiting = client.start("tasks/result", taskId=id)
        await rig.clock.advance(7200)
        assert not waiting.is_answered
        gate.opened.set()
        result = (await waiting.reply()).result
        assert result["content"][1]["uri"] == "there+mem://page"
        assert result["_meta"] == {RELATED: {"taskId": id}}


@pytest.mark.promise("spec.legacy.tasks.relayed")
async def test_the_error_of_a_task_is_the_error_of_its_result() -> None:
    async with legacy_server() as (rig, _, _):
        client = await rig.legacy()
        id = await made(client, "there__fail")
        assert (await client.request("tasks/result", taskId=id)).error["code"] == -32010


@pytest.mark.promise("spec.legacy.tasks.relayed")
async def test_a_task_of_2025_is_cancelled_once() -> None:
    async with legacy_server() as (rig, server, _):
        client = await rig.legacy()
        id = await made(client)
        assert (await client.request("tasks/cancel", taskId=id)).result["status"] == "cancelled"
        assert server.kept.tasks["own/1"].status == "cancelled"
        assert (await client.request("tasks/cancel", taskId=id)).error["code"] == -32602


@pytest.mark.promise("spec.legacy.tasks.related")
async def test_a_tasks_question_comes_with_the_clients_id_of_it_and_its_answer_with_the_servers() -> None:
    async with legacy_server() as (rig, server, _):
        client = await rig.legacy()
        id = await made(client, "there__ask")
        result = client.start("tasks/result", taskId=id)
        question = await client.question()
        assert question["params"]["_meta"] == {RELATED: {"taskId": id}}
        client.answer(question, {**named("Ann"), "_meta": {RELATED: {"taskId": id}}})
        assert (await result.reply()).text == "accept: Ann"
        assert server.answers[0]["result"]["_meta"] == {RELATED: {"taskId": "own/1"}}


@pytest.mark.promise("spec.legacy.tasks.relayed")
async def test_a_client_that_stops_waiting_for_a_result_may_wait_again() -> None:
    async with legacy_server() as (rig, server, gate):
        client = await rig.legacy()
        id = await made(client)
        waiting = client.start("tasks/result", taskId=id)
        await server.got("tasks/result")
        client.cancel(waiting)
        await server.got("notifications/cancelled")
        assert server.kept.tasks["own/1"].status == "working"
        gate.opened.set()
        assert (await client.request("tasks/result", taskId=id)).result["content"][0]["text"] == "at last"


async def test_a_client_that_comes_back_after_a_restart_finds_its_tasks_and_nobody_elses() -> None:
    gate, store = Gate(), MemoryStore(FakeClock())
    server = LegacyTaskServer({"slow": gate}, support={"slow": "optional"})
    async with gateway(store=store, there=server) as rig:
        id = await made(await rig.legacy())
        await made(bob := await rig.legacy(principal="bob"))
        [of_bob] = (await bob.request("tasks/list")).result["tasks"]
        gate.opened.set()
    async with gateway(store=store, there=server) as rig:
        ann, bob = await rig.legacy(), await rig.legacy(principal="bob")
        assert (await ann.request("tasks/get", taskId=id)).result["status"] == "completed"
        assert [task["taskId"] for task in (await ann.request("tasks/list")).result["tasks"]] == [id]
        assert (await bob.request("tasks/get", taskId=id)).error["code"] == -32602
        result = (await ann.request("tasks/result", taskId=id)).result
        assert result["content"][0]["text"] == "at last"
        del server.kept.tasks["own/2"]
        assert (await bob.request("tasks/list")).result["tasks"] == []
        assert (await bob.request("tasks/get", taskId=of_bob["taskId"])).error["code"] == -32602
    by = Server(id="there", name="there", type="stdio", command="there").print
    assert [*store.items(f"task owners/there/{by}/")] == ["own/1"]


def by_another_program(config: Config) -> Config:
    return msgspec.structs.replace(config, servers=(msgspec.structs.replace(config.servers[0], args=("other",)),))


async def test_another_program_with_the_name_of_a_tasks_server_is_not_sent_what_its_user_answers() -> None:
    gate = Gate()
    server = ModernTaskServer({"slow": gate}, as_tasks=("slow",))
    async with gateway(there=server, edited=by_another_program) as rig:
        client = knowing(rig)
        id = await made(client)
        await client.request("tasks/get", taskId=id)
        await rig.app.reload()
        seen = len(server.requests("tasks/get"))
        for request in (
            client.request("tasks/update", taskId=id, inputResponses={"key": named("Ann")}),
            client.request("tasks/get", taskId=id),
            client.request("tasks/cancel", taskId=id),
        ):
            assert (await request).error["code"] == -32602
        assert not server.requests("tasks/update") and not server.requests("tasks/cancel")
        assert len(server.requests("tasks/get")) == seen
        gate.opened.set()
        await rig.clock.advance(DRAIN)


async def test_another_program_with_the_name_of_a_tasks_server_does_not_list_the_task() -> None:
    gate = Gate()
    server = LegacyTaskServer({"slow": gate}, support={"slow": "optional"})
    store = MemoryStore(FakeClock())
    async with gateway(there=server, edited=by_another_program, store=store) as rig:
        client = await rig.legacy()
        id = await made(client)
        assert len((await client.request("tasks/list")).result["tasks"]) == 1
        await rig.app.reload()
        assert (await client.request("tasks/list")).result["tasks"] == []
        assert (await client.request("tasks/get", taskId=id)).error["code"] == -32602
        gate.opened.set()
        await rig.clock.advance(DRAIN)


class _MuteOfTasks(_LegacyTaskConnection):
    is_mute = True

    def _asked_about(self, task: Any, message: Any) -> None:
        if message["method"] != "tasks/get" or not self.is_mute:
            super()._asked_about(task, message)


async def test_a_server_that_does_not_tell_of_its_tasks_delays_no_list_for_long() -> None:
    """On an open gateway all programs of a machine have one list of tasks."""
    gate = Gate()
    mute, other = (LegacyTaskServer({"slow": gate}, support={"slow": "optional"}) for _ in range(2))
    mute.connection = _MuteOfTasks
    async with gateway(mute=mute, other=other) as rig:
        ann = await rig.legacy()
        await made(ann, "mute__slow")
        id = await made(ann, "other__slow")
        for patience in (LOOK, 0.0):
            listing = ann.start("tasks/list")
            await settle()
            await rig.clock.advance(patience)
            found = (await listing.reply()).result
            assert [task["taskId"] for task in found["tasks"]] == [id]
            assert [each["server_id"] for each in found["_meta"]["failures"]] == ["mute"]
        for connection in mute.connections:
            connection.is_mute = False  # type: ignore[attr-defined]
        gate.opened.set()
        await rig.clock.advance(100)


async def test_a_server_that_was_silent_for_one_client_is_asked_for_others_and_again_once_it_answers() -> None:
    gate = Gate()
    there = LegacyTaskServer({"slow": gate}, support={"slow": "optional"})
    there.connection = _MuteOfTasks
    async with gateway(there=there) as rig:
        ann, bob = await rig.legacy(principal="ann"), await rig.legacy(principal="bob")
        of_ann, of_bob = await made(ann, "there__slow"), await made(bob, "there__slow")
        listing = ann.start("tasks/list")
        await settle()
        await rig.clock.advance(LOOK)
        assert (await listing.reply()).result["tasks"] == []
        for connection in there.connections:
            connection.is_mute = False  # type: ignore[attr-defined]
        assert [task["taskId"] for task in (await bob.request("tasks/list")).result["tasks"]] == [of_bob]
        assert (await ann.request("tasks/list")).result["tasks"] == []
        await ann.request("tasks/get", taskId=of_ann)
        assert [task["taskId"] for task in (await ann.request("tasks/list")).result["tasks"]] == [of_ann]
        gate.opened.set()
        await rig.clock.advance(100)


async def test_a_list_of_tasks_that_has_waited_starts_no_server_that_was_removed_meanwhile() -> None:
    def removed(config: Config) -> Config:
        return msgspec.structs.replace(config, servers=config.servers[1:])

    gate = Gate()
    there, mute = (LegacyTaskServer({"slow": gate}, support={"slow": "optional"}) for _ in range(2))
    mute.connection = _MuteOfTasks
    async with gateway(there=there, mute=mute, edited=removed) as rig:
        ann = await rig.legacy()
        await made(ann, "there__slow")
        await made(ann, "mute__slow")
        old = rig.app.gateway.snapshot.upstreams["there"]
        _, waiting = ann.start("tasks/list"), ann.start("tasks/list")
        await settle()
        await rig.app.reload()
        await rig.clock.advance(LOOK)
        assert (await waiting.reply()).result["tasks"] == []
        await rig.clock.advance(DRAIN)
        with pytest.raises(Fault, match="stopped"):
            await old.tasks(Client(Principal("ann")))
        assert len(there.connections) == 1 and there.open_connections == []
        mute.connections[0].is_mute = False
        gate.opened.set()
        await rig.clock.advance(100)


class _SlowOfTasks(_LegacyTaskConnection):
    def _asked_about(self, task: Any, message: Any) -> None:
        self.server.clock.call_later(LOOK - 0.1, lambda: super(_SlowOfTasks, self)._asked_about(task, message))


async def test_a_server_that_takes_long_for_each_task_delays_no_list_for_long() -> None:
    gate = Gate()
    there = LegacyTaskServer({"slow": gate}, support={"slow": "optional"})
    there.connection = _SlowOfTasks
    async with gateway(there=there) as rig:
        there.clock = rig.clock  # type: ignore[attr-defined]
        ann = await rig.legacy()
        for _ in range(5 * LOOKS_AT_ONCE):
            await made(ann, "there__slow")
        listing = ann.start("tasks/list")
        await settle()
        await rig.clock.advance(LOOKS)
        found = (await listing.reply()).result
        assert [each["server_id"] for each in found["_meta"]["failures"]] == ["there"]
        gate.opened.set()
        await rig.clock.advance(100)


@pytest.mark.promise("spec.legacy.tasks.list")
@pytest.mark.parametrize("offered", [{"list": {}}, {}])
async def test_the_tasks_of_all_servers_are_one_list_in_pages(offered: Json) -> None:
    tasks = {**offered, "cancel": {}, "requests": {"tools": {"call": {}}}}
    gate = Gate()
    servers = {id: LegacyTaskServer({"slow": gate}, support={"slow": "optional"}, tasks=tasks) for id in ("one", "two")}
    async with gateway(catalog=CatalogLimits(page_size=3), **servers) as rig:
        ann, bob = await rig.legacy(), await rig.legacy(principal="bob")
        ids = [await made(ann, f"{server}__slow") for server in ("one", "one", "two", "two")]
        await made(bob, "two__slow")
        first = (await ann.request("tasks/list")).result
        rest = (await ann.request("tasks/list", cursor=first["nextCursor"])).result
        assert [task["taskId"] for task in first["tasks"] + rest["tasks"]] == ids
        assert "nextCursor" not in rest
        assert (await bob.request("tasks/list", cursor=first["nextCursor"])).error["code"] == -32602
        del servers["one"].kept.tasks["own/1"]
        left = (await ann.request("tasks/list")).result["tasks"]
        assert [task["taskId"] for task in left] == ids[1:]
        gate.opened.set()
        await settle()


@pytest.mark.promise("spec.legacy.tasks.capability")
async def test_tasks_are_offered_in_the_form_of_each_revision_and_by_a_server_that_has_them() -> None:
    server = LegacyTaskServer({"slow": plain}, support={"slow": "optional"})
    async with gateway(there=server, other=LegacyServer({"plain": plain})) as rig:
        for revision in LEGACY:
            client = await rig.legacy(revision)
            offered = (await client.initialize()).result["capabilities"]
            assert ("tasks" in offered) == (revision == LATEST)
            assert "extensions" not in offered
        assert offered["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        alone = await rig.legacy(path="/mcp/servers/other")
        assert "tasks" not in (await alone.initialize()).result["capabilities"]
        assert (await alone.request("tasks/list")).error["code"] == -32601
        found = (await rig.modern().request("server/discover")).result["capabilities"]
        assert "tasks" not in found and found["extensions"] == {EXTENSION: {}}
        there = (await rig.modern(path="/mcp/servers/there").request("server/discover")).result["capabilities"]
        assert "tasks" not in there and "extensions" not in there


@pytest.mark.promise("spec.legacy.tasks.capability")
async def test_a_server_that_is_still_starting_may_have_tasks() -> None:
    class Slow(LegacyServer):
        async def make_link(self, *more: Any) -> Any:
            await asyncio.sleep(50)
            return await super().make_link(*more)

    async with gateway(there=Slow({"plain": plain}), up=ModernServer({"plain": plain})) as rig:
        for path in ("/mcp", "/mcp/servers/there"):
            info = {"name": "scripted", "version": "1"}
            first = rig.legacy_stranger(path=path).start(
                "initialize", protocolVersion=LATEST, capabilities={}, clientInfo=info
            )
            await rig.clock.advance(10)
            offered = (await first.reply()).result["capabilities"]
            assert offered["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        await rig.clock.advance(50)
        alone = await rig.legacy(path="/mcp/servers/there")
        assert "tasks" not in (await alone.initialize()).result["capabilities"]


@pytest.mark.promise("spec.legacy.tasks.refused")
async def test_a_tool_that_does_not_run_as_a_task_says_so() -> None:
    servers = {
        "able": LegacyTaskServer(
            {"slow": plain, "plain": plain, "never": plain}, support={"slow": "optional", "never": "forbidden"}
        ),
        "old": LegacyServer({"plain": plain}, revision="2025-06-18"),
        "new": ModernServer({"plain": plain}),
    }
    async with gateway(**servers) as rig:
        client = await rig.legacy()
        for name in ("able__plain", "able__never", "old__plain", "new__plain"):
            assert (await client.call(name, task={})).error["code"] == -32601, name
            assert (await client.call(name)).text == "just so"
        assert not any("task" in call["params"] for server in servers.values() for call in server.calls)


@pytest.mark.promise("spec.legacy.tasks.refused")
async def test_where_no_tasks_are_offered_the_wish_for_one_is_ignored() -> None:
    async with gateway(
        there=ModernServer({"plain": plain}), able=LegacyTaskServer({"x": plain}, support={"x": "optional"})
    ) as rig:
        client = await rig.legacy(path="/mcp/servers/there")
        assert (await client.call("plain", task={})).text == "just so"
        older = await rig.legacy("2025-06-18")
        assert (await older.call("able__x", task={})).text == "just so"
        assert (await rig.modern().call("able__x", task={})).text == "just so"


async def test_a_task_of_one_form_is_none_of_the_other() -> None:
    async with legacy_server() as (rig, _, gate):
        id = await made(await rig.legacy())
        assert (await knowing(rig).request("tasks/get", taskId=id)).error["code"] == -32602
        gate.opened.set()
        await settle()


@pytest.mark.promise("spec.legacy.tasks.related")
@pytest.mark.parametrize("stdio", [False, True])
async def test_a_task_reports_by_the_token_of_the_call_that_made_it(stdio: bool) -> None:
    gate = Gate()

    async def report(scene: Scene) -> Any:
        await gate.opened.wait()
        scene.progress(1)
        return "reported"

    async with legacy_server(scripts={"report": report}) as (rig, _, _):
        client = await rig.legacy(stdio=stdio)
        heard = [] if stdio else (await client.listen()).messages
        id = await made(client, "there__report", meta={"progressToken": "p"})
        result = client.start("tasks/result", taskId=id)
        gate.opened.set()
        reply = await result.reply()
        told = reply.notes("notifications/progress") if stdio else [message["params"] for message in heard]
        assert told == [{"progressToken": "p", "progress": 1, "_meta": {RELATED: {"taskId": id}}}]


@pytest.mark.promise("spec.legacy.tasks.related")
async def test_what_a_task_logs_goes_to_who_waits_for_it() -> None:
    async def talk(scene: Scene) -> str:
        await scene.task.waited_for.wait()
        meta = {RELATED: {"taskId": scene.task.id}}
        params = {"level": "info", "data": "half way", "_meta": meta}
        scene.connection.say({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
        return "said"

    busy = Gate()
    async with legacy_server(scripts={"talk": talk, "busy": busy}) as (rig, server, _):
        ann, bob = await rig.legacy(), await rig.legacy(principal="bob")
        other = bob.start("tools/call", name="there__busy")
        await server.got("tools/call")
        id = await made(ann, "there__talk")
        reply = await ann.request("tasks/result", taskId=id)
        meta = {RELATED: {"taskId": id}}
        assert reply.notes("notifications/message") == [{"level": "info", "data": "half way", "_meta": meta}]
        busy.opened.set()
        assert not (await other.reply()).before


@pytest.mark.promise("spec.legacy.tasks.isolation")
@pytest.mark.parametrize("support", ["optional", "required"])
async def test_while_a_task_of_another_runs_what_names_no_task_reaches_nobody(support: str) -> None:
    """The Python SDK's own tasks log without a word of their task."""

    async def tell(scene: Scene) -> str:
        params = {"level": "info", "data": "of bob, or of the task?"}
        scene.connection.say({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
        return "told"

    scripts = {"plainly_ask": ask_name, "plainly_tell": tell}
    async with legacy_server(support, scripts=scripts, plain=scripts) as (rig, server, gate):
        ann, bob = await rig.legacy(), await rig.legacy(principal="bob", answers={"elicitation/create": named("Bob")})
        if support == "optional":
            id = await made(ann)
            over = ann.start("tasks/result", taskId=id)
        else:
            over = ann.start("tools/call", name="there__slow")
        await server.got("tasks/result")
        reply = await bob.call("there__plainly_tell")
        assert reply.text == "told" and not reply.before
        refused = await bob.call("there__plainly_ask")
        assert "A task of another client is in progress" in json.dumps(refused.message) and not bob.asked
        gate.opened.set()
        await over.reply()
        assert (await bob.call("there__plainly_ask")).text == "accept: Bob"
        assert (await bob.call("there__plainly_tell")).notes("notifications/message")
        assert not ann.asked


async def test_that_a_task_is_over_is_found_out_when_it_matters() -> None:
    async with legacy_server(scripts={"plainly_ask": ask_name}, plain=["plainly_ask"]) as (rig, _, gate):
        ann, bob = await rig.legacy(), await rig.legacy(principal="bob", answers={"elicitation/create": named("Bob")})
        await made(ann)
        gate.opened.set()
        await settle()
        assert (await bob.call("there__plainly_ask")).text == "accept: Bob"  # nobody had asked what became of the task


@pytest.mark.parametrize("how", ["cancelled", "forgotten"])
async def test_a_task_of_which_no_end_is_known_may_ask_as_long_as_it_could_run(how: str) -> None:
    """The Python SDK goes on with the work of a task that was cancelled, and forgets one when its ttl is over."""
    async with legacy_server(scripts={"plainly_ask": ask_name}, plain=["plainly_ask"]) as (rig, server, gate):
        ann, bob = await rig.legacy(), await rig.legacy(principal="bob", answers={"elicitation/create": named("Bob")})
        id = await made(ann)
        if how == "cancelled":
            await ann.request("tasks/cancel", taskId=id)
        else:
            server.kept.tasks.clear()
            assert (await ann.request("tasks/get", taskId=id)).error
        for _ in range(2):
            refused = await bob.call("there__plainly_ask")
            assert "A task of another client is in progress" in json.dumps(refused.message) and not bob.asked
            await rig.clock.advance(GIVEN_UP)
        await rig.clock.advance(LEAST_LASTS)
        bob = await rig.legacy(principal="bob", answers={"elicitation/create": named("Bob")})
        assert (await bob.call("there__plainly_ask")).text == "accept: Bob"
        gate.opened.set()
        await settle()


async def test_a_task_whose_maker_goes_away_before_it_is_made_is_cancelled_when_it_is() -> None:
    async with legacy_server(scripts={"plainly_ask": ask_name}, plain=["plainly_ask"]) as (rig, server, _):
        server.makes.clear()
        ann, bob = await rig.legacy(), await rig.legacy(principal="bob", answers={"elicitation/create": named("Bob")})
        pending = ann.start("tools/call", name="there__slow", task={"ttl": WAIT})
        await server.got("tools/call")
        ann.cancel(pending)
        await settle()
        assert not server.cancelled  # that is no way to cancel what may be a task already
        server.makes.set()
        await server.got("tasks/cancel")
        refused = await bob.call("there__plainly_ask")
        assert "A task of another client is in progress" in json.dumps(refused.message) and not bob.asked


@pytest.mark.parametrize("support", ["optional", "required"])
async def test_a_task_that_is_made_when_its_call_is_over_is_cancelled(support: str) -> None:
    """Its call has timed out, or was for a client that wants no task and has gone away."""
    async with legacy_server(support, scripts={"plainly_ask": ask_name}, plain=["plainly_ask"]) as (rig, server, _):
        server.makes.clear()
        ann, bob = await rig.legacy(), await rig.legacy(principal="bob", answers={"elicitation/create": named("Bob")})
        pending = ann.start(
            "tools/call", name="there__slow", **({"task": {"ttl": WAIT}} if support == "optional" else {})
        )
        await server.got("tools/call")
        if support == "optional":
            await rig.clock.advance(60)
            assert (await pending.reply()).error
        else:
            ann.cancel(pending)
        await rig.clock.advance(GIVEN_UP + 1)
        server.makes.set()
        await server.got("tasks/cancel")
        refused = await bob.call("there__plainly_ask")
        assert "A task of another client is in progress" in json.dumps(refused.message) and not bob.asked


# Tools that run as tasks only, for clients that want none.


@pytest.mark.promise("spec.legacy.tasks.awaited")
@pytest.mark.parametrize("revision", [*LEGACY, MODERN])
@pytest.mark.parametrize("stdio", [False, True])
async def test_a_tool_that_runs_as_a_task_only_gives_its_result_to_any_client(revision: str, stdio: bool) -> None:
    async with legacy_server("required") as (rig, server, gate):
        client = await rig.client(revision, stdio=stdio)
        pending = client.start("tools/call", name="there__slow")
        await server.got("tasks/result")
        await rig.clock.advance(900)
        assert not pending.is_answered
        gate.opened.set()
        result = (await pending.reply()).result
        assert result["content"][0]["text"] == "at last"
        assert "_meta" not in result
        assert server.requests("tools/call")[0]["params"]["task"] == {}
        assert len(server.requests("tools/call")) == 1


@pytest.mark.promise("spec.legacy.tasks.awaited")
@pytest.mark.parametrize("revision", [*LEGACY[2:], MODERN])
async def test_what_it_asks_is_asked_as_in_any_call(revision: str) -> None:
    async with legacy_server("required") as (rig, _, _):
        client = await rig.client(revision)
        seen: list[Json] = []

        def answer(params: Json) -> Json:
            seen.append(params)
            return named("Ann")

        reply = await client.converse("tools/call", {"elicitation/create": answer}, name="there__ask")
        assert reply.text == "accept: Ann"
        assert "_meta" not in seen[0]


@pytest.mark.promise("spec.legacy.tasks.awaited")
async def test_a_client_that_knows_the_extension_gets_the_plain_result_of_an_older_servers_task() -> None:
    async with legacy_server("required") as (rig, _, gate):
        gate.opened.set()
        result = (await knowing(rig).call("there__slow")).result
        assert (result["resultType"], result["content"][0]["text"]) == ("complete", "at last")


@pytest.mark.promise("spec.legacy.tasks.awaited")
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_it_reports_progress_while_it_runs(revision: str) -> None:
    async def report(scene: Scene) -> str:
        for step in (1, 2):
            await asyncio.sleep(1)
            scene.progress(step)
        return "reported"

    async with legacy_server("required", scripts={"report": report}) as (rig, _, _):
        client = await rig.client(revision)
        pending = client.start("tools/call", name="there__report", meta={"progressToken": "p"})
        await rig.clock.advance(5)
        reply = await pending.reply()
        assert reply.notes("notifications/progress") == [{"progressToken": "p", "progress": step} for step in (1, 2)]


@pytest.mark.promise("spec.legacy.tasks.awaited")
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_client_that_gives_up_the_call_cancels_the_task(revision: str) -> None:
    async with legacy_server("required") as (rig, server, _):
        client = await rig.client(revision)
        pending = client.start("tools/call", name="there__slow")
        await server.got("tasks/result")
        if isinstance(client, LegacyClient):
            client.cancel(pending)
        else:
            await pending.gone()
        assert (await server.got("tasks/cancel"))["params"] == {"taskId": "own/1"}
        assert server.kept.tasks["own/1"].status == "cancelled"


@pytest.mark.promise("spec.legacy.tasks.awaited")
async def test_the_error_of_the_task_is_the_error_of_the_call() -> None:
    async with legacy_server("required") as (rig, _, _):
        error = (await rig.modern().call("there__fail")).error
        assert (error["code"], error["data"]) == (-32010, {"why": "so"})


@pytest.mark.promise("spec.legacy.tasks.awaited")
async def test_where_the_result_cannot_be_waited_for_the_task_is_looked_at_in_its_own_rhythm() -> None:
    async with legacy_server("required", refuses_waiting=True, poll=5000) as (rig, server, gate):
        pending = rig.modern().start("tools/call", name="there__slow")
        await rig.clock.advance(21)
        assert len(server.requests("tasks/get")) == 5
        gate.opened.set()
        await rig.clock.advance(5)
        assert (await pending.reply()).result["content"][0]["text"] == "at last"


@pytest.mark.promise("spec.legacy.tasks.awaited")
async def test_where_the_stream_of_the_result_is_lost_the_task_is_looked_at() -> None:
    async with legacy_server("required", poll=2000) as (rig, server, gate):
        pending = rig.modern().start("tools/call", name="there__slow")
        waiting = await server.got("tasks/result")
        lost = Fault("SERVER_FAILED", "The stream ended", reach="sent_unknown")
        rig.connections[0].requests.failed(waiting["id"], lost)
        await rig.clock.advance(5)
        assert not pending.is_answered
        gate.opened.set()
        await rig.clock.advance(2)
        assert (await pending.reply()).result["content"][0]["text"] == "at last"
        assert len(server.requests("tools/call")) == 1


@pytest.mark.promise("spec.legacy.tasks.awaited")
async def test_a_task_that_asks_while_it_is_only_looked_at_is_waited_for_again() -> None:
    async with legacy_server("required", refuses_waiting=True, poll=5000) as (rig, _, _):

        async def late(scene: Scene) -> str:
            await asyncio.sleep(12)
            return await ask_name(scene)

        rig.servers["there"].scripts["tools"]["ask"] = late  # type: ignore[index]
        client = await rig.legacy(answers={"elicitation/create": named("Ann")})
        pending = client.start("tools/call", name="there__ask")
        await rig.clock.advance(16)
        assert (await pending.reply()).text == "accept: Ann"


@pytest.mark.promise("spec.legacy.tasks.awaited")
async def test_what_is_asked_before_there_is_a_task_may_be_answered_late() -> None:
    async with legacy_server("required", timeout=30) as (rig, server, _):
        client = await rig.legacy()
        connection = server.connections[0]
        called, connection._called = connection._called, lambda message: None
        pending = client.start("tools/call", name="there__ask")
        message = await server.got("tools/call")
        _, answer = connection.put(form())
        question = await client.question()
        await rig.clock.advance(40)
        assert not pending.is_answered
        client.answer(question, named("Ann"))
        await answer
        called(message)
        client.answer(await client.question(2), named("Ann"))
        assert (await pending.reply()).text == "accept: Ann"


@pytest.mark.promise("spec.legacy.tasks.awaited")
async def test_waiting_for_tasks_takes_nobodys_turn() -> None:
    async with legacy_server("required", concurrency=1) as (rig, server, gate):
        ann, bob = rig.modern(), await rig.legacy(principal="bob")
        pending = [ann.start("tools/call", name="there__slow"), bob.start("tools/call", name="there__slow")]
        await server.got("tasks/result", 2)
        assert (await bob.call("there__plain")).text == "just so"
        gate.opened.set()
        for each in pending:
            await each.reply()
        assert rig.connections[0].requests._concurrency._running == 0


@pytest.mark.promise("spec.legacy.tasks.awaited")
async def test_a_server_that_falls_silent_fails_the_call_after_its_timeout() -> None:
    async with legacy_server("required", timeout=30) as (rig, server, _):
        pending = rig.modern().start("tools/call", name="there__slow")
        await server.got("tasks/result")
        await rig.clock.advance(100)
        assert not pending.is_answered
        server.connections[0].requested = lambda message: None
        await rig.clock.advance(70)
        assert (await pending.reply()).error["data"]["code"] == "TIMEOUT"
        server.kept.tasks["own/1"].cancel()


@pytest.mark.promise("spec.legacy.tasks.awaited")
async def test_a_server_that_dies_over_the_task_fails_the_call() -> None:
    async with legacy_server("required") as (rig, server, _):
        pending = rig.modern().start("tools/call", name="there__slow")
        await server.got("tasks/result")
        server.connections[0].hang_up()
        assert (await pending.reply()).error["data"]["code"] == "SERVER_FAILED"
        server.kept.tasks["own/1"].cancel()


@pytest.mark.promise("spec.legacy.tasks.awaited")
async def test_what_is_awaited_for_a_client_is_in_nobodys_list() -> None:
    async with legacy_server("required") as (rig, server, gate):
        client = await rig.legacy()
        heard = (await client.listen()).messages
        pending = client.start("tools/call", name="there__slow")
        await server.got("tasks/result")
        server.connections[0].tell_status(server.kept.tasks["own/1"])
        assert (await client.request("tasks/list")).result["tasks"] == []
        gate.opened.set()
        await pending.reply()
        assert not heard


# Rules.


class Watchful(Policy):
    """Sees everything, and refuses to cancel."""

    name = "watchful"

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str, str]] = []

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Outcome | Required:
        self.seen.append((call.method, call.kind, call.server, call.target))
        return call


async def test_rules_see_the_true_server_and_the_servers_own_id() -> None:
    watchful = Watchful()
    gate = Gate()
    async with gateway([watchful], there=ModernTaskServer({"slow": gate}, as_tasks=["slow"])) as rig:
        client = knowing(rig)
        id = await made(client)
        await client.request("tasks/get", taskId=id)
        await client.request("tasks/cancel", taskId=id)
    assert watchful.seen[1:] == [
        ("tasks/get", "tasks", "there", "own/1"),
        ("tasks/cancel", "tasks", "there", "own/1"),
    ]


# A server of one's own.


async def test_a_connection_of_ones_own_stays_as_long_as_its_tasks_run() -> None:
    async with legacy_server(scope="principal") as (rig, server, gate):
        client = await rig.legacy()
        id = await made(client)
        await rig.clock.advance(1000)
        assert server.connections[0].is_open
        gate.opened.set()
        assert (await client.request("tasks/result", taskId=id)).result["content"][0]["text"] == "at last"
        await rig.clock.advance(1000)
        assert not server.connections[0].is_open


@pytest.mark.promise("spec.legacy.tasks.awaited")
@pytest.mark.parametrize("revision", [*LEGACY, MODERN])
async def test_no_list_says_that_a_tool_needs_a_task(revision: str) -> None:
    support = {"must": "required", "may": "optional", "never": "forbidden"}
    server = LegacyTaskServer(dict.fromkeys(support, plain), support=support)
    async with gateway(there=server) as rig:
        for path in ("/mcp", "/mcp/servers/there"):
            listed = (await (await rig.client(revision, path=path)).request("tools/list")).result["tools"]
            assert [tool["execution"]["taskSupport"] for tool in listed] == ["optional", "optional", "forbidden"]


async def test_tools_in_the_process_have_no_tasks() -> None:
    upstream = InProcessUpstream(Server(id="in", name="in", type="registry"), InProcessTools({}), FakeClock())
    assert await upstream.tasks(Client()) == {}
    with pytest.raises(Fault) as caught:
        await upstream.invoke(Call("tasks/get", "x", Client(), server="in"))
    assert (caught.value.rpc, caught.value.message) == (-32602, "Task not found")


async def test_what_a_list_says_of_a_task_is_without_secrets_and_in_the_clients_names() -> None:
    secret = "canary-7f3a9c21bb"

    class Telling(LegacyTaskServer):
        def shown(self, task: Task) -> Json:
            link = {"type": "resource_link", "uri": "a:1", "name": "a"}
            more = {"statusMessage": f"at {secret}", "_meta": {"toolgate/server": "good", "x": secret}}
            return super().shown(task) | more | {"result": {"content": [link]}}

    gate = Gate()
    server = Telling({"slow": gate}, support={"slow": "optional"})
    server.settings["env"] = {"API_KEY": secret}
    async with gateway(there=server) as rig:
        ann = await rig.legacy()
        id = await made(ann)
        [listed] = (await ann.request("tasks/list")).result["tasks"]
        assert secret not in json.dumps(listed) and listed["statusMessage"] == f"at {GONE}"
        assert listed["_meta"] == {"x": GONE} and listed["taskId"] == id
        assert listed["result"]["content"][0]["uri"] == "there+a:1"
        gate.opened.set()


async def test_a_task_of_the_extension_that_is_over_holds_up_no_log_lines_of_others_once_it_was_looked_at() -> None:
    async def quick(scene: Scene) -> str:
        return "done"

    async def talk(scene: Scene) -> str:
        scene.log("error", "said")
        await settle()
        return "talked"

    there = ModernTaskServer({"t": quick, "talk": talk}, as_tasks=("t",))
    async with gateway(there=there) as rig:
        ann = rig.modern(path="/mcp/servers/there", capabilities=WITH_EXTENSION)
        bob = rig.modern("bob", path="/mcp/servers/there", capabilities={})
        await ann.call("t")
        await settle()
        meta = {"io.modelcontextprotocol/logLevel": "debug"}
        await bob.call("talk", meta=meta)
        await there.got("tasks/get")
        await settle()
        heard = (await bob.call("talk", meta=meta)).notes("notifications/message")
        assert [told["data"] for told in heard] == ["said"]
