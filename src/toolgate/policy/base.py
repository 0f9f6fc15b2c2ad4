"""What a policy is. Synchronous: it decides, it does not wait.

The rule of this package: a policy sees the true server and the server's own name of the tool, whatever surface or
meta-tool the call came through, so that no name is a way around it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from toolgate.core.model import Call, Outcome, Required


class Passed(msgspec.Struct, frozen=True):
    """A call that goes on, and a `ticket` for this round of it, which the policy gets back in `after` and `ended`."""

    call: Call
    ticket: Any


class Wait(msgspec.Struct, frozen=True):
    """The policy cannot tell yet: it is asked again, with the same call and with what `until` has returned. What ends
    the call meanwhile cancels that; `until` bounds its own time."""

    until: Callable[[], Awaitable[Any]]


Decision: TypeAlias = Call | Passed | Outcome | Required | Wait


class Policy:
    """Override what is needed: a hook that is not overridden costs a call nothing. A policy keeps nothing of a call but
    in its ticket."""

    name = ""
    sees_misses = False  # whether it looks at calls whose target is not found, too

    def applies(self, call: Call) -> bool:
        """Whether it may have anything to do with first rounds of calls like this one: of the same tool, as it is
        listed now, by clients of the same rules. Asked once for all of them; nothing else of the call may matter."""
        return True

    def made_for(self, call: Call) -> Callable[..., Decision]:
        """Its `before` for first rounds of calls like this one, as `applies` has them: where that can be quicker, since
        what is the same in all of them was looked up."""
        return self.before

    def refuses(self, call: Call) -> bool:
        """Whether a call of a tool would be refused for what the tool says of itself. Asked where its server may have
        changed since it was listed: then it is listed anew before the call is judged."""
        return False

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Decision:
        """Let the call go on (as it is or changed, with a ticket or without), answer it, ask its user (`Required`), or
        be asked again later (`Wait`, whose result is then `waited`). Refuse by raising `Fault`.

        `was_passed`: in an earlier round this policy let the call go on, and what asked lies behind it. Access is to be
        decided anew all the same; but nothing is to be charged, asked or counted a second time. A round that answers
        this policy's own question has `call.resumption.asker == Asker("policy", NAME)`, and no other round has.
        """
        return call

    def recheck(self, call: Call, ticket: Any) -> None:
        """A call that was let go on has waited, and is about to be sent: what holds of it may be something else now,
        and what it needs (`call.tool_info` is of now). `ticket` is None also where the policy did not see the call,
        because it had nothing to do with it then. Refuse by raising `Fault`."""

    def after(self, call: Call, outcome: Outcome, ticket: Any) -> Outcome:
        """Look at the outcome, or change it. Called in reverse order, and not while the call still asks."""
        return outcome

    def ended(self, call: Call, ending: Outcome | BaseException, ticket: Any) -> None:
        """A round of a call that the policy let go on is over, however it went, also where a policy behind this one
        refused it: `ending` is what its client gets of it
        (questions too), or what was raised, a cancellation as well; `call` is as it got to its server. After questions
        of a server that the client answers on the spot it is told once more, of what came of them; after those of a
        policy there is another round."""
