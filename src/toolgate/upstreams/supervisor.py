"""Child processes: started in a group of their own, watched by an owner task, ended with everything they started.

The rules this file keeps: a child has one owner, which reaps it; nothing that a child does reaches beyond its own
callbacks; no child and no grandchild outlives the gateway, not even one that is killed (`guard`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from toolgate.config import showing
from toolgate.model import Fault
from toolgate.ports import Clock
from toolgate.upstreams import causes, guard
from toolgate.upstreams.inflow import Readable

log = logging.getLogger(__name__)

STDERR_KEPT = 64 * 1024
UNREAD_INPUT_LIMIT = 64 * 1024 * 1024
PATIENCE = 2.0  # seconds between closing stdin, TERM and KILL

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
    kept = {k: v for k, v in gateway.items() if k in INHERITED or _is_of_a_tool(k)}
    return kept | dict(own)


def _is_of_a_tool(name: str) -> bool:
    return name.startswith(INHERITED_PREFIXES) and not showing.is_secret_name(name)


class Tail:
    """The last bytes of a stream."""

    def __init__(self, kept: int = STDERR_KEPT) -> None:
        self._kept = kept
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._chunks[0]) > self._kept:  # with one byte more, which says whether a line is whole
            self._size -= len(self._chunks.popleft())

    def text(self) -> str:
        """Whole lines, where there are any: half of a secret would not be known as one."""
        whole = b"".join(self._chunks)
        kept = whole[-self._kept :]
        if len(whole) > len(kept) and whole[-self._kept - 1] != ord("\n"):
            kept = kept.partition(b"\n")[2] or kept
        return kept.decode(errors="replace")


class Guard:
    """The gateway's end of the guard process. It is started with the first child, and again at once if it is killed."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(8)
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def mark(self, number: int) -> str:
        return f"{self._token}.{number}."

    def ready(self) -> None:
        """Have the process running; called before a child starts, so that no child is ever unguarded."""
        if self._process:
            return
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, self._token],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,  # nothing is ever written there: its end is the guard's
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
            # Without the mark of a gateway around this one, whose guard must not sweep ours away.
            env={name: value for name, value in os.environ.items() if name != guard.MARK},
        )
        asyncio.get_running_loop().add_reader(self._process.stdout, self._lost)  # type: ignore[arg-type]
        for group in self._groups:
            self._say(f"+ {group}")

    def add(self, group: int) -> None:
        self._groups.add(group)
        self._say(f"+ {group}")

    def remove(self, group: int, number: int) -> None:
        """The child is reaped: end what it left behind."""
        self._groups.discard(group)
        self._say(f"- {group}")
        self._say(f"sweep {number}")

    async def close(self) -> None:
        process = self._let_go()
        if process:
            await asyncio.to_thread(process.wait)

    def _lost(self) -> None:
        process = self._let_go()
        if process and process.wait() < 0:  # killed; one that fails by itself is tried again with the next child
            log.warning("the guard process was killed; it is started again")
            self.ready()

    def _let_go(self) -> subprocess.Popen[bytes] | None:
        process, self._process = self._process, None
        if process:
            assert process.stdin and process.stdout
            asyncio.get_running_loop().remove_reader(process.stdout)
            process.stdin.close()
            process.stdout.close()
        return process

    def _say(self, line: str) -> None:
        if not self._process:
            return
        assert self._process.stdin
        try:
            self._process.stdin.write(line.encode() + b"\n")
        except OSError:
            log.debug("the guard process is gone, which its other pipe will tell too")


