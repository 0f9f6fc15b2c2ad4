"""A model endpoint that plays a script: coding agents take it for a model, and call the tools that we choose.

    python fake_model.py --calls '[["clock__now", {}]]' --record FILE
    python fake_model.py --goal '["clock__now", {}]' --query "what time is it" --record FILE

It serves on loopback, at a port that the system chooses, prints its URL, and goes on until it is terminated. It speaks
Anthropic's Messages, OpenAI's Responses and Chat Completions, and Gemini's generateContent, streamed or not.

The script: a request that offers the first call's tool is a model turn. As many results as it brings, so many calls
have been made: it is answered with the next call, or, after the last, with a text that repeats the results. A tool is
found by the end of its name, because each program puts something of its own before it. Every other request (a title, a
count of tokens, a list of models, telemetry) gets an answer that harms nobody. All are recorded, one JSON object a
line. Only the standard library is used, and nothing of toolgate.

With a goal it does as a model would that wants one thing: every request that offers any tool is a turn; it calls the
goal's tool where that is offered; else, where `mcp_discover` is, it asks that, and calls by `mcp_call` what the reply
names first, knowing no more than the reply says; where neither is offered, it says so and is done.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
MODEL = "scripted"
TOOL_SEARCH = "ToolSearch"
"""Claude Code's own tool that fetches deferred ones."""
FETCH = "fetch_"
"""What the keys of its calls begin with."""


def plain(name: str) -> str:
    """A tool's name as any program may write it: some APIs allow no other signs."""
    return re.sub(r"\W", "_", name)


@dataclass(frozen=True)
class Tool:
    """A tool as one request offers it."""

    name: str
    namespace: str | None = None
    """The group that it is in (only Codex groups them)."""
    is_deferred: bool = False
    """Only its name is shown; it is to be fetched before it is called (only Claude Code does that)."""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}__{self.name}" if self.namespace else self.name

    def is_meant_by(self, suffix: str) -> bool:
        """Its name ends so, whatever the program has put before it and for what signs."""
        return plain(self.full_name).endswith(plain(suffix))


@dataclass(frozen=True)
class Turn:
    """What the model says: a text, or the call of a tool."""

    text: str = ""
    tool: Tool | None = None
    arguments: Json | None = None
    number: int = 0

    @property
    def key(self) -> str:
        return f"{FETCH}{self.number}" if self.tool and self.tool.name == TOOL_SEARCH else f"call_{self.number}"


@dataclass(frozen=True)
class Dialect:
    """How one API says it."""

    path: str
    tools: Callable[[Json], Iterator[Tool]]
    results: Callable[[Json], Iterator[str]]
    stream: Callable[[Turn], str]
    whole: Callable[[Turn], Json]
    streams: Callable[[str, Json], bool] = lambda _path, body: bool(body.get("stream"))


def text_of(content: Any) -> str:
    """A tool's result as the model is shown it: every text in it, whatever it is wrapped in."""
    match content:
        case str():
            return content
        case list():
            return "\n".join(filter(None, map(text_of, content)))
        case {"text": str(text)}:
            return text
        case dict():
            return "\n".join(filter(None, map(text_of, content.values())))
        case _:
            return ""


def sse(*events: Json, named: bool = False) -> str:
    lines = [f"event: {event['type']}\n" if named else "" for event in events]
    return "".join(f"{line}data: {json.dumps(event)}\n\n" for line, event in zip(lines, events, strict=True))


# -- Anthropic: Messages -------------------------------------------------------------------------------------------


def messages_tools(body: Json) -> Iterator[Tool]:
    tools = body.get("tools", [])
    yield from (Tool(tool["name"]) for tool in tools)
    if any(tool["name"] == TOOL_SEARCH for tool in tools):
        told = "\n".join(text_of(message["content"]) for message in body["messages"])
        yield from (Tool(name, is_deferred=True) for name in dict.fromkeys(DEFERRED.findall(told)))


