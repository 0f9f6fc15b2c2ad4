"""The repository of a folder's git checkout and the commit that it is at, read from git's own files: no program is
started.

The owner of the checkout wrote them, and they say where to read on. So each is read up to a size, and what comes out is
the id of a commit, a folder, or nothing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from toolgate.config import ownership

MOST_PARENTS = 64  # folders above one that are looked into
LONGEST = 4096  # bytes of a small file; a longer one is none of git's
LONGEST_PACKED = 16 * 1024 * 1024  # of `packed-refs`: a hundred thousand branches and tags
MOST_LINKS = 5  # names that stand for names

_commit = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_name = re.compile(r"refs/(?!.*\.\.)[^\x00-\x20\x7f~^:?*\[\\]+")


def commit_of(folder: Path) -> str | None:
    """The commit of HEAD in the checkout that a folder lies in; None where there is no checkout, or no commit. It reads
    files, which may take a while."""
    for each in (folder, *folder.parents)[:MOST_PARENTS]:
        git = _git_folder(each / ".git")
        if git:
            return _commit_of(git)
    return None


def checkout_of(folder: Path) -> tuple[Path, Path] | None:
    """The checkout that a real folder lies in, and the folder that it shares with the other worktrees of its
    repository. None where there is no checkout, or nothing but the checkout's own files says of which repository it is:
    those may name any. So `.git` is a folder itself, or the repository names this worktree in turn."""
    for each in (folder, *folder.parents)[:MOST_PARENTS]:
        git = each / ".git"
        if git.is_symlink():
            return None
        if git.is_dir():
            return each, git
        if git.exists():
            found = _git_folder(git)
            shared = found and _repository(Path(os.path.realpath(found)), git)
            return (each, shared) if shared else None
    return None


def _repository(git: Path, of: Path) -> Path | None:
    """The repository that keeps `git` for the worktree whose `.git` is `of`; None where it does not say so."""
    common, back = _read(git / "commondir"), _read(git / "gitdir")
    if not common or not back or os.path.realpath(git / _decoded(back)) != str(of):
        return None
    shared = Path(os.path.realpath(git / _decoded(common)))
    return shared if git.parent == shared / "worktrees" else None


def _git_folder(path: Path) -> Path | None:
    """Where git keeps what belongs to a checkout: the folder `.git`, or another that a file of this name leads to, as
    in a worktree or a submodule."""
    try:
        if path.is_dir():
            return path
    except OSError:
        return None
    leads = _read(path)
    if not leads.startswith(b"gitdir: "):
        return None
    return path.parent / _decoded(leads.removeprefix(b"gitdir: "))


def _commit_of(git: Path) -> str | None:
    common = _read(git / "commondir")
    shared = git / _decoded(common) if common else git
    said = _read(git / "HEAD")
    for _ in range(MOST_LINKS):
        if _commit.fullmatch(said):
            return said.decode()
        name = _decoded(said.removeprefix(b"ref: "))
        if not said.startswith(b"ref: ") or not _name.fullmatch(name):
            return None
        said = _read(git / name) or _read(shared / name) or _packed(shared / "packed-refs", name)
    return None


def _packed(path: Path, name: str) -> bytes:
    """Its lines are `COMMIT NAME`."""
    packed = b"\n" + _read(path, LONGEST_PACKED) + b"\n"
    end = packed.find(b" " + name.encode() + b"\n")  # without a list of its lines
    return packed[packed.rfind(b"\n", 0, end) + 1 : end] if end >= 0 else b""


def _read(path: Path, most: int = LONGEST) -> bytes:
    """A file without the space around it; nothing where it cannot be read, or is longer."""
    try:
        with ownership.open_anyones(path) as file:
            found = file.read(most + 1)
    except (OSError, ValueError):
        return b""
    return found.strip() if len(found) <= most else b""


def _decoded(path: bytes) -> str:
    return path.decode(errors="surrogateescape")
