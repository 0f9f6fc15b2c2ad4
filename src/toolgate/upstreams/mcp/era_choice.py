"""In which era a server is spoken to, where it may speak both (behaviour.md, ruling 16).

A server that can be spoken to in both at once (over HTTP), or that is not shared, is spoken to in its client's era. One
process for all is spoken to in one, which is that of the handshake where it has both: its first message decides, so it
is asked to initialize first. The rule this file keeps: what is remembered saves a question, and is never the last word.
"""

from __future__ import annotations

from typing import Literal

from toolgate.config import Server
from toolgate.core import mcp
from toolgate.core.mcp import Era, Revision, other_era
from toolgate.core.model import Client
from toolgate.upstreams.known_eras import Eras


class EraChoice:
    """For one server. `only` is the era that it speaks alone, as far as is known; `has_both`: it is known to speak
    both. `kept` remembers that for processes, which cost a start to be asked. `first` are the revisions that it is
    asked in first: the one of each era that it took last, else our newest."""

    def __init__(self, server: Server, kept: Eras | None) -> None:
        self._server = server
        self._kept = kept if server.type == "stdio" and server.era == "auto" else None
        self.is_by_client = server.era == "auto" and (server.type == "http" or server.scope != "shared")
        known = self._kept.load(server) if self._kept else None
        self.has_both = known == "both"
        self.only: Era | None = None if known == "both" else known
        self.first: dict[Era, Revision] = dict(mcp.LATEST)

    def order(self, client: Client, before: Era | None) -> tuple[Era, ...]:
        """The eras in which a connection is tried to be opened for a client, in this order. `before` is that of the
        last one, which is kept."""
        if self._server.era != "auto":
            return (self._server.era,)
        first = self._first(client, None if self.only else before)
        return first, other_era(first)

    def _first(self, client: Client, before: Era | None) -> Era:
        if self._server.type == "http":  # another question costs little, and the server may have changed
            return before or client.era or "modern"
        if not self.is_by_client:
            return self.only or "legacy"
        wanted = client.era if self.has_both else None
        return self.only or before or wanted or "modern"  # most that do not speak it say so, and go on

    def suits(self, client: Client, era: Era | None) -> bool:
        """Whether a connection of this era is one for this client."""
        return not self.is_by_client or era is None or self.only is not None or client.era in (None, era)

    def hears_each_time(self, client: Client) -> bool:
        """Whether each request says what this client can do, as far as is known: one connection is then good for all
        that it can. A server of the handshake is told once."""
        return client.era == "modern" and self.only != "legacy" and self._server.era != "legacy"

    def found(self, era: Era, refused: bool) -> None:
        """It speaks this era. `refused`: and not the other, in which it was asked first."""
        if refused:
            self._know(era)
        elif self.only not in (None, era):
            self.forget()

    def found_both(self) -> None:
        self._know("both")

    def forget(self) -> None:
        """It could not be spoken to as was remembered."""
        if self._kept and (self.only or self.has_both):
            self._kept.drop(self._server)
        self.only, self.has_both = None, False
        self.first.update(mcp.LATEST)

    def _know(self, known: Era | Literal["both"]) -> None:
        if self._kept and known != (self.only or (self.has_both and "both")):
            self._kept.save(self._server, known)
        self.only, self.has_both = (None, True) if known == "both" else (known, False)