DEFERRED = re.compile(r"^mcp__\w+$", re.MULTILINE)
"""How the name of a deferred tool stands in what Claude Code tells its model."""


def messages_results(body: Json) -> Iterator[str]:
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        results = (block for block in blocks if block["type"] == "tool_result")
        yield from (text_of(block.get("content")) for block in results if FETCH not in block["tool_use_id"])


def messages_block(turn: Turn) -> Json:
    if turn.tool is None:
        return {"type": "text", "text": turn.text}
    return {"type": "tool_use", "id": f"toolu_{turn.key}", "name": turn.tool.name, "input": turn.arguments}


def messages_whole(turn: Turn) -> Json:
    return {
        "id": f"msg_{turn.number}", "type": "message", "role": "assistant", "model": MODEL,
        "content": [messages_block(turn)], "stop_reason": "tool_use" if turn.tool else "end_turn",
        "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 10},
    }  # fmt: skip


def messages_stream(turn: Turn) -> str:
    whole, block = messages_whole(turn), messages_block(turn)
    if turn.tool:
        delta = {"type": "input_json_delta", "partial_json": json.dumps(turn.arguments)}
        block["input"] = {}
    else:
        delta = {"type": "text_delta", "text": turn.text}
        block["text"] = ""
    return sse(
        {"type": "message_start", "message": whole | {"content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None},
            "usage": {"output_tokens": 10},
        },
        {"type": "message_stop"},
        named=True,
    )


# -- OpenAI: Responses ---------------------------------------------------------------------------------------------


def responses_tools(body: Json) -> Iterator[Tool]:
    for tool in body.get("tools", []):
        if tool["type"] == "namespace":
            yield from (Tool(inner["name"], tool["name"]) for inner in tool["tools"])
        elif "name" in tool:
            yield Tool(tool["name"])


def responses_results(body: Json) -> Iterator[str]:
    items = body["input"] if isinstance(body["input"], list) else []
    yield from (text_of(item["output"]) for item in items if item.get("type") == "function_call_output")


def responses_item(turn: Turn) -> Json:
    if turn.tool is None:
        content = [{"type": "output_text", "text": turn.text, "annotations": []}]
        return {"type": "message", "id": f"msg_{turn.number}", "role": "assistant", "content": content}
    item = {"type": "function_call", "id": f"fc_{turn.number}", "call_id": turn.key, "name": turn.tool.name}
    space = {"namespace": turn.tool.namespace} if turn.tool.namespace else {}
    return item | {"arguments": json.dumps(turn.arguments), "status": "completed"} | space


def responses_whole(turn: Turn) -> Json:
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": f"resp_{turn.number}", "object": "response", "status": "completed", "model": MODEL,
        "output": [responses_item(turn)],
        "usage": {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20, **details},
    }  # fmt: skip


