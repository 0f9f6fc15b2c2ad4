"""Refused calls whose names take as much room in the audit as they can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from inmemory import Scripted, Visitor, gateway, said, tools
from virtualtime import FakeClock

from toolgate.config import Audit, Config
from toolgate.core.redaction import Redactor
from toolgate.state.audit import Trail
from toolgate.state.memory import MemoryStore


async def lines(tmp_path: Path, *asked: tuple[str, str, str]) -> list[str]:
    """Those of these requests: a method, the member that has the name, the name."""
    config, clock = Config(audit=Audit(enabled=True)), FakeClock()
    trail = Trail(tmp_path / "audit.jsonl", clock, MemoryStore(clock), Redactor())
    trail.use(config)
    scripts = {"a": Scripted(tools_list=tools("echo"), tools_call=said("done"))}
    async with gateway(config=config, scripts=scripts, audit=trail) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        for method, member, name in asked:
            await visitor.ask(method, **{member: name})
    await trail.close()
    written = (tmp_path / "audit.jsonl").read_text().splitlines()
    return [line for line in written if json.loads(line)["event"] == "call"]


@pytest.mark.parametrize("filling", ["\x01", "q", "\u4e00", "\U0001f600", "\\\\"])
@pytest.mark.parametrize("before", ["a__", "nowhere__", ""])
async def test_a_line_of_a_refused_call_has_a_bound(filling: str, before: str, tmp_path: Path) -> None:
    (line,) = await lines(tmp_path, ("tools/call", "name", before + filling * 3900))
    assert len(line.encode()) < 3000
    assert json.loads(line)["decision"] == "deny"
    assert "characters, SHA-256 " in json.loads(line)["target"]


@pytest.mark.parametrize(
    ("method", "member", "name"),
    [("resources/read", "uri", "file:///" + "%01" * 3900), ("prompts/get", "name", "a__" + "\x01" * 9000)],
)
async def test_so_has_one_of_any_method(method: str, member: str, name: str, tmp_path: Path) -> None:
    (line,) = await lines(tmp_path, (method, member, name))
    assert len(line.encode()) < 3000


async def test_a_name_of_usual_length_is_noted_whole(tmp_path: Path) -> None:
    refused, allowed = await lines(
        tmp_path, ("tools/call", "name", "a__" + "q" * 200), ("tools/call", "name", "a__echo")
    )
    assert json.loads(refused)["target"].endswith("q" * 200)
    assert json.loads(allowed)["decision"] == "allow"
