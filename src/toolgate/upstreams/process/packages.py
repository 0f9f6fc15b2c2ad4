"""`npx` and `uvx` in two steps: the package is fetched outside the box, then its program starts inside.

The rules this file keeps: outside the box nothing of the package runs, neither its scripts nor its programs, by
whatever name, nor what its Python would load when it starts; of what it depends on, only what a registry has is
fetched. The runner is the one in the gateway's PATH, with the gateway's variables and a few of the server's; and it
starts in an empty folder, so that no file of a server says how packages are fetched. A server that says itself where
packages come from, or how they are reached, has a cache of its own. What no server has used for a month, and none
that is configured names, is removed: it may be of another configuration, so the names alone do not say. What many
starts want at the same time is fetched once, and no more when none of them wants it.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import glob
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Coroutine, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from toolgate.config import ownership
from toolgate.config.profiles import RUNNERS, Split, bare
from toolgate.core import counting, jsonrpc
from toolgate.core.clock import Clock
from toolgate.core.concurrency import FairLimit
from toolgate.core.fault import Fault, let_go
from toolgate.core.redaction import excerpt
from toolgate.upstreams.process import folders, kept
from toolgate.upstreams.process.programs import holds
from toolgate.upstreams.process.supervisor import Supervisor

AT_ONCE = 16  # fetches; each is a process of some 100 MB
UNUSED = 30 * 86_400.0  # seconds after which something is removed
MOST_REMOVED = 100  # in one go
LONGEST_OUTPUT = 256 * 1024  # bytes
LONGEST_REASON = 2000  # characters of what a runner has said
LONGEST_FILE, MOST_VALUES = 8 * 1024 * 1024, 100_000  # bytes and values of one that npm or a package has written
_DESCRIPTION, _LIST = "package.json", ".package-lock.json"

_SOURCES = ("--registry", "--index", "--index-url", "--extra-index-url", "--default-index")

# Of a server's variables those that say where packages are, and how they are reached. Others would name programs that
# are run, caches and files of settings in which programs are named.
_OF_NPM_ALONE = (
    r"registry|@[^:]+:registry|//.*|offline|prefer_offline|strict_ssl|(?:https_)?proxy|noproxy|cafile|before"
)
_OF_UV_ALONE = r"(?:DEFAULT_|EXTRA_)?INDEX(?:_\w+)?|OFFLINE|PYTHON_DOWNLOADS|EXCLUDE_NEWER|HTTP_TIMEOUT|SYSTEM_CERTS"
_OF_A_RUNNER = re.compile(
    rf"(?i:npm_config_(?:{_OF_NPM_ALONE}))|UV_(?:{_OF_UV_ALONE})"
    r"|SSL_CERT_(?:FILE|DIR)|NODE_EXTRA_CA_CERTS|(?i:(?:https?|no)_PROXY)"
)

# A whole path and a word of the shell's own: a package may bring programs of any name, which come first in PATH.
_SHELL = "/bin/sh"
_SAYS_WHERE = 'printf "%s\\n" "$PATH"'
_OF_UV = {"UV_NO_BUILD": "1", "UV_COMPILE_BYTECODE": "0"}
# A dependency that is a repository is made ready by npm in a folder of its own, whose `.npmrc` says what `git` is; and
# one may be a file of the user, or stand at an address of this machine. Versions before 11.10 know only the first two.
_OF_NPM = {
    "npm_config_ignore_scripts": "true",
    "npm_config_git": "/bin/false",
    "npm_config_allow_git": "none",
    "npm_config_allow_remote": "root",
    "npm_config_allow_file": "root",
    "npm_config_allow_directory": "root",
}
_ours = re.compile(r"(?:cache-)?[0-9a-f]{16}|[0-9a-f]{32}|run-\w{8}")  # of the longer ones, each has a file of `kept`
_MADE = "run-"
_REMOVED = "removed-"  # what it is called while it is removed

_Read = TypeVar("_Read", bound=msgspec.Struct)

_OTHERS = ("bunx", "pipx", "pnpx", "pnpm", "yarn", "docker", "podman")


class Installed(msgspec.Struct, frozen=True):
    """A program that was fetched, the folders that it consists of, and what interprets it if it does not say so."""

    program: str
    args: tuple[str, ...]
    folders: tuple[str, ...]
    interpreter: str = ""


def split_of(name: str, command: str, args: tuple[str, ...]) -> Split | None:
    """The command line of a runner; None: it is none. Raises `Fault` where it cannot be split into two steps."""
    runner = os.path.basename(command)
    if runner in _OTHERS:
        message = f"{name} cannot be put into a box: {runner} does not run in one"
        hint = 'start the program itself, or set box = "off" for it' + (
            "; a container has limits of its own" if runner in ("docker", "podman") else " (or use npx or uvx)"
        )
        raise Fault("SERVER_FAILED", message, reach="not_sent", hint=hint)
    if runner not in RUNNERS:
        return None
    split = RUNNERS[runner].split(args)
    if not split.package:
        message = f"{name} cannot be put into a box: an option of {runner} in its args is not known here"
        hint = f'write {runner} with the package and its arguments only, or set box = "off" for it'
        raise Fault("SERVER_FAILED", message, reach="not_sent", hint=hint)
    return split


class Whose(NamedTuple):
    """The server that a package is for."""

    id: str
    name: str


class _Fetch:
    """One that is under way, for `wanted` servers."""

    def __init__(self, work: Coroutine[Any, Any, Installed], name: str) -> None:
        self.task = asyncio.get_running_loop().create_task(work, name=f"fetch {name}")
        self.wanted = 0


class Packages:
    """Fetches them with the runners of this machine."""

    def __init__(self, supervisor: Supervisor, clock: Clock, folder: Path) -> None:
        """`folder` keeps the environments of Python, and caches, which no server may write."""
        self._supervisor = supervisor
        self._clock = clock
        self._folder = folder
        self._used: set[str] = set()  # by servers that this process has started
        self._turns = FairLimit(AT_ONCE)
        self._under_way: dict[Hashable, _Fetch] = {}

    async def installed(
        self, whose: Whose, command: str, split: Split, env: Mapping[str, str], patience: float
    ) -> Installed:
        """Within `patience` seconds. Raises `Fault`."""
        self._check_runner(whose, command)
        key = whose, command, split, tuple(sorted(env.items())), patience
        fetch = self._under_way.get(key)
        if not fetch:
            fetch = self._under_way[key] = _Fetch(self._in_time(whose, command, split, env, patience), whose.name)
        fetch.wanted += 1
        try:
            return await asyncio.shield(fetch.task)
        finally:
            fetch.wanted -= 1
            if not fetch.wanted:
                del self._under_way[key]
                fetch.task.cancel()
                await asyncio.gather(fetch.task, return_exceptions=True)

    async def _in_time(
        self, whose: Whose, command: str, split: Split, env: Mapping[str, str], patience: float
    ) -> Installed:
        try:
            async with self._clock.timeout(patience):
                await self._turns.turn(whose.id)
                try:
                    return await self._fetched(whose, command, split, env)
                finally:
                    self._turns.give_back(whose.id)
        except TimeoutError:
            raise _failed(whose, command, f"it did not end within {patience:g} s (fetch_timeout)") from None

    async def _fetched(self, whose: Whose, command: str, split: Split, env: Mapping[str, str]) -> Installed:
        is_npm = _is_npm(command)
        own = self._variables(split, env)
        used = self._places(command, split, own)
        self._used.update(used)
        await asyncio.to_thread(self._touch, used, self._clock.wall())
        of_runner = self._of_npm if is_npm else self._of_uv
        return await of_runner(whose, command, split, own | (_OF_NPM if is_npm else _OF_UV))

    def places(self, command: str, split: Split, env: Mapping[str, str]) -> set[str]:
        """What such a server has in the folder, once it was started."""
        return self._places(command, split, self._variables(split, env))

    def remove_unused(self, named: Iterable[str], now: float) -> int:
        """How many were removed. `named` are the places of servers that are configured; they are kept, as is what a
        server of any gateway that runs was started from."""
        self._touch({*named, *self._used}, now)
        removed = 0
        for folder in (self._folder, self._folder / kept.FOLDER):
            with contextlib.suppress(OSError), os.scandir(folder) as entries:  # there may be none
                for entry in entries:
                    if removed < MOST_REMOVED and self._is_unused(entry, now - UNUSED):
                        shutil.rmtree(self._set_aside(entry), ignore_errors=True)
                        removed += 1
        return removed

    def _is_unused(self, entry: os.DirEntry[str], since: float) -> bool:
        if not entry.is_dir(follow_symlinks=False):
            return False
        is_old = entry.stat(follow_symlinks=False).st_mtime < since
        return entry.name.startswith(_REMOVED) or (bool(_ours.fullmatch(entry.name)) and is_old)

    def _set_aside(self, entry: os.DirEntry[str]) -> str:
        """Under another name at once, so that a server that is started now has it made anew."""
        if entry.name.startswith(_REMOVED):
            return entry.path
        aside = str(self._folder / f"{_REMOVED}{entry.name}")
        os.rename(entry.path, aside)
        return aside

    def _touch(self, places: Iterable[str], now: float) -> None:
        for place in places:
            with contextlib.suppress(OSError):
                os.utime(self._folder / place, (now, now), follow_symlinks=False)

    def _variables(self, split: Split, env: Mapping[str, str]) -> dict[str, str]:
        """The server's variables that its runner gets."""
        own = {key: value for key, value in env.items() if _OF_A_RUNNER.fullmatch(key)}
        if own or any(each in _SOURCES for each in split.options):  # else it would fill the cache of all others
            cache = str(self._folder / f"cache-{_digest(*split.options, *sorted(map('='.join, own.items())))}")
            own |= {"npm_config_cache": cache, "UV_CACHE_DIR": cache}
        return own

    def _places(self, command: str, split: Split, own: Mapping[str, str]) -> set[str]:
        cache, environment = own.get("UV_CACHE_DIR", ""), "" if _is_npm(command) else _environment(split, own)
        return {place for place in (os.path.basename(cache), environment) if place}

    def _check_runner(self, whose: Whose, command: str) -> None:
        """It runs outside the box: a program that only has its name does not."""
        folder, runner = os.path.split(command)
        found = shutil.which(runner, path=self._supervisor.environ.get("PATH"))
        if folder and not (found and os.path.realpath(found) == os.path.realpath(command)):
            message = f"{whose.name} cannot be put into a box: {command} is not the {runner} that is found in PATH"
            hint = f"{runner} fetches packages outside the box: write it without a path, and have it in toolgate's PATH"
            raise Fault("SERVER_FAILED", message, reach="not_sent", hint=hint)

    async def _of_npm(self, whose: Whose, command: str, split: Split, env: Mapping[str, str]) -> Installed:
        shell = f"--script-shell={_SHELL}"
        options = [
            *split.options,
            "--yes",
            "--ignore-scripts",
            shell,
            "--package",
            split.package,
            "--call",
            _SAYS_WHERE,
        ]
        said = await self._run(whose, command, options, env)
        bins = [each for each in said.strip().split(":") if "/_npx/" in each and each.endswith("/node_modules/.bin")]
        if not bins:
            raise _failed(whose, command, "it does not say where it has put the package")
        folder = os.path.dirname(os.path.dirname(bins[0]))
        try:
            program = split.program or await asyncio.to_thread(_only_program, folder, split.package)
            strange = await asyncio.to_thread(_of_no_registry, folder, split.package)
        except _Unreadable as error:
            let_go(error)  # it holds what was read
            raise _failed(whose, command, str(error)) from None
        path = os.path.join(bins[0], program)
        if (
            not program
            or os.path.basename(program) != program
            or not holds(os.path.realpath(folder), os.path.realpath(path))
        ):
            raise _failed(whose, command, "it names no program of its own")
        if strange:
            raise _failed(whose, command, f"it depends on {excerpt(strange, server=whose.id)}, which no registry has")
        return Installed(path, split.args, (folder,))

    async def _of_uv(self, whose: Whose, command: str, split: Split, env: Mapping[str, str]) -> Installed:
        """Not by `uvx`, which starts the Python of the environment once the package is in it, and with that what the
        package has in a `.pth` file. The environment is made empty, and filled by `uv pip`, which starts only the
        Python that it was made of. Until it is full it lies beside its place: `uv pip` takes a package that it has
        refused halfway for one that is installed."""
        uv = os.path.join(os.path.dirname(command), "uv")
        wanted = _of_pip(split)
        if any(os.path.dirname(each) for each in wanted.python):
            raise _failed(whose, command, "its Python is named by a path, and would run outside the box")
        prefix = str(self._folder / _environment(split, env))
        if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
            modules = await self._filled(whose, uv, wanted, prefix, env)
        else:
            made = f"{self._folder}/{_MADE}{secrets.token_hex(4)}"
            await asyncio.to_thread(shutil.rmtree, prefix, ignore_errors=True)  # of one that has no Python yet
            try:
                await self._run(whose, uv, ["venv", "--no-project", *wanted.python, made], env)
                modules = await self._filled(whose, uv, wanted, made, env)
                with contextlib.suppress(OSError):  # another one was quicker
                    os.rename(made, prefix)
            finally:
                await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)
        python = os.path.join(prefix, "bin", "python")
        program, args = os.path.join(prefix, modules, "bin", split.program or bare(split.package)), split.args
        if await asyncio.to_thread(_is_script, program):  # its first line names the Python without the package
            program, args = python, (program, *args)
        return Installed(program, args, (prefix,), python)

    async def _filled(self, whose: Whose, uv: str, wanted: _Wanted, place: str, env: Mapping[str, str]) -> str:
        """Where in the environment the packages are."""
        modules = glob.glob("lib/*/site-packages", root_dir=place)
        if len(modules) != 1:
            raise _failed(whose, uv, "it does not say where it has put the package")
        into = ["--python", os.path.realpath(f"{place}/bin/python"), "--target", os.path.join(place, modules[0])]
        args = ["pip", "install", "--no-build", *into, *wanted.options, "--", *wanted.packages]
        await self._run(whose, uv, args, env)
        return modules[0]

    async def _run(self, whose: Whose, command: str, args: list[str], env: Mapping[str, str]) -> str:
        output, ended = bytearray(), asyncio.get_running_loop().create_future()

        def wrote(data: bytes) -> None:
            output.extend(data[: LONGEST_OUTPUT - len(output)])

        def end(reason: str) -> None:
            if not ended.done():
                ended.set_result(reason)

        with folders.empty(self._folder) as folder:
            child = await self._supervisor.start(
                *(whose.name, command, args, env, folder, wrote, end, lambda: None), talks=False
            )
            try:
                child.close_input()
                reason = await ended
            finally:
                child.end()
                await child.ended()
        if not reason.endswith("status 0"):
            words = child.stderr.text(whose.id).strip()[:LONGEST_REASON]
            raise _failed(whose, command, words or reason)
        return bytes(output).decode(errors="replace")


