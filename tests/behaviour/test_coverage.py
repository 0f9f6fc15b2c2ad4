"""Every promise has a test, and every marked test a promise: read from the files, nothing is run for it."""

from __future__ import annotations

import pytest
import table

PROMISES = {promise.id: promise for promise in table.promises()}
MARKED = table.marked()


def test_every_promise_that_is_served_has_a_test() -> None:
    assert [id for id, promise in PROMISES.items() if promise.later is None and id not in MARKED] == []


def test_every_marker_names_a_promise() -> None:
    assert {id: tests for id, tests in MARKED.items() if id not in PROMISES} == {}


def test_no_test_is_marked_with_what_comes_later() -> None:
    assert [id for id in MARKED if id in PROMISES and PROMISES[id].later is not None] == []


def test_a_test_names_a_promise_once() -> None:
    assert {id: tests for id, tests in MARKED.items() if len(set(tests)) < len(tests)} == {}


def test_only_tests_are_marked() -> None:
    names = {test.name for tests in MARKED.values() for test in tests}
    assert {name for name in names if not name.startswith(("test_", "Test", "(all)"))} == set()


def test_ids_are_unique_and_sorted() -> None:
    assert list(PROMISES) == sorted(PROMISES)


def test_every_promise_is_one_sentence() -> None:
    for promise in PROMISES.values():
        assert promise.text.endswith(".") and len(promise.text) <= 120, promise


def test_every_source_is_a_section_of_a_text() -> None:
    assert {id for id, promise in PROMISES.items() if not set(promise.sources) <= set(table.SOURCES)} == set()


@pytest.mark.parametrize("source", table.SOURCES)
def test_every_section_has_its_promises(source: str) -> None:
    assert any(source in promise.sources for promise in PROMISES.values())


def test_what_comes_later_says_with_what() -> None:
    known = {None, *table.ISSUES, *table.UNNUMBERED}
    assert {id for id, promise in PROMISES.items() if promise.later not in known} == set()


def test_the_table_shows_every_promise() -> None:
    shown = "\n".join(table.lines())
    assert all(f"  {id} " in shown for id in PROMISES)
