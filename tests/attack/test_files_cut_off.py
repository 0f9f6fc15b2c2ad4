"""A configuration that is cut off while it is written, or that takes guards away, is served at the operator's word."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from processes.ground import child, home, real, toolgate
from virtualtime import FakeClock, settle

from toolgate import config as configs
from toolgate.app import App, running
from toolgate.auth.access import THE_OPERATOR
from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.core.redaction import Redactor
from toolgate.gateway import file_edits
from toolgate.gateway.confirming import LASTS, Unconfirmed
from toolgate.state.audit import Trail
from toolgate.state.base import Store
from toolgate.state.memory import MemoryStore
from toolgate.state.settings import Settings

SERVERS = """
[mcpServers.one]
command = "true"
[mcpServers.two]
command = "true"
"""
ADA = """
[[clients]]
id = "ada"
key = "canary-of-a-key-that-is-long"
mcp_server_access = ["one"]
"""
BOB = """
[[clients]]
id = "bob"
key = "canary-of-another-that-is-long"
mcp_server_access = ["one", "two"]
mcp_permissions = { tools = { "one__write" = "off", "two__*" = "ask" } }
"""
WHOLE = SERVERS + ADA + BOB
YAML = """
mcpServers:
  one: {command: "true"}
clients:
  - id: ada
    key: canary-of-a-key-that-is-long
    mcp_server_access: ["one"]
    mcp_permissions:
      tools:
        one__write: "off"
