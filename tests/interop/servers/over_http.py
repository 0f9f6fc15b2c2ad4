"""A server of the handshake era over HTTP, made with FastMCP: that of the Python SDK 1.x, or FastMCP 2, whichever the
interpreter has. One process serves all ways that the framework knows, each at a path of its own.

Names and texts are those of server-everything. It listens on loopback, on a port of the system's choice, and says which
on its first line of output.
"""

from __future__ import annotations

import contextlib
import inspect
import socket
from collections.abc import AsyncIterator
from importlib.util import find_spec

import anyio
import uvicorn
from mcp.types import TextContent
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import Mount

if find_spec("fastmcp"):
    from fastmcp import Context, FastMCP

    def app_of(server: FastMCP, way: str) -> Starlette:
        if way == "sse":
            return server.http_app(path="/sse", transport="sse")
        return server.http_app(path="/mcp", stateless_http=way == "stateless", json_response=way == "json")

else:
    from mcp.server.fastmcp import Context, FastMCP

    def app_of(server: FastMCP, way: str) -> Starlette:
        server.settings.stateless_http = way == "stateless"
        server.settings.json_response = way == "json"
        return server.sse_app() if way == "sse" else server.streamable_http_app()


class Person(BaseModel):
    name: str
    check: bool
    integer: int


def made() -> FastMCP:
    server = FastMCP("over-http")
    asked = "response_type" if "response_type" in inspect.signature(Context.elicit).parameters else "schema"

    @server.tool(name="get-sum", structured_output=False) if asked == "schema" else server.tool(name="get-sum")
    def get_sum(a: int, b: int) -> str:
        return f"The sum of {a} and {b} is {a + b}."

    @server.tool(name="trigger-elicitation-request")
    async def elicitation(ctx: Context) -> list[TextContent]:
        answer = await ctx.elicit("Please provide inputs for the following fields:", **{asked: Person})
        person = answer.data
        lines = (
            f"- Name: {person.name}",
            f"- Agreed to terms: {str(person.check).lower()}",
            f"- Favorite Integer: {person.integer}",
        )
        texts = ("✅ User provided the requested information!", "User inputs:\n" + "\n".join(lines))
        return [TextContent(type="text", text=text) for text in texts]

    @server.tool(name="trigger-long-running-operation")
    async def long_running(duration: float, steps: int, ctx: Context) -> str:
        for step in range(1, steps + 1):
            await anyio.sleep(duration / steps)
            await ctx.report_progress(step, steps)
        return f"Long running operation completed. Duration: {duration:g} seconds, Steps: {steps}."

    @server.resource("demo://resource/static/document/features.md")
    def document() -> str:
        return "# Features"

    @server.prompt(name="simple-prompt")
    def simple_prompt() -> str:
        return "This is a simple prompt without arguments."

    return server


WAYS = ("stateful", "stateless", "json", "sse")


def main() -> None:
    apps = {way: app_of(made(), way) for way in WAYS}

    @contextlib.asynccontextmanager
    async def all_of_them(_: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for app in apps.values():
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    app = Starlette(routes=[Mount(f"/{way}", app) for way, app in apps.items()], lifespan=all_of_them)
    door = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{door.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[door])


if __name__ == "__main__":
    main()
