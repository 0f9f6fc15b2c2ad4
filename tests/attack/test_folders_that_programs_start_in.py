"""A folder that anybody may have written, in which a gateway with the user's own configuration is started, or that lies
above a folder in which it starts a program: a clone, or /tmp. Its files become no part of a server, and run nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from processes.ground import CHILDREN, Failed, gateway, real, settings
from registry_double import SERVER_JS, Registry, listening, npm_package

from toolgate.config import Config, ownership
from toolgate.core.clock import SystemClock
from toolgate.provision.clients import PackageClients
from toolgate.upstreams.process import confinement, folders, shims
from toolgate.upstreams.process.supervisor import Supervisor

needs_npm = pytest.mark.skipif(not shutil.which("npx"), reason="there is no npx here")
needs_uv = pytest.mark.skipif(not (shutil.which("uvx") and shutil.which("uv")), reason="there is no uvx here")
needs_boxes = pytest.mark.skipif(
    not sys.platform.startswith("linux") or bool(confinement.missing(confinement.Box())), reason="no boxes here"
)

PLACE_JS = SERVER_JS.replace('"noted by node"', "`${process.cwd()} ${process.argv.slice(2)}`")
SERVER = SERVER_JS.removeprefix("#!/usr/bin/env node\n")
EVIL_JS = '#!/usr/bin/env node\nrequire("fs").writeFileSync("{marker}", "ran");\n'


def mine(**servers: Any) -> Config:
    """A configuration of the user's own, which lies in another folder."""
    return msgspec.structs.replace(settings(**servers), source="/elsewhere/toolgate.json")


