"""What was fetched for boxes is removed when no server has used it for a month and none that is configured names it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from virtualtime import FakeClock, VirtualTimeLoop

from toolgate import config as configs
from toolgate.config import Config
from toolgate.config.profiles import Split
from toolgate.upstreams.process import kept, packages
from toolgate.upstreams.process.boxes import DAY, PACKAGES, SETTLED, Boxes
from toolgate.upstreams.process.kept import hash_of
from toolgate.upstreams.process.packages import UNUSED, Packages, split_of

pytestmark = pytest.mark.promise("b.lifecycle.packages")

A, B, C = "a" * 16, "b" * 16, "cache-" + "c" * 16


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "packages"
        self.now = 1_800_000_000.0
        supervisor: Any = None
        self.packages = Packages(supervisor, FakeClock(), self.folder)

    def make(self, *names: str, age: float) -> None:
        at = self.now - age
        for name in names:
            (self.folder / name / "bin").mkdir(parents=True)
            os.utime(self.folder / name, (at, at))

    def remove(self, *named: str) -> int:
        return self.packages.remove_unused(named, self.now)

    @property
    def left(self) -> set[str]:
        return {each.name for each in self.folder.iterdir()}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def split(command: str, *args: str) -> Split:
    found = split_of("There", command, args)
    assert found
    return found


def test_what_is_old_goes_and_what_is_used_or_named_stays(stage: Stage) -> None:
    stage.make(A, C, age=UNUSED + DAY)
    stage.make(B, age=UNUSED - DAY)
    assert stage.remove(A) == 1 and stage.left == {A, B}
    assert stage.remove() == 0  # its time begins anew
    assert stage.left == {A, B}


def test_only_what_has_a_name_of_ours_is_removed(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "x").mkdir(parents=True)
    stage.make("notes", "a" * 15, "A" * 16, age=UNUSED * 9)
    (stage.folder / A).symlink_to(tmp_path / "elsewhere")
    os.utime(stage.folder / A, (1, 1), follow_symlinks=False)
    (stage.folder / B).write_text("")
    os.utime(stage.folder / B, (1, 1))
    assert stage.remove() == 0
    assert (tmp_path / "elsewhere" / "x").exists() and len(stage.left) == 5


def test_what_a_killed_gateway_has_begun_to_remove_is_removed_by_the_next(stage: Stage) -> None:
    stage.make(f"removed-{A}", age=0)
    stage.make("run-abcd_123", age=UNUSED + DAY)  # in which a runner was started
    assert stage.remove() == 2 and stage.left == set()


def test_there_may_be_nothing(stage: Stage) -> None:
    assert stage.remove(A) == 0


def test_no_more_than_so_many_are_removed_in_one_go(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "MOST_REMOVED", 2)
    stage.make(A, B, C, age=UNUSED * 2)
    assert [stage.remove() for _ in range(3)] == [2, 1, 0]


def test_the_places_of_a_server_follow_from_its_package_and_from_where_that_comes(stage: Stage) -> None:
    of = stage.packages.places
    plain = of("uvx", split("uvx", "mcp-server-git"), {"TOKEN": "x"})
    assert len(plain) == 1 and all(len(each) == 16 for each in plain)
    assert of("uvx", split("uvx", "mcp-server-time"), {}).isdisjoint(plain)
    elsewhere = of("uvx", split("uvx", "mcp-server-git"), {"UV_INDEX": "other"})
    assert len(elsewhere) == 2 and elsewhere.isdisjoint(plain) and any(each.startswith("cache-") for each in elsewhere)
    assert of("npx", split("npx", "-y", "@scope/name"), {}) == set()  # npm keeps it in a cache of the user's
    assert len(of("npx", split("npx", "-y", "@scope/name"), {"NPM_CONFIG_REGISTRY": "other"})) == 1


async def test_a_file_that_was_compared_goes_a_month_after_the_last_server_that_names_it(tmp_path: Path) -> None:
    supervisor: Any = SimpleNamespace(environ={"XDG_STATE_HOME": str(tmp_path)})
    clock = FakeClock()
    boxes = Boxes(Config(), supervisor, clock)
    folder = tmp_path / "toolgate" / PACKAGES
    hashes = {name: hash_of(name.encode(), "sha512-") for name in ("named", "disabled", "gone")}
    for name, hash in hashes.items():
        kept.keep(folder, hash, f"{name}-1.0.0.tgz", name.encode())
    (folder / "kept" / "notes").mkdir()
    for each in (folder / "kept").iterdir():
        os.utime(each, (1, 1))
    servers = {
        name: {
            "command": "npx",
            "args": ["-y", f"{name}@1.0.0"],
            "package_hash": hashes[name],
            "enabled": name == "named",
        }
        for name in ("named", "disabled")
    }
    text = json.dumps({"mcpServers": servers})
    configured = list(configs.read(text, file="toolgate.json", environ={}, format="json").servers)

    def left() -> set[str]:
        return {each.name for each in (folder / "kept").glob("*/*")}

    work = asyncio.ensure_future(boxes.tidy(lambda: configured))
    await clock.sleep(SETTLED * 2)
    assert left() == {"named-1.0.0.tgz", "disabled-1.0.0.tgz"}
    del configured[1:]
    await clock.sleep(29 * DAY)
    assert left() == {"named-1.0.0.tgz", "disabled-1.0.0.tgz"}
    await clock.sleep(2 * DAY)
    assert left() == {"named-1.0.0.tgz"} and (folder / "kept" / "notes").is_dir()
    work.cancel()
    await asyncio.wait([work])


def test_the_file_that_a_server_was_started_from_stays_though_no_gateway_that_looks_names_it(stage: Stage) -> None:
    hash = hash_of(b"it", "sha512-")
    kept.keep(stage.folder, hash, "pack-1.0.0.tgz", b"it")
    (place,) = (stage.folder / "kept").iterdir()
    os.utime(place, (1, 1))
    stage.now = time.time()
    assert kept.args_of("one", "npx", ("-y", "pack@1.0.0"), hash, stage.folder)
    assert stage.remove() == 0 and place.is_dir()
    os.utime(place, (1, 1))
    assert stage.remove() == 1 and not place.exists()


async def test_a_gateway_that_serves_looks_each_day_by_the_servers_that_are_configured_then(tmp_path: Path) -> None:
    supervisor: Any = SimpleNamespace(environ={"XDG_STATE_HOME": str(tmp_path)})
    clock = FakeClock()
    boxes = Boxes(Config(), supervisor, clock)
    named = packages.Packages(supervisor, clock, tmp_path).places("uvx", split("uvx", "mcp-server-git"), {})
    entry = {"command": "uvx", "args": ["mcp-server-git"], "box": "strict"}
    text = json.dumps({"mcpServers": {"git": entry}})
    configured = list(configs.read(text, file="toolgate.json", environ={}, format="json").servers)
    folder = tmp_path / "toolgate" / PACKAGES
    for each in (*named, A):
        (folder / each).mkdir(parents=True)
        os.utime(folder / each, (1, 1))
    work = asyncio.ensure_future(boxes.tidy(lambda: configured))
    await clock.sleep(SETTLED / 2)
    assert (folder / A).is_dir()  # commands that end at once look at nothing
    await clock.sleep(SETTLED)
    assert {each.name for each in folder.iterdir()} == named
    configured.clear()
    await clock.sleep(29 * DAY)
    assert {each.name for each in folder.iterdir()} == named
    await clock.sleep(2 * DAY)
    assert not list(folder.iterdir())
    work.cancel()
    await asyncio.wait([work])


async def test_packages_are_read_where_nobody_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor: Any = SimpleNamespace(environ={"XDG_STATE_HOME": str(tmp_path)})
    clock = FakeClock()
    boxes = Boxes(Config(), supervisor, clock)
    hash = hash_of(b"it", "sha512-")
    kept.keep(tmp_path / "toolgate" / PACKAGES, hash, "pack-1.0.0.tgz", b"it")
    entry = {"command": "npx", "args": ["-y", "pack@1.0.0"], "package_hash": hash, "box": "strict"}
    text = json.dumps({"mcpServers": {"pack": entry}})
    configured = configs.read(text, file="toolgate.json", environ={}, format="json").servers
    read, args_of = list[bool](), kept.args_of

    def reading(*given: Any) -> Any:
        read.append(VirtualTimeLoop.is_aside)
        return args_of(*given)

    monkeypatch.setattr(kept, "args_of", reading)
    work = asyncio.ensure_future(boxes.tidy(lambda: configured))
    await clock.sleep(SETTLED * 2)
    assert read == [True]
    work.cancel()
    await asyncio.wait([work])
