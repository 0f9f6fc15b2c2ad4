"""Where the real servers and clients of the interop suite are, and whether they are there.

`install.py` fills the cache, the tests only look. The cache lies outside what is tracked:
`$TOOLGATE_INTEROP_CACHE`, or `.interop` in the repository.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("TOOLGATE_INTEROP_CACHE") or HERE.parent.parent / ".interop").resolve()

NPM = CACHE / "npm"
PY1 = CACHE / "py1"
SERVERS = CACHE / "servers"
PARTS = {NPM: HERE / "package.json", PY1: HERE / "py1.txt", SERVERS: HERE / "servers.txt"}


def wanted(part: Path) -> str:
    """What a complete part says of itself: its pins, and the interpreter that an environment is bound to."""
    digest = hashlib.sha256(PARTS[part].read_bytes()).hexdigest()
    return digest if part == NPM else f"{digest} {sys.version_info[:2]} {sys.base_prefix}"


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


def npm_server(name: str) -> str:
    return str(NPM / "node_modules" / "@modelcontextprotocol" / name / "dist" / "index.js")


def python_server(module: str) -> list[str]:
    return [str(SERVERS / "bin" / "python"), "-m", module]
