"""Circles in what waits for what, and in what is part of what: found in one pass over all of it, or from two ends."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolgate.state.base import Connection
from toolgate.workspace import tasks

MOST_LOOKED_AT = 100_000  # tasks, for a circle
MOST_EDGES = 1_000_000  # dependencies, for the same

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
    """Whether a task waits for another, over whatever is between. It may take half a second, so it is looked for where
    nobody waits to write. Raises `Fault` where there is too much to look at."""
    found = waits_within(connection, task, goal, MOST_EDGES)
    if found is None:
        raise tasks.refused(
            f"more than {MOST_LOOKED_AT:,} tasks wait for each other there, or over more than {MOST_EDGES:,} "
            "dependencies, too many to check for a cycle"
        )
    return found


def waits_within(connection: Connection, task: str, goal: str, most: int) -> bool | None:
    """Whether a task waits for another, as far as that is seen in so many dependencies; None where it is not. It is
    looked for from both ends, always where less was seen so far: so what nothing waits for yet costs nothing, however
    much is behind the other."""
    seen = {"blockers": {task}, "blocking": {goal}}
    edges = {"blockers": [task], "blocking": [goal]}
    while edges["blockers"] and edges["blocking"]:
        way, other = sorted(seen, key=lambda each: len(seen[each]))
        (start, end), level = ENDS[way], edges[way]
        edges[way] = []
        for chunk in tasks.chunks(level):
            sql = (  # how many rows were read tells whether they were all
                f"SELECT step, count(*) FROM (SELECT {end} AS step FROM task_dependency"
                f" WHERE {start} IN ({', '.join('?' * len(chunk))}) AND dep_type = 'blocks' LIMIT ?) e GROUP BY step"
            )
            rows = connection.execute(sql, (*chunk, most + 1)).fetchall()
            most -= sum(count for _, count in rows)
            found = {id for id, _ in rows}
            if found & seen[other]:
                return True
            if most < 0 or len(seen[way]) > MOST_LOOKED_AT:
                return None
            edges[way] += found - seen[way]
            seen[way] |= found
    return False


# Whether the dependencies are those that were looked at: each that could make others wait for something else, so each
# but those of a new task that waits for nothing yet, changes what is kept here.


def version(connection: Connection) -> bytes | None:
    row = connection.execute("SELECT value FROM kept WHERE space = ? AND key = ?", _VERSION).fetchone()
    return row[0] if row else None


def changed(connection: Connection) -> None:
    connection.execute(
        "INSERT INTO kept (space, key, value) VALUES (?, ?, ?)"
        " ON CONFLICT (space, key) DO UPDATE SET value = excluded.value",
        (*_VERSION, secrets.token_bytes(8)),
    )


_VERSION = ("workspace", "dependencies")


def steps(
    connection: Connection, ids: Iterable[str], way: str, most: int = MOST_LOOKED_AT
) -> Iterator[tuple[str, str]]:
    """What is one step from these tasks: each with where it leads."""
    start, end = ENDS[way]
    for chunk in tasks.chunks(ids):
        marks = ", ".join("?" * len(chunk))
        sql = f"SELECT {start}, {end} FROM task_dependency WHERE {start} IN ({marks}) AND dep_type = 'blocks' LIMIT ?"
        yield from connection.execute(sql, (*chunk, most + 1)).fetchall()
