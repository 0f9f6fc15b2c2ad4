"""What an operator looks at, as the admin API shows it: what clients may do, the audit, and the configuration.

The rule this file keeps: who may do what is said by the function that decides it for calls (`Rules.verdict`), and what
is long is bounded, or looked at in a thread.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from math import isinf
from time import monotonic
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw

from toolgate.auth.access import Rules, Why
from toolgate.auth.cross_checks import problems
from toolgate.catalog import tool_info
from toolgate.config import Config, ConfigError, reading, render
from toolgate.config.access import KnownClient
from toolgate.core import mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Client, Hints
from toolgate.frontends.web import cursors
from toolgate.frontends.web.cursors import Cursor
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.snapshot import Snapshot
from toolgate.state.audit import Mark, Trail
from toolgate.telemetry.usage import Called, Durations, Usage, within

MOST_JUDGED = 20_000  # verdicts for one answer
PORTION = 0.005  # seconds after which others have their turn
MOST_LINES = 1000
MOST_SLOW = 10  # tools
USUAL = 0.95  # the share of calls that are said to be usual

_SILENT = Hints()

Judged = TypeVar("Judged")


class ClientAccess(msgspec.Struct, omit_defaults=True):
    """`servers` has, by id, how many of the tools that are known are allowed, asked for and off; of a server whose
    tools were not counted, whether the client sees it."""

    id: str
    name: str
    is_admin: bool
    is_enabled: bool
    surface: str
    servers: Mapping[str, Mapping[str, int] | bool]


class AccessMatrix(msgspec.Struct):
    """`is_open`: no clients are configured, and whoever comes may use everything."""

    is_open: bool
    clients: tuple[ClientAccess, ...]


class AccessOfClient(msgspec.Struct):
    """The verdict on each thing that is known, with the rule that decides it: by its kind, its server and the server's
    own name of it. `rules` is the client as it is configured, masked. `is_whole`: all servers have listed their tools,
    and nothing was left out."""

    id: str
    name: str
    verdicts: Mapping[str, Mapping[str, Mapping[str, Why]]]
    rules: Mapping[str, Any]
    is_whole: bool


class _Verdicts:
    """What is known of what servers list, judged up to a bound, a portion at a time. `left_out`: some was beyond it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._left = MOST_JUDGED
        self.left_out = False

    async def of(
        self, server: str, kind: str, rules: Rules, judge: Callable[[str, Hints], Judged]
    ) -> Mapping[str, Judged] | None:
        """By the server's own names. None where that is beyond the bound, or its list is not known."""
        known = self._snapshot.catalog.known(server, kind, Client())
        if not known:
            return None
        if len(known.own) > self._left:
            self.left_out = True
            return None
        self._left -= len(known.own)
        judged: dict[str, Judged] = {}
        began = monotonic()
        for name in known.own:
            info = tool_info.of(known, name) if rules.read_only and kind == "tools" else None
            judged[name] = judge(name, info.hints if info else _SILENT)
            if monotonic() - began > PORTION:
                await asyncio.sleep(0)
                began = monotonic()
        return judged


async def matrix(gateway: Gateway) -> AccessMatrix:
    snapshot, known, clients = gateway.snapshot, gateway.access.clients, list[ClientAccess]()
    found = _Verdicts(snapshot)
    for client in snapshot.config.clients:
        rules = known.get(client.id)
        servers: dict[str, Mapping[str, int] | bool] = {}
        for server in snapshot.servers if rules else ():
            assert rules
            judge = partial(rules.verdict, server, "tools")
            verdicts = await found.of(server, "tools", rules, judge) if rules.sees(server) else None
            servers[server] = rules.sees(server) if verdicts is None else Counter(verdicts.values())
        clients.append(
            ClientAccess(client.id, client.name, client.admin, client.enabled, client.surface or "", servers)
        )
        await asyncio.sleep(0)
    return AccessMatrix(snapshot.config.is_open, tuple(clients))


async def of_client(gateway: Gateway, id: str) -> AccessOfClient:
    """Raises `Fault`."""
    snapshot = gateway.snapshot
    client = _client(snapshot.config, id)
    rules, found = gateway.access.clients.get(client.id), _Verdicts(snapshot)
    verdicts: dict[str, dict[str, Mapping[str, Why]]] = {kind: {} for kind in mcp.LIST_OF_KIND}
    unlisted = 0
    for kind, of_kind in verdicts.items() if rules else ():
        assert rules
        for server in snapshot.servers:
            judged = await found.of(server, kind, rules, partial(rules.why, server, kind))
            unlisted += judged is None and kind == "tools"
            if judged:
                of_kind[server] = judged
    is_whole = not unlisted and not found.left_out
    return AccessOfClient(client.id, client.name, verdicts, _configured(snapshot.config, client), is_whole)


def hints_of(gateway: Gateway, server: str, tool: str) -> Hints:
    """Raises `Fault` for a tool that is not known: nobody is allowed what nobody has seen."""
    known = gateway.snapshot.catalog.known(server, "tools", Client()) if server in gateway.snapshot.servers else None
    if not known or tool not in known.own:
        raise Fault("TOOL_NOT_FOUND", f"No tool {tool} of {server} is known", reach="not_sent")
    found = tool_info.of(known, tool)
    return found.hints if found else _SILENT


def _client(config: Config, id: str) -> KnownClient:
    found = next((each for each in config.clients if each.id == id), None)
    if not found:
        raise Fault("SERVER_NOT_FOUND", f"There is no client {id}", reach="not_sent")
    return found


