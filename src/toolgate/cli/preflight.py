"""`toolgate preflight`: everything that a gateway with this configuration needs, looked at before it is served.

The rules this file keeps: nothing that toolgate keeps is changed: servers are started beside a copy of the store, which
is thrown away; and the exit status says what scripts need to know.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer
from msgspec import Raw

from toolgate import __version__
from toolgate import config as configs
from toolgate import state as stores
from toolgate.app import running
from toolgate.auth.cross_checks import problems
from toolgate.catalog.pins import StoredPins
from toolgate.catalog.poisoning import visible
from toolgate.cli import checked, common, gateways, measuring, printing, progress
from toolgate.cli.measuring import Size
from toolgate.config import SURFACES, Config, ConfigError, Server, state_folder, tls_files
from toolgate.core import items
from toolgate.frontends import tls
from toolgate.state import backups
from toolgate.state.sqlite import FILE
from toolgate.upstreams import checks
from toolgate.upstreams.checks import Check

app = typer.Typer(add_completion=False)

PATIENCE = 5.0  # seconds for a TLS handshake

HELP = """Check everything before a gateway is served, and change nothing.

Looks at the configuration, secrets, commands, ports, certificates, versions, each server's protocol, its tools against
what was pinned, names, and the tokens of each surface. Servers are started once, unless you give --no-start.

