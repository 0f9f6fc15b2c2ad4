"""Codex for the clients of the gateway: a prompt, its threads, and what it may do (behaviour.md, "004 daemon tools").

The rules this file keeps: a call says at most what `codex.most` says, and what it leaves out is the narrower of that
and Codex's usual mode; each turn is told in full what it may do, whatever its thread or Codex's own configuration says;
the folder of a thread is named by programs on this machine only, and is the one that was asked about; and a turn that
nobody waits for any more is interrupted, if need be with the process that runs it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from toolgate.config import Config, Server
from toolgate.config.settings import APPROVAL_POLICIES, SANDBOXES
from toolgate.config.settings import Codex as Settings
from toolgate.core import jsonrpc
from toolgate.core.background import BackgroundTasks
from toolgate.core.fault import Fault
from toolgate.core.model import Answer, Principal
from toolgate.core.redaction import excerpt
from toolgate.core.services import Swap
from toolgate.state.base import Connection as Tables
from toolgate.upstreams.inprocess.tools import Object, ToolContext
from toolgate.upstreams.links import LinkDeps, MakeLink
from toolgate.workspace import codex_folder, codex_said, sessions
from toolgate.workspace.codex_folder import Folder, invalid
from toolgate.workspace.codex_server import CodexError, CodexServer, Connection, over_stdio
from toolgate.workspace.codex_turn import LONGEST_SHOWN, Turn
from toolgate.workspace.workspace import Workspace

log = logging.getLogger(__name__)

NAME = "codex app-server"  # of the process, which no server can have: it is no id
LONGEST_PROMPT = 48 * 1024  # characters; a person may have to read it
LONGEST_MODEL = 200  # characters
LONGEST_FOLDER = 4096  # characters
LONGEST_CURSOR = 2048  # characters
MOST_TURNS = 8  # at the same time, of all clients
MOST_FOLDERS = 1000  # threads of which it is known where they were run
PATIENCE = 10.0  # seconds that Codex has to interrupt a turn, and to answer what is not a turn: six times that
_SOURCES = ("cli", "vscode", "exec", "appServer")
_thread_id = re.compile(r"[0-9a-fA-F-]{8,64}")
_NOT_THERE = ("not found", "no rollout", "invalid session id", "invalid thread id")

Value = TypeVar("Value")


class Prompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of `codex` as it will be made, with all that it may do: what a person is shown who decides on it."""

    prompt: str
    cwd: str
    sandbox: str
    approval_policy: str
    thread_id: str = ""
    model: str = ""


class Caller(msgspec.Struct, frozen=True):
    """Who calls, as far as it matters here. `is_here`: a program on this machine, or an administrator; it may name
    folders. `decides`: what its user says counts, where Codex asks for more."""

    principal: Principal = Principal()
    is_here: bool = False
    decides: bool = False


class _Thread(msgspec.Struct, rename="camel"):
    id: Raw
    preview: Raw = jsonrpc.NOTHING
    name: Raw = jsonrpc.NOTHING
    cwd: Raw = jsonrpc.NOTHING
    model: Raw = jsonrpc.NOTHING
    created_at: float = 0
    updated_at: float = 0
    source: Raw = jsonrpc.NOTHING


class _Threads(msgspec.Struct, rename="camel"):
    data: Raw = jsonrpc.NOTHING
    next_cursor: Raw = jsonrpc.NOTHING


class _Id(msgspec.Struct):
    id: Raw


class _OfThread(msgspec.Struct):
    thread: _Id


class _Begun(msgspec.Struct):
    turn: _Id


