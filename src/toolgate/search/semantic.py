"""Search by meaning beside search by words: two orders made one.

The rule this file keeps: what is found by meaning alone is never called a match, since how sure that is depends on a
model that nobody has measured here; and equal scores have one order.
"""

from __future__ import annotations

import heapq
import operator
from array import array
from collections.abc import Mapping, Sequence

from toolgate.search import confidence, points
from toolgate.search.documents import Document, Hit

CANDIDATES = 128  # of each order
_DAMPING = 10  # how little the first places differ: reciprocal rank fusion


def text_of(document: Document) -> str:
    """What of a document is made a vector."""
    name = document.name.replace("_", " ").replace("-", " ")
    return f"{name}. {document.title} {document.description}"[:1000].strip()


def likeness(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(map(operator.mul, one, other)) if len(one) == len(other) else 0.0


def fused(
    query: str, meant: array[float], vectors: Mapping[Document, array[float]], hits: Sequence[Hit], limit: int
) -> list[Hit]:
    """`meant` is the query as a vector, `vectors` those of the documents that have one; `hits` are those by words."""
    alike = ((likeness(meant, vector), document) for document, vector in vectors.items())
    closest = heapq.nsmallest(CANDIDATES, alike, key=lambda each: (-each[0], each[1].server, each[1].name))
    worth: dict[Document, float] = {}
    for order in ([hit.document for hit in hits[:CANDIDATES]], [document for _, document in closest]):
        for rank, document in enumerate(order):
            worth[document] = worth.get(document, 0.0) + 1 / (_DAMPING + rank)
    by_words = {hit.document: hit for hit in hits}
    best = sorted(worth, key=lambda each: (-worth[each], each.server, each.name))[:limit]
    sure, verdict = 1.0, "match"
    found: list[Hit] = []
    for document in best:
        own = by_words.get(document)
        own_sure, own_verdict = (own.confidence, own.verdict) if own else (confidence.model().possible, "possible")
        if own_sure < sure:  # it never rises down the list
            sure, verdict = own_sure, own_verdict
        score = own.score if own else points.of(query, document)
        found.append(Hit(document, round(worth[document], 4), score, sure, verdict))
    return found
