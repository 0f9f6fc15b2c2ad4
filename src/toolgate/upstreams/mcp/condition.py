"""How a session is, and what people are told of that: where it failed, the error and what to do about it.

The rule this file keeps: what a program has written to its stderr stands apart, in `Words`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from toolgate.config import Server
from toolgate.core.fault import LONGEST, Fault, Words
from toolgate.core.redaction import excerpt
from toolgate.upstreams import diagnosis
from toolgate.upstreams.base import State, Status, StoppedBy
from toolgate.upstreams.breaker import Breaker

NO_ROOM = "RATE_LIMITED"  # of the gateway or of one client, whatever the server is like
SIGN_IN = "SIGN_IN_REQUIRED"  # no failure of the server, and a matter between it and one user


class Condition(msgspec.Struct, frozen=True):
    """How a session is, since when (by `Clock.now`), and why."""

    state: State = "configured"
    fault: Fault | None = None
    stopped_by: StoppedBy = ""
    since: float = 0.0

    def shown(self, breaker: Breaker, calls: int) -> State:
        """A server whose circuit breaker is open has failed, whether or not there is a connection."""
        if breaker.is_open and self.state in ("ready", "stopped", "configured"):
            return "failed"
        return "busy" if self.state == "ready" and calls else self.state


class Diagnosis(NamedTuple):
    """What to do about a fault, and what the server's stderr has of it."""

    hint: str
    words: Words | None


def diagnosed(server: Server, fault: Fault | None, stderr: str) -> Diagnosis:
    """It takes a while: see `diagnosis.fix_for`."""
    last = fault.words.last if fault and fault.words else ""
    plain, hint = _hint_for(server, fault, ""), _hint_for(server, fault, stderr or last)
    return Diagnosis(plain, Words(last, hint) if last or hint != plain else None)


def status_of(
    condition: Condition,
    breaker: Breaker,
    about: Mapping[str, object],
    found: Diagnosis,
    is_up: bool,
    calls: int,
    revision: str,
) -> Status:
    """`about` is what its newest link says (`Link.describe`); `is_up`: that one is there, or on its way."""
    state, fault = condition.shown(breaker, calls), condition.fault
    says: Callable[[], str] | None = about.get("says")  # type: ignore[assignment]
    error = fault.message if fault else breaker.reason if state == "failed" else ""
    hint, words = found
    waits = breaker.hint() if breaker.is_open else ""
    return Status(
        state=state,
        error=error,
        hint=_joined(hint, waits),
        words=words and Words(words.last, _joined(words.hint, waits) if words.hint else ""),
        pid=about.get("pid") if is_up else None,  # type: ignore[arg-type]
        started=about.get("started"),  # type: ignore[arg-type]
        says=lambda: (says() if says else "") or diagnosis.as_a_shell_says(error),
        revision=revision,
        stopped_by=condition.stopped_by,
        calls=calls,
        parts=str(about.get("parts", "")),
    )


def sign_in_required(server: Server) -> Fault:
    """What everybody may know of it: the page is for one user alone."""
    message = f"{server.name} requires its user to sign in"
    return Fault(SIGN_IN, message, server=server.id, hint=f"toolgate connect {server.id}")


def still_fetched(server: Server) -> Fault:
    """What is told who has waited for the start, while that goes on."""
    message = f"Server not started: its package is still being fetched after {server.start_timeout:g} s"
    hint = f"call again later: it may take {server.fetch_timeout:g} s (fetch_timeout), and the next call finds it done"
    return Fault("SERVER_FAILED", message, server=server.id, reach="not_sent", hint=hint)


def not_started(server: Server, fault: Fault, found: Diagnosis) -> Fault:
    """What a call is told that needed the server; its status keeps the reason alone."""
    if fault.code == SIGN_IN:
        return fault.at(server.id, "")
    message = f"Server not started: {fault.message}"
    hint, words = found
    if fault.hint.startswith(diagnosis.LOOK) and words and words.hint:
        words = Words(words.last, f"{words.hint}; {fault.hint}")
    return Fault(fault.code, message, server=server.id, reach="not_sent", hint=hint, words=words)


def _hint_for(server: Server, fault: Fault | None, stderr: str) -> str:
    """What to do about it: the known cause's fix for a program that has said something on its stderr; else whoever
    noticed it knows best."""
    if not fault or server.problem:
        return ""
    said = excerpt(fault.message, LONGEST, server.id)  # a fix names what stands there, which may be a part of it
    known = diagnosis.fix_for(said, stderr)
    return known or fault.hint if stderr else fault.hint or known


def _joined(*hints: str) -> str:
    return "; ".join(filter(None, hints))
