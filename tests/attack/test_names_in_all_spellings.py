"""Names that a caller chose are compared in all their spellings only where they are short enough for that."""

from __future__ import annotations

from typing import Any

import pytest
from peers import LATEST, MODERN, LegacyServer, gateway

from toolgate.config import Overlay, Parameter
from toolgate.core import spelling
from toolgate.core.spelling import LONGEST_NAMES, MOST_SPELLED

BEYOND = "\ufdfa"  # becomes 18 characters
NAMES = {
    "one of them": [BEYOND * (MOST_SPELLED + 1)],
    "many that are long enough together": [f"{number}{BEYOND * 100}" for number in range(MOST_SPELLED // 100 + 1)],
    "plain letters": ["a" * (LONGEST_NAMES + 1)],
    "marks": ["e\u0301" * MOST_SPELLED],
}


@pytest.fixture
def spelled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long each text was that was normalized."""
    lengths: list[int] = []
    really = spelling.unicodedata.normalize  # type: ignore[attr-defined]

    class Counted:
        combining = staticmethod(spelling.unicodedata.combining)  # type: ignore[attr-defined]

        @staticmethod
        def normalize(form: Any, text: str) -> str:
            lengths.append(len(text))
            return really(form, text)

    monkeypatch.setattr(spelling, "unicodedata", Counted)
    return lengths


async def echo(_scene: Any) -> str:
    return "echo"


@pytest.mark.promise("b.attacks.names")
@pytest.mark.parametrize("what", NAMES)
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, MODERN])
@pytest.mark.parametrize("overlay", [{"fixed": "x"}, {"hidden": True, "fixed": "x"}, {"name": "other"}])
async def test_names_of_arguments_at_a_tool_with_an_overlay(
    revision: str, what: str, overlay: Any, spelled: list[int]
) -> None:
    there = LegacyServer({"echo": echo})
    there.settings["tools"] = {"echo": Overlay(parameters={"path": Parameter(**overlay)})}
    there.lists["tools/list"][1][0]["inputSchema"]["properties"] = {"path": {"type": "string"}}
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        await client.request("tools/list")
        reply = await client.call("there__echo", arguments=dict.fromkeys(NAMES[what], 1))
        assert reply.error["data"]["code"] == "INVALID_ARGS" and "names that are so long" in reply.error["message"]
        assert len(reply.raw) < 1000 and not there.calls
    assert max(spelled, default=0) <= MOST_SPELLED


@pytest.mark.parametrize("what", NAMES)
@pytest.mark.parametrize("revision", ["2025-06-18", LATEST, MODERN])
@pytest.mark.parametrize("where", ["context", "argument"])
async def test_names_in_a_completion(revision: str, what: str, where: str, spelled: list[int]) -> None:
    there = LegacyServer({"echo": echo}, templates={"db://{a}/{b}": echo}, completes=lambda params: {"values": []})
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        ref = {"type": "ref/resource", "uri": "there+db://{a}/{b}"}
        names = NAMES[what][:90] if where == "context" else ["".join(NAMES[what])]
        params = {"argument": {"name": "b", "value": ""}, "context": {"arguments": dict.fromkeys(names, "x")}}
        if where == "argument":
            params = {"argument": {"name": names[0], "value": ""}}
        reply = await client.request("completion/complete", ref=ref, **params)
        assert reply.error["data"]["code"] == "INVALID_ARGS" and "too long" in reply.error["message"]
    assert max(spelled, default=0) <= MOST_SPELLED
