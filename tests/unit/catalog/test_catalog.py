"""The catalog: fetched once, kept for a while, and one server's failure is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from virtualtime import FakeClock, VirtualTimeLoop, settle, soon

from toolgate.catalog import cache, pins
from toolgate.catalog import catalog as catalogs
from toolgate.catalog.catalog import Catalog
from toolgate.catalog.pins import Pins, StoredPins
from toolgate.catalog.views import CatalogView
from toolgate.config import CatalogLimits, Config, Guard, Overlay, Server
from toolgate.core import mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Client, Event, Principal
from toolgate.state.base import Store
from toolgate.state.memory import MemoryStore
from toolgate.upstreams.base import About, Items, State, Status
from toolgate.upstreams.bounds import Bounds

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

    def status(self, whose: Client | None = None) -> Status:
        return Status(self.state)

    async def about(self, client: Client) -> About:
        self.state = "ready"
        return About({"tools": {}, "experimental": {"x": 10**30}}, f"I am {self.id}")

    async def list(self, kind: str, client: Client) -> Items:
        self.asked += 1
        self.state = "ready"
        names = self.names
        await self.doors.wait()
        if self.fault:
            raise self.fault
        return Items(tuple(Raw(b'{"name":"%b","inputSchema":{"type":"object"}}' % name.encode()) for name in names))


def catalog_of(
    *shops: Shop,
    clock: FakeClock | None = None,
    events: list[Event] | None = None,
    store: Store | None = None,
    prints: Mapping[str, str] | None = None,
    grace: float = 0.0,
    pins: Pins | None = None,
) -> Catalog:
    upstreams: Any = {shop.id: shop for shop in shops}
    heard = events if events is not None else []
    time = clock or FakeClock()
    limits = CatalogLimits(ttl=TTL, grace=grace)
    return Catalog(upstreams, time, Bounds(limits), heard.append, store or MemoryStore(time), prints or {}, pins)


async def seen(catalog: Catalog, *wanted: tuple[str, str], patience: float | None = None) -> CatalogView:
    asked = wanted or tuple(WANTED)
    return await catalog.view([server for server, _ in asked], asked, Client(), patience)


def other(*shops: Shop) -> Any:
    return {shop.id: shop for shop in shops}


def names(view: CatalogView, server: str = "docs") -> list[str]:
    server_list = view.server_list(server, "tools")
    assert server_list
    return list(server_list.items)


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


@pytest.mark.promise("001.tools-list.cached")
async def test_a_list_that_changes_while_it_is_fetched_is_told_of_once_it_is_there() -> None:
    shop, clock, events = Shop("docs", "old"), FakeClock(), list[Event]()
    catalog = catalog_of(shop, clock=clock, events=events)
    await seen(catalog)
    await clock.advance(TTL)
    shop.doors.clear()
    again = asyncio.ensure_future(seen(catalog))
    await settle()
    catalog.changed("docs", "", ["tools"])
    shop.names = ("new",)
    await clock.advance(1)
    shop.doors.set()
    assert names(await again) == ["old"]
    await settle()
    assert events == [Event("docs", "list_changed", lists=("tools",))]
    assert (names(await seen(catalog)), shop.asked) == (["new"], 3)


@pytest.mark.promise("b.001.degraded")
async def test_one_servers_failure_is_data_beside_the_others_items_and_is_not_kept() -> None:
    good, bad = Shop("docs", "read"), Shop("bad")
    bad.fault = Fault("SERVER_FAILED", "it broke")
    catalog = catalog_of(good, bad)
    view = await seen(catalog, ("docs", "tools"), ("bad", "tools"))
    assert names(view) == ["read"]
    assert view.server_list("bad", "tools") is None
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


@pytest.mark.parametrize("is_hidden", [False, True])
async def test_lists_of_scopes_are_kept_up_to_a_size_and_those_fetched_last_stay(
    is_hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, clock = Shop("docs", *(f"{number:0100d}" for number in range(100))), FakeClock()
    monkeypatch.setattr(catalogs, "MOST_OF_SCOPES", 50_000)  # three of them
    shop.scope = lambda client: client.principal.id
    catalog = catalog_of(shop, clock=clock)
    if is_hidden:
        catalog.show({"docs": {"*": Overlay(hidden=True)}})

    async def sees(who: str) -> int:
        """How often the server was asked for that."""
        before = shop.asked
        view = await catalog.view(["docs"], WANTED, Client(Principal(who)))
        server_list = view.server_list(*WANTED[0])
        assert server_list and (len(server_list.items), len(server_list.own)) == (0 if is_hidden else 100, 100)
        await clock.advance(1)
        return shop.asked - before

    assert [await sees(who) for who in ("ann", "bob", "cid", "dan")] == [1, 1, 1, 1]
    assert [await sees(who) for who in ("dan", "cid", "bob")] == [0, 0, 0], "they are kept"
    assert await sees("ann") == 1 and await sees("bob") == 1, "those fetched longest ago gave way"
    await catalog.close()


async def test_lists_of_scopes_give_way_also_while_others_of_the_same_scope_are_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop, clock = Shop("docs", *(f"{number:0100d}" for number in range(100))), FakeClock()
    monkeypatch.setattr(catalogs, "MOST_OF_SCOPES", 50_000)  # three of them
    shop.scope = lambda client: client.principal.id
    listed, prompts = shop.list, asyncio.Event()

    async def listing(kind: str, client: Client) -> Items:
        if kind == "prompts":
            await prompts.wait()
            return Items()
        return await listed(kind, client)

    shop.list = listing  # type: ignore[method-assign]
    catalog = catalog_of(shop, clock=clock)
    wanted = [("docs", "tools"), ("docs", "prompts")]
    clients = [Client(Principal(name)) for name in ("ann", "bob", "cid", "dan", "eve")]
    for client in clients:
        view = asyncio.ensure_future(catalog.view(["docs"], wanted, client, patience=1))
        await clock.advance(2)
        assert (await view).pending == {("docs", "prompts")}
    assert [catalog.known("docs", "tools", client) is not None for client in clients] == [
        False,
        False,
        True,
        True,
        True,
    ]
    prompts.set()
    await settle()
    assert all(catalog.known("docs", "prompts", client) is not None for client in clients)
    await catalog.close()


async def test_lists_of_scopes_are_read_for_pins_in_a_thread_when_another_configuration_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop, clock, events, here = Shop("docs"), FakeClock(), list[Event](), list[int]()
    shop.scope = lambda client: client.principal.id

    async def listing(kind: str, client: Client) -> Items:
        each = (b'{"name":"%d","description":"%b"}' % (i, client.principal.id.encode() * 30) for i in range(100))
        return Items(tuple(map(Raw, each)))

    def read(tools: Any) -> Any:
        here.extend(() if VirtualTimeLoop.is_aside else map(len, tools))
        return all_listed(tools)

    all_listed = pins._all_listed  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(pins, "_all_listed", read)
    shop.list = listing  # type: ignore[method-assign]
    config = Config(servers=(Server(id="docs", name="docs", type="stdio"),), guard=Guard(pinning="quarantine"))
    store = MemoryStore(clock)
    known = Pins(store, clock, "", lambda *_, **__: None)
    known.prepared(config)()
    catalog = catalog_of(shop, clock=clock, events=events, pins=known)
    ann, bob = Client(Principal("ann")), Client(Principal("bob"))

    async def sees(who: Client) -> list[str]:
        return names(await catalog.view(["docs"], WANTED, who, rules=None))

    assert len(await sees(ann)) == 100 and await sees(bob) == [], "bob's are not as they were pinned"
    here.clear()
    for _ in range(3):
        catalog.show({})
        shown = [catalog.known("docs", "tools", who) for who in (ann, bob)]
        assert shown.count(None) == 1, "of the list that was not read last nothing is shown until it is read again"
        assert len(await sees(ann)) == 100 and await sees(bob) == []
    assert here == [] and events == [], "and nobody hears of it"
    await StoredPins(store, "").approve("docs", [], "", 0.0)
    catalog.look_at_pins()
    assert len(await sees(bob)) == 100
    assert events == [Event("docs", "list_changed", scope, ("tools",)) for scope in ("ann", "bob")]
    await catalog.close()


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
    assert caplog.text.count("docs listed items without a name in its tools: 3") == 1


async def test_the_end_of_the_catalog_ends_what_it_fetches() -> None:
    shop = Shop("docs")
    shop.doors.clear()
    catalog = catalog_of(shop)
    view = asyncio.ensure_future(seen(catalog))
    await settle()
    await catalog.close()
    await asyncio.wait([view])


# What is known of a server that is not up.


@pytest.mark.promise("b.001.catalog-lazy", "b.001.cache-ttl")
@pytest.mark.parametrize(
    ("state", "in_time", "asked"),
    [
        ("ready", True, 0),
        ("busy", True, 0),
        ("failed", True, 0),
        ("stopped", True, 0),
        ("ready", False, 1),
        ("busy", False, 1),
        ("failed", False, 1),
        ("configured", False, 0),
        ("starting", False, 0),
        ("stopped", False, 0),
    ],
)
async def test_a_server_that_is_not_up_is_not_started_because_its_list_is_old(
    state: Any, in_time: bool, asked: int
) -> None:
    shop, clock = Shop("docs", "read"), FakeClock()
    catalog = catalog_of(shop, clock=clock)
    await seen(catalog)
    shop.state = state
    await clock.advance(TTL - 1 if in_time else TTL)
    view = await seen(catalog)
    assert (names(view), view.fault("docs", "tools"), view.pending) == (["read"], None, frozenset())
    assert shop.asked - 1 == asked


PRINTS = {"docs": "as configured"}


async def restarted(shop: Shop, clock: FakeClock, **more: Any) -> Catalog:
    """A catalog whose store knows the list of an earlier one; the server is not up."""
    store = MemoryStore(clock)
    await seen(catalog_of(shop, clock=clock, store=store, prints=PRINTS))
    shop.state, shop.asked = "configured", 0
    return catalog_of(shop, clock=clock, store=store, **{"prints": PRINTS} | more)


@pytest.mark.promise("b.001.catalog-kept")
@pytest.mark.parametrize("away", [0, TTL, 7 * 24 * 3600])
async def test_after_a_restart_a_list_is_known_before_its_server_is_up(away: float) -> None:
    shop, clock = Shop("docs", "read", "write"), FakeClock()
    catalog = await restarted(shop, clock)
    await clock.advance(away)
    server_list = catalog.known("docs", "tools", Client())
    assert server_list and list(server_list.items.items()) == [
        (name, Raw(b'{"name":"%b","inputSchema":{"type":"object"}}' % name.encode())) for name in shop.names
    ]
    assert names(await seen(catalog)) == ["read", "write"]
    assert shop.asked == 0


@pytest.mark.parametrize("prints", [{"docs": "configured otherwise"}, {}], ids=["another print", "no print"])
async def test_what_was_listed_under_another_configuration_is_not_known(prints: Any) -> None:
    shop = Shop("docs", "read")
    catalog = await restarted(shop, FakeClock(), prints=prints)
    assert catalog.known("docs", "tools", Client()) is None
    await seen(catalog)
    assert shop.asked == 1


@pytest.mark.parametrize("kept", [b"", b"garbage", b"[1]", b'{"name":', b"{}"])
async def test_a_record_that_holds_what_is_no_item_is_not_known(kept: bytes) -> None:
    shop, clock, store = Shop("docs", "read"), FakeClock(), MemoryStore(FakeClock())
    record = msgspec.msgpack.encode(
        [clock.wall(), None, False, {"read": b'{"name":"read","inputSchema":{}}', "odd": kept}]
    )
    store.put("catalog/docs/as configured", "tools", record)
    shop.state = "configured"
    catalog = catalog_of(shop, clock=clock, store=store, prints=PRINTS)
    assert names(await seen(catalog)) == ["read"]
    assert shop.asked == 1


async def test_what_is_kept_is_what_the_server_said_and_not_what_is_shown_of_it() -> None:
    shop, clock = Shop("docs", "read", "write"), FakeClock()
    store = MemoryStore(clock)
    catalog = catalog_of(shop, clock=clock, store=store, prints=PRINTS)
    catalog.show({"docs": {"read": Overlay(hidden=True)}})
    assert names(await seen(catalog)) == ["write"]
    shop.state = "stopped"
    catalog = catalog_of(shop, clock=clock, store=store, prints=PRINTS)
    assert names(await seen(catalog)) == ["read", "write"]
    catalog.show({"docs": {"write": Overlay(hidden=True)}})
    assert names(await seen(catalog)) == ["read"]
    assert shop.asked == 1


async def test_what_nobody_has_needed_for_a_month_is_not_known() -> None:
    shop, clock = Shop("docs", "read"), FakeClock()
    catalog = await restarted(shop, clock)
    await clock.advance(cache.KEPT)
    assert catalog.known("docs", "tools", Client()) is None


async def test_lists_of_ones_own_connection_are_not_kept_for_others() -> None:
    shop, clock = Shop("docs", "read"), FakeClock()
    shop.scope = lambda client: client.principal.id
    catalog = await restarted(shop, clock)
    await seen(catalog)
    assert shop.asked == 1


@pytest.mark.parametrize("differs", [False, True])
async def test_when_a_server_is_up_its_lists_are_looked_at_again_and_told_of_if_they_differ(differs: bool) -> None:
    shop, clock, events = Shop("docs", "read"), FakeClock(), list[Event]()
    catalog = await restarted(shop, clock, events=events)
    await seen(catalog)
    shop.state, shop.names = "ready", ("write",) if differs else ("read",)
    catalog.opened("docs", "")
    assert shop.asked == 0
    await clock.advance(1)
    assert shop.asked == 1
    assert events == ([Event("docs", "list_changed", lists=("tools",))] if differs else [])
    assert names(await seen(catalog)) == list(shop.names)
    assert shop.asked == 1


async def test_a_server_that_is_gone_again_is_not_started_to_be_looked_at() -> None:
    shop, clock = Shop("docs", "read"), FakeClock()
    catalog = await restarted(shop, clock)
    await seen(catalog)
    catalog.opened("docs", "")
    shop.state = "stopped"
    await clock.advance(1)
    assert shop.asked == 0


async def test_a_list_from_before_is_asked_for_again_where_its_server_is_up_anyway() -> None:
    shop = Shop("docs", "read")
    catalog = await restarted(shop, FakeClock())
    shop.state, shop.names = "ready", ("write",)
    assert names(await seen(catalog)) == ["write"]


async def test_a_servers_own_word_on_time_holds_after_a_restart() -> None:
    shop, clock = Shop("docs", "read"), FakeClock()

    async def listing(kind: str, client: Client) -> Items:
        return Items((Raw(b'{"name":"read","inputSchema":{}}'),), ttl=3600, is_public=True)

    shop.list = listing  # type: ignore[method-assign]
    catalog = await restarted(shop, clock)
    await clock.advance(600)
    server_list = catalog.known("docs", "tools", Client())
    assert server_list and server_list.until and server_list.is_public
    assert server_list.until - clock.now() == pytest.approx(3000)


@pytest.mark.promise("b.001.catalog-kept")
async def test_what_a_server_says_of_itself_is_known_too() -> None:
    shop, clock, store = Shop("docs"), FakeClock(), MemoryStore(FakeClock())
    said = await catalog_of(shop, clock=clock, store=store, prints=PRINTS).about("docs", Client())
    for state in ("configured", "stopped", "failed"):
        shop.state = state
        catalog = catalog_of(shop, clock=clock, store=store, prints=PRINTS)
        assert await catalog.about("docs", Client()) == said
        assert shop.state == state, "it was started to say what is known"


async def test_a_server_that_was_mended_shows_its_old_fault_once_after_a_restart_and_then_is_told_of() -> None:
    clock, events = FakeClock(), list[Event]()
    store, prints = MemoryStore(clock), PRINTS | {"good": "as configured"}
    bad, good, wanted = Shop("docs", "read"), Shop("good", "fine"), [("docs", "tools"), ("good", "tools")]
    bad.fault = Fault("SERVER_FAILED", "it broke", hint="fix it")
    await seen(catalog_of(bad, good, clock=clock, store=store, prints=prints), *wanted)
    bad.fault, bad.state = None, "configured"
    await clock.advance(60)
    bad.doors.clear()
    catalog = catalog_of(bad, good, clock=clock, store=store, prints=prints, events=events)
    view = await seen(catalog, *wanted)
    fault = view.fault("docs", "tools")
    assert fault and (fault.message, fault.hint, fault.server) == ("it broke", "fix it", "docs")
    assert (names(view, "good"), events) == (["fine"], [])
    bad.doors.set()
    await settle()
    assert events == [Event("docs", "list_changed", "", ("tools",))]
    view = await seen(catalog, *wanted)
    assert (names(view), view.fault("docs", "tools")) == (["read"], None)


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"\x93\x00", b"\x94\x00\x00\x00\x00", b"not msgpack"])
async def test_a_record_that_cannot_be_read_is_none(damage: bytes) -> None:
    shop, clock = Shop("docs", "read"), FakeClock()
    store = MemoryStore(clock)
    for kind in ("tools", "about", "something else"):
        await store.put("catalog/docs/as configured", kind, damage)
    catalog = catalog_of(shop, clock=clock, store=store, prints=PRINTS)
    assert names(await seen(catalog)) == ["read"]
    assert shop.asked == 1


async def test_what_is_as_it_was_is_written_once_a_day() -> None:
    shop, clock = Shop("docs", "read"), FakeClock()
    store, written = MemoryStore(clock), list[str]()
    put = store.put
    store.put = lambda space, key, value, ttl=None: written.append(key) or put(space, key, value, ttl)  # type: ignore
    catalog = catalog_of(shop, clock=clock, store=store, prints=PRINTS)
    for _ in range(5):
        await seen(catalog)
        await clock.advance(TTL)
    assert written == ["tools"]
    shop.names = ("write",)
    await seen(catalog)
    assert written == ["tools"] * 2
    await clock.advance(cache.RENEWED)
    await seen(catalog)
    assert written == ["tools"] * 3


# What cannot be had anew.


@pytest.mark.parametrize("taken_back", [False, True])
async def test_a_list_that_cannot_be_had_anew_is_shown_as_it_was_for_a_while_with_the_fault(taken_back: bool) -> None:
    shop, clock, events, store = Shop("docs", "read"), FakeClock(), list[Event](), MemoryStore(FakeClock())
    catalog = catalog_of(shop, clock=clock, events=events, grace=1000, store=store, prints=PRINTS)
    await seen(catalog)
    shop.fault = Fault("SERVER_FAILED", "it broke")
    await clock.advance(TTL)
    if taken_back:
        catalog.changed("docs", "", ["tools"])
    for _ in range(2):
        view = await seen(catalog)
        assert (names(view), view.fault("docs", "tools")) == (["read"], shop.fault)
        await clock.advance(499)
    assert names(await seen(catalog)) == ["read"]
    events.clear()
    await clock.advance(3)
    view = await seen(catalog)
    assert (view.server_list("docs", "tools"), view.fault("docs", "tools")) == (None, shop.fault)
    assert events == [Event("docs", "list_changed", lists=("tools",))]
    assert not store.items("catalog/docs/as configured")
    shop.fault = None
    assert names(await seen(catalog)) == ["read"]
    assert len(events) == 2


async def test_a_list_that_is_had_anew_has_all_its_grace_again() -> None:
    shop, clock = Shop("docs", "read"), FakeClock()
    catalog = catalog_of(shop, clock=clock, grace=TTL * 1.5)
    for _ in range(3):
        shop.fault = None
        assert names(await seen(catalog)) == ["read"]
        await clock.advance(TTL)
        shop.fault = Fault("SERVER_FAILED", "it broke")
        assert names(await seen(catalog)) == ["read"]
        await clock.advance(TTL)


async def test_a_server_that_hangs_is_waited_for_once_where_its_list_is_there_as_it_was() -> None:
    shop, clock = Shop("docs", "read"), FakeClock()
    catalog = catalog_of(shop, clock=clock, grace=1000)
    await seen(catalog)
    await clock.advance(TTL)
    shop.doors.clear()
    before = clock.now()
    for _ in range(3):
        view = await seen(catalog, patience=10)
        assert (names(view), view.pending) == (["read"], {("docs", "tools")})
    assert clock.now() - before == pytest.approx(10)
    assert shop.asked == 2
    await catalog.close()


async def test_who_was_shown_a_list_without_a_server_hears_when_it_is_there() -> None:
    shop, clock, events = Shop("docs", "read"), FakeClock(), list[Event]()
    shop.fault = Fault("SERVER_FAILED", "it broke")
    catalog = catalog_of(shop, clock=clock, events=events)
    await seen(catalog)
    shop.fault = None
    catalog.opened("docs", "")
    await clock.advance(1)
    assert events == [Event("docs", "list_changed", lists=("tools",))]
    assert names(await seen(catalog)) == ["read"]
    assert (shop.asked, len(events)) == (2, 1)


async def test_a_list_that_is_found_to_be_another_is_told_of_though_its_server_was_silent() -> None:
    shop, clock, events = Shop("docs", "read"), FakeClock(), list[Event]()
    catalog = catalog_of(shop, clock=clock, events=events)
    await seen(catalog)
    await clock.advance(TTL)
    await seen(catalog)
    assert events == []
    shop.names = ("write",)
    await clock.advance(TTL)
    await seen(catalog)
    assert events == [Event("docs", "list_changed", lists=("tools",))]


# Other servers.


ALL = tuple(mcp.LIST_OF_KIND)


async def test_of_other_servers_what_came_and_went_is_told_and_what_stayed_is_kept() -> None:
    stays, goes, changes, comes = Shop("stays", "a"), Shop("goes", "b"), Shop("changes", "c"), Shop("comes", "d")
    events: list[Event] = []
    catalog = catalog_of(stays, goes, changes, events=events)
    wanted = [(id, "tools") for id in ("stays", "goes", "changes", "comes")]
    await seen(catalog, *wanted[:3])
    changed = Shop("changes", "e")
    catalog.use(other(stays, changed, comes), {})
    assert events == [Event(id, "list_changed", lists=ALL) for id in ("goes", "changes", "comes")]
    view = await seen(catalog, *wanted)
    assert [names(view, id) for id in ("stays", "changes", "comes")] == [["a"], ["e"], ["d"]]
    assert (stays.asked, changed.asked) == (1, 1)


async def test_a_scope_that_is_forgotten_and_asked_for_again_at_once_has_its_list_fetched_once() -> None:
    shop, ada = Shop("docs", "read"), Client(Principal("ada"))
    shop.scope = lambda client: client.principal.id
    catalog = catalog_of(shop)
    shop.doors.clear()
    before = asyncio.ensure_future(catalog.view(["docs"], WANTED, ada))
    await settle()
    catalog.forget("docs", "ada")
    views = [asyncio.ensure_future(catalog.view(["docs"], WANTED, ada))]
    await settle()
    views.append(asyncio.ensure_future(catalog.view(["docs"], WANTED, ada)))
    await settle()
    shop.doors.set()
    assert [names(view) for view in await asyncio.gather(*views)] == [["read"]] * 2
    assert shop.asked == 2
    await asyncio.gather(before, return_exceptions=True)
    await catalog.close()


async def test_who_holds_on_to_a_server_that_is_gone_is_told_so() -> None:
    shop, clock, events = Shop("docs", "read"), FakeClock(), list[Event]()
    catalog = catalog_of(shop, clock=clock, events=events)
    await seen(catalog)
    catalog.changed("docs", "", ["tools"])
    catalog.opened("docs", "")
    catalog.use({}, {})
    events.clear()
    await clock.advance(1)
    view = await seen(catalog)
    fault = view.fault("docs", "tools")
    assert view.server_list("docs", "tools") is None and fault and fault.code == "SERVER_NOT_FOUND"
    assert catalog.known("docs", "tools", Client()) is None
    with pytest.raises(Fault, match="docs is no longer configured"):
        await catalog.about("docs", Client())
    catalog.changed("docs", "", ["tools"])
    catalog.opened("docs", "")
    catalog.forget("docs", "")
    await clock.advance(1)
    assert (shop.asked, events) == (1, [])


async def test_a_list_that_is_being_fetched_of_a_server_that_goes_is_no_longer_asked_for() -> None:
    shop = Shop("docs", "read")
    shop.doors.clear()
    catalog = catalog_of(shop)
    view = asyncio.ensure_future(seen(catalog))
    await settle()
    catalog.use({}, {})
    fault = (await soon(view)).fault("docs", "tools")
    assert fault and fault.code == "SESSION_ERROR" and fault.reach == "not_sent"


async def test_a_server_that_comes_back_is_known_from_the_store() -> None:
    shop, clock = Shop("docs", "read"), FakeClock()
    catalog = await restarted(shop, clock)
    await seen(catalog)
    catalog.use({}, {})
    again = Shop("docs", "other")
    again.state = "configured"
    catalog.use(other(again), {"docs": "configured otherwise"})
    assert catalog.known("docs", "tools", Client()) is None
    catalog.use(other(shop), PRINTS)
    assert names(await seen(catalog)) == ["read"]
    assert (shop.asked, again.asked) == (0, 0)


async def test_of_a_connection_of_ones_own_that_never_came_up_nothing_is_kept() -> None:
    shop = Shop("docs")
    shop.scope = lambda client: client.principal.id
    shop.fault = Fault("SERVER_FAILED", "it broke")
    catalog = catalog_of(shop)
    for number in range(10):
        await catalog.view(["docs"], WANTED, Client(Principal(str(number))))
    assert not catalog._slots and not catalog._readers


async def test_after_its_end_no_list_is_looked_at_again() -> None:
    shop = Shop("docs", "read")
    catalog = catalog_of(shop)
    await seen(catalog)
    catalog.changed("docs", "", ["tools"])
    catalog.opened("docs", "")
    await catalog.close()
    await FakeClock().advance(1)
    assert shop.asked == 1