class Clone:
    """A stranger's folder, in which the gateway is started; what it has run writes `marker`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "clone"
        self.folder.mkdir()
        self.marker = folder / "RAN"

    def put(self, path: str, text: str) -> None:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text.replace("{marker}", str(self.marker)).replace("{here}", str(self.folder)))
        place.chmod(0o755)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    found = Clone(tmp_path)
    monkeypatch.chdir(found.folder)
    return found


def package_of_the_clone(clone: Clone) -> None:
    about = {"name": "pack", "version": "1.0.0", "bin": {"pack": "x.js"}}
    clone.put("node_modules/pack/package.json", json.dumps(about))
    clone.put("node_modules/pack/x.js", EVIL_JS + SERVER)
    clone.put("node_modules/.bin/pack", EVIL_JS + SERVER)
    clone.put("package.json", "{}")


def node_of_the_clone(clone: Clone) -> None:
    for name in ("node", "sh", "env"):
        clone.put(f"node_modules/.bin/{name}", '#!/bin/sh\ntouch {marker}\nexec /usr/bin/env node "$@"\n')


def settings_of_the_clone(clone: Clone) -> None:
    clone.put(".npmrc", "node-options=--require={here}/evil.js\nscript-shell={here}/evil.sh\n")
    clone.put("evil.js", EVIL_JS)
    clone.put("evil.sh", '#!/bin/sh\ntouch {marker}\nexec /bin/sh "$@"\n')


def the_clone_itself(clone: Clone) -> None:
    bins = {"pack": "x.js", "pack@1.0.0": "x.js"}
    clone.put("package.json", json.dumps({"name": "pack", "version": "1.0.0", "bin": bins}))
    clone.put("x.js", EVIL_JS + SERVER)


WAYS = [
    ("npx", "-y", "pack@1.0.0", ".", "--x=../y", "plain"),
    ("npx", "-y", "-p", "pack@1.0.0", "-c", "pack . --x=../y plain"),
    ("npm", "exec", "-y", "--", "pack@1.0.0", ".", "--x=../y", "plain"),
    ("sh", "-c", "npx -y pack@1.0.0 . --x=../y plain"),
    ("env", "A=1", "npx", "-y", "pack@1.0.0", ".", "--x=../y", "plain"),
]


@needs_npm
@pytest.mark.parametrize("hostile", [package_of_the_clone, node_of_the_clone, settings_of_the_clone, the_clone_itself])
@pytest.mark.parametrize("words", WAYS, ids=lambda words: " ".join(words[:2]))
def test_npx_takes_nothing_of_the_gateways_folder_and_its_program_starts_there(
    clone: Clone, hostile: Any, words: tuple[str, ...]
) -> None:
    if words != WAYS[0] and hostile is not package_of_the_clone:
        pytest.skip("one way is enough for the others")

    @real
    async def look() -> None:
        hostile(clone)
        async with listening(Registry()) as registry:
            registry.add_npm("pack", "1.0.0", packed=npm_package("pack", "1.0.0", index=PLACE_JS))
            env = {"npm_config_registry": f"{registry.url}/npm/"}
            entry = {"command": words[0], "args": words[1:], "env": env, "start_timeout": "60s"}
            async with gateway(mine(one=entry)) as served:
                said = await served.client().call("one__note")
        assert not clone.marker.exists()
        folder, args = said.split(" ", 1)
        assert folder == os.path.realpath(clone.folder)
        whole = args.split(",")
        assert [os.path.realpath(whole[0]), os.path.normpath(whole[1].split("=")[1]), whole[2]] in (
            [os.path.realpath(clone.folder), str(clone.folder.parent / "y"), "plain"],
            [os.path.realpath(clone.folder), "../y", "plain"],  # in a line of a shell, it is read there
        )

    look()


@needs_npm
def test_npx_takes_nothing_that_another_user_has_put_above_the_gateways_state(clone: Clone) -> None:
    """npx looks for the program of a package in `node_modules/.bin` of each folder above the one that it starts in."""

    @real
    async def look() -> None:
        async with listening(Registry()) as registry:
            registry.add_npm("pack", "1.0.0", packed=npm_package("pack", "1.0.0", index=PLACE_JS))
            env = {"npm_config_registry": f"{registry.url}/npm/"}
            entry = {"command": "npx", "args": ["-y", "pack"], "env": env, "start_timeout": "60s"}
            async with gateway(mine(one=entry)) as served:
                home = Path(served.app._given.environ["HOME"])  # pyright: ignore[reportPrivateUsage]
                home.chmod(0o1777)  # as /tmp is
                for name in ("node_modules/.bin/pack", "node_modules/pack/x.js"):
                    planted = home / name
                    planted.parent.mkdir(parents=True, exist_ok=True)
                    planted.write_text((EVIL_JS + SERVER).replace("{marker}", str(clone.marker)))
                    planted.chmod(0o755)
                (home / "node_modules/pack/package.json").write_text('{"name": "pack", "version": "1.0.0"}')
                said = await served.client().call("one__note")
        assert said.split(" ", 1)[0] == os.path.realpath(clone.folder) and not clone.marker.exists()

    look()


def test_a_program_starts_in_its_own_folder_where_only_its_user_can_write_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "state" / "starts" / "npx"
    own.mkdir(parents=True)
    refuses = ownership.check
    above_us = set(tmp_path.resolve().parents)  # of which the tests know nothing

    def check(path: Path) -> None:
        if path not in above_us:
            refuses(path)

    monkeypatch.setattr(ownership, "check", check)
    assert folders.below_none_of_others(own) == str(own)
    for mode in (0o777, 0o1777, 0o775):
        (tmp_path / "state").chmod(mode)
        assert folders.below_none_of_others(own) == "/"
    (tmp_path / "state").chmod(0o755)
    assert folders.below_none_of_others(own) == str(own)


@needs_npm
@pytest.mark.parametrize("said", ["cwd", "the configuration's folder"])
def test_what_the_user_means_stays_as_it_is(clone: Clone, said: str) -> None:
    @real
    async def look() -> None:
        package_of_the_clone(clone)
        entry: dict[str, Any] = {"command": "npx", "args": ["-y", "pack@1.0.0"], "start_timeout": "60s"}
        if said == "cwd":
            entry["cwd"] = str(clone.folder)
        config = mine(one=entry)
        if said != "cwd":
            config = msgspec.structs.replace(config, source=str(clone.folder / "toolgate.json"))
        async with gateway(config) as served:
            assert await served.client().call("one__note") == "noted by node"
        assert clone.marker.exists()

    look()


@real
async def test_a_server_that_was_added_takes_nothing_of_the_configurations_folder_either(clone: Clone) -> None:
    clone.put("counting.py", "open('{marker}', 'w')")
    entry = {"command": sys.executable, "args": ["-m", "counting"], "by_operator": False, "start_timeout": "10s"}
    config = msgspec.structs.replace(settings(one=entry), source=str(clone.folder / "toolgate.json"))
    async with gateway(config) as served:
        with pytest.raises(Failed, match=r"Server not started|ended"):
            await served.client().call("one__note")
    assert not clone.marker.exists()


@real
async def test_what_a_boxed_server_has_left_is_not_where_one_of_its_name_starts_without_a_box(clone: Clone) -> None:
    """In its box it may write its own folder, and nothing that it leaves there may run outside."""
    entry = {"command": sys.executable, "args": ["-m", "counting"], "start_timeout": "10s"}
    async with gateway(mine(one=entry)) as served:
        environ = served.app._given.environ  # pyright: ignore[reportPrivateUsage]
        left = Path(environ["HOME"], ".local/state/toolgate/boxes/one")
        left.mkdir(parents=True)
        (left / "counting.py").write_text(f"open({str(clone.marker)!r}, 'w')")
        with pytest.raises(Failed, match=r"Server not started|ended"):
            await served.client().call("one__note")
    assert not clone.marker.exists()


@pytest.mark.parametrize(
    ("module", "args"),
    [
        ("runpy", ["-m", "counting"]),
        ("counting", ["-m", "counting"]),
        ("json", ["-Bc", "import runpy; runpy.run_module('counting', run_name='__main__')"]),
    ],
)
def test_python_finds_no_module_in_the_gateways_folder(
    clone: Clone, module: str, args: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `-m` and `-c`, also where the program is a component, or one behind another."""

    @real
    async def look() -> None:
        clone.put(f"{module}.py", "open('{marker}', 'w')")
        env = {"PYTHONPATH": str(CHILDREN)}
        entry = {"command": sys.executable, "args": args, "env": env, "start_timeout": "20s"}
        async with gateway(mine(one=entry)) as served:
            assert await served.client().tools()
        entry |= {"command": "env", "args": [sys.executable, *args]}
        async with gateway(mine(one=entry)) as served:
            assert await served.client().tools()
        component = {"type": "component", "url": "http://127.0.0.1:{port}/", **entry, "start_timeout": "1s"}
        async with gateway(mine(one=component)) as served:
            with pytest.raises(Failed):
                await served.client().call("one__x")
        assert not clone.marker.exists()

    look()


