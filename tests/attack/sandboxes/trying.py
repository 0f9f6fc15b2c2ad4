"""Makes the attempts, here or as an ordinary user in a process of its own: `python trying.py KIND FOLDER`, where the
kind is one of `KINDS`."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from attack.sandbox import javascript
from attack.sandboxes import box_attempts, deno_attempts
from attack.sandboxes.python_attempts import PRELUDE
from attack.sandboxes.python_attempts import attempts as of_python
from attack.sandboxes.server_attempts import attempts as of_servers
from attack.sandboxes.server_attempts import box_of, prelude
from attack.sandboxes.world import CANARY, ESCAPED, World, shows
from processes.ground import Failed, Served, child, gateway, offspring, settings, started, until
from processes.sandbox_stage import staged
from sandboxing import boxed, python_engine, run, supervising

from toolgate.config import Config
from toolgate.core.clock import SystemClock
from toolgate.frontends import operator
from toolgate.sandbox import javascript as engine_of_javascript
from toolgate.sandbox import monty
from toolgate.sandbox.limits import Limits
from toolgate.upstreams.process import guard
from toolgate.upstreams.process.confinement import box_for_deno

REPOSITORY = Path(__file__).parents[3]
NOBODY = 65534
WHILE = 900  # seconds that all attempts of one kind may take

Found = dict[str, list[str]]


async def try_python(folder: Path, chosen: Sequence[tuple[str, str]], broken: bool) -> Found:
    """What each attempt that succeeded has done, by its name."""
    world, found = World(folder), Found()
    try:
        async with python_engine() as engine:
            for name, code in chosen:
                ran = await run(engine, PRELUDE + code, seconds=20, data={**world.told(), "broken": broken})
                assert not broken or "BROKEN" in ran.logs, (name, ran)
                signs = shows(ran.shown) + world.harm()
                assert engine._zygote
                signs += [f"left process {pid}" for pid in offspring(engine._zygote.pid)]
                if signs:
                    found[name] = signs
            assert (await run(engine, "1 + 1")).value == 2, "the next run is fine"
    finally:
        world.close()
    return found


MONTY = """
import os, sys, asyncio, json
W = data
def E(*what): print("ESC" + "APED", *what)
"""


async def try_monty(folder: Path, chosen: Sequence[tuple[str, str]]) -> Found:
    """The engine for machines that lock nothing, without any box."""
    world, found = World(folder), Found()
    make = lambda supervisor, limits, _: monty.engine(supervisor, limits)  # noqa: E731
    try:
        async with staged(warm=2, is_boxed=False, make=make, wall=20) as stage:
            for name, code in chosen:
                data = json.dumps(world.told() | {"broken": False}).encode()
                told = await stage.told(MONTY + code, data)
                quoted = [line for line in told.splitlines() if line.startswith("    ")]  # of the code, by tracebacks
                signs = [line for line in shows(told) if line not in quoted] + world.harm()
                if signs:
                    found[name] = signs
            assert await stage.told("1 + 1") == "\n2", "the next run is fine"
    finally:
        world.close()
    return found


async def try_servers(folder: Path, chosen: Sequence[tuple[str, str]]) -> Found:
    world, found = World(folder), Found()
    try:
        async with supervising() as supervisor:
            for name, code in chosen:
                told = world.told()
                box = box_of(name, told)
                ended = await boxed(supervisor, box, ["-I", "-S", "-c", prelude(told) + code], seconds=20)
                assert "INSIDE" in ended.output, (name, ended)
                signs = shows(ended.output) + world.harm() + [CANARY] * (CANARY in ended.errors)
                if signs:
                    found[name] = signs
    finally:
        world.close()
    return found


async def try_boxed(folder: Path, chosen: Sequence[tuple[str, str]]) -> Found:
    """By servers whose boxes a configuration has put on, through a gateway that runs in this process."""
    world, found = World(folder), Found()
    loader = {name: os.environ[name] for name in guard.OF_THE_LOADER if name in os.environ}
    servers = {
        name: child("doing", box=box, env=loader, lifecycle="ephemeral", timeout=30)
        for name, box in {**box_attempts.BOXES, "other": {}}.items()
    }
    with tempfile.TemporaryDirectory() as others, written() as lines:
        (Path(others) / "theirs").write_text(CANARY)
        try:
            config = settings(**servers)
            async with gateway(config) as served, _with_its_operators_socket(served, config) as place:
                told = await _around(served, world.told() | {"operator": place}, others)
                before = _stands(told)
                for name, code in chosen:
                    server = box_attempts.server_of(name)
                    world_of_it = told | {"own": f"{told['gate']}/boxes/{server}"}
                    try:
                        said = await served.client().call(f"{server}__do", code=prelude(world_of_it) + code)
                        assert "INSIDE" in said, (name, said)
                    except Failed as error:  # it has ended its server, or itself
                        said = f"{error.message} {error.data}"
                    signs = shows(said) + [each for each in lines if ESCAPED in each or CANARY in each] + world.harm()
                    signs += [f"changed {each}" for each in before if _stands(told).get(each) != before[each]]
                    lines.clear()
                    if signs:
                        found[name] = signs
                assert await served.client().call("hostile__do", code="print(1)") == "1\n", "the next run is fine"
        finally:
            world.close()
    return found


@contextlib.asynccontextmanager
async def _with_its_operators_socket(served: Served, config: Config) -> AsyncIterator[str]:
    place = operator.place(config, served.app._given.environ)
    async with operator.listening(served.app.http, place, SystemClock()):
        await until(place.exists)
        yield str(place)


async def _around(served: Served, told: dict[str, Any], others: str) -> dict[str, Any]:
    """What stands around a server in a box, and where that is: the attackers know the place."""
    environ: Any = served.app._given.environ
    environ["TOKEN"] = CANARY
    home = Path(environ["HOME"])
    gate = home / ".local/state/toolgate"
    (home / ".ssh").mkdir(mode=0o700)
    for file in (home / ".ssh/id", home / ".profile", gate.parent / "else"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(CANARY)
    for name in box_attempts.BOXES:
        assert await served.client().call(f"{name}__do", code="") == ""  # their folders are there
    assert await served.client().call("other__do", code=f"open('kept', 'w').write({CANARY!r})") == ""
    (gate / "toolgate.db").write_text(CANARY)
    (gate / "keys").write_text(CANARY)
    return told | {
        "http": served.port,
        "gate": str(gate),
        "files": [str(gate / "toolgate.db"), str(gate / "keys")],
        "other": str(gate / "boxes" / "other"),
        "home": str(home),
        "temporary": str(Path(others) / "theirs"),
    }


def _stands(told: dict[str, Any]) -> dict[str, Any]:
    """Of what a server in a box may not change."""
    places = [*told["files"], told["other"] + "/kept", told["home"] + "/.profile", told["temporary"], told["gate"]]
    found: dict[str, Any] = {f"{each}, as it is": (os.stat(each)[:6], os.listxattr(each)) for each in places}
    found |= {each: Path(each).read_text() for each in places[:-1]}
    for each in (told["gate"], told["home"], told["gate"] + "/boxes", told["gate"] + "/run"):
        found[each] = sorted(os.listdir(each)) if os.path.isdir(each) else None
    for each in ("/tmp", "/var/tmp", "/dev/shm"):
        found[each] = [name for name in os.listdir(each) if "hostile" in name]
    return found


@contextlib.contextmanager
def written() -> Iterator[list[str]]:
    """What is logged meanwhile, of what servers write that is no message."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("toolgate.upstreams.links.stdio")
    log.addHandler(handler)
    try:
        yield lines
    finally:
        log.removeHandler(handler)


