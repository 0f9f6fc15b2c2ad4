"""The ranker: which of the documents that may be shown answer a query best.

The rule this file keeps: the rarest terms find the candidates, within a budget, and the candidates are ranked exactly.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from toolgate.search import weights
from toolgate.search.documents import Document
from toolgate.search.queries import Query
from toolgate.search.weights import Vector

_BUDGET = 20_000  # entries of postings that are looked at to find the candidates


class Entry:
    """A document in the index; it is itself, and equals no other."""

    __slots__ = ("document", "vector")

    def __init__(self, document: Document, vector: Vector) -> None:
        self.document = document
        self.vector = vector


Posting: TypeAlias = Mapping[Entry, float]


class Candidate:
    """An entry, what it has of the query and how much that counts; `covers` is how well it has each term."""

    __slots__ = ("covers", "entry", "parts", "relevance")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.parts: dict[str, float] = {}
        self.covers: dict[str, float] = {}
        self.relevance = 0.0


class Scope:
    """The postings of one search: what is not allowed is in none of them."""

    def __init__(self, postings: Mapping[str, dict[Entry, float]], allowed: set[Entry] | None) -> None:
        self._postings = postings
        self._allowed = allowed
        self._seen: dict[str, Posting] = {}

    def posting(self, term: str) -> Posting:
        found = self._postings.get(term, {})
        if self._allowed is None or not found:
            return found
        if term not in self._seen:
            self._seen[term] = {entry: found[entry] for entry in found.keys() & self._allowed}
        return self._seen[term]

    def count(self, term: str) -> int:
        return len(self.posting(term))


def rank(query: Query, scope: Scope, most: int) -> list[Candidate]:
    candidates = {entry: Candidate(entry) for entry in _promising(query, scope, most)}
    _weigh(query, scope, candidates)
    known = sum(query.weights[term] for term in query.variants)
    for each in candidates.values():
        each.relevance = _relevance(query, each, known)
    _favour_the_best_of_each_clause(query, candidates.values(), known)
    _favour_servers(candidates.values())
    return sorted(candidates.values(), key=_order)


def _promising(query: Query, scope: Scope, most: int) -> list[Entry]:
    """The entries that are worth a closer look: by the rarest terms first, until the budget is spent."""
    worth: dict[str, float] = defaultdict(float)
    for variants in query.variants.values():
        for term, weight in variants.items():
            worth[term] += weight
    sums: dict[Entry, float] = defaultdict(float)
    left = _BUDGET
    for term in sorted(worth, key=lambda term: (scope.count(term), term)):
        weight = worth[term]
        for entry, value in scope.posting(term).items():
            sums[entry] += weight * value
        left -= scope.count(term)
        if left < 0:
            break
    return heapq.nlargest(most, sums, key=sums.__getitem__)


def _weigh(query: Query, scope: Scope, candidates: Mapping[Entry, Candidate]) -> None:
    """Each term counts once, by itself or by its best synonym."""
    for term, variants in query.variants.items():
        for variant, weight in variants.items():
            posting = scope.posting(variant)
            covers = 1 if variant == term else weights.SYNONYM_COVERS
            for entry in posting.keys() & candidates.keys():
                candidate = candidates[entry]
                value = weight * posting[entry]
                if value > candidate.parts.get(term, 0):
                    candidate.parts[term] = value
                    candidate.covers[term] = covers


def _relevance(query: Query, each: Candidate, known: float) -> float:
    covered = sum(covers * query.weights[term] for term, covers in each.covers.items()) / known
    return sum(each.parts.values()) * covered**weights.COVERAGE * (1 + weights.NAME * said_of_name(query, each))


def said_of_name(query: Query, each: Candidate) -> float:
    """The share of a name's parts that the query says."""
    name = each.entry.vector.name
    return sum(part in each.parts for part in name) / (len(name) or 1)


def _favour_the_best_of_each_clause(query: Query, candidates: Collection[Candidate], known: float) -> None:
    if len(query.clauses) < 2 or not candidates:
        return
    top = max(each.relevance for each in candidates)
    gains: dict[Candidate, float] = defaultdict(float)
    for clause in query.clauses:
        length = sum(query.weights[term] for term in clause)
        own = {each: value for each in candidates if (value := _of_clause(query, each, clause, length))}
        best = max(own.values(), default=0)
        worth = weights.CLAUSE * top * (length / known) ** weights.CLAUSE_LENGTH
        for each, value in own.items():
            gains[each] += worth * (value / best) ** weights.CLAUSE_BEST
    for each, gain in gains.items():
        each.relevance += gain


def _of_clause(query: Query, each: Candidate, clause: Iterable[str], length: float) -> float:
    has = [term for term in clause if term in each.parts]
    covered = sum(each.covers[term] * query.weights[term] for term in has) / length
    return sum(each.parts[term] for term in has) * covered**weights.COVERAGE


def _favour_servers(candidates: Iterable[Candidate]) -> None:
    best: dict[str, float] = defaultdict(float)
    for each in candidates:
        best[each.entry.document.server] = max(best[each.entry.document.server], each.relevance)
    for each in candidates:
        if each.entry.document.server:
            each.relevance += weights.SERVER * best[each.entry.document.server]


def _order(each: Candidate) -> tuple[float, str, str]:
    return -each.relevance, each.entry.document.server, each.entry.document.name
