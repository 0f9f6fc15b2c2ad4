"""What searches have found is shown to a session, in bounded memory that is everybody's alike."""

from __future__ import annotations

import pytest

from toolgate.core.model import Client, Event, Principal
from toolgate.gateway import activated
from toolgate.gateway.activated import MOST, ActivatedTools


def client(session: str, who: str = "ann") -> Client:
    return Client(Principal(who, client=who), session)


def test_a_session_has_the_latest_that_it_has_found() -> None:
    told: list[Event] = []
    tools, ann = ActivatedTools(told.append), client("a")
    for number in range(MOST + 50):
        tools.activate(ann, [f"tool {number}", "each time"])
    assert len(tools.of(ann)) == MOST and list(tools.of(ann))[-2:] == [f"tool {MOST + 49}", "each time"]
    count = len(told)
    tools.activate(ann, ["each time"])
    assert len(told) == count


def test_sessions_share_the_names_of_what_they_have_found() -> None:
    """One client with 10,000 sessions that had found 200 tools each took 310 MB."""
    tools = ActivatedTools(lambda event: None)
    for session in ("one", "two"):
        tools.activate(client(session), [f"tool {number}" for number in range(10)])
    one, two = (list(tools.of(client(session))) for session in ("one", "two"))
    assert all(name is other for name, other in zip(one, two, strict=True))


def test_who_has_most_sessions_makes_room_for_others_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activated, "MOST_SESSIONS", 3)
    told: list[Event] = []
    tools = ActivatedTools(told.append)
    tools.activate(client("first", "bob"), ["read"])
    for session in ("one", "two", "three", "four"):
        tools.activate(client(session), ["read"])
    assert list(tools.of(client("first", "bob"))) == ["read"] and list(tools.of(client("four"))) == ["read"]
    assert not tools.of(client("one")) and not tools.of(client("two"))
    assert [each.whose for each in told][-1] == ("ann", "two")
    for session in ("three", "four"):
        tools.forget(client(session))
    tools.forget(client("first", "bob"))
    tools.activate(client("five"), ["read"])
    assert list(tools.of(client("five"))) == ["read"]
