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
from typing import NamedTuple

import msgspec

from toolgate.core.clock import Clock
from toolgate.core.model import Principal

LINK_LASTS = 300.0  # seconds
LASTS = 8 * 3600.0
IDLE = 3600.0
MOST_LINKS = 16
MOST_SESSIONS = 64


class End(NamedTuple):
    """By the clock that only grows, since the other one can be set back; and by that, since the first one stands still
    while the machine sleeps. Whichever comes first."""

    now: float
    wall: float


class BrowserSession(msgspec.Struct, eq=False):
    """`csrf` stands in each form of its pages; `says` is shown once, on the next page; at `sign_out_url` who has it
    signs out at the issuer, too."""

    principal: Principal
    csrf: str
    until: End
    idle_until: End
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
        self._links: dict[str, tuple[Principal, End]] = {}
        self._sessions: dict[str, BrowserSession] = {}

    def link(self, principal: Principal) -> str:
        """The secret part of a new link. Beyond the bound the oldest one is good no more."""
        code = secrets.token_urlsafe(32)
        self._links[_hashed(code)] = (principal, self._end_in(LINK_LASTS))
        while len(self._links) > MOST_LINKS:
            del self._links[next(iter(self._links))]
        return code

    def has_link(self, code: str) -> bool:
        _, until = self._links.get(_hashed(code), _NO_LINK)
        return not self._is_over(until)

    def redeemed(self, code: str) -> Principal | None:
        """Who a link is for, whom it lets in no second time."""
        principal, until = self._links.pop(_hashed(code), _NO_LINK)
        return None if self._is_over(until) else principal

    def begin(self, principal: Principal, sign_out_url: str = "") -> str:
        """What the cookie of a new session holds. Beyond the bound the one ends that was idle for longest."""
        cookie = secrets.token_urlsafe(32)
        left = LASTS if principal.expires is None else min(LASTS, principal.expires - self._clock.wall())
        ends = self._end_in(left), self._end_in(IDLE)
        session = BrowserSession(principal, secrets.token_urlsafe(32), *ends, sign_out_url)
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[min(self._sessions, key=lambda each: self._sessions[each].idle_until)]
        self._sessions[_hashed(cookie)] = session
        return cookie

    def find(self, cookie: str) -> BrowserSession | None:
        """The session that a request belongs to, which is idle no more."""
        where = _hashed(cookie)
        session = self._sessions.get(where)
        if session and self.is_good(session):
            session.idle_until = self._end_in(IDLE)
            return session
        self._sessions.pop(where, None)
        return None

    def is_good(self, session: BrowserSession) -> bool:
        is_over = self._is_over(session.until) or self._is_over(session.idle_until)
        return not is_over and session in self._sessions.values() and self._is_let_in(session.principal)

    def end(self, session: BrowserSession) -> None:
        self._sessions = {where: each for where, each in self._sessions.items() if each is not session}

    def end_unknown(self, is_known: Callable[[Principal], bool]) -> None:
        """End those of who would not be let in any more, and their links."""
        self._sessions = {where: each for where, each in self._sessions.items() if is_known(each.principal)}
        self._links = {where: each for where, each in self._links.items() if is_known(each[0])}

    def _end_in(self, seconds: float) -> End:
        return End(self._clock.now() + seconds, self._clock.wall() + seconds)

    def _is_over(self, end: End) -> bool:
        return self._clock.now() >= end.now or self._clock.wall() >= end.wall


_NO_LINK = None, End(0.0, 0.0)


def _hashed(shown: str) -> str:
    return hashlib.sha256(shown.encode("utf-8", "replace")).hexdigest()
