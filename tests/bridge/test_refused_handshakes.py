"""Servers that refuse the newest words of `initialize`, as some that are in use do, are asked in plainer ones."""

from __future__ import annotations

from typing import Any

import pytest
from official import Json
from peers import LATEST, LegacyServer, ModernServer, RpcError, Scene, form, gateway, named, text_of


async def hello(scene: Scene) -> str:
    return "hello"


async def ask_for_a_name(scene: Scene) -> str:
    return (await scene.ask(form()))["content"]["name"]


def knows_only(*versions: str, code: int = -32602, names: bool = True) -> Any:
    """As the lifecycle pages show it ("Example Initialization Error")."""

    def refuses(params: Json) -> RpcError | None:
        if params["protocolVersion"] in versions:
            return None
        data = {"supported": list(versions), "requested": params["protocolVersion"]} if names else None
        return RpcError(code, f"Unsupported protocol version: {params['protocolVersion']}", data)

    return refuses


def knows_no_members(params: Json) -> RpcError | None:
    """As servers on the Java SDK before 0.17.1."""
    for name in ("elicitation", "sampling"):
        for member in params["capabilities"].get(name, {}):
            return RpcError(-32603, f'Unrecognized field "{member}" (not marked as ignorable)')
    return None


def knows_no_elicitation(params: Json) -> RpcError | None:
    """As those on one before 0.10."""
    return RpcError(-32603, 'Unrecognized field "elicitation"') if "elicitation" in params["capabilities"] else None


def versions(there: LegacyServer) -> list[str]:
    return [message["params"]["protocolVersion"] for message in there.requests("initialize")]


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
@pytest.mark.parametrize("code", [-32602, -32022, -32000])
@pytest.mark.parametrize("caller", ["2024-11-05", LATEST, "2026-07-28"])
async def test_a_server_that_refuses_a_version_is_asked_in_the_newest_that_it_names(
    revision: str, code: int, caller: str
) -> None:
    there = LegacyServer({"t": hello}, revision=revision, refuses=knows_only("2024-10-07", revision, code=code))
    async with gateway(there=there) as rig:
        client = await rig.client(caller, path="/mcp/servers/there")
        assert text_of((await client.call("t")).result) == "hello"
    assert versions(there) == [LATEST, revision]


@pytest.mark.parametrize(("revision", "asked"), [("2025-06-18", []), ("2024-11-05", ["2025-06-18"])])
async def test_a_server_that_names_no_version_is_asked_in_an_older_one_and_then_in_the_oldest(
    revision: str, asked: list[str]
) -> None:
    there = LegacyServer({"t": hello}, revision=revision, refuses=knows_only(revision, names=False))
    async with gateway(there=there) as rig:
        client = await rig.client(LATEST, path="/mcp/servers/there")
        assert text_of((await client.call("t")).result) == "hello"
    assert versions(there) == [LATEST, *asked, revision]


@pytest.mark.parametrize("scope", ["shared", "session"])
@pytest.mark.parametrize("caller", ["2025-06-18", LATEST, "2026-07-28"])
async def test_a_server_that_knows_no_members_of_capabilities_is_told_none_and_asks_all_the_same(
    scope: str, caller: str
) -> None:
    there = LegacyServer({"t": ask_for_a_name}, revision="2025-06-18", refuses=knows_no_members, scope=scope)
    async with gateway(there=there) as rig:
        client = await rig.client(caller, path="/mcp/servers/there", capabilities={"elicitation": {}, "sampling": {}})
        answered = await client.converse("tools/call", {"elicitation/create": named("Ann")}, name="t")
        assert text_of(answered.result) == "Ann"
    assert there.requests("initialize")[-1]["params"]["capabilities"] == {"elicitation": {}, "sampling": {}}


async def test_a_server_that_does_not_know_elicitation_is_told_nothing_of_it() -> None:
    there = LegacyServer({"t": hello}, revision="2024-11-05", refuses=knows_no_elicitation)
    async with gateway(there=there) as rig:
        client = await rig.client(LATEST, path="/mcp/servers/there")
        assert text_of((await client.call("t")).result) == "hello"
    assert there.requests("initialize")[-1]["params"]["capabilities"] == {"sampling": {}}


async def test_a_client_that_opens_pages_only_is_not_said_to_fill_in_forms() -> None:
    there = LegacyServer({"t": hello}, revision="2025-06-18", refuses=knows_no_members, scope="session")
    async with gateway(there=there) as rig:
        client = await rig.client(LATEST, path="/mcp/servers/there", capabilities={"elicitation": {"url": {}}})
        assert text_of((await client.call("t")).result) == "hello"
    assert there.requests("initialize")[-1]["params"]["capabilities"] == {}


async def test_what_was_taken_is_what_the_next_connection_begins_with() -> None:
    there = LegacyServer({"t": hello}, revision="2025-06-18", refuses=knows_no_members)
    async with gateway(there=there) as rig:
        client = await rig.client(LATEST, path="/mcp/servers/there")
        await client.call("t")
        there.open_connections[0].hang_up()
        await client.call("t")
    assert versions(there) == [LATEST, "2025-06-18", "2025-06-18"]


async def test_a_server_that_refuses_what_it_took_before_is_asked_in_all_words_again() -> None:
    there = LegacyServer({"t": hello}, revision="2025-06-18", refuses=knows_no_members)
    async with gateway(there=there) as rig:
        client = await rig.client(LATEST, path="/mcp/servers/there")
        await client.call("t")
        there.refuses = knows_only(LATEST, names=False)
        there.revision = LATEST
        there.open_connections[0].hang_up()
        assert text_of((await client.call("t")).result) == "hello"
    assert versions(there)[2:] == ["2025-06-18", LATEST]


async def test_a_server_that_takes_no_words_at_all_is_said_to_refuse_the_first() -> None:
    there = LegacyServer({"t": hello}, refuses=lambda params: RpcError(-32603, f"not {params['protocolVersion']}"))
    async with gateway(there=there) as rig:
        client = await rig.client(LATEST, path="/mcp/servers/there")
        assert f"not {LATEST}" in (await client.call("t")).message["error"]["message"]
    assert versions(there)[:3] == [LATEST, "2025-06-18", "2024-11-05"]


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18"])
async def test_a_server_that_answers_in_another_version_is_asked_once(revision: str) -> None:
    there = LegacyServer({"t": hello}, revision=revision)
    async with gateway(there=there) as rig:
        client = await rig.client(LATEST, path="/mcp/servers/there")
        await client.call("t")
    assert versions(there) == [LATEST]


async def test_a_server_without_a_handshake_is_asked_for_one_once_at_most() -> None:
    there = ModernServer({"t": hello})
    async with gateway(there=there) as rig:
        client = await rig.client(LATEST, path="/mcp/servers/there")
        assert text_of((await client.call("t")).result) == "hello"
    assert len(there.requests("initialize")) <= 1
