"""The author of a package, or of what it depends on, has code of theirs run, files read or addresses asked while `npx`
or `uvx` fetches it for a box. With the real runners, where they are, and registries on loopback."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes.ground import failure, gateway, real, settings
from registry_double import Registry, listening, npm_package, wheel

from toolgate.upstreams.process import confinement, packages

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]
needs_npm = pytest.mark.skipif(not (shutil.which("npx") and shutil.which("git")), reason="there is no npx here")
needs_uv = pytest.mark.skipif(not (shutil.which("uvx") and shutil.which("uv")), reason="there is no uvx here")


async def called(registry: Registry, folder: Path, runner: str, *args: str) -> Any:
    """The answer of the server that is started so, twice: a second start finds what the first one left."""
    env = {
        "npm_config_registry": f"{registry.url}/npm/",
        "npm_config_cache": str(folder / "npm"),
        "UV_DEFAULT_INDEX": f"{registry.url}/simple/",
        "UV_CACHE_DIR": str(folder / "uv"),
        "UV_PYTHON_DOWNLOADS": "never",
    }
    entry = {"command": runner, "args": args, "env": env, "box": "strict", "start_timeout": "60s"}
    for _ in range(2):
        async with gateway(settings(one=entry)) as served:
            answer = await served.client().call("one__note")
    return answer


def repository(folder: Path, **files: str) -> str:
    folder.mkdir()
    who = ["-c", "user.name=a", "-c", "user.email=a@a"]
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for command in (["init", "-q", "-b", "main"], ["add", "-A", "-f"], [*who, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True, timeout=30)
    return f"git+file://{folder}"


def with_dependency(registry: Registry, **needs: str) -> None:
    packed = npm_package("evil", "1.0.0", dependencies=needs)
    registry.add_npm("evil", "1.0.0", packed=packed, dependencies=needs)


@needs_npm
@pytest.mark.parametrize("knows_all", [True, False], ids=["npm-11.10", "older-npm"])
def test_a_dependency_that_is_a_repository_runs_nothing_by_its_settings_of_npm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows_all: bool
) -> None:
    if not knows_all:
        older = {name: value for name, value in packages._OF_NPM.items() if "_allow_" not in name}
        monkeypatch.setattr(packages, "_OF_NPM", older)

    @real
    async def look() -> None:
        marker, inner = tmp_path / "ESCAPED", repository(tmp_path / "inner", **{"package.json": '{"name":"inner"}'})
        about = {"name": "outer", "version": "1.0.0", "scripts": {"prepare": "true"}, "dependencies": {"inner": inner}}
        files = {
            "package.json": json.dumps(about),
            ".npmrc": "git=./run.sh\nignore-scripts=false\nallow-git=all\n",
            "run.sh": f'#!/bin/sh\nid > {marker}\nexec /usr/bin/git "$@"\n',
        }
        outer = await asyncio.to_thread(lambda: repository(tmp_path / "outer", **files))
        async with listening(Registry()) as registry:
            with_dependency(registry, outer=outer)
            error = await failure(called(registry, tmp_path, "npx", "-y", "evil"))
        assert "could not be fetched for its box" in str(error.message)
        assert not marker.exists()

    look()


@needs_npm
@pytest.mark.parametrize("what", ["file", "folder", "address"])
def test_a_dependency_is_no_file_of_the_user_and_no_address_of_this_machine(tmp_path: Path, what: str) -> None:
    @real
    async def look() -> None:
        async with listening(Registry()) as registry, listening(Registry()) as inner:
            (tmp_path / "private.tgz").write_bytes(npm_package("a", "1.0.0"))
            (tmp_path / "folder").mkdir()
            (tmp_path / "folder" / "package.json").write_text('{"name": "a", "version": "1.0.0"}')
            needs = {"file": f"file:{tmp_path}/private.tgz", "folder": f"file:{tmp_path}/folder"}
            with_dependency(registry, a=needs.get(what, f"{inner.url}/admin/secret.tgz"))
            error = await failure(called(registry, tmp_path, "npx", "-y", "evil"))
            assert "could not be fetched for its box" in str(error.message)
            assert not inner.asked

    look()


@needs_npm
def test_a_package_whose_dependencies_a_registry_has_is_started_as_ever(tmp_path: Path) -> None:
    @real
    async def look() -> None:
        async with listening(Registry()) as registry:
            registry.add_npm("fine", "1.0.0")
            with_dependency(registry, fine="1")
            assert await called(registry, tmp_path, "npx", "-y", "evil@1.0.0") == "noted by node"

    look()


RUNS = "import os; open({marker!r}, 'a').write('ran')\n"


@needs_uv
@pytest.mark.parametrize(
    "place",
    [
        "aaa.pth",
        "sitecustomize.py",
        "usercustomize.py",
        "evil-1.0.0.data/scripts/sh",
        "evil-1.0.0.data/data/bin/uv",
        "evil-1.0.0.data/purelib/zzz.pth",
    ],
)
def test_what_a_wheel_has_for_python_to_load_runs_in_the_box_alone(tmp_path: Path, place: str) -> None:
    @real
    async def look() -> None:
        marker = tmp_path / "ESCAPED"
        text = RUNS.format(marker=str(marker))
        more = {place: f"#!/bin/sh\ntouch {marker}\n" if "/" in place and "lib" not in place else text}
        async with listening(Registry()) as registry:
            registry.add_pypi("evil", "1.0.0", packed=wheel("evil", "1.0.0", **more))
            ways = [["evil"], ["evil@latest"], ["--with", "evil==1.0.0", "--from", "evil@1.0.0", "evil"]]
            for args in ways if place == "aaa.pth" else ways[:1]:
                said = await called(registry, tmp_path, "uvx", *args)
                assert said == "noted by python" and not marker.exists()

    look()


@needs_uv
@pytest.mark.parametrize(
    "needs", ["a @ file://{folder}/a-1.0.0-py3-none-any.whl", "a @ {inner}/a-1.0.0-py3-none-any.whl"]
)
def test_a_wheel_needs_no_file_of_the_user_and_no_address_of_this_machine(tmp_path: Path, needs: str) -> None:
    @real
    async def look() -> None:
        (tmp_path / "a-1.0.0-py3-none-any.whl").write_bytes(wheel("a", "1.0.0"))
        async with listening(Registry()) as registry, listening(Registry()) as inner:
            wanted = needs.format(folder=tmp_path, inner=inner.url)
            registry.add_pypi("evil", "1.0.0", packed=wheel("evil", "1.0.0", needs=wanted))
            error = await failure(called(registry, tmp_path, "uvx", "evil"))
            assert "could not be fetched for its box" in str(error.message)
            assert not inner.asked

    look()
