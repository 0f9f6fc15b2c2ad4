"""Which files a program in a box needs to be there: what the system has for all, and those that it consists of.

The rule this file keeps: what is found by looking is a folder that holds a program and nothing else; where that cannot
be said, it is the one file.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from toolgate.config import ownership
from toolgate.config.profiles import INTERPRETERS
from toolgate.core.redaction import excerpt

log = logging.getLogger(__name__)

# Programs and libraries that every user of this machine may read and run, beside those below /usr.
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/nix/store")

# What programs read to find their way: hosts, certificates, time zones, users by name; and of the machine how much
# there is of it. None of it tells of other programs.
_ETC = """
ca-certificates ca-certificates.conf fonts gai.conf gitconfig group host.conf hosts java-17-openjdk java-21-openjdk
ld.so.conf ld.so.conf.d ld.so.preload locale.alias localtime mime.types nsswitch.conf os-release passwd protocols
resolv.conf services timezone xml
pki/ca-trust/extracted pki/java pki/tls/cert.pem pki/tls/certs pki/tls/openssl.cnf
ssl/ca-bundle.pem ssl/cert.pem ssl/certs ssl/openssl.cnf
"""
_PROC = """
cpuinfo filesystems loadavg meminfo self stat sys/fs/inotify sys/kernel/osrelease sys/kernel/random
sys/vm/overcommit_memory uptime version
"""
TOLD = (
    *(f"/etc/{name}" for name in _ETC.split()),
    *(f"/proc/{name}" for name in _PROC.split()),
    *("/sys/devices/system/cpu", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage"),
    *("/var/cache/fontconfig", "/var/lib/ca-certificates"),
)

# What browsers read beside that: their settings for all users, and what their processes are to each other.
BROWSERS = (
    "/proc",
    "/etc/chromium",
    "/etc/chromium.d",
    "/etc/chrome",
    "/etc/opt/chrome",
    "/etc/firefox",
    "/opt/google/chrome",
)


def system(usr: str = "/usr") -> tuple[str, ...]:
    """Programs and libraries that every user of this machine may read and run; no configuration, as in /usr/local/etc,
    where services keep keys."""
    return (*_within(usr, "etc", "local"), *_within(os.path.join(usr, "local"), "etc"), *_SYSTEM)


def _within(folder: str, *without: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name not in without]
    except OSError:
        return []


_ROOTS = ("package.json", "pyproject.toml", "setup.py", "go.mod", "Cargo.toml")
_OF_ALL = """
/ /bin /dev /dev/shm /etc /home /lib /media /mnt /opt /proc /root /run /srv /sys /tmp /usr /usr/local /var /var/tmp
"""
_WIDE = frozenset(_OF_ALL.split())
_DEEPEST = 4  # interpreters of interpreters


def is_wide(folder: str, home: str, private: str) -> bool:
    """Whether a folder holds more than one program's things: a whole home, or the keys that lie in a hidden folder of
    one, everybody's temporary files, or what is `private` to the gateway."""
    folder, home, private = (os.path.realpath(each) for each in (folder, home, private))
    parent, name = os.path.split(folder)
    is_hidden = parent == home and name.startswith(".")
    return folder in _WIDE or is_hidden or holds(folder, home) or holds(folder, private)


def holds(folder: str, path: str) -> bool:
    return os.path.commonpath((folder, path)) == folder


def from_here(command: str, args: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """A command and its script that are named from our own folder, by their whole paths: it starts in another one."""
    at = _script(command, args, "")
    command = os.path.abspath(command) if os.path.dirname(command) else command
    return command, tuple(os.path.abspath(each) if index == at else each for index, each in enumerate(args))


def _script(program: str, args: Sequence[str], folder: str) -> int | None:
    """Which argument is the file that an interpreter is to run."""
    if not _is_interpreter(program):
        return None
    named = (at for at, each in enumerate(args) if not each.startswith("-"))
    return next((at for at in named if os.path.isfile(os.path.join(folder, args[at]))), None)


class Programs:
    """Looks for what a program consists of; `home` and `private` lie in nothing that it finds."""

    def __init__(self, home: str, private: str, path: str | None) -> None:
        self._home = home
        self._private = private
        self._path = path

    def parts(self, program: str, args: Sequence[str], cwd: str | None) -> list[str]:
        """Files and folders of a program that stands at `program`: its own, those of what interprets it, and those of
        the script that it is to run."""
        found = list(self._of_program(program, _DEEPEST))
        at = _script(program, args, cwd or "")
        if at is not None:
            script = os.path.abspath(os.path.join(cwd or "", args[at]))
            found += [*self._of_script(script), *self._of_script(os.path.realpath(script))]
        return list(dict.fromkeys(found))

    def _of_program(self, program: str, left: int) -> Iterator[str]:
        yield from self._of_binary(program)
        real = os.path.realpath(program)
        if real != program:  # the folder around it is its own if it is a whole language's
            yield from self._of_binary(real) if _is_interpreter(real) or _above_modules(real) else [real]
        there = self._found(_interpreter_of(program), program) if left else None
        if there:
            yield from self._of_program(there, left - 1)

    def _found(self, words: Sequence[str], program: str) -> str | None:
        """What interprets a program by its first line, which whoever wrote it has chosen: it may name what is in PATH,
        what all users may run, and what lies beside it. Of anything else nothing is opened."""
        if not words:
            return None
        name = words[1] if os.path.basename(words[0]) == "env" and len(words) > 1 else words[0]
        if not os.path.dirname(name):
            return shutil.which(name, path=self._path)
        named = os.path.normpath(name)
        folder, last = os.path.split(named)
        beside = {os.path.dirname(os.path.abspath(each)) for each in (program, os.path.realpath(program))}
        if folder in beside or named == shutil.which(last, path=self._path):
            return shutil.which(named)
        real = os.path.realpath(name)
        if any(holds(each, real) for each in system()):
            return shutil.which(real)
        log.warning(
            "%s: its first line names %s, which its box does not show; `run` of a box can name it",
            program,
            excerpt(name),
        )
        return None

    def _of_binary(self, path: str) -> Iterable[str]:
        folder = os.path.dirname(path)
        if (modules := _above_modules(path)) and not self._is_wide(modules):
            return [modules]
        prefix = os.path.dirname(folder)
        if os.path.basename(folder) in ("bin", "sbin", "Scripts") and not self._is_wide(prefix):
            return [prefix]
        return self._of_script(path) if os.path.splitext(path)[1] else [path]

    def _of_script(self, path: str) -> Iterable[str]:
        if (modules := _above_modules(path)) and not self._is_wide(modules):
            return [modules]
        folder = os.path.dirname(path)
        while not self._is_wide(folder):
            if any(os.path.exists(os.path.join(folder, name)) for name in _ROOTS):
                return [folder]
            folder = os.path.dirname(folder)
        return [path]

    def _is_wide(self, folder: str) -> bool:
        return is_wide(folder, self._home, self._private)


def _is_interpreter(program: str) -> bool:
    return os.path.basename(program).rstrip("0123456789.") in INTERPRETERS


def _above_modules(path: str) -> str | None:
    """The folder whose `node_modules` it was installed into, with all that stands beside it."""
    before, is_in, _ = os.path.abspath(path).partition("/node_modules/")
    return before if is_in else None


def _interpreter_of(program: str) -> list[str]:
    try:
        with ownership.open_anyones(Path(program)) as file:
            first = file.readline(512)
    except (OSError, ValueError):
        return []
    return os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
