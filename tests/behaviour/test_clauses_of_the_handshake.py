"""Clauses of the handshake revisions, and of names, that no other conversation holds."""

from __future__ import annotations

import pytest
from inmemory import GREETER, Scripted, Visitor, gateway, said, tools
from official import LEGACY
from peers import LegacyServer
from peers import gateway as house_of
from virtualtime import settle

OLDEST = LEGACY[0]


@pytest.mark.promise("spec.legacy.initialize.capabilities")
@pytest.mark.parametrize("revision", LEGACY)
async def test_what_is_told_in_the_handshake_is_what_is_served(revision: str) -> None:
    async with gateway() as app:
        visitor = Visitor(app, path="/mcp/servers/greeter")
        told = (await visitor.initialize(revision)).result["capabilities"]
        assert set(told) == {"tools", "resources", "prompts"}
        assert "subscribe" not in told["resources"]
        for method in ("tools/list", "resources/list", "prompts/list"):
            assert "result" in (await visitor.ask(method)).last
        completion = {"ref": {"type": "ref/prompt", "name": "letter"}, "argument": {"name": "name", "value": "a"}}
        uri = "greeter://about"
        for method, params in (
            ("completion/complete", completion),
            ("resources/subscribe", {"uri": uri}),
            ("nope", {}),
        ):
            assert (await visitor.post(visitor.request(method, **params))).error["code"] == -32601


@pytest.mark.promise("spec.legacy.version-header.absent")
@pytest.mark.parametrize(("revision", "kind"), [("2025-11-25", "audio"), (OLDEST, "text")])
async def test_without_a_version_header_a_session_speaks_what_it_agreed_on(revision: str, kind: str) -> None:
    sound = {"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]}
    async with gateway(scripts={"docs": Scripted(tools_list=tools("t"), tools_call=sound)}) as app:
        visitor = Visitor(app)
        await visitor.initialize(revision)
        assert "mcp-protocol-version" not in visitor.headers
        [block] = (await visitor.ask("tools/call", name="docs__t")).result["content"]
        assert block["type"] == kind


@pytest.mark.promise("spec.legacy.version-header.absent", "b.rulings.13-content")
async def test_without_a_header_and_a_handshake_2025_03_26_is_spoken() -> None:
    blocks = [
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a", "name": "notes"},
    ]
    async with gateway(scripts={"docs": Scripted(tools_list=tools("t"), tools_call={"content": blocks})}) as app:
        content = (await Visitor(app).ask("tools/call", name="docs__t")).result["content"]
        assert [block["type"] for block in content] == ["audio", "text"]
        assert "notes" in content[1]["text"]


@pytest.mark.promise("spec.legacy.ping.server")
async def test_a_ping_of_a_server_is_answered_at_once() -> None:
    script = Scripted(tools_list=tools("t"))
    async with gateway(scripts={"docs": script}) as app:
        await Visitor(app).ask("tools/list")
        script.say(b'{"jsonrpc":"2.0","id":"are you there","method":"ping"}')
        await settle()
        assert script.requests[-1] == {"jsonrpc": "2.0", "id": "are you there", "result": {}}


@pytest.mark.promise("b.names.lookup-path")
async def test_the_path_of_a_server_may_be_written_as_its_name() -> None:
    async with house_of(my_notes=LegacyServer()) as rig:  # its id is my-notes
        assert (await (await rig.legacy(path="/mcp/servers/my-notes")).request("ping")).result == {}
        visitor = Visitor(rig.app, "/mcp/servers/my_notes")
        assert (await visitor.initialize()).status == 200


@pytest.mark.promise("b.names.short-server")
@pytest.mark.parametrize("length", [30, 52, 53, 60, 70])
async def test_a_name_is_short_enough_however_long_its_servers_id_is(length: int) -> None:
    script = Scripted(tools_list=tools("x" * 40), tools_call=said("ok"))
    async with gateway(GREETER, scripts={"s" * length: script}) as app:
        visitor = Visitor(app)
        name = (await visitor.ask("tools/list")).result["tools"][-1]["name"]
        assert (await visitor.ask("tools/call", name=name)).result == said("ok")
        assert len(name) <= 64
