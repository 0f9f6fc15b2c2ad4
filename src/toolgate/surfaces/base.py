"""What a surface is. Synchronous and pure: what it needs of the catalog is there before it is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Raw

from toolgate.model import Call, Fault, Outcome
from toolgate.ports import View


class Surface(Protocol):
    def needs(self, call: Call, view: View) -> Iterable[tuple[str, str]]:
        """The (server, kind) whose shelves `enter` must have to resolve this call."""
        ...

    def list(self, kind: str, view: View) -> Iterable[Raw]:
        """The items of one list, in this surface's names."""
        ...

    def enter(self, call: Call, view: View) -> Call:
        """The call with its true target. Raises `Fault` where there is none."""
        ...

    def expose(self, server: str, uri: str) -> str:
        """A server's own URI as this surface shows it."""
        ...

    def refuse(self, call: Call, fault: Fault) -> Outcome:
        """The outcome of a call that failed, where this surface has one; `call` is the client's own. Else it raises the
        fault."""
        ...

    def leave(self, call: Call, outcome: Outcome) -> Outcome:
        """The outcome in this surface's names. `call` has its true target."""
        ...
