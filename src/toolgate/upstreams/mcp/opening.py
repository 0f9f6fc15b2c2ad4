"""Opening a connection: finding out which era a server speaks, then shaking hands where it wants to.

It is tried in one era after the other, in the order that `speaking` gives. A server that is asked to discover and
answers by any error, garbage or silence is asked to initialize; one that was merely slow, or answers that with -32022,
is asked to discover once more (spec: basic/transports/stdio, "Backward Compatibility"). One that ends over the first
message, or takes it for the era of all that follow, is started once more for the other era (`Ended`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolgate.config import Server
from toolgate.core import asks, jsonrpc, mcp
from toolgate.core.clock import Clock
from toolgate.core.mcp import Era, Revision
from toolgate.core.model import Client, Fault
from toolgate.eras import headers, legacy, modern
from toolgate.upstreams.mcp.connection import Connection
from toolgate.upstreams.mcp.dialects import INFO, Legacy, Modern

log = logging.getLogger(__name__)

_SIGN_IN = "SIGN_IN_REQUIRED"
SILENCE = 10.0  # seconds without any sign of life before a server counts as one that ignores what it does not know
SILENCE_AFTER_A_SIGN = 3.0  # the same, once it has written anything to stdout or stderr


class Silent(Exception):
    """The server said nothing to `server/discover`; it may be slow, or ignore what it does not know."""


class Ended(Exception):
    """The process is of no use after a first message that it did not understand; it may know the other one."""


async def open_connection(
    connection: Connection, server: Server, client: Client, clock: Clock, order: Sequence[Era]
) -> bool:
    """Set the connection's dialect. Whether the first of these eras was refused. Raises `Fault`, at the latest after
    the server's start timeout, and `Ended`."""
    try:
        async with clock.timeout(server.start_timeout):
            return await _open(connection, server, client, clock, order)
    except TimeoutError:
        message = f"{server.name} did not answer within {server.start_timeout:g} s after its start"
        hint = "if it is slow to start, raise its start_timeout"
        raise Fault("SERVER_FAILED", message, server=server.id, reach="not_sent", hint=hint) from None
    except Fault as fault:
        if fault.code != "UPSTREAM_ERROR":
            raise
        raise Fault(
            "SERVER_FAILED", fault.message, server=server.id, reach="not_sent", hint=fault.hint, words=fault.words
        ) from None


async def _open(connection: Connection, server: Server, client: Client, clock: Clock, order: Sequence[Era]) -> bool:
    asked = client if server.scope == "session" else Client()
    if connection.link and not connection.link.discovers:
        await _initialize(connection, server, asked)
        return False
    if order[0] == "legacy":
        return await _open_legacy(connection, server, asked, clock, "modern" in order)
    return await _open_modern(connection, server, asked, clock, "legacy" in order)


async def _open_legacy(connection: Connection, server: Server, client: Client, clock: Clock, or_else: bool) -> bool:
    """`or_else`: in the other era, where it refuses this one."""
    try:
        await _initialize(connection, server, client)
        return False
    except Fault as fault:
        if connection.fault or fault.code == _SIGN_IN:
            raise
        if or_else:
            _raise_if_modern_only(fault)
            log.debug("%s does not support initialize (%s); trying server/discover", server.name, fault.message)
            try:
                await _discover(connection, server, client, clock, patient=True)
                return True
            except Fault as other:
                if other.code == _SIGN_IN:
                    raise
            if connection.fault or fault.rpc == mcp.UNSUPPORTED_VERSION:
                raise Ended from connection.fault
        if not await _falls_back(connection):
            raise
    await _initialize(connection, server, client)
    return False


async def _open_modern(connection: Connection, server: Server, client: Client, clock: Clock, or_else: bool) -> bool:
    was_silent = False
    try:
        await _discover(connection, server, client, clock, patient=not or_else)
        return False
    except Silent:
        was_silent = True
    except Fault as fault:
        if connection.fault and or_else:
            raise Ended from connection.fault
        if connection.fault or not or_else or fault.code == _SIGN_IN:
            raise
        _raise_if_modern_only(fault)
        if known := mcp.newest("modern", _supported(fault) or ()):  # it had something against the request, or revision
            await _discover(connection, server, client, clock, patient=True, revision=known)
            return False
        log.debug("%s does not support server/discover (%s); trying initialize", server.name, fault.message)
    try:
        await _initialize(connection, server, client)
    except Fault as fault:
        if connection.fault and was_silent:  # it had stumbled over the question, and only now notices
            raise Ended from connection.fault
        if not connection.fault and (was_silent or fault.rpc == mcp.UNSUPPORTED_VERSION):
            await _discover(connection, server, client, clock, patient=True)
            return False
        if connection.fault or not await _falls_back(connection):
            raise
        await _initialize(connection, server, client)
    return True