# Shims of managers of versions, which run what a file of the folder names.

SHIM = """#!/bin/sh
# What all of them do: a file of the folder, or of one above it, says which program this name stands for.
folder=$PWD
while [ "$folder" != / ] && [ ! -f "$folder/.tool-versions" ]; do folder=$(dirname "$folder"); done
place=$(cat "$folder/.tool-versions" 2>/dev/null)
[ -n "$place" ] && exec "$folder/$place/${0##*/}" "$@"
exec {real} "$@"
"""
EVIL = "#!/bin/sh\ntouch {marker}\nexec " + sys.executable + ' "$@"\n'
COUNTING = str(CHILDREN / "counting.py")
KINDS = ["mise", "asdf", "volta"]


def shims_of(user: Path, kind: str, *names: str) -> Path:
    """The folder in PATH, as each of these managers makes it."""
    folder = user / (".volta/bin" if kind == "volta" else f".{kind}/shims")
    folder.mkdir(parents=True)
    target = folder if kind == "asdf" else user / "opt"
    target.mkdir(exist_ok=True)
    for name in names:
        place = target / {"mise": "mise", "volta": "volta-shim"}.get(kind, name)
        place.write_text(SHIM.replace("{real}", sys.executable))
        place.chmod(0o755)
        if target != folder:
            (folder / name).symlink_to(place)
    return folder


def wrapped(user: Path, first: str, *rest: str) -> str:
    """A program of the user's own, which is a script."""
    program = user / "my-tool"
    program.write_text("\n".join([first, *rest]) + "\n")
    program.chmod(0o755)
    return str(program)


def named_by_itself(_: Path) -> list[str]:
    return ["python3", "-S", COUNTING]


def in_the_first_line(user: Path) -> list[str]:
    return [wrapped(user, "#!/usr/bin/env python3", Path(COUNTING).read_text())]


def in_the_first_line_with_options(user: Path) -> list[str]:
    return [wrapped(user, "#!/usr/bin/env -S python3 -S", Path(COUNTING).read_text())]


def in_a_line_of_a_shell(_: Path) -> list[str]:
    return ["sh", "-c", f"exec python3 -S {COUNTING}"]


def in_a_script_of_a_shell(user: Path) -> list[str]:
    return [wrapped(user, "#!/bin/sh", f"exec python3 -S {COUNTING}")]


def in_a_script_that_a_shell_is_given(user: Path) -> list[str]:
    return ["bash", wrapped(user, "", f"exec python3 -S {COUNTING}")]


