"""A server of both eras over Streamable HTTP, made with the official SDK 2.x, that asks as server-everything does.

It proves the drivers: they speak to it directly, without a gateway. Its names and texts are those of
server-everything, so that one set of assertions serves both. It listens on loopback, on a port of the system's
choice, and says which on its first line of output.
"""

from __future__ import annotations

import json
import socket
from typing import Annotated

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.types import CreateMessageResult, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("dual", version="1")


class Person(BaseModel):
    name: str
    check: bool
    integer: int


def ask_person() -> Elicit[Person]:
    return Elicit("Please provide inputs for the following fields:", Person)


def ask_model(prompt: str, maxTokens: int) -> Sample:
    text = f"Resource trigger-sampling-request context: {prompt}"
    message = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return Sample([message], max_tokens=maxTokens)


def ask_roots() -> ListRoots:
    return ListRoots()


@server.tool(name="get-sum", structured_output=False)
def get_sum(a: int, b: int) -> str:
    return f"The sum of {a} and {b} is {a + b}."


@server.tool(name="trigger-elicitation-request", structured_output=False)
def elicitation(person: Annotated[Person, Resolve(ask_person)]) -> list[TextContent]:
    lines = (
        f"- Name: {person.name}",
        f"- Agreed to terms: {str(person.check).lower()}",
        f"- Favorite Integer: {person.integer}",
    )
    texts = ("✅ User provided the requested information!", "User inputs:\n" + "\n".join(lines))
    return [TextContent(type="text", text=text) for text in texts]


@server.tool(name="trigger-sampling-request", structured_output=False)
def sampling(prompt: str, maxTokens: int, answer: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    wire = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    return f"LLM sampling result: \n{json.dumps(wire)}"


@server.tool(name="get-roots-list", structured_output=False)
def roots(answer: Annotated[ListRootsResult, Resolve(ask_roots)]) -> str:
    listed = "\n\n".join(f"{n}. {root.name}\n   URI: {root.uri}" for n, root in enumerate(answer.roots, 1))
    return f"Current MCP Roots ({len(answer.roots)} total):\n\n{listed}\n\nNote: that is all."


@server.tool(name="trigger-long-running-operation", structured_output=False)
async def long_running(duration: float, steps: int, ctx: Context) -> str:
    for step in range(1, steps + 1):
        await anyio.sleep(duration / steps)
        await ctx.report_progress(step, steps)
    return f"Long running operation completed. Duration: {duration:g} seconds, Steps: {steps}."


@server.resource("demo://resource/static/document/features.md")
def document() -> str:
    return "# Features"


@server.resource("demo://resource/dynamic/text/{resourceId}")
def dynamic(resourceId: str) -> str:
    return f"Resource {resourceId}"


@server.prompt(name="simple-prompt")
def simple_prompt() -> str:
    return "This is a simple prompt without arguments."


def main() -> None:
    door = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{door.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
    uvicorn.Server(config).run(sockets=[door])


if __name__ == "__main__":
    main()
