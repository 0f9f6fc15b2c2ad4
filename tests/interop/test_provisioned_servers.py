"""Servers that nobody has configured: found by what is needed, installed from the real npm and PyPI, and called.

The list of servers is a double on loopback; packages come from wherever npm and pip are set up to fetch them. There is
no bundled list here, so that each gate goes by what the package's own registry says.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import installed
import msgspec
import pytest
import registry_double
from inmemory import Visitor
from registry_double import Json, Registry, item, npm, pypi

from toolgate.app import App, running
from toolgate.config import Config, Guard
from toolgate.config.provision import Provision
from toolgate.core.clock import SystemClock
from toolgate.core.redaction import Redactor
from toolgate.state.audit import Trail
from toolgate.state.memory import MemoryStore

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

UV = installed.program("uv")
EVERYTHING = item(
    "io.github.modelcontextprotocol/server-everything",
    description="Echoes messages, adds numbers, and exercises every feature of the protocol",
    version="2026.8.31",
    packages=[npm("@modelcontextprotocol/server-everything", "2026.8.31")],
)
TIME = item(
    "io.github.modelcontextprotocol/server-time",
    description="The current time, and times converted between time zones",
    version="2026.10.19",
    packages=[pypi("mcp-server-time", "2026.10.19")],
)
ECHO = "echo messages and exercise every feature of the protocol"
CLOCK = "convert times between time zones"


def environment(home: Path) -> dict[str, str]:
    """That of a user who has nothing yet but the registries that this machine's clients are set up for."""
    environ = {name: value for name, value in os.environ.items() if name.lower().startswith(("npm_", "uv_", "pip_"))}
    environ |= {"HOME": str(home), "TMPDIR": str(home), "PATH": f"{UV / 'bin'}:{os.environ['PATH']}"}
    own = Path.home() / ".npmrc"
    if own.is_file():
        environ.setdefault("npm_config_userconfig", str(own))
    pip = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    index = subprocess.run(pip, capture_output=True, text=True, check=False).stdout.strip()
    if index:  # uv does not read what pip is set up by
        environ.setdefault("UV_DEFAULT_INDEX", index)
    if certificates := os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE"):
        environ |= {"SSL_CERT_FILE": certificates, "NODE_EXTRA_CA_CERTS": certificates}
    return environ | {"UV_PYTHON": sys.executable}


class Rig:
    def __init__(self, app: App, registry: Registry, trail: Trail) -> None:
        self.app, self.registry, self._trail = app, registry, trail
        self._visitor = Visitor(app, "/mcp/meta")

    async def told(self, tool: str, /, **arguments: Any) -> Any:
        result = (await self._visitor.ask_modern("tools/call", name=tool, arguments=arguments)).result
        assert not result.get("isError"), result
        text = result["content"][0]["text"]
        return json.loads(text) if tool == "mcp_provision" else text

    async def lines(self) -> list[Json]:
        await self._trail.close()
        assert self._trail.file
        return [json.loads(line) for line in self._trail.file.read_bytes().splitlines()]


@asynccontextmanager
async def gateway(home: Path, *listed: Json, **provision: Any) -> AsyncGenerator[Rig]:
    async with registry_double.listening(Registry(*listed)) as registry:
        allowed = ("io.github.modelcontextprotocol/*",)
        usual = Provision(auto=True, trusted=allowed, registries=(registry.url,))
        guard = Guard(allow_hosts=("0.0.0.0/0",))  # a mirror may have its files on another host of its own network
        config = Config(provision=msgspec.structs.replace(usual, **provision), add_servers="allow", guard=guard)
        clock = SystemClock()
        store = MemoryStore(clock)
        trail = Trail(home / "audit.jsonl", clock, store, Redactor())
        trail.use(config)
        async with running(config, environ=environment(home), store=store, audit=trail, engines={}) as app:
            app.provisioning._bundled = lambda: ()
            yield Rig(app, registry, trail)
        await trail.close()


