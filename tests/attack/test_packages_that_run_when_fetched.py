"""The author of a package, or of what it depends on, has code of theirs run, files read or addresses asked while `npx`
or `uvx` fetches it for a box. With the real runners, where they are, and registries on loopback."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import registry_double
from processes.ground import Failed, failure, gateway, real, settings
from registry_double import SERVER_JS, SERVER_PY, Registry, listening, npm_package, wheel

from toolgate.app import running
from toolgate.core.fault import Fault
from toolgate.provision.entries import Package
from toolgate.provision.packages import Unknown
from toolgate.upstreams.process import confinement, packages

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]
needs_npm = pytest.mark.skipif(not (shutil.which("npx") and shutil.which("git")), reason="there is no npx here")
needs_uv = pytest.mark.skipif(not (shutil.which("uvx") and shutil.which("uv")), reason="there is no uvx here")


def entry_of(registry: Registry, runner: str, *args: str, **more: str) -> dict[str, Any]:
    env = {
        "npm_config_registry": f"{registry.url}/npm/",
        "UV_DEFAULT_INDEX": f"{registry.url}/simple/",
        "UV_PYTHON_DOWNLOADS": "never",
        **more,
    }
    return {"command": runner, "args": args, "env": env, "box": "strict", "start_timeout": "60s"}


async def called(registry: Registry, runner: str, *args: str, **more: str) -> Any:
    """The answer of the server that is started so, twice: a second start finds what the first one left."""
    entry, answer = entry_of(registry, runner, *args, **more), None
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
            error = await failure(called(registry, "npx", "-y", "evil"))
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
            error = await failure(called(registry, "npx", "-y", "evil"))
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
            assert await called(registry, "npx", "-y", "evil@1.0.0") == "noted by node"

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
                said = await called(registry, "uvx", *args)
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
            error = await failure(called(registry, "uvx", "evil"))
            assert "could not be fetched for its box" in str(error.message)
            assert not inner.asked

    look()


# What a server's configuration names, beside its package.

EVIL = "#!/bin/sh\ntouch {marker}\n"


def evil(folder: Path, *names: str) -> Path:
    """A folder with programs of these names."""
    place = folder / "clone"
    place.mkdir()
    for name in names:
        (place / name).write_text(EVIL.format(marker=folder / "ESCAPED"))
        (place / name).chmod(0o755)
    return place


@pytest.mark.parametrize("runner", ["npx", "uvx"])
def test_a_program_that_has_the_name_of_a_runner_is_not_started_outside_the_box(runner: str, tmp_path: Path) -> None:
    @real
    async def look() -> None:
        command = str(evil(tmp_path, "npx", "uvx", "uv") / runner)
        async with gateway(settings(one={"command": command, "args": ["pack"], "box": "strict"})) as served:
            error = await failure(served.client().call("one__note"))
        assert f"is not the {runner} that is found in PATH" in str(error.message)
        assert not (tmp_path / "ESCAPED").exists()

    look()


@needs_uv
@pytest.mark.parametrize(
    "name", ["PATH", "UV_PYTHON", "UV_PYTHON_INSTALL_DIR", "HOME", "XDG_CONFIG_HOME", "UV_CONFIG_FILE"]
)
def test_variables_of_a_server_name_nothing_that_uv_runs(name: str, tmp_path: Path) -> None:
    @real
    async def look() -> None:
        clone = evil(tmp_path, "uv", "uvx", "python", "python3", "python3.11", "sh")
        value = str(clone / "python3") if name == "UV_PYTHON" else str(clone)
        (clone / ".config" / "uv").mkdir(parents=True)
        for place in (clone / "uv.toml", clone / ".config" / "uv" / "uv.toml"):
            place.write_text(f'cache-dir = "{clone}/cache"\n')
        async with listening(Registry()) as registry:
            registry.add_pypi("fine", "1.0.0")
            value = str(clone / "uv.toml") if name == "UV_CONFIG_FILE" else value
            async with gateway(settings(one=entry_of(registry, "uvx", "fine", **{name: value}))) as served:
                try:
                    await served.client().call("one__note")
                except Failed:
                    pass  # a program in the box finds no Python by such a PATH
        assert not (clone / "cache").exists()
        assert not (tmp_path / "ESCAPED").exists()

    look()


@needs_npm
@pytest.mark.parametrize("name", ["HOME", "npm_config_userconfig", "npm_config_prefix", "npm_config_globalconfig"])
def test_variables_of_a_server_name_no_settings_of_npm(name: str, tmp_path: Path) -> None:
    @real
    async def look() -> None:
        clone = evil(tmp_path, "git", "sh")
        settings_of_npm = f"cache={clone}/cache\nscript-shell={clone}/sh\ngit={clone}/git\n"
        for place in (".npmrc", "etc/npmrc"):
            (clone / place).parent.mkdir(exist_ok=True)
            (clone / place).write_text(settings_of_npm)
        value = str(clone / ".npmrc") if name.endswith("config") else str(clone)
        async with listening(Registry()) as registry:
            registry.add_npm("fine", "1.0.0")
            assert await called(registry, "npx", "-y", "fine", **{name: value}) == "noted by node"
        assert not (clone / "cache").exists() and not (tmp_path / "ESCAPED").exists()

    look()


@pytest.mark.parametrize("way", ["option", "variable", "proxy"])
@pytest.mark.parametrize("runner", [pytest.param("npx", marks=needs_npm), pytest.param("uvx", marks=needs_uv)])
def test_a_server_that_names_a_registry_changes_no_package_of_others(runner: str, way: str, tmp_path: Path) -> None:
    @real
    async def look() -> None:
        async with listening(Registry()) as good, listening(Registry()) as other:
            for registry, said in ((good, "noted"), (other, "EVIL")):
                js, py = (
                    npm_package("pack", "1.0.0"),
                    wheel("pack", "1.0.0", "", **{"pack.py": SERVER_PY.replace("noted", said)}),
                )
                if registry is other:
                    js = npm_package("pack", "1.0.0", index=SERVER_JS.replace("noted", said))
                registry.add_npm("pack", "1.0.0", packed=js)
                registry.add_pypi("pack", "1.0.0", packed=py)
            entries = [entry_of(each, runner, "pack@1.0.0") for each in (other, good)]
            if way == "option":
                option = (
                    ("--registry", f"{other.url}/npm/") if runner == "npx" else ("--index-url", f"{other.url}/simple/")
                )
                entries[0] |= {"args": [*option, "pack@1.0.0"], "env": {"UV_PYTHON_DOWNLOADS": "never"}}
            if way == "proxy":
                entries[0]["env"] |= {**entries[1]["env"], "http_proxy": other.url, "no_proxy": "-"}
            async with gateway(settings(a=entries[0], b=entries[1])) as served:
                client = served.client()
                assert str(await client.call("a__note")).startswith("EVIL")
                assert str(await client.call("b__note")).startswith("noted")
                home = Path(served.app._given.environ["HOME"])
                assert not (home / ".npm" / "_npx").exists() and not (home / ".cache" / "uv").exists()

    look()


@needs_uv
@pytest.mark.parametrize("option", ["--python", "-p"])
def test_no_python_that_is_named_by_a_path_is_started_outside_the_box(option: str, tmp_path: Path) -> None:
    @real
    async def look() -> None:
        python = str(evil(tmp_path, "python3") / "python3")
        async with listening(Registry()) as registry:
            registry.add_pypi("fine", "1.0.0")
            error = await failure(called(registry, "uvx", option, python, "fine"))
        assert "its Python is named by a path" in str(error.message)
        assert not (tmp_path / "ESCAPED").exists()

    look()


def only_as_source(registry: Registry, marker: Path, *others: str) -> None:
    """A package that runs code of its own while it is built; and wheels of it, by name."""
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "evil"\nbackend-path = ["."]\n',
        "evil.py": RUNS.format(marker=str(marker)),
        "PKG-INFO": "Metadata-Version: 2.1\nName: evil\nVersion: 1.0.0\n",
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for path, text in files.items():
            info = tarfile.TarInfo(f"evil-1.0.0/{path}")
            info.size = len(text.encode())
            packed.addfile(info, io.BytesIO(text.encode()))
    registry.add_pypi("evil", "1.0.0", packed=buffer.getvalue(), filename="evil-1.0.0.tar.gz")
    listed = json.loads(registry.packages["/simple/evil/"])
    for name in others:
        hashes = {"sha256": hashlib.sha256(b"a wheel").hexdigest()}
        listed["files"].append({**listed["files"][0], "filename": name, "url": f"/files/{name}", "hashes": hashes})
    registry.packages["/simple/evil/"] = json.dumps(listed).encode()


SOURCE = Package("pypi", "evil", "1.0.0")


@needs_uv
def test_a_package_without_a_wheel_for_this_machine_is_not_built_to_be_compared(tmp_path: Path) -> None:
    @real
    async def look() -> None:
        marker = tmp_path / "ESCAPED"
        async with listening(Registry()) as registry:
            only_as_source(registry, marker, "evil-1.0.0-cp311-cp311-win_arm64.whl")
            environ = {**os.environ, "UV_DEFAULT_INDEX": f"{registry.url}/simple/", "UV_NO_CACHE": "1"}
            async with running(settings(), environ=environ) as app:
                with pytest.raises(Fault, match=r"install it with `uv tool install evil==1\.0\.0`"):
                    await app.provisioning.keep(SOURCE, "ann")
        assert not marker.exists()

    look()


def test_a_package_that_is_there_as_source_alone_is_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    @real
    async def look() -> None:
        async with running(settings()) as app:
            registry = Registry()
            registry_double.reach(app, registry)
            only_as_source(registry, tmp_path / "ESCAPED")
            with pytest.raises(
                Unknown, match=r"no wheel, .*: install it with `uv tool install evil==1\.0\.0`, and add"
            ):
                await app.provisioning.keep(SOURCE, "ann")

    look()
