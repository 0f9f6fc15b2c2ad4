"""What another user of the machine can write, or has planted, is not used as ours."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.test_cli import CLOCK, here, toolgate
from virtualtime import FakeClock

from toolgate.config import Config, edits, ownership
from toolgate.core.clock import SystemClock
from toolgate.core.redaction import Redactor
from toolgate.state import audit
from toolgate.state.audit import Trail
from toolgate.state.opening import Unusable
from toolgate.state.sqlite import FILE, SqliteStore

__all__ = ["here"]

NOBODY = 65534


def given_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it belong to another user than the one that runs toolgate."""
    if os.geteuid() == 0:
        os.lchown(path, NOBODY, NOBODY)
    else:
        real = os.lstat

        def lstat(asked: object) -> os.stat_result:
            found = real(asked)  # type: ignore[arg-type]
            return os.stat_result((*found[:4], NOBODY, *found[5:])) if Path(str(asked)) == path else found

        monkeypatch.setattr(ownership.os, "lstat", lstat)


Plant = Callable[[Path, pytest.MonkeyPatch], None]


def writable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.chmod(0o777)


def writable_by_its_group(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.chmod(0o770)


def writable_with_a_sticky_bit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.chmod(0o1777)


PLANTS = [given_away, writable, writable_by_its_group, writable_with_a_sticky_bit]


def configured(here: Path) -> Path:
    (here / "toolgate.json").write_text(json.dumps({"mcpServers": {"clock": CLOCK}, "state": "state"}))
    (here / "state").mkdir(mode=0o700)
    return here / "state"


@pytest.mark.promise("b.attacks.state")
@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("command", [("list",), ("keys", "list"), ("approvals", "list"), ("serve",), ("stdio",)])
def test_a_state_folder_that_others_may_write_to_or_own_is_refused(
    here: Path, plant: Plant, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = configured(here)
    plant(state, monkeypatch)
    ended = toolgate(*command)
    assert ended.code == 2 and str(state) in ended.err
    assert "another user" in ended.err or "chmod go-w" in ended.err
    assert not list(state.iterdir()), "something was written there"


@pytest.mark.promise("b.attacks.state")
@pytest.mark.parametrize("plant", PLANTS[:3])
def test_servers_that_another_user_has_planted_are_not_run(
    here: Path, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(here)
    file = edits.own_file(Config(source=str(here / "toolgate.json"), state="state"), os.environ)
    file.write_text(json.dumps({"mcpServers": {"evil": {"command": "touch", "args": [str(here / "ran")]}}}))
    file.chmod(0o600)
    toolgate("list")
    (here / "ran").unlink()  # as long as the file is ours, it is run
    plant(file, monkeypatch)
    ended = toolgate("list")
    assert ended.code == 2 and str(file) in ended.err and not (here / "ran").exists()


def test_a_link_in_place_of_the_servers_that_were_added_is_not_followed(here: Path) -> None:
    configured(here)
    (here / "elsewhere.json").write_text(json.dumps({"mcpServers": {"evil": {"command": "true"}}}))
    file = edits.own_file(Config(source=str(here / "toolgate.json"), state="state"), os.environ)
    file.symlink_to(here / "elsewhere.json")
    ended = toolgate("list")
    assert ended.code == 2 and "is a symbolic link" in ended.err


async def made(folder: Path) -> None:
    store = SqliteStore(folder, SystemClock())
    await store.put("keys", "planted", b"administrator")
    await store.close()


@pytest.mark.parametrize("end", ["", "-wal", "-shm", ".lock"])
@pytest.mark.parametrize("plant", [given_away, writable, writable_by_its_group])
def test_a_database_with_an_administrators_key_of_somebody_else_is_not_opened(
    tmp_path: Path, plant: Plant, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(made(tmp_path))
    file = tmp_path / f"{FILE}{end}"
    file.touch(0o600)
    plant(file, monkeypatch)
    with pytest.raises(Unusable, match=r"another user|chmod go-w"):
        asyncio.run(made(tmp_path))


def test_a_database_that_is_a_link_is_not_opened(tmp_path: Path) -> None:
    asyncio.run(made(tmp_path / "theirs"))
    (tmp_path / "ours").mkdir(mode=0o700)
    (tmp_path / "ours" / FILE).symlink_to(tmp_path / "theirs" / FILE)
    with pytest.raises(Unusable, match="is a symbolic link"):
        asyncio.run(made(tmp_path / "ours"))


async def problem_of(file: Path) -> str:
    there = Trail(file, FakeClock(), None, Redactor())
    there.note("one")
    await there.close()
    return there.problem


@pytest.mark.promise("b.attacks.state")
async def test_a_link_that_was_planted_as_the_audit_is_not_followed_and_its_target_keeps_its_mode(
    tmp_path: Path,
) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    target.chmod(0o644)
    (tmp_path / "audit.jsonl").symlink_to(target)
    assert await problem_of(tmp_path / "audit.jsonl")
    assert target.read_text() == "mine" and stat.S_IMODE(target.stat().st_mode) == 0o644


async def test_a_second_name_for_another_file_is_not_written_as_the_audit(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    target.chmod(0o644)
    os.link(target, tmp_path / "audit.jsonl")
    assert "another hard link" in await problem_of(tmp_path / "audit.jsonl")
    assert target.read_text() == "mine" and stat.S_IMODE(target.stat().st_mode) == 0o644


async def test_a_link_that_leads_nowhere_makes_no_file_there(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "target")
    assert await problem_of(tmp_path / "audit.jsonl")
    assert not (tmp_path / "target").exists()


async def test_an_audit_that_others_can_write_proves_nothing_and_is_not_gone_on_with(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.touch()
    file.chmod(0o666)
    assert "chmod go-w" in await problem_of(file)
    assert file.read_bytes() == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_an_audit_of_another_user_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.touch(0o600)
    os.chown(file, NOBODY, NOBODY)
    assert "another user" in await problem_of(file)


async def test_an_audit_that_is_rotated_goes_on(tmp_path: Path) -> None:
    """A rotation gives it a second name for a moment."""
    chain = audit.Chain(tmp_path / "audit.jsonl")
    other = audit.Chain(tmp_path / "audit.jsonl")
    chain.append([b'{"time":"t","event":"one"}'])
    other.rotate(tmp_path / "audit-1.jsonl", b'{"time":"t","event":"audit.rotated"}')
    chain.append([b'{"time":"t","event":"two"}'])
    chain.close()
    other.close()
    assert not audit.verify([tmp_path / "audit-1.jsonl", tmp_path / "audit.jsonl"]).wrong


@pytest.mark.parametrize("which", ["file", "folder"])
@pytest.mark.parametrize("plant", [given_away, writable_by_its_group])
def test_a_configuration_that_others_can_change_is_warned_of(
    here: Path, plant: Plant, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(here)
    if os.geteuid() and plant is given_away:
        pytest.skip("only root can give files away")
    path = here / "toolgate.json" if which == "file" else here
    plant(path, monkeypatch)
    ended = toolgate("config", "check")
    assert f"{path} " in (said := ended.out + ended.err) and "can run commands as this user" in said
