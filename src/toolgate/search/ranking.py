"""The ranker: which of the documents that may be shown answer a query best.

The rule this file keeps: the rarest terms find the candidates, within a budget, and the candidates are ranked exactly.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from toolgate.search import queries, spellings, weights
from toolgate.search.documents import Document, Vector
from toolgate.search.queries import Query

SHORTEST_PIECE = 3  # letters of a word that is looked for inside of others
MOST_PIECES = 20  # words that it is looked for in
CANDIDATES = 128  # are ranked exactly
_BUDGET = 5_000  # entries of postings that are looked at to find the candidates
_OF_OTHERS = 32  # candidates that are looked at of other servers, where one has nearly all
_COMPARED = 48  # entries whose spelling is compared, and
_WRITTEN = 300  # characters of their descriptions: what comes later says how, not what


class IndexEntry:
    """A document in the index; it is itself, and equals no other."""

    __slots__ = ("_spelling", "document", "vector")

    def __init__(self, document: Document, vector: Vector) -> None:
        self.document = document
        self.vector = vector
        self._spelling: int | None = None

    def spelling(self) -> int:
        """Made when it is first asked for: most entries never are among the best."""
        if self._spelling is None:
            name, title, description = self.document.name, self.document.title, self.document.description
            self._spelling = spellings.of(f"{name[:_WRITTEN]} {title[:_WRITTEN]} {description[:_WRITTEN]}")
        return self._spelling


Posting: TypeAlias = Mapping[IndexEntry, float]
Values: TypeAlias = dict[IndexEntry, float]


class Ranking(NamedTuple):
    """The candidates, the best first, with what they are worth; and for each term of the query which of them have it:
    `parts` what it is worth there, `covers` how well it is answered, from 0 to the term's weight. `named` is the share
    of each candidate's name that the query says."""

    query: Query
    order: list[tuple[IndexEntry, float]]
    parts: Mapping[str, Values]
    covers: Mapping[str, Values]
    named: Values


class Counted(Protocol):
    """What candidates are ranked by: which of them have a term, and how rare it is among all."""

    def posting(self, term: str) -> Posting: ...

    def rarity(self, term: str) -> float: ...


Key = TypeVar("Key")


class Postings(Protocol[Key]):
    """What candidates are found by. `size` is how long a posting is, `owner` who lists an entry; empty: nobody does."""

    def size(self, term: str) -> int: ...

    def posting(self, term: str) -> Mapping[Key, float]: ...

    def owner(self, entry: Key, /) -> object: ...


class Scope:
    """The postings of one search: what is not allowed is in none of them. `sizes` says how many documents each server
    lists, and `terms` how many of these have a term; both of all that is indexed.

    On what is common, each server has as many votes as documents, but `weights.VOTES` at most: the documents of a
    larger one share them. So no server alone makes a word common. Documents that no server lists have one vote each.
    """

    def __init__(
        self,
        postings: Mapping[str, Posting],
        allowed: set[IndexEntry] | None,
        sizes: Mapping[str, int],
        terms: Mapping[str, Counter[str]],
    ) -> None:
        self._postings = postings
        self._allowed = allowed
        self._terms = terms
        self._seen: dict[str, Posting] = {}
        self._counts: dict[str, float] = {}
        sizes = sizes if allowed is None else Counter(entry.document.listed_by for entry in allowed)
        most = weights.VOTES
        self._lost = {server: 1 - most / size for server, size in sizes.items() if server and size > most}
        self.total = sum(sizes.values()) - sum(sizes[server] * lost for server, lost in self._lost.items())

    def posting(self, term: str) -> Posting:
        found = self._postings.get(term, {})
        if self._allowed is None or not found:
            return found
        if term not in self._seen:
            self._seen[term] = {entry: found[entry] for entry in found.keys() & self._allowed}
        return self._seen[term]

    def size(self, term: str) -> int:
        return len(self.posting(term))

    def owner(self, entry: IndexEntry) -> str:
        return entry.document.listed_by

    def count(self, term: str) -> float:
        """The votes of those that have it."""
        if term not in self._counts:
            self._counts[term] = self._counted(term)
        return self._counts[term]

    def _counted(self, term: str) -> float:
        posting = self.posting(term)
        if not posting or not self._lost:
            return len(posting)
        if self._allowed is None:
            return len(posting) - sum(self._terms[server][term] * lost for server, lost in self._lost.items())
        return len(posting) - sum(self._lost.get(entry.document.listed_by, 0) for entry in posting)

    def rarity(self, term: str) -> float:
        return weights.rarity(self.count(term), self.total)


def rank(text: str, query: Query, scope: Scope, most: int) -> Ranking:
    return ranked(text, query, scope, promising(query, scope, most))


