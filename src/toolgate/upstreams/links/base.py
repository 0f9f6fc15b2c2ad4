"""A link: the duplex pipe of messages to one MCP server, whatever carries it.

A link knows bytes and requests, not what they mean. `origin` is the id of the request on whose own stream
something happened; None where the carrier cannot tell (stdio).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from toolgate.model import Fault

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


class Receiver(Protocol):
    """Who reads from a link. None of these may raise."""

    def received(self, data: bytes, origin: int | None) -> None: ...

    def failed(self, origin: int, fault: Fault) -> None:
        """No answer to this request will come; the link itself lives on."""
        ...

    def retired(self, fault: Fault) -> None:
        """Nothing more can be sent; what is under way may still be answered."""
        ...

    def closed(self, fault: Fault) -> None:
        """The link is over."""
        ...


class Link(Protocol):
    async def send(self, data: bytes, headers: Headers = (), origin: int | None = None) -> None:
        """Send one message; `origin` is its id where it is a request. Raises `Fault` with the reach `not_sent`."""
        ...

    @property
    def signs_of_life(self) -> int | None:
        """How often anything came from a process that may be slow to start, its stderr included; None where a request
        is answered or refused at once."""
        ...

    def abandon(self, origin: int) -> bool:
        """Stop waiting for an answer. True where that alone tells the server (its stream was closed)."""
        ...

    def describe(self) -> dict[str, object]:
        """What a status shows: pid, stderr, url."""
        ...

    async def close(self) -> None: ...
