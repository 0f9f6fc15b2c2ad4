"""What the fixture server offers: the tools, prompts and resources that the conformance suite calls by name.

Names, texts and schemas are what the suite's scenarios ask for. A tool is a function of a `Call`; its docstring is the
description that clients are shown; `task` says what the tasks extension may do with it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import mcp.types as types
from fixture_call import Call, Object, Work, lacks
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ResourceUpdated, ToolsListChanged

RED_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="
MOMENT = 0.05


def text(words: str) -> Object:
    return {"type": "text", "text": words}


def image() -> Object:
    return {"type": "image", "data": RED_PIXEL, "mimeType": "image/png"}


def embedded(uri: str, words: str, mime: str = "text/plain") -> Object:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": words}}


def properties(required: bool = True, **each: Object) -> Object:
    return {"type": "object", "properties": each, **({"required": list(each)} if required and each else {})}


STRING, BOOLEAN = {"type": "string"}, {"type": "boolean"}


def form(message: str, schema: Object) -> Object:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sample(prompt: str, tokens: int = 100) -> Object:
    messages = [{"role": "user", "content": text(prompt)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": tokens}}


ROOTS: Object = {"method": "roots/list", "params": {}}
WHO = form("What is your name?", properties(name=STRING))
CONFIRM = form("Please confirm", properties(ok=BOOLEAN))


def said(answer: Object, name: str) -> Any:
    return (answer.get("content") or {}).get(name)


# -- tools ------------------------------------------------------------------------------------------------------------

Tasking = Literal["never", "may", "must", "after asking"]


@dataclass(frozen=True)
class Tool:
    name: str
    description: str
    schema: Object
    work: Callable[[Call], Awaitable[Any]]
    task: Tasking

    def listed(self) -> Object:
        return {"name": self.name, "description": self.description, "inputSchema": self.schema}

    async def result(self, call: Call) -> Object:
        """The call's result: a text or blocks are put into one."""
        outcome = await self.work(call)
        if isinstance(outcome, Later):
            return call.ctx.lifespan_context.tasks.start(call, outcome.work)
        blocks = [text(outcome)] if isinstance(outcome, str) else outcome
        return blocks if isinstance(blocks, dict) else {"content": blocks}


@dataclass(frozen=True)
class Later:
    """Said by a tool that has asked what it needed, and does the rest as a task."""

    work: Work


TOOLS: dict[str, Tool] = {}
NO_ARGUMENTS: Object = {"type": "object", "properties": {}}


def tool(schema: Object = NO_ARGUMENTS, task: Tasking = "never") -> Callable[[Any], Any]:
    def offer(work: Callable[[Call], Awaitable[Any]]) -> Callable[[Call], Awaitable[Any]]:
        name = work.__name__
        TOOLS[name] = Tool(name, work.__doc__ or name, schema, work, task)
        return work

    return offer


@tool()
async def test_simple_text(call: Call) -> str:
    """Answers with one text."""
    return "This is a simple text response for testing."


@tool()
async def test_image_content(call: Call) -> list[Object]:
    """Answers with one image."""
    return [image()]


