"""Session records: what coding agents' sessions are, what became of them, and what one hands over to the next.

Functions of a connection to the tables of `state.migrations`. `hooks` says when each of them happens.

The rules this file keeps: a record belongs to one principal, and nobody else finds it, since what it holds is put
before the next session's model; and what is kept of a prompt or a reply is bounded.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from toolgate.auth.access import OPERATOR
from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.state.base import Connection

Status = Literal["active", "paused", "handoff_ready", "ended"]
"""At work; waiting for its user; over, with a summary that no session has taken yet; over."""

STALE = 6 * 3600.0  # seconds without a sign after which a session that never ended counts as stale
LONGEST_ID = 200  # characters of what a program calls its session
SessionId = Annotated[str, Meta(description="The id of your session", min_length=1, max_length=LONGEST_ID)]
LONGEST_TITLE = 80  # characters
LONGEST_PROMPT = 1500  # characters of a prompt that are kept
LONGEST_REPLY = 3000  # characters of a reply that are kept
LONGEST_SUMMARY = 9000  # characters: Claude Code and Codex cut what a hook adds to a session at 10,000
MOST_SUMMARY = 16 * 1024  # bytes of the same
LINKED, GOING_ON = "Tasks of this session", "Tasks in progress"  # heads of the last parts of a summary
MOST_TASKS = 15  # tasks of each kind in a summary
MOST_RECORDS = 10_000  # of one principal; the one without a sign for longest is forgotten first


class Record(msgspec.Struct, kw_only=True):
    """A row of the table `session_record`, its columns in their order. `principal` is that of `whose`. `id` is what
    the program calls its session (`external_id`), with something behind it where its principal has one of this name,
    and behind that which principal it is, but for the operator. `place` is where handoffs are left and taken: see
    `workspace.place_of`."""

    id: str
    external_id: str
    machine: str
    source: str
    project_id: str = ""
    principal: str = ""
    cwd: str = ""
    status: Status = "active"
    title: str = ""
    model: str = ""
    transcript_path: str = ""
    parent_id: str | None = None
    first_prompt: str = ""
    last_prompt: str = ""
    last_reply: str = ""
    prompts: int = 0
    summary: str = ""
    created_at: str
    updated_at: str
    ended_at: str | None = None
    place: str = ""

    @property
    def shown_id(self) -> str:
        """What its principal knows it by."""
        return shown_id(self.principal, self.id)


FIELDS = Record.__struct_fields__
_ALL = ", ".join(FIELDS)
_PUT = (
    f"INSERT INTO session_record ({_ALL}) VALUES ({', '.join('?' * len(FIELDS))}) "
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in FIELDS if name != 'id')}"
)


def is_on_this_machine(principal: Principal) -> bool:
    """Whether the paths that somebody names are of this machine: over a pipe, the operator's socket, or loopback
    without a key. What comes with a key may come from anywhere, through a tunnel too."""
    return principal.client == OPERATOR or principal.is_here


def whose(principal: Principal) -> str:
    """Whose the records are that somebody makes. Empty for the operator: what comes through the folder of hooks, over
    the operator's socket, or over the pipe of a gateway that its own user has started. Who acts as a configured client
    there is that client, as by its key. Who comes over TCP without a key may be any user of the machine, so these are
    others, one for each address; and web pages are not the programs of their address."""
    if principal.client == OPERATOR:
        return ""
    return f"{principal.counted_as} here" if principal.is_here and not principal.client else principal.counted_as


def id_of(principal: str, shown: str) -> str:
    """The id of a record, of what its principal knows it by. Each principal has its own, so that nobody learns by an
    id that is taken which sessions others have."""
    return shown + _mark(principal)


def shown_id(principal: str, id: str) -> str:
    """What a principal knows a record by; of somebody else's, the id itself."""
    return id.removesuffix(_mark(principal))


def _mark(principal: str) -> str:
    return f"@{hashlib.sha256(principal.encode()).hexdigest()[:12]}" if principal else ""


def put(connection: Connection, record: Record) -> Record:
    connection.execute(_PUT, [getattr(record, name) for name in FIELDS])
    return record


def get(connection: Connection, id: str) -> Record | None:
    return _one(connection, "id = ?", (id,))


def find(connection: Connection, principal: str, named: str) -> Record | None:
    """The newest of a principal's that goes by this id, its own or its program's."""
    return _one(
        connection,
        "principal = ? AND (external_id = ? OR id = ?) ORDER BY updated_at DESC LIMIT 1",
        (principal, named, id_of(principal, named)),
    )


def found(connection: Connection, principal: str, named: str) -> Record:
    """The same. Raises `Fault` where there is none."""
    record = find(connection, principal, named)
    if record is None:
        hint = "`toolgate sessions list` shows them"
        raise Fault("RESOURCE_NOT_FOUND", f"Session not found: {named[:LONGEST_ID]}", reach="not_sent", hint=hint)
    return record


