"""Server-sent events: one written, many read, however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.core.sse import COMMENT, Event, Reader, TooLong, alone, event


def read(*chunks: bytes, limit: int = 1000) -> list[Event]:
    reader = Reader(limit)
    return [found for chunk in chunks for found in reader.feed(chunk)]


def test_what_is_written_is_read_back() -> None:
    assert read(event(b'{"a":1}')) == [Event(b'{"a":1}')]
    assert read(event(b"", id="7", retry=500)) == [Event(b"", id="7", retry=500)]


def test_a_comment_is_no_event() -> None:
    assert read(COMMENT, event(b"x"), COMMENT) == [Event(b"x")]


def test_any_of_the_three_line_ends_ends_a_line() -> None:
    for end in (b"\n", b"\r", b"\r\n"):
        assert read(b"data: a" + end + b"data: b" + end + end) == [Event(b"a\nb")]


def test_an_event_that_is_cut_anywhere_is_whole() -> None:
    text = b"data: a\r\n\ndata:b\r\r\n\ndata: c\n\r\n"
    for at in range(len(text)):
        assert read(text[:at], text[at:]) == [Event(b"a"), Event(b"b"), Event(b"c")]
    assert read(*(text[at : at + 1] for at in range(len(text)))) == [Event(b"a"), Event(b"b"), Event(b"c")]


def test_an_empty_chunk_changes_nothing() -> None:
    assert read(b"data: a\r", b"", b"\n", b"", b"\r", b"", b"\n") == [Event(b"a")]


def test_half_an_event_at_the_end_is_none() -> None:
    assert read(b"data: a\n") == []


def test_one_space_after_the_colon_belongs_to_the_form() -> None:
    assert read(b"data:  a\n\n") == [Event(b" a")]
    assert read(b"data\n\n") == [Event(b"")]


def test_fields_that_mean_nothing_are_passed_over() -> None:
    assert read(b"colour: red\nid: a\0b\nretry: soon\ndata: a\n\n") == [Event(b"a")]


def test_an_event_has_its_own_name_and_the_next_has_not() -> None:
    assert read(b"event: ping\ndata: a\n\ndata: b\n\n") == [Event(b"a", "ping"), Event(b"b")]


def test_an_event_over_the_limit_is_refused_however_it_comes() -> None:
    for chunks in ([b"data: " + b"a" * 50], [b"data: " + b"a" * 9 + b"\n"] * 5, [b"a" * 9] * 5, [b"data:\n"] * 50):
        with pytest.raises(TooLong):
            read(*chunks, limit=40)


def test_many_small_events_are_under_the_limit() -> None:
    assert len(read(*[event(b"a" * 9)] * 50, limit=40)) == 50


# One event alone.


@pytest.mark.parametrize(
    "chunk",
    [event(b'{"a":1}'), b"event: message\r\ndata: {}\r\n\r\n", b"data: {}\n\n", b"event:message\ndata:x\n\n"],
)
def test_an_answer_as_most_servers_write_it_is_seen_without_a_reader(chunk: bytes) -> None:
    assert [Event(alone(chunk) or b"")] == read(chunk)


PIECES = [b"event: message", b"event: other", b"event", b"data: {}", b"data:  x", b"data:", b"data", b"id: 7", b"id:"]
PIECES += [b"retry: 5", b": told", b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\xff", b"\0"]


@given(st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join), st.binary(max_size=9))
def test_what_is_seen_without_a_reader_is_what_one_reads_and_it_goes_on_as_one_that_begins(
    chunk: bytes, next: bytes
) -> None:
    if data := alone(chunk):
        reader = Reader(1000)
        assert reader.feed(chunk) == [Event(data)]
        assert reader.feed(next + b"\n\n") == Reader(1000).feed(next + b"\n\n")