def _is_npm(command: str) -> bool:
    return os.path.basename(command) == "npx"


def _environment(split: Split, env: Mapping[str, str]) -> str:
    """The name of that of a package for Python."""
    return _digest(split.package, *split.options, env.get("UV_CACHE_DIR", ""))


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


def _failed(whose: Whose, command: str, why: str) -> Fault:
    message = f"The package of {whose.name} could not be fetched for its box: {why}"
    hint = (
        f"{os.path.basename(command)} fetches it outside the box, and runs none of its code there: install a package "
        "that has to be built yourself, and name its program as the command"
    )
    return Fault("SERVER_FAILED", message, reach="not_sent", hint=hint)


class _Wanted(msgspec.Struct, frozen=True):
    """A command line of `uvx` in the words of `uv venv` and of `uv pip`."""

    packages: tuple[str, ...]
    python: tuple[str, ...]
    options: tuple[str, ...]


_with_version = re.compile(r"(?<![A-Za-z0-9._-])([A-Za-z0-9._-]++(?:\[[^\]]*+\])?)@([A-Za-z0-9._+!-]+)")
_next_package = re.compile(r",(?=\s*[A-Za-z])")


def _of_pip(split: Split) -> _Wanted:
    packages, python, options = [split.package], list[str](), list[str]()
    rest = iter(split.options)
    for option in rest:
        if option in ("--with", "-w"):
            packages += _next_package.split(next(rest))
        elif option in ("--python", "-p"):
            python = ["--python", next(rest)]
        elif option != "--isolated":
            options += [option] if option in RUNNERS["uvx"].flags else [option, next(rest)]
    if any(each.endswith("@latest") for each in packages):
        options.append("--upgrade")
    packages = [_with_version.sub(_as_pip_writes_it, each) for each in packages]
    flags = [each for each in options if each in ("--offline", "--quiet", "-q")]
    return _Wanted(tuple(packages), (*python, *flags), tuple(options))


