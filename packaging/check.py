"""`make package-check`: what a newcomer does with the wheel alone, timed: install it, serve, call a tool.

It is installed into an environment of its own, with a home of its own, in a folder that is no checkout. If `uvx` is
here, the first call is made by that, too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DIST = Path(__file__).parents[1] / "dist"
MOST = 60.0  # seconds until the first call is answered


def main() -> None:
    [wheel] = DIST.glob("*.whl")
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        toolgate = installed(wheel, Path(folder))
        print(f"installed after {time.monotonic() - began:.1f} s")
        with home(Path(folder)) as environ:
            said = run([toolgate, "--version"], environ)
            served(toolgate, environ)
        seconds = time.monotonic() - began
        print(f"{said.strip()}: first call answered after {seconds:.1f} s")
        if seconds > MOST:
            sys.exit(f"that is more than {MOST:g} s")
        if uvx := shutil.which("uvx"):
            with home(Path(folder)) as environ:
                run([uvx, "--from", str(wheel), "toolgate", "demo", "--once", "--port", "0"], environ)
            print("uvx: the demo runs")


def installed(wheel: Path, folder: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, str(wheel)], check=True, cwd=folder)
    return str(folder / "venv" / "bin" / "toolgate")


@contextmanager
def home(folder: Path) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        yield {"HOME": place, "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


def served(toolgate: str, environ: dict[str, str]) -> None:
    """A gateway with a server of its own, and a call by another command, as the first page of the documents has it."""
    place = Path(environ["HOME"])
    notes = {"command": str(Path(toolgate).with_name("python")), "args": ["-m", "toolgate.demo.notes"]}
    (place / "toolgate.json").write_text(json.dumps({"mcpServers": {"notes": notes}, "http": {"port": 0}}))
    command = [toolgate, "serve", "--config", "toolgate.json"]
    with subprocess.Popen(command, cwd=place, env=environ, stderr=subprocess.PIPE, text=True) as gateway:
        try:
            assert gateway.stderr
            line = next(line for line in gateway.stderr if "listening" in line)
            assert re.search(r"http://127\.0\.0\.1:\d+/mcp", line), line
            answer = run([toolgate, "call", "--config", "toolgate.json", "notes", "list_notes"], environ)
            print(f"notes answers: {answer.strip().splitlines()[-1]}")
        finally:
            gateway.terminate()
            gateway.communicate(timeout=MOST)
    assert gateway.returncode == 0, f"the gateway ended with {gateway.returncode}"


def run(command: list[str], environ: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=environ["HOME"], env=environ, text=True, capture_output=True, timeout=MOST)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
