"""Pages: long lists come in parts, each client's cursors are its own, and servers' pages are read to their end."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from peers import LATEST, MODERN, Json, LegacyServer, ModernServer, RpcError, Scene, gateway

from toolgate.config import CatalogLimits
from toolgate.frontends import pages as frontend_pages

CLIENTS = ["2024-11-05", LATEST, MODERN]
KEYS = {
    "tools/list": "name",
    "prompts/list": "name",
    "resources/list": "uri",
    "resources/templates/list": "uriTemplate",
}
OF_TWO = CatalogLimits(page_size=2)


async def plain(scene: Scene) -> str:
    return "just so"


def a_server(kind: Any, count: int, **more: Any) -> Any:
    numbers = range(count)
    scripts = {f"n{number}": plain for number in numbers}
    resources = {f"mem://{number}": plain for number in numbers}
    templates = {f"mem://{number}/{{x}}": plain for number in numbers}
    return kind(scripts, scripts, resources, templates=templates, **more)


async def pages(client: Any, method: str = "tools/list") -> list[list[str]]:
    """The names on each page."""
    found: list[list[str]] = []
    params: Json = {}
    while True:
        result = (await client.request(method, **params)).result
        [kind] = [name for name in result if name in ("tools", "prompts", "resources", "resourceTemplates")]
        found.append([item[KEYS[method]] for item in result[kind]])
        if "nextCursor" not in result:
            return found
        params = {"cursor": result["nextCursor"]}


@pytest.mark.promise("spec.2026.pagination.cursor")
@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize("method", KEYS)
async def test_a_long_list_comes_in_pages(revision: str, method: str) -> None:
    async with gateway(catalog=OF_TWO, one=a_server(LegacyServer, 3), two=a_server(ModernServer, 2)) as rig:
        found = await pages(await rig.client(revision), method)
        assert [len(page) for page in found] == [2, 2, 1]
        whole = [name for page in found for name in page]
        assert len(set(whole)) == 5
        assert [name[:3] for name in whole] == ["one"] * 3 + ["two"] * 2


@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (2, [2]), (3, [2, 1]), (4, [2, 2])])
async def test_the_last_page_has_no_cursor(revision: str, count: int, sizes: list[int]) -> None:
    async with gateway(catalog=OF_TWO, one=a_server(LegacyServer, count)) as rig:
        assert [len(page) for page in await pages(await rig.client(revision))] == sizes


@pytest.mark.promise("b.001.list-pages")
@pytest.mark.parametrize("kind", [LegacyServer, ModernServer])
@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize("method", KEYS)
async def test_the_pages_of_a_server_are_read_to_their_end(kind: Any, revision: str, method: str) -> None:
    there = a_server(kind, 5, page=2)
    async with gateway(there=there) as rig:
        [page] = await pages(await rig.client(revision), method)
        assert len(page) == 5
        assert len(there.requests(method)) == 3


@pytest.mark.parametrize("kind", [LegacyServer, ModernServer])
async def test_an_empty_cursor_is_one(kind: Any) -> None:
    there = a_server(kind, 2)
    first = {"tools": there.lists["tools/list"][1][:1], "nextCursor": ""}
    last = {"tools": there.lists["tools/list"][1][1:]}
    cut = lambda self, method, cursor: first if cursor is None else last  # noqa: E731
    there.connection = type("Cutting", (there.connection,), {"_page": cut})
    async with gateway(there=there) as rig:
        assert await pages(await rig.client(LATEST)) == [["there__n0", "there__n1"]]
        assert there.requests("tools/list")[1]["params"]["cursor"] == ""


@pytest.mark.parametrize("revision", CLIENTS)
async def test_a_list_that_has_changed_meanwhile_goes_on_behind_the_last_item(revision: str) -> None:
    there = a_server(LegacyServer, 5, announces=True)
    async with gateway(catalog=OF_TWO, there=there) as rig:
        client = await rig.client(revision)
        first = (await client.request("tools/list")).result
        tools = there.lists["tools/list"][1][:]
        new = [{"name": f"new{number}", "inputSchema": {"type": "object"}} for number in range(2)]
        there.offer("tools", *new, *tools)
        await rig.clock.advance(1)
        second = (await client.request("tools/list", cursor=first["nextCursor"])).result
        assert [tool["name"] for tool in second["tools"]] == ["there__n2", "there__n3"]
        there.offer("tools", *tools[4:])  # the last item is gone, and most of what was before it
        await rig.clock.advance(1)
        third = (await client.request("tools/list", cursor=second["nextCursor"])).result
        assert (third["tools"], "nextCursor" in third) == ([], False)


@pytest.mark.parametrize("revision", CLIENTS)
async def test_a_list_is_looked_through_once_for_a_cursor_whose_item_is_gone(
    revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    digested: list[Any] = []
    digest = frontend_pages._digest
    monkeypatch.setattr(frontend_pages, "_digest", lambda item: digested.append(item) or digest(item))
    there = a_server(LegacyServer, 40, announces=True)
    async with gateway(catalog=OF_TWO, there=there) as rig:
        client = await rig.client(revision)
        first = (await client.request("tools/list")).result
        there.offer("tools", *there.lists["tools/list"][1][5:])
        await rig.clock.advance(1)
        for _ in range(5):
            page = (await client.request("tools/list", cursor=first["nextCursor"])).result
            assert [tool["name"] for tool in page["tools"]] == ["there__n7", "there__n8"]
        assert len(digested) < 2 * 40
        digested.clear()
        there.offer("tools", *there.lists["tools/list"][1][1:])  # another list is looked through anew
        await rig.clock.advance(1)
        page = (await client.request("tools/list", cursor=page["nextCursor"])).result
        assert [tool["name"] for tool in page["tools"]] == ["there__n9", "there__n10"] and len(digested) > 30


@pytest.mark.parametrize("last, code, shown", [("", -32602, ["t"]), ("", -32603, None), ("more", -32602, None)])
async def test_a_list_ends_where_its_server_refuses_the_empty_cursor_that_it_gave(
    last: str, code: int, shown: list[str] | None
) -> None:
    there = LegacyServer({"t": plain})

    class Connection(there.connection):
        def requested(self, message: Json) -> None:
            if message["method"] != "tools/list":
                super().requested(message)
            elif "cursor" in message.get("params", {}):
                self.refuse(message, RpcError(code, "Invalid cursor"))
            else:
                self.reply(message, {"tools": there.lists["tools/list"][1], "nextCursor": last})

    there.connection = Connection
    async with gateway(there=there) as rig:
        reply = await (await rig.client(LATEST, path="/mcp/servers/there")).request("tools/list")
    if shown is None:
        assert "Invalid cursor" in reply.error["message"]
    else:
        assert [tool["name"] for tool in reply.result["tools"]] == shown


FORGED = [
    "",
    "2",
    "null",
    "AAAA",
    "é+/=",
    "x" * 5000,
    base64.urlsafe_b64encode(b"2").decode(),
    2,
    True,
    ["x"],
    {},
]


@pytest.mark.promise("spec.2026.pagination.cursor")
@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize("cursor", FORGED, ids=lambda cursor: repr(cursor)[:20])
async def test_a_cursor_that_is_not_ours_is_refused(revision: str, cursor: Any) -> None:
    async with gateway(catalog=OF_TWO, one=a_server(LegacyServer, 5)) as rig:
        client = await rig.client(revision)
        assert (await client.request("tools/list", cursor=cursor)).error["code"] == -32602


@pytest.mark.promise("spec.2026.pagination.cursor")
@pytest.mark.parametrize("revision", CLIENTS)
async def test_a_cursor_is_good_for_its_own_principal_path_and_list(revision: str) -> None:
    async with gateway(catalog=OF_TWO, one=a_server(LegacyServer, 5)) as rig:
        ann = await rig.client(revision, principal="ann")
        cursor = (await ann.request("tools/list")).result["nextCursor"]
        changed = cursor[:-5] + ("A" if cursor[-5] != "A" else "B") + cursor[-4:]
        strangers = [
            (ann, "prompts/list", cursor),
            (await rig.client(revision, principal="bob"), "tools/list", cursor),
            (await rig.client(revision, principal="ann", path="/mcp/servers/one"), "tools/list", cursor),
            (ann, "tools/list", changed),
            (ann, "tools/list", cursor[:-1]),
        ]
        for client, method, told in strangers:
            assert (await client.request(method, cursor=told)).error["code"] == -32602
        for _ in range(2):  # it may be used again, and by another connection of its principal
            same = await rig.client(revision, principal="ann")
            assert len((await same.request("tools/list", cursor=cursor)).result["tools"]) == 2


async def test_a_cursor_tells_nothing() -> None:
    async with gateway(catalog=OF_TWO, one=a_server(LegacyServer, 5)) as rig:
        ann = rig.modern("ann")
        cursors = [(await ann.request("tools/list")).result["nextCursor"] for _ in range(2)]
        body = cursors[0].partition(".")[2]
        readable = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        assert b"ann" not in readable and b"tools" not in readable
        assert cursors[0] != cursors[1]


async def test_every_page_says_the_same_of_how_long_and_for_whom_it_holds() -> None:
    there = a_server(ModernServer, 5, keeps={"ttlMs": 60_000, "cacheScope": "public"})
    async with gateway(catalog=OF_TWO, there=there) as rig:
        client = rig.modern()
        params: Json = {}
        for _ in range(3):
            result = (await client.request("tools/list", **params)).result
            assert (result["ttlMs"], result["cacheScope"]) == (60_000, "public")
            params = {"cursor": result.get("nextCursor")}
        assert len(there.requests("tools/list")) == 1
