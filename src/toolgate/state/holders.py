"""Who keeps others from opening or writing the store: the programs that hold a lock on one of its files.

The kernel lets everybody lock what he may read, for as long as he likes. The rules this file keeps: only a lock that
keeps others out counts, so whoever reads the store by SQLite is never named, however long he reads; a lock belongs to
the process that has it open now, which need not be the one that took it; and what cannot be found out is nobody.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

LOCKS = "/proc/locks"  # where Linux tells of all locks, but not of whoever has one that was handed on
TO_WRITE = 120  # the byte of `-shm` that SQLite locks while it writes (WAL_WRITE_LOCK); who reads locks those behind it
MOST_FILES = 4096  # open files of one process that are looked at: of a few at a time, its locks are listed at once
LONGEST_LIST = 64 * 1024  # bytes of the locks of one open file

_LOCK = re.compile(rb"\d+: (POSIX|OFDLCK|FLOCK) +\w+ +(READ|WRITE) +(-?\d+) +(\w+:\w+):(\d+) +(\d+) +(\d+|EOF)")


class Holder(NamedTuple):
    """A process, and the file of the store that it has locked."""

    pid: int
    program: str
    file: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.program}) has locked {self.file}"


def holders(file: Path, among: Iterable[int] | None = None) -> list[Holder]:
    """Those that keep others out of the store with this file: of these processes, or of all on this machine, but for
    our own. None where the kernel does not tell (it has to be Linux). It takes a while."""
    locks = _Locks(file)
    pids = [pid for pid in (_all() if among is None else among) if pid != os.getpid()]
    named = [pid for pid in pids if pid in locks.named]
    found = [holder for pid in named if (holder := locks.held_by(pid, True))]
    return found or [holder for pid in pids if (holder := locks.held_by(pid, among is not None))]


class _Locks:
    """Those that keep others out. A file is known by its inode and its device, as the kernel writes that: where we have
    locked it ourselves, it tells."""

    def __init__(self, file: Path) -> None:
        self.named: dict[int, str] = {}  # processes that have taken one, by the kernel's list
        self._ends: dict[int, str] = {}
        self._devices: set[bytes] = set()
        self._name = file.name
        for end in ("", "-shm", ".lock"):
            with contextlib.suppress(OSError):
                about = os.stat(f"{file}{end}")
                self._ends[about.st_ino] = end
                self._devices.add(b"%02x:%02x" % (os.major(about.st_dev), os.minor(about.st_dev)))
        listed = _read(LOCKS, -1)
        ours = (each for each in _LOCK.finditer(listed) if int(each[3]) == os.getpid() and int(each[5]) in self._ends)
        self._devices.update(each[4] for each in ours)
        self.named = {int(each[3]): end for each in _LOCK.finditer(listed) if (end := self._locked(each)) is not None}

    def held_by(self, pid: int, by_any_thread: bool) -> Holder | None:
        """Whether this process holds one. Of a process that hides what it has open, the kernel's list is believed.
        `by_any_thread`: threads may have open what their process has not."""
        end = self._shown(pid, by_any_thread)
        end = self.named.get(pid) if end is None else end or None
        return None if end is None else Holder(pid, _program(pid), f"{self._name}{end.strip()}")

    def _shown(self, pid: int, by_any_thread: bool) -> str | None:
        """What it has locked; " " stands for the file itself. Empty: nothing; None: that cannot be seen."""
        left = MOST_FILES
        try:
            for task in os.listdir(f"/proc/{pid}/task") if by_any_thread else [str(pid)]:
                folder = f"/proc/{pid}/task/{task}/fdinfo"
                for fd in os.listdir(folder):
                    if not left:
                        return None
                    left -= 1
                    for lock in _LOCK.finditer(_read(f"{folder}/{fd}", LONGEST_LIST)):
                        if (end := self._locked(lock)) is not None:
                            return end or " "
        except OSError:
            return None
        return ""

    def _locked(self, lock: re.Match[bytes]) -> str | None:
        """What this lock is on, where it keeps others out."""
        kind, mode, _, device, inode, first, last = lock.groups()
        end = self._ends.get(int(inode)) if device in self._devices else None
        if end == ".lock":
            return end if kind == b"FLOCK" else None
        if end is None or kind == b"FLOCK":
            return None
        if end == "-shm":
            is_kept_out = int(first) <= TO_WRITE and (last == b"EOF" or int(last) >= TO_WRITE)
        else:
            is_kept_out = mode == b"WRITE"
        return end if is_kept_out else None


def _all() -> list[int]:
    try:
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError:
        return []


def _program(pid: int) -> str:
    """Its name, which the program itself may have chosen."""
    name = _read(f"/proc/{pid}/comm", 64).decode(errors="replace").strip()
    return "".join(letter if letter.isprintable() else "?" for letter in name) or "?"


def _read(path: str, most: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError:
        return b""
