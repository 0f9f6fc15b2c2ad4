"""Real servers in the boxes of their profiles: each does what it is for, and what is outside its box stays out.

They and the gateway run in a room without a way out; what `npx` and `uvx` fetch, they have fetched before.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import installed
import pytest
import world
from room import closed
from test_the_seeds_servers import CHROMIUM, NODE, PLAYWRIGHT, SQLITE, Talk, talking

from toolgate.upstreams.process import confinement

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("error"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]

FETCH = "fetch-2026.10"
GIT = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org"]


def environment(program: str, module: str) -> list[str]:
    return [str(installed.program(program) / "bin" / "python"), "-m", module]


def commands(home: Path) -> dict[str, list[str]]:
    """Every server that is installed here."""
    npm = {name: [NODE, installed.npm_server(f"server-{name}")] for name in ("everything", "memory", "filesystem")}
    found = {
        **npm,
        "git": [*installed.python_server("mcp_server_git"), "--repository", str(home / "repository")],
        "time": installed.python_server("mcp_server_time"),
    }
    found["filesystem"].append(str(home / "shared"))
    if not installed.missing_program(SQLITE):
        run = "import mcp_server_sqlite; mcp_server_sqlite.main()"
        python = str(installed.program(SQLITE) / "bin" / "python")
        found["sqlite"] = [python, "-c", run, "--db-path", str(home / "data" / "users.db")]
    if not installed.missing_program(FETCH):
        found["fetch"] = environment(FETCH, "mcp_server_fetch")
    return found


# What stands here is named by a path, which may be any program: such a one has its box written out.
BOXES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "filesystem": lambda home: {"box": {"write": [str(home / "shared")]}},
    "memory": lambda home: {
        "box": {"write": [str(home / "graph")]},
        "env": {"MEMORY_FILE_PATH": str(home / "graph" / "memory.jsonl")},
    },
    "git": lambda home: {"box": {"write": [str(home / "repository")]}},
    "sqlite": lambda home: {"box": {"write": [str(home / "data")]}},
    "fetch": lambda _: {"box": {"net": True}},
}


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    home = tmp_path_factory.mktemp("boxed")
    for name in ("shared", "data", "repository", "graph"):
        (home / name).mkdir()
    (home / "shared" / "text").write_text("a shared text")
    (home / "secret").write_text("canary")
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "the first one"]):
        subprocess.run([*GIT, "-C", str(home / "repository"), *words], check=True, timeout=60)
    servers: dict[str, dict[str, Any]] = {
        name: {"command": words[0], "args": words[1:], "timeout": 60, **BOXES.get(name, lambda _: {})(home)}
        for name, words in commands(home).items()
    }
    settings = {"catalog": {"first_wait": "10s"}, "box": "profile", "mcpServers": servers}
    with closed() as room, tempfile.TemporaryDirectory() as state:  # not pytest's: Chromium wants a short path
        yield from talking(room, home, "--surface", "daemon", settings={**settings, "state": state})


def called(talk: Talk, server: str, tool: str, **arguments: Any) -> str:
    given = {"server_name": server, "tool_name": tool, "arguments": arguments}
    return json.dumps(talk.call("call_tool", **given))


def present(talk: Talk, server: str) -> None:
    if server not in commands(talk.home):
        pytest.skip(f"{server} is not installed here")


@pytest.mark.parametrize("server", ["filesystem", "memory", "everything", "git", "time", "sqlite", "fetch"])
def test_each_server_lists_its_tools_in_its_box(boxed: Talk, server: str) -> None:
    present(boxed, server)
    assert boxed.told("list_tools", server=server)["tools"]


def test_filesystem_reads_and_writes_its_folder_and_no_other(boxed: Talk) -> None:
    shared = boxed.home / "shared"
    assert "a shared text" in called(boxed, "filesystem", "read_text_file", path=str(shared / "text"))
    called(boxed, "filesystem", "write_file", path=str(shared / "new"), content="x")
    assert (shared / "new").read_text() == "x"
    edit = [{"oldText": "shared", "newText": "changed"}]
    called(boxed, "filesystem", "edit_file", path=str(shared / "text"), edits=edit)
    assert (shared / "text").read_text() == "a changed text"
    called(boxed, "filesystem", "create_directory", path=str(shared / "folder"))
    called(boxed, "filesystem", "move_file", source=str(shared / "new"), destination=str(shared / "folder" / "new"))
    assert (shared / "folder" / "new").exists()
    assert "canary" not in called(boxed, "filesystem", "read_text_file", path=str(boxed.home / "secret"))


def test_memory_keeps_its_graph_in_its_own_folder(boxed: Talk) -> None:
    ada = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    called(boxed, "memory", "create_entities", entities=[ada])
    assert "wrote the first program" in called(boxed, "memory", "read_graph")


def test_everything_answers(boxed: Talk) -> None:
    assert "The sum of 2 and 3 is 5." in called(boxed, "everything", "get-sum", a=2, b=3)


def test_git_shows_adds_and_commits(boxed: Talk) -> None:
    repository = str(boxed.home / "repository")
    assert "the first one" in called(boxed, "git", "git_log", repo_path=repository)
    (boxed.home / "repository" / "file").write_text("x")
    assert "file" in called(boxed, "git", "git_status", repo_path=repository)
    called(boxed, "git", "git_add", repo_path=repository, files=["file"])
    called(boxed, "git", "git_commit", repo_path=repository, message="the second one")
    called(boxed, "git", "git_create_branch", repo_path=repository, branch_name="other")
    called(boxed, "git", "git_checkout", repo_path=repository, branch_name="other")
    log = subprocess.run(
        [*GIT, "-C", repository, "log", "--format=%s", "other"], capture_output=True, text=True, timeout=60
    )
    assert log.stdout.split("\n")[:2] == ["the second one", "the first one"]


def test_time_knows_its_zones(boxed: Talk) -> None:
    assert "Europe/Paris" in called(boxed, "time", "get_current_time", timezone="Europe/Paris")


def test_sqlite_writes_its_database(boxed: Talk) -> None:
    present(boxed, "sqlite")
    for tool, query in (
        ("create_table", "CREATE TABLE users (name TEXT)"),
        ("write_query", "INSERT INTO users VALUES ('Ada')"),
    ):
        called(boxed, "sqlite", tool, query=query)
    assert "Ada" in called(boxed, "sqlite", "read_query", query="SELECT name FROM users")
    assert (boxed.home / "data" / "users.db").exists()


def test_fetch_has_the_network_and_fails_for_want_of_a_way_out_only(boxed: Talk) -> None:
    present(boxed, "fetch")
    said = called(boxed, "fetch", "fetch", url="http://8.8.8.8/")
    assert "ermission" not in said
    assert "onnect" in said


@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium here")
def test_playwright_opens_a_page_and_takes_a_picture(tmp_path: Path) -> None:
    package, npx = f"@playwright/mcp@{PLAYWRIGHT.partition('-')[2]}", shutil.which("npx")
    assert npx
    fetch([npx, "-y", "--ignore-scripts", "--package", package, "--call", "true"], tmp_path)
    words = ["--offline", "-y", package, "--headless", "--no-sandbox", "--isolated", "--executable-path", CHROMIUM]
    entry = {"command": npx, "args": words, "start_timeout": "100s", "timeout": "60s"}
    settings = {"catalog": {"first_wait": "60s"}, "box": "profile", "mcpServers": {"playwright": entry}}
    with closed() as room, tempfile.TemporaryDirectory() as state:  # not pytest's: Chromium wants a short path
        for talk in talking(room, tmp_path, "--surface", "daemon", settings={**settings, "state": state}):
            opened = called(
                talk, "playwright", "browser_navigate", url="data:text/html,<title>Hi</title><h1>Hello</h1>"
            )
            assert "Hi" in opened
            assert '"image"' in called(talk, "playwright", "browser_take_screenshot")


# Other servers of the profiles as their runner fetches them: the package, its arguments, its variables, and one tool.
OFFICIAL = "@modelcontextprotocol/server-"
FETCHED = {
    "sequential-thinking": ("npx", f"{OFFICIAL}sequential-thinking@2026.8.31", [], {}, "sequentialthinking"),
    "memory": ("npx", f"{OFFICIAL}memory@2026.8.31", [], {}, "read_graph"),
    "github": ("npx", f"{OFFICIAL}github@2025.4.8", [], {"GITHUB_PERSONAL_ACCESS_TOKEN": "x"}, "get_issue"),
    "postgres": ("npx", f"{OFFICIAL}postgres@0.6.2", ["postgresql://127.0.0.1:9/x"], {}, "query"),
    "context7": ("npx", "@upstash/context7-mcp@4.1.1", [], {}, "resolve-library-id"),
    "chrome-devtools": ("npx", "chrome-devtools-mcp@1.11.0", ["--no-usage-statistics", "--headless"], {}, "list_pages"),
    "time": ("uvx", "mcp-server-time==2026.10.19", [], {}, "get_current_time"),
    "markitdown": ("uvx", "markitdown-mcp", [], {}, "convert_to_markdown"),
}  # fmt: skip


@pytest.mark.parametrize("name", FETCHED)
def test_what_a_runner_fetches_starts_in_its_box(name: str, tmp_path: Path) -> None:
    runner, package, args, env, tool = FETCHED[name]
    command = shutil.which(runner)
    if not command:
        pytest.skip(f"there is no {runner} here")
    first = ["-y", "--ignore-scripts", "--package", package, "--call", "true"]
    first = first if runner == "npx" else ["--no-build", "--from", package, "/bin/sh", "-c", "true"]
    fetch([command, *first], tmp_path)
    words = ["--offline", "-y", package, *args] if runner == "npx" else ["--offline", "--from", package, *args]
    if runner == "uvx" and not args:
        words = ["--offline", package]
    assert tool in listed({"command": command, "args": words, "env": env}, tmp_path)


def test_a_package_that_has_to_be_built_is_refused_and_works_once_it_is_installed(tmp_path: Path) -> None:
    """serena 2.1.0 needs a package that is there as source only."""
    uvx = shutil.which("uvx")
    if not uvx:
        pytest.skip("there is no uvx here")
    args = ["--from", "serena-agent==2.1.0", "serena", "start-mcp-server"]
    fetch([str(Path(uvx).with_name("uv")), "tool", "install", "--quiet", "serena-agent==2.1.0"], tmp_path)
    with pytest.raises(AssertionError, match="The package of one could not be"):
        listed({"command": uvx, "args": ["--offline", *args], "env": WHERE}, tmp_path)
    (serena,) = tmp_path.rglob("uv/tools/serena-agent/bin/serena")
    assert "activate_project" in listed({"command": str(serena), "args": args[3:], "box": {"net": True}}, tmp_path)


WHERE = {name: os.environ[name] for name in ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS") if name in os.environ}


def fetch(command: list[str], home: Path) -> None:
    """Outside of the room."""
    around = world.environment(home) | WHERE
    done = subprocess.run(command, env=around, capture_output=True, text=True, timeout=250, check=False)
    if done.returncode:
        pytest.skip(f"{command[-1]} could not be fetched: {done.stderr[-300:]}")


def listed(entry: dict[str, Any], home: Path) -> list[str]:
    """The tools of one server in the box of its profile, in a room without a way out."""
    patience = {"first_wait": "60s", "list_timeout": "100s"}
    entry = {**entry, "start_timeout": "100s", "timeout": "60s"}
    settings = {"catalog": patience, "box": "profile", "mcpServers": {"one": entry}}
    found: list[str] = []
    with closed() as room:
        for talk in talking(room, home, "--surface", "daemon", settings=settings):
            found += [each["name"] for each in talk.told("list_tools", server="one")["tools"]]
    return found
