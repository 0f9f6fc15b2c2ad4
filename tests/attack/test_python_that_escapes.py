"""Python code that tries to get out of its run, and servers that try to get out of their box.

Each attempt is made with all that the language layer hides given back (`broken`), so that the kernel alone stands in
its way. In the short form one attempt of each family is made; `make attack` makes all, as root and as an ordinary user.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from attack.sandboxes import python_attempts, server_attempts, trying
from processes.ground import real

from toolgate.upstreams.process import confinement

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]

as_another = pytest.mark.skipif(not trying.may_drop(), reason="only root can become another user")


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
@pytest.mark.parametrize("broken", [False, True], ids=["as it is", "broken"])
def test_no_python_code_escapes(tmp_path: Path, broken: bool, capsys: pytest.CaptureFixture[str]) -> None:
    found = asyncio.run(trying.try_python(tmp_path, python_attempts.attempts(), broken))
    with capsys.disabled():
        print(f"\nPython, {'language layer broken' if broken else 'as it is'}: {len(found)} escapes"
              f" of {len(python_attempts.attempts())} attempts")  # fmt: skip
    assert found == {}


@pytest.mark.attack
def test_no_server_escapes_from_its_box(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = asyncio.run(trying.try_servers(tmp_path, server_attempts.attempts()))
    with capsys.disabled():
        print(f"\nservers: {len(found)} escapes of {len(server_attempts.attempts())} attempts")
    assert found == {}


@pytest.mark.attack
@as_another
@pytest.mark.parametrize("kind", ["python", "server"])
def test_nobody_escapes_as_an_ordinary_user(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    came = trying.as_nobody(kind)
    with capsys.disabled():
        print(f"\n{kind}, as an ordinary user: {len(came['found'])} escapes of {came['tried']} attempts")
    assert came["found"] == {}
    assert came["tried"] > 40
