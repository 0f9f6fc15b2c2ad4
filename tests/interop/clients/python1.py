"""The official Python SDK 1.x as a client; it knows only the handshake revisions.

Run by the interpreter of the `py1` environment.
"""

from __future__ import annotations

import argparse
import os
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import plan as driver
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl, FileUrl


def as_data(result: types.CallToolResult) -> dict[str, Any]:
    wire = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {
        "isError": wire.get("isError", False),
        "text": [block["text"] for block in wire["content"] if block["type"] == "text"],
        "structured": wire.get("structuredContent"),
    }


@asynccontextmanager
async def streams(plan: argparse.Namespace) -> Any:
    if plan.url:
        async with streamable_http_client(plan.url) as (incoming, outgoing, _):
            yield incoming, outgoing
    else:
        server = StdioServerParameters(command=plan.stdio[0], args=plan.stdio[1:], env=dict(os.environ))
        async with stdio_client(server) as (incoming, outgoing):
            yield incoming, outgoing


async def connect_and_run(plan: argparse.Namespace, report: dict[str, Any]) -> None:
    asked: dict[str, list[Any]] = {"elicitation": [], "sampling": [], "roots": []}

    async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked["elicitation"].append(params.message)
        return types.ElicitResult(action="accept", content=dict(driver.ANSWER))

    async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        asked["sampling"].append(params.messages[-1].model_dump(by_alias=True, mode="json")["content"]["text"])
        content = types.TextContent(type="text", text=driver.SAMPLED)
        return types.CreateMessageResult(role="assistant", content=content, model=driver.MODEL, stopReason="endTurn")

    async def list_roots(context: Any) -> types.ListRootsResult:
        asked["roots"].append(plan.root)
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(plan.root), name="own root")])

    async with streams(plan) as (incoming, outgoing):
        session = ClientSession(
            incoming,
            outgoing,
            read_timeout_seconds=timedelta(seconds=plan.deadline),
            elicitation_callback=elicit if "elicitation" in plan.capabilities else None,
            sampling_callback=sample if "sampling" in plan.capabilities else None,
            list_roots_callback=list_roots if "roots" in plan.capabilities else None,
            client_info=types.Implementation(name="interop-python1", version="1"),
        )
        async with session:
            opened = await session.initialize()
            report["client"] = f"python {version('mcp')}"
            report["protocol"] = opened.protocolVersion
            report["server"] = opened.serverInfo.name

            def at(cursor: str | None) -> types.PaginatedRequestParams | None:
                return types.PaginatedRequestParams(cursor=cursor) if cursor else None

            async def tools(cursor: str | None) -> tuple[list[str], str | None]:
                page = await session.list_tools(params=at(cursor))
                return [tool.name for tool in page.tools], page.nextCursor

            async def resources(cursor: str | None) -> tuple[list[str], str | None]:
                page = await session.list_resources(params=at(cursor))
                return [str(resource.uri) for resource in page.resources], page.nextCursor

            async def templates(cursor: str | None) -> tuple[list[str], str | None]:
                page = await session.list_resource_templates(params=at(cursor))
                return [template.uriTemplate for template in page.resourceTemplates], page.nextCursor

            async def prompts(cursor: str | None) -> tuple[list[str], str | None]:
                page = await session.list_prompts(params=at(cursor))
                return [prompt.name for prompt in page.prompts], page.nextCursor

            async def lists() -> dict[str, Any]:
                pages = {"tools": tools, "resources": resources, "templates": templates, "prompts": prompts}
                return {kind: await driver.follow(pages[kind]) for kind in plan.lists}

            async def call(name: str, arguments: dict[str, Any], **options: Any) -> dict[str, Any]:
                return as_data(await session.call_tool(name, arguments, **options))

            async def read() -> dict[str, Any]:
                found: dict[str, Any] = {}
                if plan.read:
                    contents = (await session.read_resource(AnyUrl(plan.read))).contents
                    found["resource"] = [[str(c.uri), getattr(c, "text", None)] for c in contents]
                if plan.prompt:
                    messages = (await session.get_prompt(plan.prompt)).messages
                    found["prompt"] = [getattr(m.content, "text", None) for m in messages]
                return found

            async def calls() -> dict[str, Any]:
                return {name: await call(name, arguments) for name, arguments in plan.calls}

            async def elicitation() -> dict[str, Any]:
                result = await call(plan.prefix + "trigger-elicitation-request", {})
                return {"asked": asked["elicitation"], **result}

            async def sampling() -> dict[str, Any]:
                arguments = {"prompt": "say something", "maxTokens": 20}
                result = await call(plan.prefix + "trigger-sampling-request", arguments)
                return {"asked": asked["sampling"], **result}

            async def roots() -> dict[str, Any]:
                result = await call(plan.prefix + "get-roots-list", {})
                return {"asked": asked["roots"], **result}

            async def progress() -> dict[str, Any]:
                seen: list[list[float | None]] = []

                async def note(value: float, total: float | None, message: str | None) -> None:
                    seen.append([value, total])

                arguments = {"duration": 0.5, "steps": 5}
                result = await call(plan.prefix + "trigger-long-running-operation", arguments, progress_callback=note)
                return {"seen": seen, **result}

            parts = {
                "list": lists,
                "read": read,
                "calls": calls,
                "elicitation": elicitation,
                "sampling": sampling,
                "roots": roots,
                "progress": progress,
            }
            await driver.run_parts(plan, report, parts)


if __name__ == "__main__":
    driver.drive(connect_and_run)
