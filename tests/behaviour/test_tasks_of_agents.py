"""Seed 004's registry of tasks, through each surface that reaches it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from inmemory import Json, Scripted, gateway, tools
from stage import Asker

from toolgate.app import App
from toolgate.config import Config, Tasks
from toolgate.workspace.tasks import BRIEF, FIELDS

PATHS = pytest.mark.parametrize("path", ["/mcp", "/mcp/daemon", "/mcp/all", "/mcp/servers/gobby-tasks"])
OTHERS = ["/mcp/aggregate", "/mcp/children", "/mcp/meta", "/mcp/components"]
EVERYWHERE = pytest.mark.parametrize("path", [*PATHS.args[1], *OTHERS])


class Agent:
    """Works with tasks: on a server's own path by the names of its tools, elsewhere by `call_tool`."""

    def __init__(self, app: App, era: str, path: str = "/mcp") -> None:
        self._app = app
        self._is_direct = "servers" in path
        self.asker = Asker(app, era, path)

    async def do(self, tool: str, /, **arguments: Any) -> Json:
        if self._is_direct:
            result = await self.asker.call(tool, arguments)
            assert not result.get("isError"), result
            return result["structuredContent"]
        told = await self.asker.told("call_tool", **_call(tool, arguments))
        assert told["success"] is True
        return told["result"]

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        """What the refusal says, and with what hint."""
        if self._is_direct:
            error = await self.asker.error("tools/call", name=tool, arguments=arguments)
            return f"{error['message']} {error['data'].get('hint', '')}"
        told = await self.asker.failed("call_tool", **_call(tool, arguments))
        assert (told["success"], told["error_type"]) in ((False, "ValueError"), (False, "KeyError"))
        return f"{told['error']} {told.get('hint', '')}"

    async def task(self, title: str = "a task", **more: Any) -> str:
        await self._app.clock.sleep(1)
        return (await self.do("create_task", title=title, **more))["id"]

    async def listed(self, tool: str, **given: Any) -> list[str]:
        return [task["id"] for task in (await self.do(tool, **given))["tasks"]]


def _call(tool: str, arguments: Json) -> Json:
    return {"server_name": "gobby-tasks", "tool_name": tool, "arguments": arguments}


def front(**config: Any) -> Any:
    scripts = {"there": Scripted(tools_list=tools("t"))}
    return gateway(config=Config(tasks=Tasks(**config)), scripts=scripts)


@EVERYWHERE
@pytest.mark.promise("004.tasks.workflow")
async def test_a_task_is_found_made_claimed_and_closed(path: str, era: str) -> None:
    async with front() as app:
        agent = Agent(app, era, path)
        if "servers" in path:
            listed = {tool["name"]: tool for tool in (await agent.asker.result("tools/list"))["tools"]}
            assert "title" in listed["create_task"]["inputSchema"]["required"]
        else:
            listed = await agent.asker.told("list_tools", server="gobby-tasks")
            assert "create_task" in [each["name"] for each in listed["tools"]]
            told = await agent.asker.told("get_tool_schema", server_name="gobby-tasks", tool_name="create_task")
            assert "title" in told["tool"]["inputSchema"]["properties"]
        made = await agent.do(
            "create_task",
            title="Implement authentication",
            priority=1,
            task_type="feature",
            session_id="<your_session_id>",
        )
        assert await agent.listed("list_ready_tasks", limit=5) == [made["id"]]
        claimed = await agent.do("update_task", task_id=made["id"], status="in_progress")
        assert claimed["status"] == "in_progress" and await agent.listed("list_ready_tasks") == []
        closed = await agent.do("close_task", task_id=made["id"], reason="completed")
        assert (closed["status"], closed["closed_reason"]) == ("closed", "completed")
        shown = await agent.do("get_task", task_id=made["id"])
        assert (shown["created_in_session_id"], shown["closed_in_session_id"]) == ("<your_session_id>",) * 2


@pytest.mark.promise("004.tasks.workflow")
@pytest.mark.parametrize("path", [*OTHERS, "/mcp/all"])
async def test_each_surface_reaches_them_by_its_own_tools_too(path: str, era: str) -> None:
    async with front() as app:
        asker = Asker(app, era, path)
        made = await asker.call("gobby-tasks__create_task", {"title": "Implement authentication"})
        id = made["structuredContent"]["id"]
        by_child = {"server_id": "gobby-tasks", "tool_name": "list_ready_tasks", "arguments": {"limit": 5}}
        ready = json.loads((await asker.told("execute_child_tool", **by_child))["result"])
        assert [each["id"] for each in ready["tasks"]] == [id]
        claim = {"task_id": id, "status": "in_progress"}
        claimed = await asker.call("mcp_call", {"server": "gobby-tasks", "tool": "update_task", "args": claim})
        assert json.loads(claimed["content"][0]["text"])["status"] == "in_progress"
        closed = await asker.call("gobby-tasks__close_task", {"task_id": id, "reason": "completed"})
        assert closed["structuredContent"]["status"] == "closed"
        assert [name for name in await asker.listed() if name.startswith("gobby")] == []


