"""The tables of the store, and how a file of an older version gets them.

The rules this file keeps: a migration that was released is never edited, the next one changes what it made; and the SQL
is what SQLite and PostgreSQL both understand, so that times are texts that sort
(`2026-11-24T08:30:00.000000Z`), lists and objects are JSON as text, and what is true is 1.
"""

from __future__ import annotations

import msgspec


class Migration(msgspec.Struct, frozen=True):
    """A step from one version of the file to the next, once for each file."""

    number: int
    sql: str


KEPT = Migration(
    1,
    """
    CREATE TABLE kept (
        space TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, expires REAL, PRIMARY KEY (space, key)
    );
    CREATE INDEX kept_expires ON kept (expires) WHERE expires IS NOT NULL;
    """,
)

# The workspace: tasks, what they wait for, the sessions of coding agents, and which of them had to do with which tasks.
# `project_id` is empty for what is in no project, so that it compares as any other. What lists are filtered by stands
# in the indexes behind what they are sorted by: so a filter that few tasks pass looks at no row of a task, which may be
# long; and titles and labels in one of their own, so that the others are short, behind the letters that they have, by
# which most are passed over.
WORKSPACE = Migration(
    2,
    """
    CREATE TABLE task (
        id TEXT PRIMARY KEY,
        project_id TEXT NOT NULL,
        title TEXT NOT NULL,
        status TEXT NOT NULL,
        priority INTEGER NOT NULL,
        type TEXT NOT NULL,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        description TEXT,
        parent_task_id TEXT,
        created_in_session_id TEXT,
        closed_in_session_id TEXT,
        closed_commit_sha TEXT,
        closed_at TEXT,
        assignee TEXT,
        labels TEXT NOT NULL,
        closed_reason TEXT,
        validation_status TEXT,
        validation_feedback TEXT,
        test_strategy TEXT,
        complexity_score INTEGER,
        estimated_subtasks INTEGER,
        expansion_context TEXT,
        validation_criteria TEXT,
        use_external_validator INTEGER NOT NULL,
        validation_fail_count INTEGER NOT NULL,
        validation_override_reason TEXT,
        workflow_name TEXT,
        verification TEXT,
        sequence_order INTEGER,
        commits TEXT NOT NULL,
        escalated_at TEXT,
        escalation_reason TEXT,
        title_letters INTEGER NOT NULL,
        label_letters INTEGER NOT NULL
    );
    CREATE INDEX task_by_need ON task (project_id, status, priority, created_at, id, type, assignee);
    CREATE INDEX task_by_assignee ON task (project_id, assignee, created_at, id, status, priority, type);
    CREATE INDEX task_by_age ON task (project_id, created_at, id, status, priority, type, assignee);
    CREATE INDEX task_by_text ON task (
        project_id, created_at, id, status, priority, type, assignee, title_letters, label_letters, title, labels
    );
    CREATE INDEX task_by_parent ON task (parent_task_id, created_at, id);

    CREATE TABLE task_dependency (
        task_id TEXT NOT NULL,
        depends_on TEXT NOT NULL,
        dep_type TEXT NOT NULL,
        created_at TEXT NOT NULL,
        PRIMARY KEY (task_id, depends_on, dep_type)
    );
    CREATE INDEX task_dependency_back ON task_dependency (depends_on, dep_type, task_id);

    CREATE TABLE session_record (
        id TEXT PRIMARY KEY,
        external_id TEXT NOT NULL,
        machine TEXT NOT NULL,
        source TEXT NOT NULL,
        project_id TEXT NOT NULL,
        principal TEXT NOT NULL,
        cwd TEXT NOT NULL,
        status TEXT NOT NULL,
        title TEXT NOT NULL,
        model TEXT NOT NULL,
        transcript_path TEXT NOT NULL,
        parent_id TEXT,
        first_prompt TEXT NOT NULL,
        last_prompt TEXT NOT NULL,
        last_reply TEXT NOT NULL,
        prompts INTEGER NOT NULL,
        summary TEXT NOT NULL,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        ended_at TEXT,
        UNIQUE (principal, external_id, machine, source)
    );
    CREATE INDEX session_record_by_age ON session_record (principal, updated_at);
    CREATE INDEX session_record_by_project ON session_record (principal, project_id, status, updated_at);
    CREATE INDEX session_record_by_folder ON session_record (principal, cwd, status);

    CREATE TABLE task_session (
        task_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        action TEXT NOT NULL,
        created_at TEXT NOT NULL,
        PRIMARY KEY (task_id, session_id, action)
    );
    CREATE INDEX task_session_back ON task_session (session_id, created_at);
    """,
)

# A session takes the handoffs of its own place, since any clone may have copied the project's id. Of those that were
# left before, the place is not known, and no session takes them.
PLACES = Migration(3, "ALTER TABLE session_record ADD COLUMN place TEXT NOT NULL DEFAULT '';")

# The bits of `title_letters` and `label_letters` once more, by bit: a row for 62 tasks that are beside each other by
# their place, in which each bit has a number, and each task is a bit of that. What few tasks have is found by these.
_BITS = range(62)
_LETTERS_OF = {"title": "t.title_letters", "label": "t.label_letters"}
LETTERS = Migration(
    4,
    f"""
    CREATE TABLE task_place (place INTEGER PRIMARY KEY, task_id TEXT NOT NULL UNIQUE);
    INSERT INTO task_place SELECT row_number() OVER (ORDER BY created_at, id) - 1, id FROM task;
    CREATE TABLE task_letters (
        block INTEGER PRIMARY KEY, {", ".join(f"{kind}{bit} INTEGER NOT NULL" for kind in _LETTERS_OF for bit in _BITS)}
    );
    INSERT INTO task_letters SELECT p.place / 62, {
        ", ".join(f"SUM((({of} >> {bit}) & 1) << (p.place % 62))" for of in _LETTERS_OF.values() for bit in _BITS)
    } FROM task_place p JOIN task t ON t.id = p.task_id GROUP BY p.place / 62;
    """,
)

MIGRATIONS = (KEPT, WORKSPACE, PLACES, LETTERS)
