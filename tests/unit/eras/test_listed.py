"""Which items of lists every client can read."""

from __future__ import annotations

from msgspec import Raw

from toolgate.eras import listed


def test_of_a_kind_that_needs_nothing_but_a_name_an_item_is_readable_without_a_row_of_its_own() -> None:
    assert listed.why_unreadable("skills", Raw(b'{"name":"cook"}')) == ""
    assert listed.why_unreadable("skills", Raw(b'{"name":"cook","weight":1e999}')) == listed.NUMBER