@PATHS
@pytest.mark.promise("004.tasks.crud")
async def test_tasks_are_made_shown_changed_closed_deleted_and_listed(path: str, era: str) -> None:
    async with front() as app:
        agent = Agent(app, era, path)
        id = await agent.task("Fix it", priority=1, task_type="bug", labels=["x"], description="All of it.")
        other = await agent.task("Other", parent_task_id=id)
        assert (await agent.do("get_task", task_id=id))["description"] == "All of it."
        changed = await agent.do("update_task", task_id=id, assignee="ann", priority=0)
        assert (changed["assignee"], changed["priority"], changed["title"]) == ("ann", 0, "Fix it")
        assert (await agent.do("list_tasks"))["count"] == 2
        assert await agent.listed("list_tasks", label="x", assignee="ann", title_like="fix") == [id]
        assert "children" in await agent.refused("delete_task", task_id=id)
        assert (await agent.do("close_task", task_id=other))["validated"] is False
        assert await agent.do("delete_task", task_id=id, cascade=True) == {"deleted": True, "task_id": id, "count": 2}
        assert f"Task not found: {id}" in await agent.refused("get_task", task_id=id)
        assert "priority" in await agent.refused("create_task", title="x", priority=9)


@PATHS
@pytest.mark.promise("004.tasks.dependencies")
async def test_dependencies_are_added_shown_and_removed_and_make_no_circle(path: str, era: str) -> None:
    async with front() as app:
        agent = Agent(app, era, path)
        a, b, c = [await agent.task(title) for title in "abc"]
        for task, depends_on in ((a, b), (b, c)):
            assert (await agent.do("add_dependency", task_id=task, depends_on=depends_on))["added"] is True
        assert "waits for" in await agent.refused("add_dependency", task_id=c, depends_on=a)
        assert "itself" in await agent.refused("add_dependency", task_id=c, depends_on=c)
        tree = await agent.do("get_dependency_tree", task_id=b)
        assert [each["id"] for each in (*tree["blockers"], *tree["blocking"])] == [c, a]
        assert await agent.do("check_dependency_cycles") == {"has_cycles": False, "cycles": []}
        assert (await agent.do("remove_dependency", task_id=b, depends_on=c))["removed"] is True
        assert (await agent.do("add_dependency", task_id=c, depends_on=a, dep_type="blocks"))["added"] is True


@PATHS
@pytest.mark.promise("004.tasks.ready")
async def test_what_nothing_blocks_is_listed_and_what_waits_with_its_blockers(path: str, era: str) -> None:
    async with front() as app:
        agent = Agent(app, era, path)
        late, first, urgent = (
            await agent.task("late"),
            await agent.task("first"),
            await agent.task("urgent", priority=0),
        )
        await agent.do("add_dependency", task_id=late, depends_on=first)
        assert await agent.listed("list_ready_tasks") == [urgent, first]
        [blocked] = (await agent.do("list_blocked_tasks"))["tasks"]
        assert (blocked["id"], [each["id"] for each in blocked["blockers"]]) == (late, [first])
        await agent.do("update_task", task_id=first, status="in_progress")
        assert await agent.listed("list_ready_tasks") == [urgent]
        await agent.do("close_task", task_id=first)
        assert await agent.listed("list_ready_tasks") == [urgent, late]
        assert await agent.listed("list_blocked_tasks") == []


@PATHS
@pytest.mark.promise("004.tasks.sessions")
async def test_tasks_and_sessions_are_found_from_either_side(path: str, era: str) -> None:
    async with front() as app:
        agent = Agent(app, era, path)
        task = await agent.task()
        told = await agent.do("link_task_to_session", task_id=task, session_id="s-1", action="mentioned")
        assert told == {"linked": True, "task_id": task, "session_id": "s-1", "action": "mentioned"}
        told = await agent.do("get_session_tasks", session_id="s-1")
        assert [(each["task"]["id"], each["action"]) for each in told["tasks"]] == [(task, "mentioned")]
        told = await agent.do("get_task_sessions", task_id=task)
        assert [each["session_id"] for each in told["sessions"]] == ["s-1"]


@PATHS
@pytest.mark.promise("004.disclosure.brief")
async def test_lists_are_brief_and_one_task_is_shown_whole(path: str, era: str) -> None:
    async with front() as app:
        agent = Agent(app, era, path)
        task, blocked = await agent.task(), await agent.task()
        await agent.do("add_dependency", task_id=blocked, depends_on=task)
        for tool in ("list_tasks", "list_ready_tasks", "list_blocked_tasks"):
            fields = (*BRIEF, "blockers") if tool == "list_blocked_tasks" else BRIEF
            told = await agent.do(tool)
            assert told["tasks"] and all(tuple(each) == fields for each in told["tasks"])
        assert tuple(await agent.do("get_task", task_id=task)) == (*FIELDS, "dependencies")


@PATHS
@pytest.mark.promise("b.tasks.blocks")
async def test_a_new_task_blocks_those_that_it_names(path: str, era: str) -> None:
    async with front() as app:
        agent = Agent(app, era, path)
        old = [await agent.task(), await agent.task()]
        new = await agent.task(blocks=old)
        assert await agent.listed("list_ready_tasks") == [new]
        assert await agent.listed("list_blocked_tasks") == old
        shown = (await agent.do("get_task", task_id=new))["dependencies"]
        assert ([each["id"] for each in shown["blocking"]], shown["blocked_by"]) == (old, [])


