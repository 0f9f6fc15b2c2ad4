"""Calls that ask first: a person sees which server, tool and arguments, and says yes, no, or yes to other arguments.

Who is asked is the client's own user, where the client has forms and is trusted with it; else an operator, by a request
in the store that `toolgate approvals` decides. The rules this file keeps: nothing goes on that was not decided for
exactly what goes on; what cannot be shown whole is not asked; and a call that its server asks something of comes back
to what was decided, not to what its caller wrote. A change of the gateway's servers is decided each time. Where
nobody had to show who they are, an operator decides on that, and on what Codex is to do: the program that wants it may
answer for its user.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Raw

from toolgate.auth import safe_text
from toolgate.catalog.prints import print_of
from toolgate.config import access
from toolgate.core import asks, jsonrpc, mcp
from toolgate.core.background import whole
from toolgate.core.clock import Clock
from toolgate.core.concurrency import FairThreads
from toolgate.core.fault import Fault
from toolgate.core.model import Asker, Call, NeedInput, Outcome, Required
from toolgate.core.redaction import Redactor
from toolgate.policy import approval_requests
from toolgate.policy.approval_requests import ApprovalRequest, Unsendable
from toolgate.policy.approvals import (
    MOST_UNDECIDED,
    TOO_MANY,
    Approvals,
    Lasts,
    Place,
    Shown,
    StoredRequest,
    TooMany,
    Who,
    asks_first,
    is_change,
)
from toolgate.policy.base import Decision, Passed, Policy, Wait
from toolgate.state.audit import Trail
from toolgate.state.base import NotKept

log = logging.getLogger(__name__)

LARGEST_SCHEMA = 16 * 1024  # bytes that are kept with what waits for an operator
LITTLE = 4 * 1024  # bytes or characters, which are written out without a thread
LOOK = 0.5  # seconds between looks for what an operator has decided
PASSES = 24 * 3600.0  # seconds in which a call that its server asks something of may come back

_ASKABLE = frozenset(name for name, method in mcp.CALLS.items() if method.kind in mcp.KINDS)

Ticket: TypeAlias = "tuple[ApprovalRequest, Raw | None]"  # a call goes on, with other arguments or its own
Decided: TypeAlias = "Ticket | Unsent | Fault"


class Unsent(NamedTuple):
    """What a person has edited cannot be sent: the call is put to that person again, with the reason."""

    approval_request: ApprovalRequest
    why: str


class Approval(Policy):
    """`verdict` says of a call whether it asks; `prints` are hashes of how servers are reached, by id; `checks` raise
    `Fault` for arguments that people wrote; `asking` is the limit of what is written out, on all routes; `passed` says
    by id which headers of a client its servers get."""

    name = "approval"

    def __init__(
        self,
        verdict: Callable[[Call], access.Verdict],
        approvals: Approvals,
        settings: access.Approvals,
        redactor: Redactor,
        clock: Clock,
        prints: Mapping[str, str],
        checks: Sequence[Callable[[Call], Awaitable[None]]] = (),
        audit: Trail | None = None,
        asking: FairThreads | None = None,
        passed: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._verdict = verdict
        self._approvals = approvals
        self._settings = settings
        self._redactor = redactor
        self._clock = clock
        self._prints = prints
        self._checks = checks
        self._audit = audit
        self._asking = asking or FairThreads(1)
        self._passed = passed or {}

    def applies(self, call: Call) -> bool:
        return self._verdict(call) != "allow"

    def before(self, call: Call, was_passed: bool, waited: Decided | None = None) -> Decision:
        if call.kind == "tasks":
            return call  # it was approved, if need be, when it was made
        verdict = self._verdict(call)
        if verdict == "off":  # since a moment ago: the call has waited
            raise Fault("ACCESS_DENIED", "Access denied: this client may not use that", reach="not_sent")
        if waited:
            return self._take(waited)
        resumed, place = call.resumption, self._place(call)
        if resumed and resumed.live:
            return call  # it was sent long ago: what comes now only answers what its server asked
        if resumed and resumed.asker == Asker("policy", self.name):
            return self._answered(self._request(call, place))
        is_let = verdict == "allow" or self._is_granted(call, place)
        if is_let and not was_passed:
            return call
        return self._as_it_went(call, place, is_let) if was_passed else self._ask(self._request(call, place))

    def recheck(self, call: Call, ticket: Ticket | None) -> None:
        verdict = self._verdict(call)
        if verdict != "ask" or call.kind == "tasks" or (call.resumption and call.resumption.live):
            return
        place = self._place(call)
        if (ticket and ticket[0].place == place) or self._is_granted(call, place):
            return
        raise Fault(
            "APPROVAL_REQUIRED",
            f"{call.shown} of {call.server} needs approval, and that or the tool has changed since it was let go on",
            reach="not_sent",
            hint=_AGAIN,
        )

    def _request(self, call: Call, place: Place) -> ApprovalRequest:
        return approval_requests.of(call, place, self._redactor, self._passed.get(call.server, ()))

    def _is_granted(self, call: Call, place: Place) -> bool:
        return not is_change(place) and self._approvals.is_granted(place, approval_requests.session_of(call))

    def _as_it_went(self, call: Call, place: Place, is_let: bool) -> Decision:
        """The next round of a call, with the arguments that it was let go on with. Where that is not known, it is asked
        for anew."""
        try:
            approval_request = self._request(call, place)
        except Fault:
            if is_let:
                return call  # nobody could have approved it
            raise
        approval_pass = self._approvals.approval_pass(_approval_pass_of(approval_request))
        if approval_pass and not approval_pass.is_vague:
            return self._go_on(
                approval_request, None if approval_pass.arguments is None else Raw(approval_pass.arguments)
            )
        return call if is_let else self._ask(approval_request)

    def ended(self, call: Call, ending: Outcome | BaseException, ticket: Ticket | None) -> None:
        """A call that its server asks something of comes back, perhaps to another process, with its caller's own
        arguments: what it went on with is kept."""
        if ticket and (comes_back := _comes_back(call, ending)):
            approval_request, edited = ticket
            kept = None if edited is None else bytes(edited)
            self._approvals.let_pass(_approval_pass(approval_request, *comes_back), kept, PASSES)

    def _place(self, call: Call) -> Place:
        print = self._prints.get(call.server, "")
        if call.tool_info:
            print = print_of(print, call.tool_info.listed)
        return Place(call.client.principal.id, call.server, print, call.kind, call.target)

    def _take(self, decided: Decided) -> Decision:
        if isinstance(decided, Fault):
            raise decided
        if isinstance(decided, Unsent):
            return self._ask(decided.approval_request, f"Not sent, because your arguments are invalid: {decided.why}.")
        return self._go_on(*decided)

    def _go_on(self, approval_request: ApprovalRequest, edited: Raw | None) -> Passed:
        arguments = approval_request.call.arguments if edited is None else edited
        went = msgspec.structs.replace(approval_request.call, arguments=arguments)
        return Passed(went, (approval_request, edited))

    def _ask(self, approval_request: ApprovalRequest, problem: str = "", can_client: bool = True) -> Required | Wait:
        call, by = approval_request.call, self._who_decides(approval_request)
        if call.method not in _ASKABLE:
            raise _required(approval_request, "and this kind of call cannot be approved")
        if "operator" in by and not problem:
            request = self._approvals.find(approval_request.place, approval_request.digest)
            if request and request.state != "undecided":
                return Wait(lambda: self._use(approval_request, request))
        if (
            "client" in by and can_client and (call.can_ask or "operator" not in by)
        ):  # else its frontend says what it lacks
            state = f"{approval_request.key} {self._clock.wall()}"
            question = approval_requests.question(approval_request, problem)
            if question and asks.is_answerable(question, call.client.capabilities):
                return Required((question,), state)
        if "operator" in by:
            return Wait(lambda: self._wait_for_operator(approval_request))
        if not can_client:
            raise _required(approval_request, "and its user has not answered", _AGAIN)
        raise _required(approval_request, "and nobody can be asked", _NOBODY)

    def _who_decides(self, approval_request: ApprovalRequest) -> Sequence[Who]:
        if asks_first(approval_request.place) and not approval_request.call.client.principal.client:
            return ("operator",)
        return self._settings.by

    # The client's user.

    def _answered(self, approval_request: ApprovalRequest) -> Decision:
        resumed = approval_request.call.resumption
        assert resumed
        about, asked = (resumed.state or "").split(" ")
        if about != approval_request.key:
            message = f"{approval_request.named} has changed since its user was asked"
            raise Fault("INVALID_STATE", message, reach="not_sent", hint=_AGAIN)
        answer = resumed.answers.get(approval_requests.KEY)
        if answer is None or self._clock.wall() - float(asked) >= self._settings.ttl:
            return self._ask(approval_request)
        if answer.error:
            return self._ask(approval_request, can_client=False)
        try:
            decision, given = approval_requests.read_answer(answer)
        except Unsendable as why:
            return self._take(Unsent(approval_request, str(why)))
        if decision == "deny" or decision not in approval_requests.offered(approval_request):
            raise _denied(approval_request, "the client's user")
        if "client" not in self._who_decides(approval_request):
            return self._ask(approval_request)  # it decided while the question was open
        if decision == "once" and given is None:
            return self._go_on(approval_request, None)
        return Wait(lambda: self._allowed(approval_request, given, cast(Lasts, decision)))

    async def _allowed(self, approval_request: ApprovalRequest, given: object, lasts: Lasts) -> Decided:
        try:
            edited = await self._edited(approval_request, given)
        except Unsendable as why:
            return Unsent(approval_request, str(why))
        if lasts != "once":
            await whole(self._grant(approval_request, lasts))
        return approval_request, edited

    async def _grant(self, approval_request: ApprovalRequest, lasts: Lasts) -> None:
        try:
            await self._approvals.grant(approval_request.place, lasts, "client", approval_request.session)
        except (NotKept, TooMany) as why:
            log.warning("%s was allowed once only: %s", approval_request.named, why)
        else:
            self._note_grant(approval_request, lasts)

    def _note_grant(self, approval_request: ApprovalRequest, lasts: Lasts) -> None:
        if self._audit:
            about = {"server": approval_request.place.server, "target": approval_request.place.target, "lasts": lasts}
            self._audit.note("approvals.grant", approval_request.call.client.principal, **about)

    async def _edited(self, approval_request: ApprovalRequest, given: object) -> Raw | None:
        """What a person has made of the arguments; None where they are as they were. Raises `Unsendable`."""
        edited = await self._written(approval_request, given)
        if edited is not None:
            try:
                for check in self._checks:
                    await check(msgspec.structs.replace(approval_request.call, arguments=edited))
            except Fault as fault:
                raise Unsendable(fault.message) from None
        return edited

    async def _written(self, approval_request: ApprovalRequest, given: object) -> Raw | None:
        write = partial(approval_requests.edited, approval_request, given)
        if not isinstance(given, str) or len(given) <= LITTLE:
            return write()
        return await self._asking.in_thread(approval_request.call.client.principal.counted_as, write)

    # An operator.

    async def _wait_for_operator(self, approval_request: ApprovalRequest) -> Decided:
        try:
            with self._approvals.waiting(approval_request.call.client.principal.counted_as):
                return await self._by_operator(approval_request)
        except (NotKept, TooMany) as why:
            return _required(approval_request, f"and no operator can be asked: {why}")

    async def _by_operator(self, approval_request: ApprovalRequest) -> Decided:
        """A decision is used up when there is a place to run, not before. Raises `Fault` where there is none."""
        end, reached = self._clock.now() + self._settings.wait, approval_request.call.reached
        rests = partial(_tell, reached.rests if reached else ())
        while True:
            request = self._approvals.find(approval_request.place, approval_request.digest)
            if request and request.state != "undecided":
                rests(request.state != "allowed")
                if decided := await self._used(approval_request, request):
                    return decided
            if self._is_granted(approval_request.call, approval_request.place):
                rests(False)
                return approval_request, None  # by what was decided of another call meanwhile
            rests(True)
            request = request or await self._new_request(approval_request)
            left = end - self._clock.now()
            if left <= 0:
                return _undecided(approval_request, request)
            await self._clock.sleep(min(LOOK, left))

    async def _new_request(self, approval_request: ApprovalRequest) -> StoredRequest:
        """One at a time, principals in turn, and others heard in between: to write out what is shown takes some
        hundredths of a second in a thread, and to find that there is no room some thousandths. Raises `TooMany`."""
        whose = approval_request.call.client.principal.counted_as
        if self._asking.waiting_of(whose) >= MOST_UNDECIDED:
            raise TooMany(TOO_MANY)

        async def made() -> StoredRequest:
            await asyncio.sleep(0)  # else the next would be made in the same round of the event loop
            place, digest = approval_request.place, approval_request.digest
            return await self._approvals.ask(place, digest, self._settings.ttl, partial(_about, approval_request))

        return await self._asking.during(whose, made)

    async def _use(self, approval_request: ApprovalRequest, request: StoredRequest) -> Decided | None:
        """What an operator has decided before the call came. Where another call was faster, it is asked anew."""
        try:
            return await self._used(approval_request, request)
        except NotKept as why:
            return _required(approval_request, f"and the decision cannot be used: {why}")

    async def _used(self, approval_request: ApprovalRequest, request: StoredRequest) -> Decided | None:
        if request.state == "denied":
            return _denied(approval_request, "an operator")
        if not await self._approvals.use(request):
            return None
        try:
            return approval_request, await self._edited(approval_request, request.edited or None)
        except Unsendable as why:
            return Fault("INVALID_ARGS", f"The operator's arguments are invalid: {why}", reach="not_sent")


def _tell(listeners: Iterable[Callable[[bool], None]], rests: bool) -> None:
    for tell in listeners:
        tell(rests)


async def _about(approval_request: ApprovalRequest) -> Shown:
    """What an operator is shown beside the place."""
    if approval_request.size <= LITTLE:
        return _told(approval_request)
    return await asyncio.to_thread(_told, approval_request)


def _told(approval_request: ApprovalRequest) -> Shown:
    shown, tool_info = safe_text.written(approval_request.shown), approval_request.call.tool_info
    known_as = approval_request.call.shown if approval_request.call.shown != approval_request.call.target else ""
    schema = tool_info.schema if tool_info and len(tool_info.schema) <= LARGEST_SCHEMA else b""
    return {
        "shown": shown,
        "beside": safe_text.written(approval_request.beside),
        "session": approval_request.session,
        "via": approval_request.call.via,
        "known_as": known_as,
        "schema": schema,
    }


def _comes_back(call: Call, ending: Outcome | BaseException) -> tuple[Asker, str | None] | None:
    """Who asks, and what it wants back, of a call that is to be made again with the answers."""
    if isinstance(ending, NeedInput) and not ending.resume.origin.is_live:
        return ending.resume.origin.asker, ending.resume.origin.state
    if isinstance(ending, Fault) and ending.rpc == mcp.URL_ELICITATION_REQUIRED:  # it may become a question further out
        return Asker("upstream", call.server), None
    return None


def _approval_pass_of(approval_request: ApprovalRequest) -> str:
    resumed = approval_request.call.resumption
    return _approval_pass(approval_request, resumed.asker, resumed.state) if resumed else ""


def _approval_pass(approval_request: ApprovalRequest, asker: Asker, state: str | None) -> str:
    return hashlib.sha256(jsonrpc.encode([approval_request.key, asker[:2], state])).hexdigest()


_AGAIN = "make the same call again"
_NOBODY = (
    "its client does not support forms (elicitation), or the arguments are too long for one; "
    "approvals.by can let operators approve too"
)


def _required(approval_request: ApprovalRequest, why: str, hint: str = "") -> Fault:
    return Fault("APPROVAL_REQUIRED", f"{approval_request.named} needs approval, {why}", reach="not_sent", hint=hint)


def _undecided(approval_request: ApprovalRequest, request: StoredRequest) -> Fault:
    command = f"toolgate approvals allow {request.id}"
    return Fault(
        "APPROVAL_REQUIRED",
        f"{approval_request.named} needs approval, and nobody has decided yet",
        reach="not_sent",
        hint=f"a person decides with `{command}` (or deny); then make the same call again",
        extra={"approval": {"id": request.id, "command": command, "until": request.until}},
    )


def _denied(approval_request: ApprovalRequest, by: str) -> Fault:
    hint = "a person denied it; do not try to work around this"
    return Fault("APPROVAL_DENIED", f"{approval_request.named} was denied by {by}", reach="not_sent", hint=hint)
