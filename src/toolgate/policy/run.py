"""How a round of a call is judged: through a route's policies, in their order, and back through them in reverse.

The rules this file keeps: every round goes through the same policies, a retry too, which finds those that it has passed
already told so; a call that has waited is looked at once more before it is sent; and each policy that let a round go on
is told how it ended, whatever became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from toolgate.core import asks, mcp
from toolgate.core.clock import Clock
from toolgate.core.exchange import Retry
from toolgate.core.fault import Fault
from toolgate.core.model import Asker, Call, NeedInput, Outcome, Required, Resumption
from toolgate.policy.base import Decision, Passed, Policy, Wait


class Hooks(msgspec.Struct, frozen=True):
    """Those of one policy; None: it has none. `asker` is what its questions are known by."""

    name: str
    asker: Asker
    before: Callable[..., Decision]
    recheck: Callable[[Call, Any], None] | None
    after: Callable[[Call, Outcome, Any], Outcome] | None
    ended: Callable[[Call, Outcome | BaseException, Any], None] | None
    applies: Callable[[Call], bool] | None
    made_for: Callable[[Call], Callable[..., Decision]] | None
    sees_misses: bool
    hears_back: bool  # it has `after` or `ended`


def compiled(policies: Iterable[Policy]) -> tuple[Hooks, ...]:
    """The hooks that policies really have."""
    return tuple(
        Hooks(
            each.name,
            Asker("policy", each.name),
            each.before,
            None if type(each).recheck is Policy.recheck else each.recheck,
            None if type(each).after is Policy.after else each.after,
            None if type(each).ended is Policy.ended else each.ended,
            None if type(each).applies is Policy.applies else each.applies,
            None if type(each).made_for is Policy.made_for else each.made_for,
            each.sees_misses,
            type(each).after is not Policy.after or type(each).ended is not Policy.ended,
        )
        for each in policies
    )


def applying(hooks: Iterable[Hooks], call: Call) -> tuple[Hooks, ...]:
    """Those of the policies that have anything to do with calls of this target, made for these."""
    found = (each for each in hooks if not each.applies or each.applies(call))
    return tuple(msgspec.structs.replace(each, before=each.made_for(call)) if each.made_for else each for each in found)


class PolicyRun(msgspec.Struct, eq=False):
    """One round, that asks nothing and is not looked at again unless whoever has it says how. `call` is what all
    policies have let go on, once they have."""

    came: Call
    policies: Sequence[Hooks]
    clock: Clock
    call: Call | None = None
    passed: list[tuple[Hooks, Any]] = []  # those with something to do when the call comes back; its ticket
    _at: int = 0  # the policy that `_next` is judged by next
    _next: Call | None = None  # None: as it came
    _has_waited: bool = False
    _may_wait: bool = False

    async def anew(self) -> tuple[Call, Sequence[Hooks]] | None:
        """What the call is now, with the policies that judge it; None: what it was. Raises `Fault`."""
        return None

    async def again(self, call: Call, /) -> Outcome:
        """The next round, where a policy asks something."""
        raise AssertionError(f"nobody may ask anything for {call.shown}")

    async def before(self, decision: Call | Outcome | Wait | None = None) -> Call | Outcome:
        """The call as its policies let it go on, or what one of them says instead. `decision` is what `begin` has
        returned, if that was called."""
        decision = decision or self.begin()
        while isinstance(decision, Wait):
            decision = self.begin(await decision.until())
        if self._has_waited and isinstance(decision, Call):
            return self._let(await self.recheck(decision))
        return decision

    def begin(self, waited: Any = None) -> Call | Outcome | Wait:
        """The same as far as nothing has to be waited for. The policy that it had to be waited for gets what it has
        `waited` for."""
        call, policies, passed = self._next or self.came, self.policies, self.passed
        depth = _depth(call.resumption, policies) if call.resumption else 0
        was_passed = False
        for policy in policies[self._at :] if self._at else policies:
            if depth:
                was_passed = policies.index(policy) < depth
            decision, waited, ticket = policy.before(call, was_passed, waited), None, None
            if decision is not call:  # else it goes on as it is
                if isinstance(decision, Passed):
                    ticket, call = decision.ticket, decision.call
                elif isinstance(decision, Call):
                    call = decision
                else:
                    return self._stops(policy, call, decision)
            if policy.hears_back:
                passed.append((policy, ticket))
        return call if self._has_waited else self._let(call)

    def _stops(self, policy: Hooks, call: Call, decision: Outcome | Required | Wait) -> Outcome | Wait:
        """A policy does not let it go on yet, or not at all. Raises `Fault`."""
        if isinstance(decision, Required):
            _refuse_if_unanswerable(call, decision)
            return NeedInput(decision.asks, Retry(policy.asker, call, decision, self.again, self.clock))
        if isinstance(decision, Wait):
            self._at, self._next, self._has_waited = self.policies.index(policy), call, True
            if call.reached:
                call.reached.waits_for = policy.name
        return decision

    def _let(self, call: Call) -> Call:
        """All policies have let it go on."""
        self.call = call
        if call.reached:
            call.reached.is_let = True
        if call is not self.came and self.came.reached:  # a policy may have put its own there
            self.came.reached.is_let = True
        return call

    def may_wait(self) -> None:
        """It may wait before it is sent: whoever has it wait looks at it once more."""
        self._may_wait = True
        for call in (self.call, self.came):
            if call and call.reached:
                call.reached.recheck = self.recheck

    async def recheck(self, call: Call) -> Call:
        """The call as it may be sent now, that was let go on and has waited. As its client made it, it stands for what
        was let go on. Raises `Fault`, not sent."""
        try:
            found = await self.anew()
        except Fault as fault:
            fault.reach = "not_sent"
            raise
        policies, let = self.policies, call if call.server else self.call or self.came
        if found:
            now, policies = found
            if _what(now) != _what(self.came):
                message = f"{call.shown} was changed while the call waited"
                raise Fault("INVALID_STATE", message, reach="not_sent", hint="make the same call again")
            let = msgspec.structs.replace(let, tool_info=now.tool_info)
        tickets = {policy.name: ticket for policy, ticket in self.passed}
        for policy in policies:
            if policy.recheck:  # what it goes by may stand elsewhere than in the configuration and the lists
                policy.recheck(let, tickets.get(policy.name))
        return let if found else call

    def after(self, outcome: Outcome) -> Outcome:
        """The last outcome, as the policies let it through. Raises `Fault`: `failed` is what follows."""
        call = self.call or self.came
        try:
            for policy, ticket in reversed(self.passed):
                if after := policy.after:
                    outcome = after(call, outcome, ticket)
        except BaseException as error:
            if not isinstance(error, Fault):
                self.ended(error)
            raise
        self.ended(outcome)
        return outcome

    def failed(self, fault: Fault) -> Outcome:
        self.ended(fault)
        raise fault

    def ended(self, ending: Outcome | BaseException) -> None:
        """The round is over: with what its client gets of it, or with what was raised."""
        call = self.call or self.came
        for policy, ticket in reversed(self.passed):
            if ended := policy.ended:
                ended(call, ending, ticket)
        if self._may_wait and (not isinstance(ending, NeedInput) or self._is_parked(ending)):
            for held in (self.call, self.came):
                if held and held.reached:
                    held.reached.recheck = None  # else it and this would hold each other, and the request with them

    def _is_parked(self, ending: NeedInput) -> bool:
        """A client without a session answers in a round of its own, and what it is of was sent."""
        return ending.resume.is_live and not self.came.client.session


def _what(call: Call) -> tuple[str, str, bytes]:
    return call.server, call.target, bytes(call.arguments)


def _depth(resumption: Resumption, policies: Sequence[Hooks]) -> int:
    """How many of the policies the call had passed when it was asked something: those before the one that asked."""
    askers = [policy.asker for policy in policies]
    return askers.index(resumption.asker) if resumption.asker in askers else len(askers)


def _refuse_if_unanswerable(call: Call, required: Required) -> None:
    """A policy may ask only what the client has declared; where it must ask and cannot, the call is over."""
    for ask in required.asks:
        if not asks.is_answerable(ask, call.client.capabilities):
            capability = mcp.ASKS[ask.method].capability
            message = f"The call requires the client capability {capability}, which was not declared"
            raise Fault(
                "MISSING_CAPABILITY", message, reach="not_sent", extra={"requiredCapabilities": {capability: {}}}
            )
