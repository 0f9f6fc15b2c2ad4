"""One client subscribes in as many sessions and streams as it likes, to the longest URIs that there are."""

from __future__ import annotations

from typing import Any

import pytest
from peers import LegacyServer, Scene, gateway
from virtualtime import settle

from toolgate.core.fault import Fault
from toolgate.gateway import subscriptions


async def text(scene: Scene) -> str:
    return scene.target


def docs() -> Any:
    return LegacyServer({"read": text}, resources={}, templates={"mem://{any}": text}, tells=True)


async def begun(rig: Any, who: str, *names: str) -> Any:
    """A session of its own that subscribes to these; what was refused is in its `refused`."""
    session = await rig.legacy(principal=who)
    answers = [await session.start("resources/subscribe", uri=f"there+mem://{name}").reply() for name in names]
    session.refused = [answer.message["error"] for answer in answers if "error" in answer.message]
    return session


async def test_the_subscriptions_of_all_sessions_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_OF_ONE", 4)
    async with gateway(there=docs()) as rig:
        first = await begun(rig, "ann", "a", "b", "c")
        second = await begun(rig, "ann", "a", "d")
        assert not first.refused
        [refusal] = second.refused
        assert "unsubscribe" in str(refusal)
        assert not (await begun(rig, "bob", "a", "b")).refused
        assert "resourceSubscriptions" not in (await rig.modern("ann").listen("there+mem://e")).honoured
        for name in ("a", "b", "c"):
            await first.request("resources/unsubscribe", uri=f"there+mem://{name}")
        ear = await rig.modern("ann").listen("there+mem://e", "there+mem://f")
        assert len(ear.honoured["resourceSubscriptions"]) == 2
        await ear.stop()


async def test_their_uris_count_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_BYTES", 40_000)
    async with gateway(there=docs()) as rig:
        assert not (await begun(rig, "ann", "x" * 16_000, "y" * 16_000)).refused
        assert (await begun(rig, "ann", "z" * 16_000)).refused
        assert not (await begun(rig, "ann", "z")).refused
        assert (await begun(rig, "bob", "\N{SNOWMAN}" * 12_000)).refused


async def test_what_was_refused_or_has_ended_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_OF_ONE", 2)
    there = docs()

    async def broken(*_: Any) -> None:
        raise Fault("SERVER_FAILED", "it is gone")

    async with gateway(there=there) as rig:
        held = rig.app.gateway.subscriptions
        for _ in range(5):
            await begun(rig, "ann", "a", "b")
            for session in rig.app.sessions.all():
                rig.app.sessions.end(session)
            await settle()
            assert not held._counted and not held._bytes
        for upstream in rig.app.gateway.snapshot.upstreams.values():
            monkeypatch.setattr(upstream, "watch", broken)
        assert len((await begun(rig, "ann", "a", "b", "c")).refused) == 3
        assert not held._counted and not held._bytes
