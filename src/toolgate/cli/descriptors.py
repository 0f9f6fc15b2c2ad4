"""File descriptors: as many as may be had, and a word in the log where none is left.

Without one, nothing can be opened: the event loop drops new connections in silence, and no server starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource

log = logging.getLogger(__name__)

WANTED = 65536  # what common services ask for; more makes programs slow that close all of them one by one
LOOK = 1.0  # seconds between looks
AGAIN = 60.0  # seconds until the log says it again


def raise_limit() -> None:
    """As far as the hard limit allows, for this process and the servers that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # macOS allows less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def watch() -> None:
    """Until cancelled: say it where no descriptor is left, and when there are some again."""
    said: float | None = None
    while True:
        now = asyncio.get_running_loop().time()
        if not _is_one_left():
            if said is None or now - said >= AGAIN:
                limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                log.error(
                    "no file descriptors left (limit: %d): new connections are dropped and servers cannot be "
                    "started. Raise the limit (ulimit -n, or LimitNOFILE= of a systemd unit) and restart",
                    limit,
                )
                said = now
        elif said is not None:
            log.info("file descriptors are available again")
            said = None
        await asyncio.sleep(LOOK)


def _is_one_left() -> bool:
    try:
        os.close(os.open("/", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True
