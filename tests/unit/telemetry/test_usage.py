"""What is counted of calls has a bound, and is told apart within it."""

from __future__ import annotations

from toolgate.telemetry import names
from toolgate.telemetry.exposition import histogram
from toolgate.telemetry.usage import MOST, Called, Durations, Usage, add


def test_calls_are_told_apart_by_who_called_what() -> None:
    usage = Usage()
    ann, bob = (Called(who, "tools/call", "git", "log") for who in ("ann", "bob"))
    usage.line(ann).calls += 2
    usage.line(bob).calls += 1
    assert {called: line.calls for called, line in usage.lines().items()} == {ann: 2, bob: 1}


def test_whatever_is_called_no_more_lines_are_kept_than_there_may_be() -> None:
    usage = Usage()
    for number in range(MOST + 500):
        usage.line(Called(f"user{number % 50}", "tools/call", "git", f"tool{number}")).calls += 1
    lines = usage.lines()
    assert len(lines) == MOST + 1
    assert lines[Called(names.OTHER, "tools/call", "git", names.OTHER)].calls == 500
    assert sum(line.calls for line in lines.values()) == MOST + 500


def test_a_line_that_is_known_is_still_told_apart_when_there_are_too_many() -> None:
    usage = Usage()
    first = Called("ann", "tools/call", "git", "log")
    usage.line(first)
    for number in range(MOST):
        usage.line(Called("bob", "tools/call", "git", f"tool{number}"))
    usage.line(first).calls += 1
    assert usage.lines()[first].calls == 1


def test_a_name_that_is_too_long_is_not_told_apart() -> None:
    usage = Usage()
    for letter in "ab":
        usage.line(Called("ann", "tools/call", "git", letter * 10_000)).calls += 1
    assert usage.lines()[Called("ann", "tools/call", "git", names.OTHER)].calls == 2


def test_a_histogram_counts_what_took_no_longer_than_each_bound() -> None:
    durations = Durations()
    for seconds in (0.0001, 0.005, 0.0051, 1000):
        durations.add(seconds)
    lines = histogram("d_seconds", "Help.", [({"server": "git"}, durations)]).splitlines()
    assert lines[:2] == ["# HELP d_seconds Help.", "# TYPE d_seconds histogram"]
    assert 'd_seconds_bucket{server="git",le="0.005"} 2' in lines
    assert 'd_seconds_bucket{server="git",le="0.01"} 3' in lines
    assert 'd_seconds_bucket{server="git",le="+Inf"} 4' in lines
    assert 'd_seconds_count{server="git"} 4' in lines
    assert 'd_seconds_sum{server="git"} 1000.0102' in lines


def test_what_another_process_has_counted_is_added() -> None:
    here, there, called = Usage(), Usage(), Called("ann", "tools/call", "git", "log")
    for usage, times in ((here, 2), (there, 3)):
        for _ in range(times):
            line = usage.line(called)
            line.calls, line.bytes_in, line.ratio = line.calls + 1, line.bytes_in + 10, 0.25
            line.errors = {"tool_error": line.errors.get("tool_error", 0) + 1}
            add(line.served, "", 0.5)
    lines, timed = there.taken()
    assert not there.lines()
    here.add(called, lines[called])
    here.add_timed(called[1:], timed[called[1:]])
    line = here.lines()[called]
    assert (line.calls, line.bytes_in, line.ratio, line.errors) == (5, 50, 0.25, {"tool_error": 5})
    assert (sum(line.served[""].counts), line.served[""].seconds) == (5, 2.5)


def test_nor_are_there_more_durations_of_other_processes() -> None:
    usage = Usage()
    took = Durations()
    for number in range(MOST + 500):
        usage.add_timed(("tools/call", "git", f"tool{number}"), ({"": took}, {}))
    assert len(usage._timed) == MOST + 1  # pyright: ignore[reportPrivateUsage]
