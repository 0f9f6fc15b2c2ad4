"""What coding agents do, as the admin API shows it: the board of tasks, and the records of sessions.

The rules this file keeps: of tasks is shown what the same person could read with the tools; and of sessions, which are
their principals' alone, those of who asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from toolgate.core import names
from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.frontends.web import cursors
from toolgate.frontends.web.cursors import Cursor
from toolgate.gateway.gateway import Gateway
from toolgate.state.base import Connection, Result, Work
from toolgate.workspace import board, dependencies, sessions
from toolgate.workspace.sessions import Record
from toolgate.workspace.tasks import Place

MOST_TASKS = 100  # of a column
MOST_SESSIONS = 200


class WantedBoard(msgspec.Struct):
    """Of which project, by its id; null: the first that has tasks. Empty is that of tasks that belong to none. With a
    cursor, the one column that it is of."""

    project: Annotated[str, Meta(max_length=200)] | None = None
    cursor: Cursor = ""


class ProjectShown(msgspec.Struct):
    """A project that has tasks; `folder` is where the gateway knows it, as far as it does."""

    id: str
    folder: str


class Column(msgspec.Struct):
    """Tasks in brief; `next_cursor` is empty where there are no more."""

    title: str
    tasks: tuple[Mapping[str, Any], ...]
    next_cursor: str


class Board(msgspec.Struct):
    project: str
    projects: tuple[ProjectShown, ...]
    columns: Mapping[str, Column]


class _InColumn(msgspec.Struct, frozen=True, array_like=True):
    column: board.Column
    place: Place


class WantedSessions(msgspec.Struct):
    cursor: Cursor = ""


class SessionInBrief(msgspec.Struct):
    """A session of an agent's program; `status` may be `stale`, too."""

    id: str
    title: str
    source: str
    cwd: str
    status: str
    updated_at: str


class Sessions(msgspec.Struct):
    """`next_cursor` is empty where there are no more."""

    sessions: tuple[SessionInBrief, ...]
    next_cursor: str


class _Seen(msgspec.Struct, frozen=True, array_like=True):
    at: str
    id: str


class SessionShown(SessionInBrief, kw_only=True):
    """`summary` is what it hands over, or has."""

    model: str
    prompts: int
    created_at: str
    ended_at: str | None
    parent_id: str
    summary: str


class Agents(NamedTuple):
    gateway: Gateway

    async def board(self, wanted: WantedBoard, by: Principal) -> Board:
        """Raises `Fault`."""
        self._check_may(by, "list_tasks")
        behind: _InColumn | None = cursors.read(wanted.cursor, _InColumn)

        def work(connection: Connection) -> tuple[str, list[str], dict[board.Column, dict[str, Any]]]:
            known = board.projects(connection)
            chosen = (known[0] if known else "") if wanted.project is None else wanted.project
            if behind:
                name, place = behind.column, behind.place
                return chosen, known, {name: board.column(connection, chosen, name, MOST_TASKS, place)}
            return chosen, known, board.columns(connection, chosen, MOST_TASKS)

        chosen, known, columns = await self._query(work, by)
        folders = {each.id: str(folder) for folder, each in self.gateway.workspace.workspace.projects.items()}
        projects = tuple(ProjectShown(id, folders.get(id, "")) for id in known)
        return Board(chosen, projects, {name: _column(name, found) for name, found in columns.items()})

    async def task(self, id: str, by: Principal) -> Mapping[str, Any]:
        """Raises `Fault`."""
        self._check_may(by, "get_task")
        return await self._query(partial(dependencies.whole_task, id=id), by)

    async def sessions(self, wanted: WantedSessions, by: Principal) -> Sessions:
        """The one with the latest sign first. Raises `Fault`."""
        now = self.gateway.workspace.workspace.now()
        seen: _Seen | None = cursors.read(wanted.cursor, _Seen)
        behind = (seen.at, seen.id) if seen else None
        newest = partial(sessions.newest, principal=sessions.whose(by), limit=MOST_SESSIONS + 1, behind=behind)
        found = await self._query(newest, by)
        shown = tuple(_brief(each, now) for each in found[:MOST_SESSIONS])
        has_more = len(found) > MOST_SESSIONS
        return Sessions(shown, cursors.made(_Seen(shown[-1].updated_at, shown[-1].id)) if has_more else "")

    async def session(self, id: str, by: Principal) -> SessionShown:
        """Raises `Fault`."""

        def work(tables: Connection) -> tuple[Record, str]:
            record = sessions.found(tables, sessions.whose(by), id)
            return record, record.summary or sessions.summary_of(tables, record)

        record, summary = await self._query(work, by)
        brief = msgspec.structs.asdict(_brief(record, self.gateway.workspace.workspace.now()))
        more = {name: getattr(record, name) for name in ("model", "prompts", "created_at", "ended_at")}
        more["parent_id"] = sessions.shown_id(record.principal, record.parent_id or "")
        return SessionShown(
            **brief, **more, summary=summary if self._may(by, "list_tasks") else sessions.without_tasks(summary)
        )

    async def _query(self, work: Work[Result], by: Principal) -> Result:
        return await self.gateway.workspace.workspace.query(work, by.counted_as)

    def _may(self, by: Principal, tool: str) -> bool:
        return self.gateway.access.verdict(by, names.TASKS, "tools", tool) != "off"

    def _check_may(self, by: Principal, tool: str) -> None:
        if not self._may(by, tool):
            raise Fault("ACCESS_DENIED", "Access denied: this client may not use that", reach="not_sent")


def _column(name: board.Column, found: Mapping[str, Any]) -> Column:
    shown = tuple(found["tasks"])
    if not (found["has_more"] and shown):
        return Column(board.TITLES[name], shown, "")
    place = Place(**{field: shown[-1][field] for field in Place.__struct_fields__})
    return Column(board.TITLES[name], shown, cursors.made(_InColumn(name, place)))


def _brief(record: Record, now: str) -> SessionInBrief:
    about = (record.shown_id, record.title, record.source, record.cwd, sessions.shown_status(record, now))
    return SessionInBrief(*about, record.updated_at)
