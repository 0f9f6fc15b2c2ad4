"""What an agent's session hands over goes before the next session's model: nobody but the operator's own sessions in
the same folder gets, takes, writes or plants it, and nobody learns which sessions others have."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from inmemory import ENVELOPE, THE_SOCKET, Visitor, gateway
from msgspec import Raw

from toolgate.app import App
from toolgate.auth.access import THE_OPERATOR
from toolgate.config import Config
from toolgate.config.access import KnownClient
from toolgate.core.model import Principal
from toolgate.workspace.projects import FILE
from toolgate.workspace.workspace import place_of


def project(folder: Path, id: str = "acme") -> Path:
    (folder / FILE).parent.mkdir(parents=True)
    (folder / FILE).write_text(json.dumps({"id": id}))
    return folder


class Machine:
    """An open gateway. `hook` is the operator's own agent, by the folder of hooks; `call` is any program over TCP."""

    def __init__(self, app: App, cwd: Path) -> None:
        self._app, self._cwd = app, str(cwd)

    async def hook(self, event: str, session: str, cwd: Path | None = None, **more: str) -> str:
        payload = {"hook_event_name": event, "session_id": session, "cwd": str(cwd or self._cwd), **more}
        return (await self._app.workspace.hooks.take(Raw(json.dumps(payload).encode()), "claude")).decode()

    async def call(self, tool: str, origin: Any = ("127.0.0.1", 5), **arguments: Any) -> dict[str, Any]:
        visitor = Visitor(self._app, "/mcp/all")
        visitor.client = origin
        answer = (await visitor.ask("tools/call", name=tool, arguments=arguments)).last
        return json.loads(answer["result"]["content"][0]["text"])

    async def told(self, event: str, session: str, origin: Any = ("127.0.0.1", 5), **more: str) -> dict[str, Any]:
        params = {"session_id": session, "cwd": self._cwd, **more}
        return await self.call("call_hook", origin, hook_type=event, params=params, source="claude")

    async def work(self, session: str, cwd: Path | None = None) -> None:
        """A whole session of the operator."""
        await self.hook("SessionStart", session, cwd)
        await self.hook("UserPromptSubmit", session, cwd, prompt="SECRET prompt")
        await self.hook("Stop", session, cwd, last_assistant_message="SECRET reply")
        await self.hook("SessionEnd", session, cwd)


async def by_pipe(app: App, principal: Principal, event: str, params: dict[str, Any]) -> str:
    """What `call_hook` answers to who is at the other end of a pipe."""
    heard: list[bytes] = []
    pipe = app.stdio(heard.append, "/mcp/all", principal=principal)
    arguments = {"hook_type": event, "params": params, "source": "claude"}
    call = {"name": "call_hook", "arguments": arguments, "_meta": ENVELOPE}
    pipe.data_received(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode() + b"\n")
    while not heard:
        await asyncio.sleep(0.01)
    await pipe.close()
    return b"".join(heard).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project(tmp_path / "mine")


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[Machine]:
    async with gateway() as app:
        yield Machine(app, folder)


@pytest.mark.parametrize("origin", [("127.0.0.1", 5), ("127.0.0.2", 5), ("::1", 5)])
async def test_a_program_over_tcp_does_not_take_what_the_operators_session_hands_over(
    folder: Path, origin: Any
) -> None:
    async with opened(folder) as machine:
        await machine.work("op-1")

        for session in ("thief", "op-1"):
            told = [await machine.told("SessionStart", session, origin, parent_session_id="op-1")]
            told += [await machine.told("SessionEnd", session, origin)]
            assert told[0]["success"] and "SECRET" not in json.dumps(told)
        assert "SECRET prompt" in await machine.hook("SessionStart", "op-2")


@pytest.mark.parametrize("other", [None, "ann"], ids=["the operator's", "another client's"])
async def test_who_acts_as_a_client_over_a_pipe_takes_no_handoff_of_others(folder: Path, other: str | None) -> None:
    """Though its gateway is one that the operator has started."""

    def pipe(id: str | None) -> Principal:
        return Principal(f"client:{id}", is_here=True, client=id) if id else THE_OPERATOR

    clients = tuple(
        KnownClient(id=id, name=id, key=f"key-of-{id}-that-is-long", servers="all") for id in ("low", "ann")
    )
    async with gateway(config=Config(clients=clients)) as app:

        async def told(who: str | None, event: str, session: str, **more: str) -> str:
            params = {"cwd": str(folder), "session_id": session, **more}
            return await by_pipe(app, pipe(who), event, params)

        await told(other, "SessionStart", "one")
        await told(other, "PromptSubmit", "one", prompt="SECRET prompt")
        await told(other, "SessionEnd", "one", summary="SECRET summary")
        for session in ("thief", "one"):
            assert "SECRET" not in await told("low", "SessionStart", session)
            await told("low", "SessionEnd", session, summary="EVIL")
        found = await told(other, "SessionStart", "two")
        assert "SECRET summary" in found and "EVIL" not in found


async def test_what_a_program_over_tcp_hands_over_never_reaches_the_operators_session(folder: Path) -> None:
    async with opened(folder) as machine:
        await machine.told("SessionStart", "planted")
        await machine.told("SessionEnd", "planted", summary="EVIL")

        assert "EVIL" not in await machine.hook("SessionStart", "op-1")
        assert "EVIL" in json.dumps(await machine.told("SessionStart", "its own next"))