def behind_another_program(_: Path) -> list[str]:
    return ["env", "A=1", "python3", "-S", COUNTING]


NAMED = [
    named_by_itself,
    in_the_first_line,
    in_the_first_line_with_options,
    in_a_line_of_a_shell,
    in_a_script_of_a_shell,
    in_a_script_that_a_shell_is_given,
    behind_another_program,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", NAMED, ids=lambda how: how.__name__)
def test_a_shim_runs_nothing_that_a_file_of_the_gateways_folder_names(
    clone: Clone, tmp_path: Path, how: Any, kind: str
) -> None:
    @real
    async def look() -> None:
        clone.put(".tool-versions", "evil")
        clone.put("evil/python3", EVIL)
        path = f"{shims_of(tmp_path, kind, 'python3')}:/usr/bin:/bin"
        command, *args = how(tmp_path)
        env = {"PATH": path, "PYTHONPATH": str(CHILDREN)}
        entry: dict[str, Any] = {"command": command, "args": args, "env": env, "start_timeout": "30s"}
        async with gateway(mine(one=entry)) as served:
            assert await served.client().tools()
        assert not clone.marker.exists()
        async with gateway(mine(one={**entry, "cwd": str(clone.folder)})) as served:
            assert await served.client().tools()
        assert clone.marker.exists(), "where the folder is meant, it is taken"

    look()


@needs_boxes
@pytest.mark.parametrize("how", ["by a shim", "by a module"])
def test_nor_does_it_in_a_box_that_reads_all(clone: Clone, tmp_path: Path, how: str) -> None:
    @real
    async def look() -> None:
        path = "/usr/bin:/bin"
        clone.put(".tool-versions", "evil")
        clone.put("evil/python3", '#!/bin/sh\necho "ran $0" >&2\nexit 1\n')
        clone.put("counting.py", "import sys; sys.exit('ran counting.py')")
        args = ["-m", "counting"]
        if how == "by a shim":
            args, path = ["-S", COUNTING], f"{shims_of(tmp_path, 'mise', 'python3')}:{path}"
        env = {"PATH": path, "PYTHONPATH": str(CHILDREN)}
        command = "python3" if how == "by a shim" else sys.executable
        entry = {"command": command, "args": args, "env": env, "box": "no-write", "start_timeout": "30s"}
        async with gateway(mine(one=entry)) as served:
            assert await served.client().tools(), served.status("one")

    look()


RELATIVE = ["./node_modules/.bin:{}", "node_modules/.bin:{}", "./.:.:{}", ":{}", "{}:", "{}::node_modules/.bin"]


@pytest.mark.parametrize("path", RELATIVE)
@pytest.mark.parametrize("whose", ["the server's", "the gateway's"])
def test_an_entry_of_path_that_is_relative_leads_to_no_program_of_the_gateways_folder(
    clone: Clone, path: str, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @real
    async def look() -> None:
        for place in ("node_modules/.bin/my-python", "my-python"):
            clone.put(place, EVIL)
        mine_alone = clone.folder.parent / "bin"
        mine_alone.mkdir()
        if not path.startswith("{"):
            (mine_alone / "my-python").symlink_to(sys.executable)
        whole = path.format(f"{mine_alone}:/usr/bin:/bin")
        env = {"PATH": whole, "PYTHONPATH": str(CHILDREN)} if whose == "the server's" else {"PYTHONPATH": str(CHILDREN)}
        if whose == "the gateway's":
            monkeypatch.setenv("PATH", whole)
        entry = {"command": "my-python", "args": [COUNTING], "env": env, "start_timeout": "30s"}
        async with gateway(mine(one=entry)) as served:
            if path.startswith("{"):
                with pytest.raises(Failed, match="Command not found"):
                    await served.client().call("one__x")
            else:
                assert await served.client().tools()
        assert not clone.marker.exists()

    look()


def test_the_commands_pass_over_such_entries_too(clone: Clone) -> None:
    """As for git, which `toolgate tasks` runs."""
    clone.put("git", '#!/bin/sh\ntouch {marker}\nexec /usr/bin/git "$@"\n')
    clone.put(".gobby/project.json", '{"id": "p", "name": "p"}')
    command = [sys.executable, "-m", "toolgate", "tasks", "hooks", "install"]
    environ = {**os.environ, "PATH": f".::{os.environ['PATH']}", "HOME": str(clone.folder.parent)}
    subprocess.run(command, cwd=clone.folder, env=environ, capture_output=True, timeout=60)
    assert not clone.marker.exists()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("node /abs/x.js", ["node"]),
        ("{shims}/node /abs/x.js", ["node"]),
        ("uvx mcp-server-time", ["uvx"]),
        ("mcp-proxy -- node /abs/x.js", ["node"]),
        ("npx -y pack", ["npx"]),
        ("/bin/cat node-like", []),
        ("/bin/cat -node", []),
        ("cat ./node", []),
    ],
)
def test_a_shim_is_known_wherever_a_command_line_names_it(tmp_path: Path, words: str, found: list[str]) -> None:
    folder = shims_of(tmp_path, "mise", "node", "npx", "python3")
    plain = tmp_path / "bin"
    plain.mkdir()
    for name in ("uvx", "mcp-proxy"):
        (plain / name).write_bytes(b"\x7fELF")
        (plain / name).chmod(0o755)
    command, *args = words.replace("{shims}", str(folder)).split()
    assert shims.named(command, args, f"{plain}:{folder}:/usr/bin:/bin") == found
    without = shims.named(command, args, f"{plain}:/nowhere")
    assert without == (found if str(folder) in command else [])