"""
LOOKS = 3.0  # seconds, in which the files are looked at several times


class Place:
    def __init__(self, path: Path, app: App, trail: Trail, store: Store) -> None:
        self.path, self.app, self.trail, self.store = path, app, trail, store

    async def looks(self) -> None:
        await self.app.clock.sleep(LOOKS)
        await settle()

    async def edit(self, text: str) -> None:
        """As an editor does, and nobody says a word."""
        self.path.write_text(text)
        await self.app.clock.sleep(LOOKS)
        await settle()

    @property
    def served(self) -> tuple[list[str], list[str], bool]:
        """Servers and clients, and whether the audit goes on."""
        config = self.app.gateway.snapshot.config
        return [each.id for each in config.servers], [each.id for each in config.clients], self.trail.is_on

    async def ask(self, method: str, path: str, **body: Any) -> tuple[int, Any]:
        content = json.dumps(body).encode() if body else b""
        status, said = await self.app.http.web.admin.ask(method, f"/admin{path}", content, THE_OPERATOR)
        return status, json.loads(said)


@asynccontextmanager
async def place(
    folder: Path, text: str = WHOLE, name: str = "toolgate.toml", beside: Place | None = None
) -> AsyncGenerator[Place]:
    """`beside`: another gateway of the same configuration and store."""
    path, clock = folder / name, beside.app.clock if beside else FakeClock()
    path.write_text(text)
    settings = Settings(lambda: configs.load(path, {}), {}, path, folder / "servers.json")
    config, store = settings.read(), beside.store if beside else MemoryStore(clock)
    redactor, log = Redactor(configs.secrets_of(config)), "beside.jsonl" if beside else "audit.jsonl"
    trail = Trail(folder / log, clock, store, redactor)
    trail.use(config)
    async with running(config, environ={}, settings=settings, store=store, audit=trail, clock=clock) as app:
        try:
            yield Place(path, app, trail, store)
        finally:
            await trail.close()


BEFORE = (["one", "two"], ["ada", "bob"], True)
CUTS = {
    "before the clients": SERVERS,
    "before the second client": SERVERS + ADA,
    "within a client": WHOLE[: WHOLE.index("mcp_permissions")],
    "within another line": WHOLE[: WHOLE.index("mcp_server_access")],
    "to nothing": "",
    "edited before": SERVERS.replace("two", "three"),
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
async def test_a_file_that_is_cut_off_is_not_served(tmp_path: Path, cut: str, caplog: pytest.LogCaptureFixture) -> None:
    async with place(tmp_path) as there:
        with caplog.at_level(logging.INFO, "toolgate"):
            await there.edit(cut)
        assert there.served == BEFORE and not there.app.gateway.access.is_open
        (told,) = [each for each in caplog.records if each.name == "toolgate.gateway.reload"]
        assert told.levelname == "WARNING" and "toolgate reload" in told.getMessage()
        assert "canary" not in told.getMessage()
        assert (await there.ask("GET", "/status"))[1]["problem"] == told.getMessage()
        await there.edit(WHOLE)
        assert there.served == BEFORE and not there.app.problem


async def test_a_yaml_file_that_is_cut_off_is_not_served_either(tmp_path: Path) -> None:
    async with place(tmp_path, YAML, "toolgate.yaml") as there:
        for end in ("mcp_permissions", "clients"):
            await there.edit(YAML[: YAML.index(end)].rstrip(" "))
            assert there.served == (["one"], ["ada"], True) and "toolgate reload" in there.app.problem
            (client,) = there.app.gateway.snapshot.config.clients
            assert client.permissions.tools


async def test_a_file_that_is_written_bit_by_bit_is_served_when_it_is_whole(tmp_path: Path) -> None:
    new = WHOLE.replace('["one"]', '["two"]')
    async with place(tmp_path) as there:
        for end in range(0, len(new), 40):
            await there.edit(new[:end])
            assert there.served[1] and there.served[2]
        await there.edit(new)
        assert there.served == BEFORE and not there.app.problem
        assert there.app.gateway.snapshot.config.clients[0].servers == ("two",)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (SERVERS.replace("two", "three"), "every program on this machine"),
        (WHOLE.replace("[mcpServers.one]", "[audit]\nenabled = false\n[mcpServers.one]"), "audit log"),
        ("[audit]\nenabled = true\n" + SERVERS, "every program on this machine"),
        (SERVERS + ADA, "cut off"),
    ],
)
async def test_what_takes_a_guard_away_is_served_when_the_operator_has_seen_what(
    tmp_path: Path, edit: str, says: str
) -> None:
    async with place(tmp_path) as there:
        await there.edit(edit)
        there.app.reload_soon()  # a signal has seen nothing
        await settle()
        assert there.served == BEFORE
        for confirmed in ([], ["something else"]):
            status, told = await there.ask("POST", "/reload", confirmed=confirmed)
            assert status == 409 and says in " ".join(told["unconfirmed"]) and there.served == BEFORE
        status, _ = await there.ask("POST", "/reload", confirmed=told["unconfirmed"])
        assert status == 200 and there.served != BEFORE and not there.app.problem


@pytest.mark.parametrize("edit", [SERVERS + ADA, SERVERS, "[audit]\nenabled = false\n" + WHOLE])
async def test_what_the_operator_agrees_to_is_served_by_all_gateways_that_wait_with_it(
    tmp_path: Path, edit: str
) -> None:
    async with place(tmp_path) as there, place(tmp_path, beside=there) as beside:
        await there.edit(edit)
        assert there.served == beside.served == BEFORE
        _, told = await there.ask("POST", "/reload")
        await beside.looks()
        assert beside.served == BEFORE, "nobody has agreed yet"
        assert (await there.ask("POST", "/reload", confirmed=told["unconfirmed"]))[0] == 200
        await beside.looks()
        assert beside.served == there.served != BEFORE and not beside.app.problem


async def test_another_gateway_serves_nothing_but_the_text_that_was_agreed_to_and_no_more_than_was(
    tmp_path: Path,
) -> None:
    async with place(tmp_path) as there, place(tmp_path, beside=there) as beside:
        await there.edit(SERVERS + ADA)
        _, told = await there.ask("POST", "/reload")
        await there.ask("POST", "/reload", confirmed=told["unconfirmed"])
        there.path.write_text(SERVERS)  # it is cut off at the same moment
        await beside.looks()
        assert beside.served == BEFORE and there.served == (["one", "two"], ["ada"], True)
        await there.app.clock.sleep(LASTS)
        await there.edit(WHOLE)
        await there.edit(SERVERS + ADA)
        assert there.served == beside.served == BEFORE, "it was agreed to some time ago"


async def test_what_was_agreed_to_is_no_more_than_was_shown(tmp_path: Path) -> None:
    async with place(tmp_path) as there:
        await there.edit(SERVERS + ADA)
        _, told = await there.ask("POST", "/reload")
        there.path.write_text(SERVERS)  # meanwhile it was cut off again
        status, _ = await there.ask("POST", "/reload", confirmed=told["unconfirmed"])
        assert status == 409 and there.served == BEFORE


@pytest.mark.parametrize(
    ("edit", "servers", "clients"),
    [
        (WHOLE + '[mcpServers.three]\ncommand = "true"\n', ["one", "two", "three"], ["ada", "bob"]),
        (WHOLE.replace('"off"', '"allow"'), ["one", "two"], ["ada", "bob"]),
        (SERVERS + BOB, ["one", "two"], ["bob"]),
        ("[auth]\nissuer = 'https://id.example'\naudience = 'https://gw.example'\n" + SERVERS, ["one", "two"], []),
        (WHOLE.rstrip(), ["one", "two"], ["ada", "bob"]),
    ],
)
async def test_other_edits_are_served_at_once(
    tmp_path: Path, edit: str, servers: list[str], clients: list[str]
) -> None:
    async with place(tmp_path) as there:
        await there.edit(edit)
        assert there.served == (servers, clients, True) and not there.app.problem


async def test_adding_a_server_does_not_serve_what_waits(tmp_path: Path) -> None:
    async with place(tmp_path) as there:
        there.path.write_text(SERVERS)  # and nobody has looked yet
        for _ in range(2):
            with pytest.raises(Fault, match="toolgate reload"):
                await there.app._reloading.add("more", {"command": "true"})
            assert there.served == BEFORE and not there.app.gateway.access.is_open
            await there.edit(SERVERS + ADA)
        with pytest.raises(Fault, match="toolgate reload"):
            await there.app._reloading.remove("more")
        await there.edit(WHOLE + "# whole again")
        assert there.served == BEFORE, "what was refused was not written"
        await there.app._reloading.add("more", {"command": "true"})
        assert there.served == (["one", "two", "more"], ["ada", "bob"], True)
        await there.app._reloading.remove("more")
        assert there.served == BEFORE


async def test_who_is_gone_while_a_server_is_added_has_it_served_and_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place(tmp_path) as there:

        async def in_a_thread(work: Callable[..., Any], *given: Any) -> Any:
            found = work(*given)
            adds.cancel()
            await asyncio.sleep(0)  # in which who waits is gone
            return found

        monkeypatch.setattr(asyncio, "to_thread", in_a_thread)
        adds = asyncio.ensure_future(there.app._reloading.add("more", {"command": "true"}))
        with pytest.raises(asyncio.CancelledError):
            await adds
        await settle()
        assert there.served[0] == ["one", "two", "more"]
    assert '"servers.add"' in (tmp_path / "audit.jsonl").read_text()


async def test_a_reload_that_nobody_waits_for_any_more_is_served_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place(tmp_path) as there:

        async def in_a_thread(work: Callable[..., Any], *given: Any) -> Any:
            found = work(*given)
            reloads.cancel()
            await asyncio.sleep(0)  # in which who waits is gone
            return found

        there.path.write_text(SERVERS + BOB)
        monkeypatch.setattr(asyncio, "to_thread", in_a_thread)
        reloads = asyncio.ensure_future(there.app._reloading.read_again((), lambda: None))
        with pytest.raises(asyncio.CancelledError):
            await reloads
        await settle()
        assert there.served[1] == ["bob"]


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "TOOLGATE_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def saying(old: str, new: str) -> Callable[[Settings], file_edits.FileEdit]:
    """An edit of the file's text as it stands, which is masked."""

    def make(settings: Settings) -> file_edits.FileEdit:
        shown = file_edits.text(settings)
        assert old in shown.text
        return file_edits.of_text(settings, shown.text.replace(old, new), shown.sha256)

    return make


