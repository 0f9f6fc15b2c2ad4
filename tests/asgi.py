"""One HTTP request to an ASGI application, in memory: its answer as it comes, and a client that may go away.

After the client has gone, `send` does nothing, as uvicorn has it; with `breaks` it raises, as other servers have it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from virtualtime import soon

App = Callable[..., Awaitable[None]]


class HttpRequest:
    """`on_message` gets the data of each server-sent event, and a plain body as a whole."""

    def __init__(
        self,
        app: App,
        method: str,
        path: str,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes = b"",
        on_message: Callable[[bytes], None] = lambda _data: None,
        address: str = "192.0.2.1",
        query: bytes = b"",
    ) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self.comments = 0
        self.breaks = False
        self.is_whole = False
        self._unsent: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]
        self._gone = asyncio.Event()
        self._on_message = on_message
        self._rest = b""
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query,
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", b"application/json"),
                *((name.encode(), value.encode()) for name, value in headers),
            ],
            "client": (address, 50000),
        }
        self.task = asyncio.get_running_loop().create_task(app(scope, self._receive, self._send))  # type: ignore[arg-type]

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"

    async def answered(self) -> HttpRequest:
        """This request, once its response is complete."""
        await soon(asyncio.shield(self.task))
        assert self.is_whole, "the application ended without a whole response"
        return self

    def leave(self) -> None:
        """The client closes its connection."""
        self._gone.set()

    async def _receive(self) -> dict[str, Any]:
        if self._unsent:
            return self._unsent.pop(0)
        if not self.is_whole:
            await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, part: dict[str, Any]) -> None:
        if self._gone.is_set():
            if self.breaks:
                raise OSError("the connection is closed")
            return
        if part["type"] == "http.response.start":
            assert self.status is None, "a response begins once"
            self.status = part["status"]
            self.headers = {name.decode().lower(): value.decode() for name, value in part["headers"]}
            return
        assert self.status is not None and not self.is_whole, "a body stands between a start and an end"
        self.is_whole = not part.get("more_body", False)
        if self.is_stream:
            self._events(part.get("body", b""))
        else:
            self.body += part.get("body", b"")
            if self.is_whole and self.body:
                self._on_message(self.body)

    def _events(self, chunk: bytes) -> None:
        *whole, self._rest = (self._rest + chunk).split(b"\n\n")
        for event in whole:
            data = [line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")]
            if data:
                self._on_message(b"\n".join(data))
            else:
                self.comments += 1
