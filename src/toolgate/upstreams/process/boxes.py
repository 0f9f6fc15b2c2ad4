"""How programs of servers start: where, and in which box; from what a configuration says to what is put on here.

The rules this file keeps: what a server may write is its own folder, which holds nothing of others, and what its
configuration names; and no box but one that reads all files shows the folder in which the gateway keeps its state.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from toolgate.config import Config, Server, state_folder
from toolgate.config.boxes import Confines
from toolgate.core import search_path
from toolgate.core.background import rounds
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.services import Swap, sets
from toolgate.upstreams.process import confinement, folders, grants, kept, packages, programs, shims
from toolgate.upstreams.process.confinement import Box
from toolgate.upstreams.process.programs import Programs
from toolgate.upstreams.process.supervisor import Launch, Supervisor

log = logging.getLogger(__name__)

_NOT_LET = (errno.EACCES, errno.EPERM, errno.EROFS)
BOXES, STARTS = "boxes", "starts"  # the folders of servers: with a box, and without one
PACKAGES = "packages"
DAY = 86_400.0  # seconds
SETTLED = 60.0  # seconds: no command but those that serve takes so long

# What a program in a box inherits of the gateway's environment, beside what its configuration gives it; the second, of
# those with a network, may have the password of a proxy in it.
INHERITED = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TERM", "TZ", "USER", "LOGNAME", "SHELL")
OF_THE_NETWORK = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)


class Boxes:
    """Makes them ready; `prepared` has it go by another configuration, for programs that start from then on."""

    def __init__(self, config: Config, supervisor: Supervisor, clock: Clock) -> None:
        self._supervisor = supervisor
        self._clock = clock
        self._is_lenient = not config.sandbox.require_boxes
        self._source = config.source
        self._state = state_folder(config, supervisor.environ)
        self._packages = packages.Packages(supervisor, clock, self._state.absolute() / PACKAGES)

    def prepared(self, config: Config) -> Swap:
        return sets(self, _is_lenient=not config.sandbox.require_boxes, _source=config.source)

    async def launch(self, server: Server, holder: str = "") -> Launch:
        """What starts a server. `holder`: whose connection it is, where it is not for all. Raises `Fault`."""
        if server.package_hash:
            server = await asyncio.to_thread(self._of_kept, server)
        confines = server.confines
        if not confines:
            return await self._without_box(server, holder)
        command, args, folders, interpreter = server.command, server.args, (), ""
        if split := packages.split_of(server.name, command, args):
            whose = packages.Whose(server.id, server.name)
            found = await self._packages.installed(whose, command, split, server.env, server.fetch_timeout)
            command, args, folders, interpreter = found.program, found.args, found.folders, found.interpreter
        own = self._own_folder(server, holder)
        home = str(own) if not confines.reads_all else None
        cwd = os.path.abspath(server.cwd) if server.cwd else home
        if home and not server.cwd:
            command, args = programs.from_here(command, args)
        elif not server.cwd and any(await self._takers(server, command, args)):
            command, args, cwd = *_from_here(command, args), str(own)
        env = {
            **{name: value.format(own=own, home=self._home) for name, value in confines.env.items()},
            **({"HOME": home} if home else {}),
            **({} if confines.writes_all else {"TMPDIR": str(own / "tmp")}),
            **server.env,
        }
        parts: Sequence[str] = ()
        if not confines.reads_all:
            commands = [(command, args), *([(interpreter, ())] if interpreter else [])]
            parts = [*folders, *await asyncio.to_thread(self._parts, server, commands, cwd, env)]
        box = self._box(server, confines, parts, own)
        if self._is_lenient and (lacking := confinement.missing(box)):
            log.warning("%s runs in a box that is not whole: this machine lacks %s", server.name, "; ".join(lacking))
        return Launch(command, args, env, cwd, box.packed(), programs.told(parts))

    async def tidy(self, servers: Callable[[], Iterable[Server]]) -> None:
        """Each day, have packages removed that no server uses any more. `servers`: those that are configured then."""

        async def look() -> None:
            configured = tuple(servers())
            if removed := await asyncio.to_thread(self._remove_unused, configured, self._clock.wall()):
                days = packages.UNUSED / DAY
                log.info("removed what was fetched for servers and not used for %g days: %d folders", days, removed)

        await rounds(self._clock, DAY, look, "remove packages that no server uses", first=SETTLED)

    def _remove_unused(self, configured: Iterable[Server], now: float) -> int:
        """How many were removed. It reads all of each package that has a hash."""
        named = {place for server in configured for place in self._places_of(server)}
        return self._packages.remove_unused(named, now)

    def _of_kept(self, server: Server) -> Server:
        """The same, by the file that was compared with its hash. Raises `Fault`."""
        folder = self._state.absolute() / PACKAGES
        args = kept.args_of(server.name, server.command, server.args, server.package_hash, folder)
        return msgspec.structs.replace(server, args=args)

    def _places_of(self, server: Server) -> set[str]:
        return self._fetched_for(server) | ({kept.place_of(server.package_hash)} if server.package_hash else set[str]())

    def _fetched_for(self, server: Server) -> set[str]:
        try:
            server = self._of_kept(server) if server.package_hash and server.confines else server
            split = packages.split_of(server.name, server.command, server.args) if server.confines else None
        except Fault:  # it does not start, either
            return set()
        return self._packages.places(server.command, split, server.env) if split else set()

    async def _without_box(self, server: Server, holder: str) -> Launch:
        command, args = server.command, server.args
        takers, found = await self._takers(server, command, args)
        if not takers and not found:
            return Launch(command, args, server.env, server.cwd)
        own = self._own_folder(server, holder, STARTS)
        command, args = _from_here(command, args)
        goes_back = folders.goes_back(takers) and folders.OF_NPM.issuperset(found)
        env = dict(folders.back_to(os.getcwd(), own)) if goes_back else dict[str, str]()
        start = await asyncio.to_thread(folders.below_none_of_others, own)
        return Launch(command, args, {**env, **server.env}, start)

    async def _takers(self, server: Server, command: str, args: Sequence[str]) -> tuple[list[str], list[str]]:
        """What may take code from the gateway's folder, and the shims; none where that folder is meant."""
        if server.cwd or self._is_meant(server):
            return [], []
        found = await asyncio.to_thread(shims.named, command, args, self._path(server.env))
        return folders.takers(command, args), found

    def _is_meant(self, server: Server) -> bool:
        """Whether the gateway's folder is that of the configuration which has this server."""
        here = self._source and os.path.realpath(os.path.dirname(self._source)) == os.path.realpath(".")
        return bool(here) and server.by_operator

    def _own_folder(self, server: Server, holder: str, kind: str = BOXES) -> Path:
        """Of a server, or of what one principal has of it. What one in a box leaves there may be code: no other of that
        name, without a box, starts where it lies."""
        whose = f"-{hashlib.sha256(holder.encode()).hexdigest()[:16]}" if holder and server.scope != "shared" else ""
        folder = self._state.absolute() / kind / f"{server.id}{whose}"
        try:
            for each in (folder.parent, folder):
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_tmp(folder / "tmp")
        except OSError as error:
            message = f"{server.name} was not started: its folder {folder} cannot be made: {error.strerror}"
            hint = "give this user write access" if error.errno in _NOT_LET else f"remove {error.filename or folder}"
            raise Fault("SERVER_FAILED", message, reach="not_sent", hint=hint) from None
        return folder

    def _parts(
        self, server: Server, commands: Sequence[tuple[str, Sequence[str]]], cwd: str | None, env: Mapping[str, str]
    ) -> list[str]:
        """What these command lines consist of. Looks at files, and at who has a home here."""
        path = self._path(env)
        looks = Programs(programs.homes(self._home), str(self._state), path, self._source)
        found: list[str] = []
        for command, args in commands:
            if os.path.dirname(command):
                command = os.path.abspath(os.path.join(cwd or "", command))
            program = shutil.which(command, path=path)
            found += looks.parts(program, args, cwd) if program else []
        return [*found, *([cwd] if cwd and server.cwd and not looks.is_wide(cwd) else [])]

    def _path(self, env: Mapping[str, str]) -> str:
        """Of a program that gets these variables."""
        return search_path.absolute(env.get("PATH") or self._supervisor.environ.get("PATH") or os.defpath)

    @property
    def _home(self) -> str:
        return self._supervisor.environ.get("HOME") or os.path.expanduser("~")

    def _box(self, server: Server, confines: Confines, parts: Sequence[str], own: Path) -> Box:
        everything = ("/",)
        write = [str(own), *(self._place(server, each) for each in confines.write)]
        run = [*(self._place(server, each) for each in confines.run), *parts]
        run += programs.BROWSERS if confines.is_browser else ()
        read = [self._place(server, each) for each in confines.read]
        try:
            write = grants.writable(write)
            folders = [os.path.realpath(each) for each in write]
            read = grants.own_rule(read, folders)
            run = grants.own_rule(run, folders, covered=programs.system())
        except grants.LedAstray as error:
            message = f"{server.name} was not started: {error} leads out of a folder that it may write"
            hint = "look who has put that link there, or name what it leads to"
            raise Fault("SERVER_FAILED", message, reach="not_sent", hint=hint) from None
        ports = () if isinstance(confines.net, bool) else confines.net
        reach = (*INHERITED, *OF_THE_NETWORK, *(() if not confines.reads_all else ("HOME",)))
        return Box(
            read=everything if confines.reads_all else (*programs.TOLD, *read),
            write=everything if confines.writes_all else write,
            execute=everything if confines.reads_all else (*programs.system(), *run),
            network="all" if confines.net is True else "tcp" if ports else "none",
            ports=ports,
            unix=confines.sockets,
            modes=confines.writes_all or None,
            inherits=reach if confines.net else tuple(name for name in reach if name not in OF_THE_NETWORK),
            memory=confines.memory,
            cpu=round(confines.cpu) or 1 if confines.cpu else None,
            processes=confines.processes,
            file_size=confines.file_size,
            open_files=confines.open_files,
            lenient=self._is_lenient,
        )

    def _place(self, server: Server, path: str) -> str:
        """Raises `Fault` where it would show what the gateway keeps."""
        place = os.path.join(self._home, path[2:]) if path.startswith("~/") else path
        if programs.holds(os.path.realpath(place), os.path.realpath(self._state)):
            message = f"{server.name} was not started: {path}, in its box, holds the gateway's own state"
            hint = "name a folder that does not hold it; a file that the server writes needs a folder of its own"
            raise Fault("SERVER_FAILED", message, reach="not_sent", hint=hint)
        return place


def _from_here(command: str, args: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """A command line that is started in another folder than ours."""
    return os.path.abspath(command) if os.path.dirname(command) else command, folders.from_here(args)


def _make_tmp(folder: Path) -> None:
    """The server may write what is above it, and may have put anything there. Raises `OSError`."""
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        folder.mkdir(mode=0o700)
