"""Notes of servers that are too large to be heard, told by their beginnings: to read one takes as long as it is; and
those that have too many values: to take their members apart takes as long as those are many.

The rules this file keeps: what is larger than `LONGEST_NOTE` is dropped, but for a note of the result of a task that a
client here waits to hear of, once for each task; and no more than `MOST_VALUES` are ever taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from msgspec import Raw

from toolgate.core import counting, jsonrpc, mcp
from toolgate.core.large import Whole

LONGEST_NOTE = 1020 * 1024  # bytes of what a server says unasked, which is read and written for each who hears it
BEGINNING = 16 * 1024  # bytes of a message in which its method is looked for, and the id of a task
MOST_ESCAPES = 20_000  # characters written as escapes: some hundredths of a second, to look for secrets in them
MOST_VALUES = 2048  # that are taken apart for each who hears it, several times: 1 ms together
MOST_TOKENS = 200  # of the beginning
MOST_PASSED = 1024  # tasks of which it is known that they were told of at length

_task_id = re.compile(rb'"taskId"\s{0,100}:\s{0,100}("(?:[^"\\]|\\.){0,1000}")')
_NOTES = b'"notifications/'


class _Long(msgspec.Struct):
    """The members that may say much: nobody looks into them."""

    data: Raw = jsonrpc.NOTHING  # of a log line
    result: Raw = jsonrpc.NOTHING  # of a task, and the next two
    error: Raw = jsonrpc.NOTHING
    inputRequests: Raw = jsonrpc.NOTHING
    notifications: Raw = jsonrpc.NOTHING  # all that is watched on a connection


_long = jsonrpc.Decoder(_Long)


def has_too_many_values(params: Raw) -> bool:
    """Whether a note is not to be heard for what its parameters hold. In those members that may say much there may be
    more, but then the others must be too short for it. Raises `UNREADABLE`."""
    whole = bytes(params)
    if len(whole) <= LONGEST_NOTE and whole.count(b"\\u") > MOST_ESCAPES:
        return True
    if not counting.has_more_values(whole, MOST_VALUES):
        return False
    beside = len(whole) - sum(memoryview(each).nbytes for each in msgspec.structs.astuple(_long.decode(params)))
    return beside >= 2 * MOST_VALUES or counting.has_more_values(whole, counting.MANY)


def answered(data: Whole) -> bytes | None:
    """The id of the request that a message answers, empty where its beginning does not tell; None where it is a note or
    a request itself."""
    beginning = jsonrpc.beginning(data[:BEGINNING], MOST_TOKENS)
    return None if b'"method"' in beginning else beginning.get(b'"id"', b"")


def is_note(data: Whole) -> bool:
    """Whether a message is one, as far as its beginning tells."""
    return jsonrpc.beginning(data[:BEGINNING], MOST_TOKENS).get(b'"method"', b"").startswith(_NOTES)


class LargeNotes:
    """Those of one connection. `is_watched` says whether a client here waits to hear of a task."""

    def __init__(self, is_watched: Callable[[str], bool] = lambda _task: False) -> None:
        self._is_watched = is_watched
        self._passed: dict[str, None] = {}
        self.has_passed = False  # the message that was looked at last: it is a note that may be large

    def refused(self, data: Whole) -> str:
        """The method of a note that is not to be heard, as far as the beginning tells; else nothing. A message whose
        beginning does not tell is read as any other."""
        self.has_passed = False
        method = jsonrpc.beginning(data[:BEGINNING], MOST_TOKENS).get(b'"method"', b"")
        if not method.startswith(_NOTES) or not method.endswith(b'"'):
            return ""
        name = method[1:-1].decode(errors="replace")
        return "" if name == mcp.TASK_CHANGED and self._passes(data) else name

    def _passes(self, data: Whole) -> bool:
        found = _task_id.search(data, 0, BEGINNING)
        try:
            id = jsonrpc.read(found[1], str) if found else ""
        except jsonrpc.UNREADABLE:
            return False
        if not id or id in self._passed or not self._is_watched(id):
            return False
        self._passed[id], self.has_passed = None, True
        if len(self._passed) > MOST_PASSED:
            del self._passed[next(iter(self._passed))]
        return True
