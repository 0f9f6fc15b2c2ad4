"""The board of tasks and the records of sessions, as an administrator sees them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from doors.issuers import KEYS, client
from inmemory import GREETER, THE_SOCKET, Visitor, gateway
from reader import Document, Reader, signed_in

from toolgate.app import App
from toolgate.auth.access import THE_OPERATOR
from toolgate.config import Config
from toolgate.config.access import Permissions
from toolgate.core.model import Principal
from toolgate.frontends.web import agents
from toolgate.workspace import sessions
from toolgate.workspace.sessions import Record

HOSTILE = "</li><script>alert(1)</script>\u202e"


async def task(app: App, title: str, tool: str = "create_task", **more: Any) -> str:
    wanted = {"tool": f"gobby-tasks__{tool}", "arguments": {"title": title, **more} if title else more}
    told = (
        await Visitor(app).begin("POST", json.dumps(wanted).encode(), path="/admin/call", client=THE_SOCKET).response()
    )
    return json.loads(told.body)["result"]["structuredContent"].get("id", "")


async def record(app: App, id: str, principal: Principal, **more: Any) -> None:
    workspace = app.gateway.workspace.workspace
    whose = sessions.whose(principal)
    now = workspace.now()
    about = {"external_id": id, "machine": "m", "source": "claude-code", "created_at": now, "updated_at": now, **more}
    made = Record(id=sessions.id_of(whose, id), principal=whose, **about)
    await workspace.transact(lambda connection: sessions.put(connection, made))


@pytest.mark.promise("b.operator.agents")
async def test_the_board_has_tasks_by_what_can_be_done_with_them() -> None:
    async with gateway(GREETER) as app:
        first = await task(app, f"the first {HOSTILE}", priority=0, description="in\ntwo lines")
        second = await task(app, "the second")
        await task(app, "", tool="add_dependency", task_id=second, depends_on=first)
        third = await task(app, "the third")
        await task(app, "", tool="close_task", task_id=third)
        reader = await signed_in(app)
        page = await reader.open("/ui/tasks")
        assert "Ready (1) the first </li><script>" in page.text and "\\u{202e}" in page.text
        assert "Blocked (1) the second" in page.text and "waits for the first" in page.text
        assert "Recently closed (1) the third" in page.text
        page = await reader.open(f"/ui/tasks/{first}")
        assert "in two lines" in page.text and "blocking the second open" in page.text
        assert "Task not found" in (await reader.open("/ui/tasks/gt-nothing", 404)).text


@pytest.mark.parametrize("id", ["bd:12", "100%", "%3A"])
async def test_a_task_with_an_id_of_another_program_is_opened_by_its_link(id: str) -> None:
    async with gateway(GREETER) as app:
        made = await task(app, "from elsewhere")
        await app.gateway.workspace.workspace.transact(
            lambda connection: connection.execute("UPDATE task SET id = ? WHERE id = ?", (id, made)) and None
        )
        reader = await signed_in(app)
        assert "from elsewhere" in (await reader.open(f"/ui/tasks/{id}")).text  # as a server has decoded it


async def test_a_project_is_chosen_where_there_are_several() -> None:
    async with gateway(GREETER) as app:
        await task(app, "of none")
        workspace = app.gateway.workspace.workspace
        sql = "UPDATE task SET project_id = 'other' WHERE title = 'of another'"
        await task(app, "of another")
        await workspace.transact(lambda connection: connection.execute(sql).fetchall())
        reader = await signed_in(app)
        page = await reader.open("/ui/tasks")
        assert "of none" in page.text and "of another" not in page.text
        assert [each["value"] for each in page.all("option")] == ["", "other"]
        assert "of another" in (await reader.open("/ui/tasks?project=other")).text


async def test_sessions_are_shown_with_what_they_hand_over_and_are_their_principals_alone() -> None:
    config = Config(clients=(client("carl", key=KEYS["carl"], admin=True),))
    async with gateway(GREETER, config=config) as app:
        operator = Reader(app)
        await operator.sign_in()
        await record(app, "mine", THE_OPERATOR, title=f"a title {HOSTILE}", last_prompt="go on", prompts=1)
        await record(app, "his", Principal("client:carl", client="carl", via="key"), title="of carl")
        page = await operator.open("/ui/sessions")
        assert "a title" in page.text and "of carl" not in page.text
        assert "Last prompt go on" in (await operator.open("/ui/sessions/mine")).text
        carl = Reader(app)
        await carl.open("/ui/login")
        await carl.press("/ui/login", key=KEYS["carl"])
        page = await carl.open("/ui/sessions")
        assert "of carl" in page.text and "a title" not in page.text
        await carl.open("/ui/sessions/his")
        assert "Session not found" in (await carl.open("/ui/sessions/mine", 404)).text


async def test_who_may_not_read_tasks_with_the_tools_reads_none_here() -> None:
    off = Permissions(servers={"gobby-tasks": "off"})
    config = Config(clients=(client("carl", key=KEYS["carl"], admin=True, permissions=off),))
    async with gateway(GREETER, config=config) as app:
        id = await task(app, "secret")
        carl = Reader(app)
        await carl.open("/ui/login")
        await carl.press("/ui/login", key=KEYS["carl"])
        for path in ("/ui/tasks", f"/ui/tasks/{id}"):
            assert "secret" not in (await carl.open(path, 403)).text


async def turned_over(reader: Reader, path: str) -> AsyncIterator[Document]:
    """Pages as they follow by their links; of a board the first column that has more."""
    page = await reader.open(path)
    yield page
    while onward := [each["href"] for each in page.all("a") if each.get("rel") == "next"]:
        page = await reader.open(onward[0])
        yield page


async def test_tasks_beyond_the_first_of_a_column_are_reached_by_its_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "MOST_TASKS", 3)
    async with gateway(GREETER) as app:
        reader = await signed_in(app)
        for number in range(8):
            await task(app, f"task-{number}", priority=number % 2)
        pages = [page.text async for page in turned_over(reader, "/ui/tasks")]
        found = [int(number) for text in pages for number in re.findall(r"task-(\d)", text)]
        assert len(pages) == 3 and {*found} == {*range(8)}
        assert [number % 2 for number in found] == [0] * 4 + [1] * 4, "the most urgent first"
        assert "In progress" in pages[0] and all("In progress" not in text for text in pages[1:])


async def test_a_list_goes_on_behind_a_task_that_is_there_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "MOST_TASKS", 2)
    async with gateway(GREETER) as app:
        reader = await signed_in(app)
        ids = [await task(app, f"task-{number}") for number in range(4)]
        pages = turned_over(reader, "/ui/tasks")
        first = re.findall(r"task-(\d)", (await anext(pages)).text)
        await task(app, "", tool="delete_task", task_id=ids[int(first[1])])
        second = re.findall(r"task-(\d)", (await anext(pages)).text)
        assert sorted([*first, *second]) == ["0", "1", "2", "3"]


async def test_sessions_beyond_the_first_page_are_reached_and_are_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "MOST_SESSIONS", 2)
    config = Config(clients=(client("carl", key=KEYS["carl"], admin=True),))
    async with gateway(GREETER, config=config) as app:
        operator = Reader(app)
        await operator.sign_in()
        for number in range(5):
            seen = f"2026-11-0{1 + number // 2}T00:00:00.000000Z"  # two at one time, in the order of their ids
            await record(app, f"s{number}", THE_OPERATOR, title=f"session-{number}", updated_at=seen)
        pages = [page async for page in turned_over(operator, "/ui/sessions")]
        found = [re.findall(r"session-\d", page.text) for page in pages]
        assert found == [["session-4", "session-2"], ["session-3", "session-0"], ["session-1"]]
        (onward,) = [each["href"] for each in pages[0].all("a") if each.get("rel") == "next"]
        carl = Reader(app)
        await carl.open("/ui/login")
        await carl.press("/ui/login", key=KEYS["carl"])
        assert "session-" not in (await carl.open(onward)).text
