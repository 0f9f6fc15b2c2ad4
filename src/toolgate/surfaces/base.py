"""What a surface is. Synchronous and pure: what it needs of the catalog is there before it is asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from msgspec import Raw

from toolgate.catalog.base import View
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Outcome
from toolgate.upstreams.base import About


class Surface(Protocol):
    def needs(self, call: Call, view: View) -> Iterable[tuple[str, str]]:
        """The (server, kind) whose lists `enter` must have to resolve this call."""
        ...

    def shown(self, kind: str, servers: Collection[str]) -> Collection[str]:
        """Of which of these servers such a list shows anything, so that theirs must be known."""
        ...

    def about(self) -> About | None:
        """What it offers, whatever servers are behind it; with instructions where theirs are not shown. None where that
        is its one server's to say."""
        ...

    def claims(self, call: Call, view: View) -> bool:
        """Whether the target is a name that this surface made, whoever else might have one like it."""
        ...

    def undecided(self, call: Call, view: View) -> Iterable[tuple[str, str]]:
        """The (server, kind) whose lists are still to be had before `claims` can tell."""
        ...

    def faults(self, kind: str, view: View) -> Iterable[tuple[str, str]]:
        """What keeps a list from showing all that servers have: (server, why)."""
        ...

    def named(self, server: str, kind: str, name: str) -> str:
        """A server's own name or URI as this surface has it."""
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

    def refuse(self, call: Call, fault: Fault, view: View) -> Outcome:
        """The outcome of a call that failed, entered or not, where this surface has one. Else it raises the fault."""
        ...

    def leave(self, call: Call, outcome: Outcome) -> Outcome:
        """The outcome in this surface's names. `call` has its true target."""
        ...