def newest(
    connection: Connection,
    principal: str,
    limit: int,
    project_id: str | None = None,
    behind: tuple[str, str] | None = None,
) -> Sequence[Record]:
    """Those of a principal, of one project or of all, the one with the latest sign first; or those behind one that had
    its latest sign then and goes by this id."""
    where, values = "principal = ?", [principal]
    if project_id is not None:
        where, values = f"{where} AND project_id = ?", [*values, project_id]
    if behind is not None:
        seen, shown = behind
        where = f"{where} AND updated_at <= ? AND (updated_at < ? OR id > ?)"
        values += [seen, seen, id_of(principal, shown)]
    return _some(connection, f"{where} ORDER BY updated_at DESC, id LIMIT ?", (*values, limit))


def active_in(connection: Connection, principal: str, cwd: str, now: str) -> Sequence[Record]:
    """The sessions of a principal that are at work in a folder; two where there are more."""
    return _some(
        connection,
        "principal = ? AND cwd = ? AND status = 'active' AND updated_at > ? LIMIT 2",
        (principal, cwd, _before(now, STALE)),
    )


def is_stale(record: Record, now: str) -> bool:
    """Whether it never ended, and has given no sign for long."""
    return record.status in ("active", "paused") and record.updated_at <= _before(now, STALE)


def shown_status(record: Record, now: str) -> str:
    return "stale" if is_stale(record, now) else record.status


def seen(connection: Connection, sign: Record, may_move: bool = True) -> tuple[Record, bool]:
    """The record that a sign of a session is of, with what the sign says of it, and whether it is new. A sign is a
    record of which only what is known is filled in; without `may_move` its folder is a guess, for one that has none.
    One that is new puts its principal's oldest out where there are too many. Raises `Fault`."""
    check_id(sign.external_id)
    where = "principal = ? AND external_id = ? AND machine = ? AND source = ?"
    record = _one(connection, where, (sign.principal, sign.external_id, sign.machine, sign.source))
    is_new = record is None
    if record is None:
        id = id_of(sign.principal, sign.external_id)
        if get(connection, id):
            id = id_of(sign.principal, f"{sign.external_id}-{secrets.token_hex(4)}")
        record = msgspec.structs.replace(sign, id=id)
        _forget_oldest(connection, sign.principal)
    record.model, record.transcript_path = sign.model or record.model, sign.transcript_path or record.transcript_path
    if may_move or not record.cwd:
        record.cwd, record.project_id, record.place = sign.cwd, sign.project_id, sign.place
    record.updated_at = sign.updated_at
    return put(connection, record), is_new


def ensure(connection: Connection, sign: Record) -> Record:
    """The record that a call means by a session's id, whichever program's it is; one that is new where there is
    none. Raises `Fault`."""
    check_id(sign.external_id)
    record = find(connection, sign.principal, sign.external_id)
    if record is None:
        return seen(connection, sign)[0]
    record.updated_at = sign.updated_at
    return put(connection, record)


class Caller(msgspec.Struct, frozen=True):
    """Where a call comes from. `sign` is what is known of a session that it names, but for the id; `bound` is the
    record that its MCP session has named before."""

    sign: Record
    bound: str | None = None

    @property
    def project_id(self) -> str:
        return self.sign.project_id

    @property
    def principal(self) -> str:
        return self.sign.principal

    def shown_id(self, session: str | None) -> str | None:
        """What it knows a record by."""
        return session and shown_id(self.principal, session)

    def session(self, connection: Connection, named: str | None, now: str) -> str | None:
        """The id of the record that a call belongs to: the one that it names, else the one that it is bound to, else
        the only one that its principal has at work in its folder. Raises `Fault`."""
        if named:
            sign = msgspec.structs.replace(self.sign, external_id=named, created_at=now, updated_at=now)
            return ensure(connection, sign).id
        if self.bound:
            return self.bound
        candidates = active_in(connection, self.sign.principal, self.sign.cwd, now)
        return candidates[0].id if len(candidates) == 1 else None


def prompted(record: Record, prompt: str) -> None:
    """Its user has said something. The record is changed in place, and is to be `put`."""
    record.status, record.ended_at = "active", None
    if prompt:
        record.title = record.title or title_of(prompt)
        record.first_prompt = record.first_prompt or prompt
        record.last_prompt = prompt
        record.prompts += 1


def stopped(record: Record, reply: str) -> None:
    """It waits for its user. The record is changed in place, and is to be `put`."""
    record.last_reply = reply or record.last_reply
    if record.status == "active":
        record.status = "paused"


def check_id(id: str) -> None:
    """Raises `Fault` for what no program calls its session."""
    if not 0 < len(id) <= LONGEST_ID or not id.isprintable():
        message = f"Invalid arguments: `session_id` must have 1 to {LONGEST_ID} printable characters"
        raise Fault("INVALID_ARGS", message, reach="not_sent")


def title_of(prompt: str) -> str:
    """A prompt's first line that says something, in at most 80 characters."""
    for line in prompt.splitlines():
        title = " ".join("".join(each if each.isprintable() else " " for each in line).split())
        if title:
            return title if len(title) <= LONGEST_TITLE else title[: LONGEST_TITLE - 1].rstrip() + "…"
    return ""


# What one session hands over to the next.


