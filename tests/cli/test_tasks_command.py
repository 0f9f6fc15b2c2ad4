"""`toolgate tasks`, without a running gateway; and the hooks of git in a repository of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from toolgate.cli import app, git_hooks
from toolgate.cli import tasks as cli_tasks
from toolgate.workspace import tasks as rooms

TOOLGATE = str(Path(sys.executable).with_name("toolgate"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (tmp_path / "gitconfig").write_text("[user]\nname = n\nemail = n@example.org\n[init]\ndefaultBranch = main\n")
    folder = tmp_path / "work"
    (folder / ".gobby").mkdir(parents=True)
    (folder / ".gobby" / "project.json").write_text('{"id": "p-1", "name": "one"}')
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [TOOLGATE])
    return folder


def tasks(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["tasks", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def created(title: str, *more: str) -> str:
    result = tasks("create", title, *more)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def told(*arguments: str) -> Any:
    return json.loads(tasks(*arguments, "--json").stdout)


def git(*arguments: str, **more: Any) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def repository(here: Path) -> Path:
    git("init", "-q")
    return here


def test_tasks_are_made_listed_shown_and_closed() -> None:
    first = created("Write the docs", "--priority", "1", "-d", "in\ntwo lines", "--label", "docs")
    second = created("Read them", "--blocks", first)
    assert [task["id"] for task in told("list")["tasks"]] == [second, first]
    assert [task["id"] for task in told("ready")["tasks"]] == [second]
    shown = tasks("show", first).stdout
    assert f"blocked by: {second} Read them" in shown and "  two lines" in shown and "labels: docs" in shown
    assert tasks("close", second).stdout == f"closed {second}\n"
    assert first in tasks("ready").stdout
    missing = tasks("show", "gt-000000")
    assert (missing.exit_code, "Task not found: gt-000000" in missing.output) == (1, True)


def test_what_is_cut_short_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_tasks, "MOST_SHOWN", 1)
    monkeypatch.setattr(cli_tasks, "MOST_IN_GRAPH", 1)
    assert tasks("board", "--once").stdout == "no tasks\n"
    created("one")
    assert "Ready (1)\n" in tasks("board").stdout and "more" not in tasks("tree").stdout
    created("two")
    assert "Ready (1+)\n" in tasks("board").stdout
    assert tasks("tree").stdout.endswith("(there are more; those below one: toolgate tasks list --parent ID)\n")
    for command, filter in (("ready", "--type"), ("list", "--title")):
        last = tasks(command, "--limit", "1").stdout.splitlines()[-1]
        assert last.startswith("(there are more: raise --limit, or filter by --") and filter in last
        assert set(re.findall(r"--[a-z]+", last)) <= set(re.findall(r"--[a-z]+", tasks(command, "--help").stdout))


def test_a_list_that_an_answer_has_no_room_for_says_how_to_see_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A higher limit would not help."""
    for title in ("one", "two", "three"):
        created(title)
    monkeypatch.setattr(rooms, "MOST_BYTES", 300)  # one task
    last = tasks("list", "--limit", "10000").stdout.splitlines()[-1]
    assert "raise --limit" not in last and "no room" in last and "--title" in last
    assert "toolgate tasks sync" in last, "which writes all of them"
    assert "--parent" not in tasks("ready", "--limit", "10000").stdout, "it has no such option"


def test_they_stand_in_the_file_when_the_command_has_ended(here: Path) -> None:
    id = created("Write")
    [line] = (here / ".gobby" / "tasks.jsonl").read_text().splitlines()
    assert json.loads(line)["id"] == id
    assert "is up to date" in tasks("sync").stdout
    assert told("sync", "--direction", "import")["import"]["unchanged"] == 1


@pytest.mark.parametrize("command", [("list",), ("ready",), ("board", "--once"), ("graph",), ("show", "gt-00000a")])
def test_the_first_command_in_a_fresh_clone_shows_the_tasks_of_its_file(here: Path, command: tuple[str, ...]) -> None:
    line = {"id": "gt-00000a", "title": "Write", "created_at": "2026-11-24T08:30:00Z"}
    (here / ".gobby" / "tasks.jsonl").write_text(json.dumps(line) + "\n")
    shown = tasks(*command)
    assert (shown.exit_code, "Write" in shown.stdout) == (0, True), shown.output


