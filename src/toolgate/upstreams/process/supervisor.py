"""Child processes: started in a group of their own, watched by an owner task, ended with everything they started.

The rules this file keeps: a child has one owner, which reaps it; nothing that a child does reaches beyond its own
callbacks; no child and no grandchild outlives the gateway, not even one that is killed (`guard`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any

import msgspec

from toolgate.config import masking
from toolgate.core import redaction, search_path
from toolgate.core.clock import Clock
from toolgate.core.fault import Code, Fault
from toolgate.core.inflow import Readable
from toolgate.upstreams import diagnosis
from toolgate.upstreams.process import guard

log = logging.getLogger(__name__)

STDERR_KEPT = 64 * 1024  # characters
_LOOKED_AT = STDERR_KEPT + 16 * 1024  # bytes; of the first of them, in which half a secret may stand, nothing is shown
PATIENCE = 2.0  # seconds between closing stdin, TERM and KILL, and for which an order lies before the guard is woken
POLL = 0.1  # seconds between two looks at a guard that is to end
LONGEST_START = 30.0  # seconds from an order to the guard until its program runs; a few milliseconds as a rule
LONGEST_END = guard.LONGEST_END + PATIENCE  # seconds until nothing is left of what was killed

CONTROL = 3  # what a child's keeper is spoken to on, beside the child's 0 to 2

# What a child inherits of the gateway's environment; all else it gets by its configuration only.
INHERITED = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "TERM",
        "LANG",
        "TZ",
        "TMPDIR",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NODE_EXTRA_CA_CERTS",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "SystemRoot",
    ]
)
INHERITED_PREFIXES = ("LC_", "XDG_", "npm_config_", "NPM_CONFIG_", "UV_", "PIP_")


def child_environment(own: Mapping[str, str], gateway: Mapping[str, str]) -> dict[str, str]:
    """What goes by the name of a secret is nobody's but whose configuration names it."""
    kept = {k: v for k, v in gateway.items() if k in INHERITED or is_of_a_tool(k)}
    return kept | dict(own)


def is_of_a_tool(name: str) -> bool:
    return name.startswith(INHERITED_PREFIXES) and not masking.is_secret_name(name)


class Launch(msgspec.Struct, frozen=True):
    """How a server's program is started; without a `box` it may do what we may. `parts`: what its box shows of the
    program itself, in words."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    box: Mapping[str, Any] | None = None
    parts: str = ""


class Tail:
    """The last bytes of a stream."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._shown: tuple[object, str] | None = None  # for what was looked, and what is left

    def add(self, chunk: bytes) -> None:
        self._shown = None
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._chunks[0]) > _LOOKED_AT:  # with one byte more, which says that it is cut
            self._size -= len(self._chunks.popleft())

    def text(self, server: str = "") -> str:
        """The last 64 KiB, without the secrets that this server may say (`redaction.last_lines`). It is shown again and
        again, and looked through once for each thing that was written."""
        looked_for = server, redaction.version(server)
        if not self._shown or self._shown[0] != looked_for:
            whole = b"".join(self._chunks)
            last = redaction.last_lines(whole[-_LOOKED_AT:], STDERR_KEPT, server, len(whole) > _LOOKED_AT)
            self._shown = looked_for, last
        return self._shown[1]


