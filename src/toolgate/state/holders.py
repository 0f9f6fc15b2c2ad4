"""Who keeps others from opening or writing the store, or what else gateways lock: the programs that hold such a lock.

The kernel lets everybody lock what he may read, for as long as he likes. The rules this file keeps: only a lock that
keeps others out counts, so whoever reads the store by SQLite is never named, however long he reads; a lock belongs to
the process that has it open now, which need not be the one that took it; and what cannot be found out is nobody.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

LOCKS = "/proc/locks"  # where Linux tells of all locks, but not of whoever has one that was handed on
# The bytes of `-shm` that SQLite locks while it writes, checkpoints and recovers, so that nobody else may have them
# (WAL_WRITE_LOCK, WAL_CKPT_LOCK, WAL_RECOVER_LOCK); who reads locks those behind them, with others who read.
TO_WRITE, TO_RECOVER = 120, 122
MOST_FILES = 4096  # open files of one process that are looked at: of a few at a time, its locks are listed at once
LONGEST_LIST = 64 * 1024  # bytes of the locks of one open file

_LOCK = re.compile(rb"\d+: (POSIX|OFDLCK|FLOCK) +\w+ +(READ|WRITE) +(-?\d+) +(\w+:\w+):(\d+) +(\d+) +(\d+|EOF)")


class Holder(NamedTuple):
    """A process, and the file that it has locked."""

    pid: int
    program: str
    file: str
    is_of_data: bool  # whether who writes to the store has such a lock, for a while
    is_strange: bool  # a lock that SQLite never takes: it reads behind these bytes, and writes with the other kind

    def __str__(self) -> str:
        return f"process {self.pid} ({self.program}) has locked {self.file}"


def holders(file: Path, among: Iterable[int] | None = None, beside: Iterable[Path] = ()) -> list[Holder]:
    """Those that keep others out of the store with this file, or of files `beside` it, which only gateways lock: of
    these processes, or of all on this machine, but for our own. None where the kernel does not tell (it has to be
    Linux). It takes a while."""
    locks = _Locks(file, beside)
    pids = [pid for pid in (_all() if among is None else among) if pid != os.getpid()]
    named = [pid for pid in pids if pid in locks.named]
    found = [holder for pid in named if (holder := locks.held_by(pid, True))]
    return found or [holder for pid in pids if (holder := locks.held_by(pid, among is not None))]


def is_any_locked(file: Path, beside: Iterable[Path]) -> bool:
    """Whether another process keeps others out of the store with this file, or of a file `beside` it, at this moment.
    It takes no longer than the kernel's list is."""
    return bool(_Locks(file, beside).named)


class _Lock(NamedTuple):
    file: str
    is_strange: bool


class _Locks:
    """Those that keep others out. A file is known by its inode and its device, as the kernel writes that: where we have
    locked it ourselves, it tells."""

    def __init__(self, file: Path, whole: Iterable[Path]) -> None:
        self._names: dict[int, str] = {}  # of files, by inode
        self._tests: dict[int, Callable[[re.Match[bytes]], bool]] = {}
        self._devices: set[bytes] = set()
        self._data = {file.name, f"{file.name}-shm"}
        parts = {file: _is_of_data, Path(f"{file}-shm"): _is_of_index}
        for each, test in (*parts.items(), *((each, _is_whole) for each in whole)):
            with contextlib.suppress(OSError):
                about = os.stat(each)
                self._names[about.st_ino], self._tests[about.st_ino] = each.name, test
                self._devices.add(b"%02x:%02x" % (os.major(about.st_dev), os.minor(about.st_dev)))
        listed = [*_LOCK.finditer(_read(LOCKS, -1))]
        own = os.getpid()
        self._devices.update(each[4] for each in listed if int(each[3]) == own and int(each[5]) in self._names)
        # Processes that have taken one, by the kernel's list.
        self.named = {int(each[3]): lock for each in listed if (lock := self._locked(each)) and int(each[3]) != own}

    def held_by(self, pid: int, by_any_thread: bool) -> Holder | None:
        """Whether this process holds one. Of a process that hides what it has open, the kernel's list is believed.
        `by_any_thread`: threads may have open what their process has not."""
        shown = self._shown(pid, by_any_thread)
        lock = self.named.get(pid) if shown is None else max(shown, key=lambda each: each.is_strange, default=None)
        return Holder(pid, _program(pid), lock.file, lock.file in self._data, lock.is_strange) if lock else None

    def _shown(self, pid: int, by_any_thread: bool) -> list[_Lock] | None:
        """Locks that it has. None: that cannot be seen."""
        found = list[_Lock]()
        left = MOST_FILES
        try:
            for task in os.listdir(f"/proc/{pid}/task") if by_any_thread else [str(pid)]:
                folder = f"/proc/{pid}/task/{task}/fdinfo"
                for fd in os.listdir(folder):
                    if not left:
                        return None
                    left -= 1
                    for lock in _LOCK.finditer(_read(f"{folder}/{fd}", LONGEST_LIST)):
                        if known := self._locked(lock):
                            found.append(known)
        except OSError:
            return None
        return found

    def _locked(self, lock: re.Match[bytes]) -> _Lock | None:
        """What this lock is, where it keeps others out."""
        inode = int(lock[5])
        is_kept_out = lock[4] in self._devices and inode in self._tests and self._tests[inode](lock)
        if not is_kept_out:
            return None
        return _Lock(self._names[inode], self._tests[inode] is _is_of_index and lock[2] == b"READ")


def _is_whole(lock: re.Match[bytes]) -> bool:
    return lock[1] == b"FLOCK"


def _is_of_data(lock: re.Match[bytes]) -> bool:
    return lock[1] != b"FLOCK" and lock[2] == b"WRITE"


def _is_of_index(lock: re.Match[bytes]) -> bool:
    first, last = int(lock[6]), TO_RECOVER if lock[7] == b"EOF" else int(lock[7])
    until = TO_RECOVER if lock[2] == b"READ" else TO_WRITE
    return lock[1] != b"FLOCK" and first <= until and last >= TO_WRITE


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
