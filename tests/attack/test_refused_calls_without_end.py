"""Calls that are refused without end: each would be a line of the audit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from inmemory import Scripted, Visitor, gateway, said, tools
from virtualtime import FakeClock

from toolgate.app import App
from toolgate.config import Audit, Config
from toolgate.config.access import KnownClient
from toolgate.core.redaction import Redactor
from toolgate.state.audit import Trail, verify
from toolgate.state.memory import MemoryStore
from toolgate.state.pacing import MOST, MOST_KINDS, MOST_STRANGERS, Pacing

KEYS = {name: f"tg-a-key-of-{name}-that-is-long-enough" for name in ("mallory", "ann")}
CLIENTS = tuple(KnownClient(id=name, name=name, key=key, servers=("a",)) for name, key in KEYS.items())


class Audited:
    def __init__(self, app: App, trail: Trail, clock: FakeClock) -> None:
        self.app, self.trail, self.clock = app, trail, clock

    async def asks(self, who: str, name: Any, method: str = "tools/call", member: str = "name") -> None:
        visitor = Visitor(self.app)
        visitor.headers["authorization"] = f"Bearer {KEYS[who]}"
        await visitor.ask_modern(method, **{member: name})

    async def lines(self, event: str = "call") -> list[dict[str, Any]]:
        await self.trail.close()
        assert self.trail.file
        assert verify([self.trail.file]).wrong == ()
        found = map(json.loads, self.trail.file.read_text().splitlines())
        return [line for line in found if line["event"] == event]


@asynccontextmanager
async def audited(tmp_path: Path) -> AsyncGenerator[Audited]:
    config, clock = Config(audit=Audit(enabled=True), clients=CLIENTS), FakeClock()
    trail = Trail(tmp_path / "audit.jsonl", clock, MemoryStore(clock), Redactor())
    trail.use(config)
    there = {id: Scripted(tools_list=tools("echo"), tools_call=said("done")) for id in ("a", "b")}
    async with gateway(config=config, scripts=there, audit=trail, clock=clock) as app:
        yield Audited(app, trail, clock)


async def test_refused_calls_of_one_kind_are_one_line_when_there_are_too_many(tmp_path: Path) -> None:
    async with audited(tmp_path) as there:
        for number in range(5 * MOST):
            await there.asks("mallory", f"a__{number}")
        lines = await there.lines()
    assert len(lines) == MOST + 1
    last = lines[-1]
    assert (last["not_noted"], last["who"], last["decision"]) == (4 * MOST - 1, "client:mallory", "deny")
    assert last["not_noted_since"] <= last["time"] and last["reason"] and last["target"] == f"a__{5 * MOST - 1}"


async def test_they_hold_back_no_line_of_another_and_none_of_another_kind(tmp_path: Path) -> None:
    async with audited(tmp_path) as there:
        for number in range(2 * MOST):
            await there.asks("mallory", f"a__{number}")
        await there.asks("ann", "a__nothing")
        await there.asks("mallory", "a__nothing", "prompts/get")
        await there.asks("mallory", "b__echo")
        await there.asks("mallory", "a__echo")
        shown = (await there.lines())[MOST:-1]
    told = [(line["who"], line["method"], line["target"], line["decision"]) for line in shown]
    assert told == [
        ("client:ann", "tools/call", "a__nothing", "deny"),
        ("client:mallory", "prompts/get", "a__nothing", "deny"),
        ("client:mallory", "tools/call", "echo", "deny"),
        ("client:mallory", "tools/call", "echo", "allow"),
    ]


async def test_while_it_goes_on_each_minute_has_one_line_and_when_it_ends_each_call_again(tmp_path: Path) -> None:
    async with audited(tmp_path) as there:
        await asyncio.sleep(60 - there.clock.now() % 60)
        for _ in range(3):
            for _ in range(MOST + 5):
                await there.asks("mallory", "a__nothing")
            await asyncio.sleep(60)
        await asyncio.sleep(60)
        await there.asks("mallory", "a__nothing")
        lines = await there.lines()
    assert [line.get("not_noted") for line in lines[MOST:]] == [4, MOST + 4, MOST + 4, None]


async def test_a_line_that_is_held_back_comes_with_its_minute_and_not_with_the_next_call(tmp_path: Path) -> None:
    async with audited(tmp_path) as there:
        for _ in range(MOST + 1):
            await there.asks("mallory", "a__nothing")
        await asyncio.sleep(61)
        await there.asks("ann", "a__nothing")
        *_, held_back, ann = await there.lines()
    assert "not_noted" not in held_back and held_back["who"] == "client:mallory" and ann["who"] == "client:ann"


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read", "completion/complete"])
async def test_so_are_those_of_each_method(method: str, tmp_path: Path) -> None:
    member = {"resources/read": "uri", "completion/complete": "ref"}.get(method, "name")
    async with audited(tmp_path) as there:
        for number in range(MOST + 20):
            name: Any = f"b__{number}" if member != "uri" else f"b://{number}"
            await there.asks(
                "mallory", {"type": "ref/prompt", "name": name} if member == "ref" else name, method, member
            )
        assert len(await there.lines()) <= MOST + 1


async def test_of_one_that_is_refused_in_endless_ways_so_many_are_told_apart() -> None:
    written: list[int] = []
    pacing = Pacing(FakeClock())
    for number in range(1000):
        for _ in range(MOST + 1):
            pacing.put(lambda not_noted, _since: written.append(not_noted), "now", "mallory", str(number))
    assert len(written) == (MOST_KINDS + 1) * MOST
    pacing.put(lambda not_noted, _since: written.append(-1), "now", "ann", "any")
    assert written.pop() == -1
    pacing.close()
    assert len(written) + sum(written) == 1000 * (MOST + 1), "none is lost"


async def test_of_endless_strangers_so_many_are_told_apart_and_servers_are_not_counted_in() -> None:
    written: list[int] = []
    pacing = Pacing(FakeClock())
    for number in range(10 * MOST_STRANGERS):
        pacing.put(lambda not_noted, _since: written.append(not_noted), "now", str(number), "login")
    assert len(written) == MOST_STRANGERS + MOST
    pacing.put_of_server(lambda _not_noted, _since: written.append(-1), "now", "there", "pins.held")
    assert written.pop() == -1
    pacing.close()
    assert len(written) + sum(written) == 10 * MOST_STRANGERS
