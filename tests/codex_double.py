"""Codex's app-server as its schema has it, without a model: what a prompt says is what it does.

    python codex_double.py app-server        a program that speaks as `codex app-server` does
    CodexDouble()                            the same in this process, a server of `links.memory`

A prompt is a line of words: `say TEXT` is answered with that text; `echo` with all that the turn may do; the other
words are in `_plays`. What it is sent is held against the schema where the validator is there, and so is what it says.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]

SCHEMA = Path(__file__).parent / "spec" / "codex-app-server-0.169.schema.json"
NAMES = {
    "initialize": "Initialize",
    "thread/start": "ThreadStart",
    "thread/resume": "ThreadResume",
    "thread/list": "ThreadList",
    "thread/archive": "ThreadArchive",
    "thread/unsubscribe": "ThreadUnsubscribe",
    "turn/start": "TurnStart",
    "turn/interrupt": "TurnInterrupt",
    "item/commandExecution/requestApproval": "CommandExecutionRequestApproval",
    "item/fileChange/requestApproval": "FileChangeRequestApproval",
    "item/permissions/requestApproval": "PermissionsRequestApproval",
}
NOTIFICATIONS = {
    "turn/started": "TurnStartedNotification",
    "turn/completed": "TurnCompletedNotification",
    "item/started": "ItemStartedNotification",
    "item/completed": "ItemCompletedNotification",
    "item/agentMessage/delta": "AgentMessageDeltaNotification",
}

try:
    import jsonschema_rs
except ImportError:  # where it runs as a program, without the packages of the tests
    jsonschema_rs = None  # type: ignore[assignment]

_validators: dict[str, Any] = {}


def check(name: str, value: Any) -> None:
    """Raises `AssertionError` where this is not what the schema says."""
    if jsonschema_rs is None:
        return
    if name not in _validators:
        schema = json.loads(SCHEMA.read_text())
        _validators[name] = jsonschema_rs.validator_for({**schema, "$ref": f"#/definitions/{name}"})
    problems = [error.message for error in _validators[name].iter_errors(value)]
    assert not problems, f"{name}: {problems[0]}: {json.dumps(value)[:500]}"


class Refused(Exception):
    """Codex refuses a request."""


class CodexDouble:
    """`requests` is what it was sent, `wrong` what of that its schema does not allow. `deaf`: methods that are never
    answered."""

    def __init__(self, *deaf: str) -> None:
        self.requests: list[Json] = []
        self.wrong: list[str] = []
        self.answers: list[Any] = []
        self.starts = 0
        self.deaf = set(deaf)
        self.threads: dict[str, Json] = {}
        self._archived: set[str] = set()
        self._ids = itertools.count(1)
        self._asked: dict[int, tuple[str, Callable[[Any], None]]] = {}
        self._turns: dict[str, str] = {}  # that run, by thread
        self._plays = {
            "say": self._say_text,
            "echo": self._echo,
            "env": lambda turn, _words: self._say_text(turn, json.dumps(sorted(os.environ))),
            "run": self._run_command,
            "ask": self._ask_command,
            "change": self._ask_files,
            "widen": self._ask_permissions,
            "flood": self._flood,
            "long": self._long,
            "silence": lambda _turn, _words: None,
            "crash": lambda _turn, _words: self.hang_up("crashed"),
            "garbage": self._garbage,
            "fail": self._fail,
            "strange": self._strange,
            "askall": self._ask_many,
        }

    def remember(self, thread: str, cwd: str, preview: str) -> None:
        """A thread of before."""
        self.threads[thread] = _thread(thread, cwd, None) | {"preview": preview}

    # The link.

    def connected(self, say: Callable[[bytes], None], hang_up: Callable[[str], None]) -> None:
        self.say, self.hang_up = say, hang_up
        self.starts += 1
        self._turns.clear()
        self._asked.clear()

    def disconnected(self) -> None:
        """It is stopped."""

    def received(self, line: bytes) -> None:
        message = json.loads(line)
        if "method" not in message:
            self._answered(message)
            return
        self.requests.append(message)
        method, params = message["method"], message.get("params", {})
        if "id" not in message or method in self.deaf:
            return
        try:
            self._held(f"{NAMES[method]}Params", params)
            result, then = self._answer(method, params)
        except Refused as why:
            self._send({"id": message["id"], "error": {"code": -32600, "message": str(why)}})
            return
        self._held(f"{NAMES[method]}Response", result)
        self._send({"id": message["id"], "result": result})
        then()

    def _held(self, name: str, value: Any) -> None:
        try:
            check(name, value)
        except AssertionError as why:
            self.wrong.append(str(why))

    def _answered(self, message: Json) -> None:
        method, then = self._asked.pop(message["id"])
        if "result" in message:
            self._held(f"{NAMES[method]}Response", message["result"])
        self.answers.append(message.get("result", message.get("error")))
        then(message.get("result"))

    def _send(self, message: Json) -> None:
        self.say(json.dumps(message).encode())

    def tell(self, method: str, params: Json) -> None:
        if method in NOTIFICATIONS:
            self._held(NOTIFICATIONS[method], params)
        self._send({"method": method, "params": params, "emittedAtMs": 0})

    def ask(self, method: str, params: Json, then: Callable[[Any], None]) -> None:
        id = next(self._ids)
        self._asked[id] = (method, then)
        if method in NAMES:
            self._held(f"{NAMES[method]}Params", params)
        self._send({"id": id, "method": method, "params": params})

    # Requests.

    def _answer(self, method: str, params: Json) -> tuple[Json, Callable[[], None]]:
        if method == "initialize":
            return {"codexHome": "/h", "platformFamily": "unix", "platformOs": "linux", "userAgent": "d"}, _nothing
        if method == "thread/list":
            return self._page(params), _nothing
        if method == "thread/start":
            id = str(uuid.UUID(int=0x01A20B52_0000_7000_8000_000000000000 + len(self.threads) + 1))
            self.threads[id] = _thread(id, params["cwd"], params.get("model"))
            return self._loaded(id, params), _nothing
        id = params["threadId"]
        if id not in self.threads or id in self._archived:
            raise Refused(f"no rollout found for thread id {id}")
        if method == "thread/resume":
            return self._loaded(id, params), _nothing
        if method == "thread/archive":
            self._archived.add(id)
            return {}, lambda: self.tell("thread/archived", {"threadId": id})
        if method == "thread/unsubscribe":
            return {"status": "unsubscribed"}, _nothing
        if method == "turn/interrupt":
            return {}, lambda: self._end(id, "interrupted")
        turn = str(uuid.uuid4())
        self._turns[id] = turn
        text = params["input"][0]["text"]
        self.threads[id]["preview"] = self.threads[id]["preview"] or text
        return {"turn": _turn(turn, "inProgress")}, lambda: self._begin(id, turn, text, params)

    def _loaded(self, id: str, params: Json) -> Json:
        return {
            "thread": self.threads[id],
            "model": "m",
            "modelProvider": "p",
            "cwd": params["cwd"],
            "approvalPolicy": params["approvalPolicy"],
            "approvalsReviewer": "user",
            "sandbox": {"type": "readOnly"},
        }

    def _page(self, params: Json) -> Json:
        known = [thread for id, thread in reversed(self.threads.items()) if id not in self._archived]
        first = int(params.get("cursor") or 0)
        last = first + params["limit"]
        return {"data": known[first:last], "nextCursor": str(last) if last < len(known) else None}

    # Turns.

    def _begin(self, thread: str, turn: str, text: str, params: Json) -> None:
        self.tell("turn/started", {"threadId": thread, "turn": _turn(turn, "inProgress")})
        word, _, words = text.partition(" ")
        play = self._plays.get(word, self._say_text)
        self._params = params
        play(thread, words)

    def _end(self, thread: str, status: str = "completed", error: str = "") -> None:
        turn = self._turns.pop(thread, None)
        if turn:
            done = _turn(turn, status) | ({"error": {"message": error}} if error else {})
            self.tell("turn/completed", {"threadId": thread, "turn": done})

    def item(self, thread: str, item: Json, *stages: str) -> None:
        for stage in stages or ("started", "completed"):
            about = {"item": item, "threadId": thread, "turnId": self._turns.get(thread, "")}
            self.tell(f"item/{stage}", about | {f"{stage}AtMs": 0})

    def _say_text(self, thread: str, words: str) -> None:
        self.tell("item/agentMessage/delta", {"threadId": thread, "turnId": "t", "itemId": "m", "delta": words})
        self.item(thread, {"type": "agentMessage", "id": "m", "text": words})
        self._end(thread)

    def _echo(self, thread: str, words: str) -> None:
        self._say_text(thread, json.dumps({name: self._params.get(name) for name in sorted(self._params)}))

    def _run_command(self, thread: str, words: str) -> None:
        self.item(thread, _command(words, "completed", "the output", 0))
        self._say_text(thread, "ran it")

    def _ask_command(self, thread: str, words: str) -> None:
        about = {"command": words, "cwd": "/w", "reason": "I need it", "itemId": "c", "startedAtMs": 0}
        about |= {"threadId": thread, "turnId": self._turns[thread]}
        self.item(thread, _command(words, "inProgress"), "started")

        def answered(result: Any) -> None:
            self._say_text(thread, json.dumps(result))

        self.ask("item/commandExecution/requestApproval", about, answered)

    def _ask_files(self, thread: str, words: str) -> None:
        change = {"path": "/w/a.py", "kind": {"type": "add"}, "diff": words or "+1"}
        item = {"type": "fileChange", "id": "f", "changes": [change], "status": "inProgress"}
        self.item(thread, item, "started")
        about = {"itemId": "f", "threadId": thread, "turnId": self._turns[thread], "startedAtMs": 0}
        self.ask("item/fileChange/requestApproval", about, lambda result: self._say_text(thread, json.dumps(result)))

    def _ask_permissions(self, thread: str, words: str) -> None:
        about = {"cwd": "/w", "itemId": "p", "permissions": {"network": {"enabled": True}}, "startedAtMs": 0}
        about |= {"threadId": thread, "turnId": self._turns[thread]}
        self.ask("item/permissions/requestApproval", about, lambda result: self._say_text(thread, json.dumps(result)))

    def _ask_many(self, thread: str, words: str) -> None:
        left = int(words)

        def answered(_result: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                self._say_text(thread, "all answered")

        for number in range(left):
            about = {"command": f"c{number}", "cwd": "/w", "itemId": f"c{number}", "startedAtMs": 0}
            about |= {"threadId": thread, "turnId": self._turns[thread]}
            self.ask("item/commandExecution/requestApproval", about, answered)

    def _flood(self, thread: str, words: str) -> None:
        for number in range(int(words)):
            self.item(thread, _command(f"c{number}", "completed", "x" * 10_000, 0), "completed")
        self._say_text(thread, "y" * 1_000_000)

    def _long(self, thread: str, words: str) -> None:
        """A line that has no end."""
        for _ in range(int(words)):
            self.say(b"x" * 1_000_000)

    def _garbage(self, thread: str, words: str) -> None:
        told = {"threadId": thread}
        for line in (b"{", b"[1]", b'"a"', b'{"method": 5}', b'{"method":"item/completed","params":7}', b'{"id":"x"}'):
            self.say(line)
        for params in ({"item": 5}, {"item": {"type": 7}}, {"item": {"type": "agentMessage", "text": None}}):
            self._send({"method": "item/completed", "params": params | told})
        self._send({"method": "unknown/thing", "params": told})
        self._send({"id": 10**30, "result": {}})
        self._send({"id": None, "error": {}})
        self._say_text(thread, "still here")

    def _fail(self, thread: str, words: str) -> None:
        self._end(thread, "failed", words)

    def _strange(self, thread: str, words: str) -> None:
        """Questions that nobody here knows."""
        about = {"threadId": thread, "turnId": "t", "itemId": "i", "questions": []}

        def answered(_result: Any) -> None:
            self._say_text(thread, json.dumps(self.answers[-1]))

        self.ask("item/tool/requestUserInput", about, answered)


def _nothing() -> None:
    """Nothing more is said."""


def _command(command: str, status: str, output: str | None = None, code: int | None = None) -> Json:
    about = {"type": "commandExecution", "id": "c", "command": command, "cwd": "/w", "status": status}
    return about | {"commandActions": [], "aggregatedOutput": output, "exitCode": code}


def _turn(id: str, status: str) -> Json:
    return {"id": id, "items": [], "status": status}


def _thread(id: str, cwd: str, model: str | None) -> Json:
    return {
        "id": id,
        "sessionId": id,
        "cwd": cwd,
        "model": model,
        "modelProvider": "p",
        "cliVersion": "0.169.0",
        "createdAt": 1_800_000_000,
        "updatedAt": 1_800_000_000,
        "ephemeral": False,
        "preview": "",
        "projectId": None,
        "source": "appServer",
        "status": {"type": "idle"},
        "turns": [],
    }


def lines() -> Iterator[bytes]:
    while line := sys.stdin.buffer.readline():
        yield line


def main() -> None:
    """As a program: `crash` ends it, and a thread is known only while it lives."""

    def say(line: bytes) -> None:
        sys.stdout.buffer.write(line + (b"" if line.startswith(b"xx") else b"\n"))
        sys.stdout.buffer.flush()

    def hang_up(_why: str) -> None:
        print("crashed as it was told", file=sys.stderr)
        sys.exit(3)

    double = CodexDouble()
    double.connected(say, hang_up)
    for line in lines():
        double.received(line)


if __name__ == "__main__":
    main()
