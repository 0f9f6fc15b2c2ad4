"""A registry that shows one file while a package is looked at, and another one to the program that installs it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from processes.ground import Failed, gateway, real, settings
from registry_double import SERVER_JS, Registry, listening, npm_package, wheel

from toolgate.core.fault import Fault
from toolgate.provision.packages import File, chosen, wheels_of
from toolgate.upstreams.process import confinement, kept
from toolgate.upstreams.process.kept import hash_of

needs_npm = pytest.mark.skipif(not shutil.which("npx"), reason="there is no npx here")
needs_uv = pytest.mark.skipif(not (shutil.which("uvx") and shutil.which("uv")), reason="there is no uvx here")
are_no_boxes = not sys.platform.startswith("linux") or bool(confinement.missing(confinement.Box()))

EVIL = "the other one"
KINDS = [pytest.param("npm", marks=needs_npm), pytest.param("pypi", marks=needs_uv)]


def stocked(registry: Registry, kind: str, marker: Path) -> tuple[str, str, bytes]:
    """A registry that has another file by now than the one that was looked at: its hash, its name, and all of it."""
    if kind == "npm":
        good = npm_package("pack", "1.0.0")
        index = SERVER_JS.replace("noted by node", EVIL)
        other = npm_package("pack", "1.0.0", index=index, scripts={"install": f"touch {marker}"})
        registry.add_npm("pack", "1.0.0", packed=other, scripts={"install": f"touch {marker}"})
        return hash_of(good, "sha512-"), "pack-1.0.0.tgz", good
    good = wheel("pack", "1.0.0")
    other = wheel("pack", "1.0.0", **{"evil.pth": f"import os; open({str(marker)!r}, 'w')\n"})
    registry.add_pypi("pack", "1.0.0", packed=other)
    return hash_of(good, "sha256:"), "pack-1.0.0-py3-none-any.whl", good


def entry(registry: Registry, kind: str, cache: Path, hash: str, **more: Any) -> dict[str, Any]:
    where = {"npm_config_registry": f"{registry.url}/npm/", "UV_DEFAULT_INDEX": f"{registry.url}/simple/"}
    env = {**where, "npm_config_cache": str(cache), "UV_CACHE_DIR": str(cache), "UV_PYTHON_DOWNLOADS": "never"}
    command, args = ("npx", ["-y", "pack@1.0.0"]) if kind == "npm" else ("uvx", ["pack==1.0.0"])
    return {"command": command, "args": args, "env": env, "package_hash": hash, "start_timeout": "60s", **more}


@pytest.mark.parametrize("box", ["off", pytest.param("strict", marks=pytest.mark.skipif(are_no_boxes, reason="none"))])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_compared_is_what_runs_at_each_start_whatever_the_registry_has_by_then(
    tmp_path: Path, kind: str, box: str
) -> None:
    @real
    async def look() -> None:
        marker, state = tmp_path / "RAN", tmp_path / "state"
        async with listening(Registry()) as registry:
            hash, name, good = stocked(registry, kind, marker)
            kept.keep(state / "packages", hash, name, good)
            said: list[str] = []
            for start in ("first", "without its cache"):
                there = entry(registry, kind, tmp_path / start, hash, box=box)
                config = msgspec.structs.replace(settings(one=there), state=str(state))
                async with gateway(config) as served:
                    said.append(await served.client().call("one__note"))
                shutil.rmtree(tmp_path / start, ignore_errors=True)
        assert said == [f"noted by {'node' if kind == 'npm' else 'python'}"] * 2
        assert not marker.exists()

    look()


def gone(place: Path, _name: str) -> None:
    shutil.rmtree(place)


def exchanged(place: Path, name: str) -> None:
    (place / name).write_bytes(b"another")


def beside(place: Path, name: str) -> None:
    (place / f"other-{name}").write_bytes(b"another")


@pytest.mark.parametrize("spoil", [gone, exchanged, beside])
@pytest.mark.parametrize("kind", KINDS)
def test_without_the_file_that_was_compared_nothing_is_fetched_in_its_place(
    tmp_path: Path, kind: str, spoil: Callable[[Path, str], None]
) -> None:
    @real
    async def look() -> None:
        marker, state = tmp_path / "RAN", tmp_path / "state"
        async with listening(Registry()) as registry:
            hash, name, good = stocked(registry, kind, marker)
            kept.keep(state / "packages", hash, name, good)
            (place,) = (state / "packages" / "kept").iterdir()
            spoil(place, name)
            there = entry(registry, kind, tmp_path / "cache", hash)
            config = msgspec.structs.replace(settings(one=there), state=str(state))
            async with gateway(config) as served:
                with pytest.raises(Failed, match="compared with its hash"):
                    await served.client().call("one__note")
            assert registry.asked == []
        assert not marker.exists()

    look()


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("node", ("pack@1.0.0",)),
        ("npx", ("--unknown", "pack@1.0.0")),
        ("npx", ()),
        ("uvx", ("pack[extra]==1.0.0",)),
    ],
)
def test_what_starts_no_package_by_a_runner_does_not_start_with_a_hash(
    tmp_path: Path, command: str, args: tuple[str, ...]
) -> None:
    with pytest.raises(Fault, match="package_hash is for npx and uvx"):
        kept.args_of("one", command, args, "sha256:0", tmp_path)


def test_a_file_is_kept_only_by_its_hash_and_a_name_of_its_own_folder(tmp_path: Path) -> None:
    for hash, name in ((hash_of(b"other", "sha512-"), "a.tgz"), (hash_of(b"it", "sha512-"), "../a.tgz")):
        with pytest.raises(Fault, match="cannot be kept"):
            kept.keep(tmp_path, hash, name, b"it")
    assert not list(tmp_path.rglob("*.tgz"))


def test_of_the_files_of_a_version_the_one_is_kept_that_this_machine_takes() -> None:
    source = File("pack-1.0.0.tar.gz", "", "sha256:s")
    plain = File("pack-1.0.0-py2.py3-none-any.whl", "", "sha256:p")
    linux = File("pack-1.0.0-1-cp311-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "", "sha256:l")
    of_linux = frozenset({"cp311-abi3-manylinux_2_17_x86_64", "cp311-abi3-manylinux2014_x86_64"})
    assert wheels_of((source, plain, linux), ("sha256:s", "sha256:p")) == [plain]
    assert chosen((plain, linux), of_linux) == linux
    assert chosen((plain, linux), frozenset({"py2-none-any", "py3-none-any"})) == plain
    assert chosen((plain, linux), frozenset({"cp311-cp311-linux_x86_64"})) is None  # it was built here
