"""Code where something is missing that should run it or keep it in: it is refused with what is missing, or runs with a
warning, as configured."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from processes.ground import real
from processes.sandbox_stage import Stage
from sandboxing import supervising

from toolgate.config import Config
from toolgate.config.sandbox import Sandbox as Settings
from toolgate.config.settings import Http
from toolgate.core.clock import SystemClock
from toolgate.core.fault import Fault
from toolgate.core.inflow import IntakeQueue
from toolgate.sandbox import javascript, monty
from toolgate.sandbox.limits import Limits
from toolgate.sandbox.run import Host
from toolgate.sandbox.services import Sandbox, described
from toolgate.upstreams.process import confinement
from toolgate.upstreams.process.supervisor import Supervisor

NOWHERE = Host({}, Stage.call)  # type: ignore[arg-type]
CODE = {"javascript": "return 6 * 7", "python": "6 * 7"}
LANGUAGES = pytest.mark.parametrize("language", CODE)


@pytest.fixture
def poor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway finds nothing to confine code with."""
    monkeypatch.setattr(confinement, "layers", lambda: confinement.Layers("Linux", "x86_64", 0, False))


@pytest.fixture
def without_deno() -> Iterator[None]:
    before = sys.modules.get("deno")
    sys.modules["deno"] = None  # type: ignore[assignment]
    yield
    del sys.modules["deno"]
    if before:
        sys.modules["deno"] = before


def sandbox(supervisor: Supervisor, host: str = "127.0.0.1", **settings: Any) -> tuple[Sandbox, Config]:
    config = Config(sandbox=Settings(warm=0, **settings), http=Http(host=host))
    return Sandbox(config, supervisor, SystemClock(), IntakeQueue()), config


@LANGUAGES
@pytest.mark.parametrize("how", [{"require_os_confinement": "always"}, {"host": "0.0.0.0"}], ids=["always", "beyond"])
@pytest.mark.usefixtures("poor")
@real
async def test_code_that_must_be_confined_is_refused_with_what_is_missing(language: str, how: Any) -> None:
    async with supervising() as supervisor:
        service, config = sandbox(supervisor, **how)
        assert language not in service.offered(config)
        with pytest.raises(Fault, match=r"it lacks seccomp filters .*; landlock"):
            await service.run(language, CODE[language], NOWHERE, whose="")
        told, would_run = described(config)[language]
        assert "it lacks seccomp" in told == service.described()[language] and not would_run
        await service.close()


@LANGUAGES
@pytest.mark.parametrize("how", [{"require_os_confinement": "never"}, {}], ids=["never", "on this machine"])
@pytest.mark.usefixtures("poor")
@real
async def test_other_code_runs_and_the_log_says_once_what_is_missing(
    language: str, how: Any, caplog: pytest.LogCaptureFixture
) -> None:
    if language == "python" and not monty.is_installed():
        pytest.skip("monty is not installed")
    caplog.set_level(logging.WARNING)
    async with supervising() as supervisor:
        service, config = sandbox(supervisor, **how)
        assert language in service.offered(config)
        for _ in range(2):
            assert (await service.run(language, CODE[language], NOWHERE, whose="")).value in (b"42", b"42.0")
        await service.close()
    said = [each.getMessage() for each in caplog.records if "confined" in each.getMessage()]
    assert len(said) == 1 and language in said[0] and "landlock" in said[0] and '"always"' in said[0]


@LANGUAGES
@real
async def test_code_that_is_confined_runs_without_a_warning(language: str, caplog: pytest.LogCaptureFixture) -> None:
    if confinement.missing(confinement.Box(profile="script")):
        pytest.skip("this kernel cannot put on a box")
    async with supervising() as supervisor:
        service, _ = sandbox(supervisor)
        await service.run(language, CODE[language], NOWHERE, whose="")
        await service.close()
    assert not caplog.records


@pytest.mark.parametrize("wanted", ["auto", "always", "never"])
@pytest.mark.usefixtures("without_deno")
@real
async def test_a_language_without_its_engine_is_not_offered_and_says_what_to_install(wanted: str) -> None:
    async with supervising() as supervisor:
        service, config = sandbox(supervisor, require_os_confinement=wanted)
        assert "javascript" not in service.offered(config)
        assert "pip install 'toolgate[sandbox]'" in service.missing("javascript")
        told, would_run = described(config)["javascript"]
        assert "pip install 'toolgate[sandbox]'" in told and not would_run
        with pytest.raises(Fault, match="pip install"):
            await service.run("javascript", "return 1", NOWHERE, whose="")
        await service.close()


def test_the_box_of_javascript_is_looked_for_once_and_not_for_each_run_that_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    monkeypatch.setattr(javascript, "_deno", lambda: looked.append("") or sys.executable)
    engine = javascript.engine(Supervisor(SystemClock(), {}), Limits())
    for _ in range(3):
        engine.problem()
    assert len(looked) == 1
