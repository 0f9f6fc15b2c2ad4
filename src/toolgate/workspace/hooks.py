"""Hooks: what coding agents' programs say of their sessions, and what becomes of the records by that.

It comes as a call of `call_hook`, or as the payload of a program's own hook, which `toolgate hook` puts into a folder
(`frontends.hook`). Both are one path: a payload is adapted by its program's row of `ADAPTERS`, and changes the record
of its session by its hook's row of `HOOKS`, in one transaction.

The rules this file keeps: whatever a payload says is bounded, without secrets and without what would act on a terminal
before it is kept; a payload is read once, in the order in which they were written, and gone from the folder only when
what it says is kept.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from toolgate.auth.access import THE_OPERATOR
from toolgate.config import ownership
from toolgate.core import internal_errors, jsonrpc
from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.model import Client
from toolgate.core.redaction import LONGEST_QUOTED
from toolgate.core.token_shapes import quoted
from toolgate.state.base import Connection
from toolgate.upstreams.inprocess.tools import ToolContext
from toolgate.upstreams.providers import prompts
from toolgate.upstreams.providers.services import Providers
from toolgate.workspace import sessions
from toolgate.workspace.sessions import LONGEST_ID, LONGEST_PROMPT, LONGEST_REPLY, Record
from toolgate.workspace.workspace import Workspace, absolute

log = logging.getLogger(__name__)

SPOOL = "hooks"  # the folder of payloads, in the state folder; `frontends.hook` knows it too
LOOK = 5.0  # seconds between looks into the folder, beside those that somebody asks for
LONGEST_PAYLOAD = 1024 * 1024  # bytes
LONGEST_SOURCE = 32  # characters
LONGEST_MODEL = 100  # characters
MOST_RETELLING = 16  # summaries that a model is asked for at once; more stay as they are


class Payload(msgspec.Struct, kw_only=True):
    """What any program's payload says, in our words. `began_by`: startup, resume, clear or compact."""

    session_id: str = ""
    cwd: str = ""
    transcript_path: str = ""
    model: str = ""
    began_by: str = ""
    parent: str = ""
    prompt: str = ""
    reply: str = ""
    summary: str = ""


_MEMBERS = {
    "session_id": "session_id",
    "cwd": "cwd",
    "transcript_path": "transcript_path",
    "model": "model",
    "began_by": "source",
    "parent": "parent_session_id",
    "prompt": "prompt",
    "reply": "last_assistant_message",
    "summary": "summary",
}

# Program → the members of its payloads, by what they are here (each measured on the program itself). Others may call
# them as Claude Code does.
ADAPTERS: Mapping[str, Mapping[str, str]] = {
    "claude": _MEMBERS,  # 2.1.330
    "codex": _MEMBERS,  # 0.169
    "gemini": {**_MEMBERS, "reply": "prompt_response"},  # 0.61
}
_added = re.compile(r"(?:<hook_context>.*?</hook_context>\s*)+", re.DOTALL)  # what Gemini puts before the first prompt
_SOURCES = {"claude-code": "claude", "codex-cli": "codex", "gemini-cli": "gemini"}  # other names of the same


class Change(msgspec.Struct):
    """What a hook makes of a record: `record` is changed in place, and put. Without `is_heard`
    nobody learns any more what this says; with `sees_tasks` they may know of tasks. `restored` is the record whose
    summary the session is given."""

    connection: Connection
    record: Record
    payload: Payload
    is_new: bool
    is_heard: bool = True
    sees_tasks: bool = True
    restored: Record | None = None

    def restore(self, record: Record | None) -> None:
        if record and not self.sees_tasks:
            record = msgspec.structs.replace(record, summary=sessions.without_tasks(record.summary))
        self.restored = record


def _start(change: Change) -> None:
    """At work, with what another session has handed over, or its own from before its context was cut."""
    record, connection, began_by = change.record, change.connection, change.payload.began_by
    parent = sessions.find(connection, record.principal, change.payload.parent) if change.payload.parent else None
    if parent and parent.id != record.id:
        record.parent_id = parent.id
    if not change.is_heard:
        pass  # what is handed over waits for a session that gets it
    elif began_by == "compact" and record.summary:
        change.restore(record)
    elif change.is_new or began_by != "resume":  # who resumes a session has all that was said in it
        change.restore(sessions.take_handoff(connection, record))
    record.status, record.ended_at = "active", None


