"""The official Python SDK 2.x as a client: `--mode legacy`, `auto`, or a modern revision to insist on."""

from __future__ import annotations

import argparse
import os
from importlib.metadata import version
from typing import Any

import mcp_types as types
import plan as driver
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.types import CallToolResult


def as_data(result: CallToolResult) -> dict[str, Any]:
    wire = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {
        "isError": wire.get("isError", False),
        "text": [block["text"] for block in wire["content"] if block["type"] == "text"],
        "structured": wire.get("structuredContent"),
    }


async def connect_and_run(plan: argparse.Namespace, report: dict[str, Any]) -> None:
    asked: dict[str, list[Any]] = {"elicitation": [], "sampling": [], "roots": []}

    async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked["elicitation"].append(params.message)
        return types.ElicitResult(action="accept", content=dict(driver.ANSWER))

    async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        asked["sampling"].append(params.messages[-1].model_dump(by_alias=True, mode="json")["content"]["text"])
        content = types.TextContent(type="text", text=driver.SAMPLED)
        return types.CreateMessageResult(role="assistant", content=content, model=driver.MODEL, stop_reason="endTurn")

    async def list_roots(context: Any) -> types.ListRootsResult:
        asked["roots"].append(plan.root)
        return types.ListRootsResult(roots=[types.Root(uri=plan.root, name="own root")])

    server: str | StdioServerParameters = plan.url or StdioServerParameters(
        command=plan.stdio[0], args=plan.stdio[1:], env=dict(os.environ)
    )
    client = Client(
        server,
        mode=plan.mode,
        read_timeout_seconds=plan.deadline,
        elicitation_callback=elicit if "elicitation" in plan.capabilities else None,
        sampling_callback=sample if "sampling" in plan.capabilities else None,
        list_roots_callback=list_roots if "roots" in plan.capabilities else None,
        client_info=types.Implementation(name="interop-python2", version="1"),
    )
    async with client:
        report["client"] = f"python {version('mcp')} {plan.mode}"
        report["protocol"] = client.protocol_version
        report["server"] = client.server_info.name if client.server_info else None

        async def tools(cursor: str | None) -> tuple[list[str], str | None]:
            page = await client.list_tools(cursor=cursor)
            return [tool.name for tool in page.tools], page.next_cursor

        async def resources(cursor: str | None) -> tuple[list[str], str | None]:
            page = await client.list_resources(cursor=cursor)
            return [str(resource.uri) for resource in page.resources], page.next_cursor

        async def templates(cursor: str | None) -> tuple[list[str], str | None]:
            page = await client.list_resource_templates(cursor=cursor)
            return [template.uri_template for template in page.resource_templates], page.next_cursor

        async def prompts(cursor: str | None) -> tuple[list[str], str | None]:
            page = await client.list_prompts(cursor=cursor)
            return [prompt.name for prompt in page.prompts], page.next_cursor

        async def lists() -> dict[str, Any]:
            pages = {"tools": tools, "resources": resources, "templates": templates, "prompts": prompts}
            return {kind: await driver.follow(pages[kind]) for kind in plan.lists}

        async def call(name: str, arguments: dict[str, Any], **options: Any) -> dict[str, Any]:
            return as_data(await client.call_tool(name, arguments, **options))

        async def read() -> dict[str, Any]:
            found: dict[str, Any] = {}
            if plan.read:
                contents = (await client.read_resource(plan.read)).contents
                found["resource"] = [[str(c.uri), getattr(c, "text", None)] for c in contents]
            if plan.prompt:
                messages = (await client.get_prompt(plan.prompt)).messages
                found["prompt"] = [getattr(m.content, "text", None) for m in messages]
            return found

        async def calls() -> dict[str, Any]:
            return {name: await call(name, arguments) for name, arguments in plan.calls}

        async def elicitation() -> dict[str, Any]:
            result = await call(plan.prefix + "trigger-elicitation-request", {})
            return {"asked": asked["elicitation"], **result}

        async def sampling() -> dict[str, Any]:
            result = await call(plan.prefix + "trigger-sampling-request", {"prompt": "say something", "maxTokens": 20})
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
