"""One HTTP/1.1 request on a connection of its own, and its answer, whoever has written it.

The rules this file keeps: bytes are counted as they come off the wire, before even TLS reads them; they are read a
piece at a time, and in a round of the event loop one piece of all answers that come; of what stands before a body much
less is taken, since it grows in memory.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator

import httptools  # pyright: ignore[reportMissingTypeStubs]
import msgspec

PIECE = 4 * 1024  # bytes; TLS may hold back 16 KiB until a record is whole
LONGEST_HEAD = 64 * 1024  # bytes of what comes before the body


class BadAnswer(Exception):
    """What came is no answer, or too much of one; `str()` says why."""


class Request(msgspec.Struct, frozen=True):
    """`data` is all of it, `name` the host that TLS must show a certificate for; without `tls` there is none."""

    data: bytes
    name: str
    tls: ssl.SSLContext | None = None


class Answer:
    """`longest`: bytes of its body."""

    def __init__(self, longest: int) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}  # by names in small letters
        self.body = bytearray()  # in one piece: chunks may be of one byte
        self.is_whole = False
        self._longest = longest
        self._head = 0
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Raises `BadAnswer`. What comes behind the answer is nobody's."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.is_whole:
                raise BadAnswer(f"the answer is not valid HTTP: {error}") from None
        self._head += 0 if self.status else len(data)
        if self._head > LONGEST_HEAD:
            raise BadAnswer(f"the header of the answer has more than {LONGEST_HEAD} bytes")
        if len(self.body) > self._longest:
            raise BadAnswer(f"sent more than {self._longest} bytes")

    def end(self) -> None:
        """Nothing more comes. Raises `BadAnswer` where the answer is not whole by that."""
        if not self.status or "content-length" in self.headers or "transfer-encoding" in self.headers:
            raise BadAnswer("the connection was closed before the answer was complete")
        self.is_whole = True

    def let_go(self) -> None:
        """No more is read. The parser holds what it calls: with it, the body would stay until garbage is collected."""
        del self._parser

    # What the parser calls.

    def on_message_begin(self) -> None:
        if not self.is_whole:
            self.headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # and not behind the body
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if not self.status and (status := self._parser.get_status_code()) >= 200:
            self.status = status

    def on_body(self, chunk: bytes) -> None:
        if not self.is_whole:
            self.body += chunk

    def on_message_complete(self) -> None:
        self.is_whole = bool(self.status)


class _Plain:
    """What is sent and read as it is."""

    def __init__(self, request: Request) -> None:
        self._request = request.data

    def to_send(self) -> bytes:
        sent, self._request = self._request, b""
        return sent

    def read(self, data: bytes) -> Iterator[bytes]:
        yield data


class _Tls:
    """TLS over bytes that others carry. The request goes out when the certificate has been checked."""

    def __init__(self, request: Request, context: ssl.SSLContext) -> None:
        self._request = request.data
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=request.name)
        self._is_open = False
        self._shake_hands()

    def to_send(self) -> bytes:
        return self._out.read()

    def read(self, data: bytes) -> Iterator[bytes]:
        """What `data` lets us read; nothing at the end of all. Raises `ssl.SSLError`."""
        if data:
            self._in.write(data)
        else:
            self._in.write_eof()
        self._shake_hands()
        try:
            while self._is_open:
                yield (piece := self._tls.read(PIECE))
                if not piece:
                    return
        except ssl.SSLWantReadError:
            return
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            yield b""

    def _shake_hands(self) -> None:
        if self._is_open:
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        self._is_open = True
        self._tls.write(self._request)


async def exchange(connection: socket.socket, request: Request, longest: int, turn: asyncio.Lock) -> Answer:
    """`connection` does not block, and is not closed. `longest`: bytes of a body; of the wire twice as many. `turn` is
    that of all who read. Raises `BadAnswer`, `OSError`."""
    loop = asyncio.get_running_loop()
    way = _Tls(request, request.tls) if request.tls else _Plain(request)
    answer, left = Answer(longest), 2 * longest
    try:
        while not answer.is_whole:
            if data := way.to_send():
                await loop.sock_sendall(connection, data)
            data = await loop.sock_recv(connection, PIECE)
            left -= len(data)
            if left < 0:
                raise BadAnswer(f"sent more than {2 * longest} bytes for one answer")
            async with turn:
                _take(answer, way.read(data))
                await asyncio.sleep(0)
        return answer
    finally:
        answer.let_go()


def _take(answer: Answer, pieces: Iterator[bytes]) -> None:
    for piece in pieces:
        if answer.is_whole:
            return
        if piece:
            answer.feed(piece)
        else:
            answer.end()
