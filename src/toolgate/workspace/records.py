"""Session records: the sessions of coding agents, to which tasks are linked.

A session is named by the id of its record, or by the id that its own program gives it. One that is not known is
registered on the fly.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from toolgate.state.base import Connection

SessionId = Annotated[str, Meta(description="The id of your session", min_length=1, max_length=200)]


def find_session(connection: Connection, id: str) -> str | None:
    """The id of the record that this means; None where there is none."""
    row = connection.execute("SELECT id FROM session_record WHERE id = ?", (id,)).fetchone()
    row = (
        row
        or connection.execute(
            "SELECT id FROM session_record WHERE external_id = ? ORDER BY updated_at DESC, id LIMIT 1", (id,)
        ).fetchone()
    )
    return row[0] if row else None


_INSERT = """
    INSERT INTO session_record (id, external_id, machine, source, project_id, principal, cwd, status, title, model,
        transcript_path, first_prompt, last_prompt, last_reply, prompts, summary, created_at, updated_at)
    VALUES (?, ?, '', '', ?, ?, ?, 'active', '', '', '', '', '', '', 0, '', ?, ?)
"""


def ensure_session(
    connection: Connection, id: str, now: str, *, project_id: str = "", principal: str = "", cwd: str = ""
) -> str:
    """The id of the record that this means. Where there is none, one is made that has it as its own."""
    found = find_session(connection, id)
    if found is None:
        connection.execute(_INSERT, (id, id, project_id, principal, cwd, now, now))
    return found or id


def only_active(connection: Connection, principal: str, cwd: str) -> str | None:
    """The one active session of a principal in a folder; of two it is neither."""
    sql = "SELECT id FROM session_record WHERE principal = ? AND cwd = ? AND status = 'active' LIMIT 2"
    found = connection.execute(sql, (principal, cwd)).fetchall()
    return found[0][0] if len(found) == 1 else None


class Caller(msgspec.Struct, frozen=True):
    """Where a call comes from. `bound` is the record that its MCP session has named before."""

    principal: str
    project_id: str
    cwd: str
    bound: str | None = None

    def session(self, connection: Connection, named: str | None, now: str) -> str | None:
        """The record that a call belongs to: the one that it names, else its caller's."""
        if named:
            more = {"project_id": self.project_id, "principal": self.principal, "cwd": self.cwd}
            return ensure_session(connection, named, now, **more)
        return self.bound or only_active(connection, self.principal, self.cwd)
