"""All sessions of a frontend, and when each of them ends.

A session is implicit until it is initialized or used a second time: most of those are one request of a client that
knows no sessions. The rules this file keeps: they take no more than a tenth of the room; who has the most loses one
first, so that nobody ends what is another's by having many; and of theirs none that works goes before one that is idle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from toolgate.core import mcp
from toolgate.core.clock import Clock
from toolgate.core.fairness import Shares
from toolgate.core.model import Principal
from toolgate.frontends.active_requests import Known
from toolgate.frontends.deps import FrontendDeps
from toolgate.frontends.session import Session

AT_ONCE = 32  # sessions whose end begins in one round of the event loop


class Sessions:
    """`idle` seconds without use end a session; there are at most `most`."""

    def __init__(self, clock: Clock, idle: float, most: int) -> None:
        self._clock = clock
        self._idle = idle
        self._most = most
        self._implicit: dict[str, Session] = {}
        self._kept: dict[str, Session] = {}
        self._shares: Shares[Session] = Shares()  # all of them, of each principal least recently used first
        self._implicit_shares: Shares[Session] = Shares()  # of these, the implicit ones
        self._ended: deque[Session] = deque()  # those that are not being closed yet
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._sweep_later()

    def __len__(self) -> int:
        return len(self._implicit) + len(self._kept)

    def all(self) -> list[Session]:
        return [*self._kept.values(), *self._implicit.values()]

    def under_way(self) -> list[asyncio.Task[bytes]]:
        """The work for what clients have asked."""
        return [work for session in self.all() for work in session.under_way()]

    def add(self, session: Session, implicit: bool) -> None:
        """Take a new one in; where there is no room, the one that is needed least ends."""
        (self._implicit if implicit else self._kept)[session.id] = session
        self._shares.put(session.counted_as, session.id, session)
        if implicit:
            self._implicit_shares.put(session.counted_as, session.id, session)
        if implicit and len(self._implicit) > max(1, self._most // 10):
            self.end(_least_needed(self._implicit_shares.greatest(), session))
        elif len(self) > self._most:
            self.end(_least_needed(self._shares.greatest(), session))
        if self._is_closed:
            self.end(session)

    def get(self, id: str, principal: Principal) -> Session | None:
        """The session, if it is this principal's; to anyone else it does not exist, nor to a request with less rights,
        as a browser's has. From now on it has what this request has shown."""
        session = self._kept.get(id) or self._implicit.get(id)
        if not session:
            return None
        if principal is not (before := session.client.principal):  # else it shows what it has shown before
            if not principal.may_act_as(before):
                return None
            session.is_shown(principal)
        if self._implicit and self._was_implicit(session):
            self._kept[id] = session
        self._shares.used(session.counted_as, id)
        session.touch()
        return session

    def end_unknown(self, is_known: Known) -> None:
        """End those of clients that would not be let in any more."""
        for session in self.all():
            if not is_known(session.client.principal):
                self.end(session)

    def end(self, session: Session) -> None:
        """End one that is ours. Its closing goes on in the background, and is waited for by `close`."""
        if self._forget(session):
            session.give_up()
            self._ended.append(session)
            if len(self._ended) == 1:
                asyncio.get_running_loop().call_soon(self._close_some)

    def _close_some(self) -> None:
        """Thousands may end at the same moment: when a client's key is revoked, or half an hour after a flood."""
        loop = asyncio.get_running_loop()
        for _ in range(min(AT_ONCE, len(self._ended))):
            task = loop.create_task(self._ended.popleft().close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        if self._ended:
            loop.call_soon(self._close_some)

    async def close(self) -> None:
        self._is_closed = True
        self._timer.cancel()
        for session in self.all():
            self.end(session)
        while self._ended or self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)
            await asyncio.sleep(0)  # until those of the next round are being closed

    def _forget(self, session: Session) -> bool:
        is_ours = self._was_implicit(session) or bool(self._kept.pop(session.id, None))
        if is_ours:
            self._shares.remove(session.counted_as, session.id)
        return is_ours

    def _was_implicit(self, session: Session) -> bool:
        """Whether it was until now; it is not any more."""
        was_implicit = bool(self._implicit.pop(session.id, None))
        if was_implicit:
            self._implicit_shares.remove(session.counted_as, session.id)
        return was_implicit

    def _sweep_later(self) -> None:
        self._timer = self._clock.call_later(min(self._idle, 60.0) / 2, self._sweep)

    def _sweep(self) -> None:
        self._sweep_later()  # whatever comes of this one
        now = self._clock.now()
        for session in self.all():
            session.expire()
            if session.is_idle and now - session.used >= self._idle:
                self.end(session)


def new_session(deps: FrontendDeps, path: str, principal: Principal, revision: mcp.Revision | None = None) -> Session:
    """A session of a legacy client; `revision` is what it speaks unless it initializes."""
    ask_time, revision = deps.config.parking.ttl, revision or mcp.UNSTATED
    return Session(deps.gateway, deps.pages, path, principal, deps.clock, ask_time, revision, deps.replay_buffers)


def _least_needed(sessions: Iterable[Session], new: Session) -> Session:
    """One that is idle, else the first; not the new one."""
    others = (session for session in sessions if session is not new)
    first = next(others)
    return first if first.is_idle else next((session for session in others if session.is_idle), first)