@pytest.mark.usefixtures("own_home")
@pytest.mark.parametrize("is_seen", [True, False])
async def test_no_edit_of_a_page_serves_what_was_cut_off_before(tmp_path: Path, is_seen: bool) -> None:
    cut = WHOLE[: WHOLE.index("mcp_permissions")]
    comment, edit = saying("[mcpServers.two]", "# the second\n[mcpServers.two]"), Principal("ada")
    async with place(tmp_path) as there:
        there.path.write_text(cut)
        if is_seen:
            await there.looks()
        with pytest.raises(Unconfirmed, match="cut off") as waiting:
            await there.app._reloading.edit(comment, (), edit)
        assert there.served == BEFORE and there.path.read_text() == cut
        await there.app._reloading.edit(comment, waiting.value.losses, edit)
        assert not there.app.gateway.snapshot.config.clients[1].permissions.tools


@pytest.mark.usefixtures("own_home")
async def test_who_puts_there_again_what_was_cut_off_is_asked_nothing(tmp_path: Path) -> None:
    cut = WHOLE[: WHOLE.index("mcp_permissions")]
    restored = saying('access = ["one", "two"]\n', f'access = ["one", "two"]\n{WHOLE[len(cut) :]}')
    async with place(tmp_path) as there:
        await there.edit(cut)
        await there.app._reloading.edit(restored, (), Principal("ada"))
        assert there.served == BEFORE and there.path.read_text() == WHOLE and not there.app.problem