def _prompt(change: Change) -> None:
    sessions.prompted(change.record, change.payload.prompt)


def _stop(change: Change) -> None:
    sessions.stopped(change.record, change.payload.reply)


def _end(change: Change) -> None:
    _summarize(change)
    change.record.status, change.record.ended_at = "handoff_ready", change.record.updated_at


def _summarize(change: Change) -> None:
    record = change.record
    record.last_reply = change.payload.reply or record.last_reply
    whole = sessions.summary_of(change.connection, record, change.payload.summary)
    record.summary = whole if change.sees_tasks else sessions.without_tasks(whole)


def _work(change: Change) -> None:
    if change.record.status == "paused":
        change.record.status = "active"


def _sign(change: Change) -> None:
    """Only that it is there."""


# Each hook by its name, and what it does. They are found in any case, with or without dashes and underscores.
HOOKS: Mapping[str, Callable[[Change], None]] = {
    "SessionStart": _start,
    "PromptSubmit": _prompt,
    "UserPromptSubmit": _prompt,
    "BeforeAgent": _prompt,  # Gemini
    "Stop": _stop,
    "AfterAgent": _stop,  # Gemini
    "SessionEnd": _end,
    "PreCompact": _summarize,
    "PreCompress": _summarize,  # Gemini
    "PreToolUse": _work,
    "BeforeTool": _work,  # Gemini
    "PostToolUse": _work,
    "AfterTool": _work,  # Gemini
    "SubagentStart": _work,
    "SubagentStop": _sign,
    "Notification": _sign,
}
_BY_LETTERS = {name.lower(): name for name in HOOKS}


