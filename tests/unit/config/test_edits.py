"""Servers that are added at run time, and the file that they are kept in."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolgate.config import Config, ConfigError, load, state_folder, with_own
from toolgate.config.edits import added, edit, make_folder, own_file, read_own, removed, table_of, write

TABLE: dict[str, Any] = {"command": "npx", "args": ["-y", "x"], "env": {"KEY": "${KEY}"}}


def written(folder: Path, *names: str) -> Config:
    path = folder / "toolgate.json"
    path.write_text(json.dumps({"mcpServers": {name: {"command": "x"} for name in names}}))
    return load(path, {})


def test_what_was_added_is_there_again_with_its_references_and_for_us_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "toolgate" / "servers.json"
    assert edit(path, lambda tree: added(tree, "My Tools", TABLE)) == {"My Tools": TABLE}
    assert read_own(path) == {"My Tools": TABLE}
    assert "${KEY}" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert sorted(each.name for each in path.parent.iterdir()) == ["servers.json", "servers.json.lock"]


def test_what_was_added_joins_what_people_wrote(tmp_path: Path) -> None:
    config = with_own(written(tmp_path, "a"), {"b": TABLE}, {"KEY": "k"})
    assert [(one.name, dict(one.env)) for one in config.servers] == [("a", {}), ("b", {"KEY": "k"})]
    assert with_own(config, {}, {}) == config
    assert with_own(written(tmp_path, "a"), {"b": TABLE}, {}).servers[1].missing == ("KEY",)


PATTERNS = ["${KEY}", "x${KEY:-y}", "${secret:KEY}", "${KEY:-y}"]


@pytest.mark.promise("b.secrets.not-by-tool")
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("key", ["url", "headers", "args", "env", "command"])
def test_in_what_a_tool_call_has_added_nothing_is_put_in(pattern: str, key: str) -> None:
    table: dict[str, Any] = {"command": "x"} if key in ("args", "env", "command") else {"url": "https://h/"}
    named = {"K": pattern}
    written = {"url": f"https://h/{pattern}", "headers": named, "args": [pattern], "env": named, "command": pattern}
    table[key] = written[key]
    whole = with_own(Config(), {"a": {**table, "by_operator": False}, "b": {"command": "${KEY}"}}, {"KEY": "canary"})
    one, other = whole.servers
    assert "canary" not in str(msgspec.structs.asdict(one))
    assert "a tool call added the server" in one.problem
    assert "KEY" not in one.missing
    assert (other.command, other.problem) == ("canary", ""), "the operator's own keeps its variables"
    by_operator = with_own(Config(), {"a": table}, {"KEY": "canary"}).servers[0]
    assert not by_operator.problem and "canary" in str(msgspec.structs.asdict(by_operator))


@pytest.mark.parametrize(("transport", "type"), [("http", "http"), ("websocket", "ws"), ("sse", "sse")])
def test_a_caller_names_a_transport_and_what_it_needs(transport: str, type: str) -> None:
    scheme = "ws" if type == "ws" else "http"
    table = table_of(transport, url=f"{scheme}://h", headers={"K": "${KEY}"}, command=None, args=None, enabled=True)
    [one] = with_own(Config(), added({}, "context7", table), {"KEY": "k"}).servers
    assert (one.type, one.url, one.headers) == (type, f"{scheme}://h", {"K": "k"})
    with pytest.raises(ConfigError, match=r"type: must be"):
        with_own(Config(), {"a": table_of("pigeon", command="x")}, {})


def test_a_name_that_both_have_is_an_error_that_names_both(tmp_path: Path) -> None:
    config = written(tmp_path, "My Tools")
    with pytest.raises(ConfigError) as caught:
        with_own(config, {"my_tools": TABLE}, {}, "/state/servers.json")
    line = str(caught.value)
    assert line.startswith("/state/servers.json: mcpServers.my_tools: has the same id as server `My Tools` in ")
    assert config.source in line


def test_what_is_wrong_with_an_added_server_is_told_and_what_the_gateway_says_holds_for_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean `command`"):
        with_own(Config(), {"a": {"comand": "x"}}, {})
    gateway = Config(validate_arguments=False, component_url="http://h/{name}")
    one, echo = with_own(gateway, {"a": TABLE, "echo": {"type": "component", "url": "http://h/{name}"}}, {}).servers
    assert (one.validate_arguments, echo.url) == (False, "http://h/echo")


def test_adding_a_name_twice_is_refused(tmp_path: Path) -> None:
    tree = added({}, "My Tools", TABLE)
    for name in ("My Tools", "my-tools"):
        with pytest.raises(ConfigError, match="My Tools"):
            added(tree, name, TABLE)


def test_a_server_is_removed_by_any_spelling_and_one_of_peoples_own_file_is_not(tmp_path: Path) -> None:
    config, tree = written(tmp_path, "theirs"), {"My Tools": TABLE, "b": TABLE}
    for spelling in ("My Tools", "my-tools", "my_tools"):
        assert removed(tree, spelling, config) == {"b": TABLE}
    with pytest.raises(ConfigError, match=r"theirs: is defined in .*toolgate\.json: remove it there"):
        removed(tree, "theirs", config)
    with pytest.raises(ConfigError, match="no such server"):
        removed(tree, "other", config)


def test_a_change_that_fails_leaves_all_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    write(path, {"a": TABLE})
    with pytest.raises(ConfigError):
        edit(path, lambda tree: added(tree, "a", TABLE))
    assert read_own(path) == {"a": TABLE}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"mcpServers": []}', '{"mcpServers": {"a": 1}}', "\udc80"])
def test_a_file_that_is_damaged_is_named_and_not_written_over(tmp_path: Path, text: str) -> None:
    path = tmp_path / "servers.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=r"servers\.json"):
        edit(path, lambda tree: added(tree, "a", TABLE))
    assert path.read_bytes() == text.encode(errors="surrogateescape")


def test_a_disk_that_is_full_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "servers.json"
    write(path, {"a": TABLE})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(path, {"b": TABLE})
    assert read_own(path) == {"a": TABLE}
    assert [each.name for each in tmp_path.iterdir()] == ["servers.json"]


def test_of_processes_that_add_at_once_none_loses_what_another_wrote(tmp_path: Path) -> None:
    path = tmp_path / "state" / "servers.json"
    code = (
        "import sys; from pathlib import Path; from toolgate.config.edits import added, edit\n"
        "for number in range(10):\n"
        "    name = f'{sys.argv[2]}-{number}'\n"
        "    edit(Path(sys.argv[1]), lambda tree: added(tree, name, {'command': 'x'}))\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(path), who]) for who in ("a", "b", "c")]
    assert [each.wait(timeout=60) for each in started] == [0, 0, 0]
    assert read_own(path).keys() == {f"{who}-{number}" for who in "abc" for number in range(10)}


def test_where_the_state_is_kept(tmp_path: Path) -> None:
    home = {"HOME": "/home/me"}
    assert state_folder(Config(), home) == Path("/home/me/.local/state/toolgate")
    assert state_folder(Config(), {**home, "XDG_STATE_HOME": "/xdg"}) == Path("/xdg/toolgate")
    assert state_folder(Config(state="/var/lib/t"), home) == Path("/var/lib/t")
    assert state_folder(Config(state="~/t"), home) == Path("/home/me/t")
    assert state_folder(Config(state="t", source="/etc/toolgate.toml"), home) == Path("/etc/t")
    assert own_file(Config(state=str(tmp_path / "none")), home) == tmp_path / "none" / "servers.json"
    assert not (tmp_path / "none").exists()


def test_a_folder_and_those_above_it_are_for_us_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(tmp_path / "state" / "toolgate")
    finally:
        os.umask(before)
    for folder in (tmp_path / "state", tmp_path / "state" / "toolgate"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_an_interrupted_edit_has_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    own = tmp_path / "servers.json"
    left, at_work = tmp_path / ".servers.json.4194305.ab", tmp_path / f".servers.json.{os.getpid()}.cd"
    for file in (left, at_work):
        file.write_text("{")
    edit(own, lambda tree: added(tree, "one", {"command": "x"}))
    assert not left.exists() and at_work.exists(), "only what nobody writes any more"
