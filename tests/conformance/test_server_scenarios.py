"""The suite's server scenarios: against the fixture server alone, and through the gateway in every way there is.

Where they fail without a gateway, they say nothing about it. Each scenario is a test, and none is expected to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from scenarios import NEVER_RUN, OUT_OF_REACH, SAME_AGAIN, SERVER, SERVER_BESIDES
from suite import LEGACY, MODERN, WORLDS, Result

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

Results = Callable[[str, str], dict[str, Result]]
REVISIONS = (LEGACY, MODERN)


def each(worlds: Iterable[str], revisions: Iterable[str], *tables: dict[str, list[str]]) -> pytest.MarkDecorator:
    chosen = [(world, revision) for world in worlds for revision in revisions]
    cases = [(*case, scenario) for case in chosen for table in tables for scenario in table[case[1]]]
    cases = [case for case in cases if case[2] not in OUT_OF_REACH.get(case[0], [])]
    return pytest.mark.parametrize(("world", "revision", "scenario"), cases)


def passes(results: dict[str, Result], scenario: str) -> None:
    assert scenario in results, "the suite has no result for it"
    found = results[scenario]
    assert not found.problems, "\n".join(found.problems)
    assert not found.skipped, "a check that is skipped says nothing"
    assert found.passed


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_scenarios_written_down_are_those_that_the_suite_runs(server_results: Results, revision: str) -> None:
    run = set(server_results("direct", revision)) - {NEVER_RUN}
    assert run == {*SERVER[revision], *SERVER_BESIDES[revision]}


@each(["direct"], REVISIONS, SERVER, SERVER_BESIDES)
def test_the_fixture_server_alone_passes(server_results: Results, world: str, revision: str, scenario: str) -> None:
    passes(server_results(world, revision), scenario)


@each(["http", "stdio", "crowded"], REVISIONS, SERVER, SERVER_BESIDES)
def test_a_scenario_passes_through_the_gateway(
    server_results: Results, world: str, revision: str, scenario: str
) -> None:
    passes(server_results(world, revision), scenario)


EVERYTHING = [name for name, world in WORLDS.items() if world.everything and not world.direct]


@each(["everything-direct"], REVISIONS, SERVER)
def test_the_sdks_everything_server_alone_passes(
    server_results: Results, world: str, revision: str, scenario: str
) -> None:
    passes(server_results(world, revision), scenario)


@each([name for name in EVERYTHING if not name.endswith("-modern")], [LEGACY], SERVER)
def test_a_client_of_the_handshake_passes_at_the_sdks_everything_server(
    server_results: Results, world: str, revision: str, scenario: str
) -> None:
    passes(server_results(world, revision), scenario)


@each([name for name in EVERYTHING if not name.endswith("-legacy")], [MODERN], SERVER)
def test_a_modern_client_passes_at_the_sdks_everything_server(
    server_results: Results, world: str, revision: str, scenario: str
) -> None:
    found = server_results(world, revision)[scenario]
    found = Result(found.passed, [each for each in found.problems if not each.startswith(SAME_AGAIN)], found.skipped)
    passes({scenario: found}, scenario)


@each(["direct-legacy"], [LEGACY], SERVER, SERVER_BESIDES)
def test_the_fixture_server_of_the_handshake_alone_passes(
    server_results: Results, world: str, revision: str, scenario: str
) -> None:
    passes(server_results(world, revision), scenario)


@each(["direct-modern"], [MODERN], SERVER, SERVER_BESIDES)
def test_the_modern_fixture_server_alone_passes(
    server_results: Results, world: str, revision: str, scenario: str
) -> None:
    passes(server_results(world, revision), scenario)


@each(["http-modern", "stdio-modern"], [LEGACY], SERVER)
def test_a_client_of_the_handshake_reaches_all_of_a_modern_server(
    server_results: Results, world: str, revision: str, scenario: str
) -> None:
    passes(server_results(world, revision), scenario)


@each(["http-legacy", "stdio-legacy"], [MODERN], SERVER)
def test_a_modern_client_reaches_what_a_server_of_the_handshake_has(
    server_results: Results, world: str, revision: str, scenario: str
) -> None:
    passes(server_results(world, revision), scenario)
