"""Each question of a server may take a tenth of a second to write in the words of its client, and a call may have
sixteen: nobody else waits until all of them are written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from peers import LATEST, MODERN, Json, LegacyServer, ModernServer, Scene, gateway, sampled
from virtualtime import VirtualTimeLoop

from toolgate.core import asks
from toolgate.eras import questions

ODD = {"name": "a", "inputSchema": {}, "annotations": {"title": 1}, "icons": [{"src": "x:"}]}
COUNT = 14


def asked(tools: int) -> tuple[str, Json]:
    return "sampling/createMessage", {"messages": [], "maxTokens": 1, "tools": [ODD] * tools}


class Loop:
    """How many odd tools are written in one step of the event loop, at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = self.all = self._now = 0
        write = questions.write_item

        def counted(*given: Any) -> Any:
            self.all += 1
            if not VirtualTimeLoop.is_aside:
                if not self._now:
                    asyncio.get_running_loop().call_soon(self._ended)
                self._now += 1
                self.most = max(self.most, self._now)
            return write(*given)

        monkeypatch.setattr(questions, "write_item", counted)

    def _ended(self) -> None:
        self._now = 0


async def told(server: Any, revision: str, ask: Callable[[Scene], Any]) -> tuple[str, list[Json]]:
    """What the server is told; and the questions that its client got."""
    seen: list[Json] = []

    def answer(params: Json) -> Json:
        seen.append(params)
        return sampled("yes")

    async with gateway(evil=server({"ask": ask}), bank=server({"ask": ask})) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", {"sampling/createMessage": answer}, name="evil__ask")
        return reply.text, seen


@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_questions_with_thousands_of_odd_tools_are_not_written_on_the_event_loop(
    server: Any, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, tools = (COUNT, 1_000) if server is LegacyServer else (COUNT, 150)  # an answer of more may ask little
    loop = Loop(monkeypatch)

    async def ask(scene: Scene) -> str:
        return str(len(await scene.ask_all(*[asked(tools)] * count)))

    text, seen = await told(server, revision, ask)
    assert text == str(count) and [len(each["tools"]) for each in seen] == [tools] * count
    assert loop.all >= count * tools and loop.most <= 400


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_small_questions_are_written_at_once(revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch)

    async def ask(scene: Scene) -> str:
        return str(len(await scene.ask_all(asked(1), asked(2))))

    text, seen = await told(LegacyServer, revision, ask)
    assert text == "2" and sorted(len(each["tools"]) for each in seen) == [1, 2]
    assert loop.most == loop.all == 3


async def test_who_leaves_while_questions_are_written_ends_its_call() -> None:
    """So does what waits for their answers: nothing of it is parked."""
    is_written, is_over = asyncio.Event(), asyncio.Event()

    class Turns:
        """Whose turn never ends."""

        def of(self, size: int) -> Turns:
            return self

        async def in_thread(self, whose: str, work: Callable[[], object]) -> None:
            is_written.set()
            await asyncio.Event().wait()

    async def ask(scene: Scene) -> str:
        try:
            return str(await scene.ask(asked(1_000)))
        finally:
            is_over.set()

    async with gateway(there=LegacyServer({"ask": ask})) as rig:
        client = await rig.client(MODERN)
        rig.app.gateway.in_turns = Turns()  # type: ignore[assignment]
        call = client.start("tools/call", name="there__ask")
        await asyncio.wait_for(is_written.wait(), 60)
        assert len(rig.app.parking) == 0
        await call.gone()
        await asyncio.wait_for(is_over.wait(), 60)
        await rig.is_quiet()


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_escapes_of_the_open_questions_of_a_call_count_together(revision: str) -> None:
    messages = [{"role": "user", "content": {"type": "text", "text": '"' * (asks.MOST_ESCAPES // 2 - 100)}}]
    question = "sampling/createMessage", {"messages": messages, "maxTokens": 1}

    async def ask(scene: Scene) -> str:
        said = [str(each) for each in await asyncio.gather(*map(scene.ask, [question] * 3), return_exceptions=True)]
        return str([("yes" in each, "150,000 escapes" in each) for each in said])

    text, seen = await told(LegacyServer, revision, ask)
    assert text == str([(True, False), (True, False), (False, True)]) and len(seen) == 2
