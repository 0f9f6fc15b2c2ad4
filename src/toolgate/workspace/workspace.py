"""What the tools of the workspace work by: the tables, the time, the configuration, and in whose session and project a
call is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

import msgspec

from toolgate.config import Config
from toolgate.core import jsonrpc
from toolgate.core.bodies import FREE, Bodies, Kept
from toolgate.core.clock import Clock
from toolgate.core.concurrency import FairLimit, OneEach
from toolgate.core.fault import Fault
from toolgate.core.model import Answer, Client, Principal
from toolgate.core.services import Swap, sets
from toolgate.state.base import Connection, NotKept, Result, Store, Subject, Work
from toolgate.upstreams.inprocess.tools import EncodedResult, Object, ToolContext, text
from toolgate.workspace import git_head, sessions, tasks
from toolgate.workspace.folders import Folders
from toolgate.workspace.projects import Project, project_of
from toolgate.workspace.sessions import Caller, Record

MOST_BOUND = 10_000  # sessions of clients whose record and roots are remembered
MOST_PROJECTS = 64  # whose files are kept up to date: those that calls were in last
MOST_NAMED = 16 * MOST_PROJECTS  # until the files of those beyond have been written
LONGEST_PATH = 4096  # characters
MOST_ROOTS = 20  # of a client that are looked at
LARGEST_ROOTS = 8 * 1024  # bytes of them that are kept: the first ones
READS = 2  # at once, one of each principal
WRITES = 4  # that are with the store at once: so many are before another principal's
MOST_WAITING = 1000  # reads, and as many writes, of one principal
PATIENCE = 10.0  # seconds that a client has to say what its roots are

LARGEST_ANSWER = 3 * tasks.MOST_BYTES  # it stands there as JSON, and as a text in which each quote is two characters

Value = TypeVar("Value")
Identity = tuple[str, str]
"""A principal and its MCP session."""


class Workspace:
    """`folder` is where the gateway was started; `results` are on their way to clients."""

    def __init__(self, store: Store, clock: Clock, config: Config, folder: Path, results: Bodies | None = None) -> None:
        self.config = config.tasks
        self.store = store
        self.clock = clock
        self.projects: dict[Path, Project] = {}  # those that calls were in, by their folder
        self.syncs: dict[Path, str] = {}  # how far those are that run now, in words, by the same
        self.turns_at_files: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()  # by the same
        self.on_project: Callable[[], object] = lambda: None  # another one
        self.folders = Folders(clock, folder)  # that clients name
        self.files = Folders(clock)  # of projects: each project is as a principal there
        self._folder = folder
        self._results = results or Bodies()
        self._reads = OneEach(READS, most=MOST_WAITING, what="reads of tasks and sessions")
        self._writes = FairLimit(WRITES, most=MOST_WAITING, what="changes of tasks and sessions")
        self._bound: dict[Identity, str] = {}  # ids of records by the session of a client
        self._roots: dict[Identity, tuple[str, ...]] = {}  # folders, by the same
        self.note(project_of(folder))

    def prepared(self, config: Config) -> Swap:
        return sets(self, config=config.tasks)

    def now(self) -> str:
        """The time as the tables have it: UTC, `2026-11-24T08:30:00.000000Z`."""
        return datetime.fromtimestamp(self.clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    async def query(self, work: Work[Result], whose: str = "") -> Result:
        """As `Store.query`; principals (`Principal.counted_as`, empty for the gateway itself) take turns. Raises
        `Fault` where the tables cannot be used, and RATE_LIMITED where `MOST_WAITING` of the same principal wait."""
        try:
            return await self._reads.during(whose, lambda: self.store.query(work))
        except NotKept as error:
            raise _unusable(error) from None

    async def transact(self, work: Work[Result], *tells: Subject, whose: str = "") -> Result:
        """As `Store.transact`, and otherwise as `query`. `work` is short: it keeps all others from writing."""
        try:
            return await self._writes.during(whose, lambda: self.store.transact(work, *tells))
        except NotKept as error:
            raise _unusable(error) from None

    async def answered(self, context: ToolContext, work: Work[Object]) -> EncodedResult:
        """What a tool answers that reads much: written where it is read, and counted until its client has it. `work`
        bounds what it finds (`tasks.AnswerSize`). Raises as `query` does, and what `work` raises."""
        whose = context.client.principal.counted_as
        kept = Kept(self._results.begun(whose))
        if not kept.body.has(LARGEST_ANSWER):
            await kept.body.room()
        body = await self.query(lambda connection: _written(work(connection)), whose)
        kept.body.ended()
        if len(body) <= FREE:
            return EncodedResult(body)
        kept.body.has(len(body))
        return EncodedResult(body, kept)

    def note(self, project: Project | None) -> Project | None:
        """Its file of tasks is kept up to date from now on."""
        if project:
            before = self.projects.pop(project.folder, None)
            if before or len(self.projects) < MOST_NAMED:
                self.projects[project.folder] = project  # the last one now
            if before != project:
                self.on_project()
        return project

    # Whose session and project a call is in (behaviour.md, "004 daemon tools").

    def sign(self, principal: Principal, session_id: str, source: str = "mcp") -> Record:
        """What is known of a session by a call that names it, to be filled in. See `sessions.seen`."""
        now = self.now()
        return Record(
            id="",
            external_id=session_id,
            machine=os.uname().nodename,
            source=source,
            principal=sessions.whose(principal),
            created_at=now,
            updated_at=now,
        )

    def bind(self, context: ToolContext, record: str | None) -> None:
        """From now on the calls of this MCP session belong to this record: one of them has named it. Calls without a
        session are told apart by nothing, so they bind none."""
        if record:
            _remember(self._bound, context.client, record)

    def bind_shown(self, context: ToolContext, shown: str | None) -> None:
        """The same, by what the client knows the record by."""
        self.bind(context, shown and sessions.id_of(sessions.whose(context.client.principal), shown))

    async def caller(self, context: ToolContext, named: str | None = None) -> Caller:
        """`named` is the session that the call names. If it is known, this very call belongs to its record, and is in
        its project."""
        if named and context.client.session:
            whose = sessions.whose(context.client.principal)
            known = await self.query(
                lambda connection: sessions.find(connection, whose, named), context.client.principal.counted_as
            )
            self.bind(context, known and known.id)
        record, folder, project = await self._place(context)
        sign = self.sign(context.client.principal, "")
        sign.cwd, sign.project_id = folder, project.id if project else ""
        sign.place = await self._place_of(folder, context.client.principal)
        return Caller(sign, record.id if record else None)

    async def record(self, context: ToolContext) -> Record | None:
        """The record that a call belongs to without naming it."""
        caller, now = await self.caller(context), self.now()

        def work(connection: Connection) -> Record | None:
            id = caller.session(connection, None, now)
            return sessions.get(connection, id) if id else None

        return await self.query(work, context.client.principal.counted_as)

    async def project(self, context: ToolContext) -> Project | None:
        """The project that a call is in: that of the folder that the operator named for it, of the record that its
        session is bound to, of its client's first root that is in one, or of the folder where the gateway was
        started."""
        return self.note((await self._place(context))[2])

    async def folder(self, context: ToolContext) -> str:
        """The folder that a client works in, as far as is known; empty for one that is not on this machine."""
        return (await self._place(context))[1]

    async def _place(self, context: ToolContext) -> tuple[Record | None, str, Project | None]:
        """The record that a call's session is bound to, the folder that it comes from, and its project."""
        id = self._bound.get(context.client.identity)
        whose = context.client.principal.counted_as
        record = await self.query(lambda connection: sessions.get(connection, id), whose) if id else None
        roots = await self._roots_of(context)
        is_here = sessions.is_on_this_machine(context.client.principal)
        folder = "" if not is_here else roots[0] if roots else str(self._folder)
        for each in (context.call.folder, record.cwd if record else "", *roots):
            if each and (project := await self._project_of(each, context.client.principal)):
                return record, folder, self.note(project)
        return record, folder, self.note(project_of(self._folder))

    async def project_id_and_place(self, folder: str, by: Principal) -> tuple[str, str]:
        """The id of the project that a folder is in, that where the gateway was started for an empty one, empty where
        it is in none; and where the sessions of this folder leave handoffs, empty for an empty one. `by` named it."""
        project = await self._project_of(folder or str(self._folder), by)
        return project.id if project else "", await self._place_of(folder, by)

    async def _place_of(self, folder: str, by: Principal) -> str:
        if not folder:
            return ""
        path = Path(folder)
        return await self.folders.in_thread(by.counted_as, path, partial(place_of, path))

    async def _project_of(self, folder: str, by: Principal) -> Project | None:
        path = Path(folder)
        if path == self._folder:
            return project_of(path)
        return await self.folders.in_thread(by.counted_as, path, partial(project_of, path))

    async def _roots_of(self, context: ToolContext) -> tuple[str, ...]:
        """The folders of this machine that a client names as its roots; it is asked once in a session. One without a
        session is asked each time: nothing tells it from the next."""
        client = context.client
        if "roots" not in client.capabilities or not sessions.is_on_this_machine(client.principal):
            return ()
        known = self._roots.get(client.identity)
        if known is None:
            try:
                async with self.clock.timeout(PATIENCE):
                    known = _folders(await context.ask("roots/list", {}))
            except TimeoutError:
                known = ()
            _remember(self._roots, client, known)
        return known

    def roots_changed(self, client: Client) -> None:
        """It is asked again."""
        self._roots.pop(client.identity, None)

    def forget(self, client: Client) -> None:
        """Its session is over."""
        self._roots.pop(client.identity, None)
        self._bound.pop(client.identity, None)