def take_handoff(connection: Connection, taker: Record) -> Record | None:
    """The newest handoff of the same principal, machine, project and place that no session has taken; now this one
    has. It may be its own, of when it had ended. The project's id alone is no proof: any clone may have copied it."""
    record = _one(
        connection,
        "principal = ? AND project_id = ? AND place = ? AND machine = ? AND status = 'handoff_ready' "
        "ORDER BY updated_at DESC, id LIMIT 1",
        (taker.principal, taker.project_id, taker.place, taker.machine),
    )
    if record is None or record.id == taker.id:
        return record
    taker.parent_id = record.id
    return put(connection, msgspec.structs.replace(record, status="ended"))


def summary_of(connection: Connection, record: Record, said: str = "") -> str:
    """What the next session should know of this one, the same whenever it is made. `said` is what the session itself
    says of that. One that did nothing hands on what it was handed."""
    linked = _tasks(
        connection, "task_session link JOIN task ON task.id = link.task_id WHERE link.session_id = ?", record.id
    )
    if not (record.prompts or linked or said) and record.parent_id and (parent := get(connection, record.parent_id)):
        return parent.summary
    going_on = _tasks(connection, "task WHERE task.project_id = ? AND task.status = 'in_progress'", record.project_id)
    parts = [
        "\n".join(
            [
                f"# Handoff: {record.title or 'a session without a title'}",
                f"Session {record.shown_id} ({record.source}{f', {record.model}' if record.model else ''}) "
                f"in {record.cwd or 'an unknown folder'}, {record.created_at[:16]}Z to {record.updated_at[:16]}Z, "
                f"{record.prompts} prompt{'' if record.prompts == 1 else 's'}.",
            ]
        ),
        _part("Summary", said),
        _part("First prompt", record.first_prompt if record.prompts > 1 else ""),
        _part("Last prompt", record.last_prompt),
        _part("Last reply", record.last_reply),
        _part(LINKED, "\n".join(linked)),
        _part(GOING_ON, "\n".join(each for each in going_on if each not in linked)),
    ]
    return _cut("\n\n".join(part for part in parts if part))


def retold(summary: str, text: str, by: str) -> str:
    """A summary with what a model has made of it, between its head and its tasks."""
    told = without_tasks(summary)
    return _cut(f"{told.partition(chr(10) * 2)[0]}\n\n## Summary, written by {by}\n{text}{summary[len(told) :]}")


def _cut(whole: str) -> str:
    cut = whole if len(whole) <= LONGEST_SUMMARY else whole[: LONGEST_SUMMARY - 1] + "…"
    return cut.encode(errors="replace")[:MOST_SUMMARY].decode(errors="ignore")


def without_tasks(summary: str) -> str:
    """A summary for a session that may not know of tasks, which stand at its end."""
    ends = [at for head in (LINKED, GOING_ON) if (at := summary.find(f"\n\n## {head}\n")) >= 0]
    return summary[: min(ends, default=len(summary))]


def _part(head: str, text: str) -> str:
    return f"## {head}\n{text}" if text else ""


def _tasks(connection: Connection, of: str, value: str) -> list[str]:
    """Tasks in a line each, the most pressing first."""
    rows = connection.execute(
        "SELECT DISTINCT task.id, task.status, task.title, task.status <> 'in_progress' AS later, task.priority "
        f"FROM {of} ORDER BY later, task.priority, task.id LIMIT ?",
        (value, MOST_TASKS + 1),
    ).fetchall()
    lines = [f"- {title_of(id)} [{status}] {title_of(title)}" for id, status, title, *_ in rows[:MOST_TASKS]]
    return [*lines, "- and more"] if len(rows) > MOST_TASKS else lines


# Rows.


def _one(connection: Connection, where: str, values: Sequence[object]) -> Record | None:
    row = connection.execute(f"SELECT {_ALL} FROM session_record WHERE {where}", values).fetchone()
    return _record(row) if row else None


def _some(connection: Connection, where: str, values: Sequence[object]) -> Sequence[Record]:
    return [
        _record(row)
        for row in connection.execute(f"SELECT {_ALL} FROM session_record WHERE {where}", values).fetchall()
    ]


def _record(row: tuple[Any, ...]) -> Record:
    return Record(**dict(zip(FIELDS, row, strict=True)))


def _forget_oldest(connection: Connection, principal: str) -> None:
    """Make room for one more. The links of those that go are links to nothing."""
    [count] = connection.execute("SELECT COUNT(*) FROM session_record WHERE principal = ?", (principal,)).fetchone()
    if count >= MOST_RECORDS:
        oldest = "(SELECT id FROM session_record WHERE principal = ? ORDER BY updated_at, id LIMIT ?)"
        for of in ("task_session WHERE session_id", "session_record WHERE id"):
            connection.execute(f"DELETE FROM {of} IN {oldest}", (principal, count - MOST_RECORDS + 1))


def _before(now: str, seconds: float) -> str:
    """A time of the tables, so long before another."""
    when = datetime.strptime(now, "%Y-%m-%dT%H:%M:%S.%fZ") - timedelta(seconds=seconds)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
