"""Memory that large messages have taken, given back to the system when they are gone.

glibc maps a large block by itself, and unmaps it when it is freed; but once such a block was freed, it takes all that
are no larger from its heap, where whatever is younger and still needed keeps them. What is free between those it gives
back when it is told to.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes

OWN = 128 * 1024  # bytes of a block that is always mapped by itself
KEPT = 4 * 1024 * 1024  # bytes that are kept free at the end of a heap
HEAPS = 2  # else each thread has one, and keeps what it has freed there
LOOK = 20.0  # seconds between looks at how much is free
WORTH = 8 * 1024 * 1024  # bytes: giving back so many takes a millisecond or two, in which nobody gets memory
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h of glibc


def give_back() -> None:
    """From now on. Nothing where the system has another library, which gives memory back in its own way."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((_MMAP_THRESHOLD, OWN), (_TRIM_THRESHOLD, KEPT), (_ARENA_MAX, HEAPS)):
            mallopt(option, value)


class _Info(ctypes.Structure):
    """What glibc says of its heaps (`struct mallinfo2`), in bytes."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "used", "free", "top")
    ]


async def trim() -> None:
    """Until cancelled: give back what has become free in the middle of the heaps since the last time."""
    try:
        library = ctypes.CDLL(None)
        told, give_back_all = library.mallinfo2, library.malloc_trim
    except (OSError, AttributeError, TypeError):
        return
    told.restype = _Info
    given_back = 0  # bytes of those that are free
    while True:
        await asyncio.sleep(LOOK)
        free = told().free
        given_back = min(given_back, free)
        if free - given_back > WORTH:
            await asyncio.to_thread(give_back_all, 0)
            given_back = free
