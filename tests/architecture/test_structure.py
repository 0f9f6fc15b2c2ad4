"""The structure gets no worse: each figure of `measure` is the one that `ratchets.toml` keeps."""

from __future__ import annotations

import ast

import pytest
from architecture import imports, measure

KEPT = measure.kept()


@pytest.mark.parametrize("name", measure.FIGURES)
def test_a_figure_is_the_one_that_is_kept(name: str) -> None:
    now, kept = measure.FIGURES[name](), KEPT["figures"][name]["kept"]
    assert now <= kept, f"{name}: {now} now, {kept} before. See `python tests/architecture/measure.py`"
    assert now >= kept, f"{name}: {now} now, {kept} before. That is better: lower it in ratchets.toml"


def test_each_figure_is_kept() -> None:
    assert KEPT["figures"].keys() == measure.FIGURES.keys()


def test_a_protocol_is_excused_with_a_reason_while_it_has_one_implementation() -> None:
    excused = KEPT["excused_protocols"]
    assert excused.keys() <= measure.with_one_implementation(), "excused for nothing: take it out of ratchets.toml"
    assert len(excused) <= KEPT["most_excused_protocols"]
    assert all(excused.values())


def test_a_key_is_excused_with_a_reason_while_other_places_know_it() -> None:
    excused = KEPT["excused_keys"]
    assert excused.keys() <= measure.known_elsewhere().keys(), "excused for nothing: take it out of ratchets.toml"
    assert all(excused.values())


def test_a_warm_call_visits_the_files_of_the_spine_in_their_order() -> None:
    visited = iter(measure.one_call().visited)
    out_of_order = [file for file in KEPT["spine"]["files"] if file not in visited]
    assert not out_of_order


def test_no_file_of_the_spine_is_left_out() -> None:
    """What waits while the request is sent to the server belongs to it."""
    assert measure.one_call().above_the_link <= set(KEPT["spine"]["files"])


# The measures themselves.


def test_a_chain_of_imports_counts_all_members_of_a_cycle() -> None:
    among = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"d"}}
    graph = {name: frozenset(others) for name, others in among.items()}
    assert imports.longest_chain(graph) == ["a", "b", "c", "d"]
    assert {"b", "c"} in imports.strongly_connected(graph)


def test_imports_for_type_checkers_count() -> None:
    text = "if TYPE_CHECKING:\n    from toolgate.core import model, names\nimport toolgate.app\nimport os"
    assert set(imports.imported(ast.parse(text), {"core.model"})) == {"core.model", "core", "app"}


def test_protocols_are_matched_by_their_members() -> None:
    found = measure.protocols()
    stores = {"state.memory.MemoryStore", "state.read_only.ReadOnly", "state.sqlite.SqliteStore"}
    assert stores == set(found["state.base.Store"])
    assert found["core.clock.Clock"] == ("core.clock.SystemClock",)


def test_code_is_counted_without_comments_and_docstrings() -> None:
    whole = measure.lines_of_code("core/clock.py")
    assert 0 < measure.lines_of_code("core/clock.py", " from `SystemClock` on") < whole
    assert 0 < measure.lines_of_code("core/clock.py", " to `Clock.now`") < whole
    assert measure.lines_of_code("core/clock.py", ": the docstrings") == 0
