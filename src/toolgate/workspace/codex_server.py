"""One `codex app-server`: a process that runs Codex's threads for all who ask, spoken to in lines of JSON.

The messages are JSON-RPC without `jsonrpc` (`codex app-server generate-json-schema` prints them all; those of 0.169 are
known here). The rules this file keeps: the process is there while somebody uses it and a while longer, and the next use
starts another one after it has ended, however that came; what it says about one thread goes to who listens to that
thread; and each question that it asks is answered, with an error where nobody can.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Raw

from toolgate import __version__
from toolgate.config import Server
from toolgate.core import jsonrpc
from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock, Timer
from toolgate.core.fault import Fault
from toolgate.core.large import Whole
from toolgate.core.redaction import excerpt
from toolgate.upstreams.links import LinkDeps, MakeLink
from toolgate.upstreams.links.base import Link, Receiver
from toolgate.upstreams.links.stdio import StdioLink
from toolgate.workspace.codex_turn import Turn

log = logging.getLogger(__name__)

MOST_WAITING = 256  # requests of ours that are not answered
LONGEST_ID = 256  # bytes of the id of a question, which is sent back
LONGEST_ERROR = 2000  # characters of what Codex says went wrong

LONGEST_LINE = 4 * 1024 * 1024  # bytes of a message; of a longer one only its beginning is looked at
BEGINNING = 4096  # bytes of it

# What a turn goes by; all else that is told is passed over.
_HEARD = ("item/started", "item/completed", "turn/completed")
_begins_answer = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,')
_begins_end = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"\s*:\s*"turn/completed"')
_names_thread = re.compile(rb'"threadId"\s*:\s*"([^"\\]{1,256})"')


class _Said(msgspec.Struct):
    """A message of the app-server."""

    id: Raw = jsonrpc.NOTHING
    method: str = ""
    params: Raw = jsonrpc.EMPTY_OBJECT
    result: Raw = jsonrpc.NOTHING
    error: Raw = jsonrpc.NOTHING


class _OfThread(msgspec.Struct, rename="camel"):
    thread_id: str = ""


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""


class CodexError(Exception):
    """Codex refuses a request. `str()` says why, in its words."""


class Connection:
    """One process while it runs. `on_end` is told once that it has ended."""

    def __init__(self, on_end: Callable[[Connection], None]) -> None:
        self.turns: dict[str, Turn] = {}  # by thread
        self.link: Link | None = None
        self.fault: Fault | None = None  # since it has ended
        self._on_end = on_end
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Raw]] = {}
        self._answers = BackgroundTasks()

    def receiver(self) -> Receiver:
        return Receiver(
            principal="",
            whose=lambda _origin: "codex",
            received=self._received,
            awaits=lambda id: id in self._waiting,
            failed=lambda id, fault: self._fail(id, fault),
            retired=self._closed,
            closed=self._closed,
        )

    async def request(self, method: str, params: Any) -> Raw:
        """The result. Raises `CodexError`, and `Fault` where the process has ended."""
        if self.fault:
            raise self.fault.at("", "")
        if len(self._waiting) >= MOST_WAITING:
            raise Fault("RATE_LIMITED", "Codex has too many requests that it has not answered", reach="not_sent")
        id = next(self._ids)
        answered: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._waiting[id] = answered
        try:
            await self._send({"id": id, "method": method, "params": params}, id)
            return await answered
        finally:
            del self._waiting[id]

    async def notify(self, method: str) -> None:
        await self._send({"method": method}, None)

    async def _send(self, message: Any, origin: int | None) -> None:
        assert self.link
        await self.link.send(jsonrpc.encode(message), (), origin)

    async def close(self) -> None:
        self._closed(Fault("SESSION_ERROR", "Codex was stopped", reach="sent_unknown"))
        await self._answers.close()
        if self.link:
            await self.link.close()

    # What comes. None of these raises.

    def _received(self, data: Whole, _origin: int | None) -> None:
        line = bytes(data)  # as it is: it comes over a pipe
        if len(line) > LONGEST_LINE:
            self._too_long(line[:BEGINNING])
            return
        try:
            said = jsonrpc.read(line, _Said)
        except jsonrpc.UNREADABLE:
            log.warning("Codex wrote a line that is not a message: %r", excerpt(line))
            return
        if not said.method:
            self._answered(said)
        elif said.id or said.method in _HEARD:
            self._told(said)

    def _too_long(self, beginning: bytes) -> None:
        """What waits for this message fails. Anything else that is too long is passed over."""
        log.warning("Codex wrote a message of more than %d bytes, which is not read", LONGEST_LINE)
        what = f"a message of more than {LONGEST_LINE:,} bytes"
        if found := _begins_answer.match(beginning):
            hint = "ask for fewer at once, with `limit`"
            fault = Fault("UPSTREAM_ERROR", f"Codex answered with {what}", reach="executed", hint=hint)
            self._fail(int(found[1]), fault)
            return
        thread = _begins_end.match(beginning) and _names_thread.search(beginning)
        if thread and (turn := self.turns.get(thread[1].decode(errors="replace"))):
            turn.failed(Fault("UPSTREAM_ERROR", f"Codex ended the turn with {what}", reach="executed"))

    def _answered(self, said: _Said) -> None:
        answered = self._waiting.get(
            int(bytes(said.id)) if bytes(said.id).isdigit() and len(bytes(said.id)) < 16 else 0
        )
        if not answered or answered.done():
            return
        if said.error:
            answered.set_exception(CodexError(_message(said.error)))
        else:
            answered.set_result((said.result or jsonrpc.EMPTY_OBJECT).copy())

    def _told(self, said: _Said) -> None:
        try:
            thread = jsonrpc.read(said.params, _OfThread).thread_id
        except jsonrpc.UNREADABLE:
            thread = ""
        turn = self.turns.get(thread)
        if not said.id:
            if turn:
                turn.told(said.method, said.params)
            return
        if len(bytes(said.id)) > LONGEST_ID:
            return
        id = said.id.copy()

        def answer(result: Any) -> None:
            self._reply({"id": id, "result": result})

        if not turn or not turn.asked(said.method, said.params, answer):
            why = {"code": jsonrpc.METHOD_NOT_FOUND, "message": "toolgate has nobody to ask this question"}
            self._reply({"id": id, "error": why})

    def _reply(self, message: Any) -> None:
        if not self.fault:
            self._answers.start(self._replied(message), "answer Codex")

    async def _replied(self, message: Any) -> None:
        try:
            await self._send(message, None)
        except Fault as fault:
            log.debug("a question of Codex was not answered: %s", fault.message)

    def _fail(self, id: int, fault: Fault) -> None:
        answered = self._waiting.get(id)
        if answered and not answered.done():
            answered.set_exception(fault.at("", ""))

    def _closed(self, fault: Fault) -> None:
        if self.fault:
            return
        self.fault = fault
        for id in list(self._waiting):
            self._fail(id, fault)
        for turn in list(self.turns.values()):
            turn.ended(fault)
        self._on_end(self)


def _message(error: Raw) -> str:
    try:
        return excerpt(jsonrpc.read(error, _Error).message, LONGEST_ERROR) or "no reason given"
    except jsonrpc.UNREADABLE:
        return "its error is malformed"


async def over_stdio(server: Server, receiver: Receiver, deps: LinkDeps) -> Link:
    """A process of it."""
    link = StdioLink(server, receiver, deps.clock, deps.turns, deps.complaints, cut=LONGEST_LINE)
    await link.connect(deps.supervisor)
    return link


class CodexServer:
    """The process, started when it is used and stopped when it was not for `idle` seconds."""

    def __init__(self, server: Server, make: MakeLink, deps: LinkDeps, idle: float) -> None:
        self.server = server
        self._make = make
        self._deps = deps
        self._clock: Clock = deps.clock
        self._idle = idle
        self._opening = asyncio.Lock()
        self._connection: Connection | None = None
        self._users = 0
        self._is_retired = False
        self._timer: Timer | None = None
        self._closing = BackgroundTasks()

    @asynccontextmanager
    async def used(self) -> AsyncGenerator[Connection]:
        """The running process; it is not stopped meanwhile. Raises `Fault` where it cannot be started."""
        self._users += 1
        if self._timer:
            self._timer.cancel()
            self._timer = None
        try:
            yield await self._connected()
        finally:
            self._users -= 1
            if not self._users:
                self._timer = self._clock.call_later(0 if self._is_retired else self._idle, self._rest)

    async def _connected(self) -> Connection:
        async with self._opening:
            if self._connection is None:
                self._connection = await self._opened()
            return self._connection

    async def _opened(self) -> Connection:
        connection = Connection(self._ended)
        try:
            connection.link = await self._make(self.server, connection.receiver(), self._deps)
            async with self._clock.timeout(self.server.start_timeout):
                info = {"name": "toolgate", "title": "toolgate", "version": __version__}
                await connection.request("initialize", {"clientInfo": info})
                await connection.notify("initialized")
        except BaseException as error:
            self._closing.start(connection.close(), "close Codex")
            if isinstance(error, TimeoutError):
                message = f"Codex did not answer within {self.server.start_timeout:g} s"
                raise Fault("SERVER_FAILED", message, reach="not_sent") from None
            if isinstance(error, CodexError):
                raise Fault("SERVER_FAILED", f"Codex refused to start: {error}", reach="not_sent") from None
            raise
        return connection

    def _ended(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            self._closing.start(connection.close(), "close Codex")

    def _rest(self) -> None:
        """Nobody has used it for a while."""
        self._timer = None
        if self._connection and not self._users:
            self._closing.start(self._connection.close(), "close Codex")

    def replace(self, connection: Connection) -> None:
        """End a process that does not do as it is told. The next use starts another."""
        if not connection.fault:
            self._closing.start(connection.close(), "close Codex")

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it is left to be closed."""
        return not (self._users or self._connection or any(self._closing))

    def retire(self) -> None:
        """It is stopped as soon as nobody uses it."""
        self._is_retired = True
        if not self._users:
            if self._timer:
                self._timer.cancel()
            self._rest()

    async def close(self) -> None:
        if self._timer:
            self._timer.cancel()
        if self._connection:
            await self._connection.close()
        for task in list(self._closing):
            await asyncio.wait((task,))
