"""The operator's own way in: a Unix socket in the state folder of a running gateway.

Programs of the gateway's own user, and of root, reach the same application there as over HTTP, and are the operator:
they have all rights of the command line. The rules this file keeps: of the gateways of one configuration the first one
owns the socket, by a lock that ends with its process; the next one takes over when that is gone; and who connects is
known by the kernel's word, not by the file's mode alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import importlib
import logging
import os
import socket
import stat
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from toolgate.config import Config, state_folder
from toolgate.config.edits import make_folder
from toolgate.config.ownership import NotOurs
from toolgate.core.clock import Clock
from toolgate.frontends.application import Application

log = logging.getLogger(__name__)

LONGEST_PATH = 100  # bytes; macOS takes 103, Linux 107
AGAIN = 2.0  # seconds between attempts to own the socket
BACKLOG = 64  # connections that wait to be accepted


def place(config: Config, environ: Mapping[str, str]) -> Path:
    """Where the gateway of this configuration listens. Where the state folder's path is too long for a socket, that is
    in a folder of our user's in /tmp."""
    source = os.path.abspath(config.source) if config.source else ""
    folder = state_folder(config, environ).absolute()
    digest = hashlib.sha256(b"\0".join(map(os.fsencode, (folder, source)))).hexdigest()
    name = f"{digest[:16]}.sock"
    path = folder / "run" / name
    return path if len(os.fsencode(path)) <= LONGEST_PATH else Path(f"/tmp/toolgate-{os.geteuid()}") / name


@asynccontextmanager
async def listening(application: Application, path: Path, clock: Clock) -> AsyncGenerator[None]:
    """Answer the operator inside the block, as soon as no other gateway of this configuration does."""
    work = asyncio.get_running_loop().create_task(_listen(application, path, clock), name="operator socket")
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _listen(application: Application, path: Path, clock: Clock) -> None:
    if why := trouble(path):
        log.warning("commands cannot reach this gateway: %s", why)
        return
    try:
        make_folder(path.parent)
        check_ours(path.parent)
        lock = await _owned(path.with_suffix(".lock"), clock)
    except OSError as error:
        log.info("commands cannot reach this gateway: %s cannot be used (%s)", path, error)
        return
    try:
        await _serve(application, path)
    except OSError as error:
        log.info("commands cannot reach this gateway: cannot listen on %s (%s)", path, error)
    finally:
        os.close(lock)


def trouble(path: Path) -> str:
    """Why the folder of the socket cannot be used, empty where it can, or is not there yet."""
    try:
        check_ours(path.parent)
    except NotOurs as error:
        return f"{error.filename} {error.why}"
    except OSError:
        pass
    return ""


def check_ours(folder: Path) -> None:
    """Raises `OSError` where a folder is not there, `NotOurs` where it is not this user's alone."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise NotOurs(folder, f"is not a folder of this user, and is not used: {_INSTEAD}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise NotOurs(folder, f"can be entered by other users, and is not used: chmod 700 {folder}")


_INSTEAD = "remove it, or have it removed; or set `state` to a folder with a shorter path"


async def _owned(path: Path, clock: Clock) -> int:
    """The lock on the socket, as soon as it is ours; it ends when it is closed, or with this process."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    is_first = True
    try:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            if is_first:
                log.info("another gateway with this configuration is already running and will answer commands")
                is_first = False
            await clock.sleep(AGAIN)
    except BaseException:
        os.close(lock)
        raise


async def _serve(application: Application, path: Path) -> None:
    """With the lock, a socket that is there is that of a gateway which was killed. It has its name when it listens."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(fresh))
        os.chmod(fresh, 0o600)  # until then the folder's mode keeps others out
        listener.listen(BACKLOG)
        listener.setblocking(False)
        os.rename(fresh, path)
        await _called(listener)
        # The HTTP server takes a tenth of a second to import, which no gateway over stdio pays whom nobody asks.
        server = await asyncio.to_thread(importlib.import_module, "toolgate.frontends.server")
        async with server.serving(application, listener, protocol=server.OperatorProtocol):
            await asyncio.Event().wait()
    finally:
        path.unlink(missing_ok=True)
        listener.close()


async def _called(listener: socket.socket) -> None:
    """Until somebody connects."""
    loop = asyncio.get_running_loop()
    called = asyncio.Event()
    loop.add_reader(listener, called.set)
    try:
        await called.wait()
    finally:
        loop.remove_reader(listener)