def _as_pip_writes_it(found: re.Match[str]) -> str:
    return found[1] if found[2] == "latest" else f"{found[1]}=={found[2]}"


def _is_script(program: str) -> bool:
    try:
        with ownership.open_anyones(Path(program)) as file:
            first = file.read(512)
    except (OSError, ValueError):
        return False
    return first.startswith(b"#!") and b"python" in first


class _Unreadable(Exception):
    """A file of npm or of a package is too much to be read, or is not what it should be; `str()` says which."""


class _Listed(msgspec.Struct):
    """Of a package that npm has put there."""

    resolved: str = ""
    link: bool = False


class _List(msgspec.Struct):
    packages: dict[str, _Listed] = {}


class _Described(msgspec.Struct):
    """What a package says of itself."""

    bin: Raw = jsonrpc.NOTHING
    dependencies: Raw = jsonrpc.NOTHING


def _of_no_registry(folder: str, package: str) -> str:
    """A package that was fetched from a folder, a file or a repository, and was not asked for; or nothing. Raises
    `_Unreadable`."""
    for place, found in _read(os.path.join(folder, "node_modules"), _LIST, _List).packages.items():
        resolved = found.resolved
        is_web = resolved.startswith(("https://", "http://")) or not resolved
        is_asked_for = resolved in package or package in resolved or _is_file(folder, resolved, package)
        if (found.link or not is_web) and not is_asked_for:
            return place.rpartition("node_modules/")[2]
    return ""


