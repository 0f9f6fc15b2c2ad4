"""Python code that tries to get out of its run, and servers that try to get out of their box.

Each attempt is made with all that the language layer hides given back (`broken`), so that the kernel alone stands in
its way. In the short form one attempt of each family is made; `make attack` makes all, as root and as an ordinary user.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attack.sandboxes import python_attempts, server_attempts, trying
from processes.ground import real

from toolgate.upstreams.process import confinement

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]

as_another = trying.as_another


def first_of_each(attempts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return list({name.partition(":")[0]: (name, code) for name, code in reversed(attempts)}.values())


def test_there_are_enough_attempts_of_every_family() -> None:
    assert len(python_attempts.attempts()) >= 60
    assert len(server_attempts.attempts()) >= 40
    assert all(python_attempts.ATTEMPTS.values())


@real
async def test_one_attempt_of_each_family_with_the_language_layer_broken(tmp_path: Path) -> None:
    assert await trying.try_python(tmp_path, first_of_each(python_attempts.attempts()), broken=True) == {}


@real
async def test_one_attempt_of_each_family_by_a_server(tmp_path: Path) -> None:
    assert await trying.try_servers(tmp_path, first_of_each(server_attempts.attempts())) == {}


@pytest.mark.attack
@pytest.mark.timeout(trying.WHILE)
@pytest.mark.parametrize("kind", ["python", "python, language layer broken", "python, monty, no box", "server"])
def test_none_escapes(kind: str, tmp_path: Path, counted: Callable[[str], None]) -> None:
    trying.none_escapes(kind, tmp_path, counted)


@pytest.mark.attack
@pytest.mark.timeout(trying.WHILE)
@as_another
@pytest.mark.parametrize("kind", ["python", "python, language layer broken", "python, monty, no box", "server"])
def test_none_escapes_as_an_ordinary_user(kind: str, counted: Callable[[str], None]) -> None:
    trying.none_escapes(kind, None, counted)
