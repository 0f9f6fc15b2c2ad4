"""`npx` and `uvx` in a box: the package is fetched outside, without its code, and its program starts inside."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from processes.ground import CHILDREN, failure, gateway, real, settings

from toolgate.upstreams.process import confinement

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]

# Stands in for both runners: it says what it was asked, and where a package lies that was there before.
RUNNER = """#!{python} -IS
import json, os, sys
with open({record!r}, "w") as file:
    json.dump({{"args": sys.argv[1:], "env": dict(os.environ), "files": os.listdir(".")}}, file)
if {fails}:
    sys.exit("npm error code E404")
print({says!r})
"""


class Runners:
    """A folder with `npx` and `uvx`, and a package that they have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "record"
        self.npm = folder / "_npx" / "abc"
        self.environment = folder / "uv" / "env"
        program = (CHILDREN / "doing.py").read_text()
        for place in (self.npm / "node_modules" / "@scope" / "pack", self.environment / "bin"):
            place.mkdir(parents=True)
            shutil.copy(CHILDREN / "legacy.py", place)
            (place / "python").symlink_to(sys.executable)  # where a program's own interpreter lies
            (place / "pack").write_text(f"#!{place}/python -S\n{program}")
            (place / "pack").chmod(0o755)
        own = {"name": "@scope/pack", "bin": {"pack": "pack"}}
        (self.npm / "node_modules" / "@scope" / "pack" / "package.json").write_text(json.dumps(own))
        (self.npm / "package.json").write_text(json.dumps({"dependencies": {"@scope/pack": "1"}}))
        (self.environment / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\n")
        (self.npm / "node_modules" / ".bin").mkdir()
        (self.npm / "node_modules" / ".bin" / "pack").symlink_to("../@scope/pack/pack")

    def runner(self, name: str, fails: bool = False) -> str:
        folder = f"{self.npm}/node_modules/.bin" if name == "npx" else f"{self.environment}/bin"
        says = f"{folder}:/usr/bin:/bin"
        file = self.folder / name
        python = os.path.realpath(sys.executable)  # a first line takes no path with a space
        file.write_text(RUNNER.format(python=python, record=str(self.record), fails=fails, says=says))
        file.chmod(0o755)
        return str(file)

    @property
    def asked(self) -> Any:
        return json.loads(self.record.read_text())


SECRETS = {"TOKEN": "canary", "npm_config_registry": "http://127.0.0.1:9/"}


@real
async def test_npx_fetches_without_scripts_in_an_empty_folder_and_the_program_starts_in_its_box(tmp_path: Path) -> None:
    runners = Runners(tmp_path)
    entry = {
        "command": runners.runner("npx"),
        "args": ["-y", "@scope/pack@1", "--own"],
        "env": SECRETS,
        "box": "strict",
    }
    async with gateway(settings(one=entry)) as served:
        client = served.client()
        told = await client.call("one__do", code="import os, sys; print(sys.argv[1:], os.environ['TOKEN'])")
        assert told == "['--own'] canary\n"
        assert "PermissionError" in await client.call("one__do", code=f"print(open({str(runners.record)!r}).read())")
        assert "PermissionError" in await client.call("one__do", code=f"open({str(runners.npm)!r} + '/x', 'w')")
    asked = runners.asked
    options = ["-y", "--yes", "--ignore-scripts", "--script-shell=/bin/sh", "--package", "@scope/pack@1", "--call"]
    assert asked["args"][:-1] == options
    assert asked["files"] == ["package.json"]  # so that npm looks in no folder above
    assert "TOKEN" not in asked["env"]
    assert asked["env"]["npm_config_registry"] == SECRETS["npm_config_registry"]


@real
async def test_uvx_fetches_without_building_and_the_program_starts_in_its_box(tmp_path: Path) -> None:
    runners = Runners(tmp_path)
    entry = {"command": runners.runner("uvx"), "args": ["--with", "mcp<2", "pack==1", "--own"], "box": "strict"}
    async with gateway(settings(one=entry)) as served:
        told = await served.client().call("one__do", code="import sys; print(sys.argv[1:])")
        assert told == "['--own']\n"
    assert runners.asked["args"][:-1] == ["--with", "mcp<2", "--no-build", "--from", "pack==1", "/bin/sh", "-c"]
    assert runners.asked["env"]["UV_COMPILE_BYTECODE"] == "0"


@pytest.mark.parametrize("bin", ["../../../own/bin/pack", "/bin/sh", ""])
def test_a_package_names_no_program_outside_of_itself(bin: str, tmp_path: Path) -> None:
    @real
    async def look() -> None:
        runners = Runners(tmp_path)
        package = runners.npm / "node_modules" / "@scope" / "pack" / "package.json"
        package.write_text(json.dumps({"name": "@scope/pack", "bin": {bin: "pack"}}))
        entry = {"command": runners.runner("npx"), "args": ["@scope/pack"], "box": "strict"}
        async with gateway(settings(one=entry)) as served:
            error = await failure(served.client().call("one__do", code=""))
            assert "names no program of its own" in str(error.message)

    look()


@real
async def test_a_package_that_cannot_be_fetched_is_told_with_the_runners_words(tmp_path: Path) -> None:
    entry = {"command": Runners(tmp_path).runner("npx", fails=True), "args": ["nothing"], "box": "strict"}
    async with gateway(settings(one=entry)) as served:
        error = await failure(served.client().call("one__do", code=""))
        assert "could not be fetched for its box" in str(error.message)
        assert "E404" in str(error.message)


@pytest.mark.parametrize(
    ("command", "args", "says"),
    [
        ("npx", ["--node-options=--require=/tmp/x", "pack"], "an option of npx in its args is not known here"),
        ("docker", ["run", "-i", "x"], "docker does not run in one"),
        ("bunx", ["pack"], "bunx does not run in one"),
    ],
)
@real
async def test_what_cannot_be_done_in_two_steps_is_refused(command: str, args: list[str], says: str) -> None:
    async with gateway(settings(one={"command": command, "args": args, "box": "strict"})) as served:
        error = await failure(served.client().call("one__do", code=""))
        assert says in str(error.message)
        assert 'box = "off"' in error.data["hint"]