class Codex:
    """`folder` is where a prompt runs that names no folder. `links` may have another link for `NAME`."""

    def __init__(
        self,
        workspace: Workspace,
        deps: LinkDeps,
        config: Config,
        environ: Mapping[str, str],
        folder: Path,
        links: Mapping[str, MakeLink],
    ) -> None:
        self.folder = os.path.realpath(folder)
        self._workspace = workspace
        self._deps = deps
        self._clock = deps.clock
        self._environ = environ
        self._make = links.get(NAME)
        self._folders: OrderedDict[str, str] = OrderedDict()  # by thread
        self._busy: set[str] = set()  # threads
        self._turns = 0
        self._interrupting = BackgroundTasks()
        self._retired: set[CodexServer] = set()
        self.settings, self._idle = config.codex, config.pool.idle
        self._server: CodexServer | None = None

    def prepared(self, config: Config) -> Swap:
        wanted = self._wanted(config.codex)

        def swap() -> None:
            self.settings, self._idle = config.codex, config.pool.idle
            if self._server and self._server.server != wanted:
                self._server.retire()
                self._retired = {each for each in (*self._retired, self._server) if not each.has_ended}
                self._server = None

        return swap

    def _wanted(self, settings: Settings) -> Server:
        home = self._environ.get("CODEX_HOME")
        env = {"CODEX_HOME": home} if home else {}
        command, args = settings.command, ("app-server",)
        return Server(id="codex", name=NAME, type="stdio", command=command, args=args, env=env, cwd=self.folder)

    def is_offered(self, settings: Settings) -> bool:
        """Whether it is enabled, and there."""
        return settings.enabled and (self._make is not None or self._found(settings.command))

    def _found(self, command: str) -> bool:
        if shutil.which(command, path=self._environ.get("PATH")):
            return True
        log.warning(
            "codex.enabled is true, but %s was not found, so its tools are not offered; "
            "install it, or set codex.command",
            command,
        )
        return False

    # What is asked for.

    def prompt(self, given: Mapping[str, Any], caller: Caller) -> Prompt:
        """The arguments of `codex` with all that they leave out; `cwd` as it is named. Raises `Fault`."""
        thread = given.get("thread_id", "")
        if thread:
            _check_thread(thread)
        text, model = given["prompt"], given.get("model", "")
        if not text.strip() or len(text) > LONGEST_PROMPT:
            raise invalid(f"`prompt` must have 1 to {LONGEST_PROMPT:,} characters")
        if len(model) > LONGEST_MODEL or model.startswith("-") or not model.isprintable():
            raise invalid(f"`model` must be the name of a model, of at most {LONGEST_MODEL} characters")
        most = self.settings.most
        return Prompt(
            prompt=text,
            cwd=self._named(given.get("cwd", ""), thread, caller),
            sandbox=_within("sandbox", given.get("sandbox", ""), SANDBOXES, most.sandbox, "workspace-write"),
            approval_policy=_within(
                "approval_policy",
                given.get("approval_policy", ""),
                APPROVAL_POLICIES,
                most.approval_policy,
                "on-request",
            ),
            thread_id=thread,
            model=model,
        )

    def _named(self, named: str, thread: str, caller: Caller) -> str:
        named = named or (caller.is_here and self._folders.get(thread)) or self.folder
        if not caller.is_here and named != self.folder:
            message = "Access denied: only a program on the gateway's machine may name a folder"
            raise Fault("ACCESS_DENIED", message, reach="not_sent", hint="leave `cwd` out")
        if len(named) > LONGEST_FOLDER or not os.path.isabs(named) or "\0" in named:
            raise invalid("`cwd` must be an absolute path")
        return named

    async def folder_at(self, named: str, caller: Caller) -> Folder:
        """What a path leads to that `prompt` took. Raises `Fault`."""
        return await self._in_thread(named, caller, partial(codex_folder.found, named))

    async def _check_same(self, asked: Folder, caller: Caller) -> None:
        await self._in_thread(asked.cwd, caller, partial(codex_folder.check_same, asked))

    async def _in_thread(self, folder: str, caller: Caller, work: Callable[[], Value]) -> Value:
        return await self._workspace.folders.in_thread(caller.principal.counted_as, Path(folder), work)

    def check_offered(self, tool: str) -> None:
        """Raises `Fault` where another configuration has turned it off meanwhile."""
        if not self.settings.enabled:
            hint = "the operator enables it with codex.enabled = true"
            raise Fault("TOOL_NOT_FOUND", f"Tool not found: {tool}", reach="not_sent", hint=hint)

    # What is done.

    async def answer(self, tool: str, given: Mapping[str, Any], context: ToolContext, caller: Caller) -> Object:
        """What comes of a call of one of its tools, with arguments that fit its schema. Raises `Fault`."""
        self.check_offered(tool)
        if tool == "codex":
            return await self.run(given, context, caller)
        return await (self.list_threads(given) if tool == "codex_list_threads" else self.retire(given))

    async def run(self, given: Mapping[str, Any], context: ToolContext, caller: Caller) -> Object:
        """One turn, to its end: `{success, thread_id, turn_id, status, result, items, ...}`. Raises `Fault`."""
        prompt = self.prompt(given, caller)
        cwd = prompt.cwd
        asked = await self._in_thread(cwd, caller, partial(codex_folder.asked_about, context.call, cwd))
        await self._check_same(asked, caller)
        if self._turns >= MOST_TURNS:
            message = f"Codex is busy: {MOST_TURNS} prompts are running"
            raise Fault("RATE_LIMITED", message, reach="not_sent", hint="try again when one has ended")
        self._turns += 1
        try:
            async with self._clock.timeout(self.settings.timeout), self._used() as connection:
                await self._check_same(asked, caller)  # Codex may have had to start
                return await self._run(prompt, asked, context, caller, connection)
        except TimeoutError:
            message = f"Codex did not finish within {self.settings.timeout:g} s and was interrupted (codex.timeout)"
            raise Fault("TIMEOUT", message, reach="executed") from None
        finally:
            self._turns -= 1

    async def _run(
        self, prompt: Prompt, asked: Folder, context: ToolContext, caller: Caller, connection: Connection
    ) -> Object:
        if prompt.thread_id in self._busy:
            message = f"Thread {prompt.thread_id} is working on another prompt"
            raise Fault("RATE_LIMITED", message, reach="not_sent", hint="wait until it has ended")
        thread = await self._thread(prompt, connection)
        if thread in self._busy:
            raise Fault(
                "RATE_LIMITED",
                f"Thread {thread} is working on another prompt",
                reach="not_sent",
                hint="wait until it has ended",
            )
        self._folders[thread] = prompt.cwd
        self._folders.move_to_end(thread)
        while len(self._folders) > MOST_FOLDERS:
            self._folders.popitem(last=False)

        async def ask(form: dict[str, Any]) -> Answer:
            return await context.ask("elicitation/create", form)

        turn = Turn(lambda step, line: context.progress(step, message=line), ask if caller.decides else None)
        begun: asyncio.Future[Raw] | None = None
        is_over = False
        self._busy.add(thread)
        connection.turns[thread] = turn
        try:
            session = await self._noted(thread, prompt, caller)
            await self._check_same(asked, caller)
            begun = asyncio.ensure_future(connection.request("turn/start", _turn_start(thread, prompt)))
            turn_id = _read(await _asked("turn/start", asyncio.shield(begun)), _turn_id)
            ended = await asyncio.shield(turn.over)
            is_over = True
        except Fault:
            is_over = True  # it ended otherwise, or never began
            raise
        finally:
            turn.give_up()
            if is_over or begun is None:
                await self._let_go(thread, turn, connection)
            else:
                self._interrupting.start(self._interrupted(thread, turn, connection, begun), "interrupt Codex")
        await self._noted(thread, prompt, caller, turn.result)
        if ended.status != "completed":
            why = excerpt(ended.why or ended.status or "it did not say why", 2000)
            hint = f"continue the thread with thread_id = {thread}"
            raise Fault("UPSTREAM_ERROR", f"Codex did not finish: {why}", reach="executed", hint=hint)
        return {
            "success": True,
            "thread_id": thread,
            "turn_id": turn_id,
            "status": ended.status,
            "result": turn.result,
            "items": turn.items,
            **({"items_left_out": turn.left_out} if turn.left_out else {}),
            **({"declined": turn.declined} if turn.declined else {}),
            "cwd": prompt.cwd,
            "sandbox": prompt.sandbox,
            "approval_policy": prompt.approval_policy,
            **({"session_id": session} if session else {}),
        }

    async def _thread(self, prompt: Prompt, connection: Connection) -> str:
        """The id of the thread that the prompt is of, which is loaded then."""
        about = {
            "cwd": prompt.cwd,
            "sandbox": prompt.sandbox,
            "approvalPolicy": prompt.approval_policy,
            "approvalsReviewer": "user",
            **({"model": prompt.model} if prompt.model else {}),
        }
        if not prompt.thread_id:
            return _read(await _asked("thread/start", connection.request("thread/start", about)), _thread_id_of)
        resume = {"threadId": prompt.thread_id, "excludeTurns": True, **about}
        asked = _asked("thread/resume", connection.request("thread/resume", resume), prompt.thread_id)
        return _read(await asked, _thread_id_of)

    async def _interrupted(self, thread: str, turn: Turn, connection: Connection, begun: asyncio.Future[Raw]) -> None:
        """End a turn that nobody waits for. Where Codex does not, its process is ended, with all that it runs."""
        try:
            async with self._clock.timeout(PATIENCE):
                turn_id = _read(await begun, _turn_id)
                await connection.request("turn/interrupt", {"threadId": thread, "turnId": turn_id})
                await turn.over
        except CodexError:
            if not (begun.done() and begun.exception()):  # else it never began
                await self._outlasted(turn, connection)
        except (Fault, TimeoutError):
            await self._outlasted(turn, connection)
        finally:
            await self._let_go(thread, turn, connection)

    async def _outlasted(self, turn: Turn, connection: Connection) -> None:
        if not turn.over.done() and not connection.fault:
            log.error("Codex did not interrupt a turn; stopping its process")
            await connection.close()

    async def _let_go(self, thread: str, turn: Turn, connection: Connection) -> None:
        self._busy.discard(thread)
        connection.turns.pop(thread, None)
        if turn.over.done() and not turn.over.cancelled():
            turn.over.exception()  # somebody has looked
        await turn.close()
        self._interrupting.start(_unsubscribed(thread, connection, self._clock.timeout(PATIENCE)), "unload a thread")

    async def list_threads(self, given: Mapping[str, Any]) -> Object:
        """A page of threads, the newest first: `{success, threads, next_cursor}`. Raises `Fault`."""
        cursor = given.get("cursor", "")
        if len(cursor) > LONGEST_CURSOR:
            raise invalid("`cursor` must be the `next_cursor` of the previous page")
        about: dict[str, Any] = {"limit": given.get("limit", 20), "archived": False, "sourceKinds": _SOURCES}
        about |= {"cursor": cursor} if cursor else {}
        answer = await self._once("thread/list", about)
        return _read(answer, lambda raw: _page(raw, about["limit"]))

    async def retire(self, given: Mapping[str, Any]) -> Object:
        """Archive a thread: `{success, thread_id, archived}`. Raises `Fault`."""
        thread = given["thread_id"]
        _check_thread(thread)
        if thread in self._busy:
            raise Fault(
                "RATE_LIMITED",
                f"Thread {thread} is working on a prompt",
                reach="not_sent",
                hint="wait until it has ended",
            )
        await self._once("thread/archive", {"threadId": thread}, thread)
        self._folders.pop(thread, None)
        return {"success": True, "thread_id": thread, "archived": True}

    async def _once(self, method: str, params: Any, thread: str = "") -> Raw:
        try:
            async with self._clock.timeout(6 * PATIENCE), self._used() as connection:
                return await _asked(method, connection.request(method, params), thread)
        except TimeoutError:
            raise Fault(
                "TIMEOUT", f"Codex did not answer {method} within {6 * PATIENCE:g} s", reach="sent_unknown"
            ) from None

    @asynccontextmanager
    async def _used(self) -> AsyncGenerator[Connection]:
        if self._server is None:
            self._server = CodexServer(self._wanted(self.settings), self._make or over_stdio, self._deps, self._idle)
        async with self._server.used() as connection:
            yield connection

    async def close(self) -> None:
        for server in (*self._retired, *([self._server] if self._server else [])):
            await server.close()
        await self._interrupting.close()

    # The session record of a thread.

    async def _noted(self, thread: str, prompt: Prompt, caller: Caller, reply: str | None = None) -> str:
        """Say in the record of its session that a turn begins, or with a `reply` that it has ended. The id of the
        record; empty where the tables cannot be used, which hinders no prompt."""
        sign = self._workspace.sign(caller.principal, thread, "codex")
        sign.cwd = prompt.cwd
        sign.project_id, sign.place = await self._workspace.project_id_and_place(prompt.cwd, caller.principal)
        sign.model = prompt.model

        def work(tables: Tables) -> str:
            record, _ = sessions.seen(tables, sign)
            if reply is None:
                sessions.prompted(record, excerpt(prompt.prompt, sessions.LONGEST_PROMPT))
            else:
                sessions.stopped(record, excerpt(reply, sessions.LONGEST_REPLY))
            return sessions.put(tables, record).shown_id

        try:
            return await self._workspace.transact(work, whose=caller.principal.counted_as)
        except Fault as fault:
            log.warning("no session record was written for a thread of Codex: %s", fault.message)
            return ""


