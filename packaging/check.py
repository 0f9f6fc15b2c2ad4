"""`make package-check`: what a newcomer does with the wheel alone, timed: install it, serve, call a tool.

It is installed in each way that is here (pip, and pipx and uvx where they are), with a home of its own, in a folder
that is no checkout. What each step took is printed, with the seconds of a processor that it needed: on a machine that
does other work as well, the limit grows with its load.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

DIST = Path(__file__).parents[1] / "dist"
MOST = 60.0  # seconds until the first call is answered
PATIENCE = 600.0  # seconds for one step

Found = TypeVar("Found")


def main() -> None:
    [wheel] = DIST.glob("*.whl")
    ways = {"pip": _by_pip, "pipx": _by_pipx, "uvx": _by_uvx}
    here = [name for name in ways if name == "pip" or shutil.which(name)]
    late = [name for name in here if not _in_time(name, ways[name], wheel)]
    if missing := ways.keys() - here:
        print(f"not tried, since they are not here: {', '.join(sorted(missing))}")
    if late:
        sys.exit(f"too late: {', '.join(late)}")


def _in_time(name: str, way: Callable[[Path, Path], None], wheel: Path) -> bool:
    print(f"{name}:")
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        way(wheel, Path(folder))
        seconds = time.monotonic() - began
    limit = f"{MOST:g} s" + (f" x {busy:.1f}, since the machine is that busy" if busy > 1 else "")
    print(f"  first call answered after {seconds:.1f} s (limit: {limit})")
    return seconds <= MOST * busy


def _by_pip(wheel: Path, folder: Path) -> None:
    python = folder / "venv" / "bin" / "python"
    environ = _home(folder)
    timed("environment", lambda: run([sys.executable, "-m", "venv", str(folder / "venv")], environ))
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    timed("install", lambda: run(install, os.environ | environ))
    _served(str(python.with_name("toolgate")), environ)


def _by_pipx(wheel: Path, folder: Path) -> None:
    environ = _home(folder)
    places = {
        "PIPX_HOME": str(folder / "pipx"),
        "PIPX_BIN_DIR": str(folder / "bin"),
        "PIPX_MAN_DIR": str(folder / "man"),
    }
    install = ["pipx", "install", "--python", sys.executable, str(wheel)]
    timed("install", lambda: run(install, os.environ | environ | places))
    _served(str(folder / "bin" / "toolgate"), environ)


def _by_uvx(wheel: Path, folder: Path) -> None:
    environ = os.environ | _home(folder)
    command = ["uvx", "--from", str(wheel), "--python", sys.executable, "toolgate", "demo", "--once", "--port", "0"]
    said = timed("install, serve, call", lambda: run(command, environ))
    assert "notes" in said, said


def timed(step: str, work: Callable[[], Found]) -> Found:
    began, used = time.monotonic(), _used()
    found = work()
    print(f"  {step}: {time.monotonic() - began:.1f} s, {_used() - used:.1f} s of a processor")
    return found


def _used() -> float:
    """By programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _home(folder: Path) -> dict[str, str]:
    place = folder / "home"
    place.mkdir()
    return {"HOME": str(place), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def _served(toolgate: str, environ: dict[str, str]) -> None:
    """A gateway with a server of its own, and a call by another command, as the first page of the documents has it."""
    place = Path(environ["HOME"])
    python = Path(toolgate).resolve().with_name("python")
    notes = {"command": str(python), "args": ["-m", "toolgate.demo.notes"]}
    (place / "toolgate.json").write_text(json.dumps({"mcpServers": {"notes": notes}, "http": {"port": 0}}))
    with timed("start", lambda: _started(toolgate, environ)) as gateway:
        try:
            call = [toolgate, "call", "--config", "toolgate.json", "notes", "list_notes"]
            answer = timed("call", lambda: run(call, environ))
            print(f"  notes answers: {answer.strip().splitlines()[-1]}")
        finally:
            gateway.terminate()
            gateway.communicate(timeout=PATIENCE)
    assert gateway.returncode == 0, f"the gateway ended with {gateway.returncode}"


def _started(toolgate: str, environ: dict[str, str]) -> subprocess.Popen[str]:
    command = [toolgate, "serve", "--config", "toolgate.json"]
    gateway = subprocess.Popen(command, cwd=environ["HOME"], env=environ, stderr=subprocess.PIPE, text=True)
    assert gateway.stderr
    line = next((line for line in gateway.stderr if "listening" in line), "")
    assert re.search(r"http://127\.0\.0\.1:\d+/mcp", line), line
    return gateway


def run(command: list[str], environ: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=environ["HOME"], env=environ, text=True, capture_output=True, timeout=PATIENCE)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
