"""Which files a program in a box needs to be there: what the system has for all, and those that it consists of.

The rules this file keeps: what is found by looking are the parts of a program and nothing else: those of a language's
prefix, or of the package that a script lies in, without what is hidden there; where neither can be said, it is the one
file, with the libraries beside it. No folder is opened that is a user's home, or holds one.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import pwd
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
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


_OF_ALL = """
/ /bin /dev /dev/shm /etc /home /lib /media /mnt /opt /proc /root /run /srv /sys /tmp /usr /usr/local /var /var/tmp
"""
_WIDE = frozenset(_OF_ALL.split())
_DEEPEST = 4  # interpreters of interpreters
_MOST_ENTRIES = 1000  # of a package's folder that are opened one by one
_NAMED = 4  # entries of a folder, where people are told what is opened

# Of a language's prefix, what belongs to it whatever lies beside it; and what of that a home may have as well.
_PREFIX = ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "include", "share")
_OF_A_HOME_TOO = ("share",)

# What shows that a folder is the prefix of a language, with what it has beside `_PREFIX`; the first say so themselves.
_SURE_PREFIXES: Mapping[str, tuple[str, ...]] = {
    "pyvenv.cfg": ("pyvenv.cfg",),
    "conda-meta/history": ("ssl",),
    "Cellar": ("Cellar", "opt", "etc/ca-certificates", "etc/openssl@3"),
}
_PREFIXES: Mapping[str, tuple[str, ...]] = {
    "lib/python3*": (),
    "lib/node_modules": (),
    "include/node": (),
    "lib/ruby": (),
    "lib/perl5": (),
    "lib/php": (),
    "lib/modules": ("conf", "jmods", "release"),  # Java
}
_BESIDE = ("lib", "lib64", "libexec")  # of a program in `bin` that is of no known language

# By language, what shows the folder of a package; and by what a script shows its language.
_MANIFESTS: Mapping[str, tuple[str, ...]] = {"node": ("package.json",), "python": ("pyproject.toml", "setup.py")}
_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "node": (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"),
    "python": (".py",),
}
_LANGUAGES: Mapping[str, str] = {**dict.fromkeys(("node", "deno", "bun", "tsx"), "node"), "python": "python"}


def homes(own: str) -> tuple[str, ...]:
    """Of the users whom this machine can name, and of this one."""
    known = (each.pw_dir for each in pwd.getpwall())
    return tuple({os.path.realpath(each) for each in (own, *known) if each} - {"/"})


def is_wide(folder: str, homes: Iterable[str], private: str) -> bool:
    """Whether a folder holds more than one program's things: a whole home, or the keys that lie in a hidden folder of
    one, everybody's temporary files, or what is `private` to the gateway."""
    folder = os.path.realpath(folder)
    parent, name = os.path.split(folder)
    if folder in _WIDE or parent == "/home" or holds(folder, os.path.realpath(private)):
        return True
    return any(holds(folder, home) or (parent == home and name.startswith(".")) for home in homes)


def told(parts: Iterable[str]) -> str:
    """What a program consists of beside what the system has, in words: by folders, of each the first few entries."""
    system_wide = system()
    folders: dict[str, list[str]] = {}
    for part in dict.fromkeys(parts):
        if not any(holds(each, part) for each in system_wide):
            folders.setdefault(os.path.dirname(part), []).append(os.path.basename(part))
    return ", ".join(_told_of(folder, names) for folder, names in folders.items())


