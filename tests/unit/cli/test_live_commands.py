"""What `logs -f`, `status --watch` and `top` make of what a gateway says, a look at a time."""

from __future__ import annotations

from toolgate.cli import screen, top
from toolgate.cli.logs import Reading
from toolgate.cli.top import Counts


def said(stderr: str, started: float = 1.0) -> dict[str, object]:
    return {"stderr": stderr, "started": started}


def test_each_line_of_a_server_is_shown_once() -> None:
    reading = Reading("notes")
    assert reading.more(said("one\ntwo\n")) == ["one", "two"]
    assert reading.more(said("one\ntwo\n")) == []
    assert reading.more(said("one\ntwo\nthree\n")) == ["three"]


def test_a_line_is_shown_when_it_has_its_end() -> None:
    reading = Reading("notes")
    assert reading.more(said("one\ntw")) == ["one"]
    assert reading.more(said("one\ntwo\n")) == ["two"]


def test_of_a_server_that_has_written_more_than_is_kept_the_rest_is_shown() -> None:
    reading = Reading("notes")
    assert reading.more(said("one\none\ntwo\n")) == ["one", "one", "two"]
    assert reading.more(said("two\nthree\n")) == ["three"]
    assert reading.more(said("eight\nnine\n")) == ["eight", "nine"]


def test_a_server_that_was_started_again_begins_anew() -> None:
    reading = Reading("notes")
    assert reading.more(said("ready\n")) == ["ready"]
    assert reading.more(said("ready\n", started=2.0)) == ["ready"]
    assert reading.more({}) == []


def test_what_is_shown_in_place_fits_and_holds_no_orders_to_the_terminal() -> None:
    shown = screen.in_place("a long line\nsecond \x1b[2J\nthird", columns=8, rows=3)
    assert shown.startswith("\x1b[Ha long \x1b[K\n") and shown.endswith("\x1b[K\x1b[J")
    assert "third" not in shown and "\x1b[2J" not in shown


TEXT = """\
# TYPE toolgate_calls_total counter
toolgate_calls_total{principal="ann",method="tools/call",server="notes",tool="list_notes"} 7
toolgate_calls_total{principal="bob",method="tools/call",server="notes",tool="list_notes"} 3
toolgate_calls_total{principal="bob",method="tools/list",server="notes",tool=""} 50
toolgate_call_errors_total{principal="ann",method="tools/call",server="notes",tool="list_notes",error="TIMEOUT"} 1
toolgate_call_refusals_total{principal="ann",method="tools/call",server="notes",tool="list_notes",reason="ACCESS_DENIED"} 1
mcp_server_operation_duration_seconds_sum{mcp_method_name="tools/call",server="notes",gen_ai_tool_name="list_notes",error_type=""} 0.05
toolgate_serving 1
"""  # noqa: E501


def test_calls_of_a_tool_are_added_up_over_its_callers() -> None:
    tool = ("notes", "list_notes")
    found = top.counts(TEXT, 5.0)
    assert found == Counts(5.0, {tool: 10.0}, {tool: 2.0}, {tool: 0.05})
    earlier = Counts(3.0, {tool: 6.0}, {}, {})
    head, row = list(top._of_tools(earlier, found))[1:]  # pyright: ignore[reportPrivateUsage]
    assert head.split() == ["tool", "calls/s", "calls", "failed", "mean", "ms"]
    assert row.split() == ["notes", "list_notes", "2.0", "10", "2", "5.0"]