def ranked(text: str, query: Query, scope: Counted, candidates: Collection[IndexEntry]) -> Ranking:
    """The candidates, exactly. Of those that are worth as much the first are compared by spelling."""
    ranking = _weighed(query, scope, candidates)
    worth = _worth(ranking, query.variants)
    for entry in worth:
        ranking.named[entry] = _said_of_name(ranking, entry, scope)
        worth[entry] *= 1 + weights.NAME * ranking.named[entry]
    _favour_the_best_of_each_clause(ranking, worth)
    _favour_servers(worth)
    _favour_what_is_written_alike(text, worth)
    return ranking._replace(order=sorted(worth.items(), key=_order))


def _order(each: tuple[IndexEntry, float]) -> tuple[float, str, str]:
    return -each[1], each[0].document.server, each[0].document.name


def promising(query: Query, scope: Postings[Key], most: int) -> dict[Key, float]:
    """The entries that are worth a closer look, and how much they seem to be worth."""
    worth: dict[str, float] = defaultdict(float)
    for variants in query.variants.values():
        for term, weight in variants.items():
            worth[term] += weight
    sums: dict[Key, float] = defaultdict(float)
    left = _BUDGET
    for count, term in sorted((scope.size(term), term) for term in worth):
        left -= count
        if left < 0 and sums:
            break
        weight = worth[term]
        for entry, value in scope.posting(term).items():
            sums[entry] += weight * value
    if len(sums) <= most:
        return sums
    least = heapq.nlargest(most, sums.values())[-1]
    best = {entry: value for entry, value in sums.items() if value >= least}
    return best | {entry: sums[entry] for entry in _of_others(best, sums, scope.owner)}


def _of_others(best: Collection[Key], sums: Mapping[Key, float], owner: Callable[[Key], object]) -> list[Key]:
    """Where one server has most of what is looked at, the best of all others are looked at, too."""
    server, taken = Counter(map(owner, best)).most_common(1)[0]
    if not server or len(best) - taken >= _OF_OTHERS:
        return []
    others = (entry for entry in sums if owner(entry) != server)
    return heapq.nlargest(_OF_OTHERS, others, key=sums.__getitem__)


def _weighed(query: Query, scope: Counted, candidates: Collection[IndexEntry]) -> Ranking:
    """Each term counts once, by itself or by its best synonym."""
    parts, covers = dict[str, Values](), dict[str, Values]()
    for term, variants in query.variants.items():
        own, covered = parts.setdefault(term, {}), covers.setdefault(term, {})
        for variant, weight in variants.items():
            posting = scope.posting(variant)
            answered = query.weights[term] * (1 if variant == term else weights.SYNONYM_COVERS)
            fewer, more = (posting, candidates) if len(posting) < len(candidates) else (candidates, posting)
            for entry in fewer:
                if entry in more and (value := weight * posting[entry]) > own.get(entry, 0):
                    own[entry], covered[entry] = value, answered
    return Ranking(query, [], parts, covers, {})


def _worth(ranking: Ranking, terms: Collection[str]) -> Values:
    """What each candidate is worth for these terms of the query."""
    sums: Values = defaultdict(float)
    covered: Values = defaultdict(float)
    for term in terms:
        for entry, value in ranking.parts[term].items():
            sums[entry] += value
        for entry, value in ranking.covers[term].items():
            covered[entry] += value
    whole = _length(ranking, terms)
    return {entry: value * (covered[entry] / whole) ** weights.COVERAGE for entry, value in sums.items()}


def _length(ranking: Ranking, terms: Iterable[str]) -> float:
    return sum(ranking.query.weights[term] for term in terms)


def _said_of_name(ranking: Ranking, entry: IndexEntry, scope: Counted) -> float:
    said = [part for part in entry.vector.name if part in ranking.parts and entry in ranking.parts[part]]
    if not said:
        return 0
    whole = sum(scope.rarity(part) for part in entry.vector.name)
    return sum(ranking.query.weights[part] for part in said) / whole


def _favour_the_best_of_each_clause(ranking: Ranking, worth: Values) -> None:
    clauses = ranking.query.clauses
    if len(clauses) < 2 or not worth:
        return
    top, whole = max(worth.values()), _length(ranking, ranking.query.variants)
    for clause in clauses:
        own = _worth(ranking, clause)
        best = max(own.values(), default=0)
        gain = weights.CLAUSE * top * (_length(ranking, clause) / whole) ** weights.CLAUSE_LENGTH
        for entry, value in own.items():
            worth[entry] += gain * (value / best) ** weights.CLAUSE_BEST


def _favour_servers(worth: Values) -> None:
    """A tool of the server whose best tool is good is likelier than its like elsewhere."""
    best: dict[str, float] = {}
    for entry, value in worth.items():
        server = entry.document.server
        if server and value > best.get(server, 0):
            best[server] = value
    for entry in worth:
        worth[entry] += weights.SERVER * best.get(entry.document.server, 0)


def _favour_what_is_written_alike(text: str, worth: Values) -> None:
    """Of the best alone: the others would not get among those that are shown."""
    own = spellings.of(text[: queries.LONGEST])
    best = heapq.nlargest(_COMPARED, worth.items(), key=lambda each: each[1])
    for entry, _ in best:
        worth[entry] += weights.LIKENESS * best[0][1] * spellings.likeness(own, entry.spelling())
