"""A server over stdio on the very first official Python SDK, 1.0.0: a request that it does not know ends it.

Its names and texts are those of server-everything, as far as it has them.
"""

from __future__ import annotations

import asyncio
import json

from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server

server = Server("first")
NAMES = ("get-sum", "trigger-sampling-request", "trigger-long-running-operation")


@server.list_tools()
async def tools() -> list[types.Tool]:
    return [types.Tool(name=name, inputSchema={"type": "object"}) for name in NAMES]


@server.call_tool()
async def call(name: str, given: dict) -> list[types.TextContent]:
    return [types.TextContent(type="text", text=await WORK[name](given))]


async def get_sum(given: dict) -> str:
    a, b = given["a"], given["b"]
    return f"The sum of {a} and {b} is {a + b}."


async def sample(given: dict) -> str:
    text = f"Resource trigger-sampling-request context: {given['prompt']}"
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    session = server.request_context.session
    answer = await session.create_message([message], max_tokens=given["maxTokens"])
    return "LLM sampling result: \n" + json.dumps(answer.model_dump(by_alias=True, mode="json", exclude_none=True))


async def run_long(given: dict) -> str:
    context, steps, duration = server.request_context, given["steps"], given["duration"]
    for step in range(1, steps + 1):
        await asyncio.sleep(duration / steps)
        if context.meta and context.meta.progressToken is not None:
            await context.session.send_progress_notification(context.meta.progressToken, step, steps)
    return f"Long running operation completed. Duration: {duration:g} seconds, Steps: {steps}."


WORK = dict(zip(NAMES, (get_sum, sample, run_long), strict=True))


async def main() -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
