"""`npx` and `uvx` in a box: the package is fetched outside, without its code, and its program starts inside."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from processes.ground import CHILDREN, alive, child, failure, gateway, real, settings, until

from toolgate.config import PoolLimits
from toolgate.upstreams.process import confinement, packages

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]

# Stands in for npx: it says what it was asked, and where a package lies that was there before.
RUNNER = """#!{python} -IS
import json, os, sys
with open({record!r}, "w") as file:
    json.dump({{"args": sys.argv[1:], "env": dict(os.environ), "files": os.listdir(".")}}, file)
if {fails}:
    sys.exit("npm error code E404")
print({says!r})
"""

# And for uv: it makes an environment, and puts a program into it, whose first line names the Python that it runs with.
UV = """#!{python} -IS
import json, os, shutil, sys
with open({record!r}, "a") as file:
    file.write(json.dumps({{"args": sys.argv[1:], "env": dict(os.environ), "files": os.listdir(".")}}) + "\\n")
if sys.argv[1] == "venv":
    place = sys.argv[-1]
    os.makedirs(place + "/bin")
    os.makedirs(place + "/lib/python3/site-packages")
    os.symlink(sys.executable, place + "/bin/python")
    with open(place + "/pyvenv.cfg", "w") as file:
        file.write({config!r})
else:
    place = sys.argv[sys.argv.index("--target") + 1] + "/bin"
    is_there = os.path.isdir(place)
    os.makedirs(place, exist_ok=True)
    for name in ("pack", "legacy.py"):
        shutil.copy({package!r} + "/" + name, place)
    if {fails} and not is_there:
        sys.exit("RECORD file doesn't match wheel contents")
"""


@pytest.fixture(autouse=True)
def are_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


class Runners:
    """A folder with `npx` and `uvx`, and a package that they have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "record"
        self.npm = folder / "_npx" / "abc"
        self.wheel = folder / "wheel"
        program = (CHILDREN / "doing.py").read_text()
        for place in (self.npm / "node_modules" / "@scope" / "pack", self.wheel):
            place.mkdir(parents=True)
            shutil.copy(CHILDREN / "legacy.py", place)
            (place / "python").symlink_to(sys.executable)  # where a program's own interpreter lies
            (place / "pack").write_text(f"#!{place}/python -S\n{program}")
            (place / "pack").chmod(0o755)
        own = {"name": "@scope/pack", "bin": {"pack": "pack"}}
        (self.npm / "node_modules" / "@scope" / "pack" / "package.json").write_text(json.dumps(own))
        (self.npm / "package.json").write_text(json.dumps({"dependencies": {"@scope/pack": "1"}}))
        (self.npm / "node_modules" / ".bin").mkdir()
        (self.npm / "node_modules" / ".bin" / "pack").symlink_to("../@scope/pack/pack")

    def runner(self, name: str, fails: bool = False) -> str:
        says = f"{self.npm}/node_modules/.bin:/usr/bin:/bin"
        file = self.folder / ("uv" if name == "uvx" else name)
        python = os.path.realpath(sys.executable)  # a first line takes no path with a space
        text = RUNNER if name == "npx" else UV
        about = {"record": str(self.record), "config": f"home = {sys.base_prefix}/bin\n", "package": str(self.wheel)}
        file.write_text(text.format(python=python, fails=fails, says=says, **about))
        file.chmod(0o755)
        if name == "uvx":
            shutil.copy(file, self.folder / name)
        return str(self.folder / name)

    @property
    def asked(self) -> Any:
        return json.loads(self.record.read_text())

    @property
    def asked_of_uv(self) -> list[Any]:
        return [json.loads(line) for line in self.record.read_text().splitlines()]


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
    assert sorted(asked["files"]) == [".python-version", "package.json", "uv.toml"]  # so that none above is read
    assert "TOKEN" not in asked["env"]
    assert asked["env"]["npm_config_registry"] == SECRETS["npm_config_registry"]
    assert asked["env"]["npm_config_git"] == "/bin/false" and asked["env"]["npm_config_allow_file"] == "root"


