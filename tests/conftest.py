"""What all rooms of the tests share: the marker that ties a test to a promise (`tests/behaviour/promises.toml`).

No property has a deadline: how long an example takes depends on how busy the machine is.
"""

import os
import random
from types import SimpleNamespace

import pytest
from hypothesis import settings

from toolgate.core import events, inflow, steps

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", 'promise("id", ...): the promises that this test holds')


@pytest.fixture(autouse=True)
def busy_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `BUSY_MACHINE=SEED` each look at how long something took is a surprise, as on a machine that does much else:
    what is done in turns is cut elsewhere each time."""
    if not (seed := os.environ.get("BUSY_MACHINE")):
        return
    chance, now = random.Random(seed + request.node.nodeid), 0.0
    share = chance.choice((0.01, 0.1, 0.5, 1.0))

    def perf_counter() -> float:
        nonlocal now
        now += 1e-6 + (chance.choice((0.001, 0.01, 1.0)) if chance.random() < share else 0.0)
        return now

    for module in (inflow, events):
        monkeypatch.setattr(module, "perf_counter", perf_counter)
    monkeypatch.setattr(steps, "time", SimpleNamespace(perf_counter=perf_counter))
