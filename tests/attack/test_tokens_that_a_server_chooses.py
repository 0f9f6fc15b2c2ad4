"""An authorization server chooses its tokens, and a server its authorization server: what they choose takes no word out
of what others say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from peers import LATEST, METERED, MODERN, LegacyServer, RpcError, Scene, gateway
from virtualtime import FakeClock

from toolgate.config import Audit, Config
from toolgate.core.redaction import GONE, Redactor
from toolgate.state.audit import Trail
from toolgate.state.memory import MemoryStore

CHOSEN = ["rows_of_2025", "structured9content", "tables__rows_of_2025", "Which rows of 2025?", "no-such-row-2025"]


async def rows_of_2025(scene: Scene) -> str:
    return f"rows_of_2025: {json.dumps(scene.arguments)}"


async def fails(scene: Scene) -> str:
    raise RpcError(-32602, "no-such-row-2025", {"row": "no-such-row-2025"})


async def told(server: str, revision: str, folder: Path, tokens: list[str]) -> list[Any]:
    """All that is heard of one server, and noted of its calls, where another, `mail`, was given these tokens."""
    redactor, clock = Redactor(), FakeClock()
    redactor.learn_tokens("mail", tokens)
    tools = {"rows_of_2025": rows_of_2025, "fails": fails}
    servers = {"mail": LegacyServer(tools), "tables": LegacyServer(tools)}
    trail = Trail(folder / "audit.jsonl", clock, MemoryStore(clock), redactor)
    on = Config(limits=METERED, audit=Audit(enabled=True))
    async with gateway(config=on, audit=trail, **servers) as rig:
        client = await rig.client(revision)
        tools = (await client.request("tools/list")).message["result"]["tools"]
        heard = [tool for tool in tools if tool["name"].startswith(f"{server}__")]
        for tool in ("rows_of_2025", "fails"):
            answer = (await client.call(f"{server}__{tool}", arguments={"of": "rows_of_2025"})).message
            heard.append({name: answer.get(name) for name in ("result", "error")})
        await trail.close()
    lines = [json.loads(line) for line in (folder / "audit.jsonl").read_bytes().splitlines()]
    return [*heard, *((line["target"], line.get("reason")) for line in lines if line["event"] == "call")]


@pytest.mark.promise("b.attacks.tokens")
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_tokens_of_one_server_change_nothing_that_another_says(revision: str, tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "with").mkdir()
    without = await told("tables", revision, tmp_path / "without", [])
    assert len(without) == 2 + 2 + 2
    assert await told("tables", revision, tmp_path / "with", CHOSEN) == without


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_what_a_server_says_is_without_its_own(revision: str, tmp_path: Path) -> None:
    heard = json.dumps(await told("mail", revision, tmp_path, CHOSEN))
    assert GONE in heard and "no-such-row-2025" not in heard