class Guard:
    """The gateway's end of the guard process, which is started again at once if it is killed: what it has started lives
    on meanwhile, each with its keeper."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def ready(self) -> None:
        """Have the process running."""
        if self._process:
            return
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={name: os.environ[name] for name in guard.OF_THE_LOADER if name in os.environ},
            )
        ours.setblocking(False)
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours, self._lost)

    def take(self, ends: Sequence[socket.socket | int], is_boxed: bool = False) -> None:
        """Have a program started; `ends` are those of its control, stdin, stdout and stderr. Raises `OSError`."""
        self.ready()
        assert self._socket
        fds = [end if isinstance(end, int) else end.fileno() for end in ends]
        socket.send_fds(self._socket, [guard.BOXED if is_boxed else guard.BARE], fds)

    def wake(self) -> None:
        """Have it go on, and its keepers, where a program of our user has stopped them."""
        if self._process:
            self._process.send_signal(signal.SIGCONT)

    async def close(self) -> None:
        """End all that it has started, and it."""
        process = self._let_go()
        if process:
            await asyncio.to_thread(_wait_for_the_end, process)

    def _lost(self) -> None:
        process = self._let_go()
        if process and process.wait() < 0:  # killed; one that fails by itself is tried again with the next child
            log.warning("the guard process was killed; restarting it")
            self.ready()

    def _let_go(self) -> subprocess.Popen[bytes] | None:
        process, self._process = self._process, None
        if self._socket:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        return process


def _wait_for_the_end(process: subprocess.Popen[bytes]) -> None:
    """Of a guard that was told. As often as it is stopped it has to go on, for so long as it may take."""
    for _ in range(int(LONGEST_END / POLL)):
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(POLL)
            return
        except subprocess.TimeoutExpired:
            pass
    log.error("the guard process did not end the servers' processes; killing it")
    process.kill()
    process.wait()


def _nobody() -> None:
    """Nobody wants to know."""


class _Pipe(asyncio.Protocol):
    """One of a child's pipes, at our end."""

    def __init__(self, child: Child, fd: int) -> None:
        self._child = child
        self._fd = fd

    def connection_made(self, transport: Any) -> None:
        if self._fd == 1:
            self._child.output = transport

    def data_received(self, data: bytes) -> None:
        self._child.wrote(self._fd, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._child.closed(self._fd)

    def pause_writing(self) -> None:
        self._child.on_full()

    def resume_writing(self) -> None:
        self._child.on_room()


class Child:
    """One child process. `on_output` gets stdout as it comes, `on_exit` the reason, once. One that does not `talk` is
    of use without its stdin and stdout, and does not end when they are closed."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        on_output: Callable[[bytes], None],
        on_exit: Callable[[str], None],
        on_stderr: Callable[[], None],
        talks: bool = True,
    ) -> None:
        self.name = name
        self.stderr = Tail()
        self.started = clock.wall()
        self.pid = 0
        self.keeper = 0  # the process that all that it starts is below
        self.output: Readable | None = None  # its stdout, as far as it is read
        self.on_full: Callable[[], None] = _nobody  # its stdin is
        self.on_room: Callable[[], None] = _nobody  # there is room in it again
        self._clock = clock
        self._on_output = on_output
        self._on_exit = on_exit
        self._on_stderr = on_stderr
        self._talks = talks
        self._ends: dict[int, IO[bytes] | socket.socket | asyncio.BaseTransport] = {}  # ours, of its pipes
        self._stdin: asyncio.WriteTransport | None = None
        self._open = {1, 2}  # what it may still write to
        self._code: int | None = None
        self._exited = asyncio.Event()
        self._gone = asyncio.Event()  # with everything that it has started
        self._drained = asyncio.Event()  # its last words are read
        self._ending = asyncio.Event()
        self._asked = ""  # what it is ended for, where somebody has asked for that before it ended by itself
        self._is_hurried = False  # it is killed without being asked to end
        self._is_terminated = False  # by its owner, since it could not be talked with any more
        self.owner: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Child {self.name} pid={self.pid} {'exited' if self._exited.is_set() else 'alive'}>"

    async def start(
        self, guard: Guard, order: bytes, is_boxed: bool = False, stdin_end: socket.socket | None = None
    ) -> None:
        """Have it started, and from then on owned: the owner task ends it. Raises `OSError`, `Unboxed`."""
        control, theirs = socket.socketpair()
        (stdin, writing), (reading, stdout), (reading_errors, stderr) = os.pipe(), os.pipe(), os.pipe()
        ours = [os.fdopen(writing, "wb", 0), os.fdopen(reading, "rb", 0), os.fdopen(reading_errors, "rb", 0)]
        self._ends = {0: ours[0], 1: ours[1], 2: ours[2], CONTROL: control}
        try:
            guard.take([theirs, stdin_end or stdin, stdout, stderr], is_boxed)
        except OSError:
            self._let_go()
            raise
        finally:
            theirs.close()
            for fd in (stdin, stdout, stderr):
                os.close(fd)
        # Not to be cancelled: the event loop closes what it is just taking over, and then nobody knows whose that is.
        connecting = asyncio.ensure_future(self._connect(control, *ours))
        try:
            keeper, orders = await asyncio.shield(connecting)
            orders.write(order)
            async with self._clock.timeout(LONGEST_START):
                self.pid, self.keeper = _started(await self._answer(guard, keeper))
        except BaseException:
            connecting.add_done_callback(lambda _: self._let_go())  # which ends whatever was started
            raise
        self.owner = asyncio.get_running_loop().create_task(self._own(guard, keeper, orders), name=f"child {self.name}")

    async def _answer(self, guard: Guard, keeper: asyncio.StreamReader) -> bytes:
        """What has become of the order."""
        line = asyncio.ensure_future(keeper.readline())
        try:
            while True:
                try:
                    async with self._clock.timeout(PATIENCE):
                        return await asyncio.shield(line)
                except TimeoutError:
                    guard.wake()
        finally:
            line.cancel()

    async def _connect(
        self, control: socket.socket, stdin: IO[bytes], stdout: IO[bytes], stderr: IO[bytes]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        keeper, orders = await asyncio.open_unix_connection(sock=control)
        self._ends[CONTROL] = orders.transport
        self._ends[0] = self._stdin = (await loop.connect_write_pipe(lambda: _Pipe(self, 0), stdin))[0]
        self._ends[1], _ = await loop.connect_read_pipe(lambda: _Pipe(self, 1), stdout)
        self._ends[2], _ = await loop.connect_read_pipe(lambda: _Pipe(self, 2), stderr)
        return keeper, orders

    def _let_go(self) -> None:
        for end in self._ends.values():
            end.close()

    def check(self) -> None:
        """Raises `Fault` not_sent where the child is gone."""
        if self._exited.is_set() or self._ending.is_set() or self._stdin is None or self._stdin.is_closing():
            self._ending.set()  # it has closed its stdin, and may live
            raise Fault("SESSION_ERROR", f"Server not started: {self.name} has ended", reach="not_sent")

    def write(self, data: bytes) -> None:
        """Raises as `check` does. Once `on_full` is told, the next waits for `on_room`."""
        self.check()
        assert self._stdin
        self._stdin.write(data)

    def close_input(self) -> None:
        """There is no more for it to read."""
        if self._stdin:
            self._stdin.close()

    def end(self, why: str = "was stopped", at_once: bool = False) -> None:
        """Have it ended, unless it has ended by itself; `why` is what `on_exit` is then told behind its name. With
        `at_once` it is not asked before."""
        self._is_hurried = self._is_hurried or at_once
        if not self._exited.is_set():
            self._asked = self._asked or why
        self._ending.set()

    @property
    def is_ending(self) -> bool:
        return self._ending.is_set()

    async def ended(self) -> None:
        """Until the process is reaped and what it started is gone."""
        if self.owner:
            await asyncio.shield(self.owner)

    # What its pipes say.

    def wrote(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._on_output(data)
        else:
            self.stderr.add(data)
            self._on_stderr()

    def closed(self, fd: int) -> None:
        if fd in (0, 1) and self._talks:
            self._ending.set()  # it can no longer be talked with; the next call gets another
        self._open.discard(fd)
        if not self._open:
            self._drained.set()

    # The owner.

    async def _own(self, guard: Guard, keeper: asyncio.StreamReader, control: asyncio.StreamWriter) -> None:
        listening = asyncio.get_running_loop().create_task(self._listen(keeper))
        try:
            await self._wait_for_an_end()
            if not self._exited.is_set() and not self._is_hurried:
                await self._end_politely()
        finally:
            control.write_eof()  # the keeper kills what is left
            guard.wake()
            if not await self._in_time(self._gone, LONGEST_END):
                log.error("cannot end %s: kill process %d", self.name, self.pid)
                self._signal_group(signal.SIGKILL)
            listening.cancel()
            await self._in_time(self._drained, PATIENCE)
            self._let_go()
            self._on_exit(f"{self.name} {self._asked or self._end_of(self._code)}")

    async def _listen(self, keeper: asyncio.StreamReader) -> None:
        """Until the keeper is gone, and all that it has started with it."""
        try:
            while line := await keeper.readline():
                if line.startswith(guard.OVER):
                    processes, threads = line.split()[1:]
                    self._asked = self._asked or _over(int(processes), int(threads))
                    continue
                self._code = int(line.removeprefix(guard.EXITED))
                self._exited.set()
        except OSError:
            pass
        if not self._exited.is_set():  # it was killed, and the guard ends what it has left
            self._signal_group(signal.SIGKILL)
            self._exited.set()
        self._gone.set()

    def _end_of(self, code: int | None) -> str:
        """How it ended without being asked to."""
        if self._is_terminated:
            return "closed its stdin or stdout, and was stopped"
        if code is None:
            return "was killed with its guard process"
        if code < 0:
            known = {number.value: number.name for number in signal.Signals}
            return f"was killed by signal {known.get(-code, -code)}"
        return f"exited with status {code}"

    async def _wait_for_an_end(self) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (self._exited, self._ending)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _end_politely(self) -> None:
        """Close stdin, wait, TERM, wait; the caller has killed what is left."""
        self.close_input()
        if self._talks and await self._in_time(self._exited, PATIENCE):
            return
        self._is_terminated = True
        self._signal_group(signal.SIGTERM)
        self._signal_group(signal.SIGCONT)  # one that is stopped hears of nothing else
        await self._in_time(self._exited, PATIENCE)

    async def _in_time(self, event: asyncio.Event, seconds: float) -> bool:
        try:
            async with self._clock.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def processes_of(children: Iterable[Child]) -> dict[int, Child]:
    """All that runs of these, by its id. It takes a while."""
    return {pid: child for child in children for pid in guard.below(frozenset(), child.keeper)}


class Unboxed(Exception):
    """A program was not started since its box cannot be put on. `str()` says why."""


def _started(line: bytes) -> tuple[int, int]:
    """The process that a keeper has started, and the keeper. Raises `OSError`, `Unboxed`."""
    word, _, number = line.partition(b" ")
    if word == guard.STARTED:
        pid, _, keeper = number.partition(b" ")
        return int(pid), int(keeper)
    if word == guard.REFUSED:
        raise Unboxed(number.partition(b" ")[2].decode(errors="replace").strip())
    if word == guard.FAILED:
        raise OSError(int(number), os.strerror(int(number)))
    raise OSError("the guard process was killed")


def _over(processes: int, threads: int) -> str:
    return (
        f"was ended: its box allows {processes} processes and {threads} threads together, and it had more; "
        "set `processes` in its `box` if it needs them"
    )


def _not_executable(command: str, path: str | None) -> str | None:
    """The file that is meant by a command that cannot be run, where there is one."""
    return shutil.which(command, mode=os.F_OK, path=path)


def _cure(command: str, name: str, file: str | None) -> str:
    """What to do about a command that cannot be run; `file` is there, and is no program."""
    if file:
        return f"it is not executable: run chmod +x {file}, or use its interpreter as the command"
    if known := diagnosis.fix_for(f"Command not found: {command}"):
        return known
    first, _, rest = command.partition(" ")
    if rest:
        return f'command must be the program only: "command": "{os.path.basename(first)}", "args": {rest.split()}'
    return f"install {command}, or set its full path in the configuration of {name}"


def _unboxed(name: str, why: str) -> Fault:
    hint = "a box needs Linux 6.12 or newer with landlock and seccomp; `toolgate doctor` says what this machine has"
    return Fault(
        "SERVER_FAILED", f"{name} was not started, since its box cannot be put on: {why}", reach="not_sent", hint=hint
    )


class Supervisor:
    """Starts children and has them all ended at the close."""

    def __init__(self, clock: Clock, environ: Mapping[str, str]) -> None:
        self._clock = clock
        self.environ = environ
        self._guard = Guard()
        self._children: dict[Child, bytes] = {}  # with what each was started by
        self._warned: set[bytes] = set()  # what was expelled, by what it was started by
        self._expelled: dict[bytes, Fault] = {}  # the same, where it is not started any more

    def prepare(self) -> None:
        """Have ready what starts children, so that the first one does not wait for it."""
        self._guard.ready()

    async def start(
        self,
        name: str,
        command: str,
        args: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        on_output: Callable[[bytes], None],
        on_exit: Callable[[str], None],
        on_stderr: Callable[[], None],
        talks: bool = True,
        may_gain_privileges: bool = False,
        box: Mapping[str, Any] | None = None,
        stdin: socket.socket | None = None,
    ) -> Child:
        """`box` says what it may do, and which of the gateway's variables it gets (`confinement.Box.packed`); without
        one, it may do what we may.
        `stdin` is what it has for one instead of a pipe; the caller keeps and closes it.

        Raises `Fault` SERVER_FAILED that says how to fix it where the command cannot be run, or not in its box."""
        environment = child_environment(env, self.environ)
        if box:
            environment = {name: self.environ[name] for name in box["inherits"] if name in self.environ} | dict(env)
        if "PATH" in environment:
            environment["PATH"] = search_path.absolute(environment["PATH"])
        if cwd and not os.path.isdir(cwd):
            hint = f"create the folder, or correct cwd in the configuration of {name}"
            raise Fault("SERVER_FAILED", f"No such folder: {cwd}", reach="not_sent", hint=hint)
        if os.path.dirname(command):  # such a path is meant from where the child will be
            command = os.path.abspath(os.path.join(cwd or "", command))
        program = shutil.which(command, path=environment.get("PATH"))
        if not program:
            file = _not_executable(command, environment.get("PATH"))
            message = f"Permission denied: {command}" if file else f"Command not found: {command}"
            raise Fault("SERVER_FAILED", message, reach="not_sent", hint=_cure(command, name, file))
        order = guard.pack(
            [os.fsencode(each) for each in (program, *args)],
            {os.fsencode(key): os.fsencode(value) for key, value in environment.items()},
            os.fsencode(cwd) if cwd else None,
            may_gain_privileges and not box,
            dict(box) if box else None,
        )
        known_by = hashlib.sha256(name.encode() + order).digest()
        if known_by in self._expelled:
            raise self._expelled[known_by].at("", "")

        def exited(reason: str) -> None:
            self._children.pop(child, None)
            on_exit(reason)

        child = Child(name, self._clock, on_output, exited, on_stderr, talks)
        try:
            await child.start(self._guard, order, bool(box), stdin)
        except Unboxed as error:
            raise _unboxed(name, str(error)) from None
        except TimeoutError:
            message = f"Cannot start {program}: no result for {LONGEST_START:g} s"
            raise Fault("SERVER_FAILED", message, reach="not_sent") from None
        except OSError as error:
            why, hint = diagnosis.of_system(error)
            code: Code = "RATE_LIMITED" if diagnosis.is_our_lack(error) else "SERVER_FAILED"
            raise Fault(code, f"Cannot start {program}: {why}", reach="not_sent", hint=hint) from None
        self._children[child] = known_by
        return child

    @property
    def children(self) -> Sequence[Child]:
        """Those that live, and are not about to end."""
        return [child for child in self._children if not child.is_ending]

    def expel(self, child: Child, why: str, hint: str) -> bool:
        """End a program at once, with all that it has started; `why` is told behind its name. Whether that was the
        second time: then it is not started again, as it is configured now."""
        known_by = self._children[child]
        is_again = known_by in self._warned
        self._warned.add(known_by)
        if is_again:
            message = f"{child.name} is not started again: it {why}"
            self._expelled[known_by] = Fault("SERVER_FAILED", message, reach="not_sent", hint=hint)
        child.end(why, at_once=True)
        return is_again

    async def close(self) -> None:
        children = list(self._children)
        for child in children:
            child.end()
        for child in children:
            await child.ended()
        await self._guard.close()
