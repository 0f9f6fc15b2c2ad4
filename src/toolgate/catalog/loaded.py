"""What clients have loaded of tools: the list that each was told last, and how much control tools have told it of them.

The rule this file keeps: on the way of a list or a call nothing is counted but what was counted already; who wants to
know counts (`gateway.token_meter`). Clients without a session are told apart by their principal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Raw

from toolgate.core.model import Client

MOST = 1000  # clients that are remembered, each at one path


class Loaded:
    """Of one client at one path. `items` are those of the last list of tools, and `counted` their tokens by server once
    somebody wanted to know them; `told` are further tokens by server."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.items: Sequence[Raw] = ()
        self.counted: Counter[str] | None = None
        self.told = Counter[str]()


class LoadedTools:
    def __init__(self) -> None:
        self._loaded: dict[tuple[str, str], Loaded] = {}

    def listed(self, client: Client, items: Sequence[Raw]) -> None:
        if client.path:  # else the gateway itself has asked
            found = self._of(client)
            found.items, found.counted = items, None

    def told(self, client: Client, server: str, tokens: int) -> None:
        if client.path:
            self._of(client).told[server] += tokens

    def find(self, client: Client) -> Loaded | None:
        return self._loaded.get(_key(client))

    def all(self) -> Sequence[Loaded]:
        """The latest first."""
        return list(reversed(self._loaded.values()))

    def forget(self, client: Client) -> None:
        if client.session:
            self._loaded.pop(_key(client), None)

    def _of(self, client: Client) -> Loaded:
        key = _key(client)
        found = self._loaded.pop(key, None) or Loaded(client)
        found.client = client
        self._loaded[key] = found
        while len(self._loaded) > MOST:
            del self._loaded[next(iter(self._loaded))]
        return found


def _key(client: Client) -> tuple[str, str]:
    return client.session or client.principal.counted_as, client.path
