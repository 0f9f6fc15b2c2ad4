"""How likely it is that a hit is what was meant: a logistic regression over what the ranker saw anyway.

`confidence.json` has its coefficients and the thresholds of the verdicts; `bench/fit_confidence.py` makes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from toolgate.search.documents import Verdict
from toolgate.search.queries import Query
from toolgate.search.ranking import Candidate, said_of_name


class Model(NamedTuple):
    coefficients: dict[str, float]
    match: float
    possible: float


@cache
def model() -> Model:
    read: Any = json.loads(Path(__file__).with_name("confidence.json").read_text())
    return Model(read["coefficients"], read["match"], read["possible"])


def of(query: Query, ranked: Sequence[Candidate]) -> list[tuple[float, Verdict]]:
    """The confidence and the verdict of each, the best first."""
    return [_judged(features(query, ranked, at)) for at in range(len(ranked))]


def _judged(seen: dict[str, float]) -> tuple[float, Verdict]:
    coefficients, match, possible = model()
    confidence = 1 / (1 + math.exp(-sum(coefficients.get(name, 0) * value for name, value in seen.items())))
    verdict: Verdict = "match" if confidence >= match else "possible" if confidence >= possible else "none"
    return round(confidence, 2), verdict


def features(query: Query, ranked: Sequence[Candidate], at: int) -> dict[str, float]:
    """What is seen of the hit at this place; all from about 0 to 1, so that one sort of coefficients suits them."""
    each = ranked[at]
    total = sum(query.weights.values())
    top = ranked[0].relevance
    after = ranked[at + 1].relevance if at + 1 < len(ranked) else 0.0
    rarest = max(query.weights, key=query.weights.__getitem__)
    named = each.entry.vector.name & each.parts.keys()
    return {
        "always": 1.0,
        "coverage": sum(covers * query.weights[term] for term, covers in each.covers.items()) / total,
        "terms covered": len(each.parts) / len(query.weights),
        "saturation": sum(each.parts.values()) / total,
        "ratio to the top": each.relevance / top,
        "margin": (each.relevance - after) / top,
        "said of name": said_of_name(query, each),
        "named by query": sum(query.weights[term] for term in named) / total,
        "rarest term": each.covers.get(rarest, 0.0),
        "terms": math.log(len(query.weights)) / 4,
        "rank": math.log(1 + at) / 4,
        "is first": float(at == 0),
    }
