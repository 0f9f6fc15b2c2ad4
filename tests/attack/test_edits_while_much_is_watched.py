"""A client watches as much as it may, by names that take their time to be judged, and the configuration is edited."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from peers import LegacyServer, Scene, eventually, gateway
from virtualtime import settle

from toolgate.auth.access import Access
from toolgate.config import Config
from toolgate.config.access import KnownClient, Permissions, Verdict
from toolgate.core import crowds
from toolgate.core.model import Call

MANY = 10 * crowds.FEW
NAMES = [f"there+mem://{number}" for number in range(MANY)]


async def text(scene: Scene) -> str:
    return scene.target


def client(id: str, *off: str) -> KnownClient:
    resources: dict[str, Verdict] = dict.fromkeys(("there+mem://closed/*", *off), "off")
    return KnownClient(id=id, name=id, servers="all", permissions=Permissions(resources=resources))


class Judged:
    """What is judged of watches, and how much of it in one round of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.order: list[str] = []
        self.rounds: Counter[int] = Counter()
        self._number = 0
        judge = Access.judge

        def judged(access: Access, call: Call) -> Verdict:
            if call.method == "resources/subscribe":
                self._count(call.client.principal.client)
            return judge(access, call)

        monkeypatch.setattr(Access, "judge", judged)

    def forget(self) -> None:
        self.order.clear()
        self.rounds.clear()

    def _count(self, whose: str) -> None:
        self.order.append(whose)
        if not self.rounds[self._number]:
            asyncio.get_running_loop().call_soon(self._next)
        self.rounds[self._number] += 1

    def _next(self) -> None:
        self._number += 1


class Edits:
    """Of the configuration of a gateway."""

    def __init__(self) -> None:
        self.config = Config(clients=(client("ann"), client("bob")))

    def __call__(self, before: Config) -> Config:
        return self.config

    async def made(self, rig: Any, env: str = "", **clients: KnownClient) -> None:
        whole = rig.app.gateway.snapshot.config
        now = tuple(clients.get(each.id, each) for each in whole.clients)
        servers = tuple(msgspec.structs.replace(each, env={"A": env} if env else each.env) for each in whole.servers)
        self.config = msgspec.structs.replace(whole, clients=now, servers=servers)
        await rig.app.reload()


def docs() -> LegacyServer:
    return LegacyServer(templates={"mem://{any}": text}, tells=True)


async def test_an_edit_that_is_of_nothing_for_a_client_judges_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    edits, there, judged = Edits(), docs(), Judged(monkeypatch)
    async with gateway(config=edits.config, edited=edits, there=there) as rig:
        ear = await rig.modern("ann").listen(*NAMES)
        judged.forget()
        await edits.made(rig, bob=client("bob", "there+mem://1"))
        await edits.made(rig, env="another")
        await eventually(lambda: len(there.watched) == MANY)
        assert not judged.order
        there.update("mem://1")
        await eventually(lambda: ear.updated == ["there+mem://1"])


async def test_watches_are_judged_anew_a_few_at_a_time_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    edits, there, judged = Edits(), docs(), Judged(monkeypatch)
    async with gateway(config=edits.config, edited=edits, there=there) as rig:
        await rig.modern("ann").listen(*NAMES)
        ear = await rig.modern("bob").listen("there+mem://b", "there+mem://c")
        judged.forget()
        off = "there+mem://1*", "there+mem://b"
        await edits.made(rig, ann=client("ann", *off), bob=client("bob", *off))
        left = [name for name in NAMES if not name.startswith("there+mem://1")]
        await eventually(lambda: len(there.watched) == len(left) + 1)
        assert max(judged.rounds.values()) <= crowds.FEW and len(judged.order) == MANY + 2
        assert judged.order[:5].count("bob") == 2, "nobody waits for all of another"
        there.update("mem://c")
        await eventually(lambda: ear.updated == ["there+mem://c"])


async def test_nobody_hears_of_what_is_off_before_its_watch_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    edits, there, judged = Edits(), docs(), Judged(monkeypatch)
    async with gateway(config=edits.config, edited=edits, there=there) as rig:
        ears = [await rig.modern(who).listen(*NAMES) for who in ("ann", "bob")]
        judged.forget()
        before, last = there.watched, NAMES[-1]
        reload = asyncio.ensure_future(edits.made(rig, ann=client("ann", last)))
        [known] = [each for each in rig.app.gateway.snapshot.config.clients if each.id == "ann"]
        while rig.app.gateway.access.clients["ann"].print == _print(known):
            await asyncio.sleep(0)
        there.update(last.removeprefix("there+"))
        assert len(judged.order) < MANY and there.watched == before
        await eventually(lambda: ears[1].updated == [last])
        await reload
        await settle()
        assert not ears[0].updated


def _print(known: KnownClient) -> str:
    return Access(Config(clients=(known,))).clients[known.id].print


async def test_the_last_of_three_edits_holds() -> None:
    edits, there = Edits(), docs()
    async with gateway(config=edits.config, edited=edits, there=there) as rig:
        ear = await rig.modern("ann").listen(*NAMES)
        for closed in ("there+mem://1*", "there+mem://2*", "there+mem://3*"):
            await edits.made(rig, ann=client("ann", closed), env=closed)
        left = {name.removeprefix("there+") for name in NAMES if not name.startswith("there+mem://3")}
        await eventually(lambda: set(there.watched) == left)
        await ear.stop()
        await eventually(lambda: not there.watched)
