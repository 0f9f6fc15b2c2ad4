"""One client subscribes to much at a shared server, or leaves much there, and others wait for all of it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Collection
from typing import Any

import pytest
from peers import LATEST, MODERN, LegacyServer, ModernServer, Rig, Scene, eventually, gateway
from virtualtime import settle

from toolgate.core.model import Client, Principal
from toolgate.upstreams.mcp.resubscribe import Resubscriber, Wanted

REVISIONS = ["2025-06-18", LATEST, MODERN]


async def read(scene: Scene) -> str:
    return scene.target


def docs(kind: Any, **more: Any) -> Any:
    return kind({"read": read}, resources={}, templates={"mem://{any}": read}, tells=True, **more)


class Slow:
    """How a server is asked that does not answer before it is told to. `of` says what is asked for together."""

    def __init__(self, is_one_stream: bool) -> None:
        self.is_one_stream = is_one_stream
        self.asked: list[str] = []
        self.told: list[str] = []
        self._answers: dict[str, asyncio.Future[None]] = {}

    def asked_by(self, what: tuple[str, str]) -> Any:
        return "" if self.is_one_stream else what

    async def watch(self, what: tuple[str, str]) -> None:
        self.asked.append(what[1])
        answer = self._answers[what[1]] = asyncio.get_running_loop().create_future()
        await answer

    async def unwatch(self, gone: Collection[tuple[str, str]]) -> None:
        for what in gone:
            self.told.append(what[1])
            await self.watch(what)

    async def answer(self, uri: str) -> None:
        self._answers.pop(uri).set_result(None)
        await settle()


def resubscriber(rig: Rig, slow: Slow) -> Resubscriber:
    async def opened(_client: Client) -> None: ...

    return Resubscriber("there", rig.clock, lambda: slow, opened, lambda: None)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("is_one_stream", [False, True])
async def test_who_subscribes_to_much_waits_behind_its_own_and_not_before_others(is_one_stream: bool) -> None:
    async with gateway() as rig:
        slow = Slow(is_one_stream)
        watching = resubscriber(rig, slow)

        def begin(who: str, uri: str) -> asyncio.Task[None]:
            work = watching.begin(slow, ("resources", uri), Client(Principal(who)))  # type: ignore[arg-type]
            return asyncio.ensure_future(work)

        anns = [begin("ann", f"a{number}") for number in range(1000)]
        await settle()
        bobs = begin("bob", "b")
        await settle()
        if is_one_stream:
            assert slow.asked == ["a0"]
            await slow.answer("a0")
            assert slow.asked == ["a0", "b"]
        else:
            assert slow.asked == ["a0", "b"]  # whether or not a0 is ever answered
        await slow.answer("b")
        await bobs
        for task in anns:
            task.cancel()
        await settle()
        del anns, task
        await watching.close()
        gc.collect()
        assert not watching._by_principal and not watching._by_request


async def test_who_leaves_much_keeps_nobody_from_subscribing() -> None:
    async with gateway() as rig:
        slow = Slow(False)
        watching = resubscriber(rig, slow)
        for number in range(100):
            watching.wanted.add(("resources", f"a{number}"), Client(Principal("ann")))
            watching.end(("resources", f"a{number}"), Principal("ann").counted_as)
        await settle()
        assert slow.told == ["a0"]
        begun = asyncio.ensure_future(watching.begin(slow, ("resources", "b"), Client(Principal("bob"))))  # type: ignore[arg-type]
        await settle()
        await slow.answer("b")
        await begun
        await watching.close()


async def test_the_same_is_asked_for_once_however_many_want_it_at_the_same_time() -> None:
    async with gateway() as rig:
        slow = Slow(False)
        watching = resubscriber(rig, slow)
        begun = [
            asyncio.ensure_future(watching.begin(slow, ("resources", "x"), Client(Principal(who))))  # type: ignore[arg-type]
            for who in ("ann", "bob", "cid")
        ]
        await settle()
        await slow.answer("x")
        await asyncio.gather(*begun)
        assert slow.asked == ["x"] and watching.wanted.watched["resources", "x"] == 3


@pytest.mark.parametrize("kind", [LegacyServer, ModernServer])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_queue_of_subscriptions_keeps_nobody_else_from_subscribing(kind: Any, revision: str) -> None:
    there = docs(kind)
    async with gateway(there=there) as rig:
        ann, bob = await rig.legacy(principal="ann"), await rig.client(revision, principal="bob")
        waiting = [ann.start("resources/subscribe", uri=f"there+mem://a{number}") for number in range(64)]
        await settle()
        ear = await bob.listen("there+mem://b")
        for call in waiting:
            assert "error" not in (await call.reply()).message
        there.connections[0].updated("mem://b")
        await eventually(lambda: ear.updated == ["there+mem://b"])
        await ear.stop()


# After a restart.


@pytest.mark.parametrize("hers", [["b"], []], ids=["the same too", "others"])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_after_a_restart_principals_take_turns_in_being_asked_for(revision: str, hers: list[str]) -> None:
    there = docs(LegacyServer)
    async with gateway(there=there) as rig:
        mallory = await rig.client(revision, principal="mallory")
        await mallory.listen(
            *(f"there+mem://a{number}" for number in range(64)), *(f"there+mem://{each}" for each in hers)
        )
        bob = await rig.client(revision, principal="bob")
        heard = await bob.listen("there+mem://b")
        there.open_connections[0].hang_up()
        before = len(there.requests("resources/subscribe"))
        await rig.clock.advance(60)
        asked = [each["params"]["uri"] for each in there.requests("resources/subscribe")[before:]]
        assert "mem://b" in asked[:3] and len(asked) == len(set(asked)) == 65
        there.update("mem://b")
        await eventually(lambda: heard.updated == ["there+mem://b"])


def test_what_is_wanted_by_several_is_wanted_until_the_last_of_them_wants_it_no_more() -> None:
    wanted, ann, bob = Wanted(), Client(Principal("ann")), Client(Principal("bob"))
    for client in (ann, ann, bob):
        wanted.add(("resources", "a"), client)
    wanted.add(("resources", "b"), bob)
    assert list(wanted.in_turns()) == [("resources", "a"), ("resources", "b")]
    assert [wanted.remove(("resources", "a"), each.principal.counted_as) for each in (ann, bob, ann)] == [
        False,
        False,
        True,
    ]
    assert list(wanted.in_turns()) == [("resources", "b")]
    assert wanted.remove(("resources", "b"), bob.principal.counted_as) and not wanted.whose and not wanted.watched