def _turn_start(thread: str, prompt: Prompt) -> Object:
    """A turn with all that it may do: a thread that is loaded already keeps what it had before."""
    return {
        "threadId": thread,
        "input": [{"type": "text", "text": prompt.prompt}],
        "cwd": prompt.cwd,
        "approvalPolicy": prompt.approval_policy,
        "approvalsReviewer": "user",
        "sandboxPolicy": _POLICIES[prompt.sandbox],
        **({"model": prompt.model} if prompt.model else {}),
    }


_POLICIES: Mapping[str, Object] = {
    "read-only": {"type": "readOnly", "networkAccess": False},
    "workspace-write": {"type": "workspaceWrite", "networkAccess": False, "writableRoots": []},
    "danger-full-access": {"type": "dangerFullAccess"},
}


async def _unsubscribed(thread: str, connection: Connection, in_time: Any) -> None:
    """Codex need not keep it in memory."""
    try:
        async with in_time:
            await connection.request("thread/unsubscribe", {"threadId": thread})
    except (CodexError, Fault, TimeoutError) as error:
        log.debug("a thread of Codex was not unloaded: %s", error)


async def _asked(method: str, answer: Awaitable[Raw], thread: str = "") -> Raw:
    """The answer. What Codex refuses is a `Fault`."""
    try:
        return await answer
    except CodexError as error:
        if thread and any(words in str(error) for words in _NOT_THERE):
            hint = "codex_list_threads shows them"
            raise Fault("RESOURCE_NOT_FOUND", f"Thread not found: {thread}", reach="executed", hint=hint) from None
        raise Fault("UPSTREAM_ERROR", f"Codex refused {method}: {error}", reach="executed") from None


