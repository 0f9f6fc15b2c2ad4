"""Code that calls real servers: the examples of `mcp_execute` and of `execute_code`, with the names that sqlite and
playwright have in the world (ruling 10), and the tasks of the gateway itself. A page is opened only where there is a
browser; without one, code gets an error that it can catch."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import world
from room import Room
from test_the_seeds_servers import CHROMIUM, Talk, pytestmark, room, talking

__all__ = ["pytestmark", "room"]

PAGE = "data:text/html,<title>Example</title><h1>Hello</h1>"
browser = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium here")


@pytest.fixture(scope="module")
def every(room: Room, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    yield from talking(room, tmp_path_factory.mktemp("code"), "--surface", "all")


@pytest.fixture(scope="module")
def users(every: Talk) -> Talk:
    """With a table of two users in its database, made by code."""
    text, failed = run(
        every,
        """
        await servers.sqlite.create_table({ query: 'CREATE TABLE users (name TEXT, age INTEGER)' });
        for (const [name, age] of [['Ada', 36], ['Grace', 85]]) {
            await servers.sqlite.call('write_query', { query: `INSERT INTO users VALUES ('${name}', ${age})` });
        }
        return (await servers.sqlite.list_tables()).length > 0;
        """,
    )
    assert (text, failed) == ("true", False)
    return every


def run(talk: Talk, code: str) -> tuple[str, bool]:
    result = talk.call("mcp_execute", code=code)
    return result["content"][0]["text"], bool(result.get("isError"))


# Seed 002, mcp_execute.


def test_example_1_counts_the_users(users: Talk) -> None:
    code = (
        "const result = await servers.sqlite.call('read_query', { query: 'SELECT count(*) FROM users' });"
        " return result;"
    )
    text, failed = run(users, code)
    assert not failed and "2" in text, text


@browser
def test_example_2_composes_two_servers(users: Talk) -> None:
    code = (
        f"await servers.playwright.call('browser_navigate', {{ url: '{PAGE}' }});"
        " const screenshot = await servers.playwright.call('browser_take_screenshot', {});"
        " const dbStatus = await servers.sqlite.call('read_query', { query: 'SELECT 1' });"
        " return { screenshot, dbStatus };"
    )
    result = users.call("mcp_execute", code=code)
    assert not result.get("isError"), result
    told = json.loads(result["content"][0]["text"])
    assert "screenshot" in told and "1" in json.dumps(told["dbStatus"])
    assert "image" in [block["type"] for block in result["content"]]


@browser
def test_example_3_sleeps_and_says_what_it_does(users: Talk) -> None:
    code = (
        "console.log('Navigating...');"
        f" await servers.playwright.call('browser_navigate', {{ url: '{PAGE}' }});"
        " await sleep(2000); console.log('Taking screenshot...');"
        " const result = await servers.playwright.call('browser_take_screenshot', {}); return result;"
    )
    result = users.call("mcp_execute", code=code)
    assert not result.get("isError"), result
    assert result["content"][0]["text"].startswith("Navigating...\nTaking screenshot...")


def test_what_fails_at_a_server_is_an_error_that_code_can_catch(users: Talk) -> None:
    code = """
        const said = [];
        for (const act of [
            () => servers.sqlite.read_query({ query: 'SELECT one FROM nowhere' }),
            () => servers.sqlite.read_query({ sql: 'SELECT 1' }),
            () => servers.sqlite.query({ sql: 'SELECT 1' }),
            () => servers.playwright.call('browser_screenshot', {}),
            () => servers.playwright.call('browser_navigate', { url: 'http://127.0.0.1:9/' }),
        ]) {
            try { said.push(JSON.stringify(await act())) }
            catch (error) { said.push(error.name + ' ' + error.message) }
        }
        return said;
    """
    text, failed = run(users, code)
    assert not failed, text
    table, arguments, tool, screenshot, page = json.loads(text)
    assert "no such table" in table
    assert "query" in arguments and arguments.startswith("ToolError")
    assert "read_query" in tool and tool.startswith("ToolError")
    assert "browser_take_screenshot" in screenshot
    assert page.startswith("ToolError")


def test_the_limits_and_prefixes_are_those_of_the_text(users: Talk) -> None:
    assert run(users, "x" * 51_201) == ("mcp_execute error: code exceeds 51200 bytes", True)
    text, failed = run(users, "await sleep(31000 * 0); throw new Error('no')")
    assert failed and text.startswith("Sandbox error: Error: no")
    text, failed = run(users, "return [typeof process, typeof fetch, typeof globalThis, typeof require]")
    assert json.loads(text) == ["undefined"] * 4 and not failed


# Seed 004, Code Execution.


def test_execute_code_computes_as_the_text_shows(users: Talk) -> None:
    told = users.told("execute_code", code="sum(i * i for i in range(10000))")
    assert (told["success"], told["result"], told["language"]) == (True, "333283335000", "python")
    assert told["execution_time"] >= 0


def test_execute_code_calls_servers_in_both_languages(users: Talk) -> None:
    code = (
        "rows = servers.sqlite.read_query(query='SELECT name, age FROM users ORDER BY age')\n"
        "also = servers.memory.read_graph()\n"
        "try:\n    servers.sqlite.read_query(sql='SELECT 1')\nexcept ToolError as error:\n    why = error.message\n"
        "[str(rows), 'query' in why, sorted(also)]"
    )
    told = users.told("execute_code", code=code, timeout=60)
    rows, why, graph = json.loads(told["result"])
    assert "Ada" in rows and "Grace" in rows and why and graph == ["entities", "relations"]
    code = "return (await servers.sqlite.read_query({ query: 'SELECT name FROM users' }))"
    told = users.told("execute_code", code=code, language="javascript")
    assert "Grace" in told["result"]


def test_a_large_dataset_is_cut_as_the_text_shows(users: Talk) -> None:
    data = [{"id": number, "price": number % 977} for number in range(10_000)]
    told = users.told("process_large_dataset", data=data, operation="top 100 by price")
    assert len(told["result"]) == 100
    assert (told["original_size"], told["processed_size"], told["reduction_percent"]) == (10_000, 100, 99.0)


# The tasks of agents: the workflow of seed 004, from code.


def test_tasks_are_made_worked_on_and_closed_by_code(users: Talk) -> None:
    code = """
        const tasks = servers['gobby-tasks'];
        const made = await tasks.create_task({
            title: 'Count the users', priority: 1, task_type: 'feature', session_id: 'interop',
        });
        const ready = await tasks.list_ready_tasks({ limit: 5 });
        await tasks.update_task({ task_id: made.id, status: 'in_progress' });
        const counted = await servers.sqlite.read_query({ query: 'SELECT count(*) FROM users' });
        await tasks.close_task({ task_id: made.id, reason: 'completed' });
        return { made, ready, counted, now: await tasks.get_task({ task_id: made.id }) };
    """
    text, failed = run(users, code)
    assert not failed, text
    told: dict[str, Any] = json.loads(text)
    assert told["made"]["id"] in [each["id"] for each in told["ready"]["tasks"]]
    assert (told["now"]["status"], told["now"]["type"]) == ("closed", "feature")
    assert "2" in json.dumps(told["counted"])
    code = "[each['title'] for each in servers.gobby_tasks.list_tasks(status='closed')['tasks']]"
    assert "Count the users" in users.told("execute_code", code=code)["result"]


def test_what_one_server_says_is_kept_by_another(users: Talk) -> None:
    code = """
        const rows = await servers.sqlite.read_query({ query: 'SELECT name, age FROM users ORDER BY age' });
        const names = [...String(typeof rows === 'string' ? rows : JSON.stringify(rows)).matchAll(/Ada|Grace/g)];
        await servers.memory.create_entities({
            entities: names.map(([name]) => ({ name, entityType: 'user', observations: ['is in the table'] })),
        });
        const { entities } = await servers.memory.read_graph({});
        return entities.map((each) => each.name);
    """
    text, failed = run(users, code)
    assert not failed and json.loads(text) == ["Ada", "Grace"], text


# A script as a tool.

SCRIPT = """\
// /// toolgate
// name = "count_users"
// description = "Counts the users that are older."
// parameters.required = ["age"]
// parameters.properties.age = { type = "integer", description = "in years" }
// ///
const rows = await servers.sqlite.read_query({ query: `SELECT name FROM users WHERE age > ${data.age}` });
return { older: [...JSON.stringify(rows).matchAll(/name/g)].length };
"""


def test_a_script_that_was_approved_is_a_tool_and_calls_real_servers(users: Talk) -> None:
    file = users.home / "count_users.js"
    file.write_text(SCRIPT)
    digest = hashlib.sha256(SCRIPT.encode()).hexdigest()
    options = ["--sha256", digest, "--config", str(users.home / "toolgate.json")]
    environment = world.environment(users.home)
    added = subprocess.run(
        world.toolgate("scripts", "add", str(file), *options),
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert added.returncode == 0, added.stderr
    name = "gobby-scripts__count_users"
    while name not in [tool["name"] for tool in users.ask("tools/list")["tools"]]:
        users.heard("notifications/tools/list_changed")
    result = users.call(name, age=40)
    assert result["structuredContent"] == {"older": 1}, result
    text, failed = run(users, "return await servers['gobby-scripts'].count_users({ age: 1 })")
    assert not failed and json.loads(text) == {"older": 2}
    refused = users.call("mcp_call", server="gobby-scripts", tool="count_users", args={"age": "old"})
    assert refused["isError"] and "age" in refused["content"][0]["text"]
