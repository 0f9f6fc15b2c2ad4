"""Makes the attempts, here or as an ordinary user in a process of its own: `python trying.py python|server FOLDER`."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attack.sandboxes.python_attempts import PRELUDE
from attack.sandboxes.python_attempts import attempts as of_python
from attack.sandboxes.server_attempts import attempts as of_servers
from attack.sandboxes.server_attempts import box_of, prelude
from attack.sandboxes.world import CANARY, World, shows
from processes.ground import offspring
from sandboxing import boxed, python_engine, run, supervising

REPOSITORY = Path(__file__).parents[3]
NOBODY = 65534

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


async def try_all(kind: str, folder: Path) -> dict[str, Any]:
    if kind == "server":
        return {"tried": len(of_servers()), "found": await try_servers(folder, of_servers())}
    return {"tried": len(of_python()), "found": await try_python(folder, of_python(), broken=True)}


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
            "packages": os.path.relpath(sysconfig.get_path("purelib"), REPOSITORY),
        }
        program = [sys.executable, "-c", _DROP, json.dumps(where)]
        ended = subprocess.run(program, capture_output=True, text=True, timeout=110)
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
    "PYTHONPATH": os.pathsep.join(paths), "PATH": os.environ["PATH"], "LD_LIBRARY_PATH": f"{python}/lib",
    "TOKEN": "canary-7f3a91"})
"""


def may_drop() -> bool:
    """Whether this process may become another user, who finds a Python."""
    return os.geteuid() == 0 and sys.platform.startswith("linux") and _may_mount()


def _may_mount() -> bool:
    code = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x20000) != 0)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as if it had been started as that user
    print(json.dumps(asyncio.run(try_all(sys.argv[1], Path(sys.argv[2])))))
