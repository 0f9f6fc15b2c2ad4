"""What waits for itself is found, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from toolgate.workspace.circles import circular

nodes = some.sampled_from("abcdef")
graphs = some.dictionaries(nodes, some.lists(nodes, max_size=4), max_size=6)


def reached(edges: dict[str, list[str]], start: str) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        for end in edges.get(ahead.pop(), ()):
            if end not in found:
                found.add(end)
                ahead.append(end)
    return found


@given(graphs)
def test_an_edge_is_circular_where_its_end_leads_to_its_start(edges: dict[str, list[str]]) -> None:
    expected = {
        (start, end) for start, ends in edges.items() for end in ends if start == end or start in reached(edges, end)
    }
    assert circular(edges) == expected


def test_a_long_chain_needs_no_recursion() -> None:
    chain = {str(number): [str(number + 1)] for number in range(50_000)}
    assert circular(chain) == set()
    assert len(circular({**chain, "50000": ["0"]})) == 50_001
