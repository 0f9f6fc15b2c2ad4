"""Where the real servers and clients of the interop suite are, and whether they are there.

`install.py` fills the cache, the tests only look. The cache lies outside what is tracked:
`$TOOLGATE_INTEROP_CACHE`, or `.interop` in the repository.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("TOOLGATE_INTEROP_CACHE") or HERE.parent.parent / ".interop").resolve()

NPM = CACHE / "npm"
PY1 = CACHE / "py1"
SERVERS = CACHE / "servers"
RUST = CACHE / "rust"
CRATE = HERE / "rust"
PARTS = {NPM: HERE / "package.json", PY1: HERE / "py1.txt", SERVERS: HERE / "servers.txt"}

PROGRAMS = {
    CACHE / "programs" / pins.stem: pins
    for pins in sorted((HERE / "programs").glob("*.*"))
    if pins.suffix in (".json", ".txt", ".packages")
}
"""Whole programs, each in a folder of its own: packages of npm (`.json`), of PyPI in an environment (`.txt`), or one
command of Go (`.packages`). What cannot be installed is left out, and its tests say why."""


def wanted(part: Path) -> str:
    """What a complete part says of itself: its pins, and the interpreter that an environment is bound to."""
    if part == RUST:
        sources = [CRATE / "Cargo.toml", *sorted((CRATE / "src").iterdir())]
        return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    pins = (PARTS | PROGRAMS)[part]
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()
    return f"{digest} {sys.version_info[:2]} {sys.base_prefix}" if pins.suffix == ".txt" else digest


def stamp(part: Path) -> Path:
    return part / ".complete"


def is_complete(part: Path) -> bool:
    return stamp(part).is_file() and stamp(part).read_text() == wanted(part)


def missing() -> str | None:
    """The reason to skip the suite, or None."""
    absent = [part.name for part in PARTS if not is_complete(part)]
    if not absent:
        return None
    return f"the interop cache lacks {', '.join(absent)} (in {CACHE}); `make interop` installs it"


def failure(part: Path) -> Path:
    """Where the installer leaves its last words about a program that could not be installed."""
    return part / ".failed"


def missing_rust() -> str | None:
    """The reason to skip what is tried with the server on the Rust SDK, or None."""
    if is_complete(RUST):
        return None
    why = failure(RUST).read_text() if failure(RUST).is_file() else "`make interop` builds it where cargo is found"
    return f"the server on the Rust SDK is not there: {why}"


def program(name: str) -> Path:
    return CACHE / "programs" / name


def missing_program(name: str) -> str | None:
    """The reason to skip what is tried with one program, or None."""
    part = program(name)
    if is_complete(part):
        return None
    if failure(part).is_file():
        return f"{name} could not be installed: {failure(part).read_text()}"
    return f"{name} is not installed (in {part}); `make interop` installs it"


def pinned_version(name: str) -> str:
    (version,) = json.loads(PROGRAMS[program(name)].read_text())["dependencies"].values()
    return version


def npm_server(name: str) -> str:
    return str(NPM / "node_modules" / "@modelcontextprotocol" / name / "dist" / "index.js")


def python_server(module: str) -> list[str]:
    return [str(SERVERS / "bin" / "python"), "-m", module]
