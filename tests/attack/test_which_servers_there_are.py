"""By its path a client learns nothing of servers that it may not see: not that they are there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from bridge.test_permissions import clients
from doors.issuers import KEYS, bearer
from inmemory import LATEST, MODERN, Response, Scripted, Visitor, gateway, tools

from toolgate.config.access import KnownClient, Permissions

HIDDEN = {"git": "/mcp/servers/git", "nobody": "/mcp/servers/nobody"}


def known(**more: Any) -> Any:
    return clients(KnownClient(id="ada", name="ada", key=KEYS["ada"], **more))


@pytest.mark.parametrize(
    "more",
    [
        {"servers": "none"},
        {"servers": ("docs",)},
        {"servers": "all", "permissions": Permissions(everything="off", servers={"docs": "allow"})},
        {"servers": "all", "permissions": Permissions(everything="off", tools={"docs__*": "allow"})},
    ],
    ids=str,
)
@pytest.mark.parametrize("behind", ["", "/", "/sse", "/sse/"])
async def test_a_server_out_of_reach_and_one_that_is_not_there_are_alike(more: dict[str, Any], behind: str) -> None:
    scripts = {name: Scripted(tools_list=tools("a")) for name in ("git", "docs")}
    async with gateway(config=known(**more), scripts=scripts) as app:
        for method in ("POST", "GET", "DELETE"):
            found = [await answer(app, path + behind, method) for path in HIDDEN.values()]
            assert found[0] == found[1], method
            assert found[0][0] == 403


@pytest.mark.parametrize("spelling", ["my-git", "my_git", "My Git"])
async def test_nor_by_another_spelling_of_a_name_that_is_off(spelling: str) -> None:
    config = known(permissions=Permissions(servers={"my-git": "off"}))
    told: list[Any] = []
    for is_there in (True, False):
        there = {"my-git": Scripted()} if is_there else {"docs": Scripted()}
        async with gateway(config=config, scripts=there) as app:
            told.append(await answer(app, f"/mcp/servers/{spelling}", "POST"))
    assert told[0] == told[1] and told[0][0] == 403


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_who_may_see_all_is_told_that_there_is_none(revision: str) -> None:
    async with gateway(config=known(servers="all"), scripts={"git": Scripted(tools_list=tools("a"))}) as app:
        visitor = Visitor(app, HIDDEN["nobody"], **bearer(KEYS["ada"]))
        assert (await visitor.post(visitor.request("ping"))).status == 404
        there = Visitor(app, HIDDEN["git"], **bearer(KEYS["ada"]))
        assert (await there.initialize()).status == 200


@pytest.mark.parametrize("behind", ["", "/sse", "/server-card"])
async def test_a_bundle_of_servers_out_of_reach_and_one_that_is_not_there_are_alike(behind: str) -> None:
    config = msgspec.structs.replace(known(servers=("docs",)), bundles={"some": ("git__*",), "mine": ("docs__*",)})
    scripts = {name: Scripted(tools_list=tools("a")) for name in ("git", "docs")}
    async with gateway(config=config, scripts=scripts) as app:
        for method in ("POST", "GET", "DELETE"):
            found = [await answer(app, f"/mcp/bundles/{name}{behind}", method) for name in ("some", "nobody")]
            assert found[0][0] == found[1][0] and found[0][0] in (404, 405)
        visitor = Visitor(app, "/mcp/bundles/mine", **bearer(KEYS["ada"]))
        assert (await visitor.initialize()).status == 200


async def test_what_is_asked_for_without_end_is_not_remembered() -> None:
    async with gateway(config=known(servers="none"), scripts={"git": Scripted(tools_list=tools("a"))}) as app:
        rules = app.gateway.access.clients["ada"]
        for number in range(9000):
            assert not rules.sees(f"x{number}")
        assert not rules.sees("y" * 10_000)
        assert len(rules._seen) <= 8192
        assert max(map(len, rules._seen)) <= 512


async def answer(app: Any, path: str, method: str) -> tuple[int, bytes, Any]:
    response: Response = await Visitor(app, path, **bearer(KEYS["ada"])).send(method, b"{}")
    return response.status, response.body, response.headers
