"""Any conversation of several clients and servers at once: no crash, no leak, and no message to the wrong client.

A conversation is made from a seed, and so is each of its steps, so that steps can be left out and the others stay what
they are: `shrunk` finds the few that a failure needs. As a program it talks for as long as it is told (`make fuzz`):

    FUZZ_SECONDS=600 python tests/properties/test_any_conversation.py
    FUZZ_SEED=17 FUZZ_STEPS=3,8,21 python tests/properties/test_any_conversation.py    says one again, aloud
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest
from official import LEGACY, MODERN
from peers import Rig, _Alarm, _by_header
from properties import any_client, any_server
from properties.any_client import Client
from properties.any_server import AnyServer, Ledger
from virtualtime import FakeClock, play, settle

from toolgate.app import App, running
from toolgate.config import CatalogLimits, Config, ParkingLimits, Server, Sessions
from toolgate.core.names import INTERNAL
from toolgate.upstreams.base import Upstream
from toolgate.upstreams.mcp.upstream import McpUpstream

SHORT, LONG = 40, 120  # steps
PATIENCE = 2000.0  # seconds in which every request ends, and everything that nobody uses any more
PAUSES = [0.0] * 24 + [0.02, 0.06, 0.06, 0.06, 0.3, 0.3, 1.0, 1.0, 12.0, 70.0]


class Failed(AssertionError):
    """What went wrong, in which conversation."""

    def __init__(self, seed: str, steps: Sequence[int], ledger: Ledger, why: str) -> None:
        super().__init__(f"{why}\nFUZZ_SEED={seed} FUZZ_STEPS={','.join(map(str, steps))}")
        self.ledger = ledger


def converse(seed: str, steps: Sequence[int]) -> Ledger:
    """One conversation, to its end. Raises `Failed`."""
    ledger = Ledger()
    try:
        play(_conversation(seed, steps, ledger))
    except Exception as error:
        notes = "\n".join(getattr(error, "__notes__", ()))
        raise Failed(seed, steps, ledger, f"{type(error).__name__}: {error}\n{notes}") from error
    return ledger


async def _conversation(seed: str, steps: Iterable[int], ledger: Ledger) -> None:
    random = Random(seed)
    servers = {
        "old": AnyServer(ledger, "old", random.choice(LEGACY), timeout=30.0),
        "new": AnyServer(ledger, "new", MODERN, timeout=30.0, scope=random.choice(["shared", "shared", "principal"])),
        "own": AnyServer(ledger, "own", random.choice([*LEGACY, MODERN]), timeout=30.0, scope="session"),
    }
    config = Config(
        servers=tuple(
            Server(id=name, name=name, type="stdio", command=name, **server.settings)
            for name, server in servers.items()
        ),
        parking=ParkingLimits(ttl=100.0, per_principal=4),
        sessions=Sessions(idle=600.0),
        catalog=CatalogLimits(ttl=60.0, page_size=3),
    )
    clock = FakeClock()
    links = {name: server.make_link for name, server in servers.items()}
    with _alarmed():
        async with running(config, clock=clock, environ={}, identify=_by_header, links=links) as app:
            rig = Rig(app, clock, {})
            clients: list[Client] = []
            for number in range(random.randrange(2, 5)):
                clients.append(Client(app, ledger, random, number, clients))
            try:
                for step in steps:
                    ledger.tell(f"--- {step}: {await _step(Random(f'{seed}/{step}'), clients, servers)}")
                    _hold(ledger)
                await _end(app, rig, clients, servers, ledger)
            finally:
                for client in clients:
                    await client.leave()
    for client in clients:
        client.check_requests()
    _hold(ledger)


async def _step(random: Random, clients: Sequence[Client], servers: dict[str, AnyServer]) -> str:
    if random.random() < 0.5:
        told = await any_client.act(random.choice(clients), random)
    else:
        told = any_server.act(list(servers.values()), random)
    pause = random.choice(PAUSES)
    if random.random() < 0.8:
        await settle()
        await asyncio.sleep(pause)
    return f"{told}, then {pause:g} s"


def _hold(ledger: Ledger) -> None:
    assert not ledger.wrong, "\n".join(ledger.wrong)


async def _end(app: App, rig: Rig, clients: Sequence[Client], servers: dict[str, AnyServer], ledger: Ledger) -> None:
    """Everything has its time, then everybody leaves, and nothing may be left."""
    await asyncio.sleep(PATIENCE)
    for client in clients:
        client.check_requests()
        for books in client.books:
            books.check_end()
    for line in servers["old"].open_lines:
        if line.questions.keys() - line.withdrawn:
            ledger.complain(f"{line.name} has no answer to {line.questions}")
    _hold(ledger)
    for client in clients:
        await client.leave()
    for server in servers.values():
        server.mood = "ready"  # one that never takes a subscription is asked again and again
    await asyncio.sleep(PATIENCE)
    await rig.is_quiet()
    left = dict(_left(app))
    assert not any(left.values()), f"left behind: { {name: what for name, what in left.items() if what} }"


def _left(app: App) -> Iterator[tuple[str, object]]:
    """What is there when nobody is, by name."""
    yield "sessions", app.sessions.all()
    yield "listeners", len(app.events)
    yield "pipes", len(app.http._pipes)
    yield "modern requests", app.http._modern_work
    catalog = app.gateway.snapshot.catalog
    yield (
        "lists being fetched",
        [place for place, slot in catalog._slots.items() if slot.fetch or slot.has_changed] + catalog._refresh.left,
    )
    upstreams = {id: each for id, each in app.gateway.snapshot.upstreams.items() if id not in INTERNAL}
    known = {(id, scope) for id, each in upstreams.items() for scope in _scopes(each)}
    kept = {place[:2] for place in (*catalog._slots, *catalog._readers) if place[1]}
    yield "lists of scopes that are forgotten", kept - known
    for upstream in upstreams.values():
        assert isinstance(upstream, McpUpstream)
        sessions = upstream._sessions.values()
        yield f"{upstream.id}: scopes", [session for session in sessions if session.scope and session.live]
        yield f"{upstream.id}: never open", [session for session in sessions if session.is_blank and session.scope]
        yield f"{upstream.id}: wanted", [session for session in sessions if session.resubscriber.wanted.watched]
        yield f"{upstream.id}: of sessions", [scope for scope in _scopes(upstream) if scope.split("/")[1]]
        yield (
            f"{upstream.id}: at work",
            [session for session in sessions if session.is_at_work or session.resubscriber.work],
        )
        yield f"{upstream.id}: on its way out", [session for session in sessions if session._closing]
        for connection in [session.live for session in sessions if session.live]:
            yield (
                f"{upstream.id}: requests",
                [each for each in connection.requests.pending.values() if not each.is_long],
            )
            yield f"{upstream.id}: given up", connection.requests.given_up
            yield f"{upstream.id}: tasks", connection.requests._work
            yield (
                f"{upstream.id}: questions",
                [connection.questions._open, connection.questions._kept]
                * bool(connection.questions._open or connection.questions._kept),
            )


def _scopes(upstream: Upstream) -> set[str]:
    assert isinstance(upstream, McpUpstream)
    return {scope for scope, _ in upstream._sessions if scope}


@contextmanager
def _alarmed() -> Iterator[None]:
    alarm = _Alarm(logging.ERROR)
    logger = logging.getLogger("toolgate")
    logger.addHandler(alarm)
    try:
        yield
    finally:
        logger.removeHandler(alarm)


def shrunk(seed: str, steps: Sequence[int]) -> Failed:
    """The failure with as few steps as can be found."""
    failure = _failure(seed, steps)
    assert failure, "it does not fail again"
    kept, size = list(steps), max(1, len(steps) // 2)
    while True:
        for start in range(len(kept) - 1, -1, -size):
            fewer = kept[: max(0, start - size + 1)] + kept[start + 1 :]
            if less := _failure(seed, fewer):
                kept, failure = fewer, less
                break
        else:
            if size == 1:
                return failure
            size //= 2


def _failure(seed: str, steps: Sequence[int]) -> Failed | None:
    try:
        converse(seed, steps)
    except Failed as failure:
        return failure
    return None


@pytest.mark.parametrize("seed", range(60))
def test_any_conversation_ends_well(seed: int) -> None:
    converse(str(seed), range(SHORT))


def talk(seconds: float, first: int) -> int:
    """Conversations one after the other. Returns the number of those that failed."""
    began, told, steps, failed = time.monotonic(), 0, 0, 0
    while time.monotonic() - began < seconds:
        length = Random(first + told).choice([SHORT, LONG, 2 * LONG])
        try:
            converse(str(first + told), range(length))
        except Failed:
            failed += 1
            print(shrunk(str(first + told), range(length)), flush=True)
        told, steps = told + 1, steps + length
    print(f"{told} conversations, {steps} steps, {failed} failed, from seed {first}")
    return failed


def main() -> int:
    logging.getLogger("toolgate").addHandler(logging.NullHandler())
    seed, numbers = os.environ.get("FUZZ_SEED"), os.environ.get("FUZZ_STEPS")
    if seed and numbers is not None:
        steps = [int(number) for number in numbers.split(",") if number]
        failure = _failure(seed, steps)
        print("\n".join(failure.ledger.told) + f"\n{failure}" if failure else "It went well.")
        return bool(failure)
    first = int(seed) if seed else time.time_ns() // 10**6 % 10**9
    return min(1, talk(float(os.environ.get("FUZZ_SECONDS", "600")), first))


if __name__ == "__main__":
    sys.exit(main())
