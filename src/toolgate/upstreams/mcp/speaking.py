"""In which era a server is spoken to, where it may speak both (behaviour.md, ruling 16).

A server that can be spoken to in both at once (over HTTP), or that is not shared, is spoken to in its client's era. One
process for all is spoken to in one, which is that of the handshake where it has both: its first message decides, so it
is asked to initialize first. The rule this file keeps: what is remembered saves a question, and is never the last word.
"""

from __future__ import annotations

from toolgate.config import Server
from toolgate.model import Client
from toolgate.records import Eras
from toolgate.wire import mcp
from toolgate.wire.mcp import Era


class Speaking:
    """Of one server. `only` is the era that it speaks alone, as far as is known. `kept` remembers that, for servers
    that are started for each connection and may end over a message that they do not know."""

    def __init__(self, server: Server, kept: Eras | None) -> None:
        self._server = server
        self._kept = kept if server.type == "stdio" and server.era == "auto" else None
        self.is_by_client = server.era == "auto" and (server.type == "http" or server.scope != "shared")
        self.only: Era | None = self._kept.load(server) if self._kept else None

    def order(self, client: Client, before: Era | None) -> tuple[Era, ...]:
        """The eras in which a connection is tried to be opened for a client. `before` is that of the last one, if it is
        to be the same."""
        if self._server.era != "auto":
            return (self._server.era,)
        first = (self.only if self._kept else None) or (before if not self.only else None) or self._wanted(client)
        return first, mcp.other_era(first)

    def _wanted(self, client: Client) -> Era:
        return (client.era or "modern") if self.is_by_client else "legacy"

    def suits(self, client: Client, era: Era | None) -> bool:
        """Whether a connection of this era is one for this client."""
        return not self.is_by_client or self.only is not None or era is None or client.era in (None, era)

    def found(self, era: Era, refused: bool) -> None:
        """It speaks this era. `refused`: and not the other, in which it was asked first."""
        if refused:
            if self._kept and era != self.only:
                self._kept.save(self._server, era)
            self.only = era
        elif era != self.only:
            self.forget()

    def forget(self) -> None:
        """It could not be spoken to as was remembered."""
        if self._kept and self.only:
            self._kept.drop(self._server)
        self.only = None
