"""A server of one session's own asks for roots where no call is in progress, as the filesystem server does right after
the handshake and each time that roots have changed. Whoever wrote it gives up after a minute."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from official import Json
from peers import LATEST, ROOTS, LegacyClient, LegacyServer, ModernClient, Scene, gateway, rooted
from virtualtime import patience, settle

REVISIONS = ["2024-11-05", "2025-06-18", LATEST]


class Folders:
    """What the server knows of its client's folders."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self.server = LegacyServer(
            {"folders": self.list_them, "wait": self.wait_for_them}, scope="session", on_initialized=self.ask
        )

    async def list_them(self, scene: Scene) -> str:
        return " ".join(self.known)

    async def wait_for_them(self, scene: Scene) -> str:
        while not self.known:
            await asyncio.sleep(0.01)
        return " ".join(self.known)

    async def ask(self, connection: Any) -> None:
        id, answer = connection.put(ROOTS)
        try:
            async with asyncio.timeout(60):
                self.known = [root["uri"] for root in (await asyncio.shield(answer))["roots"]]
        except TimeoutError:
            connection.withdraw(id)


async def a_client(rig: Any, revision: str, stdio: bool, uri: Any = "file:///ann") -> LegacyClient:
    def answer(_params: Json) -> Json:
        return rooted(uri if isinstance(uri, str) else uri[-1])

    return await rig.legacy(
        revision, stdio=stdio, capabilities={"roots": {"listChanged": True}}, answers={"roots/list": answer}
    )


@pytest.mark.promise("spec.legacy.roots")
@pytest.mark.parametrize("stdio", [False, True])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_server_knows_the_roots_before_the_first_call_however_late_that_is(revision: str, stdio: bool) -> None:
    folders = Folders()
    async with gateway(there=folders.server) as rig:
        client = await a_client(rig, revision, stdio)
        await client.request("tools/list")
        if not stdio:
            client.open_stream()
        await asyncio.sleep(90)
        assert folders.known == ["file:///ann"]
        assert (await client.call("folders")).text == "file:///ann"
        assert [question["method"] for question in client.asked] == ["roots/list"]


@pytest.mark.promise("spec.legacy.roots")
async def test_changed_roots_are_asked_for_when_the_server_wants_them() -> None:
    folders, uris = Folders(), ["file:///ann"]
    async with gateway(there=folders.server) as rig:
        client = await a_client(rig, LATEST, True, uris)
        await client.call("folders")
        await settle()
        uris.append("file:///new")
        client.tell({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        await settle()
        await folders.ask(folders.server.open_connections[0])
        assert (await client.call("folders")).text == "file:///new"


async def test_a_client_without_a_stream_of_its_own_is_asked_with_its_next_call() -> None:
    folders = Folders()
    async with gateway(there=folders.server) as rig:
        client = await a_client(rig, LATEST, False)
        await client.request("tools/list")
        await asyncio.sleep(30)
        assert client.asked == []
        assert (await client.call("wait")).text == "file:///ann"


async def test_roots_that_a_server_does_not_want_any_more_are_not_waited_for() -> None:
    folders = Folders()
    folders.server.on_told.clear()
    async with gateway(there=folders.server) as rig:
        client = await rig.legacy(LATEST, stdio=True, capabilities={"roots": {}})
        await client.call("folders")
        connection = folders.server.open_connections[0]
        id, _ = connection.put(ROOTS)
        await settle()
        connection.withdraw(id)
        await settle()
        assert client.withdrawn == [question["id"] for question in client.asked]


# Clients of 2026-07-28 can be asked in a call only.


async def folders_of(client: ModernClient) -> str:
    """What the server knows of them when it is called."""
    return (
        await client.converse("tools/call", {"roots/list": rooted("file:///ann")}, name="folders", arguments={})
    ).text


@pytest.mark.promise("spec.legacy.roots")
async def test_a_modern_client_is_asked_before_its_call_is_made() -> None:
    folders = Folders()
    async with gateway(there=folders.server) as rig:
        client = rig.modern(capabilities={"roots": {}})
        await client.request("tools/list")
        assert await folders_of(client) == "file:///ann"
        assert (await client.call("folders")).text == "file:///ann"
        assert len(folders.server.calls) == 2


@pytest.mark.promise("spec.legacy.roots")
async def test_a_server_that_has_given_up_is_told_to_ask_once_more() -> None:
    folders = Folders()
    folders.server.on_told["notifications/roots/list_changed"] = folders.ask
    async with gateway(there=folders.server) as rig:
        client = rig.modern(capabilities={"roots": {}})
        await client.request("tools/list")
        await asyncio.sleep(90)
        assert await folders_of(client) == "file:///ann"
        assert (await client.call("folders")).text == "file:///ann"


async def test_one_that_does_not_ask_once_more_has_its_call_all_the_same() -> None:
    folders = Folders()
    async with gateway(there=folders.server) as rig:
        client = rig.modern(capabilities={"roots": {}})
        await client.request("tools/list")
        await asyncio.sleep(90)
        for _ in range(2):
            assert (await client.call("folders")).text == ""
        told = [each["method"] for each in folders.server.received if "id" not in each]
        assert told.count("notifications/roots/list_changed") == 1


async def test_a_call_does_not_wait_for_roots_for_ever_nor_is_its_client_asked_with_each_call() -> None:
    folders = Folders()
    async with gateway(there=folders.server) as rig:
        client = await rig.legacy(LATEST, capabilities={"roots": {}})
        await client.request("tools/list")
        with patience(15.0):
            assert (await client.call("folders")).text == ""
        assert (await client.call("folders")).text == ""
        assert [question["method"] for question in client.asked] == ["roots/list"]


async def test_calls_made_while_a_client_is_asked_for_roots_wait_as_the_first_does() -> None:
    folders = Folders()
    async with gateway(there=folders.server) as rig:
        client = await rig.legacy(LATEST, stdio=False, capabilities={"roots": {}})
        await client.request("tools/list")
        calls = [asyncio.ensure_future(client.call("folders")) for _ in range(3)]
        question = await client.question()
        await settle()
        assert folders.server.calls == []
        client.answer(question, rooted("file:///ann"))
        assert [(await call).text for call in calls] == ["file:///ann"] * 3
        assert [question["method"] for question in client.asked] == ["roots/list"]


async def test_a_call_that_waits_for_the_roots_asked_for_another_asks_when_that_one_is_given_up() -> None:
    folders = Folders()
    async with gateway(there=folders.server) as rig:
        client = await rig.legacy(LATEST, stdio=False, capabilities={"roots": {}})
        await client.request("tools/list")
        first = client.start("tools/call", name="folders", arguments={})
        await client.question()
        second = asyncio.ensure_future(client.call("folders"))
        await settle()
        client.cancel(first)
        client.answer(await client.question(2), rooted("file:///ann"))
        assert (await second).text == "file:///ann"
        assert len(folders.server.calls) == 1


async def test_a_call_that_is_given_up_while_roots_are_asked_for_is_never_made() -> None:
    folders = Folders()
    async with gateway(there=folders.server) as rig:
        client = await rig.legacy(LATEST, stdio=False, capabilities={"roots": {}})
        await client.request("tools/list")
        call = client.start("tools/call", name="folders", arguments={})
        await client.question()
        client.cancel(call)
        await asyncio.sleep(60)
        assert folders.server.calls == []