@tool()
async def test_audio_content(call: Call) -> list[Object]:
    """Answers with one sound."""
    return [{"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}]


@tool()
async def test_embedded_resource(call: Call) -> list[Object]:
    """Answers with one embedded resource."""
    return [embedded("test://embedded-resource", "This is an embedded resource content.")]


@tool()
async def test_multiple_content_types(call: Call) -> list[Object]:
    """Answers with a text, an image and a resource."""
    data = embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
    return [text("Multiple content types test:"), image(), data]


@tool()
async def test_tool_with_logging(call: Call) -> str:
    """Logs three times while it works."""
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await call.log(words)
        await asyncio.sleep(MOMENT)
    return "Logged three times."


@tool()
async def test_logging_tool(call: Call) -> str:
    """Logs once, if it may."""
    await call.log("A word from the tool")
    return "Logged once."


@tool()
async def test_tool_with_progress(call: Call) -> str:
    """Reports its progress at 0, 50 and 100."""
    for done in (0, 50, 100):
        await call.progress(done, 100)
        await asyncio.sleep(MOMENT)
    return "Reported three times."


@tool()
async def test_error_handling(call: Call) -> Object:
    """Always fails."""
    return {"content": [text("This tool intentionally returns an error for testing")], "isError": True}


@tool(properties(prompt=STRING))
async def test_sampling(call: Call) -> str:
    """Asks the client's model."""
    answers = await call.ask(sample=sample(call.arguments["prompt"]))
    return f"LLM response: {said(answers['sample'], 'text')}"


@tool(properties(message=STRING))
async def test_elicitation(call: Call) -> str:
    """Asks the user."""
    shape = properties(username=STRING, email={"type": "string", "format": "email"})
    return told(await call.ask(user=form(call.arguments["message"], shape)))


DEFAULTS = properties(
    required=False,
    name={"type": "string", "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    verified={"type": "boolean", "default": True},
)


@tool()
async def test_elicitation_sep1034_defaults(call: Call) -> str:
    """Asks the user with a default for every kind of field."""
    return told(await call.ask(user=form("Please provide user information", DEFAULTS)))


OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)]
ENUMS = properties(
    required=False,
    untitledSingle={"type": "string", "enum": OPTIONS},
    titledSingle={"type": "string", "oneOf": TITLED},
    legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    untitledMulti={"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    titledMulti={"type": "array", "items": {"anyOf": TITLED}},
)


@tool()
async def test_elicitation_sep1330_enums(call: Call) -> str:
    """Asks the user with every shape of enumeration."""
    return told(await call.ask(user=form("Please choose", ENUMS)))


def told(answers: Object) -> str:
    answer = answers["user"]
    content = json.dumps(answer.get("content") or {})
    return f"Elicitation completed: action={answer['action']}, content={content}"


@tool()
async def test_streaming_elicitation(call: Call) -> str:
    """Says on its stream that it works, then asks the user."""
    await call.progress(0, 1)
    return told(await call.ask(user=WHO))


@tool()
async def test_missing_capability(call: Call) -> str:
    """Needs a client that samples."""
    if "sampling" not in call.capabilities:
        raise lacks({"sampling": {}})
    return "The client samples."


@tool()
async def test_reconnection(call: Call) -> str:
    """Closes its stream in the middle of the call; the answer waits for the client to come back."""
    await call.log("Before the stream is closed")
    if call.ctx.close_sse_stream is not None:
        await call.ctx.close_sse_stream()
        await asyncio.sleep(4 * MOMENT)
    await call.log("After the stream was closed")
    return "Reconnection test completed successfully"


MIRRORED: Object = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "priority": {"type": "integer", "x-mcp-header": "Priority"},
        "query": STRING,
    },
}


@tool(MIRRORED)
async def test_x_mcp_header(call: Call) -> str:
    """Has arguments that are mirrored in headers."""
    return f"region={call.arguments.get('region')}"


