"""What passes through is what was sent: results, errors, ids, progress and logs, whatever the eras of both sides."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from peers import (
    ACCEPTED,
    DECLINED,
    LATEST,
    MODERN,
    LegacyServer,
    ModernServer,
    RpcError,
    Scene,
    form,
    gateway,
    named,
    text_of,
)
from virtualtime import patience

REVISIONS = ["2024-11-05", "2025-06-18", LATEST, MODERN]
SERVERS = [LegacyServer, ModernServer]


async def plain(scene: Scene) -> str:
    return "just so"


# Results.

ODD = (
    b'{ "content" : [ {"type":"text","text":"\\u00e9\xc3\xa9\\/", "annotations":{"priority":0.50}} ],'
    b' "structuredContent":{"big":12345678901234567890123,"float":1.0,"exp":1E5,"twice":"a"},'
    b' "isError":false,\t"x-unknown" : [1, {"deep":null}], "_meta":{"example.com/more":{"z":1,"a":2}} %b}'
)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, MODERN])
@pytest.mark.parametrize("asks", [False, True])
async def test_a_result_passes_byte_for_byte(server: Any, revision: str, asks: bool) -> None:
    body = ODD % (b', "resultType":"complete"' if server is ModernServer else b"")

    async def odd(scene: Scene) -> bytes:
        if asks:
            await scene.ask(form())
        return body

    async with gateway(there=server({"odd": odd})) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {"elicitation/create": named("Ann")}, name="there__odd")
        if revision == MODERN and server is LegacyServer:
            added = b'"resultType":"complete",'
            assert added in reply.raw
            reply.raw = reply.raw.replace(added, b"", 1)
        if (
            revision != MODERN and server is ModernServer
        ):  # what a modern server says of a result is not for this client
            told = json.loads(body)
            del told["resultType"]
            assert reply.result == told and b"12345678901234567890123" in reply.raw and b"1E5" in reply.raw
        else:
            assert body in reply.raw


@pytest.mark.promise("001.tools-call.result")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("server", SERVERS)
async def test_a_tools_own_error_is_a_result(server: Any, revision: str) -> None:
    async def fails(scene: Scene) -> Any:
        return {"content": [{"type": "text", "text": "no such file"}], "isError": True}

    async with gateway(there=server({"fails": fails})) as rig:
        client = await rig.client(revision)
        reply = await client.call("there__fails")
        assert reply.result["isError"] is True
        assert reply.text == "no such file"


@pytest.mark.promise("b.rulings.13-members", "spec.legacy.messages.schema")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("content", [[1, 2], "text", 5, None, True])
async def test_structured_content_that_is_no_object_is_for_modern_clients_only(revision: str, content: Any) -> None:
    text = json.dumps(content)

    async def structured(scene: Scene) -> Any:
        return {"content": [{"type": "text", "text": text}], "structuredContent": content, "more": 1}

    async with gateway(new=ModernServer({"structured": structured})) as rig:
        reply = await (await rig.client(revision)).call("new__structured")
        assert reply.text == text
        assert reply.result["more"] == 1
        if revision == MODERN:
            assert reply.result["structuredContent"] == content
        else:
            assert "structuredContent" not in reply.result


@pytest.mark.promise("b.rulings.13-content", "spec.legacy.messages.schema")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
async def test_content_that_a_revision_does_not_know_becomes_text(revision: str, method: str) -> None:
    async def linked(scene: Scene) -> Any:
        block = {"type": "resource_link", "uri": "file:///a", "name": "notes"}
        if scene.method == "prompts/get":
            return {"messages": [{"role": "user", "content": block}]}
        return {"content": [block, {"type": "text", "text": "more"}]}

    async with gateway(new=ModernServer({"linked": linked}, {"linked": linked})) as rig:
        reply = await (await rig.legacy(revision)).request(method, name="new__linked")
        assert "notes" in reply.text and "file:///a" in reply.text


@pytest.mark.promise("spec.2026.meta.hop")
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, MODERN])
async def test_arguments_and_unknown_parameters_reach_the_server_as_they_were(server: Any, revision: str) -> None:
    there = server({"plain": plain})
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        arguments = {"é": [1, 2.5, None, {"deep": "\u2028"}], "empty": {}, "big": 2**53 + 1}
        meta = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "example.com/x": [1]}
        await client.call("there__plain", arguments=arguments, meta=meta, unknown={"a": 1})
        params = there.calls[0]["params"]
        assert params["arguments"] == arguments
        assert params["unknown"] == {"a": 1}
        assert {name: params["_meta"][name] for name in meta} == meta


@pytest.mark.promise("spec.2026.meta.hop")
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_what_belongs_to_one_hop_is_not_passed_on(revision: str) -> None:
    old = LegacyServer({"plain": plain})
    async with gateway(old=old) as rig:
        client = await rig.client(revision)
        await client.call("old__plain")
        meta = old.calls[0]["params"].get("_meta", {})
        assert not [name for name in meta if name.startswith("io.modelcontextprotocol/")]


@pytest.mark.parametrize("server", SERVERS)
async def test_a_call_without_arguments_has_none(server: Any) -> None:
    there = server({"plain": plain})
    async with gateway(there=there) as rig:
        await (await rig.legacy()).call("there__plain")
        assert "arguments" not in there.calls[0]["params"]


# Errors.


@pytest.mark.promise("001.errors.upstream")
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize(
    ("code", "message", "data"),
    [
        (-32000, "out of order", {"deep": [1, None]}),
        (-32603, "internal", "text"),
        (-32601, "Method not found: tools/call", None),
        (-32602, "bad arguments", {"path": "/a"}),
        (-32099 + 100, "positive enough", [1]),
        (42, "", {"a": 1}),
        (-31999, "é\n", 1.5),
    ],
)
async def test_an_error_of_a_server_is_relayed_as_it_is(
    server: Any, revision: str, asks: bool, code: int, message: str, data: Any
) -> None:
    async def fails(scene: Scene) -> Any:
        if asks and scene.meta is not None and "elicit" in scene.arguments:
            await scene.ask(form())
        raise RpcError(code, message, data)

    async with gateway(there=server({"fails": fails})) as rig:
        client = await rig.client(revision)
        arguments = {"elicit": True} if asks and revision >= "2025-06-18" else {}
        reply = await client.converse(
            "tools/call", {"elicitation/create": named("Ann")}, name="there__fails", arguments=arguments
        )
        assert reply.error == {"code": code, "message": message} | ({} if data is None else {"data": data})


@pytest.mark.promise("b.001.relayed-mapped", "b.errors.resource")
@pytest.mark.parametrize(
    ("server", "sent", "revision", "received"),
    [
        (LegacyServer, -32002, "2024-11-05", -32002),
        (LegacyServer, -32002, LATEST, -32002),
        (LegacyServer, -32002, MODERN, -32602),
        (ModernServer, -32602, "2024-11-05", -32002),
        (ModernServer, -32602, LATEST, -32002),
        (ModernServer, -32602, MODERN, -32602),
        (LegacyServer, -32602, "2024-11-05", -32602),
        (LegacyServer, -32602, LATEST, -32602),
        (LegacyServer, -32602, MODERN, -32602),
    ],
)
async def test_a_resource_that_is_not_found_has_the_code_of_the_clients_revision(
    server: Any, sent: int, revision: str, received: int
) -> None:
    async def missing(scene: Scene) -> Any:
        raise RpcError(sent, "Resource not found", {"uri": scene.target})

    async with gateway(there=server(resources={"mem://gone": missing})) as rig:
        client = await rig.client(revision, path="/mcp/servers/there")
        error = (await client.request("resources/read", uri="mem://gone")).error
        assert error == {"code": received, "message": "Resource not found", "data": {"uri": "mem://gone"}}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_wrong_arguments_are_no_missing_resource(server: Any, revision: str) -> None:
    async def fails(scene: Scene) -> Any:
        raise RpcError(-32602, "bad arguments")

    async with gateway(there=server({"fails": fails}, {"fails": fails})) as rig:
        client = await rig.client(revision)
        for method in ("tools/call", "prompts/get"):
            assert (await client.request(method, name="there__fails")).error["code"] == -32602


@pytest.mark.promise("b.001.relayed-mapped")
async def test_a_request_to_sign_in_first_reaches_the_clients_that_know_it() -> None:
    data = {"elicitations": [{"mode": "url", "url": "https://example.com", "elicitationId": "1", "message": "Sign in"}]}

    async def fails(scene: Scene) -> Any:
        raise RpcError(-32042, "Sign in first", data)

    async with gateway(old=LegacyServer({"fails": fails})) as rig:
        legacy = await rig.legacy(LATEST)
        assert (await legacy.call("old__fails")).error == {"code": -32042, "message": "Sign in first", "data": data}
        cannot = (await rig.modern(capabilities={}).call("old__fails")).error
        assert (cannot["code"], cannot["message"], cannot["data"]) == (-32603, "Sign in first", data)


@pytest.mark.promise("b.001.relayed-mapped")
async def test_a_request_to_sign_in_first_becomes_a_question_to_modern_clients() -> None:
    page = {"mode": "url", "url": "https://example.com", "elicitationId": "1", "message": "Sign in"}
    visited = [False]

    async def signed_in(scene: Scene) -> Any:
        if not visited[0]:
            raise RpcError(-32042, "Sign in first", {"elicitations": [page]})
        return "welcome"

    async with gateway(old=LegacyServer({"enter": signed_in})) as rig:
        client = rig.modern()
        asked = client.start("tools/call", name="old__enter")
        reply = await asked.reply()
        [question] = reply.asks.values()
        assert question["params"] == {name: value for name, value in page.items() if name != "elicitationId"}
        declined = await client.retry(asked, reply, dict.fromkeys(reply.asks, DECLINED))
        assert declined.error["message"] == "Sign in first"
        asked = client.start("tools/call", name="old__enter")
        reply = await asked.reply()
        visited[0] = True
        assert text_of((await client.retry(asked, reply, dict.fromkeys(reply.asks, ACCEPTED))).result) == "welcome"


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_name_that_nobody_has_is_an_error_of_the_gateway(server: Any, revision: str) -> None:
    there = server({"plain": plain}, {"plain": plain}, {"mem://plain": plain})
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        for method, params, code in (
            ("tools/call", {"name": "there__plian"}, -32602),
            ("prompts/get", {"name": "there__plian"}, -32602),
            ("resources/read", {"uri": "mem://none"}, -32602 if revision == MODERN else -32002),
        ):
            error = (await client.request(method, **params)).error
            assert error["code"] == code
        assert there.calls == []


# Ids.


@pytest.mark.promise("spec.2026.ids.echo")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("stdio", [False, True], ids=["http", "stdio"])
@pytest.mark.parametrize("id", ["abc", "", "0", 0, 1, -7, 12345678901234567890, "é\n\u2028", "x" * 1000])
async def test_an_id_comes_back_as_it_was(revision: str, stdio: bool, id: Any) -> None:
    old = LegacyServer({"plain": plain, "fails": plain})
    async with gateway(old=old) as rig:
        client = await rig.client(revision, stdio=stdio)
        reply = await client.call("old__plain", id=id)
        assert json.loads(reply.raw)["id"] == id
        error = await client.call("old__nothing", id=id)
        assert error.message["id"] == id and error.error


@pytest.mark.promise("spec.2026.ids.unique")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("server", SERVERS)
async def test_an_id_of_a_client_is_never_one_of_the_gateways(revision: str, server: Any) -> None:
    there = server({"plain": plain})
    async with gateway(there=there) as rig:
        clients = [await rig.client(revision, principal=who) for who in ("ann", "bob")]
        for client in clients:
            for _ in range(3):
                await client.call("there__plain", id=77)
        ids = [message["id"] for message in there.received if "method" in message and "id" in message]
        assert len(set(ids)) == len(ids)


@pytest.mark.promise("spec.legacy.ids.in-flight")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_an_id_may_be_used_again_when_its_request_is_over_and_not_before(revision: str) -> None:
    go_on = asyncio.Event()

    async def slow(scene: Scene) -> str:
        await go_on.wait()
        return "done"

    old = LegacyServer({"slow": slow})
    async with gateway(old=old) as rig:
        client = await rig.client(revision, stdio=revision == MODERN)
        first = client.start("tools/call", name="old__slow", id=5)
        await old.got("tools/call")
        if revision != MODERN:
            assert (await client.call("old__slow", id=5)).error["code"] == -32600
        go_on.set()
        assert (await first.reply()).text == "done"
        assert (await client.call("old__slow", id=5)).text == "done"


# Progress.


async def works(scene: Scene) -> str:
    for number in (0, 1, 2.5):
        scene.progress(number, total=4, message=f"step {number}")
    return "done"


@pytest.mark.promise("spec.2026.progress.token", "spec.2026.sse.related")
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", LATEST, MODERN])
@pytest.mark.parametrize("token", ["text", "0", "", 0, 1, 9007199254740993])
async def test_progress_comes_under_the_clients_own_token(server: Any, revision: str, token: Any) -> None:
    there = server({"works": works})
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        reply = await client.call("there__works", meta={"progressToken": token})
        notes = reply.notes("notifications/progress")
        assert [note["progress"] for note in notes] == [0, 1, 2.5]
        assert all(note["progressToken"] == token and type(note["progressToken"]) is type(token) for note in notes)
        assert notes[-1] == {"progressToken": token, "progress": 2.5, "total": 4, "message": "step 2.5"}


@pytest.mark.promise("spec.2026.progress.token")
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", ["2025-06-18", MODERN])
async def test_two_calls_with_one_token_get_each_their_own_progress(server: Any, revision: str) -> None:
    async def counts(scene: Scene) -> str:
        for number in range(3):
            scene.progress(scene.arguments["from"] + number)
            await asyncio.sleep(0.001)
        return "done"

    async with gateway(there=server({"counts": counts})) as rig:
        clients = [await rig.client(revision, principal=who) for who in ("ann", "bob")]
        calls = [
            client.start("tools/call", name="there__counts", arguments={"from": start}, meta={"progressToken": 1})
            for client, start in zip(clients, (10, 20), strict=True)
        ]
        told = [(await call.reply()).notes("notifications/progress") for call in calls]
        assert [[note["progress"] for note in notes] for notes in told] == [[10, 11, 12], [20, 21, 22]]


@pytest.mark.promise("spec.2026.progress.asked")
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", ["2025-06-18", MODERN])
async def test_a_server_is_asked_for_progress_only_if_its_client_wants_it(server: Any, revision: str) -> None:
    there = server({"plain": plain})
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        await client.call("there__plain")
        await client.call("there__plain", meta={"progressToken": "t"})
        without, with_token = (call["params"].get("_meta", {}) for call in there.calls)
        assert "progressToken" not in without
        assert with_token["progressToken"] != "t"


async def reports(scene: Scene) -> str:
    """Every 50 seconds, as often as it is asked to."""
    for number in range(scene.arguments["times"]):
        if "progressToken" in scene.meta:
            scene.progress(number)
        await asyncio.sleep(50)
    return "done"


@pytest.mark.promise("spec.2026.progress.renews")
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", ["2024-11-05", LATEST, MODERN])
async def test_a_call_whose_server_reports_progress_has_its_time_anew(server: Any, revision: str) -> None:
    async with gateway(there=server({"reports": reports})) as rig:
        client = await rig.client(revision)
        with patience(5000.0):
            reply = await client.call("there__reports", arguments={"times": 10}, meta={"progressToken": "t"})
            assert reply.text == "done" and len(reply.notes("notifications/progress")) == 10
            silent = await client.call("there__reports", arguments={"times": 10})
            assert "No answer within the time limit" in str(silent.error or silent.text)
            endless = await client.call("there__reports", arguments={"times": 1000}, meta={"progressToken": "t"})
            assert "No answer within the time limit" in str(endless.error or endless.text)
            assert 60 <= len(endless.notes("notifications/progress")) <= 75  # an hour and a minute


@pytest.mark.promise("spec.2026.progress.stops")
async def test_progress_after_the_answer_or_under_a_strange_token_reaches_nobody() -> None:
    async def strange(scene: Scene) -> str:
        token = scene.meta["progressToken"]
        for each in (token + 100, str(token + 100), -1, "x"):
            params = {"progressToken": each, "progress": 1}
            scene.connection.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        asyncio.get_running_loop().call_later(0.01, scene.progress, 99)
        return "done"

    async with gateway(old=LegacyServer({"strange": strange})) as rig:
        for client in (await rig.legacy(), rig.modern()):
            reply = await client.call("old__strange", meta={"progressToken": 1})
            await rig.clock.advance(0.1)
            assert reply.notes("notifications/progress") == []


# Logs.


async def talks(scene: Scene) -> str:
    for level in ("debug", "info", "warning", "error"):
        scene.log(level, {"level": level})
    return "done"


def levels(reply: Any) -> list[str]:
    return [note["level"] for note in reply.notes("notifications/message")]


@pytest.mark.promise("spec.2026.logging.asked", "spec.2026.logging.level")
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(
    ("wanted", "heard"),
    [
        (None, []),
        ("debug", ["debug", "info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("emergency", []),
    ],
)
async def test_a_modern_client_hears_the_logs_that_its_request_wants(
    server: Any, wanted: str | None, heard: list[str]
) -> None:
    there = server({"talks": talks})
    async with gateway(there=there) as rig:
        meta = {"io.modelcontextprotocol/logLevel": wanted} if wanted else {}
        reply = await rig.modern().call("there__talks", meta=meta)
        assert levels(reply) == heard
        if server is ModernServer:
            assert there.calls[0]["params"]["_meta"].get("io.modelcontextprotocol/logLevel") == wanted


@pytest.mark.promise("spec.legacy.logging")
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(
    ("wanted", "heard"),
    [("debug", ["debug", "info", "warning", "error"]), ("error", ["error"]), ("alert", [])],
)
async def test_a_legacy_client_hears_the_logs_of_the_level_that_it_has_set(
    server: Any, wanted: str, heard: list[str]
) -> None:
    there = server({"talks": talks})
    async with gateway(there=there) as rig:
        client = await rig.legacy()
        await client.request("logging/setLevel", level=wanted)
        assert levels(await client.call("there__talks")) == heard
        if server is ModernServer:
            assert there.calls[0]["params"]["_meta"]["io.modelcontextprotocol/logLevel"] == wanted


@pytest.mark.promise("spec.2026.logging.level")
@pytest.mark.parametrize("level", ["loud", "", 3, None])
async def test_a_level_that_there_is_not_is_an_error(level: Any) -> None:
    async with gateway(old=LegacyServer({"talks": talks})) as rig:
        client = await rig.legacy()
        assert (await client.request("logging/setLevel", level=level)).error["code"] == -32602


async def test_who_the_server_is_stays_with_clients_of_its_era() -> None:
    async def signed(scene: Scene) -> Any:
        info = {"name": "foreign", "version": "1"}
        return {"content": [], "_meta": {"io.modelcontextprotocol/serverInfo": info, "example.com/a": 1}}

    async with gateway(there=ModernServer({"signed": signed})) as rig:
        client = await rig.client(LATEST)
        assert (await client.call("there__signed")).result == {"content": [], "_meta": {"example.com/a": 1}}


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_gateway_without_servers_lists_nothing(revision: str) -> None:
    async with gateway() as rig:
        client = await rig.client(revision)
        assert (await client.request("tools/list")).result["tools"] == []