Exits with 0 if there is no problem, 1 if there is one (with --strict also for a warning), 2 if the configuration cannot
be read or is not trusted."""


class Report(msgspec.Struct, kw_only=True):
    """All that was found. `servers` and `surfaces` are sizes of lists, where servers were started."""

    ok: bool
    version: str
    configuration: str
    checks: list[Check]
    servers: dict[str, dict[str, Any]] = {}
    surfaces: dict[str, Size] = {}


@app.command(help=HELP)
def preflight(
    config: common.ConfigPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole report as JSON.")] = False,
    start: Annotated[bool, typer.Option("--start/--no-start", help="Start the servers and list their tools.")] = True,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings, too.")] = False,
) -> None:
    found, accept = common.find_config(config)
    if not found:
        printing.fail("No configuration found here or in the user's folder: give a file.", 2)
    try:
        whole = configs.load(found, os.environ, accept=accept)
    except ConfigError as error:
        if as_json:
            failed = [Check(check="configuration", level="problem", says=str(each)) for each in error.problems]
            _print_json(Report(ok=False, version=__version__, configuration=str(found), checks=failed))
            raise typer.Exit(2) from None
        printing.fail(str(error), 2)
    report = common.run(_report(whole, start))
    levels = {check.level for check in report.checks}
    report.ok = not levels & ({"problem", "warning"} if strict else {"problem"})
    if as_json:
        _print_json(report)
    else:
        for line in _lines(report):
            printing.say(visible(line))
    raise typer.Exit(0 if report.ok else 1)


async def _report(config: Config, is_started: bool) -> Report:
    report = Report(ok=True, version=__version__, configuration=config.source, checks=list(_at_rest(config)))
    with progress.waiting("looking at certificates"):
        report.checks += await _certificates(config)
    if is_started:
        broken = {check.about for check in report.checks if check.level == "problem"}
        await _add_servers(report, config, broken)
    return report


# What can be seen at rest.


def _at_rest(config: Config) -> Iterator[Check]:
    yield from checks.of_configuration(config)
    yield from (Check(check="configuration", level="problem", says=str(each)) for each in problems(config))
    if not config.servers:
        fix = "toolgate add NAME -- COMMAND"
        yield Check(check="configuration", level="warning", says="there are no servers", fix=fix)
    for server in config.servers:
        if server.enabled:
            yield from checks.of_server(server, os.environ)
    yield from _state(config)
    yield _port(config)
    yield from _own_certificate(config)


def _state(config: Config) -> Iterator[Check]:
    folder = state_folder(config, os.environ)
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        fix = "give this user write access, or set another folder as `state`"
        yield Check(check="state", level="problem", says=f"{there} cannot be written to", fix=fix)


def _port(config: Config) -> Check:
    """Whether it is free. Where the gateway of this configuration listens there, it is in use as it should be."""
    host, port = config.http.host, config.http.port
    where = f"{host}:{port}"
    if gateways.find(config):
        return Check(check="ports", level="ok", says=f"a gateway of this configuration is running ({where})")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        fix = "stop what listens there, or set another `http.port`"
        return Check(check="ports", level="problem", says=f"{where}: {os.strerror(error.errno or 0)}", fix=fix)
    return Check(check="ports", level="ok", says=f"{where} is free")


# Certificates.


def _own_certificate(config: Config) -> Iterator[Check]:
    """The one that clients are shown."""
    if not config.http.tls:
        return
    try:
        remarks = tls.Certificate(*tls_files(config, os.environ)).remarks()
    except tls.Unusable as error:
        yield Check(
            check="certificates", level="problem", says=str(error), fix="set http.tls to files that can be used"
        )
        return
    yield from (Check(check="certificates", level="warning", says=remark) for remark in remarks)


async def _certificates(config: Config) -> list[Check]:
    """Those of the hosts to which the gateway would connect anyhow."""
    places: dict[tuple[str, int], str] = {}
    for server in config.servers:
        parts = urlsplit(server.url)
        if server.enabled and not server.problem and parts.scheme in ("https", "wss") and parts.hostname:
            with contextlib.suppress(ValueError):
                places.setdefault((parts.hostname, parts.port or 443), server.name)
    found = await asyncio.gather(*(_certificate(name, *place) for place, name in places.items()))
    return [check for check in found if check]


async def _certificate(name: str, host: str, port: int) -> Check | None:
    try:
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(host, port, ssl=ssl.create_default_context())
    except ssl.SSLCertVerificationError as error:
        says = f"the certificate of {host} is not accepted: {error.verify_message}"
        return Check(check="certificates", level="problem", about=name, says=says, fix="set SSL_CERT_FILE to its CA")
    except (OSError, TimeoutError, UnicodeError):
        says, fix = f"{host}:{port} cannot be reached", "check the address, the network and the proxy"
        return Check(check="certificates", level="problem", about=name, says=says, fix=fix)
    try:
        ended = writer.get_extra_info("peercert").get("notAfter", "")
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):  # of a peer that does not say goodbye
            async with asyncio.timeout(PATIENCE):
                await writer.wait_closed()
    left = (ssl.cert_time_to_seconds(ended) - time.time()) / 86_400 if ended else tls.SOON
    if left >= tls.SOON:
        return None
    return Check(check="certificates", level="warning", about=name, says=f"the certificate of {host} ends on {ended}")


# What servers say.


@contextlib.asynccontextmanager
async def _beside(config: Config) -> AsyncGenerator[tuple[gateways.Own, StoredPins]]:
    """A gateway with a copy of the store, and what is pinned there."""
    with tempfile.TemporaryDirectory(prefix="toolgate-preflight-") as folder:
        kept = state_folder(config, os.environ) / FILE
        if kept.is_file():
            with contextlib.suppress(backups.Refused):
                backups.back_up(kept, Path(folder, FILE))
        async with stores.opened(Path(folder)) as store, running(config, store=store) as app:
            yield gateways.Own(app), StoredPins(store, config.source)


async def _add_servers(report: Report, config: Config, broken: Collection[str]) -> None:
    started = [server for server in config.servers if server.enabled and server.name not in broken]
    listed: dict[str, list[str]] = {}
    async with _beside(config) as (gateway, pins):
        answers = await _checked_all(gateway, started)
        await pins.store.put("preflight", "", b"", ttl=1.0)  # behind what was noted of tools: writes keep their order
        for server, (status, said) in zip(started, answers, strict=True):
            if status >= 400:
                says = gateways.explained(said)
                report.checks.append(Check(check="servers", level="problem", about=server.name, says=says))
                continue
            found = msgspec.json.decode(said, type=checked.Checked)
            report.checks += _of_server(server, found, pins)
            if not found.fault:
                listed[server.id] = [items.read(raw).name for raw in found.tools]
                report.servers[server.name] = _size(found.tools, found.revision)
        report.checks += checks.of_names(listed)
        if listed:
            for surface in SURFACES:
                report.surfaces[surface] = await measuring.surface(gateway, surface)


async def _checked_all(gateway: gateways.Own, servers: Sequence[Server]) -> Sequence[tuple[int, bytes]]:
    with progress.waiting("starting the servers and listing their tools") as wait:
        ended = 0

        async def check(server: Server) -> tuple[int, bytes]:
            nonlocal ended
            answer = await gateway.ask("POST", f"/servers/{server.id}/check")
            ended += 1
            wait.is_at(ended, len(servers))
            return answer

        return await asyncio.gather(*map(check, servers))


def _of_server(server: Server, found: checked.Checked, pins: StoredPins) -> Iterator[Check]:
    if found.fault:
        says, fix = found.error or found.fault.error, checked.fix_in_a_line(server, found)
        yield Check(check="servers", level="problem", about=server.name, says=says, fix=fix)
        return
    says = checked.what_it_has(len(found.tools), found.revision)
    yield Check(check="servers", level="ok", about=server.name, says=says)
    for each in found.ignored:
        yield Check(check="servers", level="warning", about=server.name, says=visible(each))
    for name, each in list(pins.pending(server.id).items())[: checks.MOST_NAMED]:
        level = "problem" if each.is_held else "warning"
        fix = f"review it: toolgate pins diff {server.id}"
        yield Check(check="pins", level=level, about=server.name, says=f"{name[:100]}: {each}", fix=fix)


def _size(tools: tuple[Raw, ...], revision: str) -> dict[str, Any]:
    return {**msgspec.structs.asdict(measuring.of(tools)), **({"revision": revision} if revision else {})}


# What is printed.


def _print_json(report: Report) -> None:
    printing.say_json(json.dumps(msgspec.to_builtins(report), indent=2, ensure_ascii=False))


_MARKS: Mapping[str, str] = {"ok": "✓", "warning": "!", "problem": "✗"}


def _lines(report: Report) -> Iterator[str]:
    yield f"configuration: {report.configuration}"
    for check in report.checks:
        about = f"{check.about}: " if check.about else ""
        yield f"{_MARKS[check.level]} {check.check}: {about}{check.says}"
        if check.fix:
            yield f"    fix: {check.fix}"
    rows = tuple(
        (f"  {name}", f"{size.tools} tools", f"{size.tokens:,} tokens") for name, size in report.surfaces.items()
    )
    if rows:
        yield "Lists of tools by surface, in estimated tokens of a model:"
        yield from printing.aligned(rows)
    counted = {level: sum(check.level == level for check in report.checks) for level in ("problem", "warning")}
    yield (
        "All is well."
        if not any(counted.values())
        else f"problems: {counted['problem']}, warnings: {counted['warning']}"
    )
