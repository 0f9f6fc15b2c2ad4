"""Records of sessions: titles, whose they are, how many, and what one hands over to the next."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtualtime import FakeClock

from toolgate.auth.access import THE_OPERATOR
from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.state.base import Connection
from toolgate.state.memory import MemoryStore
from toolgate.workspace import links, sessions
from toolgate.workspace.sessions import Record


def sign(id: str, at: int = 0, **more: str) -> Record:
    when = f"2026-11-24T{at // 60:02}:{at % 60:02}:00.000000Z"
    told = {"machine": "here", "source": "claude", **more}
    return Record(id="", external_id=id, created_at=when, updated_at=when, **told)


@given(st.text(), st.integers(0, 300))
def test_a_title_is_one_short_line(text: str, times: int) -> None:
    title = sessions.title_of(text * times)
    assert len(title) <= 80 and title.isprintable() and title == title.strip()


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("Fix it", "Fix it"),
        ("\n \t\nFix\x1b it \r\nnow", "Fix it"),
        ("", ""),
        (" \n", ""),
        ("x" * 81, "x" * 79 + "…"),
        ("x" * 80, "x" * 80),
    ],
)
def test_a_title_is_the_first_line_that_says_something(prompt: str, title: str) -> None:
    assert sessions.title_of(prompt) == title


async def test_a_session_is_known_by_its_program_its_machine_and_its_principal() -> None:
    def work(connection: Connection) -> None:
        one, is_new = sessions.seen(connection, sign("a", model="m"))
        assert is_new and one.id == "a"
        again, is_new = sessions.seen(connection, sign("a", 1))
        assert not is_new and (again.id, again.model, again.updated_at[11:16]) == ("a", "m", "00:01")
        for other in ({"machine": "there"}, {"source": "codex"}, {"principal": "client:ann"}):
            record, is_new = sessions.seen(connection, sign("a", 2, **other))
            assert is_new and record.id != "a" and record.external_id == "a"
        assert sessions.found(connection, "client:ann", "a").principal == "client:ann"
        assert sessions.find(connection, "client:bob", "a") is None
        with pytest.raises(Fault, match="Session not found"):
            sessions.found(connection, "client:bob", one.id)

    await MemoryStore(FakeClock()).transact(work)


async def test_a_handoff_is_for_its_principal_its_machine_and_its_project_and_for_one_session() -> None:
    def work(connection: Connection) -> None:
        def left(id: str, at: int, **more: str) -> None:
            record, _ = sessions.seen(connection, sign(id, at, project_id="p", **more))
            sessions.put(connection, msgspec.structs.replace(record, status="handoff_ready", summary=id))

        left("old", 1)
        left("new", 2)
        left("of another project", 3, **{"cwd": "/x"})
        sessions.put(
            connection, msgspec.structs.replace(sessions.found(connection, "", "of another project"), project_id="q")
        )
        left("of another machine", 4, machine="there")
        left("of another principal", 5, principal="client:ann")
        taken = [
            sessions.take_handoff(connection, sessions.seen(connection, sign(f"next {n}", 10 + n, project_id="p"))[0])
            for n in range(3)
        ]
        assert [record and record.id for record in taken] == ["new", "old", None]

    await MemoryStore(FakeClock()).transact(work)


async def test_of_too_many_records_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_RECORDS", 3)

    def work(connection: Connection) -> list[str]:
        for number in range(6):
            sessions.seen(connection, sign(f"s{number}", number))
        sessions.seen(connection, sign("other", 0, principal="client:ann"))
        sessions.seen(connection, sign("s4", 9))
        return [record.id for record in sessions.newest(connection, "", 10)]

    assert await MemoryStore(FakeClock()).transact(work) == ["s4", "s5", "s3"]


async def test_links_of_records_that_are_forgotten_go_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_RECORDS", 2)

    def work(connection: Connection) -> list[str]:
        for number in range(5):
            sessions.seen(connection, sign(f"s{number}", number))
            links.link(connection, "task", f"s{number}", "worked_on", "2026-11-24T00:00:00.000000Z")
        rows = connection.execute("SELECT session_id FROM task_session ORDER BY session_id").fetchall()
        return [session for (session,) in rows]

    assert await MemoryStore(FakeClock()).transact(work) == ["s3", "s4"]


def test_a_session_without_a_sign_for_long_is_stale() -> None:
    record = sign("a")
    assert not sessions.is_stale(record, "2026-11-24T05:59:00.000000Z")
    assert sessions.shown_status(record, "2026-11-24T06:00:00.000000Z") == "stale"
    record.status = "handoff_ready"
    assert sessions.shown_status(record, "2026-11-25T06:00:00.000000Z") == "handoff_ready"


def test_paths_count_only_from_this_machine() -> None:
    pipe = Principal("client:ann", is_here=True, client="ann")  # of a gateway that the operator has started for ann
    here = (THE_OPERATOR, pipe, Principal("local", "127.0.0.1", is_here=True))
    away = (Principal("local", "10.0.0.7"), Principal("client:ann", "127.0.0.1", client="ann", via="key"))
    assert sessions.whose(THE_OPERATOR) == ""
    assert sessions.whose(pipe) == sessions.whose(away[1]) != "", "who acts as a client is that client, as by its key"
    page = Principal("local", "127.0.0.1")
    others = [sessions.whose(principal) for principal in (here[2], page, *away)]
    assert all(others) and len({*others}) == len(others)
    assert [sessions.is_on_this_machine(each) for each in (*here, *away)] == [True] * 3 + [False] * 2
