"""Searching what clients may see: the catalog's lists, indexed as they are when somebody searches.

The rules this file keeps: the index has a thread of its own, where one search goes on at a time, since some thousand
tools take a second to index, and nobody who searches for nothing is to wait for that; principals that search take
turns, so that nobody waits for more than one search of each other; what is to be indexed first is so in several turns.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from toolgate.catalog.base import ServerList, ServerSummary
from toolgate.core import items, mcp
from toolgate.core.concurrency import FairThreads
from toolgate.core.fault import Fault
from toolgate.core.steps import InSteps, in_slices
from toolgate.gateway.embedding import Embeddings
from toolgate.search import LONGEST, MOST_TERMS, Document, Hit, Index, Unsearchable, semantic

MOST_INDEXED = 4096  # servers, those of different scopes counted each
MOST_OF_SERVER = 128 * 1024 * 1024  # bytes of memory of all scopes of one server, or what the last one alone takes
SHARED_BY = 4  # clients, at least, have room for lists of their own
TRIES = 3  # to have all lists of one search in the index at once; with more servers than have room, there is no end
MOST_WAITING = 8  # searches of one principal
SLICE = 0.1  # seconds of one turn, in which lists are put in; a list that has changed is taken out in one

Wanted = Mapping[str, tuple[ServerSummary, "ServerLists"]]  # by server and scope
Known = Callable[[str, str], ServerList | None]
ServerLists = tuple[ServerList | None, ...]  # of one server, in the order of `mcp.LIST_OF_KIND`


class _UnderWay:
    """As long as it is there, somebody has lists put in."""


class Finder:
    """An index for each server and scope, made again where a list of it is another one."""

    def __init__(self, embeddings: Embeddings | None = None) -> None:
        self._embeddings = embeddings
        self._thread = ThreadPoolExecutor(1, "toolgate search")
        self._turns = FairThreads(1, most=MOST_WAITING, what="searches")
        self._index = Index()
        self._indexed: dict[
            str, Sequence[weakref.ref[ServerList] | weakref.ref[_UnderWay] | None]
        ] = {}  # by server and scope
        self._sizes: dict[str, dict[str, tuple[int, str]]] = {}  # of these, by server, and whose: the last used last

    async def find(
        self,
        query: str,
        servers: Mapping[str, tuple[ServerSummary, str]],
        known: Known,
        kinds: Sequence[str],
        limit: int,
        mode: str,
        permitted: Callable[[Document], bool] | None = None,
        whose: str = "",
    ) -> Sequence[Hit]:
        """The best hits of these servers (each with the scope of its lists), by what is known of them now: those
        that are `permitted` (asked on the index's thread); in the mode `semantic` by words and by meaning. `whose`
        search it is: see `Principal.counted_as`. Raises `Fault` INVALID_ARGS, or RATE_LIMITED where `MOST_WAITING` of
        the same principal wait."""
        wanted = {
            f"{server.id}/{scope}": (server, tuple(known(server.id, kind) for kind in mcp.LIST_OF_KIND))
            for server, scope in servers.values()
        }
        index, is_semantic, query = self._index, mode == "semantic", query[:LONGEST]
        if is_semantic and self._embeddings:
            self._embeddings.check()

        def searching() -> InSteps[tuple[Sequence[Hit], Sequence[Document]]]:
            self._forget_gone(wanted)
            for _ in range(TRIES):  # what one puts in may push out what another has put in
                if all(self._is_indexed(key, server_lists) for key, (_, server_lists) in wanted.items()):
                    break
                yield from self._indexing(wanted, whose)
            for key, (server, server_lists) in wanted.items():
                if self._is_indexed(key, server_lists):
                    self._keep(key, server.id, server_lists, whose)  # what is in use is dropped last
            if not is_semantic:
                return index.search(query, limit, kinds=kinds, servers=wanted, permitted=permitted, mode=mode), ()
            hits = index.search(query, semantic.CANDIDATES, kinds=kinds, servers=wanted, permitted=permitted)
            return hits, index.documents(kinds, wanted, permitted)

        try:
            hits, documents = await self._turns.in_thread(whose, in_slices(searching(), SLICE), self._thread)
        except Unsearchable as error:
            raise Fault("INVALID_ARGS", f"Invalid arguments: {error}", reach="not_sent") from None
        if not is_semantic or not self._embeddings:
            return hits[:limit]
        return await self._by_meaning(self._embeddings, query, hits, documents, limit, whose)

    async def _by_meaning(
        self,
        embeddings: Embeddings,
        query: str,
        hits: Sequence[Hit],
        documents: Sequence[Document],
        limit: int,
        whose: str,
    ) -> Sequence[Hit]:
        """By words alone while no tool has a vector, or the model does not answer."""
        vectors = embeddings.known(documents)
        meant = await embeddings.of_query(query, whose) if vectors else None
        if not meant:
            return hits[:limit]
        return await self._turns.in_thread(
            whose, lambda: semantic.fused(query, meant, vectors, hits, limit), self._thread
        )

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _indexing(self, wanted: Wanted, whose: str) -> Iterator[None]:
        """Have all of it indexed, a document at a time. Nothing comes between the last of it and what follows."""
        for key, (server, server_lists) in wanted.items():
            yield
            if self._is_indexed(key, server_lists):
                continue
            documents: list[Document] = []
            for document in _documents(server, server_lists):
                documents.append(document)
                yield
            under_way = _UnderWay()
            self._begun(key, server.id, whose, under_way)
            self._index.keep(key, documents)  # lists of before and of now take twice as much
            most = (MOST_TERMS if key.endswith("/") else MOST_TERMS // SHARED_BY) // (len(documents) or 1)
            for document in documents:
                yield
                self._begun(key, server.id, whose, under_way)  # anybody may have dropped it in between
                self._index.add(key, document, most)
            self._index.put(key, documents, most)  # no others, where two lists of it were put in by turns
            self._indexed.pop(key)
            self._keep(key, server.id, server_lists, whose)

    def _begun(self, key: str, server: str, whose: str, by: _UnderWay) -> None:
        """A part of it is in the index. Where nobody goes on with it, it is gone."""
        self._sizes.setdefault(server, {}).setdefault(key, (0, whose))
        self._indexed[key] = [weakref.ref(by)]

    def _is_indexed(self, key: str, server_lists: ServerLists) -> bool:
        before = self._indexed.get(key, ())
        return len(before) == len(server_lists) and all(
            (old and old()) is new for old, new in zip(before, server_lists, strict=True)
        )

    def _forget_gone(self, wanted: Wanted) -> None:
        for server, _ in wanted.values():
            for gone in [each for each in self._sizes.get(server.id, ()) if self._is_gone(each) and each not in wanted]:
                self._drop(gone, server.id)

    def _is_gone(self, key: str) -> bool:
        """Whether it is of a client whose lists nobody remembers: its session has ended."""
        known = [each for each in self._indexed[key] if each]
        return not key.endswith("/") and not any(each() for each in known)

    def _keep(self, key: str, server: str, server_lists: ServerLists, whose: str) -> None:
        """Whose lists differ from client to client is not to take more memory with each client. Whoever has most of it
        gives way."""
        own = self._sizes.setdefault(server, {})
        was = own.pop(key, None)
        own[key] = was if self._indexed.pop(key, None) and was else (self._index.size(key), whose)
        self._indexed[key] = [each and weakref.ref(each) for each in server_lists]
        while len(own) > 1 and sum(size for size, _ in own.values()) > MOST_OF_SERVER:
            held = Counter[str]()
            for size, owner in own.values():
                held[owner] += size
            others = [each for each in own if each != key]
            self._drop(max(others, key=lambda each: held[own[each][1]]), server)  # of equals the first
        while len(self._indexed) > MOST_INDEXED:
            oldest = next(iter(self._indexed))
            self._drop(oldest, oldest.partition("/")[0])

    def _drop(self, key: str, server: str) -> None:
        del self._indexed[key], self._sizes[server][key]
        if not self._sizes[server]:
            del self._sizes[server]
        self._index.drop(key)


def _documents(server: ServerSummary, server_lists: ServerLists) -> Iterable[Document]:
    for kind, server_list in zip(mcp.LIST_OF_KIND, server_lists, strict=True):
        for name, raw in server_list.items.items() if server_list else ():
            item = items.read(raw)
            yield Document(
                server.id,
                name,
                kind,
                item.title,
                item.description,
                bytes(item.inputSchema),
                server.name,
                server.description,
            )
