"""The box of a server as it comes out: what its program may read, write, reach and use, and that in words.

The rule this file keeps: what a box does not name is not allowed. `server.ServerBox` is what a file says, `Confines`
what holds for one server then, with its profile in it; how a machine puts that on is a matter of `upstreams.process`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from toolgate.config.profiles import Profile, profile_of, started

Level = Literal["off", "no-net", "no-write", "strict", "profile"]
LEVELS = ("off", "no-net", "no-write", "strict", "profile")

PROCESSES = 64  # of one server at once, where nothing is said
OPEN_FILES = 256  # of one of its processes: what the kernel keeps for them, and counts by user, is the gateway's too
PROCESSES_OF_BROWSERS, OPEN_FILES_OF_BROWSERS = 128, 1024
MEMORY = 4 * 1024 * 1024 * 1024  # bytes of one of its processes
FILE_SIZE = 4 * 1024 * 1024 * 1024  # bytes of a file that it writes


class Confines(msgspec.Struct, frozen=True, kw_only=True):
    """What one server may do. Beside what is named here a program reads itself and what the system has for all, and
    writes into a folder of its own. `env` is what it is given where its configuration does not say otherwise; `{own}`
    stands for that folder, `{home}` for the user's."""

    level: Level
    package: str = ""  # whose profile is in it
    reads_all: bool = False
    writes_all: bool = False
    net: bool | tuple[int, ...] = False
    sockets: bool = False
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    is_browser: bool = False
    env: Mapping[str, str] = {}
    memory: int = MEMORY
    cpu: float | None = None
    processes: int = PROCESSES
    file_size: int = FILE_SIZE
    open_files: int = OPEN_FILES

    def with_more(
        self,
        read: tuple[str, ...],
        run: tuple[str, ...],
        write: tuple[str, ...],
        net: bool | tuple[int, ...] | None,
        sockets: bool | None,
        memory: int | None,
        cpu: float | None,
        processes: int | None,
        file_size: int | None,
        open_files: int | None,
    ) -> Confines:
        """With what stands beside the level; None: as it is."""
        return msgspec.structs.replace(
            self,
            read=tuple(dict.fromkeys((*self.read, *read))),
            run=tuple(dict.fromkeys((*self.run, *run))),
            write=tuple(dict.fromkeys((*self.write, *write))),
            net=self.net if net is None else net,
            sockets=self.sockets if sockets is None else sockets,
            memory=memory or self.memory,
            cpu=cpu,
            processes=processes or self.processes,
            file_size=file_size or self.file_size,
            open_files=open_files or self.open_files,
        )

    def words(self, parts: str = "") -> str:
        """For operators, on one line; `parts` are those of its program, as far as they are known."""
        if self.net is True:
            reach = "network"
        else:
            reach = f"network: ports {', '.join(map(str, self.net))}" if self.net else "no network"
        reach += ", sockets of other programs" if self.sockets else ""
        program = f"reads its program ({parts})" if parts else "reads its program"
        reads = "reads all files" if self.reads_all else _paths(program, self.read)
        reads += f"; runs {', '.join(self.run)}" if self.run else ""
        writes = "writes all files" if self.writes_all else _paths("writes its own folder", self.write)
        cpu = f", {self.cpu:g} s of processor time" if self.cpu else ""
        each = f"at most {_size(self.memory)} of memory{cpu} and {self.open_files:,} open files each"
        most = f"{each}, {self.processes} processes"
        name = f"profile of {self.package}" if self.package else self.level
        return f"{name}: {reach}; {reads}; {writes}; {most}"


def _paths(first: str, paths: tuple[str, ...]) -> str:
    return " and ".join((first, ", ".join(paths))) if paths else first


def _size(amount: int) -> str:
    unit, length = ("GiB", 1 << 30) if amount >= 1 << 30 and not amount % (1 << 30) else ("MiB", 1 << 20)
    return f"{amount / length:.4g} {unit}"


def of_level(level: Level, command: str, args: tuple[str, ...], env: Mapping[str, str], cwd: str | None) -> Confines:
    """What a level means for a program."""
    package, own = started(command, args, env, cwd) if level == "profile" else ("", ())
    known = profile_of(package)
    profile = known or Profile()
    paths = profile.paths(own, env, cwd)
    return Confines(
        level="strict" if level == "profile" else level,
        package=package if known else "",
        reads_all=level in ("no-net", "no-write"),
        writes_all=level == "no-net",
        net=profile.net or level == "no-write",
        read=tuple(paths.read),
        write=tuple(paths.write),
        run=tuple(paths.run),
        sockets=profile.is_browser,
        is_browser=profile.is_browser,
        env=profile.env,
        processes=PROCESSES_OF_BROWSERS if profile.is_browser else PROCESSES,
        open_files=OPEN_FILES_OF_BROWSERS if profile.is_browser else OPEN_FILES,
    )
