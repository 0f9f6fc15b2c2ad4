"""A server that lists other tools each time, to each principal its own: what is pending of it stays bounded, and what
is held stays held."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bridge.test_pinned_tools import AFTER, QUARANTINE, a_server, names
from msgspec import Raw
from peers import gateway
from virtualtime import FakeClock, settle

from toolgate.catalog import pins as pinned
from toolgate.catalog.pins import MOST_PENDING, MOST_TEXT, Pins, StoredPins, mark
from toolgate.config import Config, Guard, Server
from toolgate.core.complaints import MOST, WHILE
from toolgate.state.memory import MemoryStore


def tools(*names: str, says: str = "") -> dict[str, Raw]:
    shapes = {name: {"name": name, "description": says, "inputSchema": {"type": "object"}} for name in names}
    return {name: Raw(json.dumps(shape).encode()) for name, shape in shapes.items()}


class _Known:
    def __init__(self) -> None:
        self.noted: list[tuple[str, Any]] = []
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.pins = Pins(self.store, self.clock, "", lambda event, **about: self.noted.append((event, about["tools"])))
        rules = Guard(pinning="quarantine", descriptions="off")
        self.pins.prepared(Config(servers=(Server(id="there", name="there", type="stdio"),), guard=rules))()
        self.records = StoredPins(self.store, "")
        self.listed("ann", tools("first"))

    def listed(self, scope: str, shown: dict[str, Raw], whose: str = "") -> Any:
        return self.pins.judge("there", scope, shown, whose)

    async def pending(self) -> Any:
        await self.pins.close()
        return self.records.pending("there")


async def test_of_a_scope_that_lists_others_each_time_only_the_last_are_pending() -> None:
    known = _Known()
    for number in range(100):
        assert len(known.listed("ann", tools(*(f"t{number}-{each}" for each in range(50))))) == 50
    assert (await known.pending()).keys() == {f"t99-{each}" for each in range(50)}


@pytest.mark.parametrize(("many", "says"), [(400, ""), (10, "x" * 60_000)])
async def test_of_scopes_without_end_the_oldest_give_way_and_stay_held(many: int, says: str) -> None:
    known = _Known()
    lists = {f"p{scope}/": tools(*(f"p{scope}-{each}" for each in range(many)), says=says) for scope in range(60)}
    for scope, shown in lists.items():
        assert len(known.listed(scope, shown)) == many
        assert len(await known.pending()) <= MOST_PENDING
        assert sum(len(each.text) for each in (await known.pending()).values()) <= MOST_TEXT
        assert shown.keys() <= (await known.pending()).keys()
    oldest, shown = next(iter(lists.items()))
    assert not shown.keys() & (await known.pending()).keys()
    assert known.listed(oldest, shown).keys() == shown.keys(), "what gave way is held, and pending again"
    assert shown.keys() <= (await known.pending()).keys()
    assert not [event for event, _ in known.noted if event == "pins.released"]


async def test_a_list_that_is_another_each_time_has_what_waits_of_others_written_seldom() -> None:
    known = _Known()
    known.listed("bob", tools(*(f"b{each}" for each in range(100)), says="x" * 60_000))
    await settle()
    written, put = list[int](), known.store.put

    def counted(space: str, key: str, value: bytes, ttl: float | None = None) -> Any:
        written.append(len(value))
        return put(space, key, value, ttl)

    known.store.put = counted  # type: ignore[method-assign]
    for number in range(100):
        known.listed("mallory", tools(f"m{number}"))
        await known.clock.advance(0.01)
    assert len(written) <= 2
    assert known.noted[-1] == ("pins.released", {"m98": "it matches its pin again, or no longer exists"})
    assert (await known.pending()).keys() == {*(f"b{each}" for each in range(100)), "m99"}


async def test_what_is_approved_is_what_was_seen_and_what_gave_way_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "MOST_PENDING", 4)
    known = _Known()
    known.listed("ann", tools("a1", "a2"))
    known.listed("bob", tools("b1", "b2"))
    known.listed("eve", tools("e1", "e2"))
    seen = mark(await known.pending())
    assert (await known.pending()).keys() == {"b1", "b2", "e1", "e2"}
    assert await known.records.approve("there", (), seen, 1.0) == ["b1", "b2", "e1", "e2"]
    known.pins.read_again()
    assert known.listed("eve", tools("e1", "e2")) == {}
    assert known.listed("ann", tools("a1", "a2")).keys() == {"a1", "a2"}
    assert (await known.pending()).keys() == {"a1", "a2"}


async def test_what_scopes_have_alike_is_pending_while_one_of_them_has_it() -> None:
    known = _Known()
    known.listed("ann", tools("first", says="x"))
    known.listed("bob", tools("first", says="x"))
    known.listed("ann", tools("first"))
    assert (await known.pending()).keys() == {"first"}
    known.listed("bob", tools("first"))
    assert await known.pending() == {}
    assert known.noted[-1][0] == "pins.released"


async def test_after_a_restart_what_was_pending_is_until_it_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    known = _Known()
    known.listed("ann", tools("a1"))
    await known.pins.close()
    known.pins._pending.clear()  # pyright: ignore[reportPrivateUsage]
    known.pins._scopes.clear()  # pyright: ignore[reportPrivateUsage]
    known.listed("bob", tools("b1"))
    assert (await known.pending()).keys() == {"a1", "b1"}
    monkeypatch.setattr(pinned, "MOST_PENDING", 2)
    known.listed("eve", tools("e1"))
    assert (await known.pending()).keys() == {"b1", "e1"}


async def test_of_lists_that_need_review_without_end_some_are_told(caplog: pytest.LogCaptureFixture) -> None:
    known = _Known()
    for number in range(200):
        known.listed("ann", tools(f"t{number}"))
    told = [each for each in caplog.messages if "need review" in each]
    assert len(told) == MOST and "not logged for the next" in caplog.text
    await known.clock.advance(WHILE)
    known.listed("ann", tools("t199"))
    assert "t199" in caplog.messages[-1]


async def test_of_a_name_no_more_is_written_out_than_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written, visible = list[int](), pinned.visible

    def counted(text: str) -> str:
        written.append(len(text))
        return visible(text)

    monkeypatch.setattr(pinned, "visible", counted)
    known = _Known()
    known.listed("ann", tools("\x01" * 16_000))
    assert "need review" in caplog.text and 0 < max(written) <= 100


# Whose they are.


@pytest.mark.parametrize("scopes", [1, 7, 60])
@pytest.mark.parametrize(("many", "says"), [(10_000, ""), (3_000, "x" * 6_000)])
async def test_what_waits_of_one_stays_however_much_another_has_listed(scopes: int, many: int, says: str) -> None:
    known = _Known()
    known.listed("bob/1/", his := tools("b1", "b2"), "bob")
    for scope in range(scopes):
        hers = tools(*(f"m{scope}-{each}" for each in range(max(3, many // scopes))), says=says)
        assert len(known.listed(f"mallory/{scope}/", hers, "mallory")) == len(hers)
        assert his.keys() <= (await known.pending()).keys() and hers.keys() & (await known.pending()).keys()
    assert len(await known.pending()) <= MOST_PENDING
    assert sum(len(each.text) for each in (await known.pending()).values()) <= MOST_TEXT


async def test_who_has_many_scopes_of_one_tool_each_is_one_with_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "MOST_PENDING", 10)
    known = _Known()
    known.listed("bob/1/", his := tools("b1", "b2", "b3"), "bob")
    for scope in range(50):
        known.listed(f"mallory/{scope}/", tools(f"m{scope}"), "mallory")
    assert (await known.pending()).keys() == his.keys() | {f"m{scope}" for scope in range(43, 50)}


async def test_of_one_list_that_is_too_much_beside_others_some_can_be_approved_and_then_the_rest() -> None:
    known = _Known()
    known.listed("bob/", tools("b1"), "bob")
    hers = tools(*(f"m{each}" for each in range(MOST_PENDING)))
    known.listed("mallory/", hers, "mallory")
    assert len(await known.pending()) == MOST_PENDING and "b1" in await known.pending()
    assert await known.records.approve("there", (), "", 1.0)
    known.pins.read_again()
    assert len(known.listed("mallory/", hers, "mallory")) == 1
    assert len(await known.pending()) == 1


async def test_what_waits_of_all_sessions_of_one_is_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "MOST_PENDING", 7)
    there = a_server(scope="session")
    async with gateway(there=there, config=QUARANTINE) as rig:
        assert await names(await rig.legacy(principal="eve"))
        there.offer("tools", *AFTER)
        for who in ("bob", "mallory", "mallory", "mallory"):
            assert await names(await rig.legacy(principal=who)) == []
        scopes = rig.app.gateway.snapshot.catalog._pins._scopes["there"].waits  # type: ignore[union-attr]
        assert [each.whose.partition("@")[0] for each in scopes.values()] == ["bob", "mallory"]
