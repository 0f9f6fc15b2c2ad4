"""Whoever edits a file of the gateway, while it runs or while it does not, leaves lines in the audit."""

from __future__ import annotations

import json
import logging
import os
import pwd
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from inmemory import UnreadStore
from virtualtime import FakeClock, settle

from toolgate import config as configs
from toolgate.app import App, running
from toolgate.auth import keys
from toolgate.catalog import served
from toolgate.config import edits
from toolgate.core.redaction import Redactor
from toolgate.policy import approvals as decided
from toolgate.state.audit import Trail, verify
from toolgate.state.memory import MemoryStore
from toolgate.state.settings import Settings

Json = dict[str, Any]
ONE: Json = {"mcpServers": {"one": {"command": "true"}}}
ME = pwd.getpwuid(os.geteuid()).pw_name
KEY = "canary-of-a-key-that-is-long"


class Place:
    """A configuration, the file of added servers, a store and an audit that outlive gateways."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "toolgate.json"
        self.own = folder / "servers.json"
        self.audit = folder / "audit.jsonl"
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.read = 0
        self.write(ONE)

    def write(self, table: Json) -> None:
        self.path.write_text(json.dumps(table))

    @asynccontextmanager
    async def served(self) -> AsyncGenerator[App]:
        settings = Settings(lambda: configs.load(self.path, {}), {}, self.path, self.own)
        config = settings.read()
        trail = Trail(self.audit, self.clock, self.store, Redactor(configs.secrets_of(config)))
        trail.use(config)
        more: Json = {"settings": settings, "store": self.store, "audit": trail, "clock": self.clock}
        async with running(config, environ={}, **more) as app:
            try:
                yield app
            finally:
                await trail.close()

    async def told(self) -> list[Json]:
        """The lines that have come, without what every line has."""
        lines = [json.loads(line) for line in self.audit.read_bytes().splitlines()] if self.audit.exists() else []
        assert not lines or verify([self.audit]).wrong == ()
        fresh, self.read = lines[self.read :], len(lines)
        assert "canary" not in json.dumps(lines)
        return [each for each in fresh if each["event"] != "call"]


async def test_keys_that_cannot_be_read_for_a_moment_have_not_vanished(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        here.store = store = UnreadStore(here.clock)
        await keys.create(store, "ci", here.clock.wall())
        async with here.served() as app:
            store.is_unread = True
            for limit in ("1MiB", "2MiB"):
                here.write({**ONE, "limits": {"result_limit": limit}})
                await app.reload()
                store.is_unread = False
        assert [each["event"] for each in await here.told()] == ["served.first", *["settings.change"] * 2]


@asynccontextmanager
async def place(folder: Path) -> AsyncGenerator[Place]:
    """Served once, so that it is known what was served last."""
    found = Place(folder)
    async with found.served():
        pass
    (first,) = await found.told()
    assert (first["event"], first["servers"], first["clients"]) == ("served.first", ["one"], [])
    yield found


WITH_CLIENT: Json = {**ONE, "clients": [{"id": "ci", "key": KEY}]}


@pytest.mark.promise("b.attacks.edits")
@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            ONE,
            {"mcpServers": {**ONE["mcpServers"], "evil": {"command": "evil"}}},
            {"event": "servers.add", "name": "evil"},
        ),
        (ONE, {"mcpServers": {"two": {"command": "true"}}}, {"event": "servers.remove", "name": "one"}),
        (ONE, {"mcpServers": {"one": {"command": "evil"}}}, {"event": "servers.change", "name": "one"}),
        (
            ONE,
            {"mcpServers": {"one": {"command": "true", "env": {"LD_PRELOAD": "/tmp/x.so"}}}},
            {"event": "servers.change", "name": "one"},
        ),
        (ONE, WITH_CLIENT, {"event": "clients.add", "client": "ci", "admin": False}),
        (WITH_CLIENT, ONE, {"event": "clients.remove", "client": "ci"}),
        (
            WITH_CLIENT,
            {**ONE, "clients": [{"id": "ci", "key": KEY, "admin": True}]},
            {"event": "clients.change", "client": "ci", "admin": True, "changed": ["admin"]},
        ),
        (
            WITH_CLIENT,
            {**ONE, "clients": [{"id": "ci", "key": "canary-of-another-key-of-it"}]},
            {"event": "clients.change", "changed": ["key"]},
        ),
        (ONE, {**ONE, "add_servers": "allow"}, {"event": "settings.change", "changed": ["add_servers"]}),
        (ONE, {**ONE, "audit": {"enabled": False}}, {"event": "settings.change", "changed": ["audit"]}),
    ],
)
async def test_an_edit_of_the_configuration_is_a_line(
    tmp_path: Path, before: Json, after: Json, expected: Json, is_running: bool
) -> None:
    if after.get("audit") and not is_running:
        pytest.skip("who switches the audit off before the start has none")
    async with place(tmp_path) as there:
        there.write(before)
        async with there.served() as app:
            there.read = 0
            if is_running:
                there.write(after)
                await app.reload()
        if not is_running:
            there.write(after)
            async with there.served():
                pass
        (line, *_) = [each for each in await there.told() if expected.items() <= each.items()]
        assert (line["who"], line["file"]) == (f"file:{ME}", str(there.path))


@pytest.mark.promise("b.attacks.edits")
async def test_a_server_put_into_the_gateways_own_file_is_a_line_with_that_file(tmp_path: Path) -> None:
    async with place(tmp_path) as there:
        edits.write(there.own, {"evil": {"command": "evil", "args": ["--token", "canary-0123456789-abcdefghij"]}})
        async with there.served() as app:
            await settle()
            edits.write(there.own, {})
            await app.reload()
        added, removed = await there.told()
        assert (added["event"], added["name"], added["file"]) == ("servers.add", "evil", str(there.own))
        assert (added["config"]["command"], removed["event"], removed["file"]) == (
            "evil",
            "servers.remove",
            str(there.own),
        )


@pytest.mark.promise("b.attacks.edits")
async def test_what_is_added_at_the_gateway_itself_is_one_line_and_not_two(tmp_path: Path) -> None:
    async with place(tmp_path) as there:
        async with there.served() as app:
            await app._reloading.add("more", {"command": "true"})
        async with there.served() as app, there.served() as other:
            await app._reloading.remove("more")
            await other.reload()
        assert [each["event"] for each in await there.told()] == ["servers.add", "servers.remove"]


@pytest.mark.promise("b.attacks.edits")
async def test_nothing_is_noted_where_nothing_is_other_and_nothing_is_lost_meanwhile(tmp_path: Path) -> None:
    async with place(tmp_path) as there:
        async with there.served() as app:
            await app.reload()
        async with running(configs.load(there.path, {}), environ={}, store=there.store, clock=there.clock):
            pass  # a command, which notes nothing
        assert await there.told() == []
        there.write({**ONE, "mcpServers": {}, "clients": [{"id": "ci"}]})
        async with running(configs.load(there.path, {}), environ={}, store=there.store, clock=there.clock):
            pass
        async with there.served():
            pass
        assert [each["event"] for each in await there.told()] == ["servers.remove", "clients.add"]


@pytest.mark.promise("b.attacks.edits")
async def test_a_key_that_appears_in_the_store_is_a_line(tmp_path: Path) -> None:
    async with place(tmp_path) as there:
        there.write(WITH_CLIENT)
        async with there.served() as app:
            id, key = await keys.create(there.store, "ci", 0.0)
            app._look_at_keys()
        await keys.revoke(there.store, id)
        async with there.served():
            pass
        lines = [each for each in await there.told() if each["event"].startswith("keys.")]
        assert [(each["event"], each["key"], each["client"]) for each in lines] == [
            ("keys.appear", id, "ci"),
            ("keys.vanish", id, "ci"),
        ]
        assert key not in there.audit.read_text()


@pytest.mark.promise("b.attacks.edits")
async def test_keys_of_a_client_that_comes_back_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with place(tmp_path) as there:
        there.write(WITH_CLIENT)
        id, _ = await keys.create(there.store, "ci", 0.0)
        async with there.served():
            pass
        for table in (ONE, WITH_CLIENT):
            there.write(table)
            with caplog.at_level(logging.WARNING, "toolgate"):
                async with there.served():
                    pass
        *_, line = await there.told()
        assert (line["event"], line["client"], line["keys"]) == ("clients.add", "ci", [id])
        assert id in caplog.text and "toolgate keys revoke" in caplog.text


@pytest.mark.promise("b.attacks.edits")
async def test_lasting_approvals_of_a_client_that_comes_back_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with place(tmp_path) as there:
        there.write(WITH_CLIENT)
        async with there.served():
            approvals = decided.Approvals(there.store, there.clock)
            for whose, session in (("client:ci", ""), ("client:ci", "one"), ("client:other", "")):
                tool = decided.Place(whose, "one", "", "tools", "danger")
                await approvals.grant(tool, "session" if session else "always", "operator", session)
        for table in (ONE, WITH_CLIENT):
            there.write(table)
            with caplog.at_level(logging.WARNING, "toolgate"):
                async with there.served():
                    pass
        *_, line = await there.told()
        (grant,) = [each.id for each in approvals.grants() if each.place.principal == "client:ci" and not each.session]
        assert (line["event"], line["client"], line["grants"]) == ("clients.add", "ci", [grant])
        assert grant in caplog.text and "toolgate approvals revoke" in caplog.text and "keys" not in line


@pytest.mark.promise("b.attacks.edits")
async def test_since_when_a_client_is_there_is_known_for_its_keys(tmp_path: Path) -> None:
    async with place(tmp_path) as there:
        assert served.since(there.store, configs.load(there.path, {})) == {}
        there.write(WITH_CLIENT)
        async with there.served():
            pass
        (since,) = served.since(there.store, configs.load(there.path, {})).values()
        assert since >= 1_800_000_000
