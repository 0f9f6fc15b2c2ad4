"""One model of errors: a word, a number, and what helps to fix it (behaviour, section 5)."""

from __future__ import annotations

from typing import Any

import pytest
from inmemory import ENVELOPE, GREETER, META, MODERN, Refusal, Scripted, Visitor, gateway, said, tools
from official import LEGACY
from peers import LegacyServer, Scene
from peers import gateway as house_of

from toolgate.core.fault import Fault

BROKEN = Fault("SERVER_FAILED", "Command not found: nope", reach="not_sent")


async def errors(visitor: Visitor, method: str, **params: Any) -> list[dict[str, Any]]:
    """What a legacy and a modern request are refused with."""
    return [(await visitor.ask(method, **params)).error, (await visitor.ask_modern(method, **params)).error]


@pytest.mark.promise("001.errors.format")
async def test_every_error_has_a_number_and_a_text() -> None:
    async with gateway(GREETER, scripts={"broken": BROKEN}) as app:
        visitor = Visitor(app)
        for method, params in (
            ("tools/call", {"name": "nope"}),
            ("tools/call", {"name": "broken__t"}),
            ("resources/read", {"uri": "nope://"}),
            ("prompts/get", {"name": "nope"}),
            ("tools/fly", {}),
        ):
            for error in await errors(visitor, method, **params):
                assert isinstance(error["code"], int) and error["message"]
                assert set(error) <= {"code", "message", "data"}


@pytest.mark.promise("b.errors.data")
@pytest.mark.parametrize(
    ("name", "code", "word", "server"),
    [
        ("greeter__gret", -32602, "TOOL_NOT_FOUND", None),
        ("broken__t", -32603, "SERVER_FAILED", "broken"),
        ("docs__t", -32603, "UPSTREAM_ERROR", "docs"),
    ],
)
async def test_an_errors_data_says_word_place_and_mend(name: str, code: int, word: str, server: str | None) -> None:
    script = Scripted(tools_list=tools("t"), tools_call=b"[]")
    async with gateway(GREETER, scripts={"broken": BROKEN, "docs": script}) as app:
        for error in await errors(Visitor(app), "tools/call", name=name):
            data = error["data"]
            assert (error["code"], data["code"], data.get("server")) == (code, word, server)
            assert isinstance(data["retryable"], bool)
            assert data["tool"]
            assert "hint" in data or word != "TOOL_NOT_FOUND"


@pytest.mark.promise("b.errors.data")
async def test_every_error_names_a_server_in_one_way() -> None:
    async def crashes(scene: Scene) -> str:
        scene.crash()
        return ""

    async def odd(scene: Scene) -> bytes:
        return b"[]"

    async with house_of(my_notes=LegacyServer({"crashes": crashes, "odd": odd})) as rig:  # its id is my-notes
        client = rig.modern()
        replies = [await client.call(name) for name in ("my-notes__crashes", "my-notes__odd")]
        assert len({reply.error["data"]["server"] for reply in replies}) == 1


@pytest.mark.promise("b.errors.not-found")
@pytest.mark.parametrize(
    ("method", "params", "word"),
    [
        ("tools/call", {"name": "greeter__nope"}, "TOOL_NOT_FOUND"),
        ("prompts/get", {"name": "greeter__nope"}, "PROMPT_NOT_FOUND"),
        ("tools/call", {"name": "greeter__greet", "arguments": []}, "INVALID_ARGS"),
    ],
)
async def test_what_is_not_there_or_out_of_shape_is_32602(method: str, params: dict[str, Any], word: str) -> None:
    async with gateway() as app:
        for error in await errors(Visitor(app), method, **params):
            assert (error["code"], error["data"]["code"]) == (-32602, word)


@pytest.mark.promise("b.errors.failed")
async def test_what_did_not_come_to_an_end_is_32603() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"broken": BROKEN, "slow": script}) as app:
        visitor = Visitor(app)
        for name, word in (("broken__t", "SERVER_FAILED"), ("slow__t", "TIMEOUT")):
            for error in await errors(visitor, "tools/call", name=name):
                assert (error["code"], error["data"]["code"]) == (-32603, word)


@pytest.mark.promise("b.errors.protocol")
async def test_faults_of_the_protocol_have_its_codes() -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        assert (await visitor.post(b"{")).error["code"] == -32700
        assert (await visitor.ask("tools/fly")).error["code"] == -32601
        assert (await visitor.ask_modern("tools/list", headers={"mcp-method": "ping"})).error["code"] == -32020
        wrong = ENVELOPE | {META + "protocolVersion": "2030-01-01"}
        headers = {"mcp-protocol-version": "2030-01-01"}
        assert (await visitor.ask_modern("tools/list", headers=headers, _meta=wrong)).error["code"] == -32022


@pytest.mark.promise("b.errors.phrase-arguments")
async def test_a_message_about_wrong_arguments_begins_with_the_seeds_words() -> None:
    async with gateway() as app:
        for error in await errors(Visitor(app), "tools/call", name="greeter__greet", arguments=[]):
            assert error["message"].startswith("Invalid arguments")


@pytest.mark.promise("b.errors.phrase-server")
async def test_a_message_about_a_server_that_is_not_up_begins_with_the_seeds_words() -> None:
    async with gateway(GREETER, scripts={"broken": BROKEN}) as app:
        for error in await errors(Visitor(app), "tools/call", name="broken__t"):
            assert error["message"].startswith("Server not started")


@pytest.mark.promise("spec.2026.errors.undefined-codes")
@pytest.mark.parametrize("code", [-32099, -32050, -32023])
async def test_a_code_of_the_protocols_range_that_it_does_not_define_is_not_sent(code: int) -> None:
    script = Scripted(tools_list=tools("t"), tools_call=Refusal(code, "made up"))
    async with gateway(scripts={"docs": script}) as app:
        error = (await Visitor(app).ask_modern("tools/call", name="docs__t")).error
        assert error["message"] == "made up"
        assert not -32099 <= error["code"] <= -32020


@pytest.mark.promise("spec.2026.ids.null")
@pytest.mark.parametrize("id", [None, True, {}, []])
async def test_an_id_is_text_or_a_number(id: Any) -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        response = await visitor.post({"jsonrpc": "2.0", "id": id, "method": "ping"})
        assert (response.status, response.error["code"], response.last["id"]) == (400, -32600, None)
        modern = visitor.modern_request("tools/list") | {"id": id}
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
        response = await visitor.post(modern, headers=headers)
        assert (response.status, response.error["code"], response.last["id"]) == (400, -32600, None)


@pytest.mark.promise("b.rulings.13-members")
@pytest.mark.parametrize("revision", LEGACY)
async def test_members_that_a_revision_allows_pass_though_it_does_not_know_them(revision: str) -> None:
    more = {"title": "T", "outputSchema": {"type": "object"}, "annotations": {"title": "A"}, "icons": []}
    result = said("x") | {"structuredContent": {"a": 1}}
    script = Scripted(tools_list=tools("t", **more), tools_call=result)
    async with gateway(scripts={"docs": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize(revision)
        [tool] = (await visitor.ask("tools/list")).result["tools"]
        assert more.items() <= tool.items()
        assert (await visitor.ask("tools/call", name="docs__t")).result == result
