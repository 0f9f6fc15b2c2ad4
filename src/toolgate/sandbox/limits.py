"""What a run may use, as one table; each engine keeps to those of its own, and the host to all."""

from __future__ import annotations

import os

import msgspec

MB = 1024 * 1024


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Limits(msgspec.Struct, frozen=True):
    """Of one run, and below of all runs of a gateway."""

    code: int = 51_200  # bytes of UTF-8
    wall: float = 120.0  # seconds by the host's clock, which stands still while a call waits for a person
    cpu: int = 125  # seconds of the processor; what confines the process holds it to that
    sleep: int = 30_000  # milliseconds of one sleep or timer
    output: int = 10 * MB  # bytes: all console lines and the result, or half of those that they take in its answer
    heap: int = 128  # MB of V8's heap
    resident: int = 512 * MB  # bytes of the process that are in memory
    address_space: int = 512 * MB  # bytes of a Python process
    calls: int = 1000  # of tools
    values: int = 100_000  # of JSON, in the arguments of a call: as many as a request of a client may have
    in_flight: int = 64  # calls at once; more of them wait
    result: int = 10 * MB  # bytes of what one call brings

    runs: int = min(16, 4 * _cores())  # at once
    queued: int = 64  # runs of one principal that wait for their turn
    patience: float = 30.0  # seconds for which a run waits for its turn
    waiting: int = 8  # runs of one principal that wait for a person, and have given their place back
    resting: int = 32  # of all; each has a process
    warm: int = 2  # processes of each engine that are ready for the next run
    idle: float = 300.0  # seconds after the last run, and then none is kept ready
    start: float = 30.0  # seconds until a process is ready
    names: int = 256 * 1024  # bytes of the names of tools that a run is told


DEFAULTS = Limits()
