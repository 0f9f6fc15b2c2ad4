"""What goes by the configuration, and may have to go by another one while it works.

The rule: whatever can fail is done in `prepared`, which changes nothing yet. So where one service cannot go by a new
configuration, all go on by the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

Settings = TypeVar("Settings", contravariant=True)

Swap = Callable[[], object]
"""Takes what was prepared into use. It does not fail, and nothing else runs meanwhile."""


class Service(Protocol, Generic[Settings]):
    def prepared(self, settings: Settings, /) -> Swap:
        """What it takes to go by these from now on. Raises where that cannot be."""
        ...


def prepare(services: Iterable[Service[Settings]], settings: Settings) -> Swap:
    """The swaps of all, as one. Raises what the first of them raises that cannot go by these settings."""
    swaps = [service.prepared(settings) for service in services]

    def swap() -> None:
        for each in swaps:
            each()

    return swap
