"""Step-up: tools that need more scopes of a token than every request does (`auth.step_up`).

The rule this file keeps: it is the true tool that counts; and who lacks a scope is told all that the operation needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolgate.config import Auth
from toolgate.model import Call, Fault, Outcome
from toolgate.wire import names


class Scopes:
    """Clients that come with a key have no scopes, and need none: `clients` says what they may do."""

    name = "step-up"

    def __init__(self, auth: Auth) -> None:
        self._auth = auth

    def before(self, call: Call, was_passed: bool) -> Call:
        held = call.client.principal.scopes
        if held is None or call.kind != "tools":
            return call
        needed = tuple(dict.fromkeys((*self._auth.scopes, *self._of(call.server, call.target))))
        if missing := [scope for scope in needed if scope not in held]:
            raise Fault(
                "INSUFFICIENT_SCOPE",
                f"The token lacks the scope {' '.join(missing)}",
                reach="not_sent",
                hint="sign in again with the scopes that are named",
                extra={"scopes": list(needed)},
            )
        return call

    def after(self, call: Call, outcome: Outcome) -> Outcome:
        return outcome

    def ended(self, went: Call, call: Call, ending: Outcome | BaseException) -> None:
        """Nothing was begun."""

    def _of(self, server: str, tool: str) -> Iterable[str]:
        return stepped_up(self._auth.step_up, server, tool)


def stepped_up(step_up: Mapping[str, tuple[str, ...]], server: str, tool: str) -> Iterable[str]:
    """The scopes that a tool needs beside the others."""
    for pattern, scopes in step_up.items():
        if pattern == "*" or names.matches(pattern, server, tool):
            yield from scopes
