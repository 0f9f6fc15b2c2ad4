"""The process of `checker`: reads schemas and arguments from its standard input until that ends, and says what is wrong
with the arguments. It is ended by the kernel where one of these takes too much of the processor or of memory.
"""

from __future__ import annotations

import os
import signal
import sys

from toolgate.policy import schemas

try:
    import resource
except ImportError:  # on Windows, where who has started this ends it
    resource = None

import msgspec

from toolgate.policy.checker import COMPILED, Answered, Asked, receive, send
from toolgate.policy.schemas import ArgumentsVerdict

COMPILING, CHECKING = 0.5, 0.25  # seconds of the processor
MOST_MEMORY = 1024 * 1024 * 1024  # bytes of addresses, libraries among them
MOST_KEPT = 192 * 1024 * 1024  # bytes of memory, beyond which another process takes over
NICE = 5  # calls that need no check of this kind go before

_UNDECIDED = ArgumentsVerdict(is_whole=False)


def _main() -> None:
    _hold_back()
    while (data := receive(sys.stdin.buffer)) is not None:
        answered = _answer(msgspec.msgpack.decode(data, type=Asked))
        _end_after(0)
        answered.is_last = bool(resource and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT > MOST_KEPT)
        send(sys.stdout.buffer, msgspec.msgpack.encode(answered))


def _answer(asked: Asked) -> Answered:
    _end_after(COMPILING)
    schema = schemas.compiled(asked.text, asked.server)
    sys.stdout.buffer.write(COMPILED)
    sys.stdout.buffer.flush()
    if schema.problem:
        return Answered(schema.problem)
    _end_after(CHECKING)
    verdict = schema.judge(asked.arguments, _UNDECIDED)
    return Answered(verdict=None if verdict is _UNDECIDED else verdict)


def _hold_back() -> None:
    os.nice(NICE)
    if resource:
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
