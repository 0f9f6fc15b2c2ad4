"""The suite's client scenarios: a gateway in front of the suite's server, driven by the official SDK's client.

They are about what the gateway is to servers. A modern client in front leaves out by itself what a server got wrong,
so each is also driven by a client of the handshake, which does not. Those of `CLIENT_AUTHORIZATION` sign in: their user
is sent to the gateway's page, and the browser is played by the command.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scenarios import (
    CLIENT,
    CLIENT_AUTHORIZATION,
    CLIENT_AUTHORIZATION_BESIDES,
    CLIENT_BESIDES,
    CLIENT_NOT_ALONE,
    CLIENT_NOT_BEFORE_A_LEGACY_ONE,
    CLIENT_OF_THE_HANDSHAKE,
)
from suite import LEGACY, MODERN, Result

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

Results = Callable[[str, str, str], Result]
ALL = [(revision, name) for revision in (LEGACY, MODERN) for name in (*CLIENT[revision], *CLIENT_BESIDES[revision])]
PROTECTED = [
    (revision, name)
    for revision in (LEGACY, MODERN)
    for name in (*CLIENT_AUTHORIZATION[revision], *CLIENT_AUTHORIZATION_BESIDES[revision])
]
ALONE = [case for case in ALL if case[1] not in CLIENT_NOT_ALONE]


def alone(revision: str, scenario: str) -> str:
    return "direct-modern" if revision == MODERN and scenario not in CLIENT_OF_THE_HANDSHAKE else "direct-legacy"


@pytest.mark.parametrize(("revision", "scenario"), ALONE)
def test_the_client_alone_passes(client_result: Results, revision: str, scenario: str) -> None:
    found = client_result(alone(revision, scenario), revision, scenario)
    assert not found.problems, "\n".join(found.problems)
    assert found.passed


@pytest.mark.parametrize(
    ("front", "revision", "scenario"),
    [
        (front, *case)
        for case in ALL
        for front in ("gateway-modern", "gateway-legacy")
        if front == "gateway-modern" or case[1] not in CLIENT_NOT_BEFORE_A_LEGACY_ONE
    ],
)
def test_the_gateway_is_a_client_that_passes(client_result: Results, front: str, revision: str, scenario: str) -> None:
    found = client_result(front, revision, scenario)
    assert not found.problems, "\n".join(found.problems)
    assert found.passed
    if (revision, scenario) in ALONE:
        assert found.skipped == client_result(alone(revision, scenario), revision, scenario).skipped


@pytest.mark.parametrize("front", ["gateway-modern", "gateway-legacy"])
@pytest.mark.parametrize(("revision", "scenario"), PROTECTED)
def test_the_gateway_signs_in_as_it_should(client_result: Results, front: str, revision: str, scenario: str) -> None:
    found = client_result(front, revision, scenario)
    assert not found.problems, "\n".join(found.problems)
    assert found.passed
