"""A notebook, as an MCP server of the new kind: no handshake, no session, and it never calls back.

It reads one JSON-RPC message per line from stdin and writes one per line to stdout, until stdin ends. Every request
says by itself which protocol it speaks and what its client can do. A tool that has a question returns it; the client
calls again, with the answer, and the tool starts over. So nothing waits here, and only the notes are remembered.
The protocol: modelcontextprotocol.io/specification/2026-07-28.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

REVISION = "2026-07-28"
VERSION, CAPABILITIES, SERVER, SUBSCRIPTION = (
    f"io.modelcontextprotocol/{name}"
    for name in ("protocolVersion", "clientCapabilities", "serverInfo", "subscriptionId")
)
METHOD_NOT_FOUND, INVALID_PARAMS, PARSE_ERROR = -32601, -32602, -32700
MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32021, -32022
PARAMS_FAILURES = (AttributeError, KeyError, TypeError, ValueError)  # by using what is not as the schema says
TOOL_FAILURES = (*PARAMS_FAILURES, LookupError)
KEY = os.urandom(32)
ANSWER_WITHIN = 600.0  # seconds

notes: dict[int, Json] = {
    1: {"title": "Groceries", "text": "Oats, lemons, coffee beans."},
    2: {"title": "Trip", "text": "Night train to Vienna on Friday. Pack the blue umbrella."},
    3: {"title": "Ideas", "text": "One door for every server. Ask before anything is deleted."},
}
listeners: set[str | int] = set()  # the ids of the requests that listen for changes of the list


class RpcError(Exception):
    """The request cannot be served."""

    def __init__(self, code: int, message: str, **data: Any) -> None:
        self.error = {"code": code, "message": message, **({"data": data} if data else {})}


class NeedInput(Exception):
    """The tool has a question: the result that asks it."""


# What the server can do. A tool fails by an exception of Python's own; the model reads its text, and may try again.


def add_note(call: Call, title: str, text: str) -> Json:
    key = max(notes, default=0) + 1
    notes[key] = {"title": str(title), "text": str(text)}
    list_changed()
    link = {"type": "resource_link", "uri": f"note://{key}", "name": notes[key]["title"], **MARKDOWN}
    return {"content": [*words(f'Added note {key}, "{title}".')["content"], link]}


def list_notes(call: Call) -> Json:
    return search_notes(call, "")


def search_notes(call: Call, query: str) -> Json:
    lines = {key: f"{note['title']}: {note['text']}" for key, note in notes.items()}
    found = [key for key, line in lines.items() if query.lower() in line.lower()]
    result = {"notes": [{"id": key, **notes[key]} for key in found]}
    return words("\n".join(f"{key}. {lines[key]}" for key in found) or "No notes.") | {"structuredContent": result}


def delete_note(call: Call, id: int) -> Json:
    title = find(id)["title"]
    fields = {"delete": {"type": "boolean", "title": "Delete it", "default": False}}
    form = {"type": "object", "properties": fields, "required": ["delete"]}
    answer = call.ask("elicitation/create", {"message": f'Delete note {id}, "{title}"?', "requestedSchema": form})
    if answer["action"] == "cancel":
        return words(f'Note {id}, "{title}", is kept: the question was dismissed.')
    if answer["action"] != "accept" or answer["content"]["delete"] is not True:
        return words(f'Note {id}, "{title}", is kept, as you wish.')
    del notes[id]
    list_changed()
    return words(f'Deleted note {id}, "{title}".')


def summarize(call: Call) -> Json:
    if "sampling" not in call.capabilities:
        return words(f"{len(notes)} notes: {', '.join(note['title'] for note in notes.values())}.")
    request = f"Summarize these notes in one sentence.\n\n{search_notes(call, '')['content'][0]['text']}"
    message = {"role": "user", "content": {"type": "text", "text": request}}
    answer = call.ask("sampling/createMessage", {"messages": [message], "maxTokens": 200})
    content: Json | list[Json] = answer["content"]
    blocks = content if isinstance(content, list) else [content]
    return words("".join(block.get("text", "") for block in blocks))


def review_notes(goal: str = "what is still open") -> Json:
    content = [{"type": "text", "text": f"Review my notes for {goal}."}]
    content += [{"type": "resource", "resource": as_resource(key)} for key in notes]
    return {"description": "Review the notes", "messages": [{"role": "user", "content": block} for block in content]}


def find(key: int) -> Json:
    if key not in notes:
        raise LookupError(f"there is no note {key}")
    return notes[key]


def as_resource(key: int) -> Json:
    return {"uri": f"note://{key}", "text": f"# {find(key)['title']}\n\n{find(key)['text']}", **MARKDOWN}


def words(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


# What it tells a client of that: titles for people, JSON Schemas and hints for programs.


def schema(*required: str, **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def tool(title: str, description: str, arguments: Json, **more: Json) -> Json:
    return {"title": title, "description": description, "inputSchema": arguments, **more}


MARKDOWN = {"mimeType": "text/markdown"}
STRING, NUMBER = {"type": "string"}, {"type": "integer"}
NOTE = schema("id", "title", "text", id=NUMBER, title=STRING, text=STRING)
FOUND = schema("notes", notes={"type": "array", "items": NOTE})
READS = {"readOnlyHint": True, "openWorldHint": False}
ADDS = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}
DELETES = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}

TOOLS: dict[str, tuple[Callable[..., Json], Json]] = {
    "add_note": (add_note, tool(
        "Add a note", "Add a note with a title and a text.",
        schema("title", "text", title=STRING, text=STRING), annotations=ADDS,
    )),
    "list_notes": (list_notes, tool(
        "List notes", "List all notes.", schema(), outputSchema=FOUND, annotations=READS,
    )),
    "search_notes": (search_notes, tool(
        "Search notes", "Find the notes whose title or text contains something.",
        schema("query", query=STRING), outputSchema=FOUND, annotations=READS,
    )),
    "delete_note": (delete_note, tool(
        "Delete a note", "Delete a note, once the user has confirmed it.", schema("id", id=NUMBER), annotations=DELETES,
    )),
    "summarize": (summarize, tool(
        "Summarize notes", "Summarize all notes with the client's model, or list their titles if it offers none.",
        schema(), annotations=READS,
    )),
}  # fmt: skip

LISTS: dict[str, Json] = {
    "tools/list": {"tools": [{"name": name, **shown} for name, (_, shown) in TOOLS.items()]},
    "resources/templates/list": {"resourceTemplates": [
        {"uriTemplate": "note://{id}", "name": "note", "title": "A note by its number", **MARKDOWN},
    ]},
    "prompts/list": {"prompts": [{
        "name": "review_notes", "title": "Review my notes", "description": "Look through all notes for something.",
        "arguments": [{"name": "goal", "description": "What to look for"}],
    }]},
}  # fmt: skip
DISCOVERED: Json = {
    "supportedVersions": [REVISION],
    "capabilities": {"tools": {}, "resources": {"listChanged": True}, "prompts": {}},
    "instructions": "Keeps notes until it ends. Deleting one asks the user first.",
}


# How it is served.


class Call:
    """A tools/call: what its client can do, and the answer that it may bring."""

    def __init__(self, params: Json) -> None:
        self.capabilities: Json = params["_meta"][CAPABILITIES]
        self._params = params

    def ask(self, method: str, question: Json) -> Json:
        """The client's answer. Without one the call ends here, and starts over when the client has it.

        The state that goes with the question lets nobody use an answer for another call: it is a seal over both.
        """
        capability, _, _ = method.partition("/")
        ways = self.capabilities.get(capability)
        if ways is None or (capability == "elicitation" and "url" in ways and "form" not in ways):
            message = f"This needs a client with the capability {capability}"
            raise RpcError(MISSING_CAPABILITY, message, requiredCapabilities={capability: {}})
        asked = [self._params["name"], self._params.get("arguments", {}), question]
        if (state := self._params.get("requestState")) is not None:
            until = state.partition(":")[0]
            if not hmac.compare_digest(seal(until, asked).encode(), state.encode()) or float(until) < time.time():
                raise RpcError(INVALID_PARAMS, "This requestState is too old, or belongs to another request")
            if answer := self._params.get("inputResponses", {}).get("answer"):
                return answer
        requests = {"answer": {"method": method, "params": question}}
        raise NeedInput({"inputRequests": requests, "requestState": seal(str(time.time() + ANSWER_WITHIN), asked)})


def seal(until: str, asked: list[Any]) -> str:
    sealed = json.dumps([until, *asked], sort_keys=True).encode()
    return f"{until}:{hashlib.blake2b(sealed, key=KEY, digest_size=16).hexdigest()}"


def call_tool(params: Json) -> Json:
    if params["name"] not in TOOLS:
        raise RpcError(INVALID_PARAMS, f"Unknown tool: {params['name']}")
    run, _ = TOOLS[params["name"]]
    try:
        return run(Call(params), **params.get("arguments", {}))
    except TOOL_FAILURES as error:
        return words(f"{params['name']} failed: {error}") | {"isError": True}


def lasting(result: Json, seconds: int) -> Json:
    """What may be cached: what never changes by anyone, the rest by nobody."""
    return result | {"ttlMs": seconds * 1000, "cacheScope": "public" if seconds else "private"}


def unsupported(version: Any) -> RpcError:
    message = f"This server speaks MCP {REVISION} only"
    return RpcError(UNSUPPORTED_VERSION, message, supported=[REVISION], requested=str(version))


def answer(key: str | int, method: str, params: Json) -> Json | None:
    if method == "initialize":  # an old client: which versions there are is all that it can be told
        raise unsupported(params.get("protocolVersion"))
    if missing := {VERSION, CAPABILITIES} - params.get("_meta", {}).keys():
        raise RpcError(INVALID_PARAMS, f"_meta lacks {', '.join(missing)}")
    if params["_meta"][VERSION] != REVISION:
        raise unsupported(params["_meta"][VERSION])
    match method:
        case "server/discover":
            return lasting(DISCOVERED, 3600)
        case "tools/call":
            return call_tool(params)
        case "resources/list":
            listed = [{"uri": f"note://{key}", "name": note["title"], **MARKDOWN} for key, note in notes.items()]
            return lasting({"resources": listed}, 0)
        case "resources/read":
            try:
                return lasting({"contents": [as_resource(int(params["uri"].removeprefix("note://")))]}, 0)
            except (ValueError, LookupError):
                raise RpcError(INVALID_PARAMS, "Resource not found", uri=params["uri"]) from None
        case "prompts/get":
            if params["name"] != "review_notes":
                raise RpcError(INVALID_PARAMS, f"Unknown prompt: {params['name']}")
            return review_notes(**params.get("arguments", {}))
        case "subscriptions/listen":
            return listen(key, params["notifications"])
        case _ if method in LISTS:
            return lasting(LISTS[method], 3600)
        case _:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")


def listen(key: str | int, wanted: Json) -> None:
    """The one request that stays open. It is told of changes until the client cancels it."""
    honoured = {"resourcesListChanged": True} if wanted.get("resourcesListChanged") else {}
    notify(key, "notifications/subscriptions/acknowledged", {"notifications": honoured})
    if honoured:
        listeners.add(key)


def list_changed() -> None:
    for key in listeners:
        notify(key, "notifications/resources/list_changed", {})


def notify(listener: str | int, method: str, params: Json) -> None:
    write({"method": method, "params": {"_meta": {SUBSCRIPTION: listener}, **params}})


def respond(key: str | int, method: str, params: Json) -> None:
    me = {SERVER: {"name": "notes", "title": "Notes", "version": "1.0.0"}}
    try:
        if (result := answer(key, method, params)) is not None:
            write({"id": key, "result": {"resultType": "complete", "_meta": me, **result}})
    except NeedInput as question:
        write({"id": key, "result": {"resultType": "input_required", "_meta": me, **question.args[0]}})
    except RpcError as error:
        write({"id": key, "error": error.error})
    except PARAMS_FAILURES as error:
        write({"id": key, "error": RpcError(INVALID_PARAMS, f"Invalid params: {error!r}").error})


def write(message: Json) -> None:
    with contextlib.suppress(BrokenPipeError):  # if the client has gone, stdin ends too
        os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def main() -> None:
    for line in sys.stdin.buffer:
        try:
            message = json.loads(line)
            params = message.get("params", {})
            if "id" in message:
                respond(message["id"], message["method"], params)
            elif message["method"] == "notifications/cancelled":
                listeners.discard(params["requestId"])
        except (*PARAMS_FAILURES, RecursionError) as error:
            write({"error": {"code": PARSE_ERROR, "message": f"Not a JSON-RPC message: {error!r}"}})


if __name__ == "__main__":
    main()
