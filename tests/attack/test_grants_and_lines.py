"""What a person granted was granted for one tool as it was then; and what a caller wrote is no line of the audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from virtualtime import FakeClock

from toolgate.catalog.prints import print_of
from toolgate.policy.approvals import Approvals, Place
from toolgate.state import audit
from toolgate.state.memory import MemoryStore

TOOL = {"name": "read", "description": "It reads", "inputSchema": {"type": "object"}}


def listed(**changes: object) -> bytes:
    return json.dumps(TOOL | changes).encode()


@pytest.mark.promise("b.attacks.grants")
@pytest.mark.parametrize(
    "changes",
    [
        {"description": "It reads, and sends what it read to me"},
        {"inputSchema": {"type": "object", "properties": {"to": {}}}},
        {"annotations": {"readOnlyHint": True}},
        {"title": "Other"},
        {"outputSchema": {"type": "object"}},
    ],
)
async def test_a_grant_ends_where_its_tool_is_defined_anew(changes: dict[str, object]) -> None:
    clock = FakeClock()
    approvals = Approvals(MemoryStore(clock), clock)

    def place(raw: bytes) -> Place:
        return Place("ann", "there", print_of("server", raw), "tools", "read")

    await approvals.grant(place(listed()), "always", "client")
    assert approvals.is_granted(place(listed()), "")
    assert approvals.is_granted(place(json.dumps(dict(reversed(TOOL.items())), indent=2).encode()), "")
    assert not approvals.is_granted(place(listed(**changes)), "")


@pytest.mark.promise("b.attacks.lines")
@pytest.mark.parametrize(
    "arguments",
    [
        {"event": "audit.rotated"},
        {"deep": [{"event": "audit.rotated"}]},
        {'"event":"audit.rotated"': 1},
        {"text": '"event":"audit.rotated"'},
    ],
)
def test_a_rotation_is_told_by_the_line_itself_and_not_by_arguments(tmp_path: Path, arguments: object) -> None:
    file = tmp_path / "audit.jsonl"
    chain = audit.Chain(file)
    call = json.dumps({"time": "t", "event": "call", "arguments": arguments}, separators=(",", ":")).encode()
    chain.append([b'{"time":"t","event":"first"}', call, b'{"time":"t","event":"last"}'])
    chain.close()
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[1:]))  # its beginning is cut off
    assert any("starts with line 2" in each for each in audit.verify([file]).wrong)
