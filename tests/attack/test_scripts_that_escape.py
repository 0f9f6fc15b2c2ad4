"""Scripts that try to leave their sandbox: none of them reaches anything of Deno, of the machine or of the gateway, and
none makes the host take what they wrote for something else. `sandbox/javascript.py` has them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attack.sandbox.javascript import ATTEMPTS, FORGED, SECRET, Attempt
from processes.ground import real
from processes.sandbox_stage import staged

QUICK = 15  # one of so many is tried by `make test`
PIECE = 20  # attempts of one test

NOT_TO_BE_TOLD = ("ESCAPED", SECRET, "root:x:0", "worker.js", "ext:deno", "ext:core", "site-packages")


def test_there_are_enough_attempts() -> None:
    assert len(ATTEMPTS) >= 120
    assert len({attempt.name for attempt in ATTEMPTS}) == len({attempt.code for attempt in ATTEMPTS}) == len(ATTEMPTS)


@real
async def none_escapes(attempts: Sequence[Attempt]) -> None:
    async with staged(warm=1) as stage:
        for attempt in attempts:
            stage.called.clear()
            told = await stage.told(attempt.whole)
            assert not any(word in told for word in NOT_TO_BE_TOLD), (attempt.name, told)
            assert told != f"\n{FORGED}" and "the sandbox failed" not in told, (attempt.name, told)
            over = len(stage.called)
            assert await stage.told("return await servers.shop.echo({ n: 1 })") == '\n{"n":1}', attempt.name
            assert len(stage.called) == over + 1, attempt.name


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_TEST_SECRET", SECRET)
    monkeypatch.setenv("HTTPS_PROXY", f"http://{SECRET}@127.0.0.1:9")


def test_some_scripts_do_not_escape() -> None:
    none_escapes(ATTEMPTS[::QUICK])


@pytest.mark.attack
@pytest.mark.parametrize("begin", range(0, len(ATTEMPTS), PIECE))
def test_no_script_escapes(begin: int) -> None:
    none_escapes(ATTEMPTS[begin : begin + PIECE])
