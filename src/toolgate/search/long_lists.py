"""Long lists of strangers, found by a few words as in an `Index`: ranked the same, and kept in a tenth of the memory.

A list that anybody may write has as many words as its writers like, and an index of objects takes a hundred bytes for
each. Here a word of a document is one number of eight bytes: a hash, the document, and what the word is worth there.
Such numbers find the candidates; these are read anew, and ranked by what they say. The rule this file keeps: what is
kept of a document is bounded, whatever stands there.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from toolgate.search import queries, weights
from toolgate.search.documents import Document, Vector
from toolgate.search.ranking import (
    CANDIDATES,
    MOST_PIECES,
    SHORTEST_PIECE,
    IndexEntry,
    Ranking,
    promising,
    ranked,
)

MOST_DOCUMENTS = 1 << 16  # of one list
_MOST_TERMS = 128  # of a stranger's document, by which it is found: those that are worth the most there
_MOST_PARTS = 100_000  # of names of one list, that a word is looked for inside of
_MOST_ALIKE = 1_000  # candidates that are looked at, where all are worth as much

# A number: 38 bits of a term's hash, 16 of the document, 10 of what the term is worth there, in thousandths.
_OF_VALUE, _OF_DOCUMENT, _OF_HASH = 10, 16, 38
_BELOW_HASH = _OF_VALUE + _OF_DOCUMENT
_HASH = (1 << _OF_HASH) - 1
_DOCUMENT = MOST_DOCUMENTS - 1
_VALUE = (1 << _OF_VALUE) - 1
_OF_ROW = 8  # bits of the hash that say in which row a number stands: a row is sorted at once

Numbered = tuple[int, Document, float]
Read = Callable[[str, Iterable[int]], Mapping[int, Document]]


class LongList:
    """One list. Its documents have numbers below `MOST_DOCUMENTS`, and a rank among those that fit as well: the lowest
    are looked at first."""

    def __init__(self, documents: Iterable[Numbered]) -> None:
        rows = [array("Q") for _ in range(1 << _OF_ROW)]
        owners, sizes, parts = {"": 0}, [0], dict[str, None]()
        self._owners = array("I")
        self._ranks = array("d")
        for number, document, rank in documents:
            self._owners.extend([0] * (number + 1 - len(self._owners)))
            self._ranks.extend([0.0] * (number + 1 - len(self._ranks)))
            self._owners[number] = owner = owners.setdefault(document.listed_by, len(owners))
            self._ranks[number] = rank
            sizes.extend([0] * (owner + 1 - len(sizes)))
            sizes[owner] += 1
            vector = Vector(document)
            for term, value in _found_by(document, vector):
                key = _place(term) | number << _OF_VALUE | round(1000 * value)
                rows[key >> 64 - _OF_ROW].append(key)
            if len(parts) < _MOST_PARTS:
                parts.update(dict.fromkeys(vector.name))
        self._rows = [array("Q", sorted(rows.pop(0))) for _ in range(1 << _OF_ROW)]
        self._parts = "\n".join(("", *parts, ""))
        most = weights.VOTES
        self._votes = array("d", (most / size if owner and size > most else 1 for owner, size in enumerate(sizes)))
        self.total = sum(size * votes for size, votes in zip(sizes, self._votes, strict=True))
        self._is_equal = max(self._votes) == min(self._votes)

    def found(self, term: str) -> array[int]:
        """The numbers of a term, by document."""
        first = _place(term)
        row = self._rows[first >> 64 - _OF_ROW]
        begin = bisect_left(row, first)
        return row[begin : bisect_left(row, first + (1 << _BELOW_HASH), begin)]

    def count(self, term: str) -> float:
        """The votes of those that have it: see `ranking.Scope`."""
        found = self.found(term)
        if self._is_equal:
            return len(found)
        votes, owners = self._votes, self._owners
        return sum(votes[owners[key >> _OF_VALUE & _DOCUMENT]] for key in found)

    def owner(self, number: int) -> int:
        """0: nobody."""
        return self._owners[number]

    def rank(self, number: int) -> float:
        return self._ranks[number]

    def is_part(self, term: str) -> bool:
        return f"\n{term}\n" in self._parts

    def parts(self, piece: str) -> Iterator[str]:
        """The parts of names that it is a piece of."""
        at = self._parts.find(piece)
        while at >= 0:
            end = self._parts.index("\n", at)
            yield self._parts[self._parts.rindex("\n", 0, at) + 1 : end]
            at = self._parts.find(piece, end)


class LongLists:
    """Lists that are searched together, by their keys."""

    def __init__(self) -> None:
        self._lists: dict[str, LongList] = {}

    def put(self, key: str, documents: Iterable[Numbered]) -> None:
        """Those of before are let go first: two of a list take twice as much."""
        self._lists.pop(key, None)
        self._lists[key] = LongList(documents)

    def drop(self, key: str) -> None:
        self._lists.pop(key, None)

    def ranking(self, text: str, read: Read) -> Ranking:
        """Of all of them. `read` has the documents of a list, of which some numbers are asked for."""
        search = _Search(self._lists)
        query = queries.read(text, search.count, search.total, search.within)
        found = promising(query, search, CANDIDATES)
        best = heapq.nsmallest(_MOST_ALIKE, found, key=lambda each: (-found[each], search.rank(each)))
        documents = {
            at << _OF_DOCUMENT | number: document
            for at, key in enumerate(self._lists)
            for number, document in read(key, [each & _DOCUMENT for each in best if each >> _OF_DOCUMENT == at]).items()
        }
        entries = [IndexEntry(each, Vector(each)) for each in dict.fromkeys(documents[each] for each in best)]
        return ranked(text, query, _Chosen(search, entries), dict.fromkeys(entries))


class _Search:
    """The postings of one search. A document is its number, above which stands that of its list."""

    def __init__(self, lists: Mapping[str, LongList]) -> None:
        self._lists = list(lists.values())
        self._counts: dict[str, float] = {}
        self.total = sum(each_list.total for each_list in self._lists)

    def count(self, term: str) -> float:
        if term not in self._counts:
            self._counts[term] = sum(each_list.count(term) for each_list in self._lists)
        return self._counts[term]

    def size(self, term: str) -> int:
        return sum(len(each_list.found(term)) for each_list in self._lists)

    def posting(self, term: str) -> dict[int, float]:
        return {
            at << _OF_DOCUMENT | key >> _OF_VALUE & _DOCUMENT: (key & _VALUE) / 1000
            for at, each_list in enumerate(self._lists)
            for key in each_list.found(term)
        }

    def owner(self, found: int) -> object:
        owner = self._list_of(found).owner(found & _DOCUMENT)
        return (found >> _OF_DOCUMENT, owner) if owner else ""

    def rank(self, found: int) -> float:
        return self._list_of(found).rank(found & _DOCUMENT)

    def within(self, term: str) -> list[str]:
        """See `Index`."""
        if len(term) < SHORTEST_PIECE or any(each_list.is_part(term) for each_list in self._lists):
            return []
        parts = dict.fromkeys(part for each_list in self._lists for part in islice(each_list.parts(term), MOST_PIECES))
        return [part for part in parts if self.count(part)][:MOST_PIECES]

    def _list_of(self, found: int) -> LongList:
        return self._lists[found >> _OF_DOCUMENT]


class _Chosen:
    """What the candidates say, beside what all do."""

    def __init__(self, search: _Search, entries: Iterable[IndexEntry]) -> None:
        self._search = search
        self._postings: dict[str, dict[IndexEntry, float]] = {}
        for entry in entries:
            for term, value in entry.vector.terms.items():
                self._postings.setdefault(term, {})[entry] = value

    def posting(self, term: str) -> Mapping[IndexEntry, float]:
        return self._postings.get(term, {})

    def rarity(self, term: str) -> float:
        return weights.rarity(self._search.count(term), self._search.total)


def _found_by(document: Document, vector: Vector) -> Iterable[tuple[str, float]]:
    terms = vector.terms.items()
    if not document.server or len(terms) <= _MOST_TERMS:  # what comes with toolgate no stranger has written
        return terms
    return heapq.nlargest(_MOST_TERMS, terms, key=lambda each: each[1])


def _place(term: str) -> int:
    """Where the numbers of a term begin. By Python's own hash: nobody can foresee it."""
    return (hash(term) & _HASH) << _BELOW_HASH
