"""The package clients of this machine, npm and uv: where they fetch packages from, and a package put into uv's cache.

Toolgate names no package registry itself: whatever the user's clients are set up for, a mirror of a company for
example, is asked. The rules this file keeps: a client runs in an empty folder, so that no project says where packages
come from; no shell reads what it is given; and how long it runs and how much it says are bounded.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolgate.config import ownership
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.provision.entries import Kind
from toolgate.upstreams.process import folders, kept
from toolgate.upstreams.process.supervisor import Supervisor

PATIENCE = 30.0  # seconds for a client to say where its registry is
LONGEST_FETCH = 300.0  # seconds for a package with its file
LONGEST_OUTPUT = 64 * 1024  # bytes
KEPT = 300.0  # seconds for which the place of a registry is known

_tag = re.compile(rb"^Tag:[ \t]*([A-Za-z0-9_.-]{5,200})[ \t]*\r?$", re.MULTILINE)
_url = re.compile(r"https?://[!-~]{1,2000}")


class PackageClients:
    """Asks them, and remembers where their registries are for a while."""

    def __init__(self, supervisor: Supervisor, clock: Clock, folder: Path) -> None:
        """`folder` is one of the gateway's own, in which they are started."""
        self._folder = folder
        self._supervisor = supervisor
        self._clock = clock
        self._known: dict[tuple[Kind, str], tuple[float, str]] = {}

    def keep(self, hash: str, name: str, data: bytes) -> None:
        """A file that was compared with its hash, for each start of its server. Raises `Fault`."""
        kept.keep(self._folder, hash, name, data)

    async def base(self, kind: Kind, package: str) -> str:
        """The URL, without a slash at its end, of the registry that has this package. Raises `Fault`."""
        scope = package.partition("/")[0] if package.startswith("@") else ""
        known = self._known.get((kind, scope))
        if known and self._clock.now() - known[0] < KEPT:
            return known[1]
        found = await (self._of_npm(scope) if kind == "npm" else self._of_uv())
        self._known[kind, scope] = self._clock.now(), found
        while len(self._known) > 100:
            del self._known[next(iter(self._known))]
        return found

    async def _of_npm(self, scope: str) -> str:
        """With two keys it prints `key=value`, with one the value alone."""
        said = await self._run("npm", ["config", "get", "registry", f"{scope or '@toolgate'}:registry"])
        lines: dict[str, str] = {}
        for line in said.splitlines():
            key, _, value = line.strip().partition("=")
            lines[key] = value
        return _found("npm", lines.get(f"{scope}:registry", ""), lines.get("registry", ""))

    async def _of_uv(self) -> str:
        said = await self._run("uv", ["pip", "compile", "--quiet", "--emit-index-url", "--no-header", "-"])
        return _found("uv", *(line.partition(" ")[2] for line in said.splitlines() if line.startswith("--index-url ")))

    async def take(self, package: str, version: str, hashes: Sequence[str]) -> frozenset[str]:
        """Have uv fetch a wheel of PyPI, and refuse it unless it has one of these hashes: to build a package runs its
        code. The tags of the one that it takes on this machine. Raises `Fault`."""
        wanted = " ".join((f"{package}=={version}", *(f"--hash={each}" for each in hashes)))
        options = [
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-build",
            "--require-hashes",
            "--target",
            "taken",
            "-r",
            "-",
        ]
        with folders.empty(self._folder) as folder:
            await self._run_in(folder, "uv", options, f"{wanted}\n", LONGEST_FETCH)
            return await asyncio.to_thread(_tags_in, Path(folder, "taken"))

    async def _run(self, command: str, args: Sequence[str]) -> str:
        with folders.empty(self._folder) as folder:
            return await self._run_in(folder, command, args)

    async def _run_in(
        self, folder: str, command: str, args: Sequence[str], said: str = "", patience: float = PATIENCE
    ) -> str:
        """What it prints. Raises `Fault` where it fails, or does not end in time."""
        output, ended = bytearray(), asyncio.get_running_loop().create_future()

        def wrote(data: bytes) -> None:
            if len(output) + len(data) > LONGEST_OUTPUT:
                end(f"printed more than {LONGEST_OUTPUT:,} bytes")
            else:
                output.extend(data)

        def end(reason: str) -> None:
            if not ended.done():
                ended.set_result(reason)

        child = await self._supervisor.start(
            *(command, command, args, _QUIET, folder, wrote, end, lambda: None), talks=False
        )
        try:
            if said:
                child.write(said.encode())
            child.close_input()
            async with self._clock.timeout(patience):
                reason = await ended
        except TimeoutError:
            raise Fault("TIMEOUT", f"{command} did not end within {patience:g} s", reach="not_sent") from None
        finally:
            child.end()
            await child.ended()
        if not reason.endswith("status 0"):
            words = child.stderr.text().strip().splitlines()
            why = "; ".join(each.strip() for each in words[:4] if each.strip()) or reason
            raise Fault("SERVER_FAILED", f"{command} failed: {why[:400]}", reach="not_sent")
        return bytes(output).decode(errors="replace")


_QUIET: Mapping[str, str] = {"NO_COLOR": "1", "NO_UPDATE_NOTIFIER": "1", "UV_PYTHON_DOWNLOADS": "never"}


def _tags_in(taken: Path) -> frozenset[str]:
    tags = set[bytes]()
    for described in taken.glob("*.dist-info/WHEEL"):
        with ownership.open_anyones(described) as file:
            tags |= set(_tag.findall(file.read(LONGEST_OUTPUT)))
    return frozenset(each.decode() for each in tags)


def _found(command: str, *candidates: str) -> str:
    """Raises `Fault`."""
    for each in candidates:
        if _url.fullmatch(each):
            return each.rstrip("/")
    raise Fault("SERVER_FAILED", f"{command} does not say where its registry is", reach="not_sent")
