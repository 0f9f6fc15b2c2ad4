"""Step-up: tools that need more scopes of a token than every request does (`auth.step_up`).

The rules this file keeps: it is the true tool that counts, and the control tool that it came through as well; what a
tool has made, a task or a kept result, needs what the tool needs; patterns are those of permissions; and who lacks a
scope is told all that the operation needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from toolgate.config import Auth, permission_names
from toolgate.core import names
from toolgate.core.fault import Fault
from toolgate.core.model import Call
from toolgate.core.spelling import as_a_lenient_reader
from toolgate.policy.base import Policy


class Scopes(Policy):
    """Clients that come with a key have no scopes, and need none: `clients` says what they may do."""

    name = "step-up"

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        named = {permission_names.named(pattern): scopes for pattern, scopes in auth.step_up.items()}
        self._steps = [(pattern.split("*"), scopes) for pattern, scopes in named.items()]
        self._loosely = [([as_a_lenient_reader(part) for part in parts], scopes) for parts, scopes in self._steps]

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call:
        held = call.client.principal.scopes
        if held is None:
            return call
        if call.about:
            self.before(call.about, was_passed)
        if call.kind not in ("tools", "methods"):
            return call
        if call.kind == "methods":  # it may reach any tool of its server
            begin = call.server + names.SEPARATOR
            near = [scopes for parts, scopes in self._steps if parts[0].startswith(begin) or begin.startswith(parts[0])]
            return self._held(call, held, dict.fromkeys((*self._auth.scopes, *itertools.chain(*near))))
        via = self._of(*names.place_of(call.via)) if call.asked else ()
        return self._held(call, held, dict.fromkeys((*self._auth.scopes, *self._of(call.server, call.target), *via)))

    def lets_know(self, about: Call) -> bool:
        """Whether somebody may know what this call has made."""
        try:
            self.before(about, was_passed=True)
        except Fault:
            return False
        return True

    def recheck(self, call: Call, ticket: Any) -> None:
        self.before(call, was_passed=True)

    def _held(self, call: Call, held: frozenset[str], needed: Iterable[str]) -> Call:
        needed = tuple(needed)
        if missing := [scope for scope in needed if scope not in held]:
            raise Fault(
                "INSUFFICIENT_SCOPE",
                f"The token lacks the scope {' '.join(missing)}",
                reach="not_sent",
                hint="sign in again with these scopes",
                extra={"scopes": list(needed)},
            )
        return call

    def _of(self, server: str, tool: str) -> Iterable[str]:
        """The scopes that a tool needs beside the others. A server may read names leniently: that, too, asks for more
        and for no less."""
        spellings = {server + names.SEPARATOR + tool, names.join_name(server, tool)}
        loosely = server + names.SEPARATOR + as_a_lenient_reader(tool)
        for (parts, scopes), (lenient, _) in zip(self._steps, self._loosely, strict=True):
            if any(names.fits(parts, each) for each in spellings) or names.fits(lenient, loosely):
                yield from scopes
