"""TLS of the gateway's own listener: its certificate, read anew when its files change, and its handshakes.

The rule this file keeps: a connection counts from the moment that it is accepted, as one of its address's, and has as
long for its handshake as for the head of a request; so nobody keeps connections open that no limit knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from toolgate.config import ownership
from toolgate.core.clock import Clock
from toolgate.frontends.connections import Connection, Connections

LOOK = 5.0  # seconds between looks at the files
LARGEST = 1024 * 1024  # bytes of a file
SOON = 14  # days for which a certificate is to be valid
PATIENCE = 30.0  # seconds for a handshake
GOODBYE = 1.0  # seconds for a client to end TLS in order
AGAIN = 1.0  # seconds until the next try, where no connection can be accepted

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger(__name__)


class Unusable(Exception):
    """A certificate or key. `str()` says which file, and what to do."""


class Certificate:
    """What the gateway shows. `context` is that of the next handshake. Raises `Unusable`."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self._read = self._seen()
        self.context = _context(certificate, key)

    def remarks(self) -> list[str]:
        """What an operator is to know of it."""
        found = [ending] if (ending := _ending(self._files[0])) else []
        with contextlib.suppress(OSError):
            if os.stat(self._files[1]).st_mode & 0o007:
                found.append(f"the TLS key {self._files[1]} is readable by every user of this machine: chmod o= it")
        return found

    async def follow(self, clock: Clock) -> None:
        """Show what stands in the files whenever that is another than was read, and the same for a moment."""
        last = self._read
        while True:
            await clock.sleep(LOOK)
            seen = self._seen()
            if seen == last != self._read:
                self._read = seen
                try:
                    self.context = await asyncio.to_thread(_context, *self._files)
                except Unusable as error:
                    log.warning("%s; still serving the previous certificate", error)
                else:
                    log.info("the TLS certificate was read again")
                for remark in await asyncio.to_thread(self.remarks):
                    log.warning("%s", remark)
            last = seen

    def _seen(self) -> tuple[object, ...]:
        return tuple(_look(file) for file in self._files)


def _look(file: Path) -> object:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    for file, what, begin in ((certificate, "certificate", b"CERTIFICATE-----"), (key, "key", b"PRIVATE KEY-----")):
        text = _bytes(file, what)
        if b"ENCRYPTED" in text and what == "key":
            raise Unusable(f"the TLS key {file} is encrypted: give one without a passphrase")
        if begin not in text:
            raise Unusable(f"the TLS {what} {file} has no {what} in PEM form: convert it with openssl")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=b"")  # without one, OpenSSL would ask on the terminal
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise Unusable(f"the TLS key {key} does not belong to the certificate {certificate}") from None
        why = (error.reason or "not readable").lower().replace("_", " ")
        raise Unusable(f"the TLS certificate {certificate} cannot be used with the key {key} ({why})") from None
    except OSError as error:
        raise Unusable(f"the TLS key {key} cannot be read ({error.strerror})") from None
    return context


def _bytes(file: Path, what: str) -> bytes:
    try:
        with ownership.open_anyones(file) as opened:
            return opened.read(LARGEST)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        why = (isinstance(error, OSError) and error.strerror) or "no such file"
        raise Unusable(f"the TLS {what} {file} cannot be read ({why})") from None


def _ending(certificate: Path) -> str:
    """Where it ends soon, or has ended."""
    from cryptography import x509  # 5 ms that a gateway without TLS does not pay

    try:
        ends = x509.load_pem_x509_certificate(_bytes(certificate, "certificate")).not_valid_after_utc
    except (Unusable, ValueError):
        return ""
    left = ends.timestamp() - time.time()
    if left > SOON * 86_400:
        return ""
    return f"the TLS certificate {certificate} {'ends' if left > 0 else 'has ended'} on {ends:%Y-%m-%d at %H:%M} UTC"


class _Handshake:
    """A connection that has no protocol yet, as `Connection` has transports."""

    task: asyncio.Task[None] | None = None

    def abort(self) -> None:
        if self.task:
            self.task.cancel()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is written."""

    def get_write_buffer_size(self) -> int:
        return 0


class _Listener:
    """Accepts connections, and has the protocol of each made."""

    def __init__(
        self, made: Callable[[], asyncio.BaseProtocol], certificate: Certificate, connections: Connections
    ) -> None:
        self._made = made
        self._certificate = certificate
        self._connections = connections
        self._handshakes: set[asyncio.Task[None]] = set()

    async def accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listener)
            except OSError as error:  # most are of a client that has gone already
                if error.errno in _EXHAUSTED:
                    await asyncio.sleep(AGAIN)
                continue
            self._begin(accepted, str(address[0]))

    def _begin(self, accepted: socket.socket, address: str) -> None:
        """It counts until its protocol counts it. What is given up here may not even have begun."""
        handshake = _Handshake()
        connection = Connection(self._connections.unread, handshake, address)

        def ended(task: asyncio.Task[None]) -> None:
            self._handshakes.discard(task)
            connection.closed()
            if task.cancelled():
                accepted.close()

        task = handshake.task = asyncio.get_running_loop().create_task(self._shake(accepted, address), name="TLS")
        self._handshakes.add(task)
        task.add_done_callback(ended)
        connection.counts(self._connections)

    async def _shake(self, accepted: socket.socket, address: str) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._made,
                accepted,
                ssl=self._certificate.context,
                ssl_handshake_timeout=PATIENCE,
                ssl_shutdown_timeout=GOODBYE,
            )
        except ssl.SSLError as error:
            is_plain = error.reason == "HTTP_REQUEST"
            why = "it sent plain HTTP" if is_plain else (error.reason or "not TLS").lower().replace("_", " ")
            log.warning("a TLS handshake with %s failed: %s", address, why)
        except OSError:  # the client has gone, or said nothing
            pass

    async def close(self) -> None:
        handshakes = list(self._handshakes)
        for task in handshakes:
            task.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)


@asynccontextmanager
async def accepting(
    listener: socket.socket,
    made: Callable[[], asyncio.BaseProtocol],
    certificate: Certificate,
    connections: Connections,
    clock: Clock,
) -> AsyncGenerator[None]:
    """Inside the block connections to the listener are accepted, which is closed then."""
    listener.setblocking(False)
    accepts, loop = _Listener(made, certificate, connections), asyncio.get_running_loop()
    tasks = loop.create_task(accepts.accept(listener)), loop.create_task(certificate.follow(clock))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        listener.close()
        await accepts.close()
