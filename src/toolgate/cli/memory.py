"""Memory that large messages have taken, given back to the system when they are gone.

glibc maps a large block by itself, and unmaps it when it is freed; but once such a block was freed, it takes all that
are no larger from its heap, where whatever is younger and still needed keeps them.
"""

from __future__ import annotations

import contextlib
import ctypes

OWN = 128 * 1024  # bytes of a block that is always mapped by itself
KEPT = 4 * 1024 * 1024  # bytes that are kept free at the end of a heap
HEAPS = 2  # else each thread has one, and keeps what it has freed there
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h of glibc


def give_back() -> None:
    """From now on. Nothing where the system has another library, which gives memory back in its own way."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((_MMAP_THRESHOLD, OWN), (_TRIM_THRESHOLD, KEPT), (_ARENA_MAX, HEAPS)):
            mallopt(option, value)
