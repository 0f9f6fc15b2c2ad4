"""Projects: a folder with a `.gobby/project.json`, which has an id and a name, and all that lies below it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from toolgate.config import ownership
from toolgate.core import jsonrpc

FILE = Path(".gobby", "project.json")
LONGEST = 64 * 1024  # bytes of that file; a longer one is none
MOST_PARENTS = 64  # folders above one that are looked into


class Project(msgspec.Struct, frozen=True):
    id: str
    name: str
    folder: Path


class _ProjectFile(msgspec.Struct):
    id: str
    name: str = ""


def project_of(folder: Path) -> Project | None:
    """The project that an absolute folder lies in, the innermost of several; None where it lies in none."""
    for each in (folder, *folder.parents)[:MOST_PARENTS]:
        try:
            with ownership.open_anyones(each / FILE) as file:
                written = msgspec.json.decode(file.read(LONGEST), type=_ProjectFile)
        except (OSError, ValueError, *jsonrpc.UNREADABLE):
            continue
        if written.id:
            return Project(written.id, written.name or each.name, each)
    return None
