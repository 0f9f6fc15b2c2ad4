"""`toolgate serve --workers N`: the owner starts the workers, and one again that has ended; what each hears of
the other.

The rules this file keeps: a worker ends with its owner, whatever becomes of either; the socket that clients come to
is the owner's, so that none is refused while a worker starts again; and a worker that ends takes with it nothing but
its own calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from toolgate.cli import common
from toolgate.config import Config
from toolgate.core.events import Events
from toolgate.core.model import Event
from toolgate.frontends.workers import handed
from toolgate.frontends.workers.channel import Channel, Kind, pair
from toolgate.frontends.workers.handed import Handed
from toolgate.frontends.workers.local import LocalGateway
from toolgate.frontends.workers.owning import Accept
from toolgate.frontends.workers.taking import Worker
from toolgate.policy.shared_meters import Table, made
from toolgate.telemetry.recorder import Recorder
from toolgate.telemetry.usage import Called, Durations, Line, Usage

log = logging.getLogger(__name__)

MOST = 64  # workers
VARIABLE = "TOOLGATE_WORKER"  # a `Place`, as JSON
TOLD = 1.0  # seconds between two reports of what was counted
AGAIN = 1.0  # seconds after which one is started again that did not last so long
STARTED = 60.0  # seconds for all to be there
ENDED = 5.0  # seconds beyond those for calls under way
SILENT, LISTEN = 30.0, 5.0  # seconds without a word from a worker; between two looks
LOOK = 0.05  # seconds between two looks whether all was answered
_IN_ONE = 20  # lines of a report that go into one message


def are_possible() -> bool:
    """Whether the kernel has memory without a name that processes share, and keeps messages apart."""
    return sys.platform.startswith("linux")


class Place(msgspec.Struct, frozen=True):
    """What a worker inherits: the files of the listener, its end of the channel, the configuration and the meters,
    which so many processes share; and which of these it is. The owner is the first."""

    listener: int
    channel: int
    configuration: int
    meters: int
    columns: int
    own: int

    def table(self) -> Table:
        os.set_inheritable(self.meters, False)
        return Table(self.meters, self.columns, self.own)

    def handed(self) -> Handed:
        os.set_inheritable(self.configuration, False)
        return Handed(self.configuration)


class Shared:
    """What so many processes have together, the owner among them: what is served, their meters, and how many there are
    now."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.handed = handed.made()
        self.file = made(columns)
        self.table = Table(self.file, columns, 0)
        self.running = 0  # workers
        self.on_served: Callable[[], object] = lambda: None

    def serves(self, config: Config) -> None:
        """The owner does, from now on."""
        try:
            self.handed.write(config)
        except OSError as error:
            log.error("workers have no configuration, and pass all on: %s", error)
        self.on_served()

    def problem(self) -> str:
        count = self.columns - 1
        return "" if self.running == count else f"{self.running} of {count} workers are running"


class Report(msgspec.Struct, frozen=True):
    """What a worker has counted."""

    lines: tuple[tuple[Called, Line], ...] = ()
    timed: tuple[tuple[tuple[str, str, str], tuple[dict[str, Durations], dict[str, Durations]]], ...] = ()

    def count(self, usage: Usage) -> None:
        for called, line in self.lines:
            usage.add(called, line)
        for called, durations in self.timed:
            usage.add_timed(called, durations)


def reports(usage: Usage) -> Iterable[bytes]:
    """What was counted since the last time, in messages."""
    lines, timed = usage.taken()
    bare = [(called, msgspec.structs.replace(line, served={}, sent={})) for called, line in lines.items()]
    for start in range(0, len(bare), _IN_ONE):
        yield msgspec.json.encode(Report(lines=tuple(bare[start : start + _IN_ONE])))
    rest = list(timed.items())
    for start in range(0, len(rest), _IN_ONE):
        yield msgspec.json.encode(Report(timed=tuple(rest[start : start + _IN_ONE])))


