"""`npx` and `uvx` in two steps: the package is fetched outside the box, then its program starts inside.

The rules this file keeps: outside the box nothing of the package runs, neither its scripts nor its programs, by
whatever name, nor what its Python would load when it starts; and the runner starts in an empty folder, so that no file
of a server says how packages are fetched.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from toolgate.config import ownership
from toolgate.config.profiles import RUNNERS, Split, bare
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.redaction import excerpt
from toolgate.upstreams.process.programs import holds
from toolgate.upstreams.process.supervisor import INHERITED, Supervisor, is_of_a_tool

LONGEST_FETCH = 300.0  # seconds
LONGEST_OUTPUT = 256 * 1024  # bytes

# A whole path and a word of the shell's own: a package may bring programs of any name, which come first in PATH.
_SHELL = "/bin/sh"
_SAYS_WHERE = 'printf "%s\\n" "$PATH"'
_WITHOUT_ITS_CODE = {"UV_NO_BUILD": "1", "UV_COMPILE_BYTECODE": "0", "npm_config_ignore_scripts": "true"}
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


class Packages:
    """Fetches them with the runners of this machine."""

    def __init__(self, supervisor: Supervisor, clock: Clock) -> None:
        self._supervisor = supervisor
        self._clock = clock

    async def installed(self, name: str, command: str, split: Split, env: Mapping[str, str]) -> Installed:
        """Raises `Fault`."""
        of_runner = {key: value for key, value in env.items() if key in INHERITED or is_of_a_tool(key)}
        if os.path.basename(command) == "npx":
            return await self._of_npm(name, command, split, of_runner)
        return await self._of_uv(name, command, split, of_runner)

    async def _of_npm(self, name: str, command: str, split: Split, env: Mapping[str, str]) -> Installed:
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
        said = await self._run(name, command, options, env)
        bins = [each for each in said.strip().split(":") if "/_npx/" in each and each.endswith("/node_modules/.bin")]
        if not bins:
            raise _failed(name, command, "it does not say where it has put the package")
        folder = os.path.dirname(os.path.dirname(bins[0]))
        program = split.program or await asyncio.to_thread(_only_program, folder, split.package)
        path = os.path.join(bins[0], program)
        if (
            not program
            or os.path.basename(program) != program
            or not holds(os.path.realpath(folder), os.path.realpath(path))
        ):
            raise _failed(name, command, "it names no program of its own")
        return Installed(path, split.args, (folder,))

    async def _of_uv(self, name: str, command: str, split: Split, env: Mapping[str, str]) -> Installed:
        options = [*split.options, "--no-build", "--from", split.package, _SHELL, "-c", _SAYS_WHERE]
        prefix, name_of_bin = os.path.split((await self._run(name, command, options, env)).partition(":")[0])
        if name_of_bin != "bin" or not os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
            raise _failed(name, command, "it does not say where it has put the package")
        program = os.path.join(prefix, "bin", split.program or bare(split.package))
        folders = tuple(dict.fromkeys((prefix, os.path.realpath(prefix))))
        return Installed(program, split.args, folders, os.path.join(prefix, "bin", "python"))

    async def _run(self, name: str, command: str, args: list[str], env: Mapping[str, str]) -> str:
        output, ended = bytearray(), asyncio.get_running_loop().create_future()

        def wrote(data: bytes) -> None:
            output.extend(data[: LONGEST_OUTPUT - len(output)])

        def end(reason: str) -> None:
            if not ended.done():
                ended.set_result(reason)

        with tempfile.TemporaryDirectory(prefix="toolgate-") as folder:
            Path(folder, "package.json").write_text("{}")  # else npm goes by what stands in a folder above
            child = await self._supervisor.start(
                *(name, command, args, {**env, **_WITHOUT_ITS_CODE}, folder, wrote, end, lambda: None), talks=False
            )
            try:
                child.close_input()
                async with self._clock.timeout(LONGEST_FETCH):
                    reason = await ended
            except TimeoutError:
                raise _failed(name, command, f"it did not end within {LONGEST_FETCH:g} s") from None
            finally:
                child.end()
                await child.ended()
        if not reason.endswith("status 0"):
            words = excerpt(child.stderr.text().strip(), 2000)
            raise _failed(name, command, words or reason)
        return bytes(output).decode(errors="replace")


def _failed(name: str, command: str, why: str) -> Fault:
    message = f"The package of {name} could not be fetched for its box: {why}"
    hint = (
        f"{os.path.basename(command)} fetches it outside the box, and runs none of its code there: install a package "
        "that has to be built yourself, and name its program as the command"
    )
    return Fault("SERVER_FAILED", message, reach="not_sent", hint=hint)


def _only_program(folder: str, package: str) -> str:
    """The program that npx would run: the only one, else the one with the package's name."""
    name = next(iter(_read(folder).get("dependencies", {})), bare(package))
    own = name.rpartition("/")[2]
    programs: object = _read(os.path.join(folder, "node_modules", name)).get("bin")
    names = list(cast("dict[str, str]", programs)) if isinstance(programs, dict) else []
    return names[0] if len(names) == 1 else own


def _read(folder: str) -> dict[str, Any]:
    try:
        with ownership.open_anyones(Path(folder, "package.json")) as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
