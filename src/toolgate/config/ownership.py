"""Whose files and folders are: what other users can write is not ours.

The rules this file keeps: what toolgate takes for its own (the state folder and what lies in it) belongs to its user or
to root, and nobody else can write to it. Of links to such files none is followed. Whatever anybody may have put where a
file is expected, only a file is opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


class NotOurs(PermissionError):
    """A file or folder that another user can change. `why` says how, and what to do about it."""

    def __init__(self, path: str | Path, why: str) -> None:
        super().__init__(errno.EACCES, why, str(path))
        self.why = why


def check(path: Path) -> None:
    """A folder or file of ours, which need not be there. Raises `NotOurs`, or another `OSError`."""
    try:
        found = os.lstat(path)
        _refuse(path, found)
        if stat.S_ISLNK(found.st_mode):
            _refuse(path, os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        pass


def check_file(path: Path) -> None:
    """The same for a file, which must be one, and no link."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(found.st_mode):
        raise NotOurs(path, "is a symbolic link or not a regular file: remove it")
    _refuse(path, found)


def open_folder(top: Path, within: Sequence[str]) -> int:
    """A folder of ours below one that anybody may have named, reached through no link: its descriptor. Raises `NotOurs`
    and `OSError`."""
    path, descriptor = top, os.open(top, _FOLDER)
    try:
        for name in within:
            path /= name
            below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        _refuse(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_in(folder: int, path: Path) -> BinaryIO:
    """A file of ours in such a folder, to be read; its path says the name. Raises `NotOurs` and `OSError`."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW
    if not stat.S_ISREG(os.lstat(path.name, dir_fd=folder).st_mode):
        raise NotOurs(path, "is a symbolic link or not a regular file: remove it")
    descriptor = os.open(path.name, flags, dir_fd=folder)
    try:
        _refuse_unless_file(path, os.fstat(descriptor))
        _refuse(path, os.fstat(descriptor))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def opened(path: Path) -> Generator[BinaryIO]:
    """A file of ours, to be read. Raises `NotOurs` and `OSError`."""
    check(path.parent)
    check_file(path)
    with open_anyones(path, os.O_NOFOLLOW) as file:
        _refuse(path, os.fstat(file.fileno()))
        yield file


def open_anyones(path: Path, flags: int = 0) -> BinaryIO:
    """A file that anybody may have put there, itself or by a link, to be read: a regular one. What else has a name (a
    pipe, a device) may not begin, or not end, or do something when it is opened. How much of it is read is its reader's
    business. Raises `OSError`, and `ValueError` for a path with a NUL."""
    _refuse_unless_file(path, os.stat(path))  # what is no file is not even opened
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | flags)
    try:
        _refuse_unless_file(path, os.fstat(descriptor))  # it may be another by now
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_unless_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def risks(path: Path) -> tuple[str, ...]:
    """What to warn of where people have written a file at this path: who else can write it."""
    found: list[str] = []
    for each in (path, path.absolute().parent):
        try:
            why = problem(os.stat(each))
        except OSError:
            continue
        if why:
            found.append(f"{each} {why}; anyone who can change the configuration can run commands as this user")
    return tuple(found)


def problem(found: os.stat_result) -> str:
    """Why it is not ours alone, and what to do about it; empty where it is. In a folder with the sticky bit others can
    only add files."""
    if found.st_uid not in (os.geteuid(), 0):
        return "belongs to another user: chown it to the user that runs toolgate"
    is_folder = stat.S_ISDIR(found.st_mode)
    if stat.S_ISLNK(found.st_mode) or (is_folder and found.st_mode & stat.S_ISVTX):
        return ""
    return "can be written by other users: chmod go-w" if found.st_mode & 0o022 else ""


def _refuse(path: Path, found: os.stat_result) -> None:
    why = problem(found)
    if not why and stat.S_ISDIR(found.st_mode) and found.st_mode & 0o022:
        why = "can be written by other users: chmod go-w"  # they could plant files here
    if why:
        raise NotOurs(path, why)
