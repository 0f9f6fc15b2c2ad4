"""A file of the user that other programs read and write as well: read as it is, and replaced as a whole.

The rules this file keeps: the file is whole at every moment; what was written meanwhile by somebody else is not lost; a
link is followed only where it and what it leads to belong to the user, and the link itself stays; its mode stays, and
what is new is for its user alone.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path

from toolgate.config import ownership
from toolgate.config.formats import LONGEST_STATE
from toolgate.config.ownership import NotOurs

MOST_LINKS = 40


class Meanwhile(OSError):
    """Somebody else has written the file since it was read."""


def read(path: Path) -> bytes | None:
    """None where there is no file. Raises `OSError`."""
    try:
        with ownership.open_anyones(followed(path)) as file:
            data = file.read(LONGEST_STATE + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(data) > LONGEST_STATE:
        raise OSError(errno.EFBIG, "has more than 16 MiB", str(path))
    return data


def replace(path: Path, before: bytes | None, after: bytes | None) -> None:
    """Write `after` where `before` was read; None is no file. Raises `OSError`; then all is as it was."""
    where = followed(path)
    mode = 0o600
    try:
        found = os.stat(where)
        if found.st_uid != os.geteuid():
            raise NotOurs(path, "belongs to another user")
        mode = stat.S_IMODE(found.st_mode)
    except (FileNotFoundError, NotADirectoryError):
        where.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if after is None:
        _refuse_if_changed(path, before)
        where.unlink(missing_ok=True)
        return
    unfinished = where.with_name(f".{where.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(after)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        _refuse_if_changed(path, before)
        os.replace(unfinished, where)
    finally:
        unfinished.unlink(missing_ok=True)


def _refuse_if_changed(path: Path, before: bytes | None) -> None:
    if read(path) != before:
        raise Meanwhile(errno.EAGAIN, "was written by another program meanwhile: try again", str(path))


def followed(path: Path, links: int = 0) -> Path:
    """Where the path leads, through links of the user and of root only. Raises `NotOurs`; `OSError` for a circle."""
    parts = Path(os.path.abspath(path)).parts
    here = Path(parts[0])
    for number, name in enumerate(parts[1:], 1):
        there = here / name
        try:
            found = os.lstat(there)
        except (FileNotFoundError, NotADirectoryError):
            return there.joinpath(*parts[number + 1 :])
        if not stat.S_ISLNK(found.st_mode):
            here = there
            continue
        if found.st_uid not in (os.geteuid(), 0):
            raise NotOurs(there, "is a symbolic link of another user")
        if links >= MOST_LINKS:
            raise OSError(errno.ELOOP, "leads in a circle", str(path))
        return followed(here.joinpath(os.readlink(there), *parts[number + 1 :]), links + 1)
    return here
