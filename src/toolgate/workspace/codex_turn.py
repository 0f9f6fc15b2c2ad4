"""One turn of Codex: what is kept of it, how far it is, and what it asks on the way.

The rules this file keeps: of what Codex says only so much is kept, however much that is; what Codex asks is put to the
user of the call that it works for, in words that neither Codex nor its model can pass for ours, and is declined where
nobody can be asked; and nothing is ever granted for longer than one command or one change of files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
from msgspec import Raw

from toolgate.auth import safe_text
from toolgate.core import asks, jsonrpc
from toolgate.core.background import BackgroundTasks
from toolgate.core.fault import Fault
from toolgate.core.model import Answer
from toolgate.core.redaction import excerpt

MOST_ITEMS = 100  # that are told of one turn: the last ones
LONGEST_TEXT = 4000  # characters of a text in an item
LONGEST_RESULT = 64 * 1024  # characters of the agent's last message
LONGEST_SHOWN = 200  # characters of a line of progress
MOST_SHOWN = 16_000  # characters of a question; what is longer no form shows whole, and it is declined
MOST_QUESTIONS = 4  # of one turn that wait at the same time
MOST_CHANGES = 32  # items that may still be asked about, of which their changes are remembered
MOST_FILES = 200  # of one change
MOST_DECLINED = 20  # questions that are told of

COMMAND, FILES, PERMISSIONS = (
    "item/commandExecution/requestApproval",
    "item/fileChange/requestApproval",
    "item/permissions/requestApproval",
)


class _File(msgspec.Struct):
    path: str
    kind: Any = None
    diff: str = ""


class _Item(msgspec.Struct, rename="camel"):
    """What is read of an item, whatever it is."""

    id: str = ""
    type: str = ""
    text: str = ""
    command: str = ""
    status: str = ""
    exit_code: int | None = None
    aggregated_output: str | None = None
    changes: list[_File] = []
    server: str = ""
    tool: str = ""
    query: str = ""


class _OfItem(msgspec.Struct):
    item: _Item


class _TurnError(msgspec.Struct):
    message: str = ""


class _Turn(msgspec.Struct):
    id: str = ""
    status: str = ""
    error: _TurnError | None = None


class _OfTurn(msgspec.Struct):
    turn: _Turn


class _Question(msgspec.Struct, rename="camel"):
    item_id: str = ""
    command: str | None = None
    cwd: str | None = None
    reason: str | None = None
    grant_root: str | None = None
    network_approval_context: Any = None
    kind: str = "command"


class Turn:
    """`report` is told how far it is; `ask` puts a form to the user of the call, None where nobody is to be asked."""

    def __init__(
        self,
        report: Callable[[int, str], None],
        ask: Callable[[dict[str, Any]], Awaitable[Answer]] | None,
    ) -> None:
        self.over: asyncio.Future[_Turn] = asyncio.get_running_loop().create_future()
        self.result = ""
        self.items: list[dict[str, Any]] = []
        self.left_out = 0  # items
        self.declined: list[str] = []
        self._report = report
        self._ask = ask
        self._steps = 0
        self._changes: dict[str, list[_File]] = {}
        self._questions = BackgroundTasks()
        self._is_given_up = False

    def give_up(self) -> None:
        """Nobody waits for it any more: what it asks from now on is refused."""
        self._is_given_up = True

    async def close(self) -> None:
        await self._questions.close()

    # What is told.

    def told(self, method: str, params: Raw) -> None:
        """A notification about its thread."""
        try:
            if method in ("item/started", "item/completed"):
                self._item(jsonrpc.read(params, _OfItem).item, is_done=method == "item/completed")
            elif method == "turn/completed":
                self._end(jsonrpc.read(params, _OfTurn).turn)
        except jsonrpc.UNREADABLE:
            if method == "turn/completed":
                self._fail(Fault("UPSTREAM_ERROR", "Codex ended the turn with a malformed message", reach="executed"))

    def ended(self, fault: Fault) -> None:
        """The process has: no more comes."""
        self._fail(Fault("SERVER_FAILED", f"Codex ended in the middle of a turn: {fault.message}", reach="executed"))

    def _end(self, turn: _Turn) -> None:
        if not self.over.done():
            self.over.set_result(turn)

    def _fail(self, fault: Fault) -> None:
        if not self.over.done():
            self.over.set_exception(fault)

    def _item(self, item: _Item, is_done: bool) -> None:
        if item.type == "fileChange":
            self._changes[item.id] = item.changes[: MOST_FILES + 1]
            while len(self._changes) > MOST_CHANGES:
                del self._changes[next(iter(self._changes))]
        shown = _shown(item)
        if not shown or self.over.done():
            return
        self._steps += 1
        self._report(self._steps, _line(shown, is_done))
        if not is_done:
            return
        if item.type == "agentMessage" and item.text:
            self.result = excerpt(item.text, LONGEST_RESULT)
        self.items.append(shown)
        if len(self.items) > MOST_ITEMS:
            del self.items[0]
            self.left_out += 1

    # What is asked.

    def asked(self, method: str, params: Raw, answer: Callable[[Any], None]) -> bool:
        """A question about its thread. Whether `answer` will be called with the result, once."""
        if method == PERMISSIONS:  # for the rest of the turn, or longer: more than the call was allowed
            self._note("wider permissions")
            answer({"permissions": {}})
            return True
        if method not in (COMMAND, FILES):
            return False
        try:
            question = jsonrpc.read(params, _Question)
        except jsonrpc.UNREADABLE:
            return False
        about, why = self._about(method, question)
        if self._is_given_up or self._ask is None or not about or len(list(self._questions)) >= MOST_QUESTIONS:
            self._note(why)
            answer({"decision": "cancel" if self._is_given_up else "decline"})
            return True
        self._questions.start(self._put(about, why, answer), "a question of Codex")
        return True

    def _about(self, method: str, question: _Question) -> tuple[str, str]:
        """The question as its user reads it, empty where it is not put; and what it is in a few words."""
        reason = [f"- Why, in its own words: {safe_text.quoted(question.reason)}"] if question.reason else []
        if method == COMMAND:
            command, why = question.command or "", f"command: {excerpt(question.command or '', LONGEST_SHOWN)}"
            if not command or question.network_approval_context or question.kind != "command":
                return "", why
            lines = [
                "Codex asks to run a command, possibly outside its sandbox.",
                "",
                f"- Command: {safe_text.quoted(command[:MOST_SHOWN])}",
                f"- Folder: {safe_text.quoted(question.cwd or '')}",
            ]
            return _whole([*lines, *reason], len(command)), why
        files = self._changes.get(question.item_id, [])
        why = f"changes of files: {excerpt(', '.join(each.path for each in files[:10]), LONGEST_SHOWN)}"
        size = sum(len(each.path) + len(each.diff) for each in files)
        if not files or len(files) > MOST_FILES or question.grant_root or size > MOST_SHOWN:
            return "", why
        lines = ["Codex asks to change files, possibly outside its folder.", ""]
        for each in files:
            lines += [f"- File: {safe_text.quoted(each.path)}", f"    {safe_text.quoted(each.diff)}"]
        return _whole([*lines, *reason], size), why

    async def _put(self, about: str, why: str, answer: Callable[[Any], None]) -> None:
        """Declined where it is not allowed: that it was cancelled, cannot be shown, or nobody is there."""
        is_allowed = False
        try:
            assert self._ask
            is_allowed = _allows(await self._ask(_form(about)))
        finally:
            if not is_allowed:
                self._note(why)
            answer({"decision": "accept" if is_allowed else "decline"})

    def _note(self, declined: str) -> None:
        if len(self.declined) < MOST_DECLINED:
            self.declined.append(declined)


def _whole(lines: list[str], size: int) -> str:
    """Empty where it is too long to be read."""
    if size > MOST_SHOWN or sum(map(len, lines)) > MOST_SHOWN:
        return ""
    return "\n".join(lines)


def _form(about: str) -> dict[str, Any]:
    choices = [{"const": "once", "title": "Allow this once"}, {"const": "deny", "title": "Deny"}]
    decision = {"type": "string", "title": "Decision", "oneOf": choices}
    schema = {"type": "object", "properties": {"decision": decision}, "required": ["decision"]}
    return {"message": about, "requestedSchema": schema}


def _allows(answer: Answer) -> bool:
    said = asks.answer_value(answer)
    content = said.get("content")
    if said.get("action") != "accept" or not isinstance(content, dict):
        return False
    return cast("dict[str, Any]", content).get("decision") == "once"


def _shown(item: _Item) -> dict[str, Any] | None:
    """An item as the result has it; None for what says nothing to who called."""
    if item.type in ("userMessage", "reasoning", "hookPrompt", ""):
        return None
    found: dict[str, Any] = {"type": _NAMES.get(item.type, excerpt(item.type, 64))}
    texts = {
        "text": item.text,
        "command": item.command,
        "output": item.aggregated_output or "",
        "server": item.server,
        "tool": item.tool,
        "query": item.query,
        "status": item.status,
    }
    found |= {name: excerpt(text, LONGEST_TEXT) for name, text in texts.items() if text}
    if item.exit_code is not None:
        found["exit_code"] = item.exit_code
    if item.changes:
        found["files"] = [excerpt(each.path, LONGEST_SHOWN) for each in item.changes[:MOST_FILES]]
    return found


_NAMES = {
    "agentMessage": "message",
    "commandExecution": "command",
    "fileChange": "files",
    "mcpToolCall": "tool",
    "dynamicToolCall": "tool",
    "webSearch": "search",
}


def _line(shown: dict[str, Any], is_done: bool) -> str:
    """One line of progress."""
    about = next((shown[name] for name in ("command", "tool", "query", "text") if name in shown), "")
    about = about or ", ".join(shown.get("files", [])[:3])
    first = about.strip().splitlines()[0] if about.strip() else ""
    state = "" if shown["type"] == "message" else " done" if is_done else " started"
    return f"{shown['type']}{state}: {first[:LONGEST_SHOWN]}" if first else f"{shown['type']}{state}"