async def try_deno(folder: Path, chosen: Sequence[tuple[str, str]]) -> Found:
    """The kernel's box alone: Deno has all of its permissions, and there is no other realm."""
    entry = folder / "attack.js"
    entry.touch()
    world, found = World(folder), Found()
    deno = engine_of_javascript.command(Limits())[0]
    args = ["run", "--allow-all", "--quiet", "--no-prompt", "--no-config", "--no-lock", "--no-remote", str(entry)]
    box = box_for_deno(deno, [str(entry)])
    try:
        async with supervising() as supervisor:
            for name, code in chosen:
                entry.write_text(deno_attempts.whole(code, world.told()))
                seconds = 3 if "survive" in name else 30
                env = engine_of_javascript.ENVIRONMENT
                ended = await boxed(supervisor, box, args, env, seconds, command=deno)
                assert "INSIDE" in ended.output, (name, ended)
                signs = shows(ended.output) + shows(ended.errors) + world.harm()
                signs += [f"left process {pid}" for pid in started()]
                signs += ["lived on"] * ("took too long" in ended.end and "survive" not in name)
                if signs:
                    found[name] = signs
    finally:
        world.close()
    return found


NOT_TO_BE_TOLD = ("ESCAPED", javascript.SECRET, "root:x:0", "worker.js", "ext:deno", "ext:core", "site-packages")


async def try_javascript(chosen: Sequence[javascript.Attempt], is_boxed: bool = True) -> Found:
    """With the kernel's box or without it."""
    found = Found()
    async with staged(warm=2, is_boxed=is_boxed) as stage:
        for attempt in chosen:
            stage.called.clear()
            told = await stage.told(attempt.whole)
            signs = [word for word in NOT_TO_BE_TOLD if word in told]
            if told == f"\n{javascript.FORGED}" or "the sandbox failed" in told:
                signs.append(told)
            over = len(stage.called)
            next_one = await stage.told("return await servers.shop.echo({ n: 1 })")
            if next_one != '\n{"n":1}' or len(stage.called) != over + 1:
                signs.append(f"the next run told {next_one!r}, and made {len(stage.called) - over} calls")
            if signs:
                found[attempt.name] = [*signs, told[-500:]]
    return found


