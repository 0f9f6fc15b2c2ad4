"""What results of tools have looked like that declare no output, for the declarations that code is written by.

The rules this file keeps: whose results were seen, they alone are told of them, since members of a result may be named
after what it is about; what was seen of a tool is forgotten when its server or its definition is another one; only
results that code gets are looked at, each tool's first ones, and small ones; nothing is kept beyond the process."""

from __future__ import annotations

from typing import Any, TypeAlias

from toolgate.config import Server
from toolgate.core import jsonrpc
from toolgate.search import shapes
from toolgate.search.shapes import Shape

LARGEST = 64 * 1024  # bytes of a result that is looked at
MOST_SEEN = 20  # results of one tool
MOST_OF_ONE = 200  # tools of one principal
MOST = 2_000  # tools of all of them

Definition: TypeAlias = tuple[Server, bytes]
"""The server that lists a tool, and a hash of what it lists."""

_Place = tuple[str, str]  # a server's id, and a tool as its client knows it


class _Seen:
    """Of one tool."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.shape: Shape = {}
        self.results = 0


class ObservedShapes:
    def __init__(self) -> None:
        self._seen: dict[str, dict[_Place, _Seen]] = {}  # by `Principal.counted_as`, the latest last

    def note(self, whose: str, server: str, tool: str, definition: Definition, result: bytes) -> None:
        """A result, as JSON, that this principal has had."""
        if len(result) > LARGEST:
            return
        own = self._seen.pop(whose, {})
        self._seen[whose] = own
        seen = own.pop((server, tool), None)
        if not seen or seen.definition != definition:
            seen = _Seen(definition)
        own[server, tool] = seen
        if seen.results < MOST_SEEN:
            _look(seen, result)
        self._bound(own)

    def has(self, whose: str, server: str, tool: str) -> bool:
        return (server, tool) in self._seen.get(whose, ())

    def of(self, whose: str, server: str, tool: str, definition: Definition) -> bytes:
        """What this principal's results of a tool looked like, as a JSON Schema; empty where nothing is known."""
        seen = self._seen.get(whose, {}).get((server, tool))
        if not seen or not seen.shape or seen.definition != definition:
            return b""
        return jsonrpc.encode(seen.shape)

    def _bound(self, own: dict[_Place, _Seen]) -> None:
        while len(own) > MOST_OF_ONE:
            del own[next(iter(own))]
        while sum(map(len, self._seen.values())) > MOST:
            del self._seen[next(iter(self._seen))]


def _look(seen: _Seen, result: bytes) -> None:
    try:
        value: Any = jsonrpc.read(result, Any)
    except jsonrpc.UNREADABLE:
        return
    found = shapes.of(value)
    whole = shapes.merged((seen.shape, found)) if seen.results else found
    seen.shape = whole if shapes.parts(whole) <= shapes.MOST_PARTS else {}
    seen.results = seen.results + 1 if seen.shape else MOST_SEEN  # what is too much to tell, more results make no less
