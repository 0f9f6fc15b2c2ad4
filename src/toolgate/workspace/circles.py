"""Circles in what waits for what, and in what is part of what: found in one pass over all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


def groups(edges: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Which nodes can be reached from each other: those of one number (Tarjan 1972, without recursion)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    group: dict[str, int] = {}
    open_nodes: list[str] = []
    for start in edges:
        if start in order:
            continue
        path: list[tuple[str, Iterator[str]]] = [(start, iter(edges[start]))]
        order[start] = lowest[start] = len(order)
        open_nodes.append(start)
        while path:
            node, rest = path[-1]
            for next_node in rest:
                if next_node not in order:
                    order[next_node] = lowest[next_node] = len(order)
                    open_nodes.append(next_node)
                    path.append((next_node, iter(edges.get(next_node, ()))))
                    break
                if next_node not in group:
                    lowest[node] = min(lowest[node], order[next_node])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    lowest[above] = min(lowest[above], lowest[node])
                if lowest[node] == order[node]:
                    while True:
                        member = open_nodes.pop()
                        group[member] = order[node]
                        if member == node:
                            break
    return group


def circular(edges: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """The edges that are part of a circle."""
    group = groups(edges)
    return {(start, end) for start, ends in edges.items() for end in ends if group[start] == group[end]}
