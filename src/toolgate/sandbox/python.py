"""The Python engine: code in real CPython, a process for each run, forked from a zygote and locked before code runs.

The worker speaks the bridge (`bridge`) over its stdin and stdout, as each engine's does. The rules this file keeps:
one zygote for all runs, started when it is needed and again after it has ended; a worker takes one run and ends; and
nothing runs where the kernel cannot lock it, whatever the operator says: there is no other wall around it.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import platform
import signal
import socket
import zoneinfo
from collections.abc import Callable
from typing import Any

from toolgate.core.fault import Fault
from toolgate.core.inflow import Readable
from toolgate.sandbox import worker as bridge_end
from toolgate.sandbox.bridge import Broken
from toolgate.sandbox.limits import Limits
from toolgate.upstreams.process import confinement, guard, locks
from toolgate.upstreams.process.confinement import MIB, Box
from toolgate.upstreams.process.supervisor import Child, Supervisor

MEMORY = 512 * MIB  # bytes of address space of a run
CPU = 125  # seconds
LONGEST_END = 10.0  # seconds until a worker that is killed is gone; some milliseconds as a rule

_HERE = os.path.dirname(os.path.abspath(__file__))
_LOCKS = os.path.dirname(os.path.abspath(locks.__file__))

# The zygote finds its modules in two folders, and is not found by toolgate's name for it.
COMMAND = "import sys; sys.path += sys.argv[1:3]; import zygote; zygote.main(sys.argv[3])"

# Also where it was left; `TZ` is what days and hours are by.
ENVIRONMENT = {"TZ": "UTC0", "LC_ALL": "C.UTF-8"}


def box_of_run(memory: int = MEMORY, cpu: int = CPU) -> Box:
    """Of code: it computes, and reads and writes what it has open."""
    return Box(profile="script", address_space=memory, cpu=cpu, open_files=16, file_size=0, processes=0)


def box_of_zygote() -> Box:
    """Of what forks the runs: it reads the standard library and itself."""
    read, execute = confinement.of_python()
    return Box(
        profile="zygote",
        read=(*read, _HERE, _LOCKS, *zoneinfo.TZPATH),
        execute=execute,
        inherits=guard.OF_THE_LOADER,
        open_files=1024,
        file_size=0,
        gives_way=True,  # and so do the runs that it forks
    )


def _nobody() -> None:
    """Nobody wants to know."""


class Worker:
    """One run's process. `on_output` gets its stdout as it comes, `on_exit` the reason, once. `write`, `end` and
    `ended`, and what it tells of its pipes, are as a `Child` has them."""

    def __init__(self, on_output: Callable[[bytes], None], on_exit: Callable[[str], None]) -> None:
        self.pid = 0  # until it is started
        self.output: Readable | None = None
        self.on_full: Callable[[], None] = _nobody  # its stdin is
        self.on_room: Callable[[], None] = _nobody
        self._on_output = on_output
        self._on_exit = on_exit
        self._stdin: asyncio.WriteTransport | None = None
        self._control: asyncio.Transport | None = None
        self._asked = ""
        self._said = b""  # by the zygote, of the run
        self._begun = asyncio.Event()
        self._open = {"control", "stdout"}
        self._gone = asyncio.Event()

    async def connect(self, control: socket.socket, stdin: int, stdout: int) -> None:
        """Take over our ends of its descriptors."""
        loop = asyncio.get_running_loop()
        self._control, _ = await loop.create_connection(lambda: _Pipe(self, "control"), sock=control)
        self._stdin, _ = await loop.connect_write_pipe(lambda: _Pipe(self, "stdin"), os.fdopen(stdin, "wb", 0))
        self.output, _ = await loop.connect_read_pipe(lambda: _Pipe(self, "stdout"), os.fdopen(stdout, "rb", 0))

    async def begun(self) -> None:
        """Until it is started. Raises `Fault` where it cannot be."""
        await self._begun.wait()
        if not self.pid:
            why = f"the sandbox {_end_of(self._said)}"
            raise Fault("SERVER_FAILED", why, reach="not_sent")

    def write(self, data: bytes) -> None:
        """Raises `Fault` not_sent where it is gone. Once `on_full` is told, the next waits for `on_room`."""
        if self._gone.is_set() or self._stdin is None or self._stdin.is_closing():
            raise Fault("SESSION_ERROR", "the sandbox has ended", reach="not_sent")
        self._stdin.write(data)

    def end(self, why: str = "was stopped") -> None:
        """Have it killed, unless it has ended; `why` is what `on_exit` is then told."""
        if "control" in self._open:
            self._asked = self._asked or why
        if self._control and not self._control.is_closing():
            self._control.write_eof()  # the zygote kills it, and says when it is gone
        if self._stdin:
            self._stdin.close()

    async def ended(self) -> None:
        """Until it is gone and reaped."""
        await self._gone.wait()

    # What its descriptors say.

    def came(self, which: str, data: bytes) -> None:
        if which == "control":
            self._said += data
            first, is_whole, rest = self._said.partition(b"\n")
            if is_whole and first.startswith(b"started"):
                self.pid, self._said = int(first.split()[1]), rest
            if is_whole:
                self._begun.set()
        else:
            self._on_output(data)

    def closed(self, which: str) -> None:
        self._open.discard(which)
        if which == "control":
            self._begun.set()
        if which == "control" and self.output and self._asked:
            self.output.resume_reading()  # to its end, which comes once it is killed
        if self._open or self._gone.is_set():
            return
        self._gone.set()
        if self._stdin:
            self._stdin.close()
        self._on_exit(f"the sandbox {self._asked or _end_of(self._said)}")


class _Pipe(asyncio.Protocol):
    """One of a worker's descriptors, at our end."""

    def __init__(self, worker: Worker, which: str) -> None:
        self._worker = worker
        self._which = which

    def data_received(self, data: bytes) -> None:
        self._worker.came(self._which, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._worker.closed(self._which)

    def pause_writing(self) -> None:
        self._worker.on_full()

    def resume_writing(self) -> None:
        self._worker.on_room()


def _end_of(said: bytes) -> str:
    """How it ended, by the zygote's words."""
    word, _, number = said.partition(b"\n")[0].partition(b" ")
    if not number:
        return "was killed with its zygote"
    code = int(number)
    if word == b"failed":
        return f"could not be started: {os.strerror(code)}"
    if code < 0:
        known = {each.value: each.name for each in signal.Signals}
        return f"was killed by signal {known.get(-code, -code)}"
    return f"exited with status {code}"


def engine(supervisor: Supervisor, limits: Limits) -> bridge_end.Engine:
    """The engine whose processes this supervisor starts and ends."""
    own = PythonEngine(supervisor, box_of_run(limits.address_space, limits.cpu))

    async def start(worker: bridge_end.Worker) -> None:
        process = await own.start(worker.wrote, lambda reason: worker.exited(Broken(f"the sandbox failed: {reason}")))
        process.on_full, process.on_room = worker.full, worker.room
        worker.started(process.pid, process.write, process.end, process.output)

    return bridge_end.Engine("python", start, own.problem, own.layers, close=own.close)


class PythonEngine:
    """Starts workers; `box` is that of each run."""

    def __init__(self, supervisor: Supervisor, box: Box | None = None) -> None:
        self.name = f"python {platform.python_version()}"
        self._supervisor = supervisor
        self._box = box or box_of_run()
        self._of_zygote = box_of_zygote()
        self._starting = asyncio.Lock()
        self._zygote: Child | None = None
        self._socket: socket.socket | None = None

    def layers(self) -> str:
        """For people: what keeps its runs in."""
        return f"{self.name}, {confinement.layers().words}"

    def problem(self) -> str:
        """Why it cannot be used on this machine, and how to change that; empty where it can."""
        lacking = confinement.missing(self._box)
        return "the Python sandbox cannot be locked on this machine: it lacks " + "; ".join(lacking) if lacking else ""

    async def start(self, on_output: Callable[[bytes], None], on_exit: Callable[[str], None]) -> Worker:
        """A worker, which says that it is ready and takes one run; the caller bounds how long that may take. Raises
        `Fault` SERVER_FAILED, RATE_LIMITED."""
        if why := self.problem():
            hint = "use Linux 5.13 or newer with landlock and seccomp"
            raise Fault("SERVER_FAILED", why, reach="not_sent", hint=hint)
        async with self._starting:
            if self._zygote is None:
                await self._start_zygote()
        assert self._socket
        worker = Worker(on_output, on_exit)
        control, theirs = socket.socketpair()
        (reading, ours_in), (ours_out, writing) = os.pipe(), os.pipe()
        try:
            socket.send_fds(self._socket, [b"+"], [theirs.fileno(), reading, writing])
        except OSError as error:
            control.close()
            os.close(ours_in)
            os.close(ours_out)
            why = f"the Python sandbox takes no run: {error.strerror}"
            raise Fault("RATE_LIMITED", why, reach="not_sent") from None
        finally:
            theirs.close()
            os.close(reading)
            os.close(writing)
        control.setblocking(False)
        # Not to be cancelled: the event loop closes what it is just taking over, and then nobody knows whose that is.
        connecting = asyncio.ensure_future(worker.connect(control, ours_in, ours_out))
        try:
            await asyncio.shield(connecting)
            await worker.begun()
        except BaseException:
            connecting.add_done_callback(lambda _: worker.end())
            raise
        return worker

    async def _start_zygote(self) -> None:
        ours, theirs = socket.socketpair()
        ended = asyncio.Event()
        read = confinement.of_python()[1][1]
        packed = marshal.dumps(self._box.packed()).hex()
        args = ["-I", "-S", "-B", "-X", "utf8", "-c", COMMAND, _HERE, _LOCKS, packed]

        def lost(_reason: str) -> None:
            ended.set()
            ours.close()
            if self._socket is ours:
                self._zygote = self._socket = None

        with theirs:
            try:
                zygote = await self._supervisor.start(
                    "the Python sandbox", read, args, ENVIRONMENT, "/", _unheard, lost, _nobody,
                    talks=False, box=self._of_zygote.packed(), stdin=theirs,
                )  # fmt: skip
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        if not ended.is_set():
            self._zygote, self._socket = zygote, ours

    async def close(self) -> None:
        """End the zygote, and every run with it."""
        if zygote := self._zygote:
            zygote.end()
            await zygote.ended()


def _unheard(_data: bytes) -> Any:
    """What a zygote writes: nothing."""
