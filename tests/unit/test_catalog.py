"""The catalog: fetched once, kept for a while, and one server's failure is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec import Raw
from virtualtime import FakeClock, settle

from toolgate.catalog import DEBOUNCE, Catalog, CatalogView
from toolgate.config import CatalogLimits
from toolgate.model import Client, Event, Fault, Principal
from toolgate.ports import About, Items, State, Status, Store
from toolgate.store.memory import MemoryStore

TTL = 300.0
WANTED = [("docs", "tools")]


class Shop:
    """An upstream whose list is what `names` says, when the doors are open. It is up, unless its `state` says not."""

    def __init__(self, id: str, *names: str) -> None:
        self.id = self.name = id
        self.names: tuple[str, ...] = names
        self.fault: Exception | None = None
        self.asked = 0
        self.state: State = "ready"
        self.doors = asyncio.Event()
        self.doors.set()
        self.scope: Callable[[Client], str] = lambda client: ""

    def status(self) -> Status:
        return Status(self.state)

    async def about(self, client: Client) -> About:
        self.state = "ready"
        return About({"tools": {}}, f"I am {self.id}")

    async def list(self, kind: str, client: Client) -> Items:
        self.asked += 1
        self.state = "ready"
        names = self.names
        await self.doors.wait()
        if self.fault:
            raise self.fault
        return Items(tuple(Raw(b'{"name":"%b"}' % name.encode()) for name in names))


def catalog_of(
    *shops: Shop,
    clock: FakeClock | None = None,
    events: list[Event] | None = None,
    store: Store | None = None,
    prints: Mapping[str, str] | None = None,
    grace: float = 0.0,
) -> Catalog:
    upstreams: Any = {shop.id: shop for shop in shops}
    heard = events if events is not None else []
    time = clock or FakeClock()
    limits = CatalogLimits(ttl=TTL, grace=grace)
    return Catalog(upstreams, time, limits, heard.append, store or MemoryStore(time), prints or {})


async def seen(catalog: Catalog, *wanted: tuple[str, str], patience: float | None = None) -> CatalogView:
    asked = wanted or tuple(WANTED)
    return await catalog.view([server for server, _ in asked], asked, Client(), patience)


def names(view: CatalogView, server: str = "docs") -> list[str]:
    shelf = view.shelf(server, "tools")
    assert shelf
    return list(shelf.items)


@pytest.mark.promise("001.tools-list.cached")
async def test_a_list_is_fetched_once_however_many_want_it() -> None:
    shop = Shop("docs", "read")
    catalog = catalog_of(shop)
    views = await asyncio.gather(*(seen(catalog) for _ in range(5)))
    assert [names(view) for view in views] == [["read"]] * 5
    assert names(await seen(catalog)) == ["read"]
    assert shop.asked == 1


@pytest.mark.promise("001.tools-list.cached", "b.001.cache-ttl")
async def test_a_list_is_fetched_again_when_its_time_is_over_or_its_server_says_so() -> None:
    shop, clock = Shop("docs", "read"), FakeClock()
    catalog = catalog_of(shop, clock=clock)
    await seen(catalog)
    await clock.advance(TTL)
    await seen(catalog)
    assert shop.asked == 2
    shop.names = ("write",)
    catalog.changed("docs", "", ["tools"])
    assert names(await seen(catalog)) == ["write"]
    catalog.changed("docs", "", ["prompts"])
    await seen(catalog)
    assert shop.asked == 3


@pytest.mark.promise("001.tools-list.cached")
async def test_a_list_that_changes_while_it_is_fetched_is_not_kept() -> None:
    shop = Shop("docs", "old")
    shop.doors.clear()
    catalog = catalog_of(shop)
    first = asyncio.ensure_future(seen(catalog))
    await settle()
    catalog.changed("docs", "", ["tools"])
    shop.names = ("new",)
    shop.doors.set()
    assert names(await first) == ["old"]
    assert names(await seen(catalog)) == ["new"]


@pytest.mark.promise("b.001.degraded")
async def test_one_servers_failure_is_data_beside_the_others_items_and_is_not_kept() -> None:
    good, bad = Shop("docs", "read"), Shop("bad")
    bad.fault = Fault("SERVER_FAILED", "it broke")
    catalog = catalog_of(good, bad)
    view = await seen(catalog, ("docs", "tools"), ("bad", "tools"))
    assert names(view) == ["read"]
    assert view.shelf("bad", "tools") is None
    assert view.fault("bad", "tools") is bad.fault
    bad.fault, bad.names = None, ("mended",)
    assert names(await seen(catalog, ("bad", "tools")), "bad") == ["mended"]


async def test_a_failure_that_is_no_fault_becomes_one() -> None:
    shop = Shop("docs")
    shop.fault = ValueError("out of shape")
    fault = (await seen(catalog_of(shop))).fault("docs", "tools")
    assert fault and (fault.code, fault.message) == ("SERVER_FAILED", "out of shape")


@pytest.mark.promise("b.001.list-pending")
async def test_what_does_not_come_in_time_is_pending_and_announced_when_it_is_there() -> None:
    good, slow, clock = Shop("docs", "read"), Shop("slow", "late"), FakeClock()
    events: list[Event] = []
    slow.doors.clear()
    catalog = catalog_of(good, slow, clock=clock, events=events)
    view = asyncio.ensure_future(seen(catalog, ("docs", "tools"), ("slow", "tools"), patience=10))
    await clock.advance(10)
    assert (await view).pending == {("slow", "tools")}
    assert names(await view) == ["read"] and not events
    slow.doors.set()
    await settle()
    assert events == [Event("slow", "list_changed", lists=("tools",))]
    assert names(await seen(catalog, ("slow", "tools")), "slow") == ["late"]
    assert slow.asked == 1


async def test_clients_of_one_scope_share_a_list_and_others_do_not() -> None:
    shop = Shop("docs", "read")
    shop.scope = lambda client: client.principal.id
    catalog = catalog_of(shop)
    ada, bob = Client(Principal("ada")), Client(Principal("bob"))
    for client in (ada, bob, ada):
        await catalog.view(["docs"], WANTED, client)
    assert shop.asked == 2
    catalog.forget("docs", "ada")
    assert catalog.known("docs", "tools", ada) is None
    assert catalog.known("docs", "tools", bob) is not None


async def test_an_item_out_of_shape_does_not_spoil_the_others(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop("docs", "read")

    async def listing(kind: str, client: Client) -> Items:
        return Items(tuple(Raw(raw) for raw in (b'{"name":"read"}', b'{"title":"x"}', b"7", b'{"name":7}')))

    shop.list = listing  # type: ignore[method-assign]
    assert names(await seen(catalog_of(shop))) == ["read"]
    assert caplog.text.count("docs lists something without name") == 3


async def test_the_end_of_the_catalog_ends_what_it_fetches() -> None:
    shop = Shop("docs")
    shop.doors.clear()
    catalog = catalog_of(shop)
    view = asyncio.ensure_future(seen(catalog))
    await settle()
    await catalog.close()
    await asyncio.wait([view])