KINDS: Mapping[str, Callable[[Path], tuple[int, Awaitable[Found]]]] = {
    "python": lambda folder: (len(of_python()), try_python(folder, of_python(), broken=False)),
    "python, language layer broken": lambda folder: (len(of_python()), try_python(folder, of_python(), broken=True)),
    "python, monty, no box": lambda folder: (len(of_python()), try_monty(folder, of_python())),
    "javascript": lambda _: (len(javascript.ATTEMPTS), try_javascript(javascript.ATTEMPTS)),
    "javascript, no box": lambda _: (len(javascript.ATTEMPTS), try_javascript(javascript.ATTEMPTS, is_boxed=False)),
    "deno, the box alone": lambda folder: (
        len(deno_attempts.attempts()),
        try_deno(folder, deno_attempts.attempts()),
    ),
    "server": lambda folder: (len(of_servers()), try_servers(folder, of_servers())),
    "server by its configuration": lambda folder: (
        len(box_attempts.attempts()),
        try_boxed(folder, box_attempts.attempts()),
    ),
}
"""How many attempts there are of each kind, and those that succeed."""


async def try_all(kind: str, folder: Path) -> dict[str, Any]:
    tried, found = KINDS[kind](folder)
    return {"tried": tried, "found": await found}


def as_nobody(kind: str) -> dict[str, Any]:
    """The same as an ordinary user, who needs a Python and these files where they can be read: both are mounted again,
    in a namespace that this process alone is in."""
    with tempfile.TemporaryDirectory() as name:  # not pytest's, which it closes to others whenever another one begins
        folder = Path(name)
        folder.chmod(0o755)
        for each in ("python", "repository", "place"):
            (folder / each).mkdir()
        os.chown(folder / "place", NOBODY, NOBODY)
        where = {
            "kind": kind,
            "folder": name,
            "prefix": sys.base_prefix,
            "real": str(REPOSITORY),
            "binary": os.path.basename(os.path.realpath(sys.executable)),
            "user": NOBODY,
            "secret": javascript.SECRET,
            "scripts": os.path.join(name, "repository", os.path.relpath(sysconfig.get_path("scripts"), REPOSITORY)),
            "packages": os.path.relpath(sysconfig.get_path("purelib"), REPOSITORY),
        }
        program = [sys.executable, "-c", _DROP, json.dumps(where)]
        ended = subprocess.run(program, capture_output=True, text=True, timeout=WHILE)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


_DROP = """
import ctypes, json, os, subprocess, sys
w = json.loads(sys.argv[1])
assert ctypes.CDLL(None).unshare(0x20000) == 0, "no namespace of mounts"
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "--bind", w["prefix"], w["folder"] + "/python"], check=True)
subprocess.run(["mount", "--bind", w["real"], w["folder"] + "/repository"], check=True)
os.setgroups([])
os.setresgid(w["user"], w["user"], w["user"])
os.setresuid(w["user"], w["user"], w["user"])
r, python = w["folder"] + "/repository", w["folder"] + "/python"
paths = [f"{r}/src", f"{r}/tests", os.path.join(r, w["packages"])]
os.chdir("/")
program = f"{python}/bin/{w['binary']}"
os.execve(program, [program, "-B", "-m", "attack.sandboxes.trying", w["kind"], w["folder"] + "/place"], {
    "PYTHONPATH": os.pathsep.join(paths), "PATH": w["scripts"] + ":" + os.environ["PATH"],
    "LD_LIBRARY_PATH": f"{python}/lib", "TOKEN": "canary-7f3a91", "TOOLGATE_TEST_SECRET": w["secret"]})
"""


def none_escapes(kind: str, folder: Path | None, counted: Callable[[str], None]) -> None:
    """By this user in this folder, or by an ordinary user. Says how many were tried."""
    came = asyncio.run(try_all(kind, folder)) if folder else as_nobody(kind)
    who = f"as user {os.geteuid() if folder else NOBODY}"
    counted(f"{kind}, {who}: {len(came['found'])} escapes of {came['tried']} attempts")
    assert came["found"] == {}, came["found"]
    assert came["tried"] > 40


def _may_drop() -> bool:
    """Whether this process may become another user, who finds a Python."""
    return os.geteuid() == 0 and sys.platform.startswith("linux") and _may_mount()


def _may_mount() -> bool:
    code = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x20000) != 0)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


as_another = pytest.mark.skipif(not _may_drop(), reason="only root can become another user")


if __name__ == "__main__":
    engine_of_javascript._deno = lambda: shutil.which("deno") or "deno"  # the package looks beside another Python
    place = f"import os, sys; sys.path[:0] = {sys.path}; os.environ['MONTY_BIN'] = {shutil.which('monty')!r}; "
    monty.COMMAND = place + monty.COMMAND
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as if it had been started as that user
    print(json.dumps(asyncio.run(try_all(sys.argv[1], Path(sys.argv[2])))))
