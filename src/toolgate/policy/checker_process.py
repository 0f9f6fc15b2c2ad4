"""A process of `checker`: reads schemas and arguments from its standard input until that ends, and says what is wrong
with the arguments. It does so in a fork of itself, which the kernel ends where one of these takes too much of the
processor or of memory; then another fork goes on.
"""

from __future__ import annotations

import importlib
import mmap
import os
import signal
import sys

import msgspec

from toolgate.policy import schemas
from toolgate.policy.checker import COMPILED, Answered, Asked, receive, send
from toolgate.policy.schemas import ArgumentsVerdict

try:
    import resource
except ImportError:  # on Windows, where who has started this ends it
    resource = None

MOST_MEMORY = 1024 * 1024 * 1024  # bytes of addresses, libraries among them
MOST_KEPT = 192 * 1024 * 1024  # bytes of memory, beyond which another fork goes on
NICE = 5  # calls that need no check of this kind go before
AGAIN = 3  # the exit code of a fork that has grown

_UNDECIDED = ArgumentsVerdict(is_whole=False)
_SPENT = msgspec.msgpack.encode(Answered(is_spent=True))


def _main() -> None:
    importlib.import_module("jsonschema_rs")  # once, and not in each fork
    _hold_back()
    is_at_work = mmap.mmap(-1, 1)  # whether a fork owes an answer
    while hasattr(os, "fork"):
        fork = os.fork()
        if not fork:
            break
        code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
        if code == 0:
            return
        if is_at_work[0]:
            is_at_work[0] = 0
            send(sys.stdout.buffer, _SPENT)
    os._exit(_serve(is_at_work))


def _serve(is_at_work: mmap.mmap) -> int:
    """The exit code."""
    while (data := receive(sys.stdin.buffer)) is not None:
        is_at_work[0] = 1
        answer = msgspec.msgpack.encode(_answer(msgspec.msgpack.decode(data, type=Asked)))
        _end_after(0)
        is_at_work[0] = 0  # first: an answer too few is waited for, one too many would be taken for another
        send(sys.stdout.buffer, answer)
        if resource and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT > MOST_KEPT:
            return AGAIN
    return 0


def _answer(asked: Asked) -> Answered:
    compiling, checking = asked.seconds
    _end_after(compiling)
    schema = schemas.compiled(asked.text, asked.server)
    sys.stdout.buffer.write(COMPILED)
    sys.stdout.buffer.flush()
    if schema.problem:
        return Answered(schema.problem)
    _end_after(checking)
    verdict = schema.judge(asked.arguments, _UNDECIDED)
    return Answered(verdict=None if verdict is _UNDECIDED else verdict)


def _hold_back() -> None:
    if resource:
        os.nice(NICE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if sys.platform == "linux":
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


def _end_after(seconds: float) -> None:
    """Of its processor's time, by a signal that ends the process whatever it is at; 0: never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


_UNIT = 1 if sys.platform == "darwin" else 1024  # of what the kernel tells of memory

if __name__ == "__main__":
    _main()
