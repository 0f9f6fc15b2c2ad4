"""Where a request came whose head is known, as the lane and the server both have it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from toolgate.frontends.connections import Connection
from toolgate.frontends.known_heads import Parted
from toolgate.frontends.streams import HeaderList, Receive, Send


class Slot:
    """Where a request came whose head is known, and where its answer is written; `on_left` is told if the client leaves
    before. The server makes them."""

    came: Parted
    known: Any  # what its head means now, but for the time: see `guards.Request`
    connection: Connection
    disconnected: bool
    on_left: Callable[[], object] | None

    def can_answer(self) -> bool:
        """Whether the answer would be written now."""
        raise NotImplementedError

    def answer_whole(self, status: int, headers: HeaderList, body: bytes) -> None:
        """With these headers and the length."""
        raise NotImplementedError

    def go_on(self, app: Callable[[Any, Receive, Send], Awaitable[None]]) -> asyncio.Task[None]:
        """Have this ASGI application answer in a task."""
        raise NotImplementedError
