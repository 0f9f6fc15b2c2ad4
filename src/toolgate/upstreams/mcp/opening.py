"""Opening a connection: finding out which era a server speaks, then shaking hands where it wants to.

It is tried in one era after the other, in the order that `era_choice` gives. A server that is asked to discover and
answers by any error, garbage or silence is asked to initialize; one that was merely slow, or answers that with -32022,
is asked to discover once more (spec: basic/transports/stdio, "Backward Compatibility"). It is asked to discover in the
modern revision that it spoke last, else in our newest; one that refuses that by -32022 is asked in the newest that it
names, where we have that, and if it names none in each of ours. One that refuses `initialize` may mean its words: it is
asked again in plainer ones (`_plainer`). One that ends over the first message, or takes it for the era of all that
follow, is started once more for the other era (`Ended`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeAlias, cast

from msgspec import Raw

from toolgate.config import Server
from toolgate.core import asks, counting, jsonrpc, mcp, surrogates
from toolgate.core.fault import Fault
from toolgate.core.mcp import Era, Revision
from toolgate.core.model import Client
from toolgate.core.redaction import excerpt
from toolgate.eras import headers, legacy, listed, modern
from toolgate.upstreams.links.refusals import HTTP_STATUS
from toolgate.upstreams.mcp.dialects import INFO
from toolgate.upstreams.mcp.requests import Requests

log = logging.getLogger(__name__)

_SIGN_IN = "SIGN_IN_REQUIRED"
_BAD_REQUEST = 400
SILENCE = 10.0  # seconds without any sign of life before a server counts as one that ignores what it does not know
MOST_VERSIONS = 20  # that are named
LARGEST = 1024 * 1024  # bytes of what a server says of itself
MOST_VALUES = 2000  # of JSON in it: it is kept for each session, and takes fifty times as much as it takes to send
LONGEST_INSTRUCTIONS = 32 * 1024  # characters
SILENCE_AFTER_A_SIGN = 3.0  # the same, once it has written anything to stdout or stderr

First: TypeAlias = dict[Era, Revision]
"""The revisions to ask in first. What is refused in these, and taken in others, is asked in those from then on."""


class Silent(Exception):
    """The server said nothing to `server/discover`; it may be slow, or ignore what it does not know."""


class Ended(Exception):
    """The process is of no use after a first message that it did not understand; it may know the other one."""


async def open_connection(requests: Requests, client: Client, order: Sequence[Era], first: First) -> bool:
    """Set the connection's dialect. Whether the first of these eras was refused. Raises `Fault`, at the latest after
    the server's start timeout, and `Ended`."""
    try:
        async with requests.clock.timeout(requests.server.start_timeout):
            return await _open(requests, client, order, first)
    except TimeoutError:
        message = f"{requests.server.name} did not answer within {requests.server.start_timeout:g} s after its start"
        hint = "if it is slow to start, raise its start_timeout"
        raise Fault("SERVER_FAILED", message, server=requests.server.id, reach="not_sent", hint=hint) from None
    except Fault as fault:
        if fault.code != "UPSTREAM_ERROR":
            raise
        raise Fault(
            "SERVER_FAILED",
            fault.message,
            server=requests.server.id,
            reach="not_sent",
            hint=fault.hint,
            words=fault.words,
        ) from None


async def _open(requests: Requests, client: Client, order: Sequence[Era], first: First) -> bool:
    asked = client if requests.server.scope == "session" else Client()
    if requests.link and not requests.link.discovers:
        await _initialize(requests, asked, first)
        return False
    if order[0] == "legacy":
        return await _open_legacy(requests, asked, first, "modern" in order)
    return await _open_modern(requests, asked, first, "legacy" in order)


async def _open_legacy(requests: Requests, client: Client, first: First, or_else: bool) -> bool:
    """`or_else`: in the other era, where it refuses this one."""
    refused: Fault | None = None
    try:
        await _initialize(requests, client, first)
        return False
    except Fault as fault:
        if requests.fault or fault.code == _SIGN_IN:
            raise
        if or_else:
            _raise_if_modern_only(fault, requests.server.id)
            log.debug(
                "%s does not support initialize (%s); trying server/discover", requests.server.name, fault.message
            )
            try:
                await _discover(requests, client, first, patient=True)
                return True
            except Fault as other:
                if other.code == _SIGN_IN:
                    raise
                refused = other
            if requests.fault or fault.rpc == mcp.UNSUPPORTED_VERSION:
                raise Ended from requests.fault
        if not await _falls_back(requests):
            raise _clearer(fault, refused) from None
    await _initialize(requests, client, first)
    return False


