"""Lines out of chunks."""

from __future__ import annotations

import pytest

from toolgate.wire.lines import Lines


@pytest.mark.promise("spec.2026.stdio.lines")
def test_a_line_is_whole_when_its_end_has_come() -> None:
    lines = Lines()
    assert lines.feed(b"on") == []
    assert lines.pending == 2
    assert lines.feed(b"e\ntwo\nthr") == [b"one", b"two"]
    assert lines.pending == 3
    assert lines.feed(b"ee\n") == [b"three"]
    assert lines.pending == 0


def test_an_end_alone_ends_what_was_begun() -> None:
    lines = Lines()
    lines.feed(b"one")
    assert lines.feed(b"\n\n") == [b"one", b""]


def test_the_rest_of_a_dropped_line_is_dropped_too() -> None:
    lines = Lines()
    lines.feed(b"a very lo")
    lines.drop()
    assert lines.pending == 0
    assert lines.feed(b"ng line") == []
    assert lines.pending == 0
    assert lines.feed(b" indeed\ntwo\nth") == [b"two"]
    assert lines.feed(b"ree\n") == [b"three"]
