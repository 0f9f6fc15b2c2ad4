"""Limits that several processes hold together."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import msgspec
import pytest
from virtualtime import FakeClock

from toolgate.config import Config, Limits
from toolgate.config.access import Concurrency, Rate, Rates
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Principal
from toolgate.policy import shared_meters
from toolgate.policy.base import Passed
from toolgate.policy.shared_meters import SharedMeters, Table

ANN = Client(Principal(id="ann"))


def call(server: str = "git", tool: str = "log") -> Call:
    return msgspec.structs.replace(Call("tools/call", tool, client=ANN), server=server)


@pytest.fixture
def file() -> Iterator[int]:
    made = shared_meters.made(3)
    yield made
    os.close(made)


def limits(file: int, own: int, clock: FakeClock, **limits: object) -> shared_meters.Limits:
    config = Config(limits=Limits(**limits))  # type: ignore[arg-type]
    return SharedMeters(Table(file, 3, own), clock).limits(config)


async def test_a_rate_is_charged_by_all(file: int) -> None:
    clock = FakeClock()
    one, other = (limits(file, own, clock, rates=Rates(server=Rate(4, 60.0))) for own in (0, 1))
    for each in (one, other, one, other):
        each.before(call(), False)
    for each in (one, other):
        with pytest.raises(Fault, match="4 calls in 60 s"):
            each.before(call(), False)
    one.before(call("other"), False)
    await clock.sleep(15.0)
    other.before(call(), False)
    with pytest.raises(Fault):
        one.before(call(), False)


async def test_calls_at_once_are_counted_in_all_and_forgotten_with_their_process(file: int) -> None:
    clock = FakeClock()
    one, other = (limits(file, own, clock, concurrency=Concurrency(server=2)) for own in (0, 1))
    first, second = one.before(call(), False), other.before(call(), False)
    assert isinstance(first, Passed) and isinstance(second, Passed)
    with pytest.raises(Fault, match="may have 2"):
        one.before(call(), False)
    one.ended(call(), Fault("SERVER_FAILED", "x"), first.ticket)
    third = one.before(call(), False)
    with pytest.raises(Fault):
        one.before(call(), False)
    Table(file, 3, 2).forget(1)
    one.before(call(), False)
    with pytest.raises(Fault):
        one.before(call(), False)
    assert isinstance(third, Passed)


def test_a_full_bucket_forgets_what_is_soonest_as_good_as_new(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_meters, "BUCKETS", 1)
    table = Table(file, 3, 0)
    for number in range(shared_meters.WAYS):
        place = table.place(number)
        table.filled[place] = 100.0 - number
        table.count_here(place, number % 2)
    table.filled[table.place("another")] = 1.0
    gone = [number for number in range(shared_meters.WAYS) if table.find(number) is None]
    assert gone == [shared_meters.WAYS - 2]  # of those in which nothing runs


PROCESS = """
    import sys
    from toolgate.config import Config, Limits
    from toolgate.config.access import Rate, Rates
    from toolgate.core.clock import SystemClock
    from toolgate.core.fault import Fault
    from toolgate.core.model import Call, Client, Principal
    from toolgate.policy.shared_meters import SharedMeters, Table

    config = Config(limits=Limits(rates=Rates(server=Rate(500, 3600.0))))
    rule = SharedMeters(Table(int(sys.argv[1]), 3, int(sys.argv[2])), SystemClock()).limits(config)
    let = 0
    for _ in range(400):
        try:
            rule.before(Call("tools/call", "log", client=Client(Principal(id="ann")), server="git"), False)
            let += 1
        except Fault:
            pass
    print(let)
"""


def test_processes_that_call_at_the_same_time_never_exceed_a_rate_together(file: int) -> None:
    command = [sys.executable, "-c", textwrap.dedent(PROCESS), str(file)]
    started = [
        subprocess.Popen([*command, str(own)], stdout=subprocess.PIPE, text=True, pass_fds=(file,)) for own in range(3)
    ]
    let = [int(process.communicate(timeout=60)[0]) for process in started]
    assert sum(let) == 500


STANDS = """
    import fcntl, sys, time
    fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX)
    print("has it", flush=True)
    time.sleep(1000)
"""


async def test_one_that_stands_still_with_the_lock_keeps_no_other_from_going_on(file: int) -> None:
    command = [sys.executable, "-c", textwrap.dedent(STANDS), str(file)]
    standing = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=(file,))
    try:
        assert standing.stdout and standing.stdout.readline()
        rule = limits(file, 0, FakeClock(), rates=Rates(server=Rate(2, 60.0)))
        for _ in range(2):
            rule.before(call(), False)
        with pytest.raises(Fault, match="2 calls in 60 s"):
            rule.before(call(), False)
    finally:
        standing.kill()
        standing.communicate(timeout=60)


def test_a_process_knows_whether_it_has_more_connections_than_another(file: int) -> None:
    owner, one, other = (Table(file, 3, own) for own in range(3))
    assert not one.has_more(5)  # nobody else accepts yet
    assert not other.has_more(0)
    assert one.has_more(5)
    assert not other.has_more(5)
    assert not one.has_more(5)
    other.has_more(3)
    owner.forget(2)
    assert not one.has_more(5)  # the other has ended
