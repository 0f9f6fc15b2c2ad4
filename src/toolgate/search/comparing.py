"""What a query may mean, where anybody can write what is searched: how sure each candidate is, and how sure it would be
without those that answer the same.

The rule this file keeps: who publishes one more document that answers a query makes no other document less sure in
`alone`, in whichever words it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from toolgate.search import confidence
from toolgate.search.documents import Document, Verdict
from toolgate.search.ranking import IndexEntry, Ranking

_SHARED = 0.5  # of what a document answers: who answers as much of it, answers the same
_AS_GOOD = 0.8  # of what a document is worth


class Candidate(NamedTuple):
    """`place` in the order of the ranking. `answered` are words of the query."""

    place: int
    document: Document
    worth: float
    answered: frozenset[str]


class Comparison:
    """`candidates`, the best first."""

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking
        self._answered = {
            entry: frozenset(term for term in ranking.parts if entry in ranking.parts[term])
            for entry, _ in ranking.order
        }
        self.candidates = [
            Candidate(place, entry.document, worth, self._answered[entry])
            for place, (entry, worth) in enumerate(ranking.order)
        ]

    def judged(self, candidate: Candidate) -> tuple[float, Verdict]:
        """Beside all others."""
        return confidence.of(self._ranking, candidate.place)

    def alone(self, candidate: Candidate, sets_aside: Callable[[Document], bool]) -> Verdict:
        """Without those that answer the same, as far as they may be set aside."""
        own = self._ranking.order[candidate.place]

        def counts(other: IndexEntry) -> bool:
            return other is own[0] or not (sets_aside(other.document) and self._is_same(own[0], other))

        order = [each for each in self._ranking.order if counts(each[0])]
        return confidence.of(self._ranking._replace(order=order), order.index(own))[1]

    def as_good(self, candidate: Candidate) -> list[Candidate]:
        """The others that answer all that it answers, and nearly as well."""
        least = candidate.worth * _AS_GOOD
        return [
            each
            for each in self.candidates
            if each.place != candidate.place and each.worth >= least and each.answered >= candidate.answered
        ]

    def _is_same(self, own: IndexEntry, other: IndexEntry) -> bool:
        weights = self._ranking.query.weights
        whole = sum(weights[term] for term in self._answered[own])
        return sum(weights[term] for term in self._answered[own] & self._answered[other]) >= _SHARED * whole
