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
MOST_BYTES = 32 * 1024 * 1024  # of their lists, those that several have counted once; or what the latest alone has


class ToolList:
    """One list, for all that were told it. `counted` are its tokens by server, once somebody wanted to know them."""

    def __init__(self, items: Sequence[Raw] = ()) -> None:
        self.items = items
        self.counted: Counter[str] | None = None
        self.holders = 0  # clients


class Loaded:
    """Of one client at one path: the last list of tools; `told` are further tokens by server."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.list = ToolList()
        self.told = Counter[str]()


class LoadedTools:
    def __init__(self) -> None:
        self._loaded: dict[tuple[str, str], Loaded] = {}
        self._lists: dict[int, ToolList] = {}  # by the identity of their items
        self._size = 0  # bytes

    def listed(self, client: Client, items: Sequence[Raw]) -> None:
        if client.path:  # else the gateway itself has asked
            found = self._of(client)
            if found.list.items is not items:
                self._let_go(found)
                self._hold(found, items)
                while self._size > MOST_BYTES and len(self._loaded) > 1:
                    self._forget(next(iter(self._loaded)))

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
            self._forget(_key(client))

    def _of(self, client: Client) -> Loaded:
        key = _key(client)
        found = self._loaded.pop(key, None) or Loaded(client)
        found.client = client
        self._loaded[key] = found
        while len(self._loaded) > MOST:
            self._forget(next(iter(self._loaded)))
        return found

    def _forget(self, key: tuple[str, str]) -> None:
        if found := self._loaded.pop(key, None):
            self._let_go(found)

    def _hold(self, loaded: Loaded, items: Sequence[Raw]) -> None:
        loaded.list = self._lists.get(id(items)) or ToolList(items)
        if not loaded.list.holders:
            self._lists[id(items)] = loaded.list
            self._size += sum(map(len, items))
        loaded.list.holders += 1

    def _let_go(self, loaded: Loaded) -> None:
        known, loaded.list = loaded.list, ToolList()
        if not known.holders:
            return  # it was told of none
        known.holders -= 1
        if not known.holders:
            del self._lists[id(known.items)]
            self._size -= sum(map(len, known.items))


def _key(client: Client) -> tuple[str, str]:
    return client.session or client.principal.counted_as, client.path
