"""A client that may use one tool of a server that others use too neither stops it for them nor reads their words in
its stderr, whichever way it asks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from processes.ground import LEGACY, MODERN, Client, Failed, Json, Served, child, gateway, real, settings, until

from toolgate.config import Config
from toolgate.config.access import KnownClient, Permissions

SAID = "PASSWORD_OF_ANN"
NEVER = "WORDS_OF_ITS_OWNER"
ERAS = pytest.mark.parametrize("era", [MODERN, LEGACY])


def known(id: str, admin: bool = False, servers: Any = ("one", "never"), **permissions: Any) -> KnownClient:
    return KnownClient(
        id=id,
        name=id,
        key=f"{id}-has-a-key-of-24-chars",
        servers=servers,
        admin=admin,
        permissions=Permissions(**permissions),
    )


CLIENTS = (
    known("ann"),
    known("boss", admin=True, tools={"one__*": "off"}),
    known("one-tool", servers=None, tools={"one__mine": "allow", "never__mine": "allow"}),
    known("not-all", tools={"one__look": "off", "never__look": "off"}),
    known("reader", read_only="off"),
    known("asker", servers=("one", "never"), everything="ask", tools={"toolgate__*": "allow"}),
)
LESSER = pytest.mark.parametrize("lesser", ["one-tool", "not-all", "reader"])
GREATER = pytest.mark.parametrize("greater", ["ann", "boss"])


def shared(**more: Any) -> Config:
    servers = {"one": child("wordy_of_others"), "never": child("wordy_of_others", "--never")}
    return msgspec.structs.replace(settings(**servers), clients=CLIENTS, **more)


def came(served: Served, id: str, era: str = MODERN) -> Client:
    client = served.client(era)
    client.headers = [f"Authorization: Bearer {id}-has-a-key-of-24-chars"]
    return client


async def said(client: Client, tool: str, /, **arguments: Any) -> str:
    """All that comes back, an error too."""
    return await asked(client, "tools/call", {"name": tool, "arguments": arguments})


async def asked(client: Client, method: str, params: Json) -> str:
    try:
        return json.dumps(await client.ask(method, params))
    except Failed as error:
        return json.dumps(error.args[0])


async def everything_of(client: Client) -> str:
    """All that one may ask of two servers."""
    told: list[str] = []
    for server in ("one", "never"):
        calls: tuple[tuple[str, Json], ...] = (
            ("get_child_status", {"server_id": server}),
            ("get_child_status", {}),
            ("get_schema", {"server_id": server}),
            ("mcp_discover", {"server": server}),
            ("mcp_discover", {"query": "mine"}),
            ("list_mcp_servers", {}),
            ("list_tools", {"server": server}),
            (f"{server}__mine", {}),
            ("mcp_call", {"server": server, "tool": "mine"}),
            ("call_tool", {"server_name": server, "tool_name": "mine"}),
            ("execute_child_tool", {"server_id": server, "tool_name": "mine", "arguments": {}}),
        )
        told += [await said(client, tool, **arguments) for tool, arguments in calls]
    for method, params in (
        ("tools/list", {}),
        ("prompts/list", {}),
        ("resources/read", {"uri": "mcp://children_servers"}),
        ("resources/read", {"uri": "mcp://server_summary"}),
    ):
        told.append(await asked(client, method, params))
    return "\n".join(told)


@pytest.mark.promise("b.attacks.shared")
@pytest.mark.parametrize("lesser", ["one-tool", "not-all", "reader", "asker"])
@real
async def test_who_may_use_a_part_of_a_server_or_all_if_asked_does_not_stop_it(lesser: str) -> None:
    async with gateway(shared()) as served:
        await came(served, "ann").call("one__mine")
        pid = served.status("one").pid
        assert "ACCESS_DENIED" in await said(came(served, lesser), "close_child_session", server_id="one")
        assert await came(served, "ann").call("one__mine") == "yours"
        assert served.status("one").pid == pid


@GREATER
@real
async def test_who_has_all_of_it_or_administers_stops_it(greater: str) -> None:
    async with gateway(shared()) as served:
        await came(served, "ann").call("one__mine")
        told = json.loads(await came(served, greater).call("close_child_session", server_id="one"))
        assert told["status"] == "closed"
        assert served.status("one").state == "stopped"


@pytest.mark.promise("b.attacks.shared")
@LESSER
@ERAS
@real
async def test_words_of_others_on_stderr_are_not_for_who_may_use_a_part(lesser: str, era: str) -> None:
    """While it runs, when it has crashed, and where it never started."""
    async with gateway(shared()) as served:
        await said(came(served, "ann"), "one__look", text=SAID)
        await until(lambda: SAID in served.status("one").stderr)
        client = came(served, lesser, era)
        found = await everything_of(client)
        await said(came(served, "ann"), "one__leave", text=SAID)
        await until(lambda: served.status("one").state == "failed")
        for tool in ("get_child_status", "mcp_discover", "list_mcp_servers"):
            found += await said(client, tool)
        found += await everything_of(client)
        assert SAID not in found and NEVER not in found


@ERAS
@real
async def test_a_call_that_a_crash_ends_tells_nothing_of_whose_words_came_before_it(era: str) -> None:
    """Both have a call under way when the server leaves: who has all of it is told its last line."""
    async with gateway(shared()) as served:
        await came(served, "ann").call("one__mine")
        lesser, ann = came(served, "one-tool", era), came(served, "ann", era)
        for _ in range(5):
            # It reads one call at a time: the second is still to be run when the first ends it.
            leaves = asyncio.create_task(said(ann, "one__leave", text=SAID))
            told = await asyncio.gather(*(said(lesser, "one__mine") for _ in range(5)))
            assert SAID in await leaves
            assert SAID not in "".join(told)


@GREATER
@real
async def test_who_has_all_of_it_or_administers_reads_what_it_wrote(greater: str) -> None:
    async with gateway(shared()) as served:
        await said(came(served, "ann"), "one__leave", text=SAID)
        await until(lambda: served.status("one").state == "failed")
        told = json.loads(await came(served, greater).call("get_child_status", server_id="one"))
        assert SAID in told["stderr"] and SAID in told["error"]
