"""Scripts that try to leave their sandbox: none of them reaches anything of Deno, of the machine or of the gateway, and
none makes the host take what they wrote for something else. `sandbox/javascript.py` has them.

Each layer is tried without the other: Deno without the kernel's box, and the box around a Deno that may do everything
(`sandboxes/deno_attempts.py`). In the short form some attempts are made; `make attack` makes all, as root and as an
ordinary user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from attack.sandbox.javascript import ATTEMPTS, SECRET
from attack.sandboxes import deno_attempts, trying
from processes.ground import real

from toolgate.upstreams.process import confinement

QUICK = 15  # one of so many is tried by `make test`

KINDS = pytest.mark.parametrize("kind", ["javascript", "javascript, no box", "deno, the box alone"])
boxes = pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box")


def test_there_are_enough_attempts() -> None:
    assert len(ATTEMPTS) >= 120
    assert len({attempt.name for attempt in ATTEMPTS}) == len({attempt.code for attempt in ATTEMPTS}) == len(ATTEMPTS)
    assert len(deno_attempts.attempts()) >= 20


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_TEST_SECRET", SECRET)
    monkeypatch.setenv("HTTPS_PROXY", f"http://{SECRET}@127.0.0.1:9")


@real
@pytest.mark.parametrize("is_boxed", [True, False], ids=["in a box", "in none"])
async def test_some_scripts_do_not_escape(is_boxed: bool) -> None:
    assert await trying.try_javascript(ATTEMPTS[:: QUICK if is_boxed else 3 * QUICK], is_boxed) == {}


@boxes
@real
async def test_what_is_out_of_the_language_does_not_get_out_of_the_box(tmp_path: Path) -> None:
    first = {name.partition(":")[0]: (name, code) for name, code in reversed(deno_attempts.attempts())}
    assert await trying.try_deno(tmp_path, list(first.values())) == {}


@pytest.mark.attack
@pytest.mark.timeout(trying.WHILE)
@boxes
@KINDS
def test_no_script_escapes(kind: str, tmp_path: Path, counted: Callable[[str], None]) -> None:
    trying.none_escapes(kind, tmp_path, counted)


@pytest.mark.attack
@pytest.mark.timeout(trying.WHILE)
@boxes
@trying.as_another
@KINDS
def test_no_script_escapes_as_an_ordinary_user(kind: str, counted: Callable[[str], None]) -> None:
    trying.none_escapes(kind, None, counted)
