"""Threads for work that may hang: those of the event loop are few, and everybody's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class OwnThreads(Executor):
    """One for each piece of work, of which a process that ends waits for none. How many there are is for those who
    give them work to bound."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Raises `RuntimeError` where the system has no more threads."""
        done: Future[Any] = Future()

        def run() -> None:
            try:
                found = fn(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  the rescue: who waits is told
                done.set_exception(error)
            else:
                done.set_result(found)

        threading.Thread(target=run, name="work that may hang", daemon=True).start()
        return done
