"""A server of the handshake revisions over Streamable HTTP, on the SDK 1.x (`sdk`) or on FastMCP 2 (`fastmcp`).

Run by an interpreter that has the one or the other. Its names and texts are those of server-everything, so that one set
of assertions serves both. It listens on loopback, on a port of the system's choice, and says which on its first line of
output.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

import anyio
import uvicorn
from mcp.types import SamplingMessage, TextContent

if sys.argv[1] == "fastmcp":
    from fastmcp import Context, FastMCP
else:
    from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("handshake")
PERSON = {"name": {"type": "string"}, "check": {"type": "boolean"}, "integer": {"type": "integer"}}


@server.tool(name="get-sum")
def get_sum(a: int, b: int) -> str:
    return f"The sum of {a} and {b} is {a + b}."


@server.tool(name="trigger-elicitation-request")
async def elicitation(ctx: Context) -> list[Any]:
    schema = {"type": "object", "properties": PERSON, "required": list(PERSON)}
    message = "Please provide inputs for the following fields:"
    person = (await ctx.session.elicit(message, schema, related_request_id=ctx.request_id)).content
    lines = (
        f"- Name: {person['name']}",
        f"- Agreed to terms: {str(person['check']).lower()}",
        f"- Favorite Integer: {person['integer']}",
    )
    texts = ("✅ User provided the requested information!", "User inputs:\n" + "\n".join(lines))
    return [TextContent(type="text", text=text) for text in texts]


@server.tool(name="trigger-sampling-request")
async def sampling(prompt: str, maxTokens: int, ctx: Context) -> str:
    text = f"Resource trigger-sampling-request context: {prompt}"
    message = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    answer = await ctx.session.create_message([message], max_tokens=maxTokens, related_request_id=ctx.request_id)
    return "LLM sampling result: \n" + json.dumps(answer.model_dump(by_alias=True, mode="json", exclude_none=True))


@server.tool(name="get-roots-list")
async def roots(ctx: Context) -> str:
    found = (await ctx.session.list_roots()).roots
    listed = "\n\n".join(f"{n}. {root.name}\n   URI: {root.uri}" for n, root in enumerate(found, 1))
    return f"Current MCP Roots ({len(found)} total):\n\n{listed}\n\nNote: that is all."


@server.tool(name="trigger-long-running-operation")
async def long_running(duration: float, steps: int, ctx: Context) -> str:
    for step in range(1, steps + 1):
        await anyio.sleep(duration / steps)
        await ctx.report_progress(step, steps)
    return f"Long running operation completed. Duration: {duration:g} seconds, Steps: {steps}."


def main() -> None:
    door = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{door.getsockname()[1]}/mcp", flush=True)
    app = server.http_app() if sys.argv[1] == "fastmcp" else server.streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[door])


if __name__ == "__main__":
    main()
