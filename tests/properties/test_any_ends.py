"""However calls end, what was taken for them is given back, and each round of each of them is one line of the audit."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers import (
    LATEST,
    METERED,
    MODERN,
    LegacyServer,
    ModernClient,
    ModernServer,
    RpcError,
    Scene,
    form,
    gateway,
    named,
)
from virtualtime import FakeClock, patience, play, settle

from toolgate.config import Audit, Config, Limits
from toolgate.config.access import Concurrency, Rate, Rates
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Done
from toolgate.core.redaction import Redactor
from toolgate.policy import limits
from toolgate.policy.base import Passed
from toolgate.policy.limits import Meters
from toolgate.state.audit import Trail, verify

ENDS = ["done", "fails", "asks", "asks and is left", "is cancelled", "crashes", "is refused", "wrong answer"]


async def done(scene: Scene) -> str:
    await asyncio.sleep(0.1)
    return "done"


async def fails(scene: Scene) -> str:
    raise RpcError(-32000, "no")


async def asks(scene: Scene) -> str:
    return str(await scene.ask(form()))


async def forever(scene: Scene) -> str:
    await asyncio.Event().wait()
    return "never"


async def crashes(scene: Scene) -> str:
    scene.crash()
    return "never"


SCRIPTS = {"done": done, "fails": fails, "asks": asks, "forever": forever, "crashes": crashes}


async def one(client: Any, end: str) -> None:
    if end == "asks":
        await client.converse("tools/call", {"elicitation/create": lambda _: named("Ann")}, name="there__asks")
    elif end == "asks and is left":
        call = client.start("tools/call", name="there__asks")
        await settle()
        await gone(client, call)
    elif end == "is cancelled":
        call = client.start("tools/call", name="there__forever")
        await settle()
        await gone(client, call)
    elif end == "is refused":
        await client.request("tools/call", name="there__nothing")
    elif end == "wrong answer":
        await client.converse("tools/call", {"elicitation/create": lambda _: {"action": "cancel"}}, name="there__asks")
    else:
        await client.request("tools/call", name=f"there__{end}")


async def gone(client: Any, call: Any) -> None:
    if isinstance(client, ModernClient):
        await call.gone()
    else:
        client.cancel(call)


@given(
    st.lists(st.tuples(st.sampled_from(ENDS), st.booleans()), max_size=6),
    st.sampled_from([LATEST, MODERN]),
    st.sampled_from([LegacyServer, ModernServer]),
)
def test_after_any_calls_nothing_is_taken_and_all_is_told(
    tmp_path_factory: pytest.TempPathFactory, ends: list[tuple[str, bool]], revision: str, server: Any
) -> None:
    file = tmp_path_factory.mktemp("audit") / "audit.jsonl"

    async def conversation() -> None:
        trail = Trail(file, FakeClock(), None, Redactor())
        config = Config(limits=METERED, audit=Audit(enabled=True))
        async with gateway(config=config, audit=trail, there=server(SCRIPTS)) as rig:
            together = []
            for end, waits in ends:
                client = await rig.client(revision)
                call = asyncio.ensure_future(one(client, end))
                together.append(call)
                if waits:
                    await call
            await asyncio.gather(*together)
            await rig.clock.advance(400)
            assert rig.app._policy_deps.meters.are_idle
        await trail.close()

    with patience(60):  # the question of a shared server may be held until it is clear whose it is, or refused
        play(conversation())
    if ends:
        told = [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []
        assert len(told) >= len([end for end, _ in ends if end != "is refused"])
        assert not told or verify([file]).wrong == ()
    file.unlink(missing_ok=True)


# The policy alone.


class Model(msgspec.Struct):
    """What a rate lets through, reckoned as it is said: a bucket that is full at first, and filled evenly."""

    count: int
    seconds: float
    left: float
    at: float

    def takes(self, now: float) -> bool:
        self.left = min(self.count, self.left + (now - self.at) * self.count / self.seconds)
        self.at = now
        if self.left < 1 - 1e-4:
            return False
        self.left -= 1
        return True


@given(
    st.integers(1, 20),
    st.sampled_from([1.0, 10.0, 60.0]),
    st.lists(st.sampled_from([0.0, 0.25, 1.0, 7.0]), max_size=60),
)
def test_a_rate_is_a_bucket_that_fills(count: int, seconds: float, pauses: list[float]) -> None:
    async def conversation() -> None:
        clock = FakeClock()
        rule = limits.Limits(limited(count, seconds), Meters(clock))
        model = Model(count, seconds, count, clock.now())
        for pause in pauses:
            await asyncio.sleep(pause)
            try:
                rule.before(Call("tools/call", "plain", Client(), server="there"), False)
                passed = True
            except Fault as fault:
                passed, wait = False, fault.extra["retryAfter"]
                assert 0 < wait <= seconds
            assert passed == model.takes(clock.now())

    play(conversation())


def limited(count: int, seconds: float) -> Config:
    return Config(limits=Limits(rates=Rates(principal=Rate(count, seconds))))


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["before", "again", "ended"])), max_size=60))
def test_after_any_sequence_of_ends_meters_are_back_to_zero(steps: list[tuple[int, str]]) -> None:
    async def conversation() -> None:
        meters = Meters(FakeClock())
        config = Config(limits=msgspec.structs.replace(METERED, concurrency=limits_of(3)))
        rule = limits.Limits(config, meters)
        running: dict[int, Passed] = {}
        for number, step in steps:
            call = running.get(number)
            if step == "ended" and call:
                for _ in range(1 + number % 2):  # some are told twice
                    rule.ended(call.call, Done(b"{}"), call.ticket)
                del running[number]
            elif step != "ended" and not call:
                fresh = Call("tools/call", f"tool-{number % 2}", Client(), server=f"server-{number % 3}")
                try:
                    passed = rule.before(fresh, step == "again")
                    assert isinstance(passed, Passed)
                    running[number] = passed
                except Fault:
                    assert step == "before" and len(running) >= 3
            assert sum(meters.of("principal").running.values()) == len(running)
        for passed in running.values():
            rule.ended(passed.call, Fault("TIMEOUT", "no"), passed.ticket)
        assert meters.are_idle

    play(conversation())


def limits_of(most: int) -> Any:
    return Concurrency(principal=most, server=most, tool=most)
