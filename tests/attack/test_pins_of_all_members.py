"""A tool that says anything new is held back, whichever member says it; and pins of an older version hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from virtualtime import FakeClock, settle

from toolgate.catalog.pins import Pin, Pins, StoredPins
from toolgate.catalog.prints import PRINT, told_of
from toolgate.config import Config, Server
from toolgate.config.access import Guard
from toolgate.core.steps import at_once
from toolgate.state.memory import MemoryStore

TOOL: dict[str, Any] = {"name": "t", "description": "harmless", "inputSchema": {"type": "object"}}
CONFIG = Config(servers=(Server(id="s", name="s", type="stdio"),), guard=Guard(pinning="quarantine"))


def listed(**more: Any) -> dict[str, Raw]:
    return {"t": Raw(json.dumps(TOOL | more).encode())}


def pins_in(store: MemoryStore) -> Pins:
    pins = Pins(store, FakeClock(), "", lambda *_all, **_more: None)
    pins.prepared(CONFIG)()
    return pins


@pytest.mark.parametrize("name", ["Description", "DESCRIPTION", "instructions", "summary", "x-hint", "Name", "_Meta"])
async def test_a_member_beside_those_that_are_known_is_a_change(name: str) -> None:
    store = MemoryStore(FakeClock())
    pins = pins_in(store)
    assert pins.judge("s", "", listed()) == {}
    await settle()
    assert pins.judge("s", "", listed(**{name: "EVIL"})) == {"t": "it has changed"}
    assert pins.judge("s", "", listed(icons=[1], _meta={"a": 1}, execution={})) == {}
    assert pins_in(store).judge("s", "", listed(**{name: "EVIL"})) == {"t": "it has changed"}


async def test_a_pin_of_version_0_holds_is_made_anew_and_then_holds_all() -> None:
    store = MemoryStore(FakeClock())
    records = StoredPins(store, "")
    odd = listed(annotations={}, summary="as ever")
    older = at_once(pins_in(store).read("s", odd))
    assert older
    old = Pin(older["t"][1].older, 1.0, True, "")
    await records.first("s", {"t": old})
    assert store.get("pins", records.key("s"))
    assert pins_in(store).judge("s", "", listed(annotations={}, summary="as ever", description="EVIL"))
    pins = pins_in(store)
    assert pins.judge("s", "", odd) == {}
    await settle()
    kept = records.pins("s")
    assert kept and kept["t"].version == PRINT and kept["t"].is_approved and kept["t"].at == 1.0
    for again in (pins, pins_in(store)):
        assert again.judge("s", "", listed(annotations={}, summary="EVIL")) == {"t": "it has changed"}
        assert again.judge("s", "", odd) == {}


def test_what_is_pinned_of_tools_as_most_are_is_the_same_in_both_versions() -> None:
    told = told_of(listed(icons=[1], annotations={"readOnlyHint": True}, title="T")["t"])
    assert told.whole is told.before and "icons" not in told.whole