def _read(raw: Raw, reader: Callable[[Raw], Value]) -> Value:
    try:
        return reader(raw)
    except jsonrpc.UNREADABLE as error:
        why = excerpt(str(error), LONGEST_SHOWN)
        raise Fault("UPSTREAM_ERROR", f"Codex sent a malformed answer: {why}", reach="executed") from None


def _thread_id_of(raw: Raw) -> str:
    return codex_said.identifier(jsonrpc.read(raw, _OfThread).thread.id)


def _turn_id(raw: Raw) -> str:
    return codex_said.identifier(jsonrpc.read(raw, _Begun).turn.id)


def _page(raw: Raw, most: int) -> Object:
    """What is told of an answer to `thread/list`. A cursor that is longer than a call may have leads nowhere."""
    found = jsonrpc.read(raw, _Threads)
    threads = [_told(jsonrpc.read(each, _Thread)) for each in codex_said.first(found.data, most)]
    cursor = codex_said.text(found.next_cursor, LONGEST_CURSOR + 1)
    return {
        "success": True,
        "threads": threads,
        "next_cursor": cursor if 0 < len(cursor) <= LONGEST_CURSOR else None,
    }


def _told(thread: _Thread) -> Object:
    name, model, source = map(codex_said.text, (thread.name, thread.model, _if_text(thread.source)))
    return {
        "thread_id": codex_said.text(thread.id, 64),
        "name": excerpt(name, LONGEST_SHOWN) or None,
        "preview": excerpt(codex_said.text(thread.preview), LONGEST_SHOWN),
        "cwd": codex_said.text(thread.cwd, LONGEST_FOLDER),
        "model": excerpt(model, LONGEST_MODEL) or None,
        "source": source if 0 < len(source) <= 64 else None,
        "created_at": int(thread.created_at),
        "updated_at": int(thread.updated_at),
    }


def _if_text(raw: Raw) -> Raw:
    return raw if bytes(memoryview(raw)[:1]) == b'"' else jsonrpc.NOTHING


def _check_thread(thread: str) -> None:
    if not _thread_id.fullmatch(thread):
        raise invalid("`thread_id` must be the id of a thread, as `codex` and `codex_list_threads` return it")


def _within(name: str, wanted: str, known: tuple[str, ...], most: str, usual: str) -> str:
    """What is wanted, or the narrower of what is usual and the most. `known` are in order, the narrowest first."""
    if not wanted:
        return min(most, usual, key=known.index)
    if wanted not in known:
        raise invalid(f"`{name}` must be {' or '.join(known)}")
    if known.index(wanted) > known.index(most):
        hint = f"use {' or '.join(known[: known.index(most) + 1])}; the operator sets the most with codex.most"
        raise Fault("ACCESS_DENIED", f"Access denied: `{name}` is at most {most} here", reach="not_sent", hint=hint)
    return wanted
