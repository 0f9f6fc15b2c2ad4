"""Circles in what waits for what, and in what is part of what: found in one pass over all of it, or from two ends."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolgate.state.base import Connection
from toolgate.workspace import tasks
from toolgate.workspace.pace import Pace

MOST_LOOKED_AT = 100_000  # tasks, for a circle
MOST_EDGES = 1_000_000  # dependencies, for the same

# By where they lead from a task: the condition on the table, and the other end.
ENDS = {"blockers": ("task_id", "depends_on"), "blocking": ("depends_on", "task_id")}


def groups(count: int, starts: array[int], ends: array[int], pace: Pace) -> tuple[array[int], array[int]]:
    """Which of so many nodes can be reached from each other: those of one number (Tarjan 1972, without recursion); and
    all nodes in an order in which each stands behind those that can be reached from it, but for these. An edge leads
    from one node of `starts` to the one of `ends` at the same place."""
    first, ahead = by_place(ends, starts, count, pace)
    order, lowest, group = (array("q", [-1]) * count for _ in range(3))
    place = first[:]  # of the next edge to go
    found, open_nodes, path = array("q"), array("q"), array("q")
    seen = 0
    for start in pace.through(range(count)):
        if order[start] < 0:
            path.append(start)
        while path:
            node = path[-1]
            if order[node] < 0:
                order[node] = lowest[node] = seen
                seen += 1
                open_nodes.append(node)
            for at in pace.through(range(place[node], first[node + 1])):
                end = ahead[at]
                if order[end] < 0:
                    place[node] = at  # looked at once more, for what is the lowest behind it
                    path.append(end)
                    break
                if group[end] < 0:
                    lowest[node] = min(lowest[node], lowest[end])
            else:
                path.pop()
                while lowest[node] == order[node] and group[node] < 0:
                    member = open_nodes.pop()
                    group[member] = order[node]
                    found.append(member)
    return group, found


def by_place(values: array[int], places: array[int], count: int, pace: Pace) -> tuple[array[int], array[int]]:
    """The values in the order of their places, of which there are so many; and where those of each begin."""
    first = array("q", [0]) * (count + 1)
    for place in pace.through(places):
        first[place + 1] += 1
    for place in pace.through(range(count)):
        first[place + 1] += first[place]
    free, found = first[:], array("q", [0]) * len(values)
    for value, place in pace.through(zip(values, places, strict=True)):
        found[free[place]] = value
        free[place] += 1
    return first, found


def circular(edges: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """The edges that are part of a circle."""
    numbers: dict[str, int] = {}
    starts, ends = array("q"), array("q")
    for start, found in edges.items():
        for end in found:
            starts.append(numbers.setdefault(start, len(numbers)))
            ends.append(numbers.setdefault(end, len(numbers)))
    group, _ = groups(len(numbers), starts, ends, Pace())
    return {
        (start, end) for start, found in edges.items() for end in found if group[numbers[start]] == group[numbers[end]]
    }


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


def waits_within(
    connection: Connection, task: str, goal: str, most: int, looked_at: dict[str, set[str]] | None = None
) -> bool | None:
    """Whether a task waits for another, as far as that is seen in so many dependencies; None where it is not. It is
    looked for from both ends, always where less was seen so far: so what nothing waits for yet costs nothing, however
    much is behind the other. What was looked at is in `looked_at` then."""
    seen = {} if looked_at is None else looked_at
    seen |= {"blockers": {task}, "blocking": {goal}}
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
