"""What a policy is. Synchronous: it decides, it does not wait.

The rule of this room: a policy sees the true server and the server's own name of the tool, whatever surface or
meta-tool the call came through, so that no name is a way around it.
"""

from __future__ import annotations

from typing import Protocol

from toolgate.model import Call, Outcome, Required


class Policy(Protocol):
    name: str

    def before(self, call: Call, was_passed: bool) -> Call | Outcome | Required:
        """Let the call go on (as it is or changed), answer it, or ask its user (`Required`). Refuse by raising `Fault`.

        `was_passed`: on an earlier leg this policy let the call go on, and what asked lies behind it. Access is to be
        decided anew all the same; but nothing is to be charged, asked or counted a second time. A leg that answers
        this policy's own question has `call.resumption.asker == "policy:NAME"`, and no other leg has.
        """
        ...

    def after(self, call: Call, outcome: Outcome) -> Outcome:
        """Look at the outcome, or change it. Called in reverse order, and not while the call still asks."""
        ...
