"""Where the lines and characters of a long text are in its bytes.

The rule this file keeps: a text is looked at whole once, and then a place costs a look at one block of it, however long
it is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from toolgate.core.excerpts import after_lines

BLOCK = 64 * 1024  # bytes
_CONTINUES = bytes(range(0x80, 0xC0))  # bytes of a character that are not its first


class Places:
    """Of a text in UTF-8: `lines` and `chars` are how many it has. What follows the last line break is a line, if it is
    anything."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._breaks, self._starts = array("Q", (0,)), array("Q", (0,))  # before each block, and in all
        for at in range(0, len(data), BLOCK):
            block = data[at : at + BLOCK]
            self._breaks.append(self._breaks[-1] + block.count(b"\n"))
            starts = len(block) if block.isascii() else len(block.translate(None, _CONTINUES))
            self._starts.append(self._starts[-1] + starts)
        self.lines = self._breaks[-1] + bool(data and not data.endswith(b"\n"))
        self.chars = self._starts[-1]

    def after_lines(self, count: int) -> int:
        """The byte behind the first lines."""
        if count <= 0:
            return 0
        at = bisect_left(self._breaks, count) - 1
        if at + 1 == len(self._breaks):
            return len(self._data)
        start = at * BLOCK
        return start + after_lines(self._data[start : start + BLOCK], count - self._breaks[at])

    def after_chars(self, count: int) -> int:
        """The byte behind the first characters."""
        if count >= self.chars:
            return len(self._data)
        at = bisect_right(self._starts, count) - 1
        start = at * BLOCK
        block = self._data[start : start + BLOCK]
        cut = len(block) - len(block.lstrip(_CONTINUES))  # of a character that began in the block before
        text = block.decode(errors="ignore")
        return start + cut + len(text[: count - self._starts[at]].encode())
