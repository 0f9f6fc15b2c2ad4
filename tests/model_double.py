"""The APIs of models, on loopback: Chat Completions and Messages, as strict about what they are asked as the real ones.

A test says what is answered, in order: a text, a `Turn`, an `Answer` with any status and body, or what a broken server
does (`BREAK`, `SILENCE`, `HUGE`). Each request is checked first: its path, its headers, each member of its body. What
is wrong with one is answered as the API does, and is a problem of the test (`problems`) unless it says otherwise.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

KEY = "sk-test-Zb7Qd0Lx9Wc4Rk2Tz8Vn1Mh6J"
MODEL = "scripted-1"
ANSWERED = "scripted-1-2026"  # what both call it in their answers
CONTAINER = "container_011CPR5CNjB747bTd36fQLFk"
BREAK, SILENCE, HUGE, STREAM = "break", "silence", "huge", "stream"
MOST_OF_A_TEST = 5 * 1024 * 1024


@dataclass
class Broken:
    """What a server does that answers nothing of use."""

    how: str


@dataclass
class Answer:
    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Turn:
    """An answer of Messages: its blocks, and why it ends."""

    blocks: list[Json]
    stop_reason: str = "end_turn"


def ran(command: str, stdout: str = "", stderr: str = "", return_code: int = 0) -> list[Json]:
    """The blocks of a command that ran in a container."""
    result = {"type": "bash_code_execution_result", "stdout": stdout, "stderr": stderr, "return_code": return_code}
    return [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution", "input": {"command": command}},
        {
            "type": "bash_code_execution_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {**result, "content": []},
        },
    ]


def failed(error_code: str) -> list[Json]:
    content = {"type": "bash_code_execution_tool_result_error", "error_code": error_code}
    return [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution", "input": {"command": "x"}},
        {"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": content},
    ]


class Refusal(Exception):
    def __init__(self, status: int, type: str, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.type, self.code = status, type, code


@dataclass
class Heard:
    path: str
    headers: dict[str, str]
    body: Json

    @property
    def text(self) -> str:
        return self.body["messages"][-1]["content"]


class Double:
    """`url` is the base URL of Chat Completions, `root` that of Messages."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.heard: list[Heard] = []
        self.problems: list[str] = []
        self.gone = 0  # requests whose client went away before their answer
        self.connections = self.most_connections = 0
        self.arrived = asyncio.Event()
        self.root = ""
        self.key = KEY

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.most_connections = max(self.most_connections, self.connections)
        try:
            await self._exchange(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone += 1
        finally:
            self.connections -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        try:
            if method == "GET":
                return await self._send(writer, Answer(200, self._looked(path, headers)))
            asked = json.loads(body)
            if path == "/v1/chat/completions":
                check_completion(headers, asked, self.key)
            elif path == "/v1/messages":
                check_message(headers, asked, self.key)
            else:
                raise Refusal(404, "not_found_error", f"{path} is not here")
        except Refusal as refusal:
            self.problems.append(str(refusal))
            return await self._send(writer, Answer(refusal.status, error_of(path, refusal)))
        self.heard.append(Heard(path, headers, asked))
        self.arrived.set()
        found = self.script.pop(0) if self.script else Answer(500, {})
        if isinstance(found, Broken):
            return await self._broken(found.how, reader, writer)
        if not isinstance(found, Answer):
            made = completion(found) if path.endswith("completions") else message(found)
            found = Answer(200, made)
        await self._send(writer, found)

    def _looked(self, path: str, headers: dict[str, str]) -> Json:
        if path == "/v1/models":
            check_bearer(headers, self.key)
            return {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "it"}]}
        check_key(headers, self.key)
        if path != f"/v1/models/{MODEL}":
            raise Refusal(404, "not_found_error", f"model: {path.rpartition('/')[2]}")
        return {"type": "model", "id": MODEL, "display_name": "Scripted", "created_at": "2026-01-01T00:00:00Z"}

    async def _send(self, writer: asyncio.StreamWriter, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        lines = [f"HTTP/1.1 {answer.status} It", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()

    async def _broken(self, how: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if how == SILENCE:
            if not await reader.read(1):
                self.gone += 1
            return
        if how == BREAK:
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"choices": [{"mess')
        elif how == STREAM:  # chunks whose last never comes
            writer.write(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"cho\r\n')
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(MOST_OF_A_TEST // 65536):
                writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
                await writer.drain()
        await writer.drain()


@asynccontextmanager
async def model(*script: Any) -> AsyncIterator[Double]:
    double = Double(*script)
    server = await asyncio.start_server(double.serve, "127.0.0.1", 0, limit=1 << 20)
    double.root = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield double
    finally:
        server.close()
        await server.wait_closed()


# What the APIs want.


def check_bearer(headers: Json, key: str = KEY) -> None:
    if headers.get("authorization") != f"Bearer {key}":
        raise Refusal(401, "invalid_request_error", "Incorrect API key provided: sk-te***6J.", "invalid_api_key")


def check_key(headers: Json, key: str = KEY) -> None:
    if "anthropic-version" not in headers:
        raise Refusal(400, "invalid_request_error", "anthropic-version: header is required")
    if headers["anthropic-version"] not in ("2023-06-01", "2026-10-21"):
        raise Refusal(400, "invalid_request_error", "anthropic-version: not a valid version")
    if headers.get("x-api-key") != key and headers.get("authorization") != f"Bearer {key}":
        raise Refusal(401, "authentication_error", "invalid x-api-key")


def check_completion(headers: Json, asked: Json, key: str = KEY) -> None:
    check_bearer(headers, key)
    wanted(headers.get("content-type") == "application/json", "the body must be application/json")
    for name in asked.keys() - {"model", "messages", "max_tokens", "max_completion_tokens"}:
        raise Refusal(400, "invalid_request_error", f"Unrecognized request argument supplied: {name}")
    wanted(isinstance(asked.get("model"), str), "you must provide a model parameter")
    wanted(not {"max_tokens", "max_completion_tokens"} <= asked.keys(), "max_tokens and max_completion_tokens")
    wanted(isinstance(asked.get("max_tokens", 1), int), "max_tokens is not an integer")
    wanted(bool(asked.get("messages")), "messages: too short")
    for each in asked["messages"]:
        wanted(each.keys() == {"role", "content"}, "a message has a role and content")
        wanted(each["role"] in ("system", "developer", "user", "assistant"), f"{each['role']} is not a role")
        wanted(isinstance(each["content"], str), "content must be a text here")
    if asked["model"] != MODEL:
        raise Refusal(404, "invalid_request_error", f"The model `{asked['model']}` does not exist", "model_not_found")


TOOLS = ({"type": "code_execution_20250825", "name": "code_execution"},)


def check_message(headers: Json, asked: Json, key: str = KEY) -> None:
    check_key(headers, key)
    wanted(headers.get("content-type") == "application/json", "the body must be application/json")
    for name in asked.keys() - {"model", "messages", "max_tokens", "system", "tools", "container"}:
        raise Refusal(400, "invalid_request_error", f"{name}: Extra inputs are not permitted")
    for name in ("model", "messages", "max_tokens"):
        wanted(name in asked, f"{name}: Field required")
    wanted(isinstance(asked["max_tokens"], int) and asked["max_tokens"] > 0, "max_tokens: not a positive integer")
    wanted(isinstance(asked.get("system", ""), str), "system: not a text")
    wanted(all(each in TOOLS for each in asked.get("tools", ())), "tools: not a tool")
    wanted(asked.get("container", CONTAINER) == CONTAINER, "container: not found")
    roles = [each["role"] for each in asked["messages"]]
    wanted(bool(roles) and roles[0] == "user", "messages: first message must use the user role")
    wanted(all(role in ("user", "assistant") for role in roles), "messages: a role is user or assistant")
    for each in asked["messages"]:
        wanted(each.keys() == {"role", "content"} and bool(each["content"]), "messages: content is required")
        blocks = each["content"] if isinstance(each["content"], list) else []
        used = {block["id"] for block in blocks if block["type"] == "server_tool_use"}
        answered = {block["tool_use_id"] for block in blocks if block["type"].endswith("_tool_result")}
        wanted(answered <= used, "messages: a tool result without its use")
    if asked["model"] != MODEL:
        raise Refusal(404, "not_found_error", f"model: {asked['model']}")


def wanted(holds: bool, message: str) -> None:
    if not holds:
        raise Refusal(400, "invalid_request_error", message)


def error_of(path: str, refusal: Refusal) -> Json:
    if path.endswith("completions") or path == "/v1/models":
        return {"error": {"message": str(refusal), "type": refusal.type, "param": None, "code": refusal.code}}
    return {"type": "error", "error": {"type": refusal.type, "message": str(refusal)}, "request_id": "req_1"}


def completion(text: str, finish_reason: str = "stop", **message: Any) -> Json:
    said = {"role": "assistant", "content": text, "refusal": None, "annotations": [], **message}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": ANSWERED,
        "choices": [{"index": 0, "message": said, "logprobs": None, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 21, "completion_tokens": 7, "total_tokens": 28},
    }


def message(said: str | Turn) -> Json:
    turn = said if isinstance(said, Turn) else Turn([{"type": "text", "text": said}])
    used = any(block["type"] == "server_tool_use" for block in turn.blocks)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": ANSWERED,
        "content": turn.blocks,
        "stop_reason": turn.stop_reason,
        "stop_sequence": None,
        "container": {"id": CONTAINER, "expires_at": "2026-12-01T00:00:00Z"} if used else None,
        "usage": {"input_tokens": 21, "output_tokens": 7},
    }
