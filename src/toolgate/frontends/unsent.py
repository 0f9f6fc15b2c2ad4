"""A large answer on its way to a client: a piece at a time, and out of memory where the client does not read it.

The rules this file keeps: a client that reads costs no file; what waits for one that does not is in a file without a
name, which goes with its last holder, however that ends; where there is no room for a file, it stays in memory.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO

from toolgate.core.large import Joined

PIECE = 256 * 1024  # bytes
UNREAD = 0.1  # seconds in which a client takes a piece, or the rest goes into a file

log = logging.getLogger(__name__)


class Unsent:
    """What is left of an answer. Who hands it over holds it no more."""

    def __init__(self, body: bytes | Joined) -> None:
        self.left = len(body)
        self._body = body if isinstance(body, Joined) else Joined(body)
        self._size = len(body)
        self._file: IO[bytes] | None = None
        self._storing: asyncio.Task[None] | None = None

    @property
    def is_in_file(self) -> bool:
        return self._file is not None or self._body.is_in_file

    async def next(self) -> bytes:
        """The next piece."""
        if self._storing:
            await asyncio.wait((self._storing,))
        piece = self._file.read(PIECE) if self._file else self._body.read(self._size - self.left, PIECE)
        self.left -= len(piece)
        return piece

    @contextmanager
    def waits(self) -> Generator[None]:
        """For its client to take the piece before."""
        loop = asyncio.get_running_loop()
        timer = (
            None if self._storing or not self.left or self.is_in_file else loop.call_later(UNREAD, self._begin_to_store)
        )
        try:
            yield
        finally:
            if timer:
                timer.cancel()

    async def close(self) -> None:
        if self._storing:
            await asyncio.wait((self._storing,))
        if self._file:
            self._file.close()

    def _begin_to_store(self) -> None:
        self._storing = asyncio.get_running_loop().create_task(self._store(), name="an answer that is not read")

    async def _store(self) -> None:
        try:
            self._file = await asyncio.to_thread(_stored, self._body, self._size - self.left)
            self._body = Joined()
        except OSError as error:
            log.warning("an answer that its client does not read stays in memory: %s", error)


def _stored(body: Joined, start: int) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115  it outlives this
    try:
        while piece := body.read(start, PIECE):
            file.write(piece)
            start += len(piece)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file
