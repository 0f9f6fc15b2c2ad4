"""What a policy is. Synchronous: it decides, it does not wait.

The rule of this package: a policy sees the true server and the server's own name of the tool, whatever surface or
meta-tool the call came through, so that no name is a way around it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from toolgate.core.model import Call, Outcome, Required


class Wait(msgspec.Struct, frozen=True):
    """The policy cannot tell yet: it is asked again, with the same call, when `until` has returned. What ends the call
    meanwhile cancels that; `until` bounds its own time."""

    until: Callable[[], Awaitable[object]]


class Policy(Protocol):
    name: str

    def before(self, call: Call, was_passed: bool) -> Call | Outcome | Required | Wait:
        """Let the call go on (as it is or changed), answer it, ask its user (`Required`), or be asked again later
        (`Wait`). Refuse by raising `Fault`.

        `was_passed`: on an earlier round this policy let the call go on, and what asked lies behind it. Access is to be
        decided anew all the same; but nothing is to be charged, asked or counted a second time. A round that answers
        this policy's own question has `call.resumption.asker == "policy:NAME"`, and no other round has.
        """
        ...

    def after(self, call: Call, outcome: Outcome) -> Outcome:
        """Look at the outcome, or change it. Called in reverse order, and not while the call still asks."""
        ...

    def ended(self, went: Call, call: Call, ending: Outcome | BaseException) -> None:
        """A round of a call that the policy let go on (as `went`) is over, however it went: `ending` is what its client
        gets of it (questions too), or what was raised, a cancellation as well; `call` is as it got to its server.
        After questions of a server that the client answers on the spot it is told once more, of what came of them;
        after those of a policy there is another round."""
        ...
