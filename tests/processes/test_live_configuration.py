"""The configuration is edited while the gateway works: what is unchanged goes on, what is gone leaves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from ground import WAIT, Client, Failed, Json, Served, child, gateway, home, real, started, toolgate, until

from toolgate import config as configs
from toolgate.config import ConfigError
from toolgate.core.fault import Fault
from toolgate.state.settings import Settings

EDITS = 200
STEADY = ("rock", "hill")


class Files:
    """A configuration in a file, and the file of what is added."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "toolgate.json"
        self.own = folder / "state" / "servers.json"
        self.servers: dict[str, Json] = {}
        self.more: Json = {}

    def write(self, text: str | None = None) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"mcpServers": self.servers, **self.more}) if text is None else text)
        fresh.replace(self.path)

    def settings(self) -> Settings:
        return Settings(lambda: configs.load(self.path, {}), {}, self.path, self.own)


@asynccontextmanager
async def edited(
    folder: Path, *names: str, add_servers: str = "allow", **injected: Any
) -> AsyncIterator[tuple[Files, Served]]:
    """A gateway whose configuration can be edited; servers of these names are in it, else `one`."""
    files = Files(folder)
    files.more = {"add_servers": add_servers}
    files.servers = {name: child("counting") for name in names or ("one",)}
    files.write()
    settings = files.settings()
    async with gateway(settings.read(), settings=settings, **injected) as served:
        yield files, served


@real
async def test_a_gateway_without_servers_is_served_and_the_first_one_needs_no_restart() -> None:
    with home() as environ:
        async with toolgate("serve", "--port", "0", config={}, environ=environ) as it:
            await it.until_it_says(b"No servers are configured yet")
            client = await it.until_it_serves()
            file = Path(environ["HOME"], "toolgate.json")
            file.with_suffix(".new").write_text(json.dumps({"mcpServers": {"one": child("counting")}}))
            file.with_suffix(".new").replace(file)
            await until_listed(client, "one__pid")
            assert int(await client.call("one__pid"))


async def until_listed(client: Client, tool: str) -> None:
    async with asyncio.timeout(WAIT):
        while tool not in await client.tools():
            pass


@real
async def test_200_edits_under_load_cost_no_call_and_no_child(tmp_path: Path) -> None:
    chance = random.Random(4)
    async with edited(tmp_path, *STEADY) as (files, served):
        app = served.app
        pids = {name: await pid_of(served, name) for name in STEADY}
        stop, calls = asyncio.Event(), [0]
        load = [asyncio.ensure_future(call_until(served, name, stop, calls)) for name in STEADY for _ in range(4)]
        refused = 0
        for number in range(EDITS):
            kind = chance.choice(("add", "change", "remove", "break"))
            edit(files, kind, number, chance)
            try:
                await app.reload()
            except ConfigError:
                refused += 1
                assert kind == "break" and app.problem
            if number % 10 == 0:
                await use(served, [name for name in files.servers if name not in STEADY][-2:])
        files.servers = {name: files.servers[name] for name in STEADY}
        files.write()
        await app.reload()
        stop.set()
        await asyncio.gather(*load)  # raises what any call has failed with
        assert refused and calls[0] > EDITS
        assert {name: await pid_of(served, name) for name in STEADY} == pids
        await until(lambda: children() == set(pids.values()))


def edit(files: Files, kind: str, number: int, chance: random.Random) -> None:
    passing = [name for name in files.servers if name not in STEADY]
    if kind == "break":
        files.write(chance.choice(('{"mcpServers": {', '{"mcpServers": {"x": {}}}', '{"unknown": 1}')))
        return
    if kind == "add" or not passing:
        files.servers[f"guest-{number}"] = child("counting", str(number))
    elif kind == "change":
        files.servers[chance.choice(passing)]["args"].append(str(number))
    else:
        del files.servers[chance.choice(passing)]
    files.write()


async def call_until(served: Served, server: str, stop: asyncio.Event, calls: list[int]) -> None:
    client = served.client()
    while not stop.is_set():
        await client.call(f"{server}__counts")
        calls[0] += 1


def children() -> set[int]:
    """The servers' processes."""
    return set(started())


