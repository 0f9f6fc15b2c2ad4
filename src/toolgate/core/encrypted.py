"""TLS of connections, those of clients and those to servers.

The rules this file keeps: records are made sense of in turns, a piece at a time, since each takes some microseconds
however little is in it; a connection ends where they carry next to nothing; and what a handshake costs us is not for
the other side to choose.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from functools import lru_cache, partial
from typing import Any, cast

from toolgate.core.inflow import READ, READ_INTO, Intake, IntakeQueue, SharedTransport

GOODBYE = 1.0  # seconds for the other side to end TLS in order
PIECE = 4 * 1024  # bytes of TLS that are made sense of in one go
AROUND_NOTHING = 64 * 1024  # bytes of TLS, handshakes among them, before it has carried anything
AROUND_A_BYTE = 48  # bytes of TLS for each that it has carried: more than around a record of one
GROUP = "prime256v1"  # by which keys are agreed upon: the one that all have (RFC 8446, 9.1); others take up to 0.1 s

log = logging.getLogger(__name__)


def bound(context: ssl.SSLContext) -> None:
    """Have keys agreed upon by what takes a millisecond: a server may choose a group of DHE that takes a second."""
    context.set_ecdh_curve(GROUP)
    names = [str(cipher["name"]) for cipher in context.get_ciphers()]
    context.set_ciphers(":".join(name for name in names if not name.startswith(("DHE-", "TLS_"))))
    context.sslobject_class = _Heard


def to_servers() -> ssl.SSLContext:
    """The context of connections to servers, whose certificates are looked at. All have the same one: to read what the
    system trusts takes up to 50 ms, and what is read is read anew when its file is another."""
    where = ssl.get_default_verify_paths()
    return _to_servers(where, where.cafile and os.stat(where.cafile).st_mtime_ns)


@lru_cache(maxsize=1)
def _to_servers(_where: ssl.DefaultVerifyPaths, _changed: int | str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    bound(context)
    return context


class _Heard(ssl.SSLObject):
    """`bytes`: how much was read of it."""

    bytes = 0

    def read(self, *given: Any) -> Any:  # type: ignore[override]
        found: int | bytes = super().read(*given)
        self.bytes += found if isinstance(found, int) else len(found)
        return found


class EncryptedConnection(SSLProtocol):
    """TLS of a connection. `whose` its records are, which take turns, goes by a client's address, or is a server."""

    max_size = READ  # of the buffer that each connection has, until garbage is collected

    def __init__(
        self,
        turns: IntakeQueue,
        whose: str,
        protocol: asyncio.BaseProtocol,
        context: ssl.SSLContext,
        patience: float,
        server: str = "",
    ) -> None:
        """`protocol` is what TLS carries. `patience`: seconds for the handshake. `server` is the name of the one that
        it is to be made with, empty where a client makes it with us."""
        loop = asyncio.get_running_loop()
        self._shaken: asyncio.Future[None] | None = loop.create_future()
        super().__init__(
            loop,
            protocol,  # type: ignore[reportArgumentType]  any does
            context,
            self._shaken,
            server_side=not server,
            server_hostname=server or None,
            ssl_handshake_timeout=patience,  # type: ignore[reportArgumentType]  floats do
            ssl_shutdown_timeout=GOODBYE,
        )
        cast(Any, self)._set_read_buffer_limits(PIECE)  # of what is made sense of in one go where reading goes on
        self._turns = turns
        self._whose = whose
        self._came = 0

    async def shake_hands(self, connection: socket.socket) -> None:
        """Over this connection, which it has from now on. Raises `OSError`, of which `ssl.SSLError` is one."""
        loop = asyncio.get_running_loop()
        if self._server_side:
            transport, _ = await loop.connect_accepted_socket(lambda: self, connection)
        else:
            transport, _ = await loop.create_connection(lambda: self, sock=connection)
        shaken, self._shaken = self._shaken, None  # its error would hold this
        assert shaken
        try:
            await shaken
        except BaseException:
            transport.close()
            raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._intake = Intake(self._take, self._raw, PIECE, self._turns, lambda whose=self._whose: whose)
        super().connection_made(cast(Any, SharedTransport(transport, self._intake, self._turns.outflow)))

    def _set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As other transports have it: with a limit of 0, who writes waits while anything is left, and only then."""
        cast(Any, super())._set_write_buffer_limits(high, low)
        self._outgoing_high_water = max(1, cast(Any, self)._outgoing_high_water)

    def get_buffer(self, n: int) -> memoryview:
        return READ_INTO

    def buffer_updated(self, nbytes: int) -> None:
        self._intake.put(bytes(READ_INTO[:nbytes]))

    def _take(self, piece: bytes) -> None:
        super().get_buffer(-1)[: len(piece)] = piece
        super().buffer_updated(len(piece))
        self._came += len(piece)
        known = getattr(self, "_sslobj", None)
        heard = known.bytes if isinstance(known, _Heard) else 0
        if self._came > AROUND_NOTHING + AROUND_A_BYTE * heard and not getattr(self, "_app_reading_paused", False):
            what = (self._whose, self._came, heard)
            log.warning("a TLS connection with %s was closed: of %d bytes only %d said something", *what)
            self._intake.drop()
            self._raw.abort()

    def eof_received(self) -> bool:  # type: ignore[override]
        """When all that came before it is taken."""
        self._intake.finish(self._end)
        return True

    def _end(self) -> None:
        if not super().eof_received() and not self._raw.is_closing():
            self._raw.close()

    def connection_lost(self, exc: Exception | None) -> None:  # type: ignore[override]
        self._intake.finish(partial(self._lost, exc))

    def _lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._intake.forget()  # else they hold each other, as this does and what it carries
        self._app_protocol_get_buffer = self._app_protocol_buffer_updated = None
