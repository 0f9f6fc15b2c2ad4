"""Folders that others name, which may lie on a disk that does not answer: work in them has threads of its own.

The rules this file keeps: nobody waits longer than some seconds for a disk, and who named it learns which folder it
was; a thread that such a disk holds keeps its principal from more of them, and nobody else from anything; and what a
thread still uses is not closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from toolgate.core.clock import Clock
from toolgate.core.concurrency import TwoEach
from toolgate.core.fault import Fault
from toolgate.core.own_threads import OwnThreads

PATIENCE = 5.0  # seconds in which a disk answers
MOST = 32  # threads of all, two of each principal
MOST_WAITING = 1000  # of one principal

Result = TypeVar("Result")


class Folders:
    """`own` needs none of this: the gateway was started there."""

    def __init__(self, clock: Clock, own: Path | None = None) -> None:
        self._clock = clock
        self._own = own
        self._turns = TwoEach(MOST, most=MOST_WAITING, what="looks at folders")
        self._threads = OwnThreads()
        self._silent: dict[Path, dict[asyncio.Future[Any], str]] = {}  # work that nobody waits for any more, and whose

    async def in_thread(
        self,
        whose: str,
        folder: Path,
        work: Callable[[], Result],
        steps: Callable[[], int] | None = None,
        unwanted: Callable[[Result], object] | None = None,
    ) -> Result:
        """What `work` finds in a folder; it may take long while its `steps` grow. `unwanted` gets what nobody waits
        for any more. Raises `Fault` where the disk does not answer, and what `work` raises."""
        if folder == self._own:
            return await asyncio.to_thread(work)
        if folder in self._silent:
            raise _unanswered([folder])
        await self._turn(whose, folder)
        try:
            done = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except BaseException:  # there are no more threads
            self._turns.give_back(whose)
            raise
        done.add_done_callback(lambda _: self._turns.give_back(whose))
        is_wanted = False
        try:
            while not done.done():
                before = steps and steps()
                with contextlib.suppress(TimeoutError):
                    async with self._clock.timeout(PATIENCE):
                        await asyncio.wait([done])
                if not done.done() and (steps is None or steps() == before):
                    raise _unanswered([folder])
            is_wanted = True
            return done.result()
        finally:
            if not is_wanted:
                self._silent.setdefault(folder, {})[done] = whose
                done.add_done_callback(partial(self._answered, folder, unwanted))
            del done  # or an error and this frame would hold each other

    def afterwards(self, folder: Path, end: Callable[[], object]) -> None:
        """Have this done when nothing is under way any more that was given up in this folder: now, as a rule."""
        if under_way := self._silent.get(folder):
            next(reversed(under_way)).add_done_callback(lambda _: self.afterwards(folder, end))
        else:
            end()

    async def _turn(self, whose: str, folder: Path) -> None:
        try:
            async with self._clock.timeout(PATIENCE):
                await self._turns.turn(whose)
        except TimeoutError:
            theirs = [silent for silent, works in self._silent.items() if whose in works.values()]
            raise _unanswered(theirs or [folder]) from None

    def _answered(self, folder: Path, unwanted: Callable[[Any], object] | None, done: asyncio.Future[Any]) -> None:
        del self._silent[folder][done]
        if not self._silent[folder]:
            del self._silent[folder]
        if not done.cancelled() and not done.exception() and unwanted:
            unwanted(done.result())


def _unanswered(folders: list[Path]) -> Fault:
    message = f"The disk of {' and '.join(map(str, folders))} does not answer"
    return Fault("TIMEOUT", message, reach="not_sent", hint="see whether it is mounted, then try again")
