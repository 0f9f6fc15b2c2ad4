"""What a client's model says reaches each server in a shape that its revision has."""

from __future__ import annotations

from typing import Any

import pytest
from official import Json
from peers import LATEST, LegacyServer, Scene, gateway, sampling

ONE = {"type": "text", "text": "a"}
AUDIO = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}


@pytest.mark.parametrize("caller", [LATEST, "2026-07-28"])
@pytest.mark.parametrize(
    "revision, content, expected",
    [
        ("2025-06-18", [ONE], ONE),
        ("2024-11-05", [ONE, {"type": "text", "text": "b"}], {"type": "text", "text": "a\nb"}),
        ("2025-06-18", [ONE, AUDIO], {"type": "text", "text": "a\n[audio]"}),
        ("2025-06-18", AUDIO, AUDIO),
        ("2024-11-05", AUDIO, {"type": "text", "text": "[audio] audio/wav"}),
        (LATEST, [ONE, ONE], [ONE, ONE]),
    ],
)
async def test_a_server_hears_a_model_in_the_blocks_of_its_revision(
    caller: str, revision: str, content: Any, expected: Any
) -> None:
    heard: list[Json] = []

    async def ask(scene: Scene) -> str:
        heard.append(await scene.ask(sampling()))
        return "ok"

    async with gateway(there=LegacyServer({"ask": ask}, revision=revision)) as rig:
        client = await rig.client(caller, path="/mcp/servers/there")
        said = {"role": "assistant", "content": content, "model": "scripted", "stopReason": "endTurn"}
        await client.converse("tools/call", {"sampling/createMessage": said}, name="ask")
    assert heard == [{**said, "content": expected}]
