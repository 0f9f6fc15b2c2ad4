"""How long lists hold, and for whom: as the servers say, all of them together; and what is kept of them here."""

from __future__ import annotations

from typing import Any

import pytest
from peers import LATEST, MODERN, Json, LegacyServer, ModernServer, Scene, gateway

from toolgate.config import CatalogLimits

METHODS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]


async def plain(scene: Scene) -> str:
    return "just so"


def a_server(ttl: int | None = None, scope: str = "private", **more: Any) -> Any:
    """A modern one that says how long its lists hold, or a legacy one, which cannot."""
    offered = ({"plain": plain}, {"plain": plain}, {"mem://a": plain})
    if ttl is None:
        return LegacyServer(*offered, **more)
    return ModernServer(*offered, keeps={"ttlMs": ttl, "cacheScope": scope}, **more)


async def hints(client: Any, method: str = "tools/list", **params: Any) -> tuple[int, str]:
    result = (await client.request(method, **params)).result
    return result["ttlMs"], result["cacheScope"]


@pytest.mark.promise("b.001.cache-upstream")
@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ([a_server(5000, "public")], (5000, "public")),
        ([a_server(5000, "public"), a_server(3000, "public")], (3000, "public")),
        ([a_server(5000, "public"), a_server(9000, "private")], (5000, "private")),
        ([a_server(5000, "public"), a_server(0, "public")], (0, "public")),
        ([a_server(5000, "public"), a_server(None)], (0, "private")),
        ([a_server(None)], (0, "private")),
        ([a_server(7 * 24 * 3600 * 1000, "public")], (24 * 3600 * 1000, "public")),
    ],
    ids=["one", "least", "private if any", "nothing if any", "legacy beside", "legacy", "a day at most"],
)
@pytest.mark.parametrize("method", METHODS)
async def test_lists_hold_as_long_as_all_servers_say(servers: list[Any], expected: Any, method: str) -> None:
    fresh = {f"s{number}": type(each)(**_offer(each)) for number, each in enumerate(servers)}
    async with gateway(**fresh) as rig:
        assert await hints(rig.modern(), method) == expected


def _offer(server: Any) -> Json:
    """The same server anew: a parameter of a test is used more than once."""
    return {**server.scripts, "keeps": server.keeps}


@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/one"])
async def test_a_list_that_lacks_a_server_holds_for_nobody(path: str) -> None:
    one = a_server(5000, "public")
    broken = a_server(5000, "public")
    broken.connection = type("Refusing", (broken.connection,), {"requested": _refuse_lists})
    async with gateway(one=one, broken=broken) as rig:
        shown = await hints(rig.modern(path=path))
        assert shown == ((0, "private") if path == "/mcp" else (5000, "public"))


def _refuse_lists(self: Any, message: Json) -> None:
    if message["method"] == "tools/list":
        self.say({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32603, "message": "not now"}})
    else:
        super(type(self), self).requested(message)


@pytest.mark.promise("b.001.cache-upstream")
async def test_a_list_is_asked_for_again_when_its_time_is_over() -> None:
    there = a_server(10_000)
    async with gateway(there=there) as rig:
        client = rig.modern()
        assert await hints(client) == (10_000, "private")
        await rig.clock.advance(4)
        ttl, _ = await hints(client)
        assert 5_900 <= ttl <= 6_000
        assert len(there.requests("tools/list")) == 1
        await rig.clock.advance(6)
        assert await hints(client) == (10_000, "private")
        assert len(there.requests("tools/list")) == 2


@pytest.mark.promise("b.001.cache-upstream")
@pytest.mark.parametrize(("ttl", "asked"), [(0, 3), (60_000, 1), (None, 1)])
async def test_what_a_server_lets_be_kept_is_kept_for_clients_of_all_revisions(ttl: int | None, asked: int) -> None:
    there = a_server(ttl)
    async with gateway(there=there) as rig:
        for revision in ("2024-11-05", LATEST, MODERN):
            await (await rig.client(revision)).request("tools/list")
        assert len(there.requests("tools/list")) == asked


@pytest.mark.promise("b.001.cache-ttl")
async def test_a_server_that_says_nothing_is_asked_again_after_the_configured_time() -> None:
    there = a_server(None)
    async with gateway(catalog=CatalogLimits(ttl=30), there=there) as rig:
        client = rig.modern()
        for seconds, asked in ((0, 1), (29, 1), (2, 2)):
            await rig.clock.advance(seconds)
            await client.request("tools/list")
            assert len(there.requests("tools/list")) == asked


async def test_a_change_ends_what_still_holds() -> None:
    there = a_server(600_000, "public", announces=True)
    async with gateway(there=there) as rig:
        client = rig.modern()
        await client.request("tools/list")
        there.offer("tools", {"name": "new", "inputSchema": {"type": "object"}})
        await rig.clock.advance(1)
        [tool] = (await client.request("tools/list")).result["tools"]
        assert tool["name"] == "there__new"


async def test_a_list_of_a_principals_own_server_is_kept_for_that_principal() -> None:
    there = a_server(600_000, scope="private")
    there.settings["scope"] = "principal"
    async with gateway(there=there) as rig:
        for who in ("ann", "bob", "ann", "bob"):
            await rig.modern(who).request("tools/list")
        assert len(there.requests("tools/list")) == 2


@pytest.mark.parametrize(
    "declared", [{"ttlMs": -5}, {"ttlMs": 1.5}, {"ttlMs": "x"}, {"cacheScope": "all"}, {}], ids=str
)
@pytest.mark.parametrize("method", ["tools/list", "resources/read"])
async def test_hints_out_of_shape_are_put_right(declared: Json, method: str) -> None:
    there = a_server(0)
    there.keeps = declared
    async with gateway(there=there) as rig:
        params = {"uri": "there+mem://a"} if method == "resources/read" else {}
        reply = await rig.modern().request(method, **params)
        if declared.get("ttlMs") == "x" and method == "tools/list":
            assert reply.error["code"] == -32603
            return
        ttl, scope = reply.result["ttlMs"], reply.result["cacheScope"]
        assert isinstance(ttl, int) and ttl >= 0
        assert scope == "private"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/there"])
async def test_what_a_server_says_of_a_resource_is_passed_on(path: str) -> None:
    there = a_server(7000, "public")
    async with gateway(there=there) as rig:
        uri = "there+mem://a" if path == "/mcp" else "mem://a"
        assert await hints(rig.modern(path=path), "resources/read", uri=uri) == (7000, "public")


async def test_a_legacy_servers_resources_are_not_to_be_kept() -> None:
    async with gateway(there=a_server(None)) as rig:
        assert await hints(rig.modern(), "resources/read", uri="there+mem://a") == (0, "private")


@pytest.mark.parametrize("revision", ["2024-11-05", LATEST])
async def test_a_legacy_client_is_told_nothing_of_it(revision: str) -> None:
    async with gateway(there=a_server(7000, "public")) as rig:
        result = (await (await rig.legacy(revision)).request("tools/list")).result
        assert not {"ttlMs", "cacheScope", "resultType"} & result.keys()


async def test_what_a_server_is_holds_for_nobody_but_whoever_asked() -> None:
    async with gateway(there=a_server(7000, "public")) as rig:
        assert await hints(rig.modern(), "server/discover") == (0, "private")