async def use(served: Served, servers: list[str]) -> None:
    for server in servers:
        await served.client().call(f"{server}__counts")


async def pid_of(served: Served, server: str) -> int:
    await served.client().call(f"{server}__counts")
    pid = served.status(server).pid
    assert pid
    return pid


@pytest.mark.parametrize("how", ["eager", "idle", "busy", "removed and added"])
@real
async def test_the_program_of_an_edited_server_starts_when_all_of_the_one_before_is_gone(
    tmp_path: Path, how: str
) -> None:
    async with edited(tmp_path) as (files, served):

        async def by(name: str) -> None:
            more = {"start": "eager"} if how == "eager" else {}
            files.servers["locks"] = child("locking", str(tmp_path / "lock"), name, **more)
            files.write()
            await served.app.reload()

        await by("old")
        assert await served.client().call("locks__name") == "old"
        goes_on = tmp_path / "goes on"
        held = asyncio.ensure_future(served.client().call("locks__hold", until=str(goes_on)))
        if how == "busy":
            await until(lambda: served.status("locks").calls)
        else:
            goes_on.touch()
            await held
        if how == "removed and added":
            del files.servers["locks"]
            files.write()
            await served.app.reload()
        await by("new")
        if how == "eager":
            await until(lambda: served.status("locks").state in ("ready", "failed"))
            assert served.status("locks").state == "ready"
        after = asyncio.ensure_future(served.client().call("locks__name"))
        if how == "busy":
            await until(lambda: served.status("locks").calls)
            goes_on.touch()
            assert await held == "old"
        assert await after == "new"


@real
async def test_an_edited_file_is_served_without_being_asked(tmp_path: Path) -> None:
    async with edited(tmp_path) as (files, served):
        files.servers["two"] = child("counting")
        files.write()
        await until(lambda: "two" in served.app.gateway.snapshot.upstreams)
        await served.client().call("two__counts")


