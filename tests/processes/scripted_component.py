"""A tool component on a socket: what it says of itself, and a script that writes the answer to each POST."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from processes.scripted_http import OnCall, Request, ScriptedServer, serving

Json = dict[str, Any]


def tool(name: str = "echo", **more: Any) -> Json:
    schema = {"type": "object", "properties": {"message": {"type": "string"}}}
    return {"name": name, "title": name.title(), "description": f"Does {name}.", "inputSchema": schema, **more}


def said(text: str, **more: Any) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text}], **more}).encode()


async def echoes(request: Request) -> None:
    request.whole(said(request.message.get("message", "")))


class ScriptedComponent(ScriptedServer):
    """`metadata` is what it answers GET with: a value, bytes, or a function of the path. While `held` is clear, it
    answers no GET."""

    def __init__(self, metadata: Any = None, on_post: OnCall = echoes, status: str = "200 OK") -> None:
        super().__init__(on_post)
        self.metadata = tool() if metadata is None else metadata
        self.status = status
        self.held = asyncio.Event()
        self.held.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def posts(self) -> list[Request]:
        return [request for request in self.requests if request.verb == "POST"]

    async def _respond(self, request: Request) -> None:
        if request.verb == "POST":
            await self._on_call(request)
            return
        await self.held.wait()
        said = self.metadata(request.path) if callable(self.metadata) else self.metadata
        request.whole(said if isinstance(said, bytes) else json.dumps(said).encode(), self.status)


@asynccontextmanager
async def component(
    metadata: Any = None, on_post: OnCall = echoes, status: str = "200 OK"
) -> AsyncIterator[ScriptedComponent]:
    async with serving(ScriptedComponent(metadata, on_post, status)) as script:
        yield script
