"""Which places of a box's rules are what they were when the operator named them.

A rule is for what a path leads to when the program starts. A server that may write a folder can put a link there, which
leads its next start to wherever it wants. The rule this file keeps: what is looked up in a folder that the server may
write gets no rule of its own; it is covered by that folder's, or it is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from toolgate.upstreams.process.programs import holds

_MOST_LINKS = 40  # as the kernel has it


class LedAstray(Exception):
    """A place leads out of a folder that the server may write. `str()` is the place."""


def writable(places: Iterable[str]) -> list[str]:
    """Those that need a rule. Raises `LedAstray`."""
    wanted = [(place, os.path.realpath(place)) for place in dict.fromkeys(places)]
    found: list[str] = []
    for at, (place, _) in enumerate(wanted):
        others = [folder for index, (_, folder) in enumerate(wanted) if index != at and folder != wanted[at][1]]
        found += own_rule([place], others)
    return found


def own_rule(places: Iterable[str], folders: Sequence[str], covered: Sequence[str] = ()) -> list[str]:
    """Of places those that need a rule of their own, where `folders` may be written; what lies in those, or in what is
    `covered` anyhow, needs none. Raises `LedAstray`."""
    found: list[str] = []
    for place in places:
        if not any(holds(folder, os.path.dirname(entry)) for entry in _looked_up(place) for folder in folders):
            found.append(place)
        elif not any(holds(folder, os.path.realpath(place)) for folder in (*folders, *covered)):
            raise LedAstray(place)
    return found


def _looked_up(place: str) -> Iterator[str]:
    """Every entry of a folder by which a path is followed, links included; its folder is a real one."""
    ahead, here, links = os.path.abspath(place).split("/")[1:], "/", 0
    while ahead:
        name = ahead.pop(0)
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here)
            continue
        entry = os.path.join(here, name)
        yield entry
        if os.path.islink(entry) and links < _MOST_LINKS:
            links += 1
            target = os.readlink(entry)
            here = "/" if os.path.isabs(target) else here
            ahead = [*target.split("/"), *ahead]
        else:
            here = entry
