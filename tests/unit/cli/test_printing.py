"""What strangers have written does nothing to a terminal."""

from __future__ import annotations

import pytest

from toolgate.cli.printing import on_a_terminal


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("a\tb\r\nc", "a\tb\nc"),
        ("\x1b[1;31mred\x1b[0m and \x1b[38:5:1mred\x1b[m", "red and red"),
        ("\x1b[2J\x1b]0;title\x07", "\\u{1b}[2J\\u{1b}]0;title\\u{7}"),
        ("\x1b\x1b[31m[2J", "\\u{1b}[2J"),
    ],
)
def test_colours_go_and_all_else_is_shown_as_what_it_is(written: str, shown: str) -> None:
    assert on_a_terminal(written) == shown
