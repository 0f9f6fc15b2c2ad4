"""How many values JSON holds, counted before it is read: a value of two bytes takes fifty times as much to read and to
keep as it takes to send.

The rules this file keeps: what is too short to hold too many is not looked at; what does is looked at no further than
that far; and of what is looked at a piece at a time is, so that other threads get their turn in between.
"""

from __future__ import annotations

from msgspec import Raw

PIECE = 64 * 1024  # bytes that are looked at in one go: about 1 ms at most
LARGE, MANY = 1024 * 1024, 100_000  # bytes and values: what has more of both takes longer than others should wait
LONG = 32  # bytes outside of texts that are counted as a value at least: no usual number has as many
_SPACE = b" \t\r\n"


def has_more_values(data: bytes, most: int) -> bool:
    """Whether JSON has more than so many values, members of objects and elements of arrays at all depths among them.
    What is no JSON may have any number; numbers without end count as several values, since they take as long."""
    if len(data) < 2 * most:  # each takes a byte, and one that sets it apart
        return False
    count, quotes, size, start, is_in_text, last = 1, 0, 0, 0, False, b""
    while (
        start < len(data) and count <= most + 1 and size <= LONG * most
    ):  # an array whose end comes next may have nothing in it
        piece = data[start : start + PIECE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # what is escaped goes with its backslash
            piece = data[start : start + PIECE + 1]
        start += len(piece)
        if is_in_text and b'"' not in piece:
            continue  # a long text, whose escapes would take most of the time
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        quotes += len(parts) - 1
        if quotes > 4 * most:  # a value has two of them, and its name two more
            return True
        if is_in_text:
            parts.insert(0, b"")
        structure = b'"'.join(parts[::2]).translate(None, _SPACE)  # one quote for each text
        is_in_text = len(parts) % 2 == 0
        size += len(structure)
        # A value is the first one in an array or object, or stands behind a comma.
        count += structure.count(b",") + structure.count(b"[") + structure.count(b"{")
        structure = last + structure
        count -= structure.count(b"[]") + structure.count(b"{}")
        last = structure[-1:]
    return count > most or size > LONG * most


def is_too_much(body: Raw | bytes) -> bool:
    """Whether a result has so many values that it is left as it is, rather than looked into."""
    return memoryview(body).nbytes > LARGE and has_more_values(bytes(body), MANY)