@real
async def test_uvx_fetches_without_building_and_the_program_starts_in_its_box(tmp_path: Path) -> None:
    runners = Runners(tmp_path)
    args = [
        "--isolated",
        "--offline",
        "--with",
        "mcp>=1,<2,httpx",
        "-p",
        "3",
        "--index",
        "http://127.0.0.1:9/",
        "pack@1",
    ]
    entry = {"command": runners.runner("uvx"), "args": [*args, "--own"], "box": "strict"}
    packages_of = str(tmp_path / "state" / "packages")
    code = "import sys; print(sys.argv[1:]); print(sys.prefix)"
    for _ in range(2):
        async with gateway(msgspec.structs.replace(settings(one=entry), state=str(tmp_path / "state"))) as served:
            own, prefix, *_ = (await served.client().call("one__do", code=code)).splitlines()
            assert own == "['--own']" and prefix.startswith(packages_of)
            changed = served.client().call("one__do", code=f"open({prefix!r} + '/bin/x', 'w')")
            assert "PermissionError" in await changed
    made, filled, again = runners.asked_of_uv
    *options, place = made["args"]
    assert options == ["venv", "--no-project", "--python", "3", "--offline"] and place.startswith(f"{packages_of}/run-")
    into = ["--python", os.path.realpath(sys.executable), "--target", f"{prefix}/lib/python3/site-packages"]
    index = ["--offline", "--index", "http://127.0.0.1:9/"]
    packages = ["pack==1", "mcp>=1,<2", "httpx"]
    assert again["args"] == ["pip", "install", "--no-build", *into, *index, "--", *packages]
    assert filled["args"] == [each.replace(prefix, place) for each in again["args"]]
    assert os.listdir(packages_of) == [os.path.basename(prefix)]
    assert made["env"]["UV_COMPILE_BYTECODE"] == filled["env"]["UV_COMPILE_BYTECODE"] == "0"


@real
async def test_a_package_that_uv_has_refused_halfway_is_not_started_at_the_next_try(tmp_path: Path) -> None:
    runners = Runners(tmp_path)
    entry = {"command": runners.runner("uvx", fails=True), "args": ["pack"], "box": "strict"}
    async with gateway(msgspec.structs.replace(settings(one=entry), state=str(tmp_path / "state"))) as served:
        for _ in range(2):
            failed = await failure(served.client().call("one__do", code="print(1)"))
            assert "RECORD file doesn't match" in failed.message
        runners.runner("uvx")
        assert await served.client().call("one__do", code="print(1)") == "1\n"


@pytest.mark.parametrize(
    ("about", "is_refused"),
    [
        ({"resolved": "file:../../../private.tgz"}, True),
        ({"resolved": "../../dir", "link": True}, True),
        ({"resolved": "git+ssh://git@example.com/a.git#1"}, True),
        ({"resolved": "https://registry.npmjs.org/a/-/a-1.0.0.tgz"}, False),
        ({"inBundle": True}, False),
    ],
)
def test_a_package_that_depends_on_what_no_registry_has_is_not_started(
    about: dict[str, Any], is_refused: bool, tmp_path: Path
) -> None:
    """Whatever npm thinks of it: older versions cannot be told."""

    @real
    async def look() -> None:
        runners = Runners(tmp_path)
        known = {"node_modules/@scope/pack": {"resolved": "https://x/pack.tgz"}, "node_modules/a": about}
        (runners.npm / "node_modules" / ".package-lock.json").write_text(json.dumps({"packages": known}))
        entry = {"command": runners.runner("npx"), "args": ["@scope/pack"], "box": "strict"}
        async with gateway(settings(one=entry)) as served:
            if is_refused:
                error = await failure(served.client().call("one__do", code=""))
                assert "it depends on a, which no registry has" in str(error.message)
            else:
                assert await served.client().call("one__do", code="print(1)") == "1\n"

    look()


@pytest.mark.parametrize("file", ["node_modules/@scope/pack/package.json", "node_modules/.package-lock.json"])
@pytest.mark.parametrize(
    ("written", "why"),
    [
        ('{"a":[' + "[]," * packages.MOST_VALUES + "[]]}", "values"),
        ('{"a":"' + "x" * packages.LONGEST_FILE + '"}', "bytes"),
        ('{"a":' + "[" * 5000, "cannot be read"),
    ],
    ids=["values", "bytes", "depth"],
)
def test_a_package_whose_files_are_too_much_to_be_read_is_not_started(
    file: str, written: str, why: str, tmp_path: Path
) -> None:
    """Whoever reads JSON of megabytes keeps everybody else from going on."""

    @real
    async def look() -> None:
        runners = Runners(tmp_path)
        (runners.npm / file).write_text(written)
        entry = {"command": runners.runner("npx"), "args": ["@scope/pack"], "box": "strict"}
        async with gateway(settings(one=entry)) as served:
            message = str((await failure(served.client().call("one__do", code=""))).message)
            assert f"its {Path(file).name} " in message and why in message

    look()


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


# Stands in for a runner whose registry answers slowly: it waits for a file.
WAITS = """#!{python} -IS
import os, time
with open({record!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
while not os.path.exists({go!r}):
    time.sleep(0.01)
print({says!r})
"""