class Child(asyncio.SubprocessProtocol):
    """One child process. `on_output` gets stdout as it comes, `on_exit` the reason, once. One that does not `talk` is
    of use without its stdin and stdout, and does not end when they are closed."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        guard: Guard,
        number: int,
        on_output: Callable[[bytes], None],
        on_exit: Callable[[str], None],
        on_stderr: Callable[[], None],
        talks: bool = True,
    ) -> None:
        self.name = name
        self.stderr = Tail()
        self.started = clock.wall()
        self.pid = 0
        self._clock = clock
        self._guard = guard
        self._number = number
        self._on_output = on_output
        self._on_exit = on_exit
        self._on_stderr = on_stderr
        self._talks = talks
        self._transport: asyncio.SubprocessTransport | None = None
        self._exited = asyncio.Event()
        self._drained = asyncio.Event()  # its last words are read
        self._ending = asyncio.Event()
        self._asked = ""  # what it is ended for, where somebody has asked for that before it ended by itself
        self._is_terminated = False  # by its owner, since it could not be talked with any more
        self.owner: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Child {self.name} pid={self.pid} {'exited' if self._exited.is_set() else 'alive'}>"

    def own(self, transport: asyncio.SubprocessTransport) -> None:
        """Take the process over: from here on the owner task ends it and reaps it."""
        self._transport = transport
        self.pid = transport.get_pid()
        self._guard.add(self.pid)
        self.owner = asyncio.get_running_loop().create_task(self._own(), name=f"child {self.name}")

    def write(self, data: bytes) -> None:
        """Raises `Fault` not_sent where the child is gone or has long stopped reading."""
        pipe = self._transport.get_pipe_transport(0) if self._transport else None
        if self._exited.is_set() or self._ending.is_set() or pipe is None or pipe.is_closing():
            self._ending.set()  # it has closed its stdin, and may live
            raise Fault("SESSION_ERROR", f"Server not started: {self.name} has ended", reach="not_sent")
        if pipe.get_write_buffer_size() > UNREAD_INPUT_LIMIT:  # type: ignore[attr-defined]
            raise Fault("SERVER_FAILED", f"{self.name} does not read its input", reach="not_sent")
        pipe.write(data)  # type: ignore[attr-defined]

    def close_input(self) -> None:
        """There is no more for it to read."""
        pipe = self._transport.get_pipe_transport(0) if self._transport else None
        if pipe:
            pipe.close()

    def end(self, why: str = "was stopped") -> None:
        """Have it ended, unless it has ended by itself; `why` is what `on_exit` is then told behind its name."""
        if not self._exited.is_set():
            self._asked = self._asked or why
        self._ending.set()

    async def ended(self) -> None:
        """Until the process is reaped and what it started is gone."""
        if self.owner:
            await asyncio.shield(self.owner)

    # What the event loop calls.

    @property
    def output(self) -> Readable | None:
        """Its stdout, as far as it is read."""
        pipe = self._transport.get_pipe_transport(1) if self._transport else None
        return cast("Readable | None", pipe)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._on_output(data)
        else:
            self.stderr.add(data)
            self._on_stderr()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd in (0, 1) and self._talks:
            self._ending.set()  # it can no longer be talked with; the next call gets another

    def process_exited(self) -> None:
        self._exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._drained.set()

    # The owner.

    async def _own(self) -> None:
        assert self._transport
        try:
            await self._wait_for_an_end()
            if not self._exited.is_set():
                await self._end_politely()
        finally:
            self._signal_group(signal.SIGKILL)
            await self._exited.wait()
            self._guard.remove(self.pid, self._number)
            await self._in_time(self._drained)
            code = self._transport.get_returncode()
            self._transport.close()
            self._on_exit(f"{self.name} {self._asked or self._end_of(code)}")

    def _end_of(self, code: int | None) -> str:
        """How it ended without being asked to."""
        if self._is_terminated:
            return "closed its stdin or stdout, and was stopped"
        if code is not None and code < 0:
            known = {number.value: number.name for number in signal.Signals}
            return f"was ended by signal {known.get(-code, -code)}"
        return f"exited with status {code}"

    async def _wait_for_an_end(self) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (self._exited, self._ending)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _end_politely(self) -> None:
        """Close stdin, wait, TERM, wait; the caller kills what is left."""
        assert self._transport
        stdin = self._transport.get_pipe_transport(0)
        if stdin:
            stdin.close()
        if self._talks and await self._in_time(self._exited):
            return
        self._is_terminated = True
        self._signal_group(signal.SIGTERM)
        await self._in_time(self._exited)

    async def _in_time(self, event: asyncio.Event) -> bool:
        try:
            async with self._clock.timeout(PATIENCE):
                await event.wait()
        except TimeoutError:
            return False
        return True

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def _not_executable(command: str, path: str | None) -> str | None:
    """The file that is meant by a command that cannot be run, where there is one."""
    return shutil.which(command, mode=os.F_OK, path=path)


def _cure(command: str, name: str, file: str | None) -> str:
    """What to do about a command that cannot be run; `file` is there, and is no program."""
    if file:
        return f"it is not executable: run chmod +x {file}, or use its interpreter as the command"
    if known := causes.mend(f"Command not found: {command}"):
        return known
    first, _, rest = command.partition(" ")
    if rest:
        return f'command is the program alone: "command": "{os.path.basename(first)}", "args": {rest.split()}'
    return f"install {command}, or write its whole path into the configuration of {name}"


class Supervisor:
    """Starts children and has them all ended at the close."""

    def __init__(self, clock: Clock, environ: Mapping[str, str]) -> None:
        self._clock = clock
        self._environ = environ
        self._guard = Guard()
        self._children: set[Child] = set()
        self._number = 0

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
    ) -> Child:
        """Raises `Fault` SERVER_FAILED that names the mend where the command cannot be run."""
        environment = child_environment(env, self._environ)
        if cwd and not os.path.isdir(cwd):
            hint = f"create the folder, or mend cwd in the configuration of {name}"
            raise Fault("SERVER_FAILED", f"No such folder: {cwd}", reach="not_sent", hint=hint)
        if os.path.dirname(command):  # such a path is meant from where the child will be
            command = os.path.abspath(os.path.join(cwd or "", command))
        program = shutil.which(command, path=environment.get("PATH"))
        if not program:
            file = _not_executable(command, environment.get("PATH"))
            message = f"Permission denied: {command}" if file else f"Command not found: {command}"
            raise Fault("SERVER_FAILED", message, reach="not_sent", hint=_cure(command, name, file))
        self._number += 1
        environment[guard.MARK] = self._guard.mark(self._number)

        def exited(reason: str) -> None:
            self._children.discard(child)
            on_exit(reason)

        child = Child(name, self._clock, self._guard, self._number, on_output, exited, on_stderr, talks)
        try:
            self._guard.ready()
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: child, program, *args, env=environment, cwd=cwd, start_new_session=True
            )
        except OSError as error:
            why, hint = causes.of_system(error)
            raise Fault("SERVER_FAILED", f"Cannot start {program}: {why}", reach="not_sent", hint=hint) from None
        child.own(transport)
        self._children.add(child)
        return child

    async def close(self) -> None:
        children = list(self._children)
        for child in children:
            child.end()
        for child in children:
            await child.ended()
        await self._guard.close()