def test_a_shell_starts_in_the_gateways_folder_where_there_are_no_shims() -> None:
    assert not shims.named("sh", ["-c", "exec /abs/server"], "/usr/bin:/bin")


def test_links_that_lead_to_each_other_are_no_shims(tmp_path: Path) -> None:
    (tmp_path / "node").symlink_to("python3")
    (tmp_path / "python3").symlink_to("node")
    assert not shims.named("node", ["python3"], str(tmp_path))


TAKES = """
npx -y pack | npm exec pack | npx.cmd pack | /opt/bin/npx pack | bunx pack | bun x pack | bun /abs/x.ts | bun run x
pnpm dlx pack | yarn dlx pack | pipx run pack | deno run -A npm:pack | uv run pack | python -m pack
python3.12 -Im pack
python -X dev -m pack | python -W error -c pass | uvx --from pack python -m pack | uv tool run --from x python3 -m y
docker compose run x | podman compose up | docker-compose up | sh -c npx_pack | bash -lc cd_/x&&npx_pack
env A=1 npx x
op run -- npx pack | timeout 9 python -m x | node --import tsx /abs/x.js | node -r dotenv/config /x.js | tsx /abs/x.ts
poetry run x | make -s x | Rscript /abs/x.R | node -e 1
env -S A=b_npx_-y_pack | uvx mcp-proxy npx -y pack | mcp-proxy -- npx -y pack | supergateway --stdio npx_-y_pack
script -qec npx_-y_pack /dev/null | taskset 1 npx -y pack | /abs/flock /f /usr/bin/npx -y pack | x --run=npx_pack
uvicorn pack:app --port 1 | gunicorn pack:app -b x | nodemon /abs/x.js | flask run | gmake -s x | uvx uvicorn pack:app
docker --context x compose up | podman -c x compose up | docker -H unix:///x --log-level error compose up
vite-node /abs/x.ts | clojure -X:mcp | bb x | direnv exec . x | asdf exec node /abs/x.js | volta run node /abs/x.js
lua5.4 /abs/x.lua | node --run serve | node --test | ipython /abs/x.py | sbt run | nix-shell --run x | sh -c flask_run
mcp-proxy python -m pack | npx-like 'python3_-c_pass' | node /abs/x.js npx -y pack | python /abs/x.py bunx pack
"""
TAKES_NOT = """
node /abs/x.js | node x.js -r y | python /abs/x.py -m y | python -X dev x.py -c y | uvx pack -m y | uv tool run pack
docker run -i --rm image compose | /abs/server npx | bash /abs/x.sh | server --make npm | uvx mcp-server-time
env A=1 /abs/server | python3 -I /abs/x.py | server make all | server ./npx x | docker run -v .:/x image npx -y pack
docker exec -i name compose up | podman start -ai compose | server --tools flask run | server lua scripts
mcp-server --tools go task run | uvx mcp-server-git --repository make_x
"""


def lines(text: str) -> list[str]:
    return [each.strip() for each in re.split(r"[|\n]", text) if each.strip()]


def words_of(line: str) -> list[str]:
    return [each.replace("_", " ") for each in line.split()]