@real
async def test_an_edit_while_servers_start_is_served_too(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.servers = {"slow": child("counting") | {"start": "eager"}}
    files.write()
    settings = files.settings()

    async def edited_meanwhile(*_: Any) -> Any:
        files.servers["two"] = child("counting")
        files.write()
        raise Fault("SERVER_FAILED", "It does not start")

    async with gateway(settings.read(), settings=settings, links={"slow": edited_meanwhile}) as served:
        await until(lambda: "two" in served.app.gateway.snapshot.upstreams)


def test_what_we_write_ourselves_is_known_and_what_others_write_is_not(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write()
    settings = files.settings()
    settings.read()
    settings.add("one", child("counting"))
    assert settings.known == settings.seen()
    settings.remove("one")
    assert settings.known == settings.seen()
    other = files.settings()
    other.add("two", child("counting"))
    assert settings.known != settings.seen()
    settings.add("three", child("counting"))  # which reads the file of both
    assert settings.known == settings.seen()
    files.write('{"mcpServers": {"x": {}}}')
    with pytest.raises(ConfigError):
        settings.read()
    assert settings.known == settings.seen()  # nothing is gained by reading it again
    files.write()
    with pytest.raises(Fault):
        settings.add("three", child("counting"))
    assert settings.known != settings.seen()


def test_an_edit_while_the_files_are_read_is_none_that_is_known(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write()

    def read_and_edited() -> configs.Config:
        config = configs.load(files.path, {})
        files.servers["late"] = child("counting")
        files.write()
        return config

    settings = Settings(read_and_edited, {}, files.path, files.own)
    settings.read()
    assert settings.known != settings.seen()
    settings.add("one", child("counting"))
    assert settings.known != settings.seen()


def test_the_log_says_what_is_served_and_what_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @real
    async def test() -> None:
        async with edited(tmp_path) as (files, served):
            text = json.dumps({"http": {"port": 9999}, "mcpServers": {**files.servers, "two": child("counting")}})
            for written in (text, None):  # the last one is as it was at the start, and waits for nothing
                caplog.clear()
                files.write(written)
                await until(lambda: "now serving" in caplog.text)
                named = "one, two" if written else "one"
                assert f"configuration reloaded; now serving: {named}\n" in caplog.text
                assert ("`http` was changed" in caplog.text) == (written is text)
            files.write(files.path.read_text() + " ")
            await until(lambda: "reloaded; nothing has changed" in caplog.text)
            assert served.app.problem == ""

    with caplog.at_level("INFO", "toolgate.gateway.reload"):
        test()


@real
async def test_how_long_a_page_is_may_change_too(tmp_path: Path) -> None:
    async with edited(tmp_path) as (files, served):
        assert len(await served.client().tools()) > 1
        files.write(json.dumps({"mcpServers": files.servers, "catalog": {"page_size": 1}}))
        await served.app.reload()
        assert len(await served.client().tools()) == 1


@real
async def test_a_broken_edit_changes_nothing_and_is_told(tmp_path: Path) -> None:
    async with edited(tmp_path) as (files, served):
        files.write('{"mcpServers": {"one": {"comand": "x"}}}')
        await until(lambda: served.app.problem)
        assert "comand" in served.app.problem
        await served.client().call("one__counts")
        assert "comand" in json.loads(await served.client().call("status"))["config_error"]
        files.write()
        await until(lambda: not served.app.problem)


@real
async def test_what_is_added_by_a_tool_is_kept_in_a_file_of_its_own(tmp_path: Path) -> None:
    new = child("counting")
    async with edited(tmp_path) as (files, served):
        written = files.path.read_bytes()
        client = served.client()
        added = json.loads(await client.call("add_mcp_server", name="two", transport="stdio", **new))
        assert added["success"] and added["state"] == "connected"
        assert {"counts", "slow"} <= {tool["name"] for tool in added["tools"]}
        await client.call("two__counts")
        assert files.own.stat().st_mode & 0o777 == 0o600
    assert files.path.read_bytes() == written
    async with edited(tmp_path) as (_, served):  # after a restart
        client = served.client()
        await client.call("two__counts")
        refused = json.loads(await client.call("remove_mcp_server", name="one"))
        assert not refused["success"] and "toolgate.json" in refused["error"]
        assert json.loads(await client.call("remove_mcp_server", name="two"))["success"]
        await until(lambda: not children())
        with pytest.raises(Failed, match="not found"):
            await client.call("two__counts")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"transport": "stdio"}, "command"),
        ({"transport": "http"}, "url"),
        ({"transport": "http", "url": "https://example.com/${HOME}"}, "${"),
        ({"transport": "http", "url": "https://example.com/", "headers": {"Authorization": "${secret:x}"}}, "${"),
        ({"transport": "stdio", "command": "x", "args": ["${HOME:-x}"]}, "${"),
        ({"transport": "stdio", "command": "x", "env": {"A": "${HOME}"}}, "${"),
        ({"transport": "carrier pigeon", "url": "http://localhost"}, "websocket"),
        ({"transport": "stdio", "command": "x", "name": "one"}, "one"),
    ],
)
def test_what_cannot_be_added_says_why_and_leaves_all_as_it_was(
    tmp_path: Path, table: dict[str, Any], says: str
) -> None:
    @real
    async def test() -> None:
        async with edited(tmp_path) as (files, served):
            before = served.app.gateway.snapshot
            reply = json.loads(await served.client().call("add_mcp_server", **{"name": "two", **table}))
            assert not reply["success"] and says in reply["error"]
            assert served.app.gateway.snapshot is before
            assert not files.own.exists() or not json.loads(files.own.read_text())["mcpServers"]

    test()


@real
async def test_a_server_that_does_not_start_is_kept_and_says_so(tmp_path: Path) -> None:
    async with edited(tmp_path) as (_, served):
        reply = json.loads(
            await served.client().call("add_mcp_server", name="lost", transport="stdio", command="no_such_command")
        )
        assert (reply["success"], reply["state"], reply["tools"]) == (True, "failed", [])
        assert "Command not found: no_such_command" in reply["error"]
        assert "lost" in served.app.gateway.snapshot.upstreams


def test_a_file_that_has_become_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.servers = {"one": child("counting")}
    files.write()
    settings = files.settings()
    settings.read()
    files.path.unlink()
    os.mkfifo(files.path)
    with pytest.raises(ConfigError, match="not a regular file"):
        settings.read()
    with pytest.raises(Fault, match="not a regular file"):
        settings.add("two", child("counting"))