def _told_of(folder: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        return os.path.join(folder, names[0])
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return f"{folder}/{{{', '.join([*names[:_NAMED], *more])}}}"


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
    """Looks for what a program consists of; no home and nothing of what is `private` lies in what it finds, and no
    configuration (`source`) beside it."""

    def __init__(self, homes: Sequence[str], private: str, path: str | None, source: str = "") -> None:
        self._homes = homes
        self._private = private
        self._path = path
        self._source = os.path.realpath(source) if source else ""

    def parts(self, program: str, args: Sequence[str], cwd: str | None) -> list[str]:
        """Files and folders of a program that stands at `program`: its own, those of what interprets it, and those of
        the script that it is to run."""
        found = list(self._of_program(program, _DEEPEST))
        at = _script(program, args, cwd or "")
        if at is not None:
            script, by = os.path.abspath(os.path.join(cwd or "", args[at])), os.path.basename(program)
            found += [*self._of_script(script, by), *self._of_script(os.path.realpath(script), by)]
        return list(dict.fromkeys(found))

    def is_wide(self, folder: str) -> bool:
        return is_wide(folder, self._homes, self._private)

    def _of_program(self, program: str, left: int) -> Iterator[str]:
        yield from self._of_binary(program)
        real = os.path.realpath(program)
        if real != program:  # the folder around it is its own if it is a whole language's
            yield from self._of_binary(real) if _is_interpreter(real) or _above_modules(real) else [real]
        there = self._found(interpreter_of(program), program) if left else None
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

    def _of_binary(self, path: str) -> list[str]:
        folder = os.path.dirname(path)
        if _above_modules(path) or os.path.basename(folder) not in ("bin", "sbin"):
            return self._of_script(path)
        prefix = os.path.dirname(folder)
        if found := self._of_language(prefix):
            return found
        beside = () if self.is_wide(prefix) else _BESIDE
        return [*self._of_script(path), *self._entries(prefix, beside)]

    def _of_language(self, prefix: str) -> list[str]:
        """What is opened of the prefix of a language, if this is one."""
        is_wide = self.is_wide(prefix)
        markers = _SURE_PREFIXES if is_wide else {**_SURE_PREFIXES, **_PREFIXES}
        shown = [own for marker, own in markers.items() if glob.glob(f"{glob.escape(prefix)}/{marker}")]
        names = [*_PREFIX, *(name for own in shown for name in own)] if shown else []
        return self._entries(prefix, [name for name in names if not (is_wide and name in _OF_A_HOME_TOO)])

    def _of_script(self, path: str, by: str = "") -> list[str]:
        """`by` is what runs it, where its first line does not say."""
        if modules := _above_modules(path):
            return self._entries(modules, ("node_modules", "package.json"))
        language = _language(path, by)
        folder = os.path.dirname(path)
        while language:
            manifests = [name for name in _MANIFESTS[language] if os.path.isfile(os.path.join(folder, name))]
            if manifests and self.is_wide(folder):
                return [path, *self._entries(folder, (*manifests, "node_modules"))]
            if manifests:
                return [path, *self._of_package(folder, manifests, path)]
            if self.is_wide(folder):
                break
            folder = os.path.dirname(folder)
        return [path]

    def _of_package(self, folder: str, manifests: Sequence[str], script: str) -> list[str]:
        """All that is not hidden, since keys and histories are (`.env`, `.git`); and what the script lies in."""
        names: list[str] = []
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, _MOST_ENTRIES + 1)]
        if not names or len(names) > _MOST_ENTRIES:
            names = [*manifests, "node_modules"]
        around = os.path.relpath(script, folder).split(os.sep)[0]
        shown = (name for name in sorted(names) if not name.startswith("."))
        return self._entries(folder, dict.fromkeys((*shown, around)))

    def _entries(self, folder: str, names: Iterable[str]) -> list[str]:
        """Those that are there. No links, since a box opens what they lead to: where that is shown, it is without."""
        real = os.path.realpath(folder)
        found = (
            os.path.join(folder, name)
            for name in names
            if os.path.realpath(os.path.join(folder, name)) == os.path.join(real, name) != self._source
        )
        return [path for path in found if os.path.exists(path) and not self.is_wide(path)]


def _language(path: str, by: str) -> str | None:
    """Of a script, by what runs it; else by the end of its name."""
    named = interpreter_of(path)
    words = [os.path.basename(each) for each in (by, *named[:2]) if each]
    found = (_LANGUAGES.get(each.rstrip("0123456789.")) for each in words)
    ends = (language for language, suffixes in _SUFFIXES.items() if path.endswith(suffixes))
    return next(filter(None, (*found, *ends)), None)


def _is_interpreter(program: str) -> bool:
    return os.path.basename(program).rstrip("0123456789.") in INTERPRETERS


def _above_modules(path: str) -> str | None:
    """The folder whose `node_modules` it was installed into, with all that stands beside it."""
    before, is_in, _ = os.path.abspath(path).partition("/node_modules/")
    return before if is_in else None


def interpreter_of(program: str) -> list[str]:
    try:
        with ownership.open_anyones(Path(program)) as file:
            first = file.readline(512)
    except (OSError, ValueError):
        return []
    return os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