@pytest.mark.parametrize("line", lines(TAKES))
def test_what_takes_code_from_its_folder_is_known(line: str) -> None:
    command, *args = words_of(line)
    assert folders.takers(command, args)


@pytest.mark.parametrize("line", lines(TAKES_NOT))
def test_what_takes_none_starts_in_the_gateways_folder_as_ever(line: str) -> None:
    command, *args = words_of(line)
    assert not folders.takers(command, args)


@pytest.mark.parametrize(
    ("line", "goes_back"),
    [
        ("npx -y pack", True),
        ("env A=1 npx -y pack --option x", True),
        ("taskset 1 npm exec pack", True),
        ("npx -y mcp-proxy npx -y pack", False),
        ("npx -y mcp-proxy python -m pack", False),
        ("npx -y supergateway --stdio npx_-y_pack", False),
        ("uvx mcp-proxy npx -y pack", True),
        ("bunx pack", False),
    ],
)
def test_npm_goes_back_only_where_nothing_behind_it_would_take_code_there(line: str, goes_back: bool) -> None:
    command, *args = words_of(line)
    assert folders.goes_back(folders.takers(command, args)) is goes_back


# What lies above the folders in which packages are fetched.

PYTHON_OF_ANOTHER = '#!/bin/sh\ntouch {marker}\nexec python3 "$@"\n'


def above(folder: Path, registry: str) -> Path:
    """What another user can put into /tmp."""
    shared, marker = folder / "tmp", folder / "RAN"
    shared.mkdir()
    (shared / "python3").write_text(PYTHON_OF_ANOTHER.replace("{marker}", str(marker)))
    (shared / "python3").chmod(0o755)
    (shared / ".python-version").write_text(f"{shared}/python3\n")
    (shared / "uv.toml").write_text(f'index-url = "{registry}/simple/"\n')
    (shared / ".npmrc").write_text(f"registry={registry}/npm/\n")
    (shared / "package.json").write_text("{}")
    return marker


@needs_boxes
@needs_uv
def test_a_package_is_fetched_for_its_box_by_no_file_of_the_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @real
    async def look() -> None:
        async with listening(Registry()) as registry, listening(Registry()) as other:
            marker = above(tmp_path, other.url)
            monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
            registry.add_pypi("pack", "1.0.0")
            env = {"UV_DEFAULT_INDEX": f"{registry.url}/simple/", "UV_PYTHON_DOWNLOADS": "never"}
            entry = {"command": "uvx", "args": ["pack"], "box": "strict", "start_timeout": "60s", "env": env}
            async with gateway(mine(one=entry)) as served:
                assert await served.client().call("one__note") == "noted by python"
            assert not marker.exists() and not other.asked

    look()


@pytest.mark.parametrize("is_below", [False, True], ids=["beside", "below"])
@pytest.mark.parametrize("kind", [pytest.param("npm", marks=needs_npm), pytest.param("pypi", marks=needs_uv)])
def test_clients_of_packages_are_asked_in_a_folder_of_the_gateways_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, is_below: bool
) -> None:
    """Also where the state of the gateway lies below such a folder."""

    @real
    async def look() -> None:
        marker = above(tmp_path, "http://127.0.0.1:9")
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
        own = {"UV_DEFAULT_INDEX": "http://127.0.0.2/simple/", "npm_config_registry": "http://127.0.0.2/npm/"}
        supervisor = Supervisor(SystemClock(), {**os.environ, "HOME": str(tmp_path / "home"), **own})
        folder = tmp_path / ("tmp/state" if is_below else "state") / "packages"
        try:
            found = await PackageClients(supervisor, SystemClock(), folder).base(kind, "pack")
        finally:
            await supervisor.close()
        assert found.startswith("http://127.0.0.2/") and not marker.exists()

    look()


@needs_uv
def test_an_empty_folder_ends_the_search_of_uv(tmp_path: Path) -> None:
    marker = above(tmp_path, "http://127.0.0.1:9")
    with folders.empty(tmp_path / "tmp" / "state") as folder:
        done = subprocess.run(
            ["uv", "venv", "--no-project", "--offline", str(tmp_path / "made")],
            cwd=folder,
            capture_output=True,
            timeout=60,
            env={**os.environ, "HOME": str(tmp_path), "UV_PYTHON_DOWNLOADS": "never"},
        )
    assert done.returncode == 0, done.stderr
    assert not marker.exists() and not Path(folder).exists()
