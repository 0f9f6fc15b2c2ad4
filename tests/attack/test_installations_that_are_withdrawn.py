"""What the operator withdraws while `mcp_provision` looks things up, fetches a package or waits is not installed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import registry_double
from inmemory import Json, Scripted, Visitor, gateway, said, tools
from registry_double import Registry, RegistryNet, item, npm
from virtualtime import settle

from toolgate.app import App
from toolgate.auth.safe_net import Fetched
from toolgate.config import Config
from toolgate.config.access import KnownClient, Limits
from toolgate.config.provision import Provision
from toolgate.core import names

NEED = "keep searchable notes of meetings"
OWNER = "io.github.ann/notes"
KEY = "tg-a-key-that-is-long-enough"
ANN = KnownClient(id="ann", name="ann", key=KEY, servers="all", admin=True)
PROVISION = Provision(registries=(registry_double.URL,), trusted=("io.github.ann/*",), auto=True)

Change = Callable[[Config], Config]


def without(**provision: Any) -> Change:
    return lambda config: msgspec.structs.replace(
        config, provision=msgspec.structs.replace(config.provision, **provision)
    )


def add_servers_off(config: Config) -> Config:
    return msgspec.structs.replace(config, add_servers="off")


def admin_withdrawn(config: Config) -> Config:
    return msgspec.structs.replace(config, clients=(msgspec.structs.replace(ANN, admin=False),))


class Net(RegistryNet):
    """`at` is what is done when a file whose URL ends so is asked for."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.at: dict[str, Callable[[], object]] = {}

    async def fetch(self, url: str, *given: Any, **more: Any) -> Fetched:
        for end in [each for each in self.at if url.endswith(each)]:
            self.at.pop(end)()
        return await super().fetch(url, *given, **more)


class Shop:
    """A gateway before a registry with one server that passes every gate."""

    def __init__(self) -> None:
        self.registry = Registry(item(OWNER, description="Keeps searchable notes of meetings", packages=[npm()]))
        self.net = Net(self.registry)
        self.registry.add_npm("@ann/notes", "1.0.0", OWNER)
        self.config = Config(provision=PROVISION, add_servers="allow", clients=(ANN,))

    def open(self) -> Any:
        there = {"there": Scripted(tools_list={"tools": []})}
        notes = {"notes": Scripted(tools_list=tools("note"), tools_call=said("noted"))}
        return gateway(config=self.config, scripts=there, links_of=notes, registries=PROVISION.registries)

    def asked(self, app: App) -> asyncio.Task[Json]:
        return asyncio.ensure_future(self.call(app, "mcp_provision", intent=NEED, autoProvision=True))

    async def call(self, app: App, tool: str, **arguments: Any) -> Json:
        registry_double.reach(app, self.registry, self.net)
        ann = Visitor(app, "/mcp/all", authorization=f"Bearer {KEY}")
        return (await ann.ask_modern("tools/call", name=tool, arguments=arguments)).result


def serve(app: App, change: Change) -> None:
    app._prepared(change(app.gateway.snapshot.config))()  # pyright: ignore[reportPrivateUsage]


def served(app: App) -> list[str]:
    return [id for id in app.gateway.snapshot.servers if id not in names.INTERNAL]


CHANGES = pytest.mark.parametrize(
    "change",
    [without(auto=False), without(trusted=()), add_servers_off, admin_withdrawn],
    ids=["auto", "trusted", "add_servers", "admin"],
)


async def test_it_is_installed_where_nothing_is_withdrawn() -> None:
    shop = Shop()
    async with shop.open() as app:
        result = await shop.asked(app)
        assert json.loads(result["content"][0]["text"])["provisioned"] is True and served(app) == ["there", "notes"]


@CHANGES
@pytest.mark.parametrize("at", ["@ann%2Fnotes", "notes-1.0.0.tgz"], ids=["looked-up", "fetched"])
async def test_what_is_withdrawn_while_a_package_is_looked_up_or_fetched_is_not_installed(
    change: Change, at: str
) -> None:
    shop = Shop()
    async with shop.open() as app:
        shop.net.at[at] = lambda: serve(app, change)
        result = await shop.asked(app)
        assert not shop.net.at and served(app) == ["there"], result


@CHANGES
async def test_what_is_withdrawn_while_it_waits_for_its_turn_is_not_installed_nor_fetched(change: Change) -> None:
    shop = Shop()
    async with shop.open() as app:
        turns = app.gateway._views.installing._turns
        others = ["one", "other"]
        for other in others:
            await turns.turn(other)
        asked = shop.asked(app)
        await settle()
        serve(app, change)
        for other in others:
            turns.give_back(other)
        result = await asked
        assert result["isError"] and "Nothing was installed" in result["content"][0]["text"], result
        assert served(app) == ["there"] and not [path for path, _ in shop.registry.asked if path.endswith(".tgz")]


@CHANGES
async def test_what_another_edit_withdraws_before_it_is_its_turn_is_not_installed(change: Change) -> None:
    shop = Shop()
    async with shop.open() as app:
        async with app._reloading._turn:  # an edit is being served
            asked = shop.asked(app)
            for _ in range(200):
                await asyncio.sleep(0.01)
            assert not asked.done()
            serve(app, change)
        result = await asked
        assert result["isError"] and served(app) == ["there"], result


def nothing_may_be_long(config: Config) -> Config:
    return msgspec.structs.replace(config, limits=Limits(argument_limit=60))


@pytest.mark.parametrize("change", [add_servers_off, admin_withdrawn, nothing_may_be_long])
async def test_an_import_adds_servers_by_what_holds_when_it_has_found_them(change: Change) -> None:
    shop = Shop()
    async with shop.open() as app:
        shop.net.at["notes-1.0.0.tgz"] = lambda: serve(app, change)
        result = await shop.call(app, "import_mcp_server", query=NEED)
        assert not shop.net.at and result["isError"] and served(app) == ["there"], result


@pytest.mark.parametrize("change", [add_servers_off, admin_withdrawn], ids=["add_servers", "admin"])
async def test_nor_is_a_server_that_a_client_wants_added(change: Change) -> None:
    shop = Shop()
    async with shop.open() as app:
        async with app._reloading._turn:  # an edit is being served
            asked = asyncio.ensure_future(shop.call(app, "add_mcp_server", name="own", transport="stdio", command="sh"))
            await settle()
            assert not asked.done()
            serve(app, change)
        result = await asked
        assert result["isError"] and served(app) == ["there"], result


async def test_nor_is_one_that_who_is_no_administrator_any_more_has_asked_for_by_the_admin_api() -> None:
    shop = Shop()
    async with shop.open() as app:
        async with app._reloading._turn:  # an edit is being served
            ann = Visitor(app, "/admin/servers", authorization=f"Bearer {KEY}")
            asked = asyncio.ensure_future(ann.post({"name": "own", "command": "sh"}))
            await settle()
            assert not asked.done()
            serve(app, admin_withdrawn)
        assert (await asked).status == 403 and served(app) == ["there"]
