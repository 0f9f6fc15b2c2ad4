"""The server of the soak: of the handshake era, over stdio. Each call of `once` is written down, by its number.

`echo`, `slow`, `steps` (progress), `hold` (until it is cancelled), `ask` (a question in the middle), `work` (as a task
too), `touch` (its one resource has changed), `large` (as many bytes as it is asked for, of one word).
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

Json = dict[str, Any]
NOTES = Path(sys.argv[1])  # where `once` writes
PATIENCE = 50.0  # seconds for an answer to a question, and for `hold`
URI = "soak://watched"
TOOLS = ("echo", "once", "slow", "steps", "hold", "ask", "work", "touch", "large")

writing = threading.Lock()
ids = itertools.count(1)
asked: dict[int, tuple[threading.Event, list[Json]]] = {}
held: dict[Any, threading.Event] = {}
tasks: dict[str, Json] = {}


def write(message: Json) -> None:
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(said: str) -> Json:
    return {"content": [{"type": "text", "text": said}]}


def ask(question: str) -> str:
    id, answered = next(ids), threading.Event()
    answers: list[Json] = []
    asked[id] = answered, answers
    schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    write({"id": id, "method": "elicitation/create", "params": {"message": question, "requestedSchema": schema}})
    if not answered.wait(PATIENCE):
        return "nobody answered"
    [answer] = answers
    result = answer.get("result", {})
    return f"{result.get('action')} {result.get('content', {}).get('word')} {answer.get('error', '')}".strip()


def run(id: Any, name: str, given: Json, params: Json) -> str:
    if name == "once":
        with NOTES.open("a") as notes:  # one write of a short line is one line, whoever else writes
            notes.write(f"{given['number']}\n")
    elif name == "slow":
        threading.Event().wait(0.3)
    elif name == "steps":
        token = params.get("_meta", {}).get("progressToken")
        for step in range(5):
            told = {"progressToken": token, "progress": step + 1, "total": 5, "message": given["say"]}
            write({"method": "notifications/progress", "params": told})
    elif name == "hold":
        held[id] = threading.Event()
        held[id].wait(PATIENCE)
        del held[id]
    elif name == "large":
        word = f"{given['say']}, "
        return (word * (given["bytes"] // len(word) + 1))[: given["bytes"]]
    elif name == "ask":
        return f"{given['say']}: {ask(given['say'])}"
    elif name == "touch":
        write({"method": "notifications/resources/updated", "params": {"uri": URI}})
    return str(given.get("say", given.get("number", os.getpid())))


def call(id: Any, params: Json) -> None:
    name, given = params["name"], params.get("arguments") or {}
    if "task" not in params:
        write({"id": id, "result": text(run(id, name, given, params))})
        return
    task = f"task-{os.getpid()}-{next(ids)}"
    times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": 60_000}
    tasks[task] = {"taskId": task, "status": "working", "pollInterval": 50, **times}
    write({"id": id, "result": {"task": tasks[task]}})
    said = run(id, "slow", given, params)
    tasks[task] = {**tasks[task], "status": "completed", "said": said}


def answer(method: str, params: Json) -> Json | None:
    """None where there is no such method."""
    if method == "initialize":
        offers = {"tools": {}, "resources": {"subscribe": True}, "tasks": {"requests": {"tools": {"call": {}}}}}
        info = {"name": "soak", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": offers, "serverInfo": info}
    if method == "tools/list":
        plain = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        return {"tools": [each | ({"execution": {"taskSupport": "optional"}} if each["name"] == "work" else {})
                          for each in plain]}  # fmt: skip
    if method == "resources/list":
        return {"resources": [{"uri": URI, "name": "watched"}]}
    if method == "tasks/get":
        task = tasks.get(params["taskId"], {})
        return {key: value for key, value in task.items() if key != "said"} or None
    if method == "tasks/result":
        if params["taskId"] not in tasks:  # of the process before this one
            return None
        while tasks[params["taskId"]]["status"] == "working":
            threading.Event().wait(0.02)
        return text(tasks[params["taskId"]]["said"])
    return {} if method in ("resources/subscribe", "resources/unsubscribe", "ping") else None


def handle(message: Json) -> None:
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None:
        if id in asked:
            answered, answers = asked.pop(id)
            answers.append(message)
            answered.set()
    elif method == "tools/call":
        call(id, params)
    elif method == "notifications/cancelled":
        if params["requestId"] in held:
            held[params["requestId"]].set()
    elif id is not None:
        found = answer(method, params)
        refusal = {"code": -32602, "message": f"{method}: unknown"}
        write({"id": id, "error": refusal} if found is None else {"id": id, "result": found})


for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") in ("tools/call", "tasks/result"):
        threading.Thread(target=handle, args=(message,), daemon=True).start()
    else:
        handle(message)
