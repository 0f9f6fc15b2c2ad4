"""Who is signed in to the operator's pages with a browser, and the links that let somebody in once.

The rules this file keeps: a link is good once, and for five minutes; a session ends after eight hours, after one
without a request, and as soon as who has it would not be let in any more; of neither is there more than a bound; and
what a browser shows is compared as its hash, so that no comparison tells how near a guess was.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

import msgspec

from toolgate.core.clock import Clock
from toolgate.core.model import Principal

LINK_LASTS = 300.0  # seconds
LASTS = 8 * 3600.0
IDLE = 3600.0
MOST_LINKS = 16
MOST_SESSIONS = 64


class BrowserSession(msgspec.Struct, eq=False):
    """`csrf` stands in each form of its pages; `says` is shown once, on the next page; at `sign_out_url` who has it
    signs out at the issuer, too. Times by the monotonic clock."""

    principal: Principal
    csrf: str
    until: float
    idle_until: float
    sign_out_url: str = ""
    says: str = ""
    has_failed: bool = False

    def is_its_form(self, csrf: str) -> bool:
        return hmac.compare_digest(csrf.encode(), self.csrf.encode())


class BrowserSessions:
    """`is_let_in` says whether somebody would be, now."""

    def __init__(self, clock: Clock, is_let_in: Callable[[Principal], bool]) -> None:
        self._clock = clock
        self._is_let_in = is_let_in
        self._links: dict[str, tuple[Principal, float]] = {}
        self._sessions: dict[str, BrowserSession] = {}

    def link(self, principal: Principal) -> str:
        """The secret part of a new link. Beyond the bound the oldest one is good no more."""
        code = secrets.token_urlsafe(32)
        self._links[_hashed(code)] = (principal, self._clock.now() + LINK_LASTS)
        while len(self._links) > MOST_LINKS:
            del self._links[next(iter(self._links))]
        return code

    def has_link(self, code: str) -> bool:
        _, until = self._links.get(_hashed(code), (None, 0.0))
        return self._clock.now() < until

    def redeemed(self, code: str) -> Principal | None:
        """Who a link is for, whom it lets in no second time."""
        principal, until = self._links.pop(_hashed(code), (None, 0.0))
        return principal if self._clock.now() < until else None

    def begin(self, principal: Principal, sign_out_url: str = "") -> str:
        """What the cookie of a new session holds. Beyond the bound the one ends that was idle for longest."""
        cookie, now = secrets.token_urlsafe(32), self._clock.now()
        left = LASTS if principal.expires is None else min(LASTS, principal.expires - self._clock.wall())
        session = BrowserSession(principal, secrets.token_urlsafe(32), now + left, now + IDLE, sign_out_url)
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[min(self._sessions, key=lambda each: self._sessions[each].idle_until)]
        self._sessions[_hashed(cookie)] = session
        return cookie

    def find(self, cookie: str) -> BrowserSession | None:
        """The session that a request belongs to, which is idle no more."""
        where, now = _hashed(cookie), self._clock.now()
        session = self._sessions.get(where)
        if session and self.is_good(session):
            session.idle_until = now + IDLE
            return session
        self._sessions.pop(where, None)
        return None

    def is_good(self, session: BrowserSession) -> bool:
        now = self._clock.now()
        is_in_time = now < session.until and now < session.idle_until
        return is_in_time and session in self._sessions.values() and self._is_let_in(session.principal)

    def end(self, session: BrowserSession) -> None:
        self._sessions = {where: each for where, each in self._sessions.items() if each is not session}

    def end_unknown(self, is_known: Callable[[Principal], bool]) -> None:
        """End those of who would not be let in any more, and their links."""
        self._sessions = {where: each for where, each in self._sessions.items() if is_known(each.principal)}
        self._links = {where: each for where, each in self._links.items() if is_known(each[0])}


def _hashed(shown: str) -> str:
    return hashlib.sha256(shown.encode("utf-8", "replace")).hexdigest()