def bounded(test: Callable[[Path], Any]) -> Callable[..., None]:
    def run(tmp_path: Path) -> None:
        async def within() -> None:
            async with asyncio.timeout(360):
                await test(tmp_path)

        asyncio.run(within())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm was not found")
needs_uv = pytest.mark.skipif(bool(why := installed.missing_program("uv")), reason=why or "")


@needs_npm
@bounded
async def test_a_server_of_npm_is_found_installed_and_called(tmp_path: Path) -> None:
    async with gateway(tmp_path, EVERYTHING, TIME) as rig:
        told = await rig.told("mcp_provision", intent=ECHO, autoProvision=True)
        first = told["matches"][0]
        assert first["installCommand"] == "npx -y @modelcontextprotocol/server-everything@2026.8.31"
        assert (first["trusted"], first["autoProvisionable"]) == (True, True), first["gates"]
        assert told["provisioned"] is True and "echo" in told["tools"], told
        said = await rig.told("mcp_call", server=told["server"], tool="echo", args={"message": "hello"})
        assert "hello" in said
        events = {line["event"]: line for line in await rig.lines()}
        assert events["servers.provision"]["package"] == first["installCommand"]
        assert events["servers.provision"]["package_hash"].startswith("sha512-") and "servers.add" in events


@needs_uv
@bounded
async def test_a_server_of_pypi_is_found_installed_and_called(tmp_path: Path) -> None:
    async with gateway(tmp_path, EVERYTHING, TIME) as rig:
        told = await rig.told("mcp_provision", intent=CLOCK, autoProvision=True)
        first = told["matches"][0]
        assert first["installCommand"] == "uvx mcp-server-time==2026.10.19"
        assert told.get("provisioned") is True, told
        args = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        said = await rig.told("mcp_call", server=told["server"], tool="convert_time", args=args)
        assert "Asia/Tokyo" in said
        events = {line["event"]: line for line in await rig.lines()}
        assert events["servers.provision"]["package_hash"].startswith("sha256:")


@needs_npm
@bounded
async def test_a_package_of_another_owner_is_not_installed(tmp_path: Path) -> None:
    squatted = item(**{**EVERYTHING["server"], "name": "io.github.modelcontextprotocol/echo"})
    async with gateway(tmp_path, squatted) as rig:
        told = await rig.told("mcp_provision", intent=ECHO, autoProvision=True)
        failed = [each for each in told["matches"][0]["gates"] if not each["passed"]]
        assert [each["gate"] for each in failed] == ["owned"] and "server-everything" in failed[0]["why"]
        assert "provisioned" not in told and not rig.app.gateway.snapshot.config.servers


@needs_npm
@bounded
async def test_another_hash_than_the_real_one_keeps_it_out(tmp_path: Path) -> None:
    package = npm("@modelcontextprotocol/server-everything", "2026.8.31", fileSha256="0" * 64)
    wrong = item(**{**EVERYTHING["server"], "packages": [package]})
    async with gateway(tmp_path, wrong) as rig:
        told = await rig.told("mcp_provision", intent=ECHO, autoProvision=True)
        failed = [each for each in told["matches"][0]["gates"] if not each["passed"]]
        assert [each["gate"] for each in failed] == ["hashed"] and not rig.app.gateway.snapshot.config.servers


@needs_npm
@bounded
async def test_a_version_that_is_too_young_for_the_operator_is_not_installed(tmp_path: Path) -> None:
    async with gateway(tmp_path, EVERYTHING, minimum_age=100 * 365 * 24 * 3600.0) as rig:
        told = await rig.told("mcp_provision", intent=ECHO, autoProvision=True)
        failed = [each for each in told["matches"][0]["gates"] if not each["passed"]]
        assert [each["gate"] for each in failed] == ["aged"] and not rig.app.gateway.snapshot.config.servers