class Hooks:
    """`spool` is the folder in which `toolgate hook` puts payloads; None: there is none. `providers` may have a model
    that sums up sessions."""

    def __init__(
        self, workspace: Workspace, clock: Clock, spool: Path | None = None, providers: Providers | None = None
    ) -> None:
        self._workspace = workspace
        self._clock = clock
        self._spool = spool
        self._providers = providers
        self._retelling = BackgroundTasks()
        self._told = asyncio.Event()
        self._waiting: dict[str, asyncio.Future[bytes | None]] = {}  # by name of a file

    async def call(
        self, hook_type: str, params: Raw | None, source: str, context: ToolContext, sees_tasks: bool
    ) -> Mapping[str, Any]:
        """What a client says by `call_hook`; with `sees_tasks` it may know of tasks. Raises `Fault`."""
        hook, payload, workspace = _find(hook_type), _adapted(params or Raw(b"{}"), source), self._workspace
        if not payload.session_id:
            bound = await workspace.record(context)
            if bound is None:
                message = "Invalid arguments: `params.session_id` is missing, and no session is known for this client"
                raise Fault("INVALID_ARGS", message, reach="not_sent")
            source, payload.session_id = bound.source, bound.external_id
        folder = await workspace.folder(context)
        change = await self._change(hook, payload, source, context.client, folder, sees_tasks=sees_tasks)
        workspace.bind(context, change.record.id)
        return _said(hook, change, workspace.now())

    async def _change(
        self,
        hook: str,
        payload: Payload,
        source: str,
        client: Client,
        folder: str,
        is_heard: bool = True,
        sees_tasks: bool = True,
    ) -> Change:
        """`folder` is where the session is if its payload does not say. Raises `Fault`."""
        workspace = self._workspace
        sign = workspace.sign(client.principal, payload.session_id, _source(source))
        told = payload.cwd if sessions.is_on_this_machine(client.principal) else ""
        sign.cwd = told or folder
        sign.project_id, sign.place = await workspace.project_id_and_place(sign.cwd, client.principal)
        sign.model, sign.transcript_path = payload.model, payload.transcript_path

        def work(connection: Connection) -> Change:
            record, is_new = sessions.seen(connection, sign, may_move=bool(told))
            change = Change(connection, record, payload, is_new, is_heard, sees_tasks)
            HOOKS[hook](change)
            sessions.put(connection, change.record)
            return change

        change = await workspace.transact(work, whose=client.principal.counted_as)
        if HOOKS[hook] in (_end, _summarize):
            self._retell_later(change.record, client.principal.counted_as)
        return change

    # A model's words, in place of ours. Nobody waits for them, and without them ours stay.

    def _retell_later(self, record: Record, whose: str) -> None:
        providers, says_something = self._providers, record.prompts or record.last_reply
        if providers and providers.of("summaries") and says_something and len(list(self._retelling)) < MOST_RETELLING:
            self._retelling.start(self._retell(providers, record, record.summary, whose), "sum up a session")

    async def _retell(self, providers: Providers, record: Record, summary: str, whose: str) -> None:
        """If the record is as it was, and nobody has taken the summary meanwhile."""
        name = providers.name("summaries")
        try:
            said = await providers.ask("summaries", prompts.summary(sessions.without_tasks(summary)), whose)
        except Fault as fault:
            log.warning("the summary of a session stays as it is: %s", fault.message)
            return
        text, by = _kept(said.text, LONGEST_REPLY), f"{_kept(said.model, LONGEST_MODEL)} of {name}"

        def work(connection: Connection) -> None:
            now = sessions.get(connection, record.id)
            if now and now.summary == summary and now.status != "ended" and text:
                now.summary = sessions.retold(summary, text, by)
                sessions.put(connection, now)

        await self._workspace.transact(work, whose=whose)

    async def close(self) -> None:
        await self._retelling.close()

    # The folder.

    async def answer(self, name: str) -> bytes | None:
        """What `toolgate hook` prints, once the file of this name was read; None where there is none."""
        if self._spool is None:
            return None
        waiting = self._waiting.setdefault(name, asyncio.get_running_loop().create_future())
        self._told.set()
        return await asyncio.shield(waiting)  # others may wait for the same

    async def follow(self) -> None:
        """Read what is in the folder now, and what comes. Until cancelled."""
        while self._spool:
            self._told.clear()
            waiting, self._waiting = self._waiting, {}
            answers: dict[str, bytes] = {}
            try:
                answers = await self._read_all(self._spool, waiting)
            except OSError as error:
                log.info("hooks that were called while no gateway was running cannot be read: %s", error)
            finally:
                for name, future in waiting.items():
                    if not future.done():  # else who asked is gone
                        future.set_result(answers.get(name))
            try:
                async with self._clock.timeout(LOOK):
                    await self._told.wait()
            except TimeoutError:
                pass

    async def _read_all(self, folder: Path, waiting: Mapping[str, asyncio.Future[bytes | None]]) -> dict[str, bytes]:
        answers: dict[str, bytes] = {}
        if not folder.is_dir():
            return answers
        ownership.check(folder)
        with _alone(folder) as is_alone:  # another gateway that has it reads what is there
            for name in sorted(filter(_is_payload, os.listdir(folder))) if is_alone else ():
                is_heard = name in waiting and not waiting[name].done()
                try:
                    answers[name] = await self._read(folder / name, is_heard)
                except OSError as error:
                    log.warning("a hook cannot be read: %s", error)
                except Fault as fault:
                    if fault.code == "SERVER_FAILED":
                        log.warning("hooks are left in their folder until sessions can be kept: %s", fault.message)
                        break
                    log.warning("a hook was not understood: %s", fault.message)
                    answers[name] = NOTHING
                except Exception as error:  # the rescue: those behind it are read all the same
                    if internal_errors.takes(error):
                        log.error("a hook was not read because of an internal error", exc_info=error)
                    answers[name] = NOTHING
                (folder / name).unlink(missing_ok=True)
        return answers

    async def _read(self, file: Path, is_heard: bool) -> bytes:
        found = _is_payload(file.name)
        assert found
        with ownership.opened(file) as opened:
            return await self.take(Raw(opened.read(LONGEST_PAYLOAD + 1)), found["source"], is_heard)

    async def take(self, payload: Raw, source: str, is_heard: bool = True) -> bytes:
        """What a payload of a program of this user changes; what the program is told. Raises `Fault`."""
        hook, told = _find(_text(_members(payload).get("hook_event_name"))), _adapted(payload, source)
        change = await self._change(hook, told, source, Client(THE_OPERATOR), "", is_heard)
        return _printed(change) if HOOKS[hook] is _start else NOTHING


