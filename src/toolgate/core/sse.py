"""Server-sent events, both ways: `event` writes one, `Reader` takes bytes in and gives events out.

Keeps the parsing rules of the HTML standard (section 9.2.6): any of CR, LF, CRLF ends a line, an event
ends with an empty line, a half event at the end of the stream is dropped.
"""

from __future__ import annotations

import re

import msgspec

from toolgate.core import large


class Event(msgspec.Struct, frozen=True):
    data: large.Whole  # bytes, but where a `Reader` keeps what is large in a file
    event: str = "message"
    id: str | None = None  # None where the event does not set one
    retry: int | None = None  # milliseconds


def event(data: bytes, id: str | None = None, retry: int | None = None, name: bytes = b"message") -> bytes:
    """One event as bytes. `data` must hold no line break (`jsonrpc.one_line`)."""
    # The data may have megabytes: one copy.
    return b"".join((head(id, retry, name), b" " if data else b"", data, b"\n\n"))


def head(id: str | None = None, retry: int | None = None, name: bytes = b"message") -> bytes:
    """What stands before the data of an event."""
    head = b"event: " + name + b"\n"
    if id is not None:
        head += b"id: " + id.encode() + b"\n"
    if retry is not None:
        head += b"retry: %d\n" % retry
    return head + b"data:"


LINE = 64  # bytes that a line takes beside what stands in it
LONGEST_FIELD = 4096  # bytes of an event's name or id; a longer name is cut, a longer id passed over
COMMENT = b": keep-alive\n\n"


_data = re.compile(b"data: ?")
_alone = re.compile(rb"(?:event: ?message\r?\n)?data: ?([^\r\n]+)\r?\n\r?\n").fullmatch


def alone(chunk: bytes) -> bytes | None:
    """The data of the one event that these bytes are, behind which a stream goes on as it began. Most answers are one.
    None for whatever a `Reader` is needed for."""
    found = _alone(chunk)
    return found[1] if found else None


class TooLong(Exception):
    """One event, or another message, grew past its limit, and no more of it is taken."""


class Reader:
    """Feed it chunks; it returns the events that became whole. `limit` bounds all that it keeps of one event, in bytes.
    An event beyond it is its end: then it keeps nothing, and returns nothing any more. `in_file`: large data is `taken`
    from a file, see `large`."""

    def __init__(self, limit: int, in_file: bool = False) -> None:
        self.limit = limit
        self._in_file = in_file
        self._is_over = False
        self._forget()

    def _forget(self) -> None:
        """Keep nothing of what has come."""
        self._rest = bytearray()  # the unfinished line, in one piece: chunks may be of one byte
        self._large: large.Gathering | None = None  # or what stands in it, where that is large data
        self._after_cr = False
        self._begin()

    def end(self) -> None:
        """Nobody reads on: nothing is kept."""
        self._is_over = True
        self._forget()

    def _begin(self) -> None:
        """The next event."""
        self._data: list[large.Whole] = []
        self._held = 0
        self._event = b"message"
        self._id: bytes | None = None
        self._retry: int | None = None

    @property
    def kept(self) -> int:
        """Bytes of the event that is not whole."""
        size = 0 if self._large is None else len(self._large)
        return len(self._rest) + size + self._held + len(self._event) + len(self._id or b"")

    def feed(self, chunk: bytes) -> list[Event]:
        """Raises `TooLong`, once."""
        if self._is_over:
            return []
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_cr = chunk[-1:] == b"\r"
        *whole, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events: list[Event] = []
        for line in whole:
            if self._large is not None:
                self._large.add(line)
                self._has(self._large.taken())
                self._large = None
                continue
            if self._rest:
                self._rest += line
                line, self._rest = self._rest, bytearray()
            self._line(line, events)
        if self._large is not None:
            self._large.add(rest)
        else:
            self._rest += rest
            if self._in_file and len(self._rest) > large.IN_MEMORY and (found := _data.match(self._rest)):
                self._large, self._rest = large.Gathering(self._rest[found.end() :]), bytearray()
        if self.kept > self.limit:
            self.end()
            raise TooLong(f"an event of more than {self.limit} bytes")
        return events

    def _line(self, line: bytes | bytearray, events: list[Event]) -> None:
        if not line:
            self._dispatch(events)
            return
        colon = line.find(b":")
        name = line[:colon] if colon >= 0 else line
        start = len(name) + (2 if line[colon + 1 : colon + 2] == b" " else 1)
        content = bytes(memoryview(line)[start:])  # it may have megabytes: one copy
        if name == b"data":
            self._has(content)
        elif name == b"event":
            self._event = content[:LONGEST_FIELD]
        elif name == b"id" and len(content) <= LONGEST_FIELD and b"\0" not in content:
            self._id = content
        elif name == b"retry" and content.isdigit() and len(content) < 10:
            self._retry = int(content)

    def _has(self, data: large.Whole) -> None:
        self._data.append(data)
        self._held += len(data) + LINE  # empty lines take room, too

    def _dispatch(self, events: list[Event]) -> None:
        if self._data or self._id is not None or self._retry is not None:
            id = None if self._id is None else self._id.decode(errors="replace")
            name = "message" if self._event == b"message" else self._event.decode(errors="replace")
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            events.append(Event(data, name, id, self._retry))
        self._begin()
