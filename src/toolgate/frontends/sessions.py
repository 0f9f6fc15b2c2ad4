"""All sessions of a door, and when each of them ends.

A session is implicit until it is initialized or used a second time: most of those are one request of a client that
knows no sessions. The rules this file keeps: they take no more than a tenth of the room, and go first; none that works
goes before one that is idle; and who has the most loses one first.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from toolgate.frontends.session import Session
from toolgate.frontends.visits import Known
from toolgate.model import Principal
from toolgate.ports import Clock


class Sessions:
    """`idle` seconds without use end a session; there are at most `most`."""

    def __init__(self, clock: Clock, idle: float, most: int) -> None:
        self._clock = clock
        self._idle = idle
        self._most = most
        self._implicit: dict[str, Session] = {}  # both: least recently used first
        self._kept: dict[str, Session] = {}
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
        if len(self) >= self._most or (implicit and len(self._implicit) >= max(1, self._most // 10)):
            self.end(self._least_needed())
        (self._implicit if implicit else self._kept)[session.id] = session
        if self._is_closed:
            self.end(session)

    def get(self, id: str, principal: Principal) -> Session | None:
        """The session, if it is this principal's; to anyone else it does not exist, nor to a request with less rights,
        as a browser's has. From now on it has what this request has shown."""
        session = self._implicit.get(id) or self._kept.get(id)
        if not session or not principal.may_act_as(session.client.principal):
            return None
        self._forget(session)
        self._kept[id] = session
        session.touch()
        session.is_shown(principal)
        return session

    def end_unknown(self, is_known: Known) -> None:
        """End those of clients that would not be let in any more."""
        for session in self.all():
            if not is_known(session.client.principal):
                self.end(session)

    def end(self, session: Session) -> None:
        """End one that is ours. Its closing goes on in the background, and is waited for by `close`."""
        if self._forget(session):
            task = asyncio.get_running_loop().create_task(session.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        self._is_closed = True
        self._timer.cancel()
        for session in self.all():
            self.end(session)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _forget(self, session: Session) -> bool:
        return bool(self._implicit.pop(session.id, None) or self._kept.pop(session.id, None))

    def _least_needed(self) -> Session:
        implicit = next((session for session in self._implicit.values() if session.is_idle), None)
        if implicit:
            return implicit
        idle = [session for session in self._kept.values() if session.is_idle]
        owned = Counter(session.client.principal.cap_key for session in self._kept.values())
        return max(idle, key=lambda session: owned[session.client.principal.cap_key], default=None) or self.all()[0]

    def _sweep_later(self) -> None:
        self._timer = self._clock.call_later(min(self._idle, 60.0) / 2, self._sweep)

    def _sweep(self) -> None:
        now = self._clock.now()
        for session in self.all():
            session.expire()
            if session.is_idle and now - session.used >= self._idle:
                self.end(session)
        self._sweep_later()