class _Worker:
    """One process after another."""

    process: asyncio.subprocess.Process | None = None
    channel: Channel | None = None

    def __init__(self, owner: Workers, number: int) -> None:
        self._owner = owner
        self._number = number
        self.is_ready = asyncio.Event()
        self._is_heard = False

    async def keep(self) -> None:
        """Until all are to end, and this one has."""
        loop = asyncio.get_running_loop()
        while not self._owner.is_ending:
            began = loop.time()
            try:
                code = await self._run()
            except OSError as error:  # there are too many processes, or too little memory, for now
                code = f"not started: {error}"
            if self._owner.is_ending:
                return
            log.error("worker %d has ended (%s) and is started again", self._number, code)
            if loop.time() - began < AGAIN:
                await asyncio.sleep(AGAIN)

    async def _run(self) -> str:
        ours, theirs = pair()
        self.channel = Channel(ours, self._heard, lambda: None)
        try:
            with theirs:
                shared = self._owner.shared
                files = (self._owner.listener.fileno(), theirs.fileno(), shared.handed.file, shared.file)
                place = Place(*files, shared.columns, self._number)
                self.process = await asyncio.create_subprocess_exec(
                    *(*common.own_command(), *sys.argv[1:]),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=files,
                    env={**os.environ, VARIABLE: msgspec.json.encode(place).decode()},
                    start_new_session=True,  # the terminal's signals are for the owner, which ends its workers
                )
            if self._owner.is_ending:  # since it was begun
                self.signal(signal.SIGTERM)
            code = await self._ended(self.process)
            return signal.Signals(-code).name if code < 0 else f"exit code {code}"
        finally:
            if self.is_ready.is_set():
                self._owner.shared.running -= 1
            self.is_ready.clear()
            self.channel.close()
            self._owner.shared.table.forget(self._number)

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        """Its exit code. One of which nothing is heard for long is killed: its event loop stands still."""
        silent = 0
        ended = asyncio.ensure_future(process.wait())
        while not ended.done():
            await asyncio.wait([ended], timeout=LISTEN)
            silent = silent + 1 if self.is_ready.is_set() and not self._is_heard else 0
            self._is_heard = False
            if silent * LISTEN >= SILENT:
                log.error("worker %d has not answered for %g s and is killed", self._number, SILENT)
                self.signal(signal.SIGKILL)
        return ended.result()

    def _heard(self, kind: Kind, data: bytes, passed: Iterable[socket.socket]) -> None:
        self._is_heard = True
        if kind == "connection":
            assert self.channel
            self._owner.accept(data, passed, partial(self.channel.send, "admitted"))
        elif kind == "ready" and not self.is_ready.is_set():
            self._owner.shared.running += 1
            self.is_ready.set()
            self.tell_watched()
            self.tell("configuration")  # it may be another since this one has read it
        elif kind == "usage":
            msgspec.json.decode(data, type=Report).count(self._owner.recorder.usage)

    def tell(self, kind: Kind, data: bytes = b"") -> None:
        if self.channel and self.is_ready.is_set():
            self.channel.send(kind, data)

    def tell_watched(self) -> None:
        self.tell("watched", b"1" if self._owner.recorder.traffic.is_watched else b"")

    def signal(self, number: int) -> None:
        if self.process and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Workers:
    """Those of one owner, which all accept from `listener`. `accept` takes a connection that one of them passes on;
    they tell `recorder` what they have counted. `shared` are the meters of all."""

    is_ending = False
    _told_at = 0.0  # to end

    def __init__(self, listener: socket.socket, accept: Accept, recorder: Recorder, shared: Shared) -> None:
        self.listener = listener
        self.shared = shared
        self.accept = accept
        self.recorder = recorder
        self._workers = [_Worker(self, number) for number in range(1, shared.columns)]

    async def started(self) -> None:
        """When all are ready. Raises `TimeoutError`."""
        async with asyncio.timeout(STARTED):
            for worker in self._workers:
                await worker.is_ready.wait()

    def tell_configuration(self) -> None:
        """Another one is served."""
        for worker in self._workers:
            worker.tell("configuration")

    def tell(self, event: Event) -> None:
        if event.kind == "list_changed" and not event.scope:
            for worker in self._workers:
                worker.tell("lists", msgspec.json.encode((event.server, event.lists)))

    def tell_watched(self) -> None:
        """Whether somebody looks at calls as they end has changed."""
        for worker in self._workers:
            worker.tell_watched()

    def start(self) -> None:
        work = asyncio.gather(*(worker.keep() for worker in self._workers))
        self._work = asyncio.ensure_future(work)

    def end(self) -> None:
        """Each ends when its own calls have, and those that it has passed on."""
        if not self.is_ending:
            self.is_ending, self._told_at = True, asyncio.get_running_loop().time()
            self._signal(signal.SIGTERM)

    async def ended(self, drain: float, hurry: asyncio.Event) -> None:
        """When all have that were told to, or the calls under way in them have had `drain` seconds since, or `hurry` is
        set: who has not ended by then has some seconds."""
        left = self._told_at + drain + ENDED - asyncio.get_running_loop().time()
        hurries = asyncio.ensure_future(hurry.wait())
        await asyncio.wait([self._work, hurries], timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
        hurries.cancel()
        self._signal(signal.SIGTERM)  # which is the second one
        await asyncio.wait([self._work], timeout=ENDED)

    async def close(self) -> None:
        """All have ended then, whatever they were at."""
        self.end()
        await asyncio.wait([self._work], timeout=ENDED)
        self._signal(signal.SIGKILL)
        await asyncio.wait([self._work], timeout=ENDED)
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)

    def _signal(self, number: int) -> None:
        for worker in self._workers:
            worker.signal(number)


