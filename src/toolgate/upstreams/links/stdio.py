"""A link to a child process: one JSON message a line on its stdin and stdout.

The rule this file keeps: a line that is no JSON object, nor an array of some, is noise, skipped and logged, and harms
nobody.
"""

from __future__ import annotations

import contextlib
import logging
import re
from functools import partial

from toolgate.config import Server
from toolgate.core import jsonrpc
from toolgate.core.bodies import FREE, Bodies
from toolgate.core.clock import Clock
from toolgate.core.complaints import Complaints
from toolgate.core.fault import Fault, Words
from toolgate.core.inflow import Intake, IntakeQueue
from toolgate.core.lines import Lines
from toolgate.core.outflow import SHORT
from toolgate.core.redaction import excerpt
from toolgate.upstreams import diagnosis
from toolgate.upstreams.links.base import LONGEST_MESSAGE, Headers, PipeLink, Receiver
from toolgate.upstreams.links.outbox import Outbox
from toolgate.upstreams.links.unended import Unended
from toolgate.upstreams.process.supervisor import Child, Launch, Supervisor

log = logging.getLogger(__name__)

LONGEST_LINE = LONGEST_MESSAGE
_is_message = re.compile(rb"(?:\[\s*+)?\{").match
PIECE = 1024  # bytes that are taken in one go: 341 messages at most, in 3 ms


class StdioLink(PipeLink):
    discovers = True

    def __init__(
        self,
        server: Server,
        receiver: Receiver,
        clock: Clock,
        turns: IntakeQueue,
        complaints: Complaints | None = None,
        cut: int | None = None,
        unended: Bodies | None = None,
    ) -> None:
        """`unended` counts lines that have begun, of all servers. A line of more than `cut` bytes, where that is said,
        is received without what follows them. One of more than `LONGEST_LINE` ends the server."""
        self._cut = cut
        self._complaints = complaints
        self._signs = 0
        self._server = server
        self._receiver = receiver
        self._lines = Lines()
        self._intake = Intake(self._take, None, PIECE, turns, lambda: server.id)
        self._unended = Unended(unended or Bodies(), server.id, self._intake)
        self._outflow = turns.outflow
        self._unsent = b""
        self._outbox = Outbox(server, clock, receiver, self._write)
        self._child: Child | None = None
        self._parts = ""

    async def connect(self, supervisor: Supervisor, launch: Launch | None = None) -> None:
        """`launch` is how it is started; without one, as its configuration says, which then has no box."""
        server = self._server
        assert launch or not server.confines
        start = launch or server
        self._parts = launch.parts if launch else ""
        self._child = await supervisor.start(
            *(server.name, start.command, start.args, start.env, start.cwd),
            *(self._output, self._exited, self._stderr),
            may_gain_privileges=server.new_privileges and server.by_operator,
            box=launch.box if launch else None,
        )
        self._intake.transport = self._child.output
        self._child.on_full, self._child.on_room = self._outbox.full, self._outbox.go_on

    @property
    def signs_of_life(self) -> int | None:
        return self._signs

    async def send(self, data: bytes, headers: Headers = (), origin: int | None = None) -> None:
        assert self._child
        try:
            await self._outbox.send(data, origin)
        except Fault as fault:
            if fault.code == "SESSION_ERROR":
                await self._child.ended()  # a second sending must find the next child, not this one
            raise

    def send_now(self, data: bytes, headers: Headers, origin: int, whose: str) -> bool:
        try:
            return self._outbox.send_now(data)
        except Fault:
            return False  # `send` waits for the child's end

    def describe(self) -> dict[str, object]:
        child = self._child
        if not child:
            return {}
        return {
            "pid": child.pid,
            "started": child.started,
            "says": partial(child.stderr.text, self._server.id),
            "parts": self._parts,
        }

    def replace(self, why: str) -> None:
        if self._child:
            self._child.end(why)

    async def close(self) -> None:
        if self._child:
            self.flush()
            self._child.end()
            await self._child.ended()

    def _write(self, data: bytes) -> None:
        """A short message goes out with what else is written in this round of the event loop."""
        assert self._child
        line = jsonrpc.one_line(data) + b"\n"
        if len(line) > SHORT:
            self.flush()
            self._child.write(line)
            return
        self._child.check()
        if not self._unsent:
            self._outflow.put(self)
        self._unsent += line
        if len(self._unsent) > SHORT:
            self.flush()

    def flush(self) -> None:
        unsent, self._unsent = self._unsent, b""
        if unsent and self._child:
            with contextlib.suppress(Fault):  # it has ended since then: whoever waits for an answer is told so
                self._child.write(unsent)

    def _output(self, chunk: bytes) -> None:
        self._signs += 1
        self._intake.put(chunk)

    def _take(self, piece: bytes) -> None:
        for line in self._lines.feed(piece):
            self._hear(line)
        if self._cut is not None and self._lines.pending > self._cut:
            self._hear(self._lines.drop())
        if self._lines.pending + self._lines.dropped > LONGEST_LINE and self._child:
            self._lines.drop()
            self._lines.dropped = 0  # said once, and again only where as much still comes
            log.error("%s wrote a line of more than %d bytes and was stopped", self._server.name, LONGEST_LINE)
            self._child.end(f"wrote a line of more than {LONGEST_LINE} bytes and was stopped")
        if self._unended.size or self._lines.pending > FREE:
            self._unended.keeps(self._lines.pending)

    def _hear(self, line: bytes) -> None:
        text = line.strip()
        if _is_message(text):
            if reading := self._receiver.received(text, None):
                self._intake.hold_until(reading)
        elif text and (not self._complaints or self._complaints.takes(self._server.id)):
            shown = excerpt(text, server=self._server.id)
            log.warning("%s wrote a line to stdout that is not a message: %r", self._server.name, shown)

    def _stderr(self) -> None:
        self._signs += 1

    def _exited(self, reason: str) -> None:
        self._intake.finish(lambda: self._over(reason))

    def _over(self, reason: str) -> None:
        self._unended.ended()
        self._lines.drop()  # of its last line: this may be kept until garbage is collected
        hint = f"{diagnosis.LOOK}: toolgate doctor --server {self._server.id}"
        fault = Fault("SERVER_FAILED", reason, server=self._server.id, reach="sent_unknown", hint=hint)
        stderr = self._child.stderr.text(self._server.id) if self._child else ""
        if not reason.endswith("stopped") and (last := diagnosis.last_words(stderr)):
            fault.words = Words(last)
        self._receiver.closed(fault)
        self._outbox.end()