def test_a_command_in_a_folder_below_is_in_the_same_project(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    id = created("Write")
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    assert [task["id"] for task in told("list")["tasks"]] == [id]


def test_the_board_the_tree_and_the_graphs_say_what_blocks_what() -> None:
    first = created('Say "x" <b>')
    second = created("Then\x1b[31m this", "--blocks", first, "--parent", first)
    for board in (tasks("board"), tasks("board", "--once")):
        assert f"Ready (1)\n  {second}  P2  " in board.stdout
        assert f"Blocked (1)\n  {first}" in board.stdout and f"    waits for {second}" in board.stdout
        assert "\x1b" not in board.stdout
    assert f"waits for:\n  {second}" in tasks("tree", first).stdout
    assert f"is waited for by:\n  {first}" in tasks("tree", second).stdout
    assert f"{first} Say" in tasks("tree").stdout and f"\n  {second}" in tasks("tree").stdout
    mermaid = tasks("graph").stdout
    assert mermaid.startswith("graph TD\n") and "  t1 --> t2\n" in mermaid and "#quot;x#quot; #lt;b#gt;" in mermaid
    dot = tasks("graph", "--format", "dot").stdout
    assert f'"{second}" -> "{first}";' in dot and '\\"x\\"' in dot
    assert tasks("graph", "--format", "svg").exit_code == 2


# Hooks.


def test_a_commit_has_the_tasks_as_they_are(repository: Path) -> None:
    created("one")
    assert tasks("hooks", "install").stdout.count("installed ") == 4
    git("add", ".gobby/tasks.jsonl")
    git("commit", "-qm", "one")
    (repository / ".gobby" / "tasks.jsonl").write_text("")  # what is written there now is exported again
    id = created("two")
    git("commit", "--allow-empty", "-qm", "two")
    assert id in git("show", "HEAD:.gobby/tasks.jsonl")


def test_a_file_that_git_does_not_know_stays_out_of_commits(repository: Path) -> None:
    created("one")
    tasks("hooks", "install")
    git("commit", "--allow-empty", "-qm", "one")
    assert git("ls-tree", "-r", "HEAD") == ""


def test_after_a_merge_the_tasks_of_others_are_here(repository: Path, tmp_path: Path, monkeypatch: Any) -> None:
    created("one")
    git("add", ".")
    git("commit", "-qm", "one")
    other = tmp_path / "other"
    git("clone", "-q", str(repository), str(other))
    monkeypatch.chdir(other)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state of another machine"))
    tasks("hooks", "install")
    tasks("sync")
    monkeypatch.chdir(repository)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    two = created("two")
    git("commit", "-qam", "two")
    monkeypatch.chdir(other)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state of another machine"))
    git("pull", "-q")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state of another machine"))
    (other / ".gobby" / "tasks.jsonl").unlink()
    assert two in [task["id"] for task in told("list")["tasks"]]


def test_a_hook_of_another_is_left_alone_and_told_how_to_call_ours(repository: Path) -> None:
    theirs = repository / ".git" / "hooks" / "pre-commit"
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("#!/bin/sh\nexit 0\n")
    result = tasks("hooks", "install")
    assert result.exit_code == 1
    assert "toolgate tasks sync --hook pre-commit </dev/null || :" in result.stdout
    assert theirs.read_text() == "#!/bin/sh\nexit 0\n"
    assert tasks("hooks", "remove").stdout.count("removed ") == 3
    assert theirs.exists() and tasks("hooks", "remove").stdout == "no hooks of toolgate are installed here\n"


def test_hooks_go_where_git_looks_for_them(repository: Path, tmp_path: Path) -> None:
    git("config", "core.hooksPath", str(tmp_path / "hooks"))
    tasks("hooks", "install", "--yes")
    assert sorted(each.name for each in (tmp_path / "hooks").iterdir()) == sorted(git_hooks.HOOKS)
    assert not (repository / ".git" / "hooks" / "pre-commit").exists()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_repositorys_settings_put_no_lines_of_their_own_into_what_is_said(repository: Path, is_there: bool) -> None:
    folder = repository / "x\ninstalled y"
    git("config", "core.hooksPath", str(folder))
    if is_there:
        folder.mkdir()
        for name in ("pre-commit", "post-merge", "post-checkout", "post-rewrite"):
            (folder / name).write_text("#!/bin/sh\n")
    said = tasks("hooks", "install").output
    assert "\\u{a}installed y" in said.replace("\n", "") and "\ninstalled y" not in said


def test_what_is_asked_of_a_link_names_where_it_leads(repository: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    hooks = repository / ".git" / "hooks"
    shutil.rmtree(hooks, ignore_errors=True)
    hooks.symlink_to(target)
    said = tasks("hooks", "install").output
    assert str(target) in said.replace("\n", "") and not list(target.iterdir())


@pytest.mark.parametrize("way", ["core.hooksPath", "core.worktree", "a link", "another repository", "a false worktree"])
def test_hooks_of_an_unpacked_folder_are_not_written_outside_of_it_unasked(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Its `.git` came with it, and names a place of the user's."""
    others = tmp_path / "others"
    others.mkdir()
    target = others / "hooks"
    if way.startswith("core."):
        git("config", "core.hooksPath", str(target))
    if way == "core.worktree":
        git("config", "core.worktree", str(tmp_path))
    elif way == "a link":
        shutil.rmtree(repository / ".git" / "hooks", ignore_errors=True)
        target.mkdir()
        (repository / ".git" / "hooks").symlink_to(target)
    elif not way.startswith("core."):
        shutil.move(repository / ".git", others / ".git")
        target = others / ".git" / "hooks"
        own = repository / "own"
        if way == "a false worktree":
            own.mkdir()
            (own / "HEAD").write_text("ref: refs/heads/x\n")
            (own / "commondir").write_text(f"{others / '.git'}\n")
            (own / "gitdir").write_text(f"{repository / '.git'}\n")
        (repository / ".git").write_text(f"gitdir: {own if own.exists() else others / '.git'}\n")
    before = sorted(target.iterdir()) if target.exists() else None
    result = tasks("hooks", "install")
    assert result.exit_code == 1 and "is not in it: nothing was written" in result.output.replace("\n", " ")
    assert (sorted(target.iterdir()) if target.exists() else None) == before
    monkeypatch.setattr("toolgate.cli.printing.can_ask", lambda: True)
    assert CliRunner().invoke(app, ["tasks", "hooks", "install"], input="\n").exit_code == 1
    assert CliRunner().invoke(app, ["tasks", "hooks", "install"], input="y\n").exit_code == 0
    assert {each.name for each in target.iterdir()} >= set(git_hooks.HOOKS)


def test_hooks_work_in_a_worktree_and_where_the_project_lies_deeper(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    monkeypatch.chdir(here)
    created("one")
    tasks("hooks", "install")
    git("add", ".gobby")
    git("commit", "-qm", "one")
    git("worktree", "add", "-q", str(tmp_path / "tree"))
    monkeypatch.chdir(tmp_path / "tree" / "work")
    id = created("two")
    git("commit", "--allow-empty", "-qm", "two")
    assert id in git("show", "HEAD:work/.gobby/tasks.jsonl")


def test_a_commit_is_made_whatever_becomes_of_the_tasks(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created("one")
    tasks("hooks", "install")
    git("add", ".gobby")
    (repository / ".gobby" / "tasks.jsonl").write_text("<<<<<<< ours\n")
    done = subprocess.run(["git", "commit", "-qm", "one"], capture_output=True, text=True)
    assert (done.returncode, "line 1: git conflict marker" in done.stderr) == (0, True)
    monkeypatch.setattr(cli_tasks, "HOOK_TIME", 0.0)
    late = tasks("sync", "--hook", "pre-commit")
    assert (late.exit_code, "were not synced: that took longer than 0 s" in late.stderr) == (0, True)
    (repository / "toolgate.json").write_text("{")
    git("commit", "--allow-empty", "-qm", "two")
    (repository / "toolgate.json").unlink()
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.write_text(hook.read_text().replace(TOOLGATE, "/nowhere/toolgate"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    git("commit", "--allow-empty", "-qm", "three")


def test_without_a_project_or_a_checkout_it_says_so(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "not in a git checkout" in tasks("hooks", "install").output
    monkeypatch.chdir(tmp_path)
    assert "no project here" in tasks("hooks", "install").output
    failed = tasks("sync")
    assert (failed.exit_code, "in no project" in failed.output) == (1, True)
    assert tasks("hooks", "uninstall").exit_code == 2
