"""The index: documents by server, found by a few words.

The rules this file keeps: a server that changes is indexed again alone, and of it only what changed. What a search may
not show is left out before anything is counted, so that it changes neither the order nor the confidence of the rest.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from weakref import WeakValueDictionary

from toolgate.search import confidence, patterns, places, points, queries
from toolgate.search.documents import Document, Hit, Unsearchable, Vector
from toolgate.search.ranking import CANDIDATES, MOST_PIECES, SHORTEST_PIECE, IndexEntry, Ranking, Scope, rank

Permitted = Callable[[Document], bool]


MOST_TERMS = 160_000  # of all documents of one server: about 50 MB, and a second or two to read
LEAST_TERMS = 8  # of each, however many there are
_ENTRY, _TERM = 2000, 300  # bytes of memory of a document without its texts, and of each of its terms, as measured


class Index:
    def __init__(self) -> None:
        self._servers: dict[str, dict[Document, IndexEntry]] = {}
        self._postings: dict[str, dict[IndexEntry, float]] = {}
        self._vectors: WeakValueDictionary[Document, Vector] = WeakValueDictionary()
        self._parts = Counter[str]()  # of names
        self._sizes = Counter[str]()  # by who lists them
        self._terms: dict[str, Counter[str]] = {}  # by who lists them, in how many documents
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, server: str, documents: Iterable[Document], most: int = MOST_TERMS) -> None:
        """These are the documents of this server now. The key may name a scope as well, where a server's lists differ
        from client to client. For `most`, see `read`."""
        before = self._servers.pop(server, {})
        now: dict[Document, IndexEntry] = {}
        for document in documents:
            if document not in now:
                now[document] = before.pop(document, None) or self._enter(document, most)
        for entry in before.values():
            self._leave(entry)
        if now:
            self._servers[server] = now

    def add(self, server: str, document: Document, most: int = MOST_TERMS) -> None:
        """This one is among the documents of this server. See `read`."""
        own = self._servers.setdefault(server, {})
        if document not in own:
            own[document] = self._enter(document, most)

    def keep(self, server: str, documents: Collection[Document]) -> None:
        """The documents of this server are no longer any but these."""
        self.put(server, [document for document in documents if document in self._servers.get(server, {})])

    def drop(self, server: str) -> None:
        self.put(server, ())

    def size(self, server: str) -> int:
        """About how many bytes of memory its documents take."""
        return sum(
            _ENTRY + _TERM * len(entry.vector.terms) + document.size
            for document, entry in self._servers.get(server, {}).items()
        )

    def read(self, document: Document, most: int = MOST_TERMS) -> Vector:
        """What takes most of the time that it takes to put it in. It is found again while anybody keeps it. It has the
        `most` terms, or `LEAST_TERMS`."""
        vector = self._vectors.get(document)
        if vector is None:
            vector = self._vectors[document] = Vector(document, max(LEAST_TERMS, most))
        return vector

    def _enter(self, document: Document, most: int) -> IndexEntry:
        vector = self.read(document, most)
        entry = IndexEntry(document, vector)
        for term, value in vector.terms.items():
            self._postings.setdefault(term, {})[entry] = value
        self._parts.update(vector.name)
        self._terms.setdefault(document.listed_by, Counter()).update(vector.terms.keys())
        self._sizes[document.listed_by] += 1
        self._size += 1
        return entry

    def _leave(self, entry: IndexEntry) -> None:
        for term in entry.vector.terms:
            del self._postings[term][entry]
            if not self._postings[term]:
                del self._postings[term]
        whose = entry.document.listed_by
        _remove(self._parts, entry.vector.name)
        _remove(self._terms[whose], entry.vector.terms)
        _remove(self._sizes, (whose,))
        if whose not in self._sizes:
            del self._terms[whose]
        self._size -= 1

    def search(
        self,
        query: str,
        limit: int = 10,
        *,
        kinds: Collection[str] | None = None,
        servers: Collection[str] | None = None,
        permitted: Permitted | None = None,
        mode: str = "bm25",
    ) -> list[Hit]:
        """The best first. Raises `Unsearchable`."""
        query = query[: queries.LONGEST]
        if mode not in _MODES:
            raise Unsearchable(f"Unknown mode {mode!r}: use mode {' or '.join(_MODES)}")
        allowed = self._allowed(kinds, servers, permitted)
        return _MODES[mode](self, query, limit, allowed)

    def ranking(self, query: str) -> Ranking:
        """Of all that is indexed, for a `Comparison`."""
        return self._ranking(query, CANDIDATES, None)

    def documents(
        self,
        kinds: Collection[str] | None = None,
        servers: Collection[str] | None = None,
        permitted: Permitted | None = None,
    ) -> list[Document]:
        """Those that a search would be about, in one order."""
        allowed = self._allowed(kinds, servers, permitted)
        entries = allowed if allowed is not None else {e for own in self._servers.values() for e in own.values()}
        return sorted(entry.document for entry in entries)

    def _allowed(
        self, kinds: Collection[str] | None, servers: Collection[str] | None, permitted: Permitted | None
    ) -> set[IndexEntry] | None:
        """The entries that this search is about; None: all."""
        if kinds is None and servers is None and permitted is None:
            return None
        keys = self._servers if servers is None else [key for key in set(servers) if key in self._servers]
        found = {
            entry
            for key in keys
            for document, entry in self._servers[key].items()
            if (kinds is None or document.kind in kinds) and (permitted is None or permitted(document))
        }
        return None if len(found) == self._size else found

    def _ranked(self, text: str, limit: int, allowed: set[IndexEntry] | None) -> list[Hit]:
        """What is ranked lower is not told to be surer: confidence never rises down the list."""
        ranking, asked = self._ranking(text, limit, allowed), points.asked(text)
        owners = [entry.document.listed_by for entry, _ in ranking.order]
        at_places = places.shown(owners, limit, lambda at: confidence.of(ranking, at)[1] != "none")
        judged = (confidence.of(ranking, at) for at in at_places)
        falling = itertools.accumulate(judged, lambda above, own: min(above, own, key=lambda each: each[0]))
        return [
            Hit(entry.document, round(worth, 4), points.of(asked, entry.document), *found)
            for (entry, worth), found in zip((ranking.order[at] for at in at_places), falling, strict=True)
        ]

    def _ranking(self, text: str, limit: int, allowed: set[IndexEntry] | None) -> Ranking:
        scope = Scope(self._postings, allowed, self._sizes, self._terms)
        query = queries.read(text, scope.count, scope.total, lambda term: self._within(term, scope))
        return rank(text, query, scope, max(limit, CANDIDATES))

    def _within(self, term: str, scope: Scope) -> list[str]:
        """The parts of names that a term is a piece of (`shot` of `screenshot`), where nothing has it for a part."""
        if len(term) < SHORTEST_PIECE or any(term in entry.vector.name for entry in scope.posting(term)):
            return []
        found = (part for part in self._parts if term in part and scope.count(part))
        return list(islice(found, MOST_PIECES))

    def _matched(self, pattern: str, limit: int, allowed: set[IndexEntry] | None) -> list[Hit]:
        entries = allowed if allowed is not None else {e for own in self._servers.values() for e in own.values()}
        found = patterns.search(pattern, (entry.document for entry in entries))
        at_places = places.shown([document.listed_by for document, _ in found], limit, lambda _: True)
        return [Hit(document, relevance, 0, 1.0, "match") for document, relevance in (found[at] for at in at_places)]


def _remove(counts: Counter[str], each: Iterable[str]) -> None:
    """What is left of nothing takes no memory."""
    for one in each:
        counts[one] -= 1
        if not counts[one]:
            del counts[one]


_MODES: Mapping[str, Callable[[Index, str, int, set[IndexEntry] | None], list[Hit]]] = {
    "bm25": Index._ranked,  # pyright: ignore[reportPrivateUsage]
    "regex": Index._matched,  # pyright: ignore[reportPrivateUsage]
}