NOTHING = b"{}"
_is_payload = re.compile(r"[0-9]{20}-[0-9]{1,10}-(?P<source>[a-z0-9-]{1,32})\.json").fullmatch


@contextmanager
def _alone(folder: Path) -> Generator[bool]:
    """Whether this process alone reads the folder."""
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(lock)


def _find(hook_type: str) -> str:
    """The name of a hook as HOOKS has it. Raises `Fault`."""
    found = _BY_LETTERS.get(re.sub(r"[-_ ]", "", hook_type[:LONGEST_ID]).lower())
    if found is None:
        raise Fault(
            "INVALID_ARGS",
            f"Invalid arguments: unknown hook type {hook_type[:LONGEST_ID]!r}",
            reach="not_sent",
            extra={"available_types": list(HOOKS)},
        )
    return found


def _source(source: str) -> str:
    """A program as records have it: "Codex" → "codex"."""
    name = re.sub(r"[^a-z0-9]+", "-", source[: 2 * LONGEST_SOURCE].lower()).strip("-")[:LONGEST_SOURCE]
    return _SOURCES.get(name, name) or "mcp"


def _members(raw: Raw) -> Mapping[str, Raw]:
    """Raises `Fault`."""
    try:
        return jsonrpc.members(raw)
    except jsonrpc.UNREADABLE as error:
        raise Fault("INVALID_ARGS", f"Invalid arguments: the payload must be an object: {error}") from None


def _text(raw: Raw | None) -> str:
    """A text; what is none says nothing."""
    try:
        return jsonrpc.read(raw, type=str) if raw else ""
    except jsonrpc.UNREADABLE:
        return ""


def _adapted(raw: Raw, source: str) -> Payload:
    """Raises `Fault`."""
    members, names = _members(raw), ADAPTERS.get(_source(source), _MEMBERS)
    told = {name: _text(members.get(member)) for name, member in names.items()}
    prompt = told["prompt"]
    added = _added.match(prompt, 0, 4 * LONGEST_QUOTED)
    return Payload(
        session_id=told["session_id"],
        cwd=absolute(told["cwd"]),
        transcript_path=absolute(told["transcript_path"]),
        model=_kept(told["model"], LONGEST_MODEL),
        began_by=told["began_by"],
        parent=told["parent"][:LONGEST_ID],
        prompt=_kept(prompt[added.end() :] if added else prompt, LONGEST_PROMPT),
        reply=_kept(told["reply"], LONGEST_REPLY),
        summary=_kept(told["summary"], LONGEST_REPLY),
    )


def _kept(text: str, most: int) -> str:
    """A text as records have it: its beginning, without secrets that are known or look like some, and of what is not
    printed only the ends of lines."""
    clean = quoted(text, most + 1).replace("\r\n", "\n")
    shown = "".join(each for each in clean if each.isprintable() or each in "\n\t").strip()
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _said(hook: str, change: Change, now: str) -> Mapping[str, Any]:
    record, restored = change.record, change.restored
    said: dict[str, Any] = {
        "success": True,
        "hook_type": hook,
        "session_id": record.shown_id,
        "status": sessions.shown_status(record, now),
        "title": record.title or None,
        "parent_session_id": record.parent_id and sessions.shown_id(record.principal, record.parent_id),
        "project_id": record.project_id or None,
    }
    if HOOKS[hook] is _start:
        handed = restored and {"session_id": restored.shown_id, "title": restored.title, "summary": restored.summary}
        said |= {"is_new": change.is_new, "restored": handed or None}
    if HOOKS[hook] in (_end, _summarize):
        said["summary"] = record.summary
    return said


def _printed(change: Change) -> bytes:
    """What the hook of a session's start prints so that its model sees it. Claude Code, Codex and Gemini CLI take the
    same form."""
    lines = [f"The id of this session, for tools that ask for a `session_id`: {change.record.shown_id}"]
    if change.restored and change.restored.summary:
        lines += ["An earlier session in this project has left this:", "", change.restored.summary]
    shown = {"hookEventName": "SessionStart", "additionalContext": "\n".join(lines)}
    return jsonrpc.encode({"hookSpecificOutput": shown})
