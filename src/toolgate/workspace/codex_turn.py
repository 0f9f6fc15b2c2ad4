"""One turn of Codex: what is kept of it, how far it is, and what it asks on the way.

The rules this file keeps: of what Codex says only so much is kept, however much that is; what Codex asks is put to the
user of the call that it works for, in words that neither Codex nor its model can pass for ours, and is declined where
nobody can be asked; and nothing is ever granted for longer than one command or one change of files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import Raw

from toolgate.auth import safe_text
from toolgate.core import asks, jsonrpc
from toolgate.core.background import BackgroundTasks
from toolgate.core.fault import Fault
from toolgate.core.model import Answer
from toolgate.core.redaction import excerpt
from toolgate.workspace import codex_said

MOST_ITEMS = 100  # that are told of one turn: the last ones
LONGEST_TEXT = 4000  # characters of a text in an item
LONGEST_RESULT = 64 * 1024  # characters of the agent's last message
LONGEST_SHOWN = 200  # characters of a line of progress
MOST_SHOWN = 16_000  # characters of a question; what is longer no form shows whole, and it is declined
MOST_BYTES_SHOWN = 6 * MOST_SHOWN  # of a question as it comes
MOST_QUESTIONS = 4  # of one turn that wait at the same time
MOST_CHANGES = 32  # items that may still be asked about, of which their changes are remembered
MOST_FILES = 200  # of one change
MOST_DECLINED = 20  # questions that are told of

COMMAND, FILES, PERMISSIONS = (
    "item/commandExecution/requestApproval",
    "item/fileChange/requestApproval",
    "item/permissions/requestApproval",
)


class _Change(msgspec.Struct):
    """Of a file, as it comes."""

    path: Raw
    diff: Raw = jsonrpc.NOTHING


class _File(NamedTuple):
    path: str
    diff: str


class _Changes(NamedTuple):
    """Of an item: the first files, and how many bytes all of it has. What is too long to be shown has no diffs."""

    files: list[_File]
    size: int


class _Item(msgspec.Struct, rename="camel"):
    """What is read of an item, whatever it is."""

    id: Raw = jsonrpc.NOTHING
    type: Raw = jsonrpc.NOTHING
    text: Raw = jsonrpc.NOTHING
    command: Raw = jsonrpc.NOTHING
    status: Raw = jsonrpc.NOTHING
    exit_code: int | None = None
    aggregated_output: Raw = jsonrpc.NOTHING
    changes: Raw = jsonrpc.NOTHING
    server: Raw = jsonrpc.NOTHING
    tool: Raw = jsonrpc.NOTHING
    query: Raw = jsonrpc.NOTHING


class _OfItem(msgspec.Struct):
    item: _Item


class _TurnError(msgspec.Struct):
    message: Raw = jsonrpc.NOTHING


class _Turn(msgspec.Struct):
    status: Raw = jsonrpc.NOTHING
    error: _TurnError | None = None


class _OfTurn(msgspec.Struct):
    turn: _Turn


class Ended(NamedTuple):
    """How a turn has: `why` if it has failed, in the words of Codex."""

    status: str
    why: str


class _Question(msgspec.Struct, rename="camel"):
    item_id: Raw = jsonrpc.NOTHING
    command: Raw = jsonrpc.NOTHING
    cwd: Raw = jsonrpc.NOTHING
    reason: Raw = jsonrpc.NOTHING
    grant_root: Raw = jsonrpc.NOTHING
    network_approval_context: Raw = jsonrpc.NOTHING
    kind: Raw = Raw(b'"command"')


class Turn:
    """`report` is told how far it is; `ask` puts a form to the user of the call, None where nobody is to be asked."""

    def __init__(
        self,
        report: Callable[[int, str], None],
        ask: Callable[[dict[str, Any]], Awaitable[Answer]] | None,
    ) -> None:
        self.over: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.result = ""
        self.items: list[dict[str, Any]] = []
        self.left_out = 0  # items
        self.declined: list[str] = []
        self._report = report
        self._ask = ask
        self._steps = 0
        self._changes: dict[str, _Changes] = {}
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
                turn = jsonrpc.read(params, _OfTurn).turn
                self._end(
                    Ended(codex_said.text(turn.status), codex_said.text(turn.error.message) if turn.error else "")
                )
        except jsonrpc.UNREADABLE:
            if method == "turn/completed":
                self.failed(Fault("UPSTREAM_ERROR", "Codex ended the turn with a malformed message", reach="executed"))

    def ended(self, fault: Fault) -> None:
        """The process has: no more comes."""
        self.failed(Fault("SERVER_FAILED", f"Codex ended in the middle of a turn: {fault.message}", reach="executed"))

    def _end(self, ended: Ended) -> None:
        if not self.over.done():
            self.over.set_result(ended)

    def failed(self, fault: Fault) -> None:
        """It has ended without a result."""
        if not self.over.done():
            self.over.set_exception(fault)

    def _item(self, item: _Item, is_done: bool) -> None:
        kind = codex_said.text(item.type)
        files = _files(item.changes)
        if kind == "fileChange":
            size = len(item.changes)
            if size > MOST_BYTES_SHOWN:
                files = [_File(excerpt(each.path, LONGEST_SHOWN), "") for each in files]
            self._changes[codex_said.identifier(item.id)] = _Changes(files, size)
            while len(self._changes) > MOST_CHANGES:
                del self._changes[next(iter(self._changes))]
        shown = _shown(kind, item, files)
        if not shown or self.over.done():
            return
        self._steps += 1
        self._report(self._steps, _line(shown, is_done))
        if not is_done:
            return
        if kind == "agentMessage" and (text := codex_said.text(item.text)):
            self.result = excerpt(text, LONGEST_RESULT)
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
            about, why = self._about(method, jsonrpc.read(params, _Question))
        except jsonrpc.UNREADABLE:
            return False
        if self._is_given_up or self._ask is None or not about or len(list(self._questions)) >= MOST_QUESTIONS:
            self._note(why)
            answer({"decision": "cancel" if self._is_given_up else "decline"})
            return True
        self._questions.start(self._put(about, why, answer), "a question of Codex")
        return True

    def _about(self, method: str, question: _Question) -> tuple[str, str]:
        """The question as its user reads it, empty where it is not put; and what it is in a few words."""
        told = (question.command, question.cwd, question.reason)
        is_long = sum(map(len, told)) > MOST_BYTES_SHOWN
        command, folder, its_why = map(codex_said.text, told)
        reason = [f"- Why, in its own words: {safe_text.quoted(its_why)}"] if its_why and not is_long else []
        if method == COMMAND:
            why = f"command: {excerpt(command, LONGEST_SHOWN)}"
            is_plain = question.kind == Raw(b'"command"') and _is_absent(question.network_approval_context)
            if is_long or not command or not is_plain:
                return "", why
            lines = [
                "Codex asks to run a command, possibly outside its sandbox.",
                "",
                f"- Command: {safe_text.quoted(command[:MOST_SHOWN])}",
                f"- Folder: {safe_text.quoted(folder)}",
            ]
            return _whole([*lines, *reason], len(command)), why
        files, written = self._changes.get(codex_said.identifier(question.item_id), _Changes([], 0))
        why = f"changes of files: {excerpt(', '.join(each.path for each in files[:10]), LONGEST_SHOWN)}"
        size = sum(len(each.path) + len(each.diff) for each in files)
        is_long = is_long or written > MOST_BYTES_SHOWN or size > MOST_SHOWN
        if not files or is_long or len(files) > MOST_FILES or not _is_absent(question.grant_root):
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


def _is_absent(raw: Raw) -> bool:
    return not raw or raw == Raw(b"null") or raw == Raw(b'""')


def _files(changes: Raw) -> list[_File]:
    """The first ones, and one more where there are more than `MOST_FILES`."""
    found = [jsonrpc.read(each, _Change) for each in codex_said.first(changes, MOST_FILES + 1)]
    return [_File(codex_said.text(each.path), codex_said.text(each.diff)) for each in found]


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


def _shown(kind: str, item: _Item, files: Sequence[_File]) -> dict[str, Any] | None:
    """An item as the result has it; None for what says nothing to who called."""
    if kind in ("userMessage", "reasoning", "hookPrompt", ""):
        return None
    found: dict[str, Any] = {"type": _NAMES.get(kind, excerpt(kind, 64))}
    texts = {
        "text": item.text,
        "command": item.command,
        "output": item.aggregated_output,
        "server": item.server,
        "tool": item.tool,
        "query": item.query,
        "status": item.status,
    }
    found |= {name: excerpt(text, LONGEST_TEXT) for name, raw in texts.items() if (text := codex_said.text(raw))}
    if item.exit_code is not None:
        found["exit_code"] = item.exit_code
    if files:
        found["files"] = [excerpt(each.path, LONGEST_SHOWN) for each in files[:MOST_FILES]]
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
