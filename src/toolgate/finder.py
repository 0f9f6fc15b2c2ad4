"""Searching what clients may see: the catalog's shelves, indexed as they are when somebody searches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from toolgate.config import Server
from toolgate.model import Fault
from toolgate.ports import Shelf
from toolgate.search import Document, Hit, Index, Unsearchable
from toolgate.wire import jsonrpc, mcp

MOST_INDEXED = 4096  # servers, those of different scopes counted each

Known = Callable[[str, str], Shelf | None]


class Finder:
    """An index for each server and scope, made again where a shelf of it is another one."""

    def __init__(self) -> None:
        self._index = Index()
        self._indexed: dict[str, tuple[Shelf | None, ...]] = {}

    def find(
        self,
        query: str,
        servers: Mapping[str, tuple[Server, str]],
        known: Known,
        kinds: Sequence[str],
        limit: int,
        mode: str,
    ) -> Sequence[Hit]:
        """The best hits of these servers (each with the scope of its lists). Raises `Fault` INVALID_ARGS."""
        keys = [self._put(server, scope, known) for server, scope in servers.values()]
        try:
            return self._index.search(query, limit, kinds=kinds, servers=keys, mode=mode)
        except Unsearchable as error:
            raise Fault("INVALID_ARGS", f"Invalid arguments: {error}", reach="not_sent") from None

    def _put(self, server: Server, scope: str, known: Known) -> str:
        key = f"{server.id}/{scope}"
        shelves = tuple(known(server.id, kind) for kind in mcp.LIST_OF_KIND)
        before = self._indexed.pop(key, ())
        self._indexed[key] = shelves
        if len(before) != len(shelves) or any(old is not new for old, new in zip(before, shelves, strict=True)):
            self._index.put(key, _documents(server, shelves))
        while len(self._indexed) > MOST_INDEXED:
            oldest = next(iter(self._indexed))
            del self._indexed[oldest]
            self._index.drop(oldest)
        return key


class _Item(msgspec.Struct):
    title: Any = ""  # a text, or what servers write where they have none
    description: Any = ""
    inputSchema: msgspec.Raw = msgspec.Raw(b"")


def _documents(server: Server, shelves: Iterable[Shelf | None]) -> Iterable[Document]:
    for kind, shelf in zip(mcp.LIST_OF_KIND, shelves, strict=True):
        for name, raw in shelf.items.items() if shelf else ():
            try:
                item = msgspec.json.decode(raw, type=_Item)
            except jsonrpc.UNREADABLE:
                item = _Item()
            yield Document(
                server.id,
                name,
                kind,
                _text(item.title),
                _text(item.description),
                bytes(item.inputSchema),
                server.name,
                server.description,
            )


def _text(found: Any) -> str:
    return found if isinstance(found, str) else ""
