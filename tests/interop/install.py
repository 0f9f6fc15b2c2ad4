"""Install the real servers and clients of the interop suite into its cache. Run by `make interop`.

What is complete is left alone, so a second run is immediate. The pins are `package.json`, `py1.txt`, `servers.txt` and
`programs/`; no lock file is written, and the registries are those that npm and pip are configured with. Without the
servers and the SDKs there is no suite; a program that cannot be installed is only left out.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import installed

SECONDS = 1200


def main() -> int:
    for part, install in ((installed.NPM, npm), (installed.PY1, environment), (installed.SERVERS, environment)):
        if problem := complete(part, install):
            print(f"interop: {problem}", file=sys.stderr)
            return 1
    for part, pins in installed.PROGRAMS.items():
        if problem := complete(part, INSTALLERS[pins.suffix]):
            print(f"interop: {part.name} is left out: {problem}", file=sys.stderr)
            installed.failure(part).write_text(problem)
    if problem := complete(installed.RUST, cargo):
        print(f"interop: {installed.RUST.name} is left out: {problem}", file=sys.stderr)
        installed.failure(installed.RUST).write_text(problem)
    return 0


def complete(part: Path, install: Callable[[Path], str | None]) -> str | None:
    """Install one part unless it is there; the problem, if there is one."""
    if installed.is_complete(part):
        print(f"interop: {part.name} is complete")
        return None
    print(f"interop: installing {part.name} into {part}", flush=True)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    problem = install(part)
    if problem is None:
        installed.stamp(part).write_text(installed.wanted(part))
    return problem


def npm(part: Path) -> str | None:
    program = shutil.which("npm")
    if program is None:
        return "npm was not found. Install Node 20 or newer, which brings it."
    shutil.copy((installed.PARTS | installed.PROGRAMS)[part], part / "package.json")
    flags = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
    return run([program, "install", *flags], part, "npm")


def environment(part: Path) -> str | None:
    made = run([sys.executable, "-m", "venv", "--clear", str(part)], part.parent, "venv")
    if made:
        return made
    pip = [str(part / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
    pins = str((installed.PARTS | installed.PROGRAMS)[part])
    return run([*pip, "--disable-pip-version-check", "-r", pins], part, "pip")


def cargo(part: Path) -> str | None:
    program = shutil.which("cargo")
    if program is None:
        return "cargo was not found"
    shutil.copytree(installed.CRATE, part / "crate")
    folders = ["--manifest-path", str(part / "crate" / "Cargo.toml"), "--target-dir", str(part / "target")]
    return run([program, "build", "--quiet", *folders], part, "cargo")


def go(part: Path) -> str | None:
    program = shutil.which("go")
    if program is None:
        return "go was not found."
    (package,) = installed.PROGRAMS[part].read_text().split()
    return run(["env", f"GOBIN={part}", "GOFLAGS=", program, "install", package], part, "go")


INSTALLERS = {".json": npm, ".txt": environment, ".packages": go}


def run(command: list[str], folder: Path, what: str) -> str | None:
    """Run one installer; on failure its own last words, and what that most often means."""
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{what} was not done after {SECONDS} s. Is its package registry reachable from here?"
    if done.returncode == 0:
        return None
    lines = done.stdout.strip().splitlines()
    words = "\n".join(lines if len(lines) <= 16 else [*lines[:8], "…", *lines[-8:]])
    return (
        f"{what} failed. Most often its package registry cannot be reached from here; what it was to install "
        f"is skipped until this is mended and `make interop` run again. It said:\n{words}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
