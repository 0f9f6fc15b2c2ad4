"""Projects: a folder with a `.gobby/project.json`, which has an id and a name, and all that lies below it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from toolgate.config import ownership
from toolgate.core import jsonrpc
from toolgate.workspace import git_head

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


def place_of(folder: Path) -> str:
    """Where the sessions of an absolute folder leave what they hand over: the same for all that is below its project,
    and for the worktrees of one repository; for a folder in no project that folder. A project's id is in a file that
    others may copy; what this says is not for them to choose. It reads files, which may take a while."""
    project = project_of(folder)
    real = Path(os.path.realpath(project.folder if project else folder))
    try:
        checkout = git_head.checkout_of(real) if project else None
    except (OSError, ValueError):
        checkout = None
    if checkout is None:
        return str(real)
    top, shared = checkout
    return f"{shared}:{real.relative_to(top)}"