def responses_stream(turn: Turn) -> str:
    whole, item = responses_whole(turn), responses_item(turn)
    return sse(
        {"type": "response.created", "response": whole | {"status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
        named=True,
    )


# -- OpenAI: Chat Completions --------------------------------------------------------------------------------------


def chat_tools(body: Json) -> Iterator[Tool]:
    yield from (Tool(tool["function"]["name"]) for tool in body.get("tools", []))


def chat_results(body: Json) -> Iterator[str]:
    yield from (text_of(message["content"]) for message in body["messages"] if message["role"] == "tool")


def chat_message(turn: Turn) -> Json:
    if turn.tool is None:
        return {"role": "assistant", "content": turn.text}
    function = {"name": turn.tool.name, "arguments": json.dumps(turn.arguments)}
    call = {"index": 0, "id": turn.key, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def chat_answer(turn: Turn, kind: str, choice: Json) -> Json:
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    shape = {"id": f"chat_{turn.number}", "object": kind, "created": 0, "model": MODEL}
    return shape | {"choices": [{"index": 0, **choice}], "usage": usage}


def chat_whole(turn: Turn) -> Json:
    reason = "tool_calls" if turn.tool else "stop"
    return chat_answer(turn, "chat.completion", {"message": chat_message(turn), "finish_reason": reason})


def chat_stream(turn: Turn) -> str:
    reason = "tool_calls" if turn.tool else "stop"
    first = {"delta": chat_message(turn), "finish_reason": None}
    last = {"delta": {}, "finish_reason": reason}
    chunks = [chat_answer(turn, "chat.completion.chunk", choice) for choice in (first, last)]
    return sse(*chunks) + "data: [DONE]\n\n"


# -- Google: generateContent ---------------------------------------------------------------------------------------


def gemini_tools(body: Json) -> Iterator[Tool]:
    for group in body.get("tools", []):
        yield from (Tool(tool["name"]) for tool in group.get("functionDeclarations", []))


def gemini_results(body: Json) -> Iterator[str]:
    parts = (part for content in body["contents"] for part in content.get("parts", []))
    yield from (text_of(part["functionResponse"]["response"]) for part in parts if "functionResponse" in part)


def gemini_whole(turn: Turn) -> Json:
    part: Json = {"text": turn.text}
    if turn.tool:
        part = {"functionCall": {"id": turn.key, "name": turn.tool.name, "args": turn.arguments}}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": MODEL}


def gemini_streams(path: str, _body: Json) -> bool:
    return ":streamGenerateContent" in path


# -- the endpoint --------------------------------------------------------------------------------------------------

DIALECTS = (
    Dialect(r"/v1/messages$", messages_tools, messages_results, messages_stream, messages_whole),
    Dialect(r"/responses$", responses_tools, responses_results, responses_stream, responses_whole),
    Dialect(r"/chat/completions$", chat_tools, chat_results, chat_stream, chat_whole),
    Dialect(
        r":(streamG|g)enerateContent$", gemini_tools, gemini_results,
        lambda turn: sse(gemini_whole(turn)), gemini_whole, gemini_streams,
    ),
)  # fmt: skip

HARMLESS: tuple[tuple[str, Json], ...] = (
    (r"/v1/messages/count_tokens$", {"input_tokens": 10}),
    (r":countTokens$", {"totalTokens": 10}),
    (r"/models$", {"object": "list", "data": [{"id": MODEL, "object": "model"}], "models": []}),
)


class Script:
    """The calls to make, and what was asked and answered."""

    def __init__(self, calls: list[tuple[str, Json]], record: str) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        self._record = open(record, "a", encoding="utf-8")  # noqa: SIM115  (as long as the process)

    def turn(self, dialect: Dialect, body: Json) -> tuple[Turn, Json]:
        """The answer to one request, and what to record of the request."""
        tools = list(dialect.tools(body))
        seen = {"tools": [tool.full_name for tool in tools], "results": list(dialect.results(body))}
        return self._next(tools, seen)

    def _next(self, tools: list[Tool], seen: Json) -> tuple[Turn, Json]:
        if find(tools, self._calls[0][0]) is None:
            return Turn("Nothing to do."), seen
        done = len(seen["results"])
        if done >= len(self._calls):
            return Turn("The tools said:\n" + "\n".join(seen["results"]), number=done), seen | {"turn": done}
        name, arguments = self._calls[done]
        tool = find(tools, name)
        if tool is None:
            return Turn(f"No tool ends with {name}.", number=done), seen | {"turn": done}
        return Turn(tool=tool, arguments=arguments, number=done), seen | {"turn": done}

    def write(self, entry: Json) -> None:
        with self._lock:
            self._record.write(json.dumps(entry) + "\n")
            self._record.flush()


class Goal(Script):
    """One thing to do, with the tools that are there."""

    def __init__(self, goal: tuple[str, Json], query: str, record: str) -> None:
        super().__init__([goal], record)
        (self._wanted, self._arguments), self._query = goal, query
        self._fetched: set[str] = set()

    def _next(self, tools: list[Tool], seen: Json) -> tuple[Turn, Json]:
        if not tools:
            return Turn("Nothing to do."), seen
        results: list[str] = seen["results"]
        done = len(results)
        tool, arguments = self._wish(tools, results)
        if tool is None:
            words = "The tools said:\n" + "\n".join(results) if done else "There is no tool for that."
            return Turn(words, number=done), seen | {"turn": done}
        if tool.is_deferred and tool.name not in self._fetched:
            self._fetched.add(tool.name)
            arguments = {"query": f"select:{tool.name}", "max_results": 1}
            return Turn(tool=Tool(TOOL_SEARCH), arguments=arguments, number=len(self._fetched)), seen | {"turn": done}
        return Turn(tool=tool, arguments=arguments, number=done), seen | {"turn": done}

    def _wish(self, tools: list[Tool], results: list[str]) -> tuple[Tool | None, Json]:
        """What to call next, if anything, and with which arguments."""
        if (tool := find(tools, self._wanted)) and not results:
            return tool, self._arguments
        if tool := find(tools, "mcp_discover"):
            if not results or (STILL_STARTING in results[-1] and len(results) <= PATIENCE):
                return tool, {"query": self._query}
            if hit := found_first(results[-1]):
                return find(tools, "mcp_call"), {
                    "server": hit["server"],
                    "tool": hit["tool"],
                    "args": self._arguments,
                }
        return None, {}


STILL_STARTING = "Still starting"
PATIENCE = 3
"""How often a search is made again whose reply says that servers are still starting."""


def find(tools: list[Tool], suffix: str) -> Tool | None:
    return next((tool for tool in tools if tool.is_meant_by(suffix)), None)


def found_first(reply: str) -> Json | None:
    """The first hit of what `mcp_discover` has said, whatever the program has put around it."""
    start = re.search(r"\[\s*\{", reply)
    try:
        hits = json.JSONDecoder().raw_decode(reply, start.start())[0] if start else []
    except ValueError:
        return None
    return next((hit for hit in hits if "server" in hit and "tool" in hit), None)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Script

    def do_POST(self) -> None:
        received = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(received)
        except ValueError:
            body = {}
        path = self.path.partition("?")[0]
        for dialect in DIALECTS:
            if re.search(dialect.path, path):
                turn, seen = self.script.turn(dialect, body)
                self.script.write({"path": self.path, **seen, "body": body})
                if dialect.streams(path, body):
                    return self.answer(dialect.stream(turn).encode(), "text/event-stream")
                return self.answer(json.dumps(dialect.whole(turn)).encode())
        self.script.write({"path": self.path, "body": body})
        self.harmless(path)

    def do_GET(self) -> None:
        self.script.write({"path": self.path})
        self.harmless(self.path.partition("?")[0])

    def do_HEAD(self) -> None:
        self.answer(b"")

    def harmless(self, path: str) -> None:
        known = (answer for pattern, answer in HARMLESS if re.search(pattern, path))
        self.answer(json.dumps(next(known, {})).encode())

    def answer(self, body: bytes, media_type: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Nothing on stderr: all is in the record."""


class Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a program that has gone is no news
            super().handle_error(request, client_address)


def main() -> None:
    parser = argparse.ArgumentParser()
    play = parser.add_mutually_exclusive_group(required=True)
    play.add_argument("--calls", type=json.loads, help="JSON: a list of [end of a tool's name, arguments]")
    play.add_argument("--goal", type=json.loads, help="JSON: [end of a tool's name, arguments]")
    parser.add_argument("--query", default="", help="what the goal's tool is searched by")
    parser.add_argument("--record", required=True)
    options = parser.parse_args()
    script = (
        Script(options.calls, options.record) if options.calls else Goal(options.goal, options.query, options.record)
    )
    handler = type("Scripted", (Handler,), {"script": script})
    server = Server(("127.0.0.1", 0), handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
