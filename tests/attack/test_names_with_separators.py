"""Servers and tools whose names hold what joins the two (`__`, `+`): a name means one thing, whoever says it. What a
client may not see leaves its name to nobody, however another server is written."""

from __future__ import annotations

import msgspec
import pytest
from attack.test_bare_names_of_others import ADA, is_of, known, server, told
from inmemory import MODERN, Visitor, gateway

from toolgate.config import Config, Server
from toolgate.config.access import Permissions

WRITTEN = ["my__notes", "my_notes", "My  Notes", "my notes"]
URI = "notes__a:b"


def servers(written: str) -> tuple[Server, ...]:
    return (
        Server(id="my", name="my", type="stdio", command="memory"),
        Server(id="my-notes", name=written, type="stdio", command="memory"),
    )


def scripts() -> dict[str, object]:
    mine = server("my", ("notes__write", "_write", "write__"), ("x:a",), ("notes__pr",))
    return {"my": mine, "my-notes": server("my-notes", ("write", "_write"), ("x:a",), ("pr",))}


async def meant(app: object, name: str, path: str = "/mcp", method: str = "tools/call") -> str:
    reply = await told(app, name, path, method, **ADA)
    found = [who for who in ("my", "my-notes") if is_of(reply, who) and not (who == "my" and is_of(reply, "my-notes"))]
    return found[0] if found else ""


@pytest.mark.parametrize("path", ["/mcp", "/mcp/all", "/mcp/components", "/mcp/bundles/some"])
@pytest.mark.parametrize("written", WRITTEN)
async def test_what_a_client_may_not_see_leaves_its_name_to_nobody(written: str, path: str) -> None:
    for whole in (True, False):
        seen = known(servers="all") if whole else known(servers=("my-notes",))
        config = msgspec.structs.replace(seen, bundles={"some": ("my__*", "my-notes__*")})
        async with gateway(*servers(written), config=config, scripts=scripts()) as app:
            assert await meant(app, "my__notes__write", path) == ("my" if whole else "")
            assert await meant(app, "my__notes__pr", path, "prompts/get") == ("my" if whole else "")
            assert await meant(app, "my__notes__x:a", path, "resources/read") == ("my" if whole else "")
            assert await meant(app, "my-notes__write", path) == "my-notes"


@pytest.mark.parametrize("written", WRITTEN)
async def test_nor_does_a_server_that_is_off_or_disabled(written: str) -> None:
    off = known(servers="all", permissions=Permissions(everything="allow", servers={"my": "off"}))
    mine, notes = servers(written)
    disabled = msgspec.structs.replace(mine, enabled=False)
    for config, first in [(off, mine), (known(servers="all"), disabled), (Config(), disabled)]:
        async with gateway(first, notes, config=config, scripts=scripts()) as app:
            assert await meant(app, "my__notes__write") == ""


async def test_each_name_that_is_listed_is_called_at_the_server_that_has_listed_it() -> None:
    async with gateway(*servers("my__notes"), scripts=scripts()) as app:
        visitor = Visitor(app)
        listed = [tool["name"] for tool in (await visitor.ask_modern("tools/list")).result["tools"]]
        assert len(set(listed)) == 5
        for name in listed:
            reply = await visitor.ask_modern("tools/call", name=name, arguments={}, headers={"mcp-name": name})
            who = "my-notes" if name.startswith("my-notes__") else "my"
            assert reply.result["content"][0]["text"] == f"{who} got it", name
        assert visitor.revision != MODERN


@pytest.mark.parametrize("written", WRITTEN)
async def test_a_server_is_still_called_as_it_is_written_where_that_means_no_other_one(written: str) -> None:
    async with gateway(servers(written)[1], scripts={"my-notes": scripts()["my-notes"]}) as app:
        assert await meant(app, f"{written}__write") == "my-notes"