async def test_a_program_over_tcp_writes_into_no_record_of_the_operator(folder: Path) -> None:
    async with opened(folder) as machine:
        await machine.hook("SessionStart", "op-1")
        await machine.hook("PreCompact", "op-1", summary="mine")

        for event in ("PromptSubmit", "PreCompact", "SessionEnd"):
            await machine.told(event, "op-1", summary="EVIL", prompt="EVIL")
        task = await machine.call("gobby-tasks__create_task", title="EVIL task", session_id="op-1")
        await machine.call("gobby-tasks__link_task_to_session", task_id=task["id"], session_id="op-1")

        assert "mine" in (again := await machine.hook("SessionStart", "op-1", source="compact")) and "EVIL" not in again
        await machine.hook("UserPromptSubmit", "op-1", prompt="go on")
        await machine.hook("SessionEnd", "op-1")
        assert "EVIL" not in await machine.hook("SessionStart", "op-2")


async def test_nobody_learns_by_an_id_which_sessions_the_operator_has(folder: Path) -> None:
    async with opened(folder) as machine:
        await machine.hook("SessionStart", "op-1")
        task = await machine.call("gobby-tasks__create_task", THE_SOCKET, title="a task", session_id="op-1")

        assert task["created_in_session_id"] == "op-1"
        for session in ("op-1", "nobody's"):
            told = await machine.told("SessionStart", session)
            assert (told["session_id"], told["is_new"], told["parent_session_id"]) == (session, True, None)
            made = await machine.call("gobby-tasks__create_task", title="another", session_id=session)
            assert made["created_in_session_id"] == session
            found = await machine.call("gobby-tasks__get_session_tasks", session_id=session)
            assert (found["session_id"], [each["task"]["title"] for each in found["tasks"]]) == (session, ["another"])


async def test_the_tasks_of_somebody_elses_session_are_not_found_by_its_id(folder: Path) -> None:
    async with opened(folder) as machine:
        await machine.call("gobby-tasks__create_task", THE_SOCKET, title="a task", session_id="op-1")

        for session in ("op-1", "nobody's"):
            found = await machine.call("gobby-tasks__get_session_tasks", session_id=session)
            assert found == {"session_id": session, "tasks": []}


async def test_a_clone_that_copied_the_projects_id_neither_gets_a_handoff_nor_leaves_one(
    folder: Path, tmp_path: Path
) -> None:
    clone, inside = project(tmp_path / "clone"), project(folder / "vendor" / "clone")
    async with opened(folder) as machine:
        await machine.work("op-1")

        for number, other in enumerate((clone, clone, inside, inside)):
            assert "SECRET" not in await machine.hook("SessionStart", f"elsewhere {number}", other)
            await machine.hook("SessionEnd", f"elsewhere {number}", other, summary="EVIL")
        (folder / "src").mkdir()
        told = await machine.hook("SessionStart", "op-2", folder / "src")
        assert "SECRET prompt" in told and "EVIL" not in told


async def test_the_worktrees_of_one_repository_hand_over_to_each_other(tmp_path: Path) -> None:
    main, worktree = project(tmp_path / "main"), tmp_path / "worktree"
    for command in (
        ["git", "init", "-q", str(main)],
        ["git", "-C", str(main), "add", "."],
        ["git", "-C", str(main), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"],
        ["git", "-C", str(main), "worktree", "add", "-q", str(worktree)],
    ):
        subprocess.run(command, check=True, capture_output=True)
    async with opened(main) as machine:
        await machine.work("op-1")
        assert "SECRET prompt" in await machine.hook("SessionStart", "op-2", worktree)
        await machine.work("op-3", worktree)
        assert "SECRET prompt" in await machine.hook("SessionStart", "op-4", main)


@pytest.mark.parametrize("how", ["gitdir", "gitdir of a worktree", "link", "commondir", "worktree of its own"])
def test_a_folder_does_not_become_a_worktree_of_a_repository_by_its_own_word(tmp_path: Path, how: str) -> None:
    mine, clone = project(tmp_path / "mine"), project(tmp_path / "clone")
    kept = mine / ".git" / "worktrees" / "w"
    kept.mkdir(parents=True)
    (kept / "commondir").write_text("../..\n")
    (kept / "gitdir").write_text(f"{tmp_path / 'w' / '.git'}\n")
    if how == "gitdir":
        (clone / ".git").write_text(f"gitdir: {mine / '.git'}\n")
    elif how == "gitdir of a worktree":
        (clone / ".git").write_text(f"gitdir: {kept}\n")
    elif how == "link":
        (clone / ".git").symlink_to(mine / ".git")
    elif how == "commondir":
        (clone / ".git").mkdir()
        (clone / ".git" / "commondir").write_text(f"{mine / '.git'}\n")
    else:
        (clone / "fake").mkdir()
        (clone / "fake" / "commondir").write_text(f"{mine / '.git'}\n")
        (clone / "fake" / "gitdir").write_text(f"{clone / '.git'}\n")
        (clone / ".git").write_text(f"gitdir: {clone / 'fake'}\n")

    assert place_of(mine) == f"{mine / '.git'}:."
    assert not place_of(clone).startswith(str(mine))
