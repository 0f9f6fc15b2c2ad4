"""Searching what clients may see: the catalog's lists, indexed as they are when somebody searches.

The rules this file keeps: the index has a thread of its own, where one search goes on at a time, since some thousand
tools take a second to index, and nobody who searches for nothing is to wait for that; principals that search take
turns, so that nobody waits for more than one search of each other; what is to be indexed first is so in several turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from toolgate.catalog.base import ServerList, ServerSummary
from toolgate.core import items, mcp
from toolgate.core.concurrency import FairLimit
from toolgate.core.fault import Fault
from toolgate.core.steps import InSteps, in_slices
from toolgate.gateway.embedding import Embeddings
from toolgate.search import MOST_TERMS, Document, Hit, Index, Unsearchable, semantic
from toolgate.search.documents import Vector

MOST_INDEXED = 4096  # servers, those of different scopes counted each
MOST_WAITING = 8  # searches of one principal
SLICE = 0.1  # seconds of one turn, in which lists are read; the last of each takes longer, when it is put in

Wanted = Mapping[str, tuple[ServerSummary, "ServerLists"]]  # by server and scope
Known = Callable[[str, str], ServerList | None]
ServerLists = tuple[ServerList | None, ...]  # of one server, in the order of `mcp.LIST_OF_KIND`


class Finder:
    """An index for each server and scope, made again where a list of it is another one."""

    def __init__(self, embeddings: Embeddings | None = None) -> None:
        self._embeddings = embeddings
        self._thread = ThreadPoolExecutor(1, "toolgate search")
        self._turns = FairLimit(1, most=MOST_WAITING, what="searches")
        self._index = Index()
        self._indexed: dict[str, ServerLists] = {}
        self._terms: dict[str, dict[str, int]] = {}  # by server and key: those that were searched last come last

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
        index, is_semantic = self._index, mode == "semantic"
        if is_semantic and self._embeddings:
            self._embeddings.check()

        def searching() -> InSteps[tuple[Sequence[Hit], Sequence[Document]]]:
            yield from self._indexing(wanted)
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

    def _indexing(self, wanted: Wanted) -> Iterator[None]:
        """Have all of it indexed, a document at a time."""
        for key, (server, server_lists) in wanted.items():
            if not self._is_indexed(key, server_lists):
                read: list[tuple[Document, Vector]] = []
                count = sum(len(each.items) for each in server_lists if each)
                for document in _documents(server, server_lists):
                    read.append((document, self._index.read(document, count or 1)))  # kept until it is put in
                    yield
                self._index.put(key, (document for document, _ in read))
                self._indexed.pop(key, None)
            self._keep(key, server.id, server_lists)
            yield

    def _is_indexed(self, key: str, server_lists: ServerLists) -> bool:
        before = self._indexed.get(key, ())
        return len(before) == len(server_lists) and all(
            old is new for old, new in zip(before, server_lists, strict=True)
        )

    def _keep(self, key: str, server: str, server_lists: ServerLists) -> None:
        """All scopes of one server have `MOST_TERMS` together, or the last one alone: whose lists differ from client to
        client is not to take more memory with each client."""
        own = self._terms.setdefault(server, {})
        was = own.pop(key, 0)
        own[key] = was if self._indexed.pop(key, None) else self._index.terms(key)
        self._indexed[key] = server_lists
        while len(own) > 1 and sum(own.values()) > MOST_TERMS:
            self._drop(next(iter(own)), server)
        while len(self._indexed) > MOST_INDEXED:
            oldest = next(iter(self._indexed))
            self._drop(oldest, oldest.partition("/")[0])

    def _drop(self, key: str, server: str) -> None:
        del self._indexed[key], self._terms[server][key]
        if not self._terms[server]:
            del self._terms[server]
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