JSON_SCHEMA: Object = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": STRING, "city": STRING},
        }
    },
    "properties": {
        "name": STRING,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": STRING,
        "email": STRING,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@tool(JSON_SCHEMA)
async def json_schema_2020_12_tool(call: Call) -> str:
    """Has a schema with the keywords of JSON Schema 2020-12."""
    return json.dumps(call.arguments)


# -- changes: each trigger adds what the one before took away ---------------------------------------------------------


@tool()
async def test_trigger_tool_change(call: Call) -> str:
    """Adds a tool, or takes it away, and tells whoever listens."""
    if TOOLS.pop("test_dynamic_tool", None) is None:
        tool()(test_dynamic_tool)
    await call.ctx.lifespan_context.announce(call.ctx, ToolsListChanged(), types.ToolListChangedNotification())
    return "The tools have changed."


async def test_dynamic_tool(call: Call) -> str:
    """Comes and goes."""
    return "Here for now."


@tool()
async def test_trigger_prompt_change(call: Call) -> str:
    """Adds a prompt, or takes it away, and tells whoever listens."""
    if PROMPTS.pop("test_dynamic_prompt", None) is None:
        prompt()(test_dynamic_prompt)
    await call.ctx.lifespan_context.announce(call.ctx, PromptsListChanged(), types.PromptListChangedNotification())
    return "The prompts have changed."


async def test_dynamic_prompt(call: Call) -> list[Object]:
    """Comes and goes."""
    return [text("Here for now.")]


@tool()
async def test_trigger_resource_update(call: Call) -> str:
    """Changes the watched resource, and tells whoever has subscribed to it."""
    await call.ctx.lifespan_context.updated(ResourceUpdated(uri=WATCHED))
    return "The watched resource has changed."


# -- input required, in rounds ----------------------------------------------------------------------------------------


@tool()
async def test_input_required_result_elicitation(call: Call) -> str:
    """Greets the user by name."""
    answers = await call.ask(user_name=WHO)
    return f"Hello, {said(answers['user_name'], 'name')}!"


@tool()
async def test_input_required_result_sampling(call: Call) -> str:
    """Asks the client's model for a capital."""
    answers = await call.ask(capital_question=sample("What is the capital of France?"))
    return f"The model says: {said(answers['capital_question'], 'text')}"


@tool()
async def test_input_required_result_list_roots(call: Call) -> str:
    """Tells the client's roots."""
    answers = await call.ask(client_roots=ROOTS)
    return f"Roots: {', '.join(root['uri'] for root in answers['client_roots']['roots'])}"


@tool()
async def test_input_required_result_request_state(call: Call) -> str:
    """Wants its state back."""
    await call.ask(confirm=CONFIRM)
    return "state-ok" if call.params.get("requestState") else "The state is missing."


@tool()
async def test_input_required_result_multiple_inputs(call: Call) -> str:
    """Asks the user, the model and for roots at once."""
    await call.ask(user_name=WHO, greeting=sample("Generate a greeting", 50), client_roots=ROOTS)
    return "All inputs were received."


@tool()
async def test_input_required_result_multi_round(call: Call) -> str:
    """Asks twice, the second time knowing the first answer."""
    name = said((await call.ask(step1=form("Step 1: What is your name?", properties(name=STRING))))["step1"], "name")
    second = form(f"Step 2: {name}, what is your favourite colour?", properties(color=STRING))
    return f"{name} likes {said((await call.ask(step2=second))['step2'], 'color')}."


@tool()
async def test_input_required_result_tampered_state(call: Call) -> str:
    """Has a state that must not be changed."""
    await call.ask(confirm=CONFIRM)
    return "The state was not changed."


@tool()
async def test_input_required_result_capabilities(call: Call) -> str:
    """Asks only what the client can answer."""
    asks = {"elicitation": WHO, "sampling": sample("Say hello", 50), "roots": ROOTS}
    able = {name: ask for name, ask in asks.items() if name in call.capabilities}
    return f"Answered: {', '.join(await call.ask(**able))}"


# -- tasks ------------------------------------------------------------------------------------------------------------


@tool(properties(name=STRING))
async def greet(call: Call) -> str:
    """Greets, at once."""
    return f"Hello, {call.arguments['name']}!"


@tool(properties(required=False, seconds={"type": "number"}, label=STRING), task="may")
async def slow_compute(call: Call) -> str:
    """Takes its time."""
    await asyncio.sleep(call.arguments.get("seconds", 0))
    return f"Computed {call.arguments.get('label', 'something')}."


@tool(task="must")
async def failing_job(call: Call) -> Object:
    """Fails after a while, as a tool does."""
    await asyncio.sleep(MOMENT)
    return {"content": [text("The job has failed.")], "isError": True}


@tool(task="may")
async def protocol_error_job(call: Call) -> str:
    """Fails after a while, as a server does."""
    await asyncio.sleep(MOMENT)
    raise MCPError(types.INTERNAL_ERROR, "The job broke down.")


@tool(properties(filename=STRING), task="may")
async def confirm_delete(call: Call) -> str:
    """Asks before it deletes."""
    answers = await call.ask(confirm=form(f"Delete {call.arguments['filename']}?", properties(confirm=BOOLEAN)))
    return "Deleted." if said(answers["confirm"], "confirm") else "Kept."


@tool(task="may")
async def multi_input(call: Call) -> str:
    """Asks two things at once."""
    await call.ask(first=WHO, second=form("Are you sure?", properties(confirm=BOOLEAN)))
    return "Both were answered."


@tool(task="after asking")
async def test_tool_with_task(call: Call) -> Later:
    """Asks first, and does the rest as a task."""
    name = said((await call.ask(user_name=WHO))["user_name"], "name")

    async def rest(_: Call) -> Object:
        return {"content": [text(f"Done for {name}.")]}

    return Later(rest)


# -- prompts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prompt:
    name: str
    description: str
    arguments: tuple[str, ...]
    work: Callable[[Call], Awaitable[list[Object]]]

    def listed(self) -> Object:
        arguments = [{"name": name, "description": f"The {name}", "required": True} for name in self.arguments]
        return {"name": self.name, "description": self.description, "arguments": arguments}

    async def result(self, call: Call) -> Object:
        return {"messages": [{"role": "user", "content": block} for block in await self.work(call)]}


PROMPTS: dict[str, Prompt] = {}


def prompt(*arguments: str) -> Callable[[Any], Any]:
    def offer(work: Callable[[Call], Awaitable[list[Object]]]) -> Callable[[Call], Awaitable[list[Object]]]:
        PROMPTS[work.__name__] = Prompt(work.__name__, work.__doc__ or "", arguments, work)
        return work

    return offer


@prompt()
async def test_simple_prompt(call: Call) -> list[Object]:
    """One text."""
    return [text("This is a simple prompt for testing.")]


@prompt("arg1", "arg2")
async def test_prompt_with_arguments(call: Call) -> list[Object]:
    """One text with two arguments in it."""
    return [text(f"Prompt with arguments: arg1='{call.arguments['arg1']}', arg2='{call.arguments['arg2']}'")]


@prompt("resourceUri")
async def test_prompt_with_embedded_resource(call: Call) -> list[Object]:
    """A resource and a text."""
    resource = embedded(call.arguments["resourceUri"], "Embedded resource content for testing.")
    return [resource, text("Please process the embedded resource above.")]


@prompt()
async def test_prompt_with_image(call: Call) -> list[Object]:
    """An image and a text."""
    return [image(), text("Please analyze the image above.")]


@prompt()
async def test_input_required_result_prompt(call: Call) -> list[Object]:
    """A text that the user completes."""
    asked = form("What context should the prompt use?", properties(context=STRING))
    answers = await call.ask(user_context=asked)
    return [text(f"Use the following context: {said(answers['user_context'], 'context')}")]


SUGGESTIONS = ("paris", "park", "party", "test-one", "test-two")


# -- resources --------------------------------------------------------------------------------------------------------

WATCHED = "test://watched-resource"
TEMPLATE = "test://template/{id}/data"
IN_TEMPLATE = re.compile(r"test://template/([^/]+)/data")

RESOURCES: dict[str, tuple[str, Object]] = {
    "test://static-text": ("text/plain", {"text": "This is the content of the static text resource."}),
    "test://static-binary": ("image/png", {"blob": RED_PIXEL}),
    WATCHED: ("text/plain", {"text": "Watched resource content."}),
}


def resources() -> list[Object]:
    return [
        {"uri": uri, "name": uri.removeprefix("test://"), "description": f"For tests: {uri}", "mimeType": mime}
        for uri, (mime, _) in RESOURCES.items()
    ]


def templates() -> list[Object]:
    described = {"name": "template", "description": "Data by its id", "mimeType": "application/json"}
    return [{"uriTemplate": TEMPLATE, **described}]


def contents(uri: str) -> Object | None:
    if uri in RESOURCES:
        mime, content = RESOURCES[uri]
        return {"uri": uri, "mimeType": mime, **content}
    if found := IN_TEMPLATE.fullmatch(uri):
        data = {"id": found[1], "templateTest": True, "data": f"Data for ID: {found[1]}"}
        return {"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}
    return None
