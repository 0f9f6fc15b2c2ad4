"""Whatever is done to an audit's file afterwards is found."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from toolgate.state import audit
from toolgate.state.audit import NOTHING, Head, chained

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
values = texts | st.integers() | st.booleans() | st.none() | st.dictionaries(texts, texts, max_size=3)
members = st.dictionaries(
    st.sampled_from(["event", "who", "hash", "seq", "prev"]) | texts, values, min_size=1, max_size=5
)
records = st.lists(members.map(msgspec.json.encode), min_size=1, max_size=8)
several = records.filter(lambda found: len(found) > 1)


@pytest.fixture(scope="session")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes, Head], tuple[str, ...]]:
    """What `verify` finds in a file that holds this."""
    file = tmp_path_factory.mktemp("audit") / "audit.jsonl"

    def found(data: bytes, anchor: Head) -> tuple[str, ...]:
        file.write_bytes(data)
        return audit.verify([file], anchor).wrong

    return found


Wrong = Callable[[bytes, Head], tuple[str, ...]]


@given(records)
def test_what_was_written_is_right_and_is_lines_of_json(wrong: Wrong, found: list[bytes]) -> None:
    data, head = chained(NOTHING, found)
    assert wrong(data, head) == ()
    assert all(json.loads(line)["hash"] for line in data.split(b"\n")[:-1])


@given(records, st.data())
def test_a_byte_that_is_another_is_found(wrong: Wrong, found: list[bytes], drawn: st.DataObject) -> None:
    data, head = chained(NOTHING, found)
    place = drawn.draw(st.integers(0, len(data) - 1))
    other = drawn.draw(st.integers(0, 255).filter(lambda byte: byte != data[place]))
    changed = data[:place] + bytes([other]) + data[place + 1 :]
    assert wrong(changed, head)
    assert wrong(changed, NOTHING), "without the anchor, too"


def test_each_bit_of_each_byte_is_held(wrong: Wrong) -> None:
    data, head = chained(NOTHING, [b'{"event":"one","who":"ann"}', b'{"event":"two"}', b'{"event":"three"}'])
    for place, bit in itertools.product(range(len(data)), range(8)):
        changed = data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]
        assert wrong(changed, head), (place, bit)


@given(records, st.data())
def test_bytes_that_are_gone_or_new_are_found(wrong: Wrong, found: list[bytes], drawn: st.DataObject) -> None:
    data, head = chained(NOTHING, found)
    start = drawn.draw(st.integers(0, len(data)))
    end = drawn.draw(st.integers(start, len(data)))
    changed = data[:start] + drawn.draw(st.binary(max_size=20)) + data[end:]
    assume(changed != data)
    assert wrong(changed, head)


@given(several, st.data())
def test_lines_that_are_gone_swapped_or_there_twice_are_found(
    wrong: Wrong, found: list[bytes], drawn: st.DataObject
) -> None:
    data, head = chained(NOTHING, found)
    lines = data.splitlines(keepends=True)
    order = drawn.draw(st.lists(st.integers(0, len(lines) - 1), max_size=len(lines) + 2))
    assume(order != list(range(len(lines))))
    changed = b"".join(lines[index] for index in order)
    assume(changed != data)
    assert wrong(changed, head)


@given(several, st.data())
def test_a_tail_that_is_cut_off_is_found(wrong: Wrong, found: list[bytes], drawn: st.DataObject) -> None:
    data, head = chained(NOTHING, found)
    assert wrong(data[: drawn.draw(st.integers(0, len(data) - 1))], head)


@given(several, members, st.data())
def test_a_chain_that_was_made_anew_is_found(
    wrong: Wrong, found: list[bytes], other: dict[str, object], drawn: st.DataObject
) -> None:
    """By whoever can write the file and knows how it is made, but cannot write the store."""
    _, head = chained(NOTHING, found)
    place = drawn.draw(st.integers(0, len(found) - 1))
    encoded = msgspec.json.encode(other)
    assume(encoded != found[place])
    forged, _ = chained(NOTHING, [*found[:place], encoded, *found[place + 1 :]])
    assert wrong(forged, NOTHING) == ()
    assert wrong(forged, head)


def test_what_was_done_is_found_in_a_file_of_many_pages(wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_TAIL", 100)
    data, head = chained(NOTHING, [b'{"event":"%d"}' % number for number in range(200)])
    assert wrong(data, head) == ()
    assert wrong(data[:9000] + b"x" + data[9001:], head)
