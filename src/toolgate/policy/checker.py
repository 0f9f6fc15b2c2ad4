"""What may take long to check is checked in a process of its own, which is ended when it takes too long.

The rules this file keeps: nothing that a server lists, and nothing that a client sends, is compiled or checked on the
event loop but what is plain and small; and the process ends with whoever has started it, also where that is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from toolgate.policy import schemas
from toolgate.policy.schemas import FINE, ArgumentsVerdict, Schema

PATIENCE = 10.0  # seconds of a busy machine for a check that may take a quarter of one of its processor
COMPILED = b"c"  # what the process says between the two
TOO_SLOW = "it takes too long to compile"


class Asked(msgspec.Struct, array_like=True):
    """A schema of a server, as text, and arguments as they came."""

    server: str
    text: bytes
    arguments: bytes


class Answered(msgspec.Struct, array_like=True):
    """`problem`: why nothing can be checked by this schema. No verdict: it takes too long, or cannot be read.
    `is_last`: the process has grown, so that another is to take over."""

    problem: str = ""
    verdict: ArgumentsVerdict | None = None
    is_last: bool = False


class Checker:
    """Blocking: for threads. The process is started when it is first needed, and again after one was ended; one check
    goes on at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._is_closed = False

    def check(
        self, server: str, text: bytes, arguments: bytes, undecided: ArgumentsVerdict = FINE
    ) -> tuple[Schema, ArgumentsVerdict]:
        """What is known of the schema, and what is wrong with the arguments; `undecided` where nobody can tell."""
        schema = schemas.here(text, server)
        if schema.problem:
            return schema, undecided
        if (found := schema.judge_here(arguments)) is not None:
            return schema, found
        answered = self._ask(Asked(server, text, arguments))
        if schema.is_elsewhere:
            schema.problem = answered.problem
        return schema, answered.verdict or undecided

    def _ask(self, asked: Asked) -> Answered:
        with self._turn:
            if self._is_closed:
                return Answered()
            process = self._process = self._process or _started(self)
            watch = threading.Timer(PATIENCE, process.kill)
            watch.start()
            answered = _said(process, msgspec.msgpack.encode(asked))
            watch.cancel()
            if not answered or answered.is_last:
                self._process = None
                _end(process)
            return answered or Answered()

    def close(self) -> None:
        """End it, whatever it is at."""
        self._is_closed = True
        if process := self._process:
            process.kill()
        with self._turn:
            if process := self._process:
                self._process = None
                _end(process)


def _started(owner: Checker) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "toolgate.policy.checker_process"]
    env = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    env["PYTHONPATH"] = str(Path(__file__).parents[2])
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, env=env, start_new_session=True)
    weakref.finalize(owner, _end, process)
    return process


def _said(process: subprocess.Popen[bytes], data: bytes) -> Answered | None:
    """None where it has ended, but for one that was ended because of the schema."""
    assert process.stdin and process.stdout
    is_compiled = False
    try:
        send(process.stdin, data)
        is_compiled = process.stdout.read(len(COMPILED)) == COMPILED
        if is_compiled and (answer := receive(process.stdout)) is not None:
            return msgspec.msgpack.decode(answer, type=Answered)
    except OSError:
        pass
    process.kill()
    is_spent = process.wait() in _SPENT
    return Answered(TOO_SLOW, is_last=True) if is_spent and not is_compiled else None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with suppress(OSError):  # what was not sent yet has nobody to go to
                pipe.close()


def send(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(4, "big") + data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes | None:
    """None at its end."""
    head = pipe.read(4)
    data = pipe.read(int.from_bytes(head, "big")) if len(head) == 4 else b""
    return data or None


_NEEDED = ("SYSTEMROOT", "LD_LIBRARY_PATH")  # of the environment
_SPENT = [-getattr(signal, name) for name in ("SIGPROF", "SIGABRT") if hasattr(signal, name)]  # time, or memory
