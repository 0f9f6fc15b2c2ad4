"""The servers of the texts' examples as they are in the world: sqlite, playwright, memory and filesystem, through the
control tools of each seed. They and the gateway run in a room without a way out."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import installed
import pytest
import world
from room import Room, closed

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("error")]

SQLITE, PLAYWRIGHT = "sqlite-2025.4", "playwright-0.0.83"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NODE = shutil.which("node") or "node"


def config(home: Path) -> dict[str, Any]:
    shared = home / "shared"
    shared.mkdir()
    (shared / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 301)))
    python = installed.program(SQLITE) / "bin" / "python"
    database = str(home / "users.db")
    sqlite = [str(python), "-c", "import mcp_server_sqlite; mcp_server_sqlite.main()", "--db-path", database]
    browser = ["--executable-path", CHROMIUM] if CHROMIUM else []
    cli = str(installed.program(PLAYWRIGHT) / "node_modules" / "@playwright" / "mcp" / "cli.js")
    commands = {
        "sqlite": sqlite,
        "playwright": [NODE, cli, "--headless", "--no-sandbox", "--isolated", "--output-dir", str(home), *browser],
        "memory": [NODE, installed.npm_server("server-memory")],
        "filesystem": [NODE, installed.npm_server("server-filesystem"), str(shared)],
    }
    env = {"memory": {"MEMORY_FILE_PATH": str(home / "graph.jsonl")}}
    return {
        "catalog": {"first_wait": "10s"},
        "mcpServers": {
            name: {"command": command[0], "args": command[1:], "env": env.get(name, {}), "timeout": 60}
            for name, command in commands.items()
        },
    }


class Talk:
    """One client of `toolgate stdio`."""

    def __init__(self, started: subprocess.Popen[str], home: Path) -> None:
        self._started = started
        self._out = world.Lines(started.stdout)
        self.errors = world.Lines(started.stderr)
        self.home = home
        self._last = 0
        info = {"name": "interop", "version": "1"}
        self.ask("initialize", protocolVersion=world.LEGACY, capabilities={}, clientInfo=info)

    def ask(self, method: str, **params: Any) -> Any:
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        assert self._started.stdin is not None
        self._started.stdin.write(json.dumps(message) + "\n")
        self._started.stdin.flush()
        found = json.loads(self._out.until(rf'.*"id": ?{self._last}\b.*').group())
        assert "result" in found, found
        return found["result"]

    def heard(self, method: str) -> None:
        """The next note of this method."""
        self._out.until(rf'.*"method": ?"{method}".*')

    def call(self, name: str, **arguments: Any) -> Any:
        return self.ask("tools/call", name=name, arguments=arguments)

    def told(self, name: str, **arguments: Any) -> Any:
        result = self.call(name, **arguments)
        assert not result.get("isError"), result
        return json.loads(result["content"][0]["text"])


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    for name in (SQLITE, PLAYWRIGHT):
        if reason := installed.missing_program(name):
            pytest.skip(reason)
    with closed() as found:
        yield found


def talking(room: Room, home: Path, *flags: str, settings: dict[str, Any] | None = None) -> Iterator[Talk]:
    file = home / "toolgate.json"
    file.write_text(json.dumps(settings or config(home)))
    command: Sequence[str] = [sys.executable, "-m", "toolgate", "stdio", "--config", str(file), *flags]
    before = room.inhabitants()
    with world.process(room.enter(command), home) as started:
        yield Talk(started, home)
        assert started.stdin is not None
        started.stdin.close()
        started.wait(world.SECONDS)
        started.stdin = None
    assert room.remaining(before, 20) == []


@pytest.fixture(scope="module")
def children(room: Room, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    yield from talking(room, tmp_path_factory.mktemp("children"), "--surface", "children")


@pytest.fixture(scope="module")
def meta(room: Room, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    yield from talking(room, tmp_path_factory.mktemp("meta"), "--surface", "meta")


@pytest.fixture(scope="module")
def daemon(room: Room, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    yield from talking(room, tmp_path_factory.mktemp("daemon"), "--surface", "daemon")


def execution(server: str, tool: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"server_id": server, "tool_name": tool, "arguments": arguments, **more}


class TestChildren:
    def test_the_servers_are_there(self, children: Talk) -> None:
        told = children.told("list_registered_children")
        assert told == {"children": ["sqlite", "playwright", "memory", "filesystem"], "count": 4}
        tools = [tool["name"] for tool in children.ask("tools/list")["tools"]]
        assert "execute_child_tool" in tools and "sqlite__read_query" not in tools

    def test_a_database_is_made_and_asked(self, children: Talk) -> None:
        names = [tool["name"] for tool in children.told("get_schema", server_id="sqlite")["tools"]]
        assert {"create_table", "write_query", "read_query"} <= set(names)
        for tool, query in (
            ("create_table", "CREATE TABLE users (name TEXT, email TEXT, created_at TEXT)"),
            ("write_query", "INSERT INTO users VALUES ('Ada', 'ada@example.org', '2024-06-01')"),
        ):
            children.told("execute_child_tool", **execution("sqlite", tool, {"query": query}))
        query = "SELECT name, email FROM users WHERE created_at > '2024-01-01' ORDER BY created_at DESC LIMIT 10"
        told = children.told("execute_child_tool", **execution("sqlite", "read_query", {"query": query}))
        assert told["status"] == "success"
        assert "ada@example.org" in told["result"]

    def test_a_long_text_is_cut_to_its_ends(self, children: Talk) -> None:
        path = str(children.home / "shared" / "long.txt")
        call = execution("filesystem", "read_text_file", {"path": path}, head=50, tail=20)
        told = children.told("execute_child_tool", **call)
        lines = told["result"].rstrip("\n").split("\n")
        assert (lines[0], lines[49], lines[50], lines[-1]) == ("line 1", "line 50", "...", "line 300")
        assert told["truncated"] is True

    def test_a_child_is_seen_closed_and_started_again(self, children: Talk) -> None:
        call = execution("memory", "read_graph", {})
        children.told("execute_child_tool", **call)
        first = children.told("get_child_status", server_id="memory")
        assert first["status"] == "running" and first["pid"] > 1 and first["startup_time"].endswith("Z")
        closed = children.told("close_child_session", server_id="memory")
        assert (closed["status"], closed["message"]) == ("closed", "Session closed successfully")
        assert children.told("get_child_status", server_id="memory")["status"] == "stopped"
        children.told("execute_child_tool", **call)
        assert children.told("get_child_status", server_id="memory")["pid"] != first["pid"]

    def test_the_tools_failure_and_ours_are_failed_runs(self, children: Talk) -> None:
        own = children.call("execute_child_tool", **execution("filesystem", "read_text_file", {"path": "/nowhere"}))
        ours = children.call("execute_child_tool", **execution("sqlite", "query", {"sql": "SELECT 1"}))
        for result in (own, ours):
            assert result["isError"] is True
            assert json.loads(result["content"][0]["text"])["status"] == "failed"
        assert json.loads(ours["content"][0]["text"])["code"] == "TOOL_NOT_FOUND"


class TestMeta:
    def test_every_server_is_listed_with_its_tools(self, meta: Talk) -> None:
        found = {each["name"]: each for each in meta.told("mcp_discover")}
        assert list(found) == ["sqlite", "playwright", "memory", "filesystem"]
        assert found["sqlite"]["toolCount"] == 6
        assert all(each["state"] == "idle" and each["toolCount"] > 0 for each in found.values())

    def test_a_capability_is_found_by_words(self, meta: Talk) -> None:
        found = meta.told("mcp_discover", query="screenshot")
        assert (found[0]["server"], found[0]["tool"]) == ("playwright", "browser_take_screenshot")
        found = meta.told("mcp_discover", query="SQL query", server="sqlite")
        assert {each["server"] for each in found} == {"sqlite"}

    def test_a_tool_is_called(self, meta: Talk) -> None:
        ada = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
        meta.call("mcp_call", server="memory", tool="create_entities", args={"entities": [ada]})
        result = meta.call("mcp_call", server="memory", tool="read_graph")
        assert "wrote the first program" in result["content"][0]["text"]

    def test_a_failure_names_tool_and_server(self, meta: Talk) -> None:
        result = meta.call("mcp_call", server="playwright", tool="browser_screenshot")
        text = result["content"][0]["text"]
        assert result["isError"] is True
        assert text.startswith("Error calling browser_screenshot on playwright: Tool not found")
        assert "browser_take_screenshot" in text

    @pytest.mark.skipif(not CHROMIUM, reason="there is no chromium here")
    def test_a_page_is_opened_and_seen(self, meta: Talk) -> None:
        page = {"url": "data:text/html,<title>Hi</title><h1>Hello</h1>"}
        opened = meta.call("mcp_call", server="playwright", tool="browser_navigate", args=page)
        assert not opened.get("isError"), opened
        seen = meta.call("mcp_call", server="playwright", tool="browser_take_screenshot")
        assert "image" in [block["type"] for block in seen["content"]]


class TestDaemon:
    def test_list_look_and_call(self, daemon: Talk) -> None:
        listed = daemon.told("list_tools", server="sqlite")
        assert {"list_tables", "read_query"} <= {tool["name"] for tool in listed["tools"]}
        schema = daemon.told("get_tool_schema", server_name="sqlite", tool_name="read_query")["tool"]["inputSchema"]
        assert schema["required"] == ["query"]
        arguments = {"query": "SELECT 6 * 7 AS answer"}
        told = daemon.told("call_tool", server_name="sqlite", tool_name="read_query", arguments=arguments)
        assert told["success"] is True
        assert "42" in json.dumps(told["result"])

    def test_wrong_arguments_are_refused_with_the_schema(self, daemon: Talk) -> None:
        result = daemon.call("call_tool", server_name="sqlite", tool_name="read_query", arguments={"sql": "SELECT 1"})
        told = json.loads(result["content"][0]["text"])
        assert (told["success"], told["error_type"]) == (False, "ValueError")
        assert told["schema"]["required"] == ["query"]

    def test_the_status_shows_what_is_connected(self, daemon: Talk) -> None:
        daemon.told("list_tools")
        told = daemon.told("status")
        assert told["mcp_server_count"] == 4
        assert [each["state"] for each in told["mcp_servers"]] == ["connected"] * 4
