"""Attacks, each as it was found and in variations. What is marked `attack` takes long: `make attack` runs all of them,
`make test` the others. Tests that are coroutines run in virtual time.

What a test counts it says by `counted`, and all of it stands at the end of what pytest writes, in whichever process
the test ran."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from virtualtime import pytest_pyfunc_call as pytest_pyfunc_call


@pytest.fixture
def counted(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    return lambda line: record_property("counted", line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [each for stat in ("passed", "failed") for each in terminalreporter.stats.get(stat, ())]
    lines = sorted(str(line) for each in reports for name, line in each.user_properties if name == "counted")
    if lines:
        terminalreporter.section("what was counted")
        for line in lines:
            terminalreporter.write_line(line)
