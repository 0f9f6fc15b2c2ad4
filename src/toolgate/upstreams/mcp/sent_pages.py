"""The pages that clients of one connection were sent to, and of which the server may yet say that they are done with.

The rule this file keeps: of too many, whoever was sent to most loses the oldest.
"""

from __future__ import annotations

from typing import NamedTuple

from toolgate.core.fairness import Shares
from toolgate.core.model import Client

MOST_PAGES = 1024


class _Sent(NamedTuple):
    client: tuple[str, str]  # `Client.identity`
    whose: str  # `Principal.counted_as`


class SentPages:
    def __init__(self) -> None:
        self._sent: dict[str, _Sent] = {}
        self._shares: Shares[str] = Shares()  # the ids of pages, by whose they are

    def __len__(self) -> int:
        return len(self._sent)

    def add(self, page: str, client: Client) -> None:
        """By its id, which is the server's: the last who was sent there hears of it."""
        self.take(page)
        sent = self._sent[page] = _Sent(client.identity, client.principal.counted_as)
        self._shares.put(sent.whose, page, page)
        if len(self._sent) > MOST_PAGES:
            self.take(next(self._shares.greatest()))

    def take(self, page: str) -> tuple[str, str] | None:
        """The client (`Client.identity`) that was sent there, if any is known; no more from now on."""
        sent = self._sent.pop(page, None)
        if not sent:
            return None
        self._shares.remove(sent.whose, page)
        return sent.client
