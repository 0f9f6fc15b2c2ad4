"""Which of the hits are shown: the first ones, but for the last place, where one server has all of them.

The rule this file keeps: the order stays that of the ranker, and a server that alone has matches keeps all places. More
than one place for others costs answers that are right: a request may be about one server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def shown(owners: Sequence[str], limit: int, is_match: Callable[[int], bool]) -> list[int]:
    """The places in the order of the ranker that are shown. `owners` says who lists each; empty where many do.
    `is_match` is asked of the best one of another server."""
    first = list(range(min(limit, len(owners))))
    if limit < 2 or not any(owners[:1]) or len(set(owners[:limit])) > 1:
        return first
    other = next((at for at in range(limit, len(owners)) if owners[at] != owners[0]), None)
    return first if other is None or not is_match(other) else [*first[:-1], other]
