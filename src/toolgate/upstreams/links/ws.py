"""A link over WebSocket: one JSON-RPC message a text frame, subprotocol `mcp`, as servers have it that are in use.

The rules this file keeps: pings notice a peer that has vanished; a peer that does not read is not written to without
bound, is given up after a while, and is waited for no longer than a moment at the end; one that writes without end is
read a piece at a time (`paced`); `websockets` is imported with the first such link, since start-up is quicker without.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from socket import socket
from typing import TYPE_CHECKING

from toolgate import __version__
from toolgate.auth.safe_net import Dial
from toolgate.config import Server, masking
from toolgate.core.bodies import Bodies
from toolgate.core.clock import Clock
from toolgate.core.encrypted import EncryptedConnection, to_servers
from toolgate.core.fault import Words
from toolgate.core.inflow import MOMENT, IntakeQueue
from toolgate.core.redaction import excerpt
from toolgate.upstreams.links.base import LONGEST_MESSAGE, Headers, PipeLink, Receiver
from toolgate.upstreams.links.http1 import Target
from toolgate.upstreams.links.outbox import Outbox
from toolgate.upstreams.links.paced import paced_connection
from toolgate.upstreams.links.refusals import credentials_hint, fault, unreachable

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

log = logging.getLogger(__name__)

PING = 20.0  # seconds between pings, and that an answer to one may take
PATIENCE = 2.0  # seconds for a farewell
CONNECT_TIMEOUT = 10.0


class WsLink(PipeLink):
    discovers = True

    def __init__(
        self,
        server: Server,
        receiver: Receiver,
        clock: Clock,
        dial: Dial,
        turns: IntakeQueue,
        unended: Bodies | None = None,
    ) -> None:
        """`unended` counts messages that have begun, of all servers."""
        self._outbox = Outbox(server, clock, receiver, self._write)
        self._writing: asyncio.Task[None] | None = None  # the last message
        self._turns = turns
        self._unended = unended or Bodies()
        self._dial = dial
        self._server = server
        self._receiver = receiver
        self._heard = 0
        self._is_closing = False
        self._is_over = False
        self._socket: ClientConnection | None = None
        self._pump: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Raises `Fault`."""
        from websockets.asyncio import client
        from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus, InvalidURI

        class Connect(client.connect):
            def process_redirect(self, exc: Exception) -> Exception | str:
                """Not followed: the configured headers are for the configured URL."""
                return exc

            async def open_tcp_connection(self) -> ClientConnection:
                if not self.ws_uri.secure:
                    return await super().open_tcp_connection()
                connection, host = self.factory(self.ws_uri), self.ws_uri.host
                await EncryptedConnection(turns, server, connection, to_servers(), patience, host).shake_hands(dialled)
                return connection

        paced = partial(paced_connection(), self._turns, self._unended, self._server.id, unread=2 * PING)
        url, address = self._server.url, masking.url(self._server.url)
        began, patience = time.perf_counter(), min(CONNECT_TIMEOUT, self._server.start_timeout)
        turns, server = self._turns, self._server.id
        try:
            async with asyncio.timeout(patience):
                dialled = await self._dialled()
            self._socket = await Connect(
                url,
                subprotocols=["mcp"],  # type: ignore[list-item]  # a NewType of str
                additional_headers=self._server.headers,
                user_agent_header=f"toolgate/{__version__}",
                compression=None,
                proxy=None,
                open_timeout=max(0.0, patience - (time.perf_counter() - began)),
                close_timeout=PATIENCE,
                ping_interval=PING,
                ping_timeout=PING,
                max_size=LONGEST_MESSAGE,
                create_connection=paced,  # type: ignore[arg-type]  # it is only called
                sock=dialled,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            raise fault(
                self._server, f"{address} answered HTTP {status}", "not_sent", hint=credentials_hint(status)
            ) from None
        except (InvalidHandshake, InvalidMessage, InvalidURI) as error:
            why = str(error).replace(url, address)
            raise fault(self._server, f"{address} is not a WebSocket: {why}", "not_sent") from None
        except AssertionError:  # the library's own, where a server closes before the handshake is sent
            raise fault(self._server, f"{address} is not a WebSocket: it closed the connection", "not_sent") from None
        except (OSError, TimeoutError) as error:
            raise unreachable(self._server, error) from None
        self._pump = asyncio.get_running_loop().create_task(self._read(self._socket), name=f"ws {self._server.name}")

    async def _dialled(self) -> socket:
        target = Target("http" + self._server.url[2:])  # ws: and wss: have the ports of http: and https:
        return await self._dial(target.host, target.port)

    async def _read(self, socket: ClientConnection) -> None:
        from websockets.exceptions import ConnectionClosed

        turn = time.perf_counter()
        try:
            while True:
                # It waits for nothing while there are more. No name of ours keeps a message until the next one comes.
                reading = self._receiver.received(await socket.recv(decode=False), None)
                self._heard += 1
                if reading:
                    socket.intake.hold_until(reading)  # type: ignore[attr-defined]  # of a `PacedConnection`
                    await asyncio.wait((reading,))
                del reading
                if time.perf_counter() - turn > MOMENT:
                    await asyncio.sleep(0)
                    turn = time.perf_counter()
        except ConnectionClosed as error:
            self._over("closed the connection", Words(excerpt(str(error), server=self._server.id)))

    @property
    def signs_of_life(self) -> int | None:
        return self._heard

    async def send(self, data: bytes, headers: Headers = (), origin: int | None = None) -> None:
        await self._outbox.send(data, origin)

    def _write(self, data: bytes) -> None:
        """In a task, since whoever sends may go away before there is room again."""
        if self._is_over or self._is_closing or not self._socket:
            message = f"Server not started: {self._server.name} has ended"
            raise fault(self._server, message, "not_sent", "SESSION_ERROR")
        self._outbox.full()
        self._writing = asyncio.get_running_loop().create_task(self._written(self._socket, data))

    async def _written(self, socket: ClientConnection, data: bytes) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await socket.send(data, text=True)
        except ConnectionClosed as error:
            log.debug("%s: %s", self._server.name, error)
        finally:
            self._outbox.go_on()

    def describe(self) -> dict[str, object]:
        return {"url": self._server.url}

    async def close(self) -> None:
        self._is_closing = True
        if self._socket and self._pump:
            farewell = asyncio.get_running_loop().create_task(self._socket.close())
            await asyncio.wait((farewell,), timeout=2 * PATIENCE)
            self._socket.transport.abort()  # a peer that does not read takes no farewell, and `websockets` waits for it
            await asyncio.wait([farewell, self._pump, *([self._writing] if self._writing else [])])

    def _over(self, what: str, words: Words) -> None:
        self._is_over = True
        what, words = ("was stopped", Words()) if self._is_closing else (what, words)
        self._receiver.closed(fault(self._server, f"{self._server.name} {what}", "sent_unknown", words=words))
        self._outbox.end()
