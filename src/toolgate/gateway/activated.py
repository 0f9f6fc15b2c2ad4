"""The tools that searches have found, which a session is shown from then on.

The rules this file keeps: a session has the latest of them; where more sessions have some than a bound, those of the
principal that has most lose theirs, the oldest first; and whose list is another is told so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import msgspec

from toolgate.core.fairness import Shares
from toolgate.core.model import Client, Event, EventSink

MOST = 200  # of one session
MOST_SESSIONS = 10000  # that have any


class _Found(msgspec.Struct, eq=False):
    """Of one session, in the order in which they were found. Sessions share the texts of the names."""

    client: Client
    names: tuple[str, ...]


class ActivatedTools:
    """`tell` hears whose list has changed."""

    def __init__(self, tell: EventSink) -> None:
        self._tell = tell
        self._of: dict[str, _Found] = {}  # by session
        self._shares: Shares[_Found] = Shares()

    def of(self, client: Client) -> Mapping[str, None]:
        found = self._of.get(client.session)
        return dict.fromkeys(found.names) if found else {}

    def activate(self, client: Client, tools: Sequence[str]) -> None:
        """Show these to a session."""
        found = self._of.get(client.session)
        if not found:
            found = self._of[client.session] = _Found(client, ())
            self._shares.put(client.principal.counted_as, client.session, found)
        if set(tools).difference(found.names):
            names = [name for name in found.names if name not in tools]
            found.names = tuple(map(sys.intern, dict.fromkeys([*names, *tools])))[-MOST:]
            self._changed(client)
        while len(self._of) > MOST_SESSIONS:
            client = next(self._shares.greatest()).client
            self.forget(client)
            self._changed(client)

    def forget(self, client: Client) -> None:
        """Its session has ended."""
        if found := self._of.pop(client.session, None):
            self._shares.remove(found.client.principal.counted_as, client.session)

    def _changed(self, client: Client) -> None:
        self._tell(Event("", "list_changed", lists=("tools",), whose=client.identity))
