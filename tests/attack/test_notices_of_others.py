"""One client has many calls wait for an operator whose webhook or command is slow. The operator hears soon of the calls
of others."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from peers import LATEST, MODERN, LegacyServer, Scene, gateway
from virtualtime import FakeClock, settle

from toolgate.config import Config, access
from toolgate.core.redaction import Redactor
from toolgate.gateway.notices import AT_ONCE, MOST_WAITING, Notices
from toolgate.policy.approval import Approval
from toolgate.policy.approvals import MOST_REQUESTS, MOST_UNDECIDED, Approvals, Place, StoredRequest
from toolgate.state.memory import MemoryStore

URL, COMMAND = "https://hooks.example.com/", ("tell-me",)


class Slow:
    """A webhook and a command that are never done with what they are told. `told` has whose calls that were."""

    stderr = SimpleNamespace(text=str)

    def __init__(self, notify: Any) -> None:
        self.clock = FakeClock()
        self.told: list[str] = []
        config = Config(approvals=access.Approvals(by=("operator",), notify=notify))
        self.notices = Notices(config, self.clock, self, self, Redactor())  # type: ignore[arg-type]

    async def fetch(self, _url: str, _method: str, body: bytes, **_more: Any) -> Any:
        self.write(body)
        await asyncio.Event().wait()

    async def start(self, *_command: Any, **_more: Any) -> Any:
        return self

    def write(self, said: bytes) -> None:
        self.told.append(json.loads(said)["principal"])

    def close_input(self) -> None: ...

    def end(self) -> None: ...

    def waits(self, principal: str, count: int = 1) -> None:
        for number in range(count):
            place = Place(principal, "files", "", "tools", "delete")
            request = StoredRequest(id=str(number), place=place, digest="", shown="{}", asked=0.0, until=900.0)
            self.notices.waits(request)


async def echo(scene: Scene) -> str:
    return "echo"


@pytest.mark.parametrize("notify", [URL, COMMAND], ids=["webhook", "command"])
async def test_an_operator_hears_of_a_call_before_the_many_of_another_that_came_first(notify: Any) -> None:
    slow = Slow(notify)
    slow.waits("mallory", MOST_UNDECIDED)
    await settle()
    slow.waits("bob")
    await slow.clock.advance(1000)
    assert slow.told.index("bob") <= AT_ONCE + 1 and len(slow.told) == MOST_UNDECIDED + 1
    await slow.notices.close()


async def test_of_many_clients_each_is_heard_of_in_turn() -> None:
    slow, names = Slow(URL), [f"client:{number}" for number in range(MOST_REQUESTS // MOST_WAITING)]
    for name in names:
        slow.waits(name, MOST_WAITING)
    await slow.clock.advance(10_000)
    assert sorted(slow.told[: len(names)]) == sorted(names)
    assert sorted(slow.told) == sorted(names * MOST_WAITING)
    await slow.notices.close()


async def test_who_has_more_than_are_queued_keeps_no_place_of_another(caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow(URL)
    slow.waits("mallory", 10 * MOST_REQUESTS)
    assert "too many notices are queued" in caplog.text
    slow.waits("bob", 5)
    await slow.clock.advance(1000)
    assert (slow.told.count("mallory"), slow.told.count("bob")) == (MOST_WAITING, 5)
    await slow.notices.close()


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_call_that_waits_is_told_of_while_those_of_another_are(revision: str) -> None:
    slow = Slow(COMMAND)
    book = Approvals(MemoryStore(slow.clock), slow.clock, slow.notices.waits)
    settings = access.Approvals(by=("operator",), wait=0.0)
    rule = Approval(lambda _call: "ask", book, settings, Redactor(), slow.clock, {})
    async with gateway(policies=[rule], there=LegacyServer({"echo": echo})) as rig:
        mallory, bob = await rig.client(revision, principal="mallory"), await rig.client(revision, principal="bob")
        await bob.request("tools/list")
        for number in range(MOST_UNDECIDED):
            await mallory.call("there__echo", arguments={"n": number})
        assert "nobody has decided yet" in (await bob.call("there__echo")).error["message"]
        await slow.clock.advance(15)
        assert slow.told.index("bob") <= AT_ONCE + 1  # those that were being told, and one other
        await slow.notices.close()
