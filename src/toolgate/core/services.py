"""What goes by the configuration, and may have to go by another one while it works, has a method `prepared(config)`.

The rule: whatever can fail is done there, and changes nothing yet; what it returns takes that into use. So where one
service cannot go by a new configuration, all go on by the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Swap = Callable[[], object]
"""Takes what was prepared into use. It does not fail, and nothing else runs meanwhile."""


class Service(Protocol):
    def prepared(self, config: Any) -> Swap:
        """See the module. `config` is a `config.Config`, which is of a room above."""
        ...


def sets(what: object, **values: object) -> Swap:
    """Where there is nothing to prepare: these attributes."""

    def swap() -> None:
        for name, value in values.items():
            setattr(what, name, value)

    return swap
