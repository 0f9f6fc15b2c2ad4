"""Which tasks may have a text in their title or labels, found without a look at each task.

Of each text 62 bits say which pairs of letters it has. A task has a place, and 62 places in a row are a block, which is
a row of `task_letters`: for each bit a number, in which the tasks that have it are bits themselves. So a look at a few
numbers of a block tells of 62 tasks at once (Faloutsos and Chan 1988, "bit-sliced signature files").

The rule this file keeps: a task that has a text in it is found; others may be, so who asks looks at the texts.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolgate.state.base import Connection

BITS = 62  # of a text, and tasks of a block: as many as a number of the table has, without a sign
MOST_FOUND = 1000  # tasks: of more, it takes less time to go through all in their order
CHUNK = 500  # values of one query

_COLUMNS = tuple(f"{kind}{bit}" for kind in ("title", "label") for bit in range(BITS))


@functools.lru_cache(256)  # many tasks have the same labels
def letters(text: str) -> int:
    """Which pairs of bytes a text has, in any case of ASCII, as 62 bits. A text that has another in it has all bits of
    that; so it need not be looked through where it has not."""
    written = text.encode(errors="replace").lower()
    bits = 0
    for pair in {*itertools.pairwise(written)}:
        bits |= 1 << (pair[0] * 31 + pair[1]) % BITS
    return bits


def places(connection: Connection, title: int, labels: int) -> list[int] | None:
    """Where the tasks are that have these bits in their title and their labels; None where they are too many, or no
    bits are wanted."""
    wanted = title | labels << BITS
    if not wanted:
        return None
    all = " & ".join(name for bit, name in enumerate(_COLUMNS) if wanted >> bit & 1)
    sql = f"SELECT block, {all} FROM task_letters WHERE ({all}) <> 0 LIMIT ?"
    found = connection.execute(sql, (MOST_FOUND + 1,)).fetchall()
    if sum(bits.bit_count() for _, bits in found) > MOST_FOUND:
        return None
    return [block * BITS + at for block, bits in found for at in range(BITS) if bits >> at & 1]


def note(connection: Connection, texts: Mapping[str, tuple[int, int]]) -> None:
    """The bits of titles and labels of tasks that are written, by their ids."""
    at = _places_of(connection, texts)
    [free] = connection.execute("SELECT coalesce(max(place) + 1, 0) FROM task_place").fetchone()
    new = [(free + number, id) for number, id in enumerate(id for id in texts if id not in at)]
    connection.executemany("INSERT INTO task_place (place, task_id) VALUES (?, ?)", new)
    at |= {id: place for place, id in new}
    blocks: dict[int, tuple[list[int], list[int]]] = {}  # which tasks of each are written, and the bits of those
    for id, (title, labels) in texts.items():
        block, place = divmod(at[id], BITS)
        written, columns = blocks.setdefault(block, ([], [0] * len(_COLUMNS)))
        written.append(place)
        bits = title | labels << BITS
        while bits:
            columns[(bits & -bits).bit_length() - 1] |= 1 << place
            bits &= bits - 1
    for block, (written, columns) in blocks.items():
        sql = f"SELECT {', '.join(_COLUMNS)} FROM task_letters WHERE block = ?"
        before = connection.execute(sql, (block,)).fetchone() or [0] * len(_COLUMNS)
        others = ~sum(1 << place for place in written)
        after = [old & others | new for old, new in zip(before, columns, strict=True)]
        if after != list(before):
            connection.execute(_PUT, (block, *after))


def forget(connection: Connection, ids: Sequence[str]) -> None:
    """Tasks that are deleted; a block that has none any more is not looked at again."""
    blocks = {str(place // BITS) for place in _places_of(connection, ids).values()}
    for chunk in chunks(ids):
        connection.execute(f"DELETE FROM task_place WHERE task_id IN ({', '.join('?' * len(chunk))})", chunk)
    for chunk in chunks(blocks):
        connection.execute(f"DELETE FROM task_letters WHERE block IN ({', '.join(chunk)}) AND NOT {_IS_USED}")


def _places_of(connection: Connection, ids: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for chunk in chunks(ids):
        sql = f"SELECT task_id, place FROM task_place WHERE task_id IN ({', '.join('?' * len(chunk))})"
        found |= dict(connection.execute(sql, chunk).fetchall())
    return found


def chunks(values: Iterable[str], most: int = CHUNK) -> Iterator[tuple[str, ...]]:
    """So many as one query takes."""
    rest = iter(values)
    while chunk := tuple(itertools.islice(rest, most)):
        yield chunk


_PUT = (
    f"INSERT INTO task_letters (block, {', '.join(_COLUMNS)}) VALUES (?{', ?' * len(_COLUMNS)})"
    f" ON CONFLICT (block) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS)}"
)
_IS_USED = (
    f"EXISTS (SELECT 1 FROM task_place WHERE place BETWEEN task_letters.block * {BITS}"
    f" AND task_letters.block * {BITS} + {BITS - 1})"
)
