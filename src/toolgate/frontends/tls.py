"""TLS of the gateway's own listener: its certificate, read anew when its files change, and its handshakes.

The rules this file keeps: a connection counts from the moment that it is accepted, as one of its address's; it costs
hardly more than its socket until its client has said something; and so many handshakes go on at once, of which an
address has half, that what they take has a bound. Who waits for a place need not wait for those that stand still.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from toolgate.config import ownership
from toolgate.core.background import BackgroundTasks, rounds
from toolgate.core.clock import Clock, Timer
from toolgate.core.concurrency import Shared
from toolgate.core.encrypted import EncryptedConnection, bound
from toolgate.core.fairness import Shares
from toolgate.frontends.accepting import GivesWay, accepted
from toolgate.frontends.connections import Connection, Connections

LOOK = 5.0  # seconds between looks at the files
LARGEST = 1024 * 1024  # bytes of a file
SOON = 14  # days for which a certificate is to be valid
FIRST_BYTES = 10.0  # seconds for a client to say something
PATIENCE = 10.0  # seconds for a handshake, and before that for a place
MOST = 512  # handshakes at once: each takes about 50 KB
STANDS_STILL = 1.0  # seconds after which a handshake loses its place where others wait

log = logging.getLogger(__name__)
of_clients = log.getChild("clients")  # what they do wrong


class Unusable(Exception):
    """A certificate or key. `str()` says which file, and what to do."""


class Certificate:
    """What the gateway shows. `context` is that of the next handshake. Raises `Unusable`."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self._read = self._last = self._seen()
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
        await rounds(clock, LOOK, self._look_again, "look at the TLS certificate")

    async def _look_again(self) -> None:
        seen, last = self._seen(), self._last
        self._last = seen
        if seen != last or seen == self._read:
            return
        self._read = seen
        try:
            self.context = await asyncio.to_thread(_context, *self._files)
        except Unusable as error:
            log.warning("%s; still serving the previous certificate", error)
        else:
            log.info("the TLS certificate was read again")
        for remark in await asyncio.to_thread(self.remarks):
            log.warning("%s", remark)

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
    bound(context)
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

    began = 0.0  # with a place, by the clock; 0: it has none

    def __init__(self, accepted: socket.socket, address: str, listener: _Listener) -> None:
        self.socket = accepted
        self.address = address
        self.connection = Connection(listener.connections.unread, self, address)
        self._listener = listener
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(accepted, self._hear)
        self._timer: Timer | None = listener.clock.call_later(FIRST_BYTES, self.abort)

    def abort(self) -> None:
        if self._task:
            self._task.cancel()
        elif self._timer:
            self._no_longer_waits()
            self._over()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is written."""

    def get_write_buffer_size(self) -> int:
        return 0

    async def ended(self) -> None:
        """Give it up, and return when it is gone."""
        self.abort()
        if self._task:
            await asyncio.wait((self._task,))

    def _hear(self) -> None:
        try:
            is_there = bool(self.socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return
        except OSError:
            is_there = False
        self._no_longer_waits()
        if is_there:
            self._task = self._loop.create_task(self._listener.shake(self), name="TLS")
            self._task.add_done_callback(self._shaken)
        else:
            self._over()

    def _no_longer_waits(self) -> None:
        self._loop.remove_reader(self.socket)
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _shaken(self, task: asyncio.Task[None]) -> None:
        self._over(is_kept=not task.cancelled())

    def _over(self, is_kept: bool = False) -> None:
        """`is_kept`: a transport has the socket."""
        self._listener.open.discard(self)
        self.connection.closed()
        del self.connection  # which knows this
        if not is_kept:
            self.socket.close()


class _Listener:
    """Accepts connections, and has the protocol of each made."""

    def __init__(
        self,
        made: Callable[[], asyncio.BaseProtocol],
        certificate: Certificate,
        connections: Connections,
        clock: Clock,
    ) -> None:
        self.connections = connections
        self.clock = clock
        self.open: set[_Handshake] = set()
        self._made = made
        self._certificate = certificate
        self._places = Shared(MOST)
        self._under_way: Shares[_Handshake] = Shares()
        self._timer: Timer | None = None

    async def accept(self, listener: socket.socket, gives_way: GivesWay | None) -> None:
        while True:
            found, address = await accepted(listener, gives_way)
            handshake = _Handshake(found, str(address[0]), self)
            self.open.add(handshake)
            handshake.connection.counts(self.connections)  # until its protocol counts it

    async def shake(self, handshake: _Handshake) -> None:
        key = handshake.connection.key
        if not self._places.take_now(key):
            self._timer = self._timer or self.clock.call_later(STANDS_STILL, self._make_room)
            try:
                async with self.clock.timeout(PATIENCE):
                    await self._places.turn(key)
            except TimeoutError:
                handshake.socket.close()
                return
        handshake.began = self.clock.now()
        self._under_way.put(key, id(handshake), handshake)
        try:
            await self._shake(handshake)
        finally:
            self._forget(handshake)
            self._places.give_back(key)

    def _make_room(self) -> None:
        """As long as others wait, those that stand still lose their places, of whoever has the most."""
        self._timer = None
        for _ in range(self._places.waiting):
            oldest = next(self._under_way.greatest(), None)
            if not oldest or self.clock.now() - oldest.began < STANDS_STILL:
                break
            self._forget(oldest)
            oldest.abort()
        if self._places.waiting:
            self._timer = self.clock.call_later(STANDS_STILL, self._make_room)

    def _forget(self, handshake: _Handshake) -> None:
        if handshake.began:
            handshake.began = 0.0
            self._under_way.remove(handshake.connection.key, id(handshake))

    async def _shake(self, handshake: _Handshake) -> None:
        try:
            turns, whose, context = self.connections.turns, handshake.connection.key, self._certificate.context
            encrypted = EncryptedConnection(turns, whose, self._made(), context, PATIENCE)
            await encrypted.shake_hands(handshake.socket)
        except ssl.SSLError as error:
            is_plain = error.reason == "HTTP_REQUEST"
            why = "it sent plain HTTP" if is_plain else (error.reason or "not TLS").lower().replace("_", " ")
            of_clients.warning("a TLS handshake with %s failed: %s", handshake.address, why)
        except OSError:  # the client has gone, or does not go on
            pass

    async def close(self) -> None:
        await asyncio.gather(*(each.ended() for each in list(self.open)))
        if self._timer:
            self._timer.cancel()


@asynccontextmanager
async def accepting(
    listener: socket.socket,
    made: Callable[[], asyncio.BaseProtocol],
    certificate: Certificate,
    connections: Connections,
    clock: Clock,
    gives_way: GivesWay | None = None,
) -> AsyncGenerator[None]:
    """Inside the block connections to the listener are accepted, which is closed then. `gives_way`: other processes
    accept from it, too."""
    listener.setblocking(False)
    accepts = _Listener(made, certificate, connections, clock)
    tasks = BackgroundTasks()
    tasks.start(accepts.accept(listener, gives_way), "accept")
    tasks.start(certificate.follow(clock), "follow the TLS certificate")
    try:
        yield
    finally:
        await tasks.close()
        listener.close()
        await accepts.close()
