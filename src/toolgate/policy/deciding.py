"""What an operator decides on calls that wait: carried out, and noted in the audit, wherever it is decided.

The command line, the admin API and the pages decide here and nowhere else. The rule this file keeps: nothing is decided
without a line, though who has decided it is gone meanwhile.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from toolgate.auth import safe_text
from toolgate.core.background import whole
from toolgate.core.model import Principal
from toolgate.policy import approval_requests
from toolgate.policy.approvals import Approvals, Grant, Lasts, StoredRequest, Unfit, is_change
from toolgate.policy.checker import Checker
from toolgate.state.audit import Trail

Kept = TypeVar("Kept", StoredRequest, Grant)


class Deciding:
    """`ttl` is how long a decision waits for its call, in seconds. Raises `NotKept` where the store takes nothing."""

    def __init__(self, approvals: Approvals, trail: Trail, checker: Checker) -> None:
        self.approvals = approvals
        self._checker = checker
        self._trail = trail

    def request(self, id: str) -> StoredRequest:
        """Raises `Unfit`."""
        return _find(self.approvals.requests(), id, "no waiting call with the id")

    def grant(self, id: str) -> Grant:
        """Raises `Unfit`."""
        return _find(self.approvals.grants(), id, "no grant with the id")

    async def check_arguments(self, request: StoredRequest, arguments: str) -> None:
        """Whether these could be called with instead. Raises `Unfit`."""
        try:
            approval_requests.read_edited(arguments)
        except approval_requests.Unsendable as why:
            raise Unfit(f"cannot be sent: {why}") from None
        if not request.schema:
            return
        _, verdict = await self._checker.check("", request.place.server, request.schema, arguments.encode())
        if verdict.wrong:
            named = "; ".join(f"{each.pointer or 'arguments'}: {each.message}" for each in verdict.wrong)
            raise Unfit(f"do not fit the tool: {safe_text.plain(named)}")

    async def allow(
        self, request: StoredRequest, lasts: Lasts, ttl: float, arguments: str, by: Principal | str
    ) -> None:
        """`arguments`, in JSON, are called with instead of its own, where there are some. Raises `Unfit`, `TooMany`."""
        decided = self.approvals.allow(request, lasts, ttl, arguments)
        about = {"sha256": request.digest, "lasts": lasts, "edited": bool(arguments)}
        await whole(self._noted(decided, "allow", request, by, **about))

    async def deny(self, request: StoredRequest, ttl: float, by: Principal | str) -> None:
        """Raises `Unfit`."""
        await whole(self._noted(self.approvals.deny(request, ttl), "deny", request, by, sha256=request.digest))

    async def revoke(self, grant: Grant, by: Principal | str) -> None:
        await whole(self._noted(self.approvals.revoke(grant), "revoke", grant, by))

    async def _noted(
        self,
        decision: Coroutine[Any, Any, None],
        what: str,
        decided: StoredRequest | Grant,
        by: Principal | str,
        **about: Any,
    ) -> None:
        await decision
        place = decided.place
        named = {"id": decided.id, "principal": place.principal, "server": place.server, "target": place.target}
        note = self._trail.note_change if is_change(place) else self._trail.note
        note(f"approvals.{what}", by, **named, **about)


def _find(known: Sequence[Kept], id: str, otherwise: str) -> Kept:
    for each in known:
        if each.id == id:
            return each
    there = "`toolgate approvals list` and `grants` list the ids"
    raise Unfit(f"{otherwise} {safe_text.named(id)}; it may have been used or have expired. {there}")
