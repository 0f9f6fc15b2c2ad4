"""Search by meaning beside search by words: two orders made one.

The rule this file keeps: what is found by meaning alone is never called a match, since how sure that is depends on a
model that nobody has measured here; and equal scores have one order.
"""

from __future__ import annotations

import heapq
import operator
from array import array
from collections.abc import Mapping, Sequence

from toolgate.search import confidence, places, points
from toolgate.search.documents import Document, Hit

CANDIDATES = 128  # of each order
MEANING = 0.35  # what meaning counts, and words the rest: each as a share of what its best is worth


def text_of(document: Document) -> str:
    """What of a document is made a vector."""
    name = document.name.replace("_", " ").replace("-", " ")
    return f"{name}. {document.title} {document.description}"[:1000].strip()


def likeness(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(map(operator.mul, one, other)) if len(one) == len(other) else 0.0


def is_match(hit: Hit | None) -> bool:
    """Whether it may take a place of a server that has nearly all: what is found by meaning alone may not."""
    return bool(hit) and hit.verdict != "none"


def fused(
    query: str, meant: array[float], vectors: Mapping[Document, array[float]], hits: Sequence[Hit], limit: int
) -> list[Hit]:
    """`meant` is the query as a vector, `vectors` those of the documents that have one; `hits` are those by words."""
    alike = {document: likeness(meant, vector) for document, vector in vectors.items()}
    closest = heapq.nsmallest(CANDIDATES, alike, key=lambda each: (-alike[each], each.server, each.name))
    nearest = max((alike[each] for each in closest), default=0.0) or 1.0
    most = max((hit.relevance for hit in hits), default=0.0) or 1.0
    worth = dict.fromkeys(closest, 0.0) | {hit.document: hit.relevance / most for hit in hits[:CANDIDATES]}
    for document, said in worth.items():
        worth[document] = (1 - MEANING) * said + MEANING * alike.get(document, 0.0) / nearest
    by_words = {hit.document: hit for hit in hits}
    order = sorted(worth, key=lambda each: (-worth[each], each.server, each.name))
    owners = [document.listed_by for document in order]
    best = [order[at] for at in places.shown(owners, limit, lambda at: is_match(by_words.get(order[at])))]
    sure, verdict, asked = 1.0, "match", points.asked(query)
    found: list[Hit] = []
    for document in best:
        own = by_words.get(document)
        own_sure, own_verdict = (own.confidence, own.verdict) if own else (confidence.model().possible, "possible")
        if own_sure < sure:  # it never rises down the list
            sure, verdict = own_sure, own_verdict
        score = own.score if own else points.of(asked, document)
        found.append(Hit(document, round(worth[document], 4), score, sure, verdict))
    return found