@PATHS
@pytest.mark.promise("b.tasks.close")
async def test_a_task_with_open_children_is_closed_for_some_reasons_only_and_remembers_reason_and_commit(
    path: str, era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gobby").mkdir()
    (tmp_path / ".gobby" / "project.json").write_text('{"id": "p-1", "name": "one"}')
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("1" * 40)
    monkeypatch.chdir(tmp_path)
    async with front() as app:
        agent = Agent(app, era, path)
        parent = await agent.task()
        child = await agent.task(parent_task_id=parent)
        said = await agent.refused("close_task", task_id=parent)
        assert child in said and "wont_fix" in said
        closed = await agent.do("close_task", task_id=parent, reason="wont_fix")
        shown = await agent.do("get_task", task_id=parent)
        for task in (closed, shown):
            assert (task["closed_reason"], task["closed_commit_sha"]) == ("wont_fix", "1" * 40)
            assert (task["commits"], task["project_id"]) == (["1" * 40], "p-1")
        assert "closed already" in await agent.refused("close_task", task_id=parent)


@PATHS
@pytest.mark.promise("b.tasks.fields")
async def test_a_task_has_its_fields_in_their_order_and_a_short_id(path: str, era: str) -> None:
    async with front() as app:
        agent = Agent(app, era, path)
        made = [await agent.do("create_task", title="x") for _ in range(20)]
        assert all(tuple(task) == FIELDS and len(FIELDS) == 33 for task in made)
        assert all(re.fullmatch("gt-[0-9a-f]{6}", task["id"]) for task in made)
        assert len({task["id"] for task in made}) == 20


@PATHS
@pytest.mark.promise("b.tasks.session")
async def test_the_session_of_a_task_is_that_of_its_caller_unless_said_otherwise(path: str, era: str) -> None:
    async with front() as app:
        agent = Agent(app, era, path)
        assert (await agent.do("create_task", title="x"))["created_in_session_id"] is None
        assert (await agent.do("create_task", title="x", session_id="s-1"))["created_in_session_id"] == "s-1"
        mine = await agent.do("create_task", title="x")
        assert mine["created_in_session_id"] == "s-1"
        said = await agent.do("close_task", task_id=mine["id"], session_id="s-2")
        assert said["closed_in_session_id"] == "s-2"
    async with front(require_session_id=True) as app:
        agent = Agent(app, era, path)
        assert "`session_id` is missing" in await agent.refused("create_task", title="x")
        assert (await agent.do("create_task", title="x", session_id="s-1"))["created_in_session_id"] == "s-1"


@pytest.mark.promise("b.tasks.session", "004.tasks.workflow")
@pytest.mark.parametrize("tool", ["create_task", "link_task_to_session"])
async def test_what_a_session_makes_by_its_first_call_is_in_its_project_and_listed_to_it(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook has told in which folder the session is; the gateway was started in another project."""
    for id in ("p-1", "p-2"):
        (tmp_path / id / ".gobby").mkdir(parents=True)
        (tmp_path / id / ".gobby" / "project.json").write_text(f'{{"id": "{id}"}}')
    monkeypatch.chdir(tmp_path / "p-1")
    async with front() as app:
        told = {"hook_type": "SessionStart", "params": {"session_id": "s-1", "cwd": str(tmp_path / "p-2")}}
        await Asker(app, "legacy").told("call_hook", **told, source="Codex")
        agent = Agent(app, "legacy")
        if tool == "link_task_to_session":
            elsewhere = await Agent(app, "legacy").task()
            await agent.do("link_task_to_session", task_id=elsewhere, session_id="s-1")
        made = await agent.do("create_task", title="x", session_id="s-1")
        assert made["project_id"] == "p-2"
        assert await agent.listed("list_ready_tasks") == [made["id"]]


@pytest.mark.promise("b.tasks.session")
async def test_two_mcp_sessions_have_a_session_each() -> None:
    async with front() as app:
        one, two = Agent(app, "legacy"), Agent(app, "legacy")
        for agent, session in ((one, "s-1"), (two, "s-2")):
            await agent.task(session_id=session)
        for agent, session in ((one, "s-1"), (two, "s-2"), (one, "s-1")):
            assert (await agent.do("create_task", title="x"))["created_in_session_id"] == session
        assert (await Agent(app, "legacy").do("create_task", title="x"))["created_in_session_id"] is None


@pytest.mark.promise("004.tasks.crud")
async def test_tools_are_called_by_their_whole_names_too(era: str) -> None:
    async with front(show=True) as app:
        asker = Asker(app, era)
        made = await asker.call("gobby-tasks__create_task", {"title": "Fix bug"})
        assert json.loads(made["content"][0]["text"]) == made["structuredContent"]
        error = await asker.error("tools/call", name="gobby-tasks__get_task", arguments={"task_id": "gt-000000"})
        assert "Task not found: gt-000000" in error["message"]
