"""A change that waits for another one is made by what is served by then: not for who may change nothing any more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from doors.issuers import KEYS
from inmemory import Scripted, Visitor, of_file, said, tools
from virtualtime import settle

from toolgate.app import App
from toolgate.config import Config, KnownClient

WRITTEN = f"""add_servers = "allow"

[mcpServers.there]
command = "there"

[[clients]]
id = "ann"
key = "{KEYS["ada"]}"
admin = true
mcp_server_access = "all"
"""
THEIRS = json.dumps({"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}})

Ask = Callable[[Visitor], Awaitable[Any]]
Change = Callable[[KnownClient], KnownClient]


def no_administrator(client: KnownClient) -> KnownClient:
    return msgspec.structs.replace(client, admin=False)


def another_key(client: KnownClient) -> KnownClient:
    return msgspec.structs.replace(client, key=KEYS["bob"])


async def removed(ann: Visitor) -> Any:
    return await ann.send("DELETE", path="/admin/servers/more")


async def saved(ann: Visitor) -> Any:
    shown = json.loads((await ann.send("GET", path="/admin/configuration/file")).body)
    sent = {"text": shown["text"].replace('"there"', '"/bin/sh"'), "sha256": shown["sha256"]}
    return await ann.send("PUT", json.dumps(sent).encode(), path="/admin/configuration/file")


async def imported(ann: Visitor) -> Any:
    planned = json.loads((await ann.post({"text": THEIRS}, path="/admin/import")).body)
    return await ann.post({"text": THEIRS, "sha256": planned["plan"]["sha256"]}, path="/admin/import")


async def ruled(ann: Visitor) -> Any:
    await ann.post({}, path="/admin/servers/there/check")  # its tools are known then
    return await ann.post({"server": "there", "tool": "read", "verdict": "off"}, path="/admin/access/ann")


async def read_again(ann: Visitor) -> Any:
    return await ann.post({}, path="/admin/reload")


async def added_by_a_call(ann: Visitor) -> Any:
    arguments = {"name": "own", "transport": "stdio", "command": "sh"}
    return await ann.ask_modern("tools/call", name="add_mcp_server", arguments=arguments)


async def removed_by_a_call(ann: Visitor) -> Any:
    return await ann.ask_modern("tools/call", name="remove_mcp_server", arguments={"name": "more"})


@asynccontextmanager
async def place(path: Path) -> AsyncGenerator[App]:
    path.write_text(WRITTEN)
    scripted = Scripted(tools_list=tools("read"), tools_call=said("read"))
    async with of_file(path, {"there": scripted, "more": Scripted(tools_list=tools("more"))}) as app:
        await app._reloading.add("more", {"command": "more"})
        yield app


def serve(app: App, change: Change) -> None:
    config = app.gateway.snapshot.config
    app._prepared(msgspec.structs.replace(config, clients=tuple(change(each) for each in config.clients)))()


def seen(app: App, path: Path) -> tuple[Config, str]:
    return app.gateway.snapshot.config, path.read_text()


ASKED = pytest.mark.parametrize(
    "ask", [removed, saved, imported, ruled, read_again, added_by_a_call, removed_by_a_call]
)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "TOOLGATE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "toolgate.toml"


@ASKED
@pytest.mark.parametrize("change", [no_administrator, another_key])
async def test_who_may_change_nothing_any_more_has_changed_nothing(path: Path, ask: Ask, change: Change) -> None:
    async with place(path) as app:
        async with app._reloading._turn:  # another edit is being served
            asked = asyncio.ensure_future(ask(Visitor(app, "/mcp/all", authorization=f"Bearer {KEYS['ada']}")))
            await waits(app)
            serve(app, change)
            before = seen(app, path)
        await asked
        await settle()
        assert seen(app, path) == before


@ASKED
async def test_a_change_that_waits_is_made_in_its_turn(path: Path, ask: Ask) -> None:
    async with place(path) as app:
        async with app._reloading._turn:
            asked = asyncio.ensure_future(ask(Visitor(app, "/mcp/all", authorization=f"Bearer {KEYS['ada']}")))
            await waits(app)
            snapshot = app.gateway.snapshot
        await asked
        assert app.gateway.snapshot is not snapshot


async def test_who_leaves_before_its_turn_has_changed_nothing_and_the_next_one_may(path: Path) -> None:
    async with place(path) as app:
        async with app._reloading._turn:
            removal = asyncio.ensure_future(app._reloading.remove("more"))
            await waits(app)
            removal.cancel()
            await settle()
        await asyncio.gather(removal, return_exceptions=True)
        await app._reloading.add("other", {"command": "more"})
        assert [each.id for each in app.gateway.snapshot.config.servers] == ["there", "more", "other"]


async def waits(app: App) -> None:
    """Until somebody waits for the turn; what is asked for before it is looked up in threads."""
    for _ in range(500):
        if app._reloading._turn._waiters:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody waits for the turn")
