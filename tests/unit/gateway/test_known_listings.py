"""Lists that are known as they were shown: always what would be shown now, and no more of them than is worth it."""

from __future__ import annotations

import msgspec
import pytest
from inmemory import MODERN, Json, Scripted, Visitor, gateway, tools
from msgspec import Raw
from virtualtime import FakeClock, settle

from toolgate.app import App
from toolgate.config import CatalogLimits, Config
from toolgate.config.access import KnownClient, Permissions
from toolgate.core import items, mcp
from toolgate.core.listing import Listing
from toolgate.core.model import Client, Principal
from toolgate.eras import revisions
from toolgate.gateway import known_listings
from toolgate.gateway.known_listings import KnownListing, KnownListings, key_of

ANN = Client(Principal("ann", client="ann"))
BOB = Client(Principal("bob", client="bob"))


def two(**more: Json) -> dict[str, Scripted]:
    return {name: Scripted(tools_list=more.get(name, tools("a"))) for name in ("one", "two")}


async def shown(app: App, client: Client = ANN) -> list[str]:
    """What a client is shown, which is also what it would be shown if nothing were known."""
    lists, route = app.gateway.lists, app.gateway.snapshot.routes["/mcp"]
    known = await lists.view("tools", route, client)
    lists.forget()
    afresh = await lists.view("tools", route, client)
    assert msgspec.structs.replace(known, joined=None) == msgspec.structs.replace(afresh, joined=None)
    return [items.read(item).name for item in known.items]


async def test_a_list_is_made_once_as_long_as_the_servers_lists_are_the_same() -> None:
    async with gateway(scripts=two()) as app:
        lists, route = app.gateway.lists, app.gateway.snapshot.routes["/mcp"]
        first = await lists.view("tools", route, ANN)
        app.gateway.snapshot.catalog.version += 1  # something else is another now
        again = await lists.view("tools", route, ANN)
        assert again.items is first.items and again.joined is first.joined
        assert (await lists.view("tools", route, BOB)).items is first.items
        assert await shown(app) == ["one__a", "two__a"]


async def test_what_a_server_changes_is_shown() -> None:
    servers = two()
    async with gateway(scripts=servers) as app:
        assert await shown(app) == ["one__a", "two__a"]
        servers["one"].change(tools("b", "c"))
        await settle()
        assert await shown(app) == ["one__b", "one__c", "two__a"]


async def test_a_list_is_asked_for_again_when_its_time_is_up() -> None:
    servers = two()
    clock = FakeClock()
    async with gateway(scripts=servers, clock=clock, config=Config(catalog=CatalogLimits(ttl=60.0))) as app:
        lists, route = app.gateway.lists, app.gateway.snapshot.routes["/mcp"]
        for _ in range(3):
            await lists.view("tools", route, ANN)
        servers["one"].answers["tools/list"] = tools("b")
        assert await shown(app) == ["one__a", "two__a"]
        await lists.view("tools", route, ANN)
        await clock.advance(60.0)
        assert await shown(app) == ["one__b", "two__a"]


async def test_clients_with_other_permissions_are_shown_other_lists() -> None:
    known = (
        KnownClient(id="ann", name="ann", servers="all"),
        KnownClient(id="bob", name="bob", servers="all", permissions=Permissions(servers={"one": "off"})),
    )
    async with gateway(scripts=two(), config=Config(clients=known)) as app:
        for _ in range(3):
            assert await shown(app, ANN) == ["one__a", "two__a"]
            assert await shown(app, BOB) == ["two__a"]


@pytest.mark.parametrize("page_size", [1, 2, 3])
async def test_pages_say_the_same_each_time_in_each_era(page_size: int) -> None:
    config = Config(catalog=CatalogLimits(page_size=page_size))
    odd = tools("a", "b", outputSchema={"type": "array"})  # which legacy clients are not told
    async with gateway(scripts=two(one=odd), config=config) as app:
        modern, legacy = Visitor(app), Visitor(app)
        await legacy.initialize()

        async def pages(is_modern: bool) -> list[Json]:
            found: list[Json] = []
            more: Json = {}
            while True:
                asked = modern.ask_modern("tools/list", **more) if is_modern else legacy.ask("tools/list", **more)
                result = (await asked).result
                found += result["tools"]
                if "nextCursor" not in result:
                    return found
                more = {"cursor": result["nextCursor"]}

        first = [await pages(True), await pages(False)]
        assert [await pages(True), await pages(False)] == first
        assert [["outputSchema" in tool for tool in found] for found in first] == [[True, True, False], [False] * 3]


def listing_of(*raws: bytes) -> Listing:
    return Listing("tools", tuple(map(Raw, raws)))


def test_what_is_written_of_a_page_is_kept_with_its_list() -> None:
    page = msgspec.structs.replace(listing_of(b'{"name":"a","inputSchema":{"type":"object"}}'), joined={})
    revision = mcp.REVISIONS[MODERN]
    assert not revisions.has_written(page, revision)
    written = revisions.write_items(page, revision)
    assert revisions.has_written(page, revision)
    assert revisions.write_items(page, revision) is written
    other = msgspec.structs.replace(page, start=1)
    assert not revisions.has_written(other, revision)


async def test_many_or_long_lists_are_known_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_listings, "MOST", 3)
    monkeypatch.setattr(known_listings, "MOST_BYTES", 100)
    async with gateway(scripts=two()) as app:
        route, known = app.gateway.snapshot.routes["/mcp"], KnownListings()
        keys = [key_of("tools", route, ANN, None, (str(number),)) for number in range(5)]

        def keep(number: int, size: int) -> Listing:
            made = KnownListing(route, listing_of(b"x" * size), (), 1, 10.0, 0.0)
            return known.keep(keys[number], made)

        def there() -> list[int]:
            return [number for number in range(5) if known.find(keys[number], route, 1, 0.0)]

        for number in range(5):
            keep(number, 1)
        assert there() == [2, 3, 4]
        assert keep(0, 51).joined is None  # all of it, written for both eras, would be too much
        assert there() == [0, 3, 4]
        assert keep(1, 49).joined == {}
        assert there() == [1, 4]
        assert keep(2, 40).joined == {}
        assert there() == [2, 4]
        assert not known.find(keys[2], route, 2, 0.0)
        assert not known.find(keys[2], route, 1, 10.0)
        assert not known.find(keys[2], app.gateway.snapshot.routes["/mcp/servers/one"], 1, 0.0)