async def _falls_back(connection: Connection) -> bool:
    """Whether there is another link to the server, which the connection then goes over."""
    other = await connection.link.fall_back() if connection.link else None
    connection.link = other or connection.link
    return other is not None


def _raise_if_modern_only(fault: Fault) -> None:
    """A server that knows the modern error codes is modern; where it does not speak our revision, that is the end."""
    supported = _supported(fault)
    if supported is not None and not any(each in supported for each in mcp.REVISIONS):
        theirs, ours = ", ".join(map(str, supported)) or "none", ", ".join(mcp.dates("modern"))
        message = f"{fault.message}: it has {theirs}, toolgate has {ours}"
        raise Fault("SERVER_FAILED", message, reach="not_sent")


def _supported(fault: Fault) -> Sequence[object] | None:
    if not fault.upstream or fault.upstream.code != mcp.UNSUPPORTED_VERSION or not fault.upstream.data:
        return None
    try:
        found = jsonrpc.value(fault.upstream.data)["supported"]
    except (*jsonrpc.UNREADABLE, KeyError, TypeError):
        return None
    return cast("list[object]", found) if isinstance(found, list) else None


async def _discover(
    connection: Connection,
    server: Server,
    client: Client,
    clock: Clock,
    patient: bool = False,
    revision: Revision = mcp.LATEST["modern"],
) -> None:
    """`revision` is the one to ask in. Raises `Silent` where a process stays silent, unless `patient`."""
    params = jsonrpc.encode({"_meta": modern.envelope_meta(revision, client, INFO)})
    told = headers.for_request(revision, mcp.DISCOVER, None)
    ask = connection.ask_server(mcp.DISCOVER, params, told, server.start_timeout)
    answer = asyncio.ensure_future(ask)
    silence = asyncio.ensure_future(_silence(clock, connection))
    waits: set[asyncio.Future[Any]] = {answer} if patient else {answer, silence}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Silent
        found = modern.read_discovered(answer.result())
    finally:
        answer.cancel()
        silence.cancel()
        await asyncio.gather(answer, silence, return_exceptions=True)
    spoken = mcp.newest("modern", found.supportedVersions)
    if not spoken:
        raise Fault("UPSTREAM_ERROR", f"it supports only {', '.join(found.supportedVersions)}")
    connection.dialect = Modern(spoken, found)


async def _silence(clock: Clock, connection: Connection) -> None:
    """Return when the server has been silent for long enough."""
    link = connection.link
    assert link
    while (seen := link.signs_of_life) is not None:
        await clock.sleep(SILENCE_AFTER_A_SIGN if seen else SILENCE)
        if link.signs_of_life == seen:
            return
    await asyncio.Event().wait()  # it is answered or refused at once


async def _initialize(connection: Connection, server: Server, client: Client) -> None:
    params = legacy.initialize_params(capabilities_for(server, client), INFO)
    answer = await connection.ask_server(mcp.INITIALIZE, params, (), server.start_timeout)
    connection.dialect = Legacy(*legacy.read_initialized(answer))
    if connection.link:
        connection.link.accepted()
        await connection.tell(jsonrpc.notification("notifications/initialized"))
        await connection.link.listen(connection.dialect.other())


def capabilities_for(server: Server, client: Client) -> Mapping[str, Any]:
    """What a legacy server is told: that of one client's session, what that declares; any other, what we bridge."""
    if server.scope != "session":
        return legacy.shared_capabilities(bool(server.roots))
    told = asks.relayed_capabilities(client.capabilities)
    if "roots" in told and client.capabilities["roots"].get("listChanged"):
        told["roots"] = {"listChanged": True}
    return told