@asynccontextmanager
async def kept(
    listener: socket.socket, accept: Accept, events: Events, recorder: Recorder, shared: Shared
) -> AsyncGenerator[Workers]:
    """Inside the block they run."""
    workers = Workers(listener, accept, recorder, shared)
    stop, traffic = events.listen(workers.tell), recorder.traffic
    here = traffic.on_change

    def watched() -> None:
        here()
        workers.tell_watched()

    traffic.on_change = watched
    shared.on_served = workers.tell_configuration
    workers.start()
    try:
        yield workers
    finally:
        stop()
        traffic.on_change = here
        shared.on_served = lambda: None
        await workers.close()
        listener.close()


def place_of(environ: Mapping[str, str]) -> Place | None:
    """What this process has inherited, where it is a worker."""
    told = environ.get(VARIABLE)
    return msgspec.json.decode(told, type=Place) if told else None


class Owner:
    """As a worker knows it."""

    gateway: LocalGateway | None = None
    worker: Worker | None = None
    ending: common.Ending | None = None
    is_gone = False

    def __init__(self, end: socket.socket) -> None:
        self.channel = Channel(end, self._heard, self._has_ended)
        self._serves_another = asyncio.Event()

    def look(self) -> None:
        """It may serve another configuration now."""
        if self.gateway:
            self.gateway.is_apart = True  # until this one serves it, too
        self._serves_another.set()

    async def follow(self, reload: Callable[[], Awaitable[None]], is_apart: bool) -> None:
        """`reload` each time that it serves another; until cancelled. What cannot be served here leaves all to it, as
        `is_apart` does."""
        while True:
            await self._serves_another.wait()
            self._serves_another.clear()
            try:
                await reload()
            except Exception as error:  # noqa: BLE001  the rescue: until the next one all is passed on
                log.error("this worker cannot serve the configuration, and passes all on: %s", error)
                continue
            if self.gateway and not self._serves_another.is_set():
                self.gateway.is_apart = is_apart

    def _heard(self, kind: Kind, data: bytes, _passed: Iterable[socket.socket]) -> None:
        if kind == "admitted" and self.worker:
            self.worker.admitted(data)
        elif kind == "lists" and self.gateway:
            server, lists = msgspec.json.decode(data, type=tuple[str, tuple[str, ...]])
            self.gateway.lists_changed(Event(server, "list_changed", lists=lists))
        elif kind == "watched" and self.gateway:
            self.gateway.is_watched = bool(data)
        elif kind == "configuration":
            self.look()

    def _has_ended(self) -> None:
        """What is noted of our calls is written still, if that can be soon."""
        log.error("the process that owns this worker has ended")
        self.is_gone = True
        asyncio.get_running_loop().call_later(ENDED, os._exit, 1)
        if self.ending:
            self.ending.at_once()
        else:
            os._exit(1)

    async def report(self, usage: Usage) -> None:
        """What was counted, until cancelled, and then once more."""
        try:
            while True:
                await asyncio.sleep(TOLD)
                self._report(usage)
                self.channel.send("ready")
        finally:
            self._report(usage)

    def _report(self, usage: Usage) -> None:
        for report in reports(usage):
            self.channel.send("usage", report)
