"""Lines out of chunks: the framing of stdio, on both faces.

The rule this file keeps: a newline is looked for only in the newest chunk, so that a long line costs what it is long.
"""

from __future__ import annotations


class Lines:
    """Chunks in, whole lines out. `pending` is the length of the unfinished one, in bytes; `dropped` is how much of it
    was dropped."""

    def __init__(self) -> None:
        self.pending = self.dropped = 0
        self._rest = bytearray()  # in one piece: chunks may be of one byte
        self._dropping = False

    def feed(self, chunk: bytes) -> list[bytes]:
        *whole, rest = chunk.split(b"\n")
        if self._dropping:
            if not whole:
                self.dropped += len(rest)
                return []
            self._dropping, self.dropped = False, 0
            del whole[0]
        if whole and self._rest:
            self._rest += whole[0]
            whole[0] = bytes(self._rest)
            self._rest, self.pending = bytearray(), 0
        if rest:
            self._rest += rest
            self.pending += len(rest)
        return whole

    def drop(self) -> bytes:
        """Forget the unfinished line, and what is still to come of it. Returns what there was."""
        dropped = bytes(self._rest)
        self._rest, self.pending = bytearray(), 0
        self._dropping = True
        self.dropped += len(dropped)
        return dropped
