"""What is remembered of results: for whose they were alone, and only so much."""

from __future__ import annotations

import json
from typing import Any

from toolgate.config import Server
from toolgate.gateway.observed import LARGEST, MOST, MOST_OF_ONE, MOST_SEEN, Definition, ObservedShapes

DEFINED: Definition = (Server(id="shop", name="shop", type="stdio"), b"1")


def noted(seen: ObservedShapes, result: Any, whose: str = "ann", tool: str = "buy") -> None:
    seen.note(whose, "shop", tool, DEFINED, json.dumps(result).encode())


def told(seen: ObservedShapes, whose: str = "ann", tool: str = "buy", definition: Definition = DEFINED) -> Any:
    found = seen.of(whose, "shop", tool, definition)
    return sorted(json.loads(found).get("properties", {})) if found else None


def test_what_one_principal_has_seen_another_is_not_told() -> None:
    seen = ObservedShapes()
    noted(seen, {"of_ann": 1})
    noted(seen, {"of_bea": 1}, "bea")
    assert (told(seen), told(seen, "bea"), told(seen, "cid")) == (["of_ann"], ["of_bea"], None)


def test_it_is_forgotten_where_the_tool_or_its_server_is_another() -> None:
    seen = ObservedShapes()
    noted(seen, {"a": 1})
    for definition in ((DEFINED[0], b"2"), (Server(id="shop", name="shop", type="stdio", command="other"), b"1")):
        assert told(seen, definition=definition) is None
    seen.note("ann", "shop", "buy", (DEFINED[0], b"2"), b'{"b":1}')
    assert told(seen, definition=(DEFINED[0], b"2")) == ["b"]


def test_large_results_and_further_ones_are_not_looked_at() -> None:
    seen = ObservedShapes()
    noted(seen, {"a": "x" * LARGEST})
    assert told(seen) is None
    for _ in range(MOST_SEEN):
        noted(seen, {"a": 1})
    noted(seen, {"b": 1})
    assert told(seen) == ["a"]


def test_what_has_too_many_parts_is_not_told() -> None:
    seen = ObservedShapes()
    noted(seen, {f"{a}x": {f"{b}y": {f"{c}z": 1 for c in "abcdef"} for b in "abcdef"} for a in "abcdef"})
    assert told(seen) is None
    noted(seen, {"a": 1})
    assert told(seen) is None


def test_so_many_tools_are_remembered_and_no_more() -> None:
    seen = ObservedShapes()
    for number in range(MOST_OF_ONE + 1):
        noted(seen, {"a": 1}, tool=f"t{number}")
    assert (told(seen, tool="t0"), told(seen, tool="t1")) == (None, ["a"])
    for whose in range(MOST // MOST_OF_ONE):
        for number in range(MOST_OF_ONE):
            noted(seen, {"a": 1}, f"p{whose}", f"t{number}")
    assert told(seen, tool="t1") is None and told(seen, "p0", "t0") == ["a"]


def test_what_cannot_be_read_is_passed_over() -> None:
    seen = ObservedShapes()
    seen.note("ann", "shop", "buy", DEFINED, b"{")
    assert told(seen) is None