async def _open_modern(requests: Requests, client: Client, first: First, or_else: bool) -> bool:
    was_silent = False
    refused: Fault | None = None
    try:
        await _discover(requests, client, first, patient=not or_else)
        return False
    except Silent:
        was_silent = True
    except Fault as fault:
        if requests.fault and or_else:
            raise Ended from requests.fault
        if requests.fault or not or_else or fault.code == _SIGN_IN:
            raise
        _raise_if_modern_only(fault, requests.server.id)
        if known := mcp.newest("modern", _supported(fault) or ()):  # it had something against the request
            first["modern"] = known
            await _discover(requests, client, first, patient=True)
            return False
        log.debug("%s does not support server/discover (%s); trying initialize", requests.server.name, fault.message)
        refused = fault
    try:
        await _initialize(requests, client, first)
    except Fault as fault:
        if requests.fault and was_silent:  # it had stumbled over the question, and only now notices
            raise Ended from requests.fault
        if not requests.fault and (was_silent or fault.rpc == mcp.UNSUPPORTED_VERSION):
            await _discover(requests, client, first, patient=True)
            return False
        if requests.fault or not await _falls_back(requests):
            raise _clearer(fault, refused) from None
        await _initialize(requests, client, first)
    return True


def _clearer(refused: Fault, discovery: Fault | None) -> Fault:
    """Why a server is not up that has refused `initialize`: where it does not know that method, why `server/discover`
    failed."""
    return discovery if discovery and refused.rpc == jsonrpc.METHOD_NOT_FOUND else refused


async def _falls_back(requests: Requests) -> bool:
    """Whether there is another link to the server, which the connection then goes over."""
    other = await requests.link.fall_back() if requests.link else None
    requests.link = other or requests.link
    return other is not None


def _raise_if_modern_only(fault: Fault, server: str) -> None:
    """A server that knows the modern error codes is modern; where it does not speak our revision, that is the end."""
    supported = _supported(fault)
    if supported is not None and not any(each in supported for each in mcp.REVISIONS):
        ours = ", ".join(mcp.dates("modern"))
        message = f"{fault.message}: it supports {_listed(supported, server) or 'none'}; toolgate supports {ours}"
        raise Fault("SERVER_FAILED", message, reach="not_sent")


def _supported(fault: Fault) -> Sequence[object] | None:
    return _named(fault) if fault.rpc == mcp.UNSUPPORTED_VERSION else None


def _named(fault: Fault) -> Sequence[object] | None:
    """The versions that a refusal names."""
    if not fault.upstream or not fault.upstream.data:
        return None
    try:
        found = jsonrpc.value(fault.upstream.data)["supported"]
    except (*jsonrpc.UNREADABLE, KeyError, TypeError):
        return None
    return cast("list[object]", found) if isinstance(found, list) else None


def _listed(versions: Sequence[object], server: str) -> str:
    return excerpt(", ".join(map(str, versions[:MOST_VERSIONS])), server=server)


async def _discover(requests: Requests, client: Client, first: First, patient: bool = False) -> None:
    """Raises `Silent` where a process stays silent, unless `patient`."""
    asked = first["modern"]
    try:
        first["modern"] = await _discover_in(asked, requests, client, patient)
        return
    except Fault as fault:
        others = () if requests.fault or fault.rpc != mcp.UNSUPPORTED_VERSION else _others(asked, _supported(fault))
        refused = fault
    for revision in others:
        try:
            first["modern"] = await _discover_in(revision, requests, client, patient=True)
            return
        except Fault as fault:
            if requests.fault or fault.rpc != mcp.UNSUPPORTED_VERSION:
                raise
    raise refused


def _others(asked: Revision, supported: Sequence[object] | None) -> Sequence[Revision]:
    """In which revisions a server may be asked that has refused this one and named those, the newest first. Where it
    names any, one of them is enough."""
    if supported is not None:
        known = mcp.newest("modern", supported)
        return (known,) if known and known is not asked else ()
    ours = map(mcp.REVISIONS.__getitem__, reversed(mcp.dates("modern")))
    return tuple(each for each in ours if each is not asked)


async def _discover_in(revision: Revision, requests: Requests, client: Client, patient: bool) -> Revision:
    """The revision that is spoken then."""
    params = jsonrpc.encode({"_meta": modern.envelope_meta(revision, client, INFO)})
    told = headers.for_request(revision, mcp.DISCOVER, None)
    ask = requests.ask(mcp.DISCOVER, params, told, requests.server.start_timeout)
    is_patient = patient or not requests.link or requests.link.signs_of_life is None
    found = modern.read_discovered(_checked(await (ask if is_patient else _unless_silent(ask, requests))))
    spoken = mcp.newest("modern", found.supportedVersions)
    if not spoken:
        raise Fault("UPSTREAM_ERROR", f"it supports only {_listed(found.supportedVersions, requests.server.id)}")
    found.instructions = _bounded(found.instructions, requests.server.id)
    requests.dialect = modern.ToServer(spoken, found, INFO)
    return spoken


