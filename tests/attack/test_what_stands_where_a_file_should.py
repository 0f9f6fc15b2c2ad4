"""Where a file is looked for that anybody may have put there, by a repository or an archive, stands something else: a
pipe that nobody writes to, or a link to a device that does not end. It is not opened; nobody waits for it."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toolgate import config as configs
from toolgate.cli import app
from toolgate.config import ConfigError, edits, env_file, ownership, secrets
from toolgate.state import audit
from toolgate.state.settings import LONGEST_PROJECT, project_at


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to(path.with_name("pipe"))


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def terminal(path: Path) -> None:
    path.symlink_to("/dev/tty")


def folder(path: Path) -> None:
    path.mkdir()


def door(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        before = os.getcwd()
        os.chdir(path.parent)  # such a path has 100 characters at most
        try:
            listener.bind(path.name)
        finally:
            os.chdir(before)


STRANGE = [pipe, link_to_pipe, device, terminal, folder, door]
Put = Callable[[Path], None]


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """Whoever waits for a pipe, or reads a device to its end, waits for nothing: that ends the test."""

    def ends(number: int, frame: object) -> None:
        raise AssertionError("it waits for something that never comes")

    before = signal.signal(signal.SIGALRM, ends)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is opened."""
    found: list[str] = []
    really = os.open

    def noted(path: object, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        found.append(os.path.realpath(str(path)))
        return really(path, flags, mode, dir_fd=dir_fd)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", noted)
    return found


@pytest.mark.parametrize("put", STRANGE)
def test_what_is_no_file_is_not_even_opened(put: Put, tmp_path: Path, opened: list[str]) -> None:
    path = tmp_path / "a.json"
    put(path)
    with pytest.raises(OSError, match="not a regular file"):
        ownership.open_anyones(path)
    assert not opened


def test_a_file_is_opened_itself_or_by_a_link(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("there")
    (tmp_path / "link").symlink_to(path)
    for each in (path, tmp_path / "link"):
        with ownership.open_anyones(each) as file:
            assert file.read() == b"there"


def test_what_takes_the_place_of_a_file_at_the_last_moment_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_text("there")
    really = os.open

    def changed(*given: object, **more: object) -> int:
        path.unlink()
        os.mkfifo(path)
        return really(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", changed)
    with pytest.raises(OSError, match="not a regular file"):
        ownership.open_anyones(path)
    monkeypatch.undo()


@pytest.mark.parametrize("put", STRANGE)
def test_a_project_is_a_file(put: Put, tmp_path: Path, opened: list[str]) -> None:
    (tmp_path / ".gobby").mkdir()
    put(tmp_path / ".gobby" / "project.json")
    assert project_at(str(tmp_path / "toolgate.json")) is None
    assert not opened


def test_a_project_file_is_read_to_a_bound(tmp_path: Path) -> None:
    project = tmp_path / ".gobby" / "project.json"
    project.parent.mkdir()
    source = str(tmp_path / "toolgate.json")
    project.write_text('{"id": "ours"}')
    assert project_at(source) == "ours"
    project.write_text('{"id": "ours"' + " " * LONGEST_PROJECT + "}")
    assert project_at(source) is None
    project.unlink()
    project.symlink_to(tmp_path / "elsewhere.json")
    (tmp_path / "elsewhere.json").write_text('{"id": "ours"}')
    assert project_at(source) == "ours"


@pytest.mark.parametrize("put", STRANGE)
def test_so_are_all_others_that_are_read_beside_a_configuration(put: Put, tmp_path: Path, opened: list[str]) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    put(path := state / "a.json")
    opened.clear()
    with pytest.raises(ConfigError):
        configs.load(path, {})
    with pytest.raises(ConfigError):
        configs.load(path, {}, accept=lambda _: None)
    with pytest.raises(ConfigError):
        configs.tables(path, {})
    with pytest.raises(ConfigError):
        edits.read_own(path)
    with pytest.raises(OSError):
        env_file.read(path)
    with pytest.raises(secrets.Broken):
        secrets.read_file(path)
    with pytest.raises(OSError):
        audit.verify([path])
    assert not opened


@pytest.mark.parametrize("put", [pipe, device])
@pytest.mark.parametrize(
    "words", [["config", "check"], ["config", "show"], ["list"], ["trust"], ["doctor"]], ids=" ".join
)
def test_no_command_waits_for_what_stands_in_a_strangers_folder(
    put: Put, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cloned := tmp_path / "cloned").mkdir()
    monkeypatch.chdir(cloned)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "TOOLGATE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    (cloned / ".gobby").mkdir()
    put(cloned / ".gobby" / "project.json")
    for name in ("toolgate.json", ".mcp.json", "servers.json", ".env"):
        put(cloned / name)
    done = CliRunner().invoke(app, words, input="")
    assert not done.exception or isinstance(done.exception, SystemExit)
    done = CliRunner().invoke(app, [*words, *(["toolgate.json"] if words[0] in ("config", "trust") else [])], input="")
    assert not done.exception or isinstance(done.exception, SystemExit)


@pytest.mark.parametrize("put", [pipe, device])
def test_a_gateway_starts_beside_a_project_that_is_none(
    put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / ".gobby").mkdir()
    put(tmp_path / ".gobby" / "project.json")
    file = tmp_path / "toolgate.json"
    file.write_text(json.dumps({"mcpServers": {}, "state": str(tmp_path / "state")}))
    done = CliRunner().invoke(app, ["list", "--config", str(file)], input="")
    assert not done.exception or isinstance(done.exception, SystemExit)