class SlowRunners(Runners):
    @property
    def go(self) -> Path:
        return self.folder / "go"

    def entry(self, **more: Any) -> dict[str, Any]:
        says = f"{self.npm}/node_modules/.bin:/usr/bin:/bin"
        python, runner = os.path.realpath(sys.executable), self.folder / "npx"
        runner.write_text(WAITS.format(python=python, record=str(self.record), go=str(self.go), says=says))
        runner.chmod(0o755)
        return {"command": str(runner), "args": ["@scope/pack"], "box": "strict", **more}

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []


@real
async def test_a_fetch_has_a_time_of_its_own_and_ends_with_it(tmp_path: Path) -> None:
    runners = SlowRunners(tmp_path)
    async with gateway(settings(one=runners.entry(fetch_timeout="3s"))) as served:
        error = await failure(served.client().call("one__do", code=""))
        assert "could not be fetched for its box: it did not end within 3 s (fetch_timeout)" in str(error.message)
        assert runners.pids and not any(map(alive, runners.pids))
        assert served.status("one").state == "failed"


@real
async def test_a_call_waits_for_a_package_as_for_a_start_and_the_fetch_goes_on(tmp_path: Path) -> None:
    runners = SlowRunners(tmp_path)
    async with gateway(settings(one=runners.entry(start_timeout="3s"))) as served:
        error = await failure(served.client().call("one__do", code=""))
        assert "its package is still being fetched after 3 s" in str(error.message)
        assert error.data["outcome"] == "not_sent" and "fetch_timeout" in error.data["hint"]
        assert served.status("one").state == "starting" and alive(runners.pids[0])
        runners.go.touch()
        await until(lambda: served.status("one").state == "ready")
        assert await served.client().call("one__do", code="print(1)") == "1\n"
        assert len(runners.pids) == 1


@real
async def test_while_a_package_is_fetched_its_server_holds_no_slot_of_the_pool(tmp_path: Path) -> None:
    runners = SlowRunners(tmp_path)
    config = settings(one=runners.entry(), two=child("doing"))
    async with gateway(msgspec.structs.replace(config, pool=PoolLimits(max_live=1))) as served:
        slow = asyncio.create_task(served.client().call("one__do", code="print(1)"))
        await until(lambda: runners.pids)
        assert await served.client().call("two__do", code="print(2)") == "2\n"
        assert served.status("one").state == "starting" and len(served.app._link_deps.pool) == 1
        runners.go.touch()
        assert await slow == "1\n"
        assert len(set(runners.pids)) == 1


@real
async def test_what_many_starts_want_is_fetched_once_and_given_up_with_the_last_of_them(tmp_path: Path) -> None:
    runners = SlowRunners(tmp_path)
    config = settings(one=runners.entry())
    async with gateway(config) as served:
        launch, (server,) = served.app._boxes.launch, config.servers
        starts = [asyncio.create_task(launch(server, f"holder {number}")) for number in range(5)]
        await until(lambda: runners.pids)
        for start in starts[1:]:
            start.cancel()
        await asyncio.wait(starts[1:])
        again = asyncio.create_task(launch(server, "another"))
        runners.go.touch()
        assert (await starts[0]).command == (await again).command == f"{runners.npm}/node_modules/.bin/pack"
        assert len(runners.pids) == 1

        runners.go.unlink()
        left = asyncio.create_task(launch(server, ""))
        await until(lambda: len(runners.pids) == 2)
        left.cancel()
        await asyncio.wait((left,))
        await until(lambda: not alive(runners.pids[1]))


@real
async def test_a_server_that_is_stopped_ends_the_fetch_of_its_package(tmp_path: Path) -> None:
    runners = SlowRunners(tmp_path)
    async with gateway(settings(one=runners.entry())) as served:
        slow = asyncio.create_task(failure(served.client().call("one__do", code="")))
        await until(lambda: runners.pids)
        await served.app.gateway.snapshot.upstreams["one"].stop()
        assert not alive(runners.pids[0])
        assert "stopped" in str((await slow).message)


@real
async def test_only_so_many_packages_are_fetched_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "AT_ONCE", 2)
    runners = SlowRunners(tmp_path)
    names = ("one", "two", "three")
    async with gateway(settings(**{name: runners.entry(fetch_timeout="60s") for name in names})) as served:
        calls = [asyncio.create_task(served.client().call(f"{name}__do", code="print(1)")) for name in names]
        await until(lambda: len(runners.pids) == 2 and served.app._boxes._packages._turns.waiting == 1)
        runners.go.touch()
        assert await asyncio.gather(*calls) == ["1\n"] * 3