async def _unless_silent(ask: Coroutine[Any, Any, Raw], requests: Requests) -> Raw:
    """Raises `Silent`."""
    answer = asyncio.ensure_future(ask)
    silence = asyncio.ensure_future(_silence(requests))
    try:
        await asyncio.wait((answer, silence), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Silent
        return answer.result()
    finally:
        answer.cancel()
        silence.cancel()
        await asyncio.gather(answer, silence, return_exceptions=True)


async def _silence(requests: Requests) -> None:
    """Return when the server has been silent for long enough."""
    link = requests.link
    assert link
    while (seen := link.signs_of_life) is not None:
        await requests.clock.sleep(SILENCE_AFTER_A_SIGN if seen else SILENCE)
        if link.signs_of_life == seen:
            return
    await asyncio.Event().wait()  # it is answered or refused at once


async def _initialize(requests: Requests, client: Client, first: First) -> None:
    """Where that is refused, in plainer words. Raises `Fault` with what the server has against the first."""
    asked = first["legacy"]
    try:
        await _initialize_in(asked, requests, client)
        return
    except Fault as fault:
        others = () if requests.fault else _plainer(asked, fault)
        refused = fault
    for revision in others:
        try:
            await _initialize_in(revision, requests, client)
        except Fault as fault:
            if requests.fault or fault.code == _SIGN_IN:
                raise
            log.debug("%s refuses initialize in %s, too: %s", requests.server.name, revision.date, fault.message)
        else:
            first["legacy"] = revision
            return
    raise refused


def _plainer(asked: Revision, fault: Fault) -> Sequence[Revision]:
    """In which revisions a server may be asked to initialize that has refused this one: in the newest that it names and
    we have. Where it names none, what it does not take may be a member of a capability, or the version: in our newest
    without such members, then in our oldest. None where it has refused something else: the method, or who asks."""
    if (named := mcp.newest("legacy", _named(fault) or ())) and named is not asked:
        return (named,)
    is_of_words = fault.upstream and fault.rpc not in (jsonrpc.METHOD_NOT_FOUND, *mcp.MODERN_ONLY_ERRORS)
    if not is_of_words and fault.extra.get(HTTP_STATUS) != _BAD_REQUEST:
        return ()
    ours = [mcp.REVISIONS[date] for date in reversed(mcp.dates("legacy"))]
    without_parts = [each for each in ours if not each.has_parts_of_asks]
    return tuple(each for each in dict.fromkeys((ours[0], without_parts[0], ours[-1])) if each is not asked)


async def _initialize_in(revision: Revision, requests: Requests, client: Client) -> None:
    params = legacy.initialize_params(revision, capabilities_for(requests.server, client), INFO)
    answer = await requests.ask(mcp.INITIALIZE, params, (), requests.server.start_timeout)
    spoken, found = legacy.read_initialized(_checked(answer), requests.server.id)
    found.instructions = _bounded(found.instructions, requests.server.id)
    requests.dialect = legacy.ToServer(spoken, found)
    if requests.link:
        requests.link.accepted()
        await requests.tell(jsonrpc.notification("notifications/initialized"))
        await requests.link.listen(requests.dialect.other())


def _checked(answer: Raw) -> Raw:
    """As every client can read it: with U+FFFD in place of each lone surrogate. Raises `Fault` where a server says so
    much of itself that nobody could be told, or numbers that some cannot read."""
    size = len(memoryview(answer))
    if size > LARGEST:
        message = f"What the server says of itself has {size:,} bytes; the limit is {LARGEST:,}"
        raise Fault("SERVER_FAILED", message, reach="not_sent")
    if counting.has_more_values(bytes(answer), MOST_VALUES):
        message = f"What the server says of itself has more than {MOST_VALUES:,} JSON values, which is the limit"
        raise Fault("SERVER_FAILED", message, reach="not_sent")
    said = surrogates.replaced(bytes(answer))
    if listed.has_number_out_of_range(said):
        message = f"What the server says of itself has {listed.NUMBER}"
        raise Fault("SERVER_FAILED", message, reach="not_sent")
    return Raw(said)


def _bounded(instructions: str | None, server: str) -> str | None:
    """They are told to each client as it comes, and kept for that. Without secrets before they are cut, so that no part
    of one is left at the cut."""
    if not instructions or len(instructions) <= LONGEST_INSTRUCTIONS:
        return instructions
    return f"{excerpt(instructions, LONGEST_INSTRUCTIONS, server)}\n[cut by toolgate: {len(instructions):,} characters]"


def capabilities_for(server: Server, client: Client) -> Mapping[str, Any]:
    """What a legacy server is told: that of one client's session, what that declares; any other, what we bridge."""
    if server.scope != "session":
        return legacy.shared_capabilities(bool(server.roots))
    told = asks.relayed_capabilities(client.capabilities)
    if "roots" in told and legacy.tells_of_roots(client):
        told["roots"] = {"listChanged": True}
    return told
