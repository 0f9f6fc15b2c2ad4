"""What `toolgate status` says of credentials."""

from __future__ import annotations

from typing import Any

from toolgate.cli.status import SOON, of_credentials

NOW = 1_800_000_000.0


def said(**state: Any) -> list[str]:
    return of_credentials([state], NOW)


def test_one_that_fails_says_for_how_long_and_why() -> None:
    state = {"credential": "sign-in", "principal": "client:ann", "server": "docs", "failing_since": NOW - 300}
    assert said(**state, problem="not accepted") == [
        "credential sign-in of client:ann for docs: failing for 5m 0s: not accepted"
    ]


def test_one_that_ends_soon_is_shown_unless_it_is_renewed() -> None:
    key: Any = {"credential": "key:ab", "principal": "client:ann", "expires": NOW + 3600}
    assert said(**key) == ["credential key:ab of client:ann: expires in 1h 0m"]
    assert said(**{**key, "expires": NOW - 1}) == ["credential key:ab of client:ann: has expired"]
    assert said(**key, renews=True) == []
    assert said(**{**key, "expires": NOW + SOON + 60}) == []


def test_what_is_written_in_a_configuration_is_shown_without_controls() -> None:
    (line,) = said(credential="header:\x1b[31m", server="docs", expires=NOW - 1)
    assert "\x1b" not in line
