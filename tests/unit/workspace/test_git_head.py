"""The commit that a checkout is at is read from git's own files, wherever git has put them, and nothing else is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from toolgate.workspace import git_head

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    put(tmp_path / ".git" / "HEAD", "ref: refs/heads/main\n")
    put(tmp_path / ".git" / "refs" / "heads" / "main", COMMIT + "\n")
    return tmp_path


def test_of_a_branch(checkout: Path) -> None:
    assert git_head.commit_of(checkout) == COMMIT


def test_of_a_folder_below(checkout: Path) -> None:
    assert git_head.commit_of(checkout / "src" / "deep") == COMMIT


def test_of_no_branch_at_all(checkout: Path) -> None:
    put(checkout / ".git" / "HEAD", OTHER)
    assert git_head.commit_of(checkout) == OTHER
    put(checkout / ".git" / "HEAD", "a" * 64)
    assert git_head.commit_of(checkout) == "a" * 64


def test_of_a_branch_that_is_packed(checkout: Path) -> None:
    (checkout / ".git" / "refs" / "heads" / "main").unlink()
    lines = ["# pack-refs with: peeled fully-peeled sorted", f"{OTHER} refs/heads/xmain", f"{COMMIT} refs/heads/main"]
    put(checkout / ".git" / "packed-refs", "\n".join([*lines, f"^{OTHER}", ""]))
    assert git_head.commit_of(checkout) == COMMIT


def test_of_a_worktree(checkout: Path) -> None:
    kept = checkout / ".git" / "worktrees" / "w"
    put(kept / "HEAD", "ref: refs/heads/topic\n")
    put(kept / "commondir", "../..\n")
    put(checkout / ".git" / "refs" / "heads" / "topic", OTHER)
    put(checkout / "w" / ".git", f"gitdir: {kept}\n")
    assert git_head.commit_of(checkout / "w") == OTHER
    put(checkout / "w" / ".git", "gitdir: ../.git/worktrees/w")
    assert git_head.commit_of(checkout / "w" / "src") == OTHER


def test_of_a_branch_that_has_no_commit_yet(checkout: Path) -> None:
    put(checkout / ".git" / "HEAD", "ref: refs/heads/new")
    assert git_head.commit_of(checkout) is None


def test_of_no_checkout(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()  # or the one that the test itself lies in would be found
    assert git_head.commit_of(tmp_path) is None
    assert git_head.commit_of(Path("/nowhere/at/all")) is None


@pytest.mark.parametrize(
    "head",
    [
        "",
        "ref: refs/heads/../../../secret",
        "ref: ../secret",
        "ref: /etc/hostname",
        "ref: refs/heads/.invalid",
        "ref: refs/heads/a b",
        "ref: refs/heads/x\0y",
        "ref: " + "x" * 5000,
        "z" * 40,
        COMMIT + "0",
        "ref: refs/heads/loop",
        "\ud83d".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
def test_what_is_no_commit_is_none(checkout: Path, head: str) -> None:
    put(checkout / "secret", COMMIT)
    put(checkout / ".git" / "refs" / "heads" / "loop", "ref: refs/heads/loop")
    put(checkout / ".git" / "HEAD", head)
    assert git_head.commit_of(checkout) is None


def test_what_is_no_file_is_not_opened(checkout: Path) -> None:
    (checkout / ".git" / "HEAD").unlink()
    os.mkfifo(checkout / ".git" / "HEAD")
    assert git_head.commit_of(checkout) is None


def test_a_file_that_is_too_long_is_not_read_to_its_end(checkout: Path) -> None:
    with open(checkout / ".git" / "packed-refs", "wb") as file:
        file.truncate(git_head.LONGEST_PACKED + 1)
    (checkout / ".git" / "refs" / "heads" / "main").unlink()
    assert git_head.commit_of(checkout) is None


def test_git_itself_says_the_same(tmp_path: Path) -> None:
    alone = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}

    def git(*words: str, at: Path = tmp_path) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        done = subprocess.run(["git", *who, *words], cwd=at, env=alone, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    for number in range(2):
        git("commit", "-q", "--allow-empty", "-m", f"{number}")
        assert git_head.commit_of(tmp_path) == git("rev-parse", "HEAD")
    git("pack-refs", "--all")
    assert git_head.commit_of(tmp_path) == git("rev-parse", "HEAD")
    git("worktree", "add", "-q", "-b", "topic", "beside", "HEAD~1")
    assert git_head.commit_of(tmp_path / "beside") == git("rev-parse", "HEAD~1")
    git("checkout", "-q", "--detach", "HEAD~1")
    assert git_head.commit_of(tmp_path) == git("rev-parse", "topic")
