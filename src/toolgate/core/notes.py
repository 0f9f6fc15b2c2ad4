"""What is told of one call while it runs: progress, logs, and notifications that MCP does not define."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc


class Note(msgspec.Struct, frozen=True):
    """A notification of one call. `params` has no progress token: each hop puts its own in."""

    kind: Literal["progress", "log", "other"]
    params: Raw
    method: str = ""  # of one that MCP does not define
    is_scrubbed: bool = False  # as `Fault.is_scrubbed`


Listener: TypeAlias = Callable[[Note], None]
"""What hears the notes of one call; events, which belong to no call, go to an `EventSink`."""


class _Progress(msgspec.Struct):
    progress: float


class Notes(msgspec.Struct, eq=False):
    """Where a call's notes go: to the listener of now, or into a bounded buffer while nobody does (parked). What is to
    be changed in them is, before anything else is done with them."""

    KEPT_LOGS: ClassVar = 100
    KEPT_BYTES: ClassVar = 64 * 1024  # of all logs that are kept
    LONGEST_KEPT: ClassVar = 16 * 1024  # bytes of one note

    _listener: Listener | None = None
    change: Callable[[Note], Note] | None = None
    _progress: Note | None = None
    _reached: float = float("-inf")
    _logs: tuple[Note, ...] = ()  # that are kept

    def put(self, note: Note) -> None:
        if self.change and not note.is_scrubbed:
            note = self.change(note)
        if note.kind == "progress" and not self._goes_on(note):
            return
        if self._listener:
            self._listener(note)
        elif note.kind == "progress":
            self._progress = note
        elif len(memoryview(note.params)) <= self.LONGEST_KEPT:
            # A part would keep its message.
            self._logs = (*self._logs[1 - self.KEPT_LOGS :], msgspec.structs.replace(note, params=note.params.copy()))
            while sum(len(memoryview(each.params)) for each in self._logs) > self.KEPT_BYTES:
                self._logs = self._logs[1:]

    def _goes_on(self, note: Note) -> bool:
        """Progress must increase (spec: basic/patterns/progress); what does not is not passed on. Nor is what would be
        kept, and is too long."""
        try:
            reached = jsonrpc.read(note.params, type=_Progress).progress
        except jsonrpc.UNREADABLE:
            return False
        increased, self._reached = reached > self._reached, max(reached, self._reached)
        return increased and (self._listener is not None or len(memoryview(note.params)) <= self.LONGEST_KEPT)

    def attach(self, listener: Listener | None) -> None:
        """Send what was kept, then what comes, to `listener`. None: keep the last progress, and the last logs."""
        self._listener = listener
        if not listener:
            return
        kept, self._logs, self._progress = (*self._logs, *filter(None, (self._progress,))), (), None
        for note in kept:
            listener(note)
