"""What may take long to check is checked in processes of its own, which are ended where it takes too long.

The rules this file keeps: nothing that a server lists, and nothing that a client sends, is compiled or checked on the
event loop but what is plain and small; what takes longer than almost all does is done behind the rest, so that who has
much of it waits for itself; and the processes end with the gateway, also where that is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

import msgspec

from toolgate.core.concurrency import FairThreads
from toolgate.policy import schemas
from toolgate.policy.schemas import FINE, ArgumentsVerdict, Schema

QUICKLY = (0.05, 0.05)  # seconds of the processor for compiling and for checking; almost all take a hundredth of it
SLOWLY = (0.5, 0.25)
MOST_WAITING = 32  # checks of one client at one server
LARGE = 1024 * 1024  # bytes of arguments that are not tried quickly
LITTLE = 4 * 1024  # bytes of arguments up to which it is the schema that takes long
OFTEN, LATELY = 3, 60.0  # times, and in how many seconds, after which somebody's checks are not tried quickly
MOST_NOTED = 1000  # of those
PATIENCE = 10.0  # seconds of a busy machine for all of it
COMPILED = b"c"  # what a process says between the two; no answer begins with it
TOO_SLOW = "it takes too long to compile"


class Asked(msgspec.Struct, array_like=True):
    """A schema of a server, as text, and arguments as they came; and how long each may take."""

    server: str
    text: bytes
    arguments: bytes
    seconds: tuple[float, float]


class Answered(msgspec.Struct, array_like=True):
    """`problem`: why nothing can be checked by this schema. No verdict: it cannot be read; or it takes too much time or
    memory, which `is_spent`."""

    problem: str = ""
    verdict: ArgumentsVerdict | None = None
    is_spent: bool = False


class Checker:
    """Its processes are started when they are first needed. In each, one check goes on at a time."""

    def __init__(self) -> None:
        self._quick, self._slow = _Lane(), _Lane()
        self._overran: OrderedDict[str, list[float]] = OrderedDict()  # when somebody's checks did, the latest last

    async def check(
        self, whose: str, server: str, text: bytes, arguments: bytes, undecided: ArgumentsVerdict = FINE
    ) -> tuple[Schema, ArgumentsVerdict]:
        """What is known of the schema, and what is wrong with the arguments; `undecided` where nobody can tell. In
        turns of clients (`whose`: see `Principal.counted_as`) and of servers. Raises `Fault` RATE_LIMITED where too
        many of this client wait."""
        turn = f"{whose} {server}"
        if len(arguments) <= LARGE:
            tried = partial(self._tried, whose, server, text, arguments, undecided)
            schema, verdict = await self._quick.turns.in_thread(turn, tried)
            if verdict is not None:
                return schema, verdict
        asked = Asked(server, text, arguments, SLOWLY)
        return await self._slow.turns.in_thread(turn, lambda: self._done_slowly(asked, undecided))

    def _tried(
        self, whose: str, server: str, text: bytes, arguments: bytes, undecided: ArgumentsVerdict
    ) -> tuple[Schema, ArgumentsVerdict | None]:
        """The same; no verdict where that takes longer."""
        schema = schemas.here(text, server)
        if schema.problem:
            return schema, undecided
        if (found := schema.judge_here(arguments)) is not None:
            return schema, found
        names = f"client {whose}", f"server {server}"
        if schema.is_slow or any(map(self._overruns, names)):
            return schema, None
        answered, is_compiled = self._quick.ask(Asked(server, text, arguments, QUICKLY))
        if answered.is_spent:
            schema.is_slow = not is_compiled
            self._note(names[is_compiled is False or len(arguments) <= LITTLE])
            return schema, None
        schema.problem = answered.problem if schema.is_elsewhere else ""
        return schema, answered.verdict or undecided

    def _done_slowly(self, asked: Asked, undecided: ArgumentsVerdict) -> tuple[Schema, ArgumentsVerdict]:
        schema = schemas.here(asked.text, asked.server)
        if schema.problem:
            return schema, undecided
        answered, is_compiled = self._slow.ask(asked)
        if schema.is_elsewhere:
            schema.problem = TOO_SLOW if answered.is_spent and not is_compiled else answered.problem
        return schema, answered.verdict or undecided

    def _note(self, name: str) -> None:
        times = [*self._overran.pop(name, [])[1 - OFTEN :], time.monotonic()]
        self._overran[name] = times
        if len(self._overran) > MOST_NOTED:
            self._overran.popitem(last=False)

    def _overruns(self, name: str) -> bool:
        times = self._overran.get(name, [])
        return len(times) >= OFTEN and times[0] > time.monotonic() - LATELY

    def close(self) -> None:
        """End them, whatever they are at."""
        self._quick.close()
        self._slow.close()


class _Lane:
    """One process. Blocking, but for its `turns`."""

    def __init__(self) -> None:
        self.turns = FairThreads(1, most=MOST_WAITING, what="calls whose arguments take long to check")
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._turn = threading.Lock()

    def ask(self, asked: Asked) -> tuple[Answered, bool]:
        """What comes of it, and whether the schema was compiled before."""
        with self._turn:
            if self._is_closed:
                return Answered(), True
            process = self._process = self._process or _started(self)
            watch = threading.Timer(PATIENCE, _kill, (process,))
            watch.start()
            answered, is_compiled = _said(process, msgspec.msgpack.encode(asked))
            watch.cancel()
            if not answered:
                self._process = None
                _end(process)
            return answered or Answered(), is_compiled or not answered

    def close(self) -> None:
        self._is_closed = True
        if process := self._process:
            _kill(process)
        with self._turn:
            if process := self._process:
                self._process = None
                _end(process)


def _started(owner: _Lane) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "toolgate.policy.checker_process"]
    env = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    env["PYTHONPATH"] = str(Path(__file__).parents[2])
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, env=env, start_new_session=True)
    weakref.finalize(owner, _end, process)
    return process


def _said(process: subprocess.Popen[bytes], data: bytes) -> tuple[Answered | None, bool]:
    """None where the process has ended, for whatever reason."""
    assert process.stdin and process.stdout
    is_compiled = False
    try:
        send(process.stdin, data)
        said = process.stdout.read(1)
        is_compiled = said == COMPILED
        if said and (answer := receive(process.stdout, b"" if is_compiled else said)) is not None:
            return msgspec.msgpack.decode(answer, type=Answered), is_compiled
    except (OSError, msgspec.DecodeError):
        pass
    return None, is_compiled


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With what it has forked."""
    with suppress(OSError):
        if process.returncode is None and hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    _kill(process)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with suppress(OSError):  # what was not sent yet has nobody to go to
                pipe.close()


def send(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(4, "big") + data)
    pipe.flush()


def receive(pipe: IO[bytes], begun: bytes = b"") -> bytes | None:
    """What somebody has sent, of which this was read; None at the end."""
    head = begun + pipe.read(4 - len(begun))
    data = pipe.read(int.from_bytes(head, "big")) if len(head) == 4 else b""
    return data or None


_NEEDED = ("SYSTEMROOT", "LD_LIBRARY_PATH")  # of the environment