def _is_file(folder: str, resolved: str, package: str) -> bool:
    """Whether a list that npm keeps in this folder means, by a path from there, the file that was asked for."""
    start = "file:"
    if not (resolved.startswith(start) and package.startswith(start)):
        return False
    at = os.path.join(os.path.realpath(folder), resolved.removeprefix(start))
    return os.path.realpath(at) == os.path.realpath(package.removeprefix(start))


def _only_program(folder: str, package: str) -> str:
    """The program that npx would run: the only one, else the one with the package's name. Raises `_Unreadable`."""
    name = next(iter(_names(_read(folder, _DESCRIPTION, _Described).dependencies)), bare(package))
    names = _names(_read(os.path.join(folder, "node_modules", name), _DESCRIPTION, _Described).bin)
    return names[0] if len(names) == 1 else name.rpartition("/")[2]


def _names(members: Raw) -> list[str]:
    """Of an object; of anything else none."""
    try:
        return list(jsonrpc.read(members, dict[str, Raw]))
    except jsonrpc.UNREADABLE:
        return []


def _read(folder: str, name: str, kind: type[_Read]) -> _Read:
    """What is in a file, or nothing where there is none: a reader of JSON lets no other thread run meanwhile. Raises
    `_Unreadable`."""
    try:
        with ownership.open_anyones(Path(folder, name)) as file:
            written = file.read(LONGEST_FILE + 1)
    except (OSError, ValueError):
        return kind()
    if len(written) > LONGEST_FILE or counting.has_more_values(written, MOST_VALUES):
        raise _Unreadable(f"its {name} has more than {LONGEST_FILE:,} bytes or {MOST_VALUES:,} values")
    try:
        return jsonrpc.read(written.removeprefix(codecs.BOM_UTF8), kind)
    except jsonrpc.UNREADABLE:
        raise _Unreadable(f"its {name} cannot be read") from None
