"""A project's file of tasks: opened by one process at a time, read, and replaced as a whole.

The rules this file keeps: the file is whole at every moment, whatever ends us; and files are ours, reached through no
link.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from toolgate.config import ownership
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.workspace import jsonl, tasks
from toolgate.workspace.folders import Folders
from toolgate.workspace.jsonl import Unreadable
from toolgate.workspace.pace import Pace
from toolgate.workspace.projects import Project

TRIES = 50  # to be alone with a file, a tenth of a second apart
CHUNK = 1024 * 1024  # bytes that are hashed at once

Result = TypeVar("Result")


class TaskFile(NamedTuple):
    """An open folder, and the file of tasks in it."""

    project: Project
    path: Path
    folder: int
    key: str
    disk: Folders

    async def in_thread(
        self,
        work: Callable[[], Result],
        pace: Pace | None = None,
        unwanted: Callable[[Result], object] | None = None,
    ) -> Result:
        """As `Folders.in_thread`."""
        return await _in_thread(self.disk, self.project, work, pace, unwanted)

    def read(self) -> BinaryIO:
        file = ownership.open_in(self.folder, self.path)
        if os.fstat(file.fileno()).st_size > jsonl.LARGEST:
            file.close()
            raise Unreadable(f"it is larger than {jsonl.LARGEST:,} bytes")
        return file

    @property
    def note(self) -> Path:
        return self.path.with_name(f"{self.path.stem}_meta.json")


@asynccontextmanager
async def opened(project: Project, within: Path, clock: Clock, disk: Folders) -> AsyncGenerator[TaskFile]:
    """The file of a project, `within` its folder, for one process at a time. Raises `Fault`."""
    path = project.folder / within
    try:
        opening = partial(ownership.open_folder, project.folder, within.parent.parts)
        folder = await _in_thread(disk, project, opening, unwanted=os.close)
    except OSError as error:
        raise unusable(path.parent, error) from None
    try:
        for _ in range(TRIES):
            try:
                await _in_thread(disk, project, partial(fcntl.flock, folder, fcntl.LOCK_EX | fcntl.LOCK_NB))
                break
            except BlockingIOError:
                await clock.sleep(0.1)
        else:
            raise Fault("TIMEOUT", f"another gateway is still reading or writing {path}", reach="not_sent")
        yield TaskFile(project, path, folder, hashlib.sha256(os.fsencode(path)).hexdigest(), disk)
    except OSError as error:
        raise unusable(path, error) from None
    except Unreadable as error:
        raise tasks.refused(f"{path}: {error}. Nothing was imported or written") from None
    finally:
        disk.afterwards(project.folder, partial(os.close, folder))


async def _in_thread(
    disk: Folders,
    project: Project,
    work: Callable[[], Result],
    pace: Pace | None = None,
    unwanted: Callable[[Result], object] | None = None,
) -> Result:
    steps = (lambda: pace.steps) if pace else None
    return await disk.in_thread(str(project.folder), project.folder, work, steps, unwanted)


def unusable(path: Path, error: OSError) -> Fault:
    if isinstance(error, ownership.NotOurs):
        why = error.why
    elif error.errno in (errno.ELOOP, errno.ENOTDIR):
        why = "is a link or not a folder; links are not followed"
    else:
        why = f"cannot be used: {error.strerror}"
    return tasks.refused(f"{error.filename if isinstance(error, ownership.NotOurs) else path} {why}")


# In threads.


def hash_of(file: TaskFile, pace: Pace) -> str:
    """Of what stands there; empty where there is no file."""
    found = hashlib.sha256()
    try:
        with file.read() as opened:
            while chunk := opened.read(CHUNK):
                pace.step()
                found.update(chunk)
    except FileNotFoundError:
        return ""
    return found.hexdigest()


@contextlib.contextmanager
def replacing(folder: int, name: str, is_wanted: Callable[[], bool] = lambda: True) -> Generator[BinaryIO]:
    """What is written in the block stands under that name when the block is left, whole and on the disk, where it
    `is_wanted` then; what a process has left that was ended while it wrote is swept up. To be used by one process at a
    time."""
    for left in os.listdir(folder):
        if left.startswith(f".{name}.") and left.endswith(".part"):
            os.unlink(left, dir_fd=folder)
    fresh = f".{name}.{secrets.token_hex(4)}.part"
    try:
        with open(
            os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder), "wb"
        ) as file:
            yield file
            if not is_wanted():
                return
            file.flush()
            os.fsync(file.fileno())
        os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=folder)