def _configured(config: Config, client: KnownClient) -> Mapping[str, Any]:
    [table] = render.config(msgspec.structs.replace(config, clients=(client,), servers=()))["clients"]
    return table


# What is called.


class ToolUsage(msgspec.Struct):
    """A tool that was called, by its server's own name. Of 20 calls 19 were answered within `usual_ms`; null: it took
    longer than is told apart."""

    server: str
    tool: str
    calls: int
    failed: int
    mean_ms: float
    usual_ms: float | None


class CallsCounted(msgspec.Struct):
    """Since when the gateway counts. `is_on`: it does (`telemetry.usage`). `failed` went on, `refused` did not."""

    is_on: bool
    calls: int
    failed: int
    refused: int
    slowest: tuple[ToolUsage, ...]


def calls_counted(gateway: Gateway, usage: Usage) -> CallsCounted:
    lines = usage.lines().values()
    tools = [_tool_usage(called, served) for called, served, _ in usage.timed() if called.tool and served]
    slowest = sorted(tools, key=lambda each: -each.mean_ms)[:MOST_SLOW]
    return CallsCounted(
        is_on=gateway.snapshot.config.telemetry.counts,
        calls=sum(line.calls for line in lines),
        failed=sum(sum(line.errors.values()) for line in lines),
        refused=sum(sum(line.refusals.values()) for line in lines),
        slowest=tuple(slowest),
    )


def _tool_usage(called: Called, served: Mapping[str, Durations]) -> ToolUsage:
    calls = sum(sum(each.counts) for each in served.values())
    failed = sum(sum(each.counts) for error, each in served.items() if error)
    mean, usual = sum(each.seconds for each in served.values()) / calls, within(served.values(), USUAL)
    return ToolUsage(
        called.server, called.tool, calls, failed, round(1000 * mean, 3), None if isinf(usual) else 1000 * usual
    )


# The audit.


class WantedLines(msgspec.Struct):
    """The last lines of the audit, or those before a cursor; those alone that hold a text where there is one."""

    number: Annotated[int, Meta(ge=1, le=MOST_LINES)] = 100
    holding: Annotated[str, Meta(max_length=200)] = ""
    cursor: Cursor = ""


class AuditLines(msgspec.Struct, omit_defaults=True):
    """The oldest first. `next_cursor` leads to lines before them; a search that ended early goes on there, though it
    has found none. `problem`: why nothing can be written now."""

    is_on: bool
    file: str
    lines: tuple[Raw, ...]
    next_cursor: str = ""
    problem: str = ""


class AuditFound(msgspec.Struct):
    """Whether each line is as it was written: `head` is the last one, as `SEQ:HASH`; `wrong` says what is not."""

    lines: int
    head: str
    wrong: tuple[str, ...]
    remark: str


async def audit_lines(trail: Trail, wanted: WantedLines) -> AuditLines:
    """Raises `Fault`."""
    before = cursors.read(wanted.cursor, Mark)
    try:
        found, mark = await asyncio.to_thread(trail.lines, wanted.number, wanted.holding.encode(), before)
    except LookupError:
        raise cursors.unknown("the audit was rotated since") from None
    except OSError as error:
        raise _unreadable(error) from None
    next_cursor = cursors.made(mark) if mark else ""
    return AuditLines(trail.is_on, str(trail.file or ""), tuple(map(Raw, found)), next_cursor, trail.problem)


async def audit_found(trail: Trail) -> AuditFound:
    """Raises `Fault`."""
    try:
        verdict = await asyncio.to_thread(trail.verified)
    except OSError as error:
        raise _unreadable(error) from None
    head = f"{verdict.head.seq}:{verdict.head.hash}" if verdict.head.seq else ""
    return AuditFound(verdict.lines, head, verdict.wrong, verdict.remark)


def _unreadable(error: OSError) -> Fault:
    return Fault("INVALID_STATE", f"The audit cannot be read: {error}", reach="not_sent")


# The configuration.


class WantedCheck(msgspec.Struct):
    """A configuration as it could stand in a file."""

    text: str
    format: Literal["toml", "yaml", "json"]


class Configuration(msgspec.Struct, omit_defaults=True):
    """What is served, with each default and without secrets. `problem` is with the file as it stands, where an older
    one is served."""

    source: str
    served: Mapping[str, Any]
    problem: str = ""


class ConfigurationFound(msgspec.Struct):
    """`problems` say what is wrong, where, and how it is fixed; nothing is served of it."""

    is_valid: bool
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    servers: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()


def configuration(gateway: Gateway) -> Configuration:
    config, problem = gateway.snapshot.config, gateway.gateway_info.problem()
    return Configuration(config.source, render.config(config), problem)


async def checked(wanted: WantedCheck) -> ConfigurationFound:
    return await asyncio.to_thread(_checked, wanted)


def _checked(wanted: WantedCheck) -> ConfigurationFound:
    """Nothing is started, no variable is expanded and no secret looked up."""
    try:
        config = reading.checked(
            wanted.text, file=f"toolgate.{wanted.format}", environ=os.environ, format=wanted.format
        )
    except ConfigError as error:
        return ConfigurationFound(False, tuple(str(error).splitlines()), ())
    found = tuple(str(each) for each in problems(config))
    servers = tuple(each.name for each in config.servers)
    return ConfigurationFound(not found, found, config.warnings, servers, tuple(each.name for each in config.clients))
