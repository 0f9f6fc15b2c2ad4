"""The conformance suite: what carries its marker is off unless its cache is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import suite


@pytest.fixture(autouse=True)
def the_suite_is_installed(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("conformance") and (reason := suite.missing()):
        pytest.skip(reason)


@pytest.fixture(scope="session")
def server_results(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], dict[str, suite.Result]]:
    """What the suite says of the fixture server as reached through a world, run once for each revision."""

    @cache
    def of(world: str, revision: str) -> dict[str, suite.Result]:
        return suite.run_server(world, revision, tmp_path_factory.mktemp(f"{world}-{revision}"))

    return of


@pytest.fixture(scope="session")
def client_result(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], suite.Result]:
    """What the suite says of a client in one scenario, run once."""

    @cache
    def of(how: str, revision: str, scenario: str) -> suite.Result:
        return suite.run_client(how, revision, tmp_path_factory.mktemp(f"{how}-{scenario}".replace("/", "-")), scenario)

    return of
