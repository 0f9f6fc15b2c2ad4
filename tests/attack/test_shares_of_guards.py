"""What one client, server or stranger uses up of a guard is not missing to others; and a name in another spelling needs
what the tool needs."""

from __future__ import annotations

import pytest
from msgspec import Raw
from virtualtime import FakeClock

from toolgate.config import Auth
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Principal
from toolgate.policy import approvals
from toolgate.policy.approvals import Approvals, Place, StoredRequest, TooMany
from toolgate.policy.scopes import Scopes
from toolgate.state.memory import MemoryStore


@pytest.mark.parametrize(
    "name", ["delete_repo", "DELETE_repo", " delete_repo", "delete_repo ", "ｄelete_repo", "del\u200bete_repo"]
)
def test_a_step_up_holds_for_each_spelling_that_a_server_may_take_for_the_tool(name: str) -> None:
    scopes = Scopes(Auth(step_up={"github__delete*": ("repo:write",)}))
    client = Client(Principal("ann", scopes=frozenset({"read"})))
    with pytest.raises(Fault, match="repo:write"):
        scopes.before(Call("tools/call", name, client, Raw(b"{}"), server="github"), False)
    assert scopes.before(Call("tools/call", "list_repos", client, Raw(b"{}"), server="github"), False)


def place(principal: str, target: str) -> Place:
    return Place(principal, "there", "p", "tools", target)


async def test_one_principals_grants_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "MOST_GRANTS_OF_ONE", 4)
    clock = FakeClock()
    book = Approvals(MemoryStore(clock), clock, lambda _request: None)
    for number in range(4):
        await book.grant(place("evil", f"t{number}"), "always", "client")
    with pytest.raises(TooMany):
        await book.grant(place("evil", "one more"), "always", "client")
    await book.grant(place("good", "echo"), "hour", "client")
    assert book.is_granted(place("good", "echo"), "")


async def test_where_there_is_no_room_for_a_grant_nothing_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "MOST_GRANTS_OF_ONE", 0)
    clock = FakeClock()
    store = MemoryStore(clock)
    asked: list[StoredRequest] = []
    book = Approvals(store, clock, asked.append)

    async def shown() -> approvals.Shown:
        return {"shown": "echo", "arguments": b"{}", "schema": b"{}"}

    request = await book.ask(place("ann", "echo"), "digest", 60.0, shown)
    with pytest.raises(TooMany):
        await book.allow(request, "always", 60.0)
    assert [each.state for each in book.requests()] == ["undecided"]