def _written(said: Object) -> bytes:
    return jsonrpc.encode(text(jsonrpc.encode(said).decode(), structuredContent=said))


def place_of(folder: Path) -> str:
    """Where the sessions of an absolute folder leave what they hand over: the same for all that is below its project,
    and for the worktrees of one repository; for a folder in no project that folder. A project's id is in a file that
    others may copy; what this says is not for them to choose. It reads files, which may take a while."""
    project = project_of(folder)
    named = project.folder if project else folder
    try:
        real = Path(os.path.realpath(named))
    except OSError:  # a link that we may not read
        return os.path.normpath(named)
    try:
        checkout = git_head.checkout_of(real) if project else None
    except (OSError, ValueError):
        checkout = None
    if checkout is None:
        return str(real)
    top, shared = checkout
    return f"{shared}:{real.relative_to(top)}"


def absolute(path: str) -> str:
    """A path that a client names, as records have it; empty for what is none."""
    is_path = os.path.isabs(path) and len(path) <= LONGEST_PATH and path.isprintable()
    return os.path.normpath(path) if is_path else ""


class _Root(msgspec.Struct):
    uri: str = ""


class _Roots(msgspec.Struct):
    roots: list[_Root] = []


def _folders(answer: Answer) -> tuple[str, ...]:
    """Of an answer to `roots/list`; none of one that is out of shape."""
    try:
        roots = jsonrpc.read(answer.result or b"{}", type=_Roots).roots[:MOST_ROOTS]
        urls = [urlsplit(root.uri) for root in roots if len(root.uri) <= 3 * LONGEST_PATH]
    except (ValueError, *jsonrpc.UNREADABLE):
        return ()
    found = [folder for url in urls if url.scheme == "file" and (folder := absolute(unquote(url.path)))]
    ends = accumulate(len(folder.encode(errors="replace")) for folder in found)
    return tuple(folder for folder, end in zip(found, ends, strict=True) if end <= LARGEST_ROOTS)


def _remember(known: dict[Identity, Value], client: Client, value: Value) -> None:
    if client.session:
        known.pop(client.identity, None)
        known[client.identity] = value
        while len(known) > MOST_BOUND:
            del known[next(iter(known))]


def _unusable(error: NotKept) -> Fault:
    return Fault("SERVER_FAILED", f"Tasks and sessions cannot be used: {error}", reach="not_sent")
