"""Circles in what waits for what, and in what is part of what: found in one pass over all of it, or from two ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolgate.state.base import Connection
from toolgate.workspace import tasks

MOST_LOOKED_AT = 100_000  # tasks, for a circle

# By where they lead from a task: the condition on the table, and the other end.
ENDS = {"blockers": ("task_id", "depends_on"), "blocking": ("depends_on", "task_id")}


def groups(edges: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Which nodes can be reached from each other: those of one number (Tarjan 1972, without recursion). A
    node stands behind those that can be reached from it."""
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


# In the table.


def waits(connection: Connection, task: str, goal: str) -> bool:
    """Whether a task waits for another, over whatever is between. It is looked for from both ends, always where less
    was seen so far: so what nothing waits for yet costs nothing, however much is behind the other. Raises `Fault`
    where there is too much to look at."""
    seen = {"blockers": {task}, "blocking": {goal}}
    edges = {"blockers": [task], "blocking": [goal]}
    while edges["blockers"] and edges["blocking"]:
        way = min(seen, key=lambda each: len(seen[each]))
        found = {end for _, end in steps(connection, edges[way], way)} - seen[way]
        seen[way] |= found
        edges[way] = list(found)
        if seen["blockers"] & seen["blocking"]:
            return True
        if len(seen[way]) > MOST_LOOKED_AT:
            raise tasks.refused(
                f"more than {MOST_LOOKED_AT:,} tasks wait for each other there, too many to check for a cycle"
            )
    return False


def steps(
    connection: Connection, ids: Iterable[str], way: str, most: int = MOST_LOOKED_AT
) -> Iterator[tuple[str, str]]:
    """What is one step from these tasks: each with where it leads."""
    start, end = ENDS[way]
    for chunk in tasks.chunks(ids):
        marks = ", ".join("?" * len(chunk))
        sql = f"SELECT {start}, {end} FROM task_dependency WHERE {start} IN ({marks}) AND dep_type = 'blocks' LIMIT ?"
        yield from connection.execute(sql, (*chunk, most + 1)).fetchall()
