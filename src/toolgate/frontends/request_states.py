"""What a client of 2026-07-28 gets as `requestState`, and brings back: sealed, and bound to the very request.

It binds principal, path, method, target, arguments, asker, round and expiry.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from toolgate.auth.seal import Broken, Seal
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.model import Asker, Call
from toolgate.eras import calls
from toolgate.gateway.snapshot import Route


class State(msgspec.Struct, frozen=True, array_like=True):
    """What a sealed `requestState` holds. `parked_call` names parked work; else `inner` is what the asker wants
    back. `called` are keys of its questions that were shown as something else."""

    principal: str
    path: str
    digest: bytes
    asker: Asker
    expires: float
    node: str
    round: int
    parked_call: str | None
    inner: str | None
    called: Mapping[str, str] = {}


class RequestStates:
    """`ttl` is how many seconds one is valid; `node` names this process in them."""

    def __init__(self, seal: Seal, clock: Clock, ttl: float, node: str) -> None:
        self._seal = seal
        self._clock = clock
        self._ttl = ttl
        self._node = node

    def sealed(
        self,
        call: Call,
        route: Route,
        asker: Asker,
        round: int,
        parked_call: str | None,
        inner: str | None,
        called: Mapping[str, str] = {},
    ) -> str:
        return self._seal.seal(
            State(
                principal=call.client.principal.id,
                path=route.path,
                digest=calls.digest(call),
                asker=asker,
                expires=self._clock.wall() + self._ttl,
                node=self._node,
                round=round,
                parked_call=parked_call,
                inner=inner,
                called=called,
            )
        )

    def opened(self, sealed: str, call: Call, route: Route) -> State:
        """The state that a retry brings. Raises `Fault` INVALID_STATE for one that is not for this very request."""
        try:
            state = self._seal.unseal(sealed, State)
        except Broken:
            raise _unknown() from None
        if state.principal != call.client.principal.id:  # to anyone else it does not exist
            raise _unknown()
        if (state.path, state.digest) != (route.path, calls.digest(call)):
            raise Fault("INVALID_STATE", "requestState belongs to another request")
        if state.expires <= self._clock.wall():
            raise Fault("INVALID_STATE", "requestState is no longer valid: it has expired")
        if state.parked_call is not None and state.node != self._node:
            raise Fault("INVALID_STATE", "requestState belongs to a gateway that has ended")
        return state


def _unknown() -> Fault:
    return Fault("INVALID_STATE", "requestState is invalid")
