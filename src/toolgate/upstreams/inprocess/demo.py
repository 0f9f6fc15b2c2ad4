"""The `greeter`: an in-process registry that shows all that one can do. `toolgate demo` uses it."""

from __future__ import annotations

import asyncio

from toolgate.core.asks import answer_value
from toolgate.upstreams.inprocess.tools import Arguments, InProcessItem, InProcessTools, Object, ToolContext, text

_NAME = {"type": "object", "properties": {"name": {"type": "string", "description": "The name of the person to greet"}}}


async def greet(arguments: Arguments, context: ToolContext) -> Object:
    """Greets; asks for the name where none is given."""
    name = arguments.get("name") or await _ask_name(context)
    return text(f"Hello, {name}!")


async def _ask_name(context: ToolContext) -> str:
    question = {
        "mode": "form",
        "message": "Who should I greet?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    }
    answer = answer_value(await context.ask("elicitation/create", question))
    return str(answer.get("content", {}).get("name", "stranger")) if answer.get("action") == "accept" else "stranger"


async def count(arguments: Arguments, context: ToolContext) -> Object:
    steps = max(1, min(int(arguments.get("to", 3)), 100))
    for step in range(1, steps + 1):
        context.progress(step, steps, f"{step} of {steps}")
        await asyncio.sleep(0)
    return text(f"Counted to {steps}.")


async def about(_arguments: Arguments, _context: ToolContext) -> Object:
    return {"contents": [{"uri": "greeter://about", "mimeType": "text/plain", "text": "Tools inside toolgate."}]}


async def letter(arguments: Arguments, _context: ToolContext) -> Object:
    request = f"Write a short letter that greets {arguments.get('name', 'a stranger')}."
    return {"messages": [{"role": "user", "content": {"type": "text", "text": request}}]}


def greeter() -> InProcessTools:
    tools = {
        "greet": InProcessItem(
            {
                "name": "greet",
                "description": "Greets someone; asks for the name if none is given.",
                "inputSchema": _NAME,
            },
            greet,
        ),
        "count": InProcessItem(
            {
                "name": "count",
                "description": "Counts, and reports its progress.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"to": {"type": "integer", "minimum": 1, "maximum": 100, "default": 3}},
                },
                "annotations": {"readOnlyHint": True},
            },
            count,
        ),
    }
    resources = {
        "greeter://about": InProcessItem(
            {
                "uri": "greeter://about",
                "name": "about",
                "mimeType": "text/plain",
                "description": "What this server is.",
            },
            about,
        )
    }
    prompts = {
        "letter": InProcessItem(
            {
                "name": "letter",
                "description": "A letter of greeting.",
                "arguments": [{"name": "name", "description": "The name of the person to greet", "required": False}],
            },
            letter,
        )
    }
    return InProcessTools({"tools": tools, "resources": resources, "prompts": prompts})