@pytest.mark.usefixtures("own_home")
async def test_what_a_page_takes_away_at_the_end_of_the_file_is_taken_away_in_all_gateways(tmp_path: Path) -> None:
    def without_bob(settings: Settings) -> file_edits.FileEdit:
        shown = file_edits.text(settings)
        ada, _, _ = shown.text.partition(BOB[: BOB.index("key =")])
        return file_edits.of_text(settings, ada, shown.sha256)

    async with place(tmp_path) as there, place(tmp_path, beside=there) as beside:
        await there.app._reloading.edit(without_bob, (), Principal("ada"))
        assert there.served[1] == ["ada"] and WHOLE.startswith(there.path.read_text())
        await beside.looks()
        assert beside.served == there.served and not beside.app.problem


@real
async def test_the_operator_is_asked_by_the_command_and_doctor_says_what_waits() -> None:
    client: Any = {"id": "ada", "key": "canary-of-a-key-that-is-long"}
    config = {"one": child("counting")}
    with home() as environ:
        async with toolgate("serve", "--port", "0", config=config, environ=environ, clients=[client]) as running:
            await running.until_it_says(b"listening on")
            file = Path(environ["HOME"], "toolgate.json")
            file.write_text(json.dumps({"mcpServers": config}))
            await running.until_it_says(b"toolgate reload")

            async def command(*args: str) -> tuple[int, str]:
                process = await asyncio.create_subprocess_exec(
                    *[sys.executable, "-m", "toolgate", *args, "--config", str(file)],
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    env=environ,
                )
                said, _ = await process.communicate()
                return process.returncode or 0, said.decode()

            for words in (("doctor",), ("status",), ("reload",)):
                code, said = await command(*words)
                assert "every program on this machine" in said and (code == 0) == (words == ("status",)), said
            code, said = await command("reload", "--yes")
            assert (code, "servers: one" in said) == (0, True), said
            assert "problem" not in (await command("status"))[1]
