"""Calls that wait for an operator, and what was allowed, as the admin API shows them and lets them be decided."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from toolgate.auth import safe_text
from toolgate.core.concurrency import FairThreads
from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.policy import approval_requests
from toolgate.policy.approvals import LASTS, Grant, Lasts, StoredRequest, TooMany, Unfit, is_change
from toolgate.policy.deciding import Deciding
from toolgate.state.base import NotKept


class ListedCall(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A call to decide on, without what it is decided by: there may be hundreds, with long arguments. Times in seconds
    since 1970."""

    id: str
    state: Literal["undecided", "allowed", "denied"]
    principal: str
    server: str
    kind: str
    target: str
    via: str = ""
    asked: float
    until: float


class WaitingCall(ListedCall, omit_defaults=True, kw_only=True):
    """The whole of it. `arguments` and `beside`, what else is sent, are JSON without known secrets; `sha256` is of
    both as they are; `facts` are lines for people; `may_last` what it may be allowed for."""

    facts: tuple[str, ...]
    arguments: str
    beside: str
    sha256: str
    may_last: tuple[Lasts, ...]


class Granted(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A tool that is called without asking; for ever where there is no `until`."""

    id: str
    lasts: Lasts
    by: str
    principal: str
    server: str
    kind: str
    target: str
    since: float
    until: float | None = None


class Waiting(msgspec.Struct):
    requests: tuple[ListedCall, ...]
    grants: tuple[Granted, ...]


class WantedDecision(msgspec.Struct):
    """`sha256` is that of what was looked at; `arguments`, in JSON, are called with instead of its own."""

    decision: Literal["allow", "deny"]
    sha256: str
    lasts: Lasts = "once"
    arguments: str = ""


class Decided(msgspec.Struct):
    decided: str


def waiting(deciding: Deciding) -> Waiting:
    requests = tuple(ListedCall(**_listed(each)) for each in deciding.approvals.requests())
    return Waiting(requests, tuple(map(_granted, deciding.approvals.grants())))


async def one(deciding: Deciding, id: str, in_turns: FairThreads, by: Principal) -> WaitingCall:
    """Laid out in a thread: it may be 64 KiB of what takes long."""
    request = _request(deciding, id)
    return await in_turns.in_thread(by.counted_as, lambda: _shown(request))


async def decide(deciding: Deciding, id: str, wanted: WantedDecision, ttl: float, by: Principal) -> Decided:
    """Raises `Fault`."""
    request = _request(deciding, id)
    if wanted.sha256 != request.digest:
        raise _unfit("this is not the call that was looked at")
    try:
        if wanted.decision == "deny":
            await deciding.deny(request, ttl, by)
            return Decided("denied")
        if wanted.arguments:
            await deciding.check_arguments(request, wanted.arguments)
        await deciding.allow(request, wanted.lasts, ttl, wanted.arguments, by)
    except (Unfit, TooMany) as why:
        raise _unfit(f"No decision was made: {why}") from None
    except NotKept as why:
        raise Fault("INTERNAL", f"No decision was made: {why}", reach="not_sent") from None
    return Decided("allowed")


async def revoke(deciding: Deciding, id: str, by: Principal) -> Decided:
    """Raises `Fault`."""
    try:
        await deciding.revoke(deciding.grant(id), by)
    except Unfit as why:
        raise Fault("TOOL_NOT_FOUND", str(why), reach="not_sent") from None
    except NotKept as why:
        raise Fault("INTERNAL", f"It was not revoked: {why}", reach="not_sent") from None
    return Decided("revoked")


def _request(deciding: Deciding, id: str) -> StoredRequest:
    try:
        return deciding.request(id)
    except Unfit as why:
        raise Fault("TOOL_NOT_FOUND", str(why), reach="not_sent") from None


def _unfit(why: str) -> Fault:
    return Fault("INVALID_STATE", why, reach="not_sent")


def _listed(request: StoredRequest) -> dict[str, Any]:
    place = request.place
    return {
        "id": request.id,
        "state": request.state,
        "principal": place.principal,
        "server": place.server,
        "kind": place.kind,
        "target": place.target,
        "via": request.via,
        "asked": request.asked,
        "until": request.until,
    }


def _shown(request: StoredRequest) -> WaitingCall:
    place = request.place
    facts = approval_requests.facts(place, request.via, request.known_as)
    follows = approval_requests.consequence(place, safe_text.read(request.shown))
    lasting: list[Lasts] = [each for each in LASTS if each == "once" or not is_change(place)]
    return WaitingCall(
        **_listed(request),
        facts=tuple(each.removeprefix("- ").strip() for each in (*facts, *follows)),
        arguments="\n".join(safe_text.laid_out(safe_text.read(request.shown), "")),
        beside="\n".join(safe_text.laid_out(safe_text.read(request.beside), "")),
        sha256=request.digest,
        may_last=tuple(each for each in lasting if each != "session" or request.session),
    )


def _granted(grant: Grant) -> Granted:
    place = grant.place
    return Granted(
        id=grant.id,
        lasts=grant.lasts,
        by=grant.by,
        principal=place.principal,
        server=place.server,
        kind=place.kind,
        target=place.target,
        since=grant.since,
        until=grant.until,
    )
